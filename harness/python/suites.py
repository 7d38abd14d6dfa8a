"""Runs suites one after another: prints the plan first; a folder and a report each, one page over all, one verdict
line, one exit status.

    suites.py [--jobs N] [--no-engines] [--night [--budget TIME] [--rotate FILE] [--since DIR] [--history FILE]]
              [--shard I/N [--shard-times FILE] | --on slurm [--shards N] [--sbatch-option OPTION]...] [--out DIR]

Without --night: the suites for a first look. --night: those of the night, then the tests that the self-test has no
time for (with --shard only in the first one, with --budget not at all). --budget 30m is divided by the suites'
estimated times; cases not seen for longest run first, by the file of --rotate (runs/rotation.json), which records
every night. --on slurm: each suite by `kvcts run --on slurm`, in the allocation that this runs in, else in one of its
own. --since: the --out of an earlier night; every report says what changed. --history: the night is added to
this file, every page shows the nights before, and the log ends with what they say together. A suite whose packages were
never installed is reported as not planned. Called by run_suite.sh. Standard library only. Exit status: the worst of
all: 3 the suite's own error, 1 not as expected, 5 something planned was not run, 0; 130 interrupted."""

from __future__ import annotations

import argparse
import html
import json
import os
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
KVCTS = ROOT / "build" / "bin" / "kvcts"
FIRST_LOOK = ["smoke", "seeds", "golden", "crash"]
NIGHT = ["nightly", "connectors", "engines", "engine-faults", "vllm", "sglang", "stores", "lmcache"]
ENVIRONMENTS = {"vllm": "vllm", "sglang": "sglang", "stores": "sglang", "lmcache": "lmcache"}
WORDS = {0: "as expected", 1: "not as expected", 5: "incomplete"}
VERDICTS = {0: "as expected", 1: "NOT AS EXPECTED", 3: "THE SUITE ITSELF FAILED", 5: "INCOMPLETE"}
RANK = [0, 5, 1, 3]  # the worst last
EXAMPLE = "seeds/xformers-t4#wrong-inner-order"  # the failing case that the README explains


@dataclass
class Done:
    """A suite, or the tests of the night."""

    name: str
    status: int
    folder: Path | None = None

    def word(self) -> str:
        return WORDS.get(self.status, f"could not run (status {self.status})")

    def rank(self) -> int:
        return RANK.index(self.status) if self.status in RANK else RANK.index(3)


def why_not(suite: str, engines: bool) -> str | None:
    """Why a suite is not planned here; None: it is planned."""
    if suite in ("engines", "engine-faults") and not engines:
        return "--no-engines leaves out the engine packages that it is about"
    if name := ENVIRONMENTS.get(suite):
        installed = ROOT / ".venv" / "with" / name / "bin" / "python"
        if not os.environ.get(f"KVCTS_PYTHON_{name.upper()}") and not installed.exists():
            return f"./run_suite.sh --with {name} install makes the environment that it needs"
    return None


def say(words: str) -> None:
    print(f"== {words}", flush=True)


@dataclass
class Size:
    cases: int
    seconds: float  # estimated, one after another


def size(suite: str, shard: list[str]) -> Size:
    return Size(
        **json.loads(
            subprocess.run(
                [KVCTS, "list", "--suite", suite, *shard, "--count", "--json"], stdout=subprocess.PIPE, text=True, check=True
            ).stdout
        )
    )


def run(suite: str, flags: list[str], jobs: int, out: Path) -> Done:
    say(f"suite {suite}")
    folder = out / suite
    return Done(
        suite, subprocess.run([KVCTS, "run", "--suite", suite, *flags, "-j", str(jobs), "--out", folder]).returncode, folder
    )


