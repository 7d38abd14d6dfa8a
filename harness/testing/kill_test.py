"""kill -9 at random moments, then --resume: the results must be those of an undisturbed run, none lost, none twice.

    kill_test.py [--kills 200] [--seed 1] [--suite crash] [--jobs 2] [--victim worker]
    kill_test.py --stop checker [--suite smoke]      SIGSTOP instead, once, with and without sandboxes: the run gets by,
                                                     in bounded time

A round starts a run, kills its supervisor (or, about every third time, one of its workers and a moment later the
supervisor; with --victim only that kind of process) and resumes it until a sitting was left alone or has
finished by itself. After each end of a supervisor no process of the run may be alive five seconds later, and nothing
may be left of its temporary files. At the end of a round: the ids are the planned ones, each once, and what each came
to is what it came to undisturbed. A case whose worker was killed from outside may say so (CRASH, SIGKILL): that is the
truth about it."""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from pathlib import Path

from kvtest import (
    KVCTS,
    MARK,
    command,
    finish,
    kill,
    kvcts,
    kvcts_json,
    marked_processes,
    memory_files,
    need_program,
    wait_until_gone,
)

SAME = (
    "outcome",
    "phase",
    "signal",
    "verdict",
    "fault_class",
    "wrong_bytes",
    "planned_bytes",
    "moved_bytes",
    "expected_bytes",
)


def results(folder: Path) -> list[dict]:
    return kvcts_json("report", str(folder))["results"]


def essence(result: dict) -> dict:
    flat = {**result, "fault_class": (result.get("diagnosis") or {}).get("fault_class", "")}
    return {key: flat.get(key) for key in SAME}


class Round:
    """One run that is killed again and again until it is complete."""

    def __init__(self, folder: Path, suite: str, jobs: int, rng: random.Random, duration: float, victim: str | None):
        self.environment: dict[str, str] = {}
        self.folder, self.suite, self.jobs, self.rng, self.duration, self.victim = folder, suite, jobs, rng, duration, victim
        self.other_kills = 0
        self.scratch = folder.parent / "scratch"
        self.scratch.mkdir(exist_ok=True)
        self.killed_while_running: set[str] = set()

    def start(self, mark: str) -> subprocess.Popen:
        argv = [str(KVCTS), "run", "-j", str(self.jobs)]
        # Killed before the store existed, a run has nothing to resume: it starts anew, in the same folder.
        resume = (self.folder / "store.db").exists() and kvcts("report", str(self.folder), "--json").status in (0, 1)
        if resume:
            argv += ["--resume", str(self.folder)]
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
            argv += ["--suite", self.suite, "--out", str(self.folder)]
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, MARK: mark, "TMPDIR": str(self.scratch), **self.environment},
            start_new_session=True,
        )

    def disturb(self, kills: int) -> int:
        """At most that many kills, then the run is left alone. Returns how many there were."""
        done = 0
        while True:
            mark = uuid.uuid4().hex
            process = self.start(mark)
            if done < kills:
                # The shorter the rest of the run, the earlier the blow must fall to meet it alive.
                time.sleep(self.rng.random() ** 2 * self.duration)
                if self.victim not in (None, "supervisor") or (self.victim is None and self.rng.random() < 0.35):
                    victims = VICTIMS[self.victim or "worker"](marked_processes(mark))
                    if victims and kill(self.rng.choice(victims)):
                        self.other_kills += 1
                        done += 1
                        time.sleep(self.rng.random() * 0.1)
                if self.victim in (None, "supervisor") and process.poll() is None and done < kills:
                    process.kill()
                    done += 1
            error = process.stderr.read().decode(errors="replace")
            status = process.wait()
            left = wait_until_gone(mark, 5)
            assert not left, f"processes are left after the end of the supervisor: {[command(p) for p in left]}"
            files = [str(file) for file in self.scratch.rglob("*")]
            assert not files, f"temporary files are left after the end of the supervisor: {files[:5]}"
            if status != -9:
                assert status in (0, 1), f"a sitting ended with {status}: {error}"
                return done


def compare(undisturbed: list[dict], disturbed: list[dict], may_differ: int) -> None:
    """may_differ: workers that were killed from outside; each may have taken one case with it."""
    counts = Counter(r["id"] for r in disturbed)
    planned = {r["id"]: essence(r) for r in undisturbed}
    twice = [i for i, n in counts.items() if n > 1]
    lost, foreign = planned.keys() - counts.keys(), counts.keys() - planned.keys()
    assert not twice, f"counted twice: {twice[:5]}"
    assert not lost, f"lost: {sorted(lost)[:5]}"
    assert not foreign, f"never planned: {sorted(foreign)[:5]}"
    other = [(r["id"], planned[r["id"]], essence(r)) for r in disturbed if essence(r) != planned[r["id"]]]
    killed = [o for o in other if o[2]["outcome"] in ("CRASH", "ERROR") and o[2]["signal"] in ("SIGKILL", "killed")]
    wrong = [o for o in other if o not in killed]
    assert not wrong, "came to something else than undisturbed: " + "; ".join(f"{i}: {a} -> {b}" for i, a, b in wrong[:3])
    assert len(killed) <= may_differ, (
        f"{len(killed)} cases report a killed worker, but only {may_differ} were killed: {[o[0] for o in killed]}"
    )


