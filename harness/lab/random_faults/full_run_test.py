"""full_run.py: slices have their own seeds, recorded slices are not run again, truncated ones are, and a shortfall
is status 1."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
import full_run  # noqa: E402
from kvtest import finish, need_program  # noqa: E402

SMALL = ["--single", "5", "--pairs", "2", "--correct", "9", "--slices", "3", "--jobs", "2"]


def run(records: Path, *argv: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, str(Path(full_run.__file__)), "--records", str(records), *argv],
        capture_output=True,
        text=True,
        timeout=240,
    )


def timeless(page: str) -> list[str]:
    return [line for line in page.splitlines() if " ms of processor time" not in line]


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory() as place:
        records = Path(place) / "records.jsonl"
        none = run(records, "--page")
        assert none.returncode == 2 and "there are no records" in none.stderr, none
        first = run(records, *SMALL)
        lines = records.read_text().splitlines()
        assert (
            len(lines) == 9
            and "3 of correct, 3 of single, 3 of pairs" in first.stdout
            and "5 single faults" in first.stdout
            and " pairs: " in first.stdout
            and "9 correct cases: 0 false alarms" in first.stdout
            and "\nTargets met." in first.stdout
        ), first
        assert sorted(record["seed"] for record in map(json.loads, lines) if record["kind"] == "correct") == [1, 4, 7], lines
        again = run(records, *SMALL)
        assert again.stdout == first.stdout and again.stderr == "" and records.read_text().splitlines() == lines, again
        assert run(records, "--page").stdout == first.stdout

        records.write_text("\n".join(lines)[:-20])  # a kill while the last line was being written
        mended = run(records, *SMALL)
        assert timeless(mended.stdout) == timeless(first.stdout) and mended.stderr.count("slices") == 1, mended
        assert timeless(run(records, "--page").stdout) == timeless(first.stdout)

    right = {
        "kind": "single",
        "slice": 0,
        "of": 1,
        "commit": "x",
        "seed": 1,
        "single": {"truncated": {"cases": 100, "same_map": 0, "caught": 100, "named": 90, "preceded": 8}},
        "pairs": {"cases": 0, "same_map": 0, "caught": 0, "named": 0, "preceded": 0},
        "correct": {"passed": 1, "false_alarms": 0, "refused": 0},
        "ms": [1],
    }
    part = full_run.Sum({("single", 0): right})
    assert (
        part.met()
        and not part.whole()
        and "Not the whole measurement yet; by what is on record, targets met." in full_run.page(part)
    )
    for path, value in (
        (("single", "truncated", "preceded"), 7),
        (("single", "truncated", "caught"), 99),
        (("correct", "false_alarms"), 1),
        (("correct", "refused"), 1),
        (("pairs", "cases"), 1),
    ):
        wrong = json.loads(json.dumps(right))
        at = wrong
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        assert not full_run.Sum({("single", 0): wrong}).met(), path
        assert "**missed**" in full_run.page(full_run.Sum({("single", 0): wrong}))
    assert full_run.read_records(Path("/nonexistent")) == {}
    return 0


if __name__ == "__main__":
    finish(main)
