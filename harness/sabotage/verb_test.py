"""kvcts sabotage: a sample of the saboteurs against smoke, one of each way of catching; controls; what is missed is missed."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testing"))
from kvtest import kvcts, kvcts_json, need_program  # noqa: E402

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
    assert (totals["saboteurs"], totals["caught"], totals["named"], totals["false_alarms"], totals["good"]) == (len(SAMPLE), len(SAMPLE), len(SAMPLE), 0, True), totals


def missed(folder: Path) -> None:
    """A suite that looks at one small case catches what is wrong in it and says of the rest that it does not."""
    file = folder / "one.yaml"
    file.write_text("case: one/plain\nproducer: {layout: vllm-fa-nhd}\nconsumer: {layout: vllm-fa-hnd}\n")
    argv = ["sabotage", "--file", str(file), "--saboteur", "planner/ids-reversed", "--saboteur", "transport/shift-by-2-mib"]
    ended = kvcts(*argv)
    assert ended.status == 1, (ended.status, ended.err)
    assert "NOT CAUGHT" in ended.out and "no case has a place for it" in ended.out and "1 of 2 saboteurs caught, 1 named (50.0 %)" in ended.out, ended.out
    for argv, status, words in ((["--saboteur", "no/such"], 4, "no saboteur is called 'no/such'"), (["--suite", "smok"], 2, "did you mean 'smoke'?")):
        ended = kvcts("sabotage", *argv)
        assert ended.status == status and words in ended.err, (argv, ended)
    listed = kvcts("sabotage", "--list").out.splitlines()
    assert len(listed) >= 43 and any(line.startswith("writer/one-nan ") for line in listed), listed[:3]


def behind_an_engine() -> None:
    """A wrong plan is caught, named and told of in the same words when a released engine carries it."""
    plans = ["planner/ids-off-by-one", "planner/one-token-short", "connector/kv-exchanged"]
    argv = [word for plan in plans for word in ("--saboteur", plan)]
    plain = {row["saboteur"]: row for row in kvcts_json("sabotage", "--suite", "smoke", *argv)["saboteurs"]}
    for engine in ("nixl-tcp", "ucx-1.22-cma", "mooncake"):
        ended = kvcts("sabotage", "--suite", "smoke", *argv, "--behind", engine, "--json")
        if "./run_suite.sh install" in ended.err:
            print(f"{engine}: left out, its package is not installed")
            continue
        rows = {row["saboteur"]: row for row in json.loads(ended.out)["saboteurs"]}
        assert ended.status == 0 and rows == plain, (engine, rows, plain)
    ended = kvcts("sabotage", "--behind", "no-such")
    assert ended.status == 2 and "--behind expects an engine" in ended.err, ended


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts sabotage ") as name:
        sample()
        missed(Path(name))
    behind_an_engine()
    print(f"{len(SAMPLE)} saboteurs are caught and named, {len(CONTROLS)} controls are not")
    return 0


if __name__ == "__main__":
    sys.exit(main())
