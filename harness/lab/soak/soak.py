"""Runs random cases of the suite soak through each engine for a while, in rounds of up to 900 with one pair of workers,
whose descriptors, threads and memory must be back at their baseline at the end of each round.

    soak.py [--minutes 60] [--engine NAME]... [--seed N] [--page]

--minutes: for each engine. Baseline: the maximum in the second tenth of a round, when everything has been opened
once; the end: the minimum of its last tenth. Shows the round with the largest growth. --page prints a table for a
document. Status 1 if a case ended unexpectedly, or something has grown."""

from __future__ import annotations

import argparse
import itertools
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "testing"))
from kvtest import KVCTS, ROOT, results  # noqa: E402

# Allowance above the baseline. NIXL's plug-in lets an agent accumulate a few sockets before it recreates it
# (harness/engines/nixl).
SPARE: dict[str, int] = {"descriptors": 16, "threads": 1, "MiB": 32}
PARTS = 6  # of an engine's 5,400 cases; a round runs one of them


@dataclass
class Worker:
    """What /proc says of one process, sample by sample."""

    samples: list[tuple[float, dict[str, int]]]

    def grown(self) -> dict[str, tuple[int, int]]:
        """Measure -> (baseline, end)."""
        first, last = self.samples[0][0], self.samples[-1][0]
        tenth = (last - first) / 10
        early = [values for at, values in self.samples if first + tenth <= at <= first + 2 * tenth] or [self.samples[0][1]]
        late = [values for at, values in self.samples if at >= last - tenth]
        return {name: (max(values[name] for values in early), min(values[name] for values in late)) for name in SPARE}


def look(pid: int) -> dict[str, int] | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        resident = int(re.search(r"^RssAnon:\s+(\d+)", status, re.M)[1]) // 1024
        return {
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
            "threads": len(os.listdir(f"/proc/{pid}/task")),
            "MiB": resident,
        }
    except (OSError, TypeError):
        return None


def descendants(root: int) -> dict[int, str]:
    """The names of a process's descendants, by pid."""
    parent, name = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            head, tail = Path(f"/proc/{entry}/stat").read_text().rsplit(")", 1)
        except OSError:
            continue
        parent[int(entry)], name[int(entry)] = int(tail.split()[1]), head.split("(", 1)[1]

    def belongs(pid: int) -> bool:
        while pid in parent and pid != root:
            pid = parent[pid]
        return pid == root

    return {pid: called for pid, called in name.items() if pid != root and belongs(pid)}


def round_of(engine: str, shard: str, seconds: float, seed: int, out: Path) -> tuple[list[dict], dict[int, Worker], float]:
    """One run with one pair of workers, interrupted when the time is up: its results, the samples of its workers,
    the time taken."""
    argv = [
        KVCTS,
        "run",
        "--suite",
        "soak",
        "--where",
        f"engine == {engine}",
        "--shard",
        shard,
        "--seed",
        str(seed),
        "-j",
        "1",
        "--out",
        out,
    ]
    began = time.monotonic()
    run = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    workers: dict[int, Worker] = {}
    while run.poll() is None:
        now = time.monotonic() - began
        if now > seconds:
            run.terminate()
            break
        for pid, called in descendants(run.pid).items():
            if called.startswith("kvcts-worker") and (seen := look(pid)):
                workers.setdefault(pid, Worker([])).samples.append((now, seen))
        time.sleep(0.1)
    said = run.communicate(timeout=120)[0]
    if run.returncode == -signal.SIGTERM:  # the time was up before the run had begun
        return [], {}, time.monotonic() - began
    if run.returncode not in (0, 1, 130):
        raise SystemExit(f"soak.py: {engine}: kvcts run ended with {run.returncode}:\n{said[-2000:]}")
    return (
        [case for case in results(out) if case["outcome"] not in ("NOT_RUN", "SKIPPED")],
        workers,
        time.monotonic() - began,
    )


def soak(engine: str, seconds: float, seed: int, folder: Path) -> dict:
    """Rounds of a random part of the suite with random contents, until the time is up."""
    draw = random.Random(f"{seed} {engine}")
    sum_up = {
        "engine": engine,
        "seconds": 0.0,
        "cases": 0,
        "moved": 0,
        "unexpected": [],
        "workers": 0,
        "lasting": 0,
        "grown": {name: (0, 0, False) for name in SPARE},
    }
    for number in itertools.count():
        left = seconds - sum_up["seconds"]
        if left <= 1 or (number and sum_up["cases"] == 0):
            return sum_up
        cases, workers, took = round_of(
            engine, f"{draw.randint(1, PARTS)}/{PARTS}", left, draw.randint(1, 1 << 40), folder / f"{engine}-{number}"
        )
        sum_up["seconds"] += took
        sum_up["cases"] += len(cases)
        sum_up["moved"] += sum(case["moved_bytes"] for case in cases)
        sum_up["unexpected"] += [case["id"] for case in cases if case["verdict"] != "as expected"]
        lasting = [worker for worker in workers.values() if worker.samples[-1][0] - worker.samples[0][0] > 0.5 * took]
        sum_up["workers"] += len(workers)
        sum_up["lasting"] += len(lasting)
        for name, spare in SPARE.items():
            for begin, end in (worker.grown()[name] for worker in lasting):
                known = sum_up["grown"][name]
                if known[0] == 0 or end - begin > known[1] - known[0]:
                    sum_up["grown"][name] = (begin, end, known[2] or end > begin + spare)


def verdict(one: dict) -> str:
    if one["cases"] == 0:
        return "SKIPPED"
    wrong = [name for name, (_, _, grew) in one["grown"].items() if grew]
    words = [f"{len(one['unexpected'])} unexpected"] * bool(one["unexpected"]) + [f"{name} grew" for name in wrong]
    return ", ".join(words + ["no worker lasted"] * (one["lasting"] == 0)) or "at the baseline"


def row(one: dict) -> list[str]:
    return [
        one["engine"],
        f"{one['seconds']:.0f} s",
        f"{one['cases']:,}",
        f"{one['moved'] / 1e6:,.1f} MB",
        str(one["workers"]),
        *(f"{begin} -> {end}" for begin, end, _ in one["grown"].values()),
        verdict(one),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--engine", action="append")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--page", action="store_true")
    options = parser.parse_args()
    suite = (ROOT / "cases" / "suites" / "soak.yaml").read_text()
    engines = options.engine or re.search(r"engine: \[(.*?)\]", suite, re.S)[1].replace("\n", " ").replace(" ", "").split(
        ","
    )
    head = ["engine", "time", "cases", "moved", "workers", "descriptors", "threads", "MiB", "at the end"]
    print("| " + " | ".join(head) + " |\n|" + " --- |" * len(head) if options.page else "  ".join(head), flush=True)
    bad = False
    with tempfile.TemporaryDirectory() as place:
        for engine in engines:
            one = soak(engine, 60 * options.minutes, options.seed, Path(place))
            bad |= verdict(one) not in ("at the baseline", "SKIPPED")
            print("| " + " | ".join(row(one)) + " |" if options.page else "  ".join(row(one)), flush=True)
            for name in one["unexpected"][:5]:
                print(f"  unexpected: {name}", flush=True)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
