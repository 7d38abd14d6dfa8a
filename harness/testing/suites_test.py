"""How run_suite.sh handles suites: plan, verdict, page and exit status, with a stand-in for kvcts that ends with given
statuses."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from kvtest import ROOT, finish

sys.path.insert(0, str(ROOT / "harness" / "python"))
import suites  # noqa: E402

STAND_IN = """#!/bin/sh
suite=$3
[ "$1" = list ] && { echo '{"cases": 7, "seconds": 2.0}'; exit; }
echo "$@" >> "$CALLS"
[ "$1" = run ] || exit 0
while [ "$1" != --out ]; do shift; done
mkdir -p "$2" && touch "$2/index.html" "$2/store.db"
echo '{"headline": "<'$suite'> ends", "results": [{"id": "a/good", "verdict": "as expected"},
  {"id": "a/bad#one", "verdict": "unexpected"}]}' > "$2/results.json"
eval "exit \\${STATUS_$suite:-0}"
"""


NEXT = {
    0: f"./run_suite.sh repro '{suites.EXAMPLE}'",
    1: "./run_suite.sh repro 'a/bad#one' --run ",
    3: "open the page; every failure has a command that repeats it",
    5: "./run_suite.sh doctor",
}


def called(folder: Path, *argv: str, **statuses: int) -> tuple[int, str]:
    out = io.StringIO()
    os.environ.update(
        {"CALLS": str(folder / "calls"), **{f"STATUS_{suite}": str(status) for suite, status in statuses.items()}}
    )
    try:
        with contextlib.redirect_stdout(out):
            sys.argv = ["suites.py", *argv]
            status = suites.main()
    finally:
        for suite in statuses:
            del os.environ[f"STATUS_{suite}"]
    return status, out.getvalue()


def first_look(folder: Path) -> None:
    for statuses, worst, verdict in (
        ({}, 0, "suites: as expected (smoke as expected; seeds as expected; golden as expected; crash as expected)"),
        ({"seeds": 5}, 5, "suites: INCOMPLETE (smoke as expected; seeds incomplete; golden as expected; crash as expected)"),
        (
            {"smoke": 5, "golden": 1},
            1,
            "suites: NOT AS EXPECTED (smoke incomplete; seeds as expected; golden not as expected; crash as expected)",
        ),
        (
            {"smoke": 1, "crash": 2},
            3,
            "suites: THE SUITE ITSELF FAILED (smoke not as expected; seeds as expected; golden as expected; crash "
            "could not run (status 2))",
        ),
    ):
        out = folder / f"out {worst}"
        status, said = called(folder, "--out", str(out), **statuses)
        lines = said.splitlines()
        assert status == worst and lines[-3:-1] == [verdict, f"page: {out / 'index.html'}"], (status, said)
        assert lines[-1].startswith("next: " + NEXT[worst]), lines[-1]
        assert lines[0] == "== plan: smoke 7, seeds 7, golden 7, crash 7, 28 cases", lines
        page = (out / "index.html").read_text()
        assert 'href="golden/index.html"' in page and "&lt;golden&gt; ends" in page and page.count("<tr") == 4, page
    status, said = called(folder, "--out", str(folder / "interrupted"), seeds=130)
    assert status == 130 and "seeds: interrupted" in said and "golden" not in said.split("plan:")[1].split("\n", 1)[1], said


def nights(folder: Path) -> None:
    """Of another shard than the first: no tests of the night; what is not planned is said, and is no part of the status."""
    (folder / "calls").unlink()
    status, said = called(folder, "--night", "--no-engines", "--shard", "2/3", "--jobs", "3", "--out", str(folder / "night"))
    lines = said.splitlines()
    assert status == 0 and lines[0].endswith("cases of shard 2/3"), said
    assert (
        "== suite engines is not planned: --no-engines leaves out" in said
        and "engines not planned" in lines[-3]
        and "tests of the night" not in said
    ), said
    calls = (folder / "calls").read_text().splitlines()
    assert (
        calls[0].startswith(f"run --suite nightly --shard 2/3 --rotate {ROOT}/runs/rotation.json -j 3 --out ")
        and len(calls) == len(lines[0].split("cases of")[0].split(", ")) - 1
    ), calls
    assert "<td>not planned</td>" in (folder / "night" / "index.html").read_text()


def on_slurm(folder: Path) -> None:
    """The runs go to the nodes, and nothing else changes."""
    (folder / "calls").unlink()
    suites.ROOT = folder / "checkout"
    (suites.ROOT / "harness/python").mkdir(parents=True)
    (suites.ROOT / "harness/python/selftest.py").touch()
    options = ["--on", "slurm", "--shards", "8", "--sbatch-option=--nodes=2", "--sbatch-option=--exclusive"]
    status, said = called(folder, "--night", "--no-engines", *options, "--out", str(folder / "fleet"))
    runs = [call for call in (folder / "calls").read_text().splitlines() if call.startswith("run ")]
    flags = "--on slurm --sbatch-option=--nodes=2 --sbatch-option=--exclusive --shards 8 --rotate"
    assert status == 0 and runs[0].startswith(f"run --suite nightly {flags} ") and all(flags in run for run in runs), runs
    assert "then the tests of the night" in said and (folder / "fleet" / "index.html").exists(), said
    suites.ROOT = ROOT


def budget(folder: Path) -> None:
    """The time is shared out by what the suites are estimated to take; what was left over goes to the next ones."""
    (folder / "calls").unlink()
    status, said = called(
        folder,
        "--night",
        "--no-engines",
        "--budget",
        "30m",
        "--rotate",
        str(folder / "seen.json"),
        "--since",
        str(folder / "night"),
        "--history",
        str(folder / "nights.db"),
        "--out",
        str(folder / "short"),
    )
    assert status == 0 and "of them what fits into 30 minutes, without the tests of the night" in said.splitlines()[0], said
    calls = (folder / "calls").read_text().splitlines()
    runs = [call for call in calls if call.startswith("run ")]
    shares = [float(call.split("--budget ")[1].split()[0]) for call in runs]
    assert len(runs) > 1 and all(f"--rotate {folder}/seen.json" in call for call in runs), runs
    assert abs(shares[0] - 1800 / len(runs)) < 1 and abs(shares[-1] - 1800) < 30, shares
    pages = f"--history {folder}/nights.db --since {folder}/night/nightly --out {folder}/short/nightly"
    assert f"report {folder}/short/nightly {pages}" in calls, calls
    assert calls.index(f"history add {folder}/short/nightly --history {folder}/nights.db") < calls.index(runs[1]), calls
    assert f"compare {folder}/night/connectors {folder}/short/connectors" in calls, calls


def wrong(folder: Path) -> None:
    for argv, says in (
        (["--shard", "4/3"], "found '4/3'"),
        (["--shard", "half"], "found 'half'"),
        (["--out", str(folder)], "a new or an empty folder"),
        (["now"], "now"),
        (["--budget", "30"], "found '30'"),
        (["--budget", "0m"], "found '0m'"),
        (["--since", str(folder / "no such")], "no such"),
        (["--on", "slurm", "--shard", "1/3"], "leave out --shard and --budget"),
        (["--shards", "3"], "are for --on slurm"),
    ):
        ended = subprocess.run([str(ROOT / "run_suite.sh"), "nightly", *argv], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2 and says in ended.stderr and len(ended.stderr.splitlines()) == 1, ended


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kvcts suites ") as place:
        folder = Path(place)
        suites.KVCTS = folder / "kvcts"
        suites.KVCTS.write_text(STAND_IN)
        suites.KVCTS.chmod(0o755)
        first_look(folder)
        nights(folder)
        on_slurm(folder)
        budget(folder)
        wrong(folder)


if __name__ == "__main__":
    finish(main)
