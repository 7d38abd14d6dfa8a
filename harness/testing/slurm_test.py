"""kvcts run --on slurm in a real Slurm of two nodes (slurm.py): the merged run is the one of a single machine, whatever is
killed meanwhile.

    slurm_test.py [--cases 0] [--shards 8] [--kills 4] [--seed 1]      --cases N: N random points instead of suite smoke

Killed are, in turn: a slurmstepd, a slurmd (which then starts again), the kvcts of a step, a node (set down, then back), and
once the whole job is requeued. Nothing is lost and nothing counted twice: every planned id once, and what each came to is
what it came to on one machine. Cases that need a feature of one node ran there, and the others on both."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import slurm
from kill_test import essence, results
from kvtest import KVCTS, kvcts

NEED, WITH_NEED = "shm", "decode"
HOLD = 900  # s; for one run, on a crowded machine


def processes(out: Path, wanted: Callable[[list[bytes]], bool]) -> list[int]:
    """Those of the program kvcts whose words are wanted, of this run: another test may run beside this one."""
    found = []
    for status in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = status.read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"kvcts") and any(word.startswith(bytes(out)) for word in words) and wanted(words):
            found.append(int(status.parent.name))
    return found


def step_programs(out: Path) -> list[int]:
    """Processes of kvcts that are steps' own, not their workers."""
    return processes(out, lambda words: words[1:2] == [b"run"] and bool({b"--shard", b"--resume"} & set(words)))


def disturb(fleet: slurm.Cluster, out: Path, drawn: random.Random, number: int) -> str:
    """One of the ways in turn; "": there was nothing to kill."""
    name = drawn.choice(list(fleet.nodes))
    how = number % 4
    if how == 0:
        return f"slurmstepd on {name}" if fleet.stepds(name) and fleet.kill_stepd(name) else ""
    if how == 1:
        fleet.kill_slurmd(name)
        time.sleep(drawn.uniform(0, 1))
        fleet.start_slurmd(name)
        return f"slurmd on {name}"
    if how == 2:
        if not (programs := step_programs(out)):
            return ""
        subprocess.run(["kill", "-KILL", str(drawn.choice(programs))], check=False)
        return "kvcts of a step"
    # A slurmd that answers brings its node back at once: neither state is waited for.
    fleet.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test", check=True)
    time.sleep(drawn.uniform(0, 1))
    fleet.run("scontrol", "update", f"NodeName={name}", "State=RESUME")
    return f"{name} down and back"


def run(fleet: slurm.Cluster, selection: list[str], out: Path, shards: int, kills: int, drawn: random.Random) -> list[str]:
    """The words of what was done to it."""
    script = fleet.run(
        str(KVCTS), "run", "--on", "slurm", *selection, "--out", str(out), "--shards", str(shards), "--print",
        "--sbatch-option=--nodes=2", "--sbatch-option=--exclusive", check=True,
    ).stdout  # fmt: skip
    file = out.with_suffix(".sh")
    file.write_text(script)
    submit = lambda: fleet.run("sbatch", "--parsable", f"--output={out}.log", str(file), check=True).stdout.strip()
    job, again = submit(), 0
    done, until, requeued = [], time.monotonic() + HOLD, kills == 0
    while (state := fleet.job_state(job)) != "COMPLETED":
        assert time.monotonic() < until, f"{state} after {HOLD} s\n{Path(f'{out}.log').read_text()[-2000:]}\n{fleet.logs()}"
        time.sleep(drawn.uniform(0.1, 1.0))
        if state in ("FAILED", "NODE_FAIL") and again < kills:  # the head was on the node that was lost
            job, again = submit(), again + 1
            done.append("started again")
            continue
        assert state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "REQUEUED"), (
            f"{state}\n{Path(f'{out}.log').read_text()[-3000:]}"
        )
        if state != "RUNNING" or not step_programs(out):
            continue
        if len(done) < kills:
            done += [words for words in [disturb(fleet, out, drawn, len(done))] if words]
        elif not requeued:
            fleet.requeue(job)
            requeued = True
            done.append("requeue")
    return done