def changed(one: Done, since: Path | None, history: Path | None) -> None:
    """Adds what changed since the previous night, and all nights of the history, to a suite's page and to the log."""
    flags: list[str | Path] = []
    if history and (one.folder / "store.db").exists():
        if subprocess.run([KVCTS, "history", "add", one.folder, "--history", history]).returncode == 0:
            flags += ["--history", history]
    if since and (since / one.name / "store.db").exists():
        flags += ["--since", since / one.name]
        subprocess.run([KVCTS, "compare", since / one.name, one.folder])
    elif since:
        say(f"{one.name}: nothing to compare with, {since / one.name} has no run")
    if flags:
        subprocess.run([KVCTS, "report", one.folder, *flags, "--out", one.folder], stdout=subprocess.DEVNULL)


def index(title: str, verdict: str, done: list[Done], skipped: dict[str, str]) -> str:
    """One page over all suites: each outcome and its report."""
    rows = []
    for one in done:
        results = one.folder / "results.json" if one.folder else None
        headline = json.loads(results.read_text())["headline"] if results and results.exists() else one.word()
        link = (
            f'<a href="{html.escape(one.name)}/index.html">{html.escape(one.name)}</a>'
            if results and results.exists()
            else html.escape(one.name)
        )
        rows.append(
            f'<tr class="s{one.rank()}"><th '
            f'scope="row">{link}</th><td>{html.escape(one.word())}</td><td>{html.escape(headline)}</td></tr>'
        )
    rows += [
        f'<tr><th scope="row">{html.escape(name)}</th><td>not planned</td><td>{html.escape(reason)}</td></tr>'
        for name, reason in skipped.items()
    ]
    style = (
        "body{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 "
        "1rem}th,td{text-align:left;padding:.3rem 1rem .3rem 0;vertical-align:top}.s2,.s3{color:#a00}.s1{color:#850}"
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width, initial-scale=1"><title>{html.escape(title)}</title>'
        f"<style>{style}</style></head>\n<body><h1>{html.escape(verdict)}</h1>\n<table><tbody>\n"
        + "\n".join(rows)
        + "\n</tbody></table></body></html>\n"
    )


def what_next(worst: int, done: list[Done]) -> str:
    """The one command to type after this run."""
    script = "./run_suite.sh"
    if worst == 5:
        return f"{script} doctor    # what this machine lacks"
    for one in done:
        if worst == 1 and one.folder and (one.folder / "results.json").exists():
            for result in json.loads((one.folder / "results.json").read_text())["results"]:
                if result["verdict"] in ("unexpected", "expired waiver", "XPASS"):
                    return f"{script} repro {shlex.quote(result['id'])} --run {shlex.quote(str(one.folder))}"
    if worst == 0:
        return f"{script} repro '{EXAMPLE}'    # one failure, step by step"
    return "open the page; every failure has a command that repeats it"


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    class Parser(argparse.ArgumentParser):
        def error(self, message: str):
            print(f"nightly: {message}", file=sys.stderr)
            sys.exit(2)

    def shard(text: str) -> str:
        found = re.fullmatch(r"([1-9]\d*)/([1-9]\d*)", text)
        if not found or int(found[1]) > int(found[2]):
            raise argparse.ArgumentTypeError(f"expected i/n with 1 <= i <= n, found '{text}'")
        return text

    def folder(text: str) -> Path:
        path = Path(text).absolute()
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise argparse.ArgumentTypeError(f"expected a new or an empty folder, found '{text}'")
        return path

    def budget(text: str) -> float:
        found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)", text)
        if not found or float(found[1]) <= 0:
            raise argparse.ArgumentTypeError(f"expected a time like 30m, 90s or 2h, found '{text}'")
        return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]

    def night(text: str) -> Path:
        if not Path(text).is_dir():
            raise argparse.ArgumentTypeError(f"expected the --out folder of an earlier night, found '{text}'")
        return Path(text).absolute()

    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--night", action="store_true")
    parser.add_argument("--check", action="store_true", help="only look at the arguments")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-engines", action="store_true")
    parser.add_argument("--shard", type=shard)
    parser.add_argument("--shard-times", type=lambda text: Path(text).absolute())
    parser.add_argument("--on", choices=["slurm"])
    parser.add_argument("--shards", type=int)
    parser.add_argument("--sbatch-option", action="append", default=[])
    parser.add_argument("--out", type=folder)
    parser.add_argument("--budget", type=budget)
    parser.add_argument("--rotate", type=lambda text: Path(text).absolute(), default=ROOT / "runs" / "rotation.json")
    parser.add_argument("--since", type=night)
    parser.add_argument("--history", type=lambda text: Path(text).absolute())
    asked = parser.parse_args(argv)
    if asked.on and (asked.shard or asked.budget):
        parser.error("--on slurm cuts shards itself and runs them all: leave out --shard and --budget")
    if not asked.on and (asked.shards or asked.sbatch_option):
        parser.error("--shards and --sbatch-option are for --on slurm")
    return asked


