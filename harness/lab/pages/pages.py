"""Writes pages about the suite itself, and their figures. `./run_suite.sh pages` builds what this needs and calls it.

    pages.py [--hold] [--out build/pages] [--build build] [NAME...]

Without a name: all but the long ones. Six are committed in reports/results/, copied there at a release.
OUT/figures.json has the numbers of the pages that were made; --hold holds them to the floors in reports/figures.json.
Exit status 1: a page could not be made, or a figure is beyond its floor."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import compatibility
import connectors
import figures as floors
import museum
import rules
import sabotage

from kvtest import ROOT

LAB = ROOT / "harness" / "lab"


class Skipped(Exception):
    """This machine or build lacks something that a page needs."""


class Maker:
    """Pages made by programs of the laboratory."""

    def __init__(self, build: Path, out: Path):
        self.build, self.out = build, out

    def program(self, name: str) -> Path:
        path = self.build / "bin" / name
        if not path.exists():
            raise Skipped(f"{path} is not built (cmake -DKVCTS_LAB=ON)")
        return path

    def call(self, *argv: str | Path, statuses: tuple[int, ...] = (0,)) -> str:
        command = [sys.executable, *argv] if str(argv[0]).endswith(".py") else argv
        ended = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if ended.returncode not in statuses:
            raise RuntimeError(f"{' '.join(map(str, argv))} ended with {ended.returncode}")
        return ended.stdout

    def benchmarks(self, figures: dict) -> str:
        bench = self.program("kvcts_bench")
        kernels, peers, cached = (self.out / f"bench-{name}.json" for name in ("kernels", "peers", "cached"))
        self.call(bench, "--json", kernels)
        self.call(bench, "--size", "1", "--json", cached)
        self.call(LAB / "bench" / "peers.py", bench, "--json", peers)
        page = self.out / "benchmarks.md"
        self.call(LAB / "bench" / "write_table.py", page, kernels, peers, cached)
        return page.read_text()

    def random_faults(self, figures: dict) -> str:
        self.program("kvcts-random-faults")
        records = self.out / "random-faults.jsonl"
        page = self.call(
            LAB / "random_faults" / "full_run.py",
            "--records",
            records,
            "--single",
            "400",
            "--pairs",
            "40",
            "--correct",
            "2000",
            "--slices",
            "4",
            statuses=(0, 1),
        )
        figures |= json.loads(self.call(LAB / "random_faults" / "full_run.py", "--records", records, "--figures"))
        return page

    def mutation(self, figures: dict) -> str:
        results, page = self.out / "mutation.json", self.out / "mutation.md"
        self.call(LAB / "mutation" / "mutation.py", "--build", self.build, "--results", results, "--page", page)
        figures |= {"mutation.killed": json.loads(results.read_text())["killed"]}
        return page.read_text()


def makers(build: Path, out: Path) -> dict[str, Callable[[dict], str]]:
    maker = Maker(build, out)
    return {
        "published-bugs": museum.page,
        "engine-edges": rules.page,
        "injected-faults": sabotage.page,
        "compatibility": compatibility.page,
        "connectors": connectors.page,
        "benchmarks": maker.benchmarks,
        "random-faults": maker.random_faults,
        "mutation": maker.mutation,
    }


LONG = ("mutation",)  # a quiet hour


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--hold", action="store_true")
    options.add_argument("--out", type=Path, default=ROOT / "build" / "pages")
    options.add_argument("--build", type=Path, default=ROOT / "build")
    options.add_argument("names", nargs="*", metavar="NAME")
    asked = options.parse_args()
    known = makers(asked.build, asked.out)
    if wrong := [name for name in asked.names if name not in known]:
        options.error(f"expected pages, found '{wrong[0]}'; there are {', '.join(known)}")
    asked.out.mkdir(parents=True, exist_ok=True)
    kept = asked.out / "figures.json"
    figures = json.loads(kept.read_text()) if kept.exists() else {}
    failed = 0
    for name in asked.names or [name for name in known if name not in LONG]:
        begin = time.monotonic()
        try:
            text = known[name](figures)
        except Skipped as reason:
            print(f"{name:<18} SKIPPED: {reason}", flush=True)
            continue
        except (RuntimeError, AssertionError) as failure:
            print(f"{name:<18} FAILED: {failure}", flush=True)
            failed += 1
            continue
        (asked.out / f"{name}.md").write_text(f"<!-- written by `./run_suite.sh pages {name}`; do not edit -->\n{text}")
        kept.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")
        print(f"{name:<18} {asked.out / name}.md, {time.monotonic() - begin:.0f} s", flush=True)
    beyond = floors.beyond(floors.read(), figures) if asked.hold else []
    print("\n".join(beyond))
    return 1 if failed or beyond else 0


if __name__ == "__main__":
    sys.exit(main())