def resumed(fleet: slurm.Cluster, selection: list[str], out: Path, shards: int) -> None:
    """The head is killed in the midst, and its allocation with it; --resume gets another one and finishes."""
    words = ["run", "--on", "slurm", *selection, "--out", str(out), "--shards", str(shards), "--sbatch-option=--nodes=2"]
    head = fleet.start(str(KVCTS), *words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    slurm.wait_until("a shard has results", lambda: any(file.stat().st_size > 200 for file in out_parts(out).glob("*.log")))
    for process in heads(out):
        subprocess.run(["kill", "-KILL", str(process)], check=False)
    head.wait(timeout=slurm.SECONDS)
    assert not out.exists(), "it had finished before it was killed"
    last = out_parts(out) / str(shards)  # as a step leaves it that is killed amid the first page of its store
    shutil.rmtree(last, ignore_errors=True)
    last.mkdir()
    (last / "store.db").touch()
    done = fleet.run(str(KVCTS), "run", "--resume", str(out), timeout=HOLD)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]


def expect_places(fleet: slurm.Cluster, found: list[dict]) -> None:
    """An engine is what its cases need, and one is a feature of one node."""
    if not fleet.namespaces:
        return  # all nodes have one host name
    needed, others = set(), set()
    for one in found:
        if one["phases"]:
            (needed if one["facts"]["axes"].get("engine") == NEED else others).add(one["facts"].get("host"))
    assert needed == {WITH_NEED} and others == set(fleet.nodes), f"with need {NEED}: {needed}; others: {others}"


def out_parts(out: Path) -> Path:
    return Path(f"{out}.parts")


def heads(out: Path) -> list[int]:
    return processes(out, lambda words: b"--on" in words)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=0)
    parser.add_argument("--shards", type=int, default=8)
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if lack := slurm.lacking():
        print(f"skipped: {lack}")
        sys.exit(77)
    selection = (
        ["--suite", "smoke", "--draw", str(options.cases), "--draw-seed", "7"] if options.cases else ["--suite", "smoke"]
    )
    drawn = random.Random(options.seed)
    with (
        tempfile.TemporaryDirectory(prefix="kvcts") as folder,
        slurm.cluster(folder, features={WITH_NEED: f"{NEED},ib"}) as fleet,
    ):
        alone, began = Path(folder) / "alone", time.monotonic()
        ended = kvcts("run", *selection, "--jobs", "2", "--out", str(alone))
        assert ended.status == 0, ended.err[-1000:]
        single = time.monotonic() - began
        wanted = {one["id"]: essence(one) for one in results(alone)}
        for kills in dict.fromkeys((0, options.kills)):
            out, began = Path(folder) / f"fleet{kills}", time.monotonic()
            done = run(fleet, selection, out, options.shards, kills, drawn)
            took = time.monotonic() - began
            found = results(out)
            assert len(found) == len(wanted) == len({one["id"] for one in found}), (len(found), len(wanted))
            other = [one["id"] for one in found if essence(one) != wanted[one["id"]]]
            assert not other, f"{len(other)} ended otherwise: {other[:3]}"
            assert all(one["facts"].get("host") for one in found if one["phases"]), "a result without its host"
            expect_places(fleet, found)
            assert done or not Path(f"{out}.parts").exists(), "only lost steps leave their logs"
            print(f"{len(found)} cases, {options.shards} shards: {took:.1f} s (one machine {single:.1f} s); killed: {done}")
        out = Path(folder) / "resumed"
        resumed(fleet, selection, out, options.shards)
        assert {one["id"]: essence(one) for one in results(out)} == wanted
        parts = out_parts(out)  # as a head leaves them that is killed after the merge
        parts.mkdir()
        (parts / "job.json").write_text('{"program": [], "shards": 0, "jobs": 1, "cases": 0, "features": []}')
        done = fleet.run(str(KVCTS), "run", "--resume", str(out))
        assert done.returncode == 0 and not parts.exists(), done
        print("a head that was killed: --resume finished its run")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    main()
