"""Measures random faults completely, in slices that survive an interruption, and prints the page.

    full_run.py [--correct 50000] [--single 10000] [--pairs 2000] [--slices 100] [--jobs N] [--records FILE]
    full_run.py --page | --figures [--records FILE]

Runs kvcts-random-faults once per slice of a kind, each with its own seeds, and appends the counts to the records,
one line of JSON per slice. Recorded slices are not run again; Ctrl-C loses only those under way. --page runs nothing
and prints the page from the records; --figures prints its numbers as JSON. Exit status 1: a fault was missed, a
correct case was called wrong, or too few single faults were named."""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import BUILD, ROOT  # noqa: E402

RECORDS = ROOT / "build" / "pages" / "random-faults.jsonl"
WANTED = {"correct": 50_000, "single": 10_000, "pairs": 2_000}
KINDS = tuple(WANTED)
TARGET = 98.0  # per cent of the caught single faults that must be named
COUNTS = ("cases", "same_map", "caught", "named", "preceded")


def commit() -> str:
    """The measured revision, including whether the checkout has changes."""

    def git(*argv: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *argv], capture_output=True, text=True, check=True).stdout.strip()

    return git("rev-parse", "--short=9", "HEAD") + ("+" if git("status", "--porcelain", "--untracked-files=no") else "")