def eldest_workers(pids: list[int]) -> list[int]:
    """Workers, without what code under test forked: killing a process that fork_escape left behind would hide the very
    fault."""
    eldest: dict[bytes, tuple[int, int]] = {}
    for pid in pids:
        if "worker" not in command(pid).split(" ")[0]:
            continue
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            started = int(Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19])
        except (OSError, IndexError):
            continue  # gone in the meantime
        who = next((e for e in environment if e.startswith(b"KVCTS_WORKER=")), b"")
        eldest[who] = min(eldest.get(who, (started, pid)), (started, pid))
    return [pid for _, pid in eldest.values()]


def programs(pids: list[int], program: str, inside: bool | None = None) -> list[int]:
    """`inside`: whether they live in a sandbox; None = either."""
    found = [pid for pid in pids if command(pid).split(" ")[0].endswith(program)]
    return found if inside is None else [pid for pid in found if (namespaces(pid) > 1) == inside]


def namespaces(pid: int) -> int:
    try:
        return len(Path(f"/proc/{pid}/status").read_text().split("NSpid:", 1)[1].split("\n", 1)[0].split())
    except (OSError, IndexError):
        return 0


VICTIMS = {
    "worker": eldest_workers,
    "checker": lambda pids: programs(pids, "kvcts-checker"),
    "launcher": lambda pids: programs(pids, "kvcts-launcher", inside=False),
    "first": lambda pids: programs(pids, "kvcts-launcher", inside=True),
    "bubblewrap": lambda pids: programs(pids, "bwrap"),
}


def compare_is_not_blind() -> None:
    """The comparison itself: a lost, a doubled, a foreign and a changed result must each be seen."""
    right = [{"id": str(i), "outcome": "PASS", "diagnosis": {"fault_class": ""}} for i in range(3)]
    changed = [*right[:2], {**right[2], "outcome": "FAIL"}]
    killed = [*right[:2], {**right[2], "outcome": "CRASH", "signal": "SIGKILL"}]
    compare(right, right, 0)
    compare(right, killed, 1)
    for wrong, killed_others in (
        (right[:2], 0),
        ([*right, right[0]], 0),
        ([*right, {"id": "x", "outcome": "PASS"}], 0),
        (changed, 1),
        (killed, 0),
    ):
        try:
            compare(right, wrong, killed_others)
        except AssertionError:
            continue
        raise AssertionError(f"the comparison did not see what is wrong with {wrong}")


def stop(victim: str, isolated: bool, suite: str, jobs: int, folder: Path, undisturbed: list[dict], duration: float) -> None:
    """A judge that stands still is replaced: the run ends by itself, with the same results."""
    run = Round(folder / f"stopped-{victim}-{isolated}", suite, jobs, random.Random(1), duration, victim)
    run.environment = {} if isolated else {"KVCTS_SANDBOX": "off"}
    mark = uuid.uuid4().hex
    process = run.start(mark)
    end = time.monotonic() + duration / 2
    victims = []
    while not victims and time.monotonic() < end:
        time.sleep(0.05)
        victims = VICTIMS[victim](marked_processes(mark)) if time.monotonic() > end - duration / 4 else []
    assert victims, f"no {victim} was met"
    os.kill(victims[0], signal.SIGSTOP)
    begin = time.monotonic()
    try:
        status = process.wait(timeout=duration + 60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"a {victim} that stands still holds the run up for ever") from None
    assert status == 0, f"the run ended with {status}: {process.stderr.read().decode(errors='replace')}"
    left = wait_until_gone(mark, 5)
    assert not left, f"processes are left: {[command(p) for p in left]}"
    compare(undisturbed, results(run.folder), 0)
    how = "isolated" if isolated else "not isolated"
    print(f"a {victim} stopped, {how}: every result as undisturbed, {time.monotonic() - begin:.1f} s later", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--suite", default="crash")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--victim", choices=["supervisor", *VICTIMS], help="first: process 1 of a sandbox; default: supervisors and workers"
    )
    parser.add_argument("--stop", choices=["checker", "launcher"], nargs="+")
    args = parser.parse_args()
    need_program()
    compare_is_not_blind()
    rng = random.Random(args.seed)
    shm = memory_files()
    with tempfile.TemporaryDirectory(prefix="kvcts-kill-") as name:
        folder = Path(name)
        begin = time.monotonic()
        ended = kvcts("run", "--suite", args.suite, "-j", str(args.jobs), "--out", str(folder / "undisturbed"))
        duration = time.monotonic() - begin
        assert ended.status == 0, f"the undisturbed run ended with {ended.status}: {ended.err or ended.out}"
        undisturbed = results(folder / "undisturbed")
        print(f"seed {args.seed}; undisturbed: {len(undisturbed)} cases in {duration:.1f} s", flush=True)
        for victim in args.stop or []:
            for isolated in (True, False):
                stop(victim, isolated, args.suite, args.jobs, folder, undisturbed, duration)
        if args.stop:
            return 0
        kills = rounds = other_kills = 0
        while kills < args.kills:
            run = Round(folder / f"round{rounds}", args.suite, args.jobs, rng, duration, args.victim)
            kills += run.disturb(min(args.kills - kills, rng.randint(1, 6)))
            compare(undisturbed, results(run.folder), run.other_kills)
            other_kills += run.other_kills
            rounds += 1
            shutil.rmtree(run.folder)
            if rounds % 10 == 0:
                print(f"  {kills} kills in {rounds} runs", flush=True)
    left = memory_files() - shm
    assert not left, f"memory files are left: {sorted(left)}"
    print(
        f"{kills} kills ({other_kills} of which: {args.victim or 'worker'}) in {rounds} runs: nothing lost, nothing "
        f"twice, every result as undisturbed, no process "
        "and no memory file left"
    )
    return 0


if __name__ == "__main__":
    finish(main)
