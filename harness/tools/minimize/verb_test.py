"""kvcts minimize: cases of the matrix and of files, through processes; the output runs and fails the same way; clear
errors."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, expect, kvcts, kvcts_json, need_program  # noqa: E402


def same_class(folder: Path, file: Path, ends: str, name: str, *argv: str) -> None:
    """The file alone ends as the case did."""
    out = kvcts("run", "--file", str(file), "--out", str(folder / name), "--json", *argv)
    cases = kvcts_json("report", str(folder / name), *argv)["results"]
    first = next(c for c in cases if "#" not in c["id"])
    assert [first["outcome"], first["diagnosis"].get("fault_class", "")] == ends.split(), (first, out.err)
    assert all(c["outcome"] == "PASS" for c in cases if "#" in c["id"]), cases


def of_the_matrix(folder: Path) -> None:
    """An engine in a separate catalogue that reports success and moves nothing: the failure needs one token of one
    head."""
    cases = folder / "cases"
    shutil.copytree(ROOT / "cases", cases)
    (cases / "engines" / "broken.yaml").write_text(
        "engine: broken\ntitle: moves nothing\nplugin: kvcts_engine_fixture\nprocesses: 1\noptions: {fault: nothing}\n"
    )
    point = "kv/producer=vllm-fa-nhd/consumer=vllm-fa-hnd/dtype=fp16/geometry=gqa-8/ptp=2/engine=broken"
    out = expect(
        0,
        "minimize",
        point,
        "--cases",
        str(cases),
        "-o",
        str(folder / "matrix.yaml"),
        says="FAIL silently-skipped at compare",
    )
    last = out.rstrip().splitlines()[-1]
    assert re.match(
        r"\d+ tries, \d+ accepted; .*\d+ heads -> 1, .*\d+ tokens -> 1, .*3 ranks -> 2, .*bytes -> \d+$", last
    ), last
    text = (folder / "matrix.yaml").read_text()
    assert "engine: broken" in text and "\ndtype" not in text and "consumer:" not in text, (
        text
    )  # what it needs, and nothing more
    same_class(folder, folder / "matrix.yaml", "FAIL silently-skipped", "matrix", "--cases", str(cases))


def of_files(folder: Path) -> None:
    for case, ends in (("museum/m174-ucx-10671", None), ("seeds/xformers-t4#wrong-inner-order", "FAIL axis-permuted")):
        file = folder / (re.sub(r"\W", "-", case) + ".yaml")
        told = kvcts_json("minimize", case, "-o", str(file))
        assert told["finished"] and told["accepted"] and told["after"]["bytes"] < told["before"]["bytes"], told
        ends = ends or f"{told['outcome']} {told['class']}"
        assert ends == f"{told['outcome']} {told['class']}", told
        same_class(folder, file, ends, file.stem)
        again = kvcts_json("minimize", case)
        assert {k: v for k, v in told.items() if k != "file"} == again, "the same case gives the same steps"
    # Minimising the smallest form changes nothing.
    small = kvcts_json("minimize", str(file))
    assert small["before"] == small["after"] and small["accepted"] == [], small


def refusals(folder: Path) -> None:
    expect(
        2,
        "minimize",
        "faults/axis-permuted#intended",
        err="expected a case that fails, found 'faults/axis-permuted#intended': PASS",
    )
    expect(2, "minimize", "faults/axis-permutet", err="faults/axis-permutet")
    expect(2, "minimize", "kv/producer=vllm-fa-nhd/arch=sm_75/dtype=fp8_e4m3/consumer=unknown", err="unknown")
    expect(2, "minimize", str(ROOT / "cases" / "faults" / "layout.yaml"), err="expected one case, found 11")
    expect(2, "minimize", str(folder / "none.yaml"), err="none.yaml")
    expect(2, "minimize", "faults/axis-permuted", "-o", str(folder), err="-o expects a file to write")
    expect(2, "minimize", "faults/axis-permuted", "-o", str(folder / "no" / "x.yaml"), err="cannot be written")
    expect(2, "minimize", "faults/axis-permuted", "--tries", "0", err="--tries")
    # It failed in a stored run but no longer does.
    case = folder / "mended.yaml"
    text = (ROOT / "cases" / "faults" / "layout.yaml").read_text().split("---")[0]
    case.write_text(text)
    kvcts("run", "--file", str(case), "--out", str(folder / "before"))
    fault = ', actually: {from: {template: "L x K B H N C"}}'
    assert fault in text, text
    case.write_text(text.replace(fault, ""))
    expect(
        2,
        "minimize",
        "faults/axis-permuted",
        "--file",
        str(case),
        "--run",
        str(folder / "before"),
        err="it ended as FAIL axis-permuted at compare: it is flaky, or",
    )


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        of_the_matrix(folder)
        of_files(folder)
        refusals(folder)
    print("ok: matrix, files, refusals")


if __name__ == "__main__":
    main()