def read_records(path: Path) -> dict[tuple[str, int], dict]:
    """(kind, slice) -> its counts. Ignores a line truncated by a kill."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[record["kind"], record["slice"]] = record
    return found


def run_slice(kind: str, index: int, total: int, slices: int, measured: str) -> dict:
    """Cases total * index / slices to total * (index + 1) / slices of one kind; the program adds a million per kind
    to the seed."""
    begin, end = total * index // slices, total * (index + 1) // slices
    with tempfile.TemporaryDirectory() as place:
        record = Path(place) / "record.json"
        argv = [
            str(BUILD / "bin" / "kvcts-random-faults"),
            "--cases",
            str(ROOT / "cases"),
            "--seed",
            str(1 + begin),
            "--record",
            str(record),
        ]
        for each in KINDS:
            argv += [f"--{each}", str(end - begin if each == kind else 0)]
        ended = subprocess.run(argv, capture_output=True, text=True)
        if not record.exists():
            raise RuntimeError(
                f"slice {index} of {kind}: '{' '.join(argv)}' ended with {ended.returncode} and no record: "
                f"{ended.stderr.strip()}"
            )
        return {
            "kind": kind,
            "slice": index,
            "of": slices,
            "wanted": total,
            "commit": measured,
            "seed": 1 + begin,
            **json.loads(record.read_text()),
        }


def short_of(records: dict[tuple[str, int], dict], amounts: dict[str, int], slices: int) -> list[tuple[str, int]]:
    """Further slices, with new seeds, if the slices so far have fewer cases than wanted."""
    total, more = Sum(records), []
    for kind, amount in amounts.items():
        lack = amount - total.cases(kind)
        free = [index for index in range(2 * slices) if (kind, index) not in records]
        more += [(kind, index) for index in free[: -(-lack * slices // amount)]] if lack > 0 else []
    return more


class Sum:
    """All records together."""

    def __init__(self, records: dict[tuple[str, int], dict]):
        self.slices = collections.Counter(kind for kind, _ in records)
        self.of = max(record["of"] for record in records.values())
        self.commits = collections.Counter(record["commit"] for record in records.values())
        self.rows: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
        self.pairs, self.single, self.correct = collections.Counter(), collections.Counter(), collections.Counter()
        self.wanted = dict(WANTED)
        self.ms: dict[str, list[float]] = collections.defaultdict(list)
        for record in records.values():
            for name, row in record["single"].items():
                self.rows[name].update(row)
                self.single.update(row)
            self.pairs.update(record["pairs"])
            self.correct.update(record["correct"])
            self.wanted[record["kind"]] = record.get("wanted", WANTED[record["kind"]])
            self.ms[record["kind"]] += record["ms"]

    def cases(self, kind: str) -> int:
        """A seed yields no case if its case has no place for the drawn fault."""
        return {
            "correct": self.correct["passed"] + self.correct["false_alarms"] + self.correct["refused"],
            "single": self.single["cases"],
            "pairs": self.pairs["cases"],
        }[kind]

    def figures(self) -> dict[str, float]:
        return {
            "random_faults.single.missed": self.missed(self.single),
            "random_faults.single.named": round(self.share(self.single), 2),
            "random_faults.pairs.missed": self.missed(self.pairs),
            "random_faults.false_alarms": self.correct["false_alarms"] + self.correct["refused"],
        }

    def whole(self) -> bool:
        return all(self.cases(kind) >= self.wanted[kind] for kind in KINDS)

    def met(self) -> bool:
        """Computed from the records."""
        return (
            self.missed(self.single) == self.missed(self.pairs) == 0
            and self.share(self.single) >= TARGET
            and self.correct["false_alarms"] == self.correct["refused"] == 0
        )

    @staticmethod
    def missed(row: collections.Counter) -> int:
        return row["cases"] - row["same_map"] - row["caught"]

    @staticmethod
    def share(row: collections.Counter) -> float:
        """Per cent of the caught ones that are named with correct precedence: the drawn class, or one that explains
        every byte and precedes it."""
        return 100 * (row["named"] + row["preceded"]) / row["caught"] if row["caught"] else 100.0


def page(total: Sum) -> str:
    def cells(name: str, row: collections.Counter) -> str:
        return f"| {name} | " + " | ".join(f"{row[key]:,}" for key in COUNTS) + f" | {total.share(row):.1f} |"

    measured = ", ".join(f"{name} ({count})" for name, count in sorted(total.commits.items()))
    lines = [
        "# Random faults",
        "",
        "Written by `harness/lab/random_faults/full_run.py --page` from its records. Each case is a small random one with "
        "transformations out of the library of the diagnosis, drawn with random parameters: one (single), two "
        "(pairs), none (correct).",
        "",
        f"Slices, the whole in {total.of} and more where seeds were passed over: "
        + ", ".join(f"{total.slices[kind]} of {kind}" for kind in KINDS)
        + f"; measured at {measured}. A seed whose case has no place for what was drawn is passed over.",
        "",
        f"- {total.single['cases']:,} single faults: {total.single['same_map']:,} do not change the map and pass; of "
        f"the other "
        f"{total.single['cases'] - total.single['same_map']:,}, {total.single['caught']:,} are caught and "
        f"{total.share(total.single):.2f} % of these named "
        f"(target {TARGET:.0f} %): {total.single['named']:,} as the class that was drawn, "
        f"{total.single['preceded']:,} as another one that explains "
        "every wrong byte as well and comes first by precedence (`kvcts explain --precedence`).",
        f"- {total.pairs['cases']:,} pairs: {total.pairs['same_map']:,} do not change the map; "
        f"{total.pairs['caught']:,} caught, "
        f"{total.share(total.pairs):.2f} % named as one of the two, where one alone explains every byte."
        if total.pairs["cases"]
        else "- No pairs so far.",
        f"- {total.correct['passed'] + total.correct['false_alarms']:,} correct cases: "
        f"{total.correct['false_alarms']:,} false alarms (target 0).",
    ]
    for kind, what in (("single", "single fault"), ("pairs", "pair")):
        if ms := sorted(total.ms[kind]):
            lines.append(
                f"- A {what}, compared and diagnosed: median {statistics.median(ms):.0f} ms of processor time, 95 % "
                f"under {ms[len(ms) * 95 // 100]:.0f} ms."
            )
    lines += [
        "",
        ("Targets " if total.whole() else "Not the whole measurement yet; by what is on record, targets ")
        + ("met." if total.met() else "**missed**."),
        "",
        "| drawn class | cases | same map | caught | named | preceded | named or preceded, % |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
        *(cells(f"`{name}`", row) for name, row in sorted(total.rows.items())),
        cells("all single", total.single),
        *([cells("pairs", total.pairs)] if total.pairs["cases"] else []),
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for kind, amount in WANTED.items():
        parser.add_argument(f"--{kind}", type=int, default=amount)
    parser.add_argument("--slices", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--page", action="store_true")
    parser.add_argument("--figures", action="store_true")
    args = parser.parse_args()
    records = read_records(args.records)
    if args.page or args.figures:
        if not records:
            print(f"full_run.py: there are no records in {args.records}; run it without --page first", file=sys.stderr)
            return 2
        print(page(Sum(records)) if args.page else json.dumps(Sum(records).figures()), end="")
        return 0
    measured = commit()
    wanted = [(kind, index) for kind in KINDS for index in range(args.slices) if (kind, index) not in records]
    wanted = wanted or short_of(records, {kind: getattr(args, kind) for kind in KINDS}, args.slices)
    # start a new line after a truncated one
    text = args.records.read_text() if args.records.exists() else ""
    args.records.parent.mkdir(parents=True, exist_ok=True)
    with args.records.open("a") as out, concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        out.write("" if text == "" or text.endswith("\n") else "\n")
        try:
            while wanted:
                for done in concurrent.futures.as_completed(
                    [
                        pool.submit(run_slice, kind, index, getattr(args, kind), args.slices, measured)
                        for kind, index in wanted
                    ]
                ):
                    record = done.result()
                    records[record["kind"], record["slice"]] = record
                    out.write(json.dumps(record) + "\n")
                    out.flush()
                    print(f"{len(records)} slices", file=sys.stderr, flush=True)
                wanted = short_of(records, {kind: getattr(args, kind) for kind in KINDS}, args.slices)
        except BaseException:
            pool.shutdown(cancel_futures=True, wait=False)
            raise
    total = Sum(records)
    print(page(total), end="")
    return 0 if total.met() else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except RuntimeError as error:
        print(f"full_run.py: {error}", file=sys.stderr)
        sys.exit(3)
