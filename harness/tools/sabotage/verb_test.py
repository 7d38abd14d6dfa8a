"""kvcts inject: a sample of the saboteurs against smoke, one of each way of catching; controls; what is missed is
missed."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import ROOT, kvcts, kvcts_json, need_program  # noqa: E402

# saboteur -> what notices
SAMPLE = {
    "connector/head-dim-80-swapped": "bytes",
    "planner/ids-reversed": "bytes",
    "reader/ids-reversed": "reader",
    "reader/other-label": "outcome",
    "transport/no-copy-after-warm-up": "bytes",
    "transport/overrun-by-a-page": "bytes",
    "transport/late-write": "late write",
    "transport/source-recycled": "source",
    "transport/tail-short-by-one": "bytes",
    "writer/no-negative-zero": "bytes",
}
CONTROLS = ["connector/honest", "reader/honest", "transport/honest"]


def sample() -> None:
    argv = [word for saboteur in [*SAMPLE, *CONTROLS] for word in ("--saboteur", saboteur)]
    found = kvcts_json("sabotage", "--suite", "smoke", *argv)
    rows = {row["saboteur"]: row for row in found["saboteurs"]}
    assert set(rows) == {*SAMPLE, *CONTROLS}, sorted(rows)
    for saboteur, check in SAMPLE.items():
        row = rows[saboteur]
        assert row["caught"] and row["named"] and check in row["checks"] and row["suite"] == "smoke", row
        assert row["diagnosed"] == row["class"] and row["outcome"] in ("FAIL", "HANG"), row
    for control in CONTROLS:
        assert rows[control]["harmless"] and not rows[control]["caught"] and rows[control]["tried"] >= 4, rows[control]
    totals = found["totals"]
    assert (totals["saboteurs"], totals["caught"], totals["named"], totals["false_alarms"], totals["good"]) == (
        len(SAMPLE),
        len(SAMPLE),
        len(SAMPLE),
        0,
        True,
    ), totals


def missed(folder: Path) -> None:
    """A suite with one small case catches what is wrong in it and reports that it misses the rest."""
    file = folder / "one.yaml"
    file.write_text("case: one/plain\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd}\n")
    argv = ["sabotage", "--file", str(file), "--saboteur", "planner/ids-reversed", "--saboteur", "transport/shift-by-2-mib"]
    ended = kvcts(*argv)
    assert ended.status == 1, (ended.status, ended.err)
    assert (
        "NOT CAUGHT" in ended.out
        and "no case has a place for it" in ended.out
        and "1 of 2 faults caught, 1 named (50.0 %)" in ended.out
    ), ended.out
    for argv, status, words in (
        (["--saboteur", "no/such"], 4, "no injected fault is called 'no/such'"),
        (["--suite", "smok"], 2, "did you mean 'smoke'?"),
    ):
        ended = kvcts("sabotage", *argv)
        assert ended.status == status and words in ended.err, (argv, ended)
    listed = kvcts("sabotage", "--list").out.splitlines()
    assert len(listed) >= 43 and any(line.startswith("writer/one-nan ") for line in listed), listed[:3]


def rows_of(matrix) -> dict:
    return {row["saboteur"]: row for row in matrix["saboteurs"]}


def behind_an_engine() -> None:
    """One of every place is caught, named and described identically with a released engine: wrong in the plan, in
    front of the engine and behind it."""
    wrong = [
        "planner/one-token-short",
        "connector/kv-exchanged",
        "transport/every-third-dropped",
        "transport/wrong-direction",
        "transport/late-write",
        "transport/source-recycled",
        "writer/swapped-halfwords",
        "reader/ids-reversed",
    ]
    argv = [word for saboteur in [*wrong, "transport/honest"] for word in ("--saboteur", saboteur)]
    plain = rows_of(kvcts_json("sabotage", "--suite", "smoke", *argv))
    for engine in sys.argv[1:]:
        ended = kvcts("sabotage", "--suite", "smoke", *argv, "--behind", engine, "--json")
        if "./run_suite.sh install" in ended.err:
            print(f"{engine}: left out, its package is not installed")
            continue
        rows = rows_of(json.loads(ended.out))
        assert ended.status == 0 and rows == plain, (engine, rows, plain)
        assert not rows["transport/honest"]["caught"], rows["transport/honest"]
    ended = kvcts("sabotage", "--behind", "no-such")
    assert ended.status == 2 and "--behind expects an engine" in ended.err, ended


def what_cannot_be_had(folder: Path) -> None:
    """Behind a write-only engine nothing can go the other way: this is reported, and is neither caught nor missed.
    Several engines, each with its matrix."""
    cases = folder / "cases"
    shutil.copytree(ROOT / "cases", cases, ignore=shutil.ignore_patterns("museum", "oracles"))
    (cases / "engines" / "writes_only.yaml").write_text(
        "engine: writes-only\ntitle: t\nplugin: kvcts_engine_hostile\nprocesses: 2\noptions: {mode: 'claim:can_read=0'}\n"
    )
    saboteurs = ["--saboteur", "transport/every-third-dropped", "--saboteur", "transport/wrong-direction"]
    ended = kvcts("--cases", str(cases), "sabotage", *saboteurs, "--behind", "shm", "--behind", "writes-only", "--json")
    shm, writes_only = json.loads(ended.out)["behind"]
    assert ended.status == 0 and shm["totals"]["caught"] == 2 and shm["totals"]["skipped"] == 0, shm
    assert writes_only["totals"] == {
        "saboteurs": 2,
        "caught": 1,
        "named": 1,
        "skipped": 1,
        "false_alarms": 0,
        "good": True,
    }, writes_only
    reason = rows_of(writes_only)["transport/wrong-direction"]["skipped"]
    assert "fault reverse_direction needs an engine that reads and writes; hostile does not read" in reason, reason
    ended = kvcts("--cases", str(cases), "sabotage", *saboteurs, "--behind", "writes-only")
    assert ended.status == 0 and re.search(
        r"^transport/wrong-direction +SKIPPED .*hostile does not read", ended.out, re.M
    ), ended
    ended = kvcts("--cases", str(cases), "sabotage", *saboteurs[2:], "--behind", "writes-only")
    assert ended.status == 1, "nothing ran"


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts sabotage ") as name:
        sample()
        missed(Path(name))
        what_cannot_be_had(Path(name))
    behind_an_engine()
    print(f"{len(SAMPLE)} saboteurs are caught and named, {len(CONTROLS)} controls are not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
