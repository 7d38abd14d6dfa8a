"""Flaky cases: --repeat and --retry-failures count every try, FLAKY is never a pass, no failure is forgotten, and a
broken build is not retried."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

from kvtest import KVCTS, expect, finish, kvcts, need_program, results

CASE = (
    "case: flaky/{0}\ngeometry: {{base: small, layers: {2}}}\nproducer: {{layout: vllm-fa-nhd}}\nengine: fixture\n"
    "engine_options: {{{1}}}\nexpected: PASS\n"
)


def case_file(path: Path, cases: dict[str, str]) -> Path:
    path.write_text("---\n".join(CASE.format(name, options, 1 + n % 3) for n, (name, options) in enumerate(cases.items())))
    return path


def run(folder: Path, file: Path, *flags: str, status: int) -> dict[str, dict]:
    out = folder / f"{file.stem}{'-'.join(flags)}"
    text = expect(status, "run", "--file", str(file), "-j", "1", "--watch", "0s", "--out", str(out), *flags)
    found = {result["id"].removeprefix("flaky/"): result for result in results(out)}
    return {"folder": out, "text": text, **found}


def repeat(folder: Path) -> None:
    # A worker keeps its agent from case to case: the fault strikes in every fourth transfer of it.
    file = case_file(
        folder / "repeat.yaml",
        {"sometimes": "fault: flip_bit, every: '4'", "always": "fault: flip_bit", "never": "claims: ''"},
    )
    one = run(folder, file, status=1)
    assert [one[k]["outcome"] for k in ("sometimes", "always", "never")] == ["PASS", "FAIL", "PASS"] and "tries" not in one[
        "never"
    ]
    ten = run(folder, file, "--repeat", "10", status=1)
    some, always, never = (ten[k] for k in ("sometimes", "always", "never"))
    assert (some["outcome"], some["verdict"], some["tries"]["made"], some["tries"]["failed"]) == (
        "FLAKY",
        "unexpected",
        10,
        2,
    ), some
    assert [t["number"] for t in some["tries"]["failures"]] == [4, 8] and some["tries"]["failures"][0]["outcome"] == "FAIL"
    assert (
        some["wrong_bytes"] == 1
        and "failed 2 of 10 tries (5.7 to 51 % at 95 % confidence); in try 4: FAIL" in some["message"]
    ), some["message"]
    assert (always["outcome"], always["tries"]) == ("FAIL", always["tries"] | {"made": 10, "failed": 10}) and len(
        always["tries"]["failures"]
    ) == 10
    assert (never["outcome"], never["tries"]) == ("PASS", {"made": 10, "failed": 0})
    assert "1 FLAKY" in ten["text"] and re.search(r"repro 'flaky/sometimes' --file \S+ --repeat 14", ten["text"]), ten[
        "text"
    ]
    page = (ten["folder"] / "index.html").read_text()
    assert "FLAKY" in page and "--repeat 14" in page

    junit = {case.get("name"): case for case in ET.parse(ten["folder"] / "junit.xml").getroot().iter("testcase")}
    inside = {name: [child.tag for child in case] for name, case in junit.items()}
    assert inside["flaky/sometimes"] == ["failure", "flakyFailure", "flakyFailure", "system-out"], inside
    assert inside["flaky/always"] == ["failure", *["rerunFailure"] * 9, "system-out"] and inside["flaky/never"] == [
        "system-out"
    ]
    assert junit["flaky/sometimes"].find("failure").get("type") == "FLAKY" and junit["flaky/sometimes"].find(
        "flakyFailure/stackTrace"
    ).text.startswith("try 4 of 10")

    # The line that the report gives shows the failure; a single try says that it passed.
    line = ["repro", "flaky/sometimes", "--file", str(file), "--watch", "0s"]
    assert "PASS" in expect(0, *line)
    assert "try 4 of up to 14 failed" in expect(1, *line, "--repeat", "14")
    assert "failed 0 of 3 tries (0 to 56 % at 95 % confidence)" in expect(0, *line, "--repeat", "3")


def retries(folder: Path) -> None:
    file = case_file(folder / "retries.yaml", {"second": "fault: flip_bit", **{f"fine-{n}": "claims: ''" for n in range(6)}})
    # The second transfer of one worker fails, and the fourth: that of the second case and one of its retries.
    second = case_file(
        folder / "second.yaml",
        {
            "first": "fault: flip_bit, every: '2'",
            "second": "fault: flip_bit, every: '2'",
            **{f"fine-{n}": "claims: ''" for n in range(4)},
        },
    )
    got = run(folder, second, "--retry-failures", "3", status=1)
    one = got["second"]
    assert got["first"]["outcome"] == "PASS" and (one["outcome"], one["verdict"]) == ("FLAKY", "unexpected"), one
    assert one["tries"] == one["tries"] | {"made": 4, "retries": 3, "failed": 2} and [
        t["number"] for t in one["tries"]["failures"]
    ] == [1, 3], one["tries"]
    assert (
        "failed, then 1 of 3 retries (6.1 to 79 % at 95 % confidence)" in one["message"]
        and "1 failed case retried, 3 times each" in got["text"]
    )
    assert "tries" not in got["fine-0"]

    always = run(folder, file, "--retry-failures", "2", status=1)
    assert (always["second"]["outcome"], always["second"]["tries"]["made"], always["second"]["tries"]["failed"]) == (
        "FAIL",
        3,
        3,
    )

    broken = case_file(
        folder / "broken.yaml", {"a": "fault: flip_bit", "b": "fault: flip_bit", "c": "claims: ''", "d": "claims: ''"}
    )
    kept = run(folder, broken, "--retry-failures", "2", status=1)
    assert "not retried: 2 of 4 cases failed, more than 30 %" in kept["text"] and "tries" not in kept["a"]
    sittings = json.loads((kept["folder"] / "results.json").read_text())["run"]["sessions"]
    assert sittings[-1]["reason"].startswith("not retried"), sittings
    expect(2, "run", "--file", str(file), "--repeat", "2", "--retry-failures", "2", err="--retry-failures")
    expect(2, "run", "--file", str(file), "--repeat", "0", err="--repeat")
    expect(2, "run", "--resume", str(kept["folder"]), "--repeat", "2", err="--repeat")


def killed(folder: Path) -> None:
    """A failure of a try is in the store when it is seen: a run that is killed and taken up does not make a pass of it."""
    file = case_file(folder / "killed.yaml", {"sometimes": "fault: flip_bit, every: '5'"})
    out = folder / "killed"
    with subprocess.Popen(
        [str(KVCTS), "run", "--file", str(file), "-j", "1", "--watch", "0s", "--repeat", "100000", "--out", str(out)],
        stdout=subprocess.DEVNULL,
    ) as child:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            shown = kvcts("report", str(out), "--json")
            if shown.status != 2 and json.loads(shown.out)["counts"]["decided"] == 1:
                break
            time.sleep(0.1)
        os.kill(child.pid, signal.SIGKILL)
    expect(1, "run", "--resume", str(out))
    (one,) = results(out)
    assert one["outcome"] in ("FAIL", "FLAKY") and one["verdict"] == "unexpected" and one["wrong_bytes"] == 1, one


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts-flakes-") as name:
        folder = Path(name)
        repeat(folder)
        retries(folder)
        killed(folder)
    print("flaky cases are counted, never passed, never forgotten")


if __name__ == "__main__":
    finish(main)