def main() -> int:
    asked = parsed()
    if asked.check:
        return 0
    name = "nightly" if asked.night else "suites"
    shard = ["--shard", asked.shard] if asked.shard else []
    shard += ["--shard-times", str(asked.shard_times)] if asked.shard_times else []
    on = ["--on", asked.on, *(f"--sbatch-option={option}" for option in asked.sbatch_option)] if asked.on else []
    on += ["--shards", str(asked.shards)] if asked.shards else []
    out = asked.out or ROOT / "runs" / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{os.getpid()}"
    skipped = {
        suite: why for suite in (NIGHT if asked.night else FIRST_LOOK) if (why := why_not(suite, not asked.no_engines))
    }
    planned = {suite: size(suite, shard) for suite in (NIGHT if asked.night else FIRST_LOOK) if suite not in skipped}
    tests = asked.night and not asked.budget and (not asked.shard or asked.shard.startswith("1/"))
    say(
        "plan: "
        + ", ".join(f"{suite} {size.cases:,}" for suite, size in planned.items())
        + f", {sum(size.cases for size in planned.values()):,} cases"
        + (f" of shard {asked.shard}" if shard else "")
        + (f"; of them what fits into {asked.budget / 60:g} minutes, without the tests of the night" if asked.budget else "")
        + ("; then the tests of the night" if tests else "")
    )
    for suite, why in skipped.items():
        say(f"suite {suite} is not planned: {why}")
    done = []
    begin, ahead = time.monotonic(), sum(size.seconds for size in planned.values())
    for suite, size_of_it in planned.items():
        flags = [*shard, *on, "--rotate", str(asked.rotate)] if asked.night else shard
        if asked.budget:
            # Time that an earlier suite did not use goes to the others; each gets a chance.
            left = max(0.0, asked.budget - (time.monotonic() - begin))
            flags += ["--budget", f"{max(1.0, left * size_of_it.seconds / max(ahead, 1e-9)):.1f}"]
            ahead -= size_of_it.seconds
        done.append(run(suite, flags, asked.jobs, out))
        if done[-1].status == 130:
            say(f"{suite}: interrupted")
            return 130
        changed(done[-1], asked.since, asked.history)
    if asked.history and asked.history.exists():
        say("all nights")
        subprocess.run([KVCTS, "history", "show", "--history", asked.history])
    if tests:
        night = subprocess.run(
            [
                sys.executable,
                ROOT / "harness" / "python" / "selftest.py",
                "--nightly",
                "--jobs",
                str(asked.jobs),
                "--limit",
                "14400",
            ]
        )
        done.append(Done("tests of the night", night.returncode))
        if night.returncode == 130:
            return 130
    worst = RANK[max(one.rank() for one in done)]
    verdict = (
        f"{name}: {VERDICTS[worst]} "
        f"({'; '.join([*(f'{one.name} {one.word()}' for one in done), *(f'{suite} not planned' for suite in skipped)])})"
    )
    out.mkdir(parents=True, exist_ok=True)
    (out / "index.html").write_text(index(name, verdict, done, skipped), encoding="utf-8")
    print(f"{verdict}\npage: {out / 'index.html'}\nnext: {what_next(worst, done)}", flush=True)
    return worst


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
