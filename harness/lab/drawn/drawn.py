"""Runs correct code at random points of the whole matrix (suite drawn): none may raise an alarm. Slices survive an
interruption; --page prints their page.

    drawn.py [--slices 100] [--points 2000] [--jobs N] [--records FILE]
    drawn.py --page [--records FILE]

Slice I is `kvcts run --suite drawn --draw POINTS --draw-seed I`; its id alone reruns any of its cases. Outcomes are
appended to the records, one line of JSON per slice; recorded slices are not run again. --page runs nothing and
prints the page from the records (reports/drawn.md). Exit status 1: a case ended with something other than PASS or
SKIPPED."""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import KVCTS, ROOT, results  # noqa: E402

RECORDS = ROOT / "reports" / "drawn.jsonl"
AXES = ("dtype", "ptp", "ctp", "pbs", "cbs", "op", "content", "engine")  # counted in the page


def commit() -> str:
    """The measured revision, including whether the checkout has changes."""

    def git(*argv: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *argv], capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=9", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def read_records(path: Path) -> dict[int, dict]:
    """Slice -> outcomes. Ignores a line truncated by a kill."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["slice"]] = record
    return found


def run_slice(index: int, points: int, jobs: int, measured: str) -> dict:
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "run"
        began = time.monotonic()
        argv = [
            str(KVCTS),
            "run",
            "--suite",
            "drawn",
            "--draw",
            str(points),
            "--draw-seed",
            str(index),
            "-j",
            str(jobs),
            "--out",
            str(out),
        ]
        ended = subprocess.run(argv, cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if ended.returncode not in (0, 1):
            raise RuntimeError(f"slice {index}: '{' '.join(argv)}' ended with {ended.returncode}: {ended.stderr.strip()}")
        cases = results(out)
        values: dict[str, collections.Counter] = {
            axis: collections.Counter(str(case["facts"]["axes"][axis]) for case in cases) for axis in AXES
        }
        return {
            "slice": index,
            "points": points,
            "commit": measured,
            "seconds": round(time.monotonic() - began, 1),
            "outcomes": collections.Counter(case["outcome"] for case in cases),
            "alarms": [case["id"] for case in cases if case["outcome"] not in ("PASS", "SKIPPED")],
            "values": values,
        }


class Sum:
    """All records together."""

    def __init__(self, records: dict[int, dict]):
        self.slices = len(records)
        self.commits = collections.Counter(record["commit"] for record in records.values())
        self.outcomes: collections.Counter = collections.Counter()
        self.values: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self.alarms: list[str] = []
        for record in records.values():
            self.outcomes.update(record["outcomes"])
            self.alarms += record["alarms"]
            for axis, counts in record["values"].items():
                self.values[axis].update(counts)


def page(total: Sum) -> str:
    measured = ", ".join(f"{name} ({count})" for name, count in sorted(total.commits.items()))
    lines = [
        "# Right code at random points",
        "",
        "Written by `harness/lab/drawn/drawn.py --page` from `reports/drawn.jsonl`; do not edit. Cases of the suite "
        "`drawn` at random points of the whole "
        f"matrix; {total.slices} slices, each with a seed of its own, measured at {measured}.",
        "",
        f"- {sum(total.outcomes.values()):,} cases: "
        + ", ".join(f"{count:,} {name}" for name, count in sorted(total.outcomes.items()))
        + ".",
        f"- {len(total.alarms)} alarms (target 0)"
        + ("." if not total.alarms else ": " + ", ".join(f"`{name}`" for name in total.alarms) + "."),
        "",
        "| axis | cases by value |",
        "| --- | --- |",
        *(
            f"| `{axis}` | " + ", ".join(f"{value} {count:,}" for value, count in sorted(total.values[axis].items())) + " |"
            for axis in AXES
        ),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=100)
    parser.add_argument("--points", type=int, default=2_000, help="of a slice")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", action="store_true")
    args = parser.parse_args()
    records = read_records(args.records)
    if args.page:
        if not records:
            print(f"drawn.py: there are no records in {args.records}; run it without --page first", file=sys.stderr)
            return 2
        print(page(Sum(records)), end="")
        return 0
    measured = commit()
    text = args.records.read_text() if args.records.exists() else ""
    with args.records.open("a") as out:
        out.write("" if text == "" or text.endswith("\n") else "\n")  # start a new line after a truncated one
        for index in range(1, args.slices + 1):
            if index in records:
                continue
            record = records[index] = run_slice(index, args.points, args.jobs, measured)
            out.write(json.dumps(record) + "\n")
            out.flush()
            print(
                f"slice {index}/{args.slices}: {dict(record['outcomes'])} in {record['seconds']} s",
                *record["alarms"],
                sep="\n  ",
                file=sys.stderr,
                flush=True,
            )
    total = Sum(records)
    print(page(total), end="")
    return 1 if total.alarms else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        print(f"drawn.py: {error}", file=sys.stderr)
        sys.exit(3)
