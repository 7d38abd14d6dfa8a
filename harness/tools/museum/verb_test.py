"""kvcts report --museum: filters, --json, a stored run, and a museum whose faults are not what they were."""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, expect, kvcts_json, need_program  # noqa: E402

UCX = ["museum", "--system", "UCX"]


def filters() -> None:
    out = expect(0, *UCX, says="targets    met")
    assert re.search(
        r"^UCX\n  M174 .*\n.*https://github.com/openucx/ucx/.*10671\n  M175 .*\n        partial data; UCX; ", out
    ), out
    assert "expressed  1 of 1 confirmed, 1 of 1 partial\n" in out, out
    both = kvcts_json(*UCX, "--class", "registration-missing-region")
    assert [e["id"] for e in both["entries"]] == ["M174", "M175"] and both["missed"] == [], both["missed"]
    for entry in both["entries"]:
        assert (
            entry["expressed"] and entry["caught"] and entry["named"] and entry["controls"] == entry["controls_good"] >= 1
        ), entry
        assert {c["outcome"] for c in entry["cases"] if "#" not in c["case"]} <= {"FAIL", "HANG", "CRASH"}, entry
    one = {"entries": 1, "expressed": 1, "ran": 1, "caught": 1, "named": 1}
    assert both["totals"]["confirmed"] == both["totals"]["partial"] == one, both["totals"]
    silent = kvcts_json("museum", "--system", "Dynamo", "--class", "stale-block", "--class", "hang-transfer")
    assert all(e["reason"] for e in silent["entries"] if not e["expressed"]), silent
    expect(2, "museum", "--system", "UCKS", err="did you mean 'UCX'?")
    expect(2, "museum", "--class", "axis-permutet", err="did you mean 'axis-permuted'?")
    expect(4, *UCX, "--class", "crash", err="nothing selected")


def stored(folder: Path) -> None:
    """How entries ended in a run of the suite; an entry that did not run is not caught."""
    run = str(folder / "run")
    expect(0, "run", "--suite", "museum", "--id", "museum/m174-*", "--out", run)
    out = expect(1, "museum", run, "--system", "UCX", says="1 of 2 are not caught")
    assert re.search(r"M174 .*: named, (\d) of \1 controls", out) and re.search(r"M175 .*NOT_RUN: not run, 0 of", out), out
    expect(2, "museum", str(folder / "nowhere"), err="kvcts report --museum: ")
    seeds = str(folder / "seeds")
    expect(0, "run", "--id", "seeds/xformers-t4", "--out", seeds)
    expect(2, "museum", seeds, err="expected a run with cases of the museum")


def changed(folder: Path, old: str, new: str) -> str:
    """A copy of the catalogue with UCX's cases changed."""
    cases = folder / "cases"
    shutil.rmtree(cases, ignore_errors=True)
    shutil.copytree(ROOT / "cases", cases)
    path = cases / "museum" / "ucx-2.yaml"
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path.name}"
    path.write_text(text.replace(old, new))
    return str(cases)


def broken(folder: Path) -> None:
    """Harmless faults are not caught, faulty controls do not pass, entries without a case are missed."""
    ucx = (ROOT / "cases" / "museum" / "ucx-2.yaml").read_text()
    expect(
        1, *UCX, "--cases", changed(folder, "as_intended: true", "set: {seed: 2}"), says="controls do not end as they must"
    )
    harmless = ucx.replace(", actually: skipped", "")
    expect(1, *UCX, "--cases", changed(folder, ucx, harmless), says="are not caught")
    expect(
        2,
        *UCX,
        "--cases",
        changed(folder, "class: registration-missing-region", "class: truncated"),
        err="expected the class of M17",
    )
    gone = ucx[ucx.index("---\n") + 4 :]
    expect(
        2,
        *UCX,
        "--cases",
        changed(folder, ucx, gone),
        err="expected a case or a line '# not expressed: M174 openucx/ucx#10671: ...', found neither",
    )


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts museum ") as name:
        filters()
        stored(Path(name))
        broken(Path(name))
    print("kvcts report --museum lists, filters, judges and refuses as it says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
