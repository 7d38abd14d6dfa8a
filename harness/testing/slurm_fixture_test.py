"""slurm.py: a cluster of two nodes starts, runs steps, loses each of its parts and gets it back, and leaves nothing behind,
also when its test is killed. Prints what takes how long."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import slurm
from kvtest import finish


def addresses(fleet: slurm.Cluster) -> None:
    shown = fleet.run("srun", "-N2", "--label", "sh", "-c", 'hostname -I; getent ahostsv4 "$(hostname)"', check=True).stdout
    seen = {line.split(":")[0]: line.split()[1] for line in shown.splitlines()}
    if fleet.namespaces:
        expected = {node.address for node in fleet.nodes.values()}
        assert set(seen.values()) == expected, f"expected the addresses {expected}, found {shown}"
    # A node reaches the other, and what listens here.
    decode = fleet.nodes["decode"]
    connect = f"import socket; socket.create_connection(('{decode.address}', {decode.port}), 5)"
    fleet.run("srun", "-N1", "-w", "prefill", sys.executable, "-c", connect, check=True)


def allocation(fleet: slurm.Cluster) -> None:
    """Two steps, one per node, in one allocation."""
    steps = "for n in prefill decode; do srun -N1 -n1 -w $n sh -c 'echo $SLURMD_NODENAME' & done; wait"
    shown = fleet.run("salloc", "-N2", "sh", "-c", steps, check=True).stdout.split()
    assert sorted(shown) == ["decode", "prefill"], shown


def forty_steps(fleet: slurm.Cluster) -> None:
    loop = "for i in $(seq 40); do srun -N1 -n1 -w decode echo $i || exit; done"
    shown = fleet.run("salloc", "-N2", "sh", "-c", loop, check=True).stdout.split()
    assert shown == [str(i + 1) for i in range(40)], shown


def step(fleet: slurm.Cluster, folder: Path, name: str, commands: str) -> subprocess.Popen:
    """A running step on that node: it has written the file `begun`."""
    begun = folder / "begun"
    begun.unlink(missing_ok=True)
    process = fleet.start(
        *("srun", "-N1", "-n1", "-w", name, "sh", "-c", f": >{begun}; {commands}"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    slurm.wait_until("the step has begun", begun.exists)
    return process


def slurmd_killed(fleet: slurm.Cluster, folder: Path) -> None:
    """The step does not notice, and a new slurmd knows it."""
    release = folder / "release"
    process = step(fleet, folder, "decode", f"until [ -e {release} ]; do sleep 0.05; done; echo done")
    fleet.kill_slurmd("decode")
    assert len(fleet.stepds("decode")) == 1 and process.poll() is None, "the step died with its slurmd"
    fleet.start_slurmd("decode")
    release.touch()
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and "done" in said, (process.returncode, said)
    fleet.wait_idle("decode")


def stepd_killed(fleet: slurm.Cluster, folder: Path) -> None:
    """The job is RUNNING and its srun waits (seen: for more than 60 s, Slurm 22.05.8) until someone cancels the job: then
    srun ends with words of an error and, seen, exit status 0. A run that waits for steps needs a time limit of its own,
    and a step that ended well has to leave a sign of that."""
    process = step(fleet, folder, "decode", "sleep 300")
    assert fleet.kill_stepd("prefill") == 0 and fleet.kill_stepd("decode") == 1
    try:
        process.wait(timeout=2)
        print("srun noticed by itself that its slurmstepd was killed")
    except subprocess.TimeoutExpired:
        fleet.run("scancel", "--partition=kvcts", "--user=" + fleet.user, check=True)
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0 or "error" in said, (process.returncode, said)
    fleet.wait_idle("decode")


def down_and_back(fleet: slurm.Cluster, folder: Path) -> None:
    process = step(fleet, folder, "decode", "sleep 300")
    fleet.down("decode")
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0, said
    fleet.resume("decode")
    fleet.wait_idle("decode")


def requeued(fleet: slurm.Cluster, folder: Path) -> None:
    """A batch job starts twice, and knows."""
    starts = folder / "starts"
    script = f'#!/bin/sh\necho "${{SLURM_RESTART_COUNT:-0}}" >>{starts}\n[ "$SLURM_RESTART_COUNT" ] || sleep 300\n'
    batch = ("sbatch", "--parsable", "--requeue", "-w", "prefill", "-o", str(folder / "job.out"))
    job = fleet.run(*batch, input=script, check=True).stdout.strip()
    slurm.wait_until("the job has started", lambda: starts.exists() and starts.read_text() == "0\n")
    fleet.requeue(job)
    slurm.wait_until("the job has ended", lambda: fleet.job_state(job) == "COMPLETED")
    assert starts.read_text() == "0\n1\n", starts.read_text()
    fleet.wait_idle("prefill")


def cable(fleet: slurm.Cluster) -> None:
    """Down: no connection. Up: one again, slower with a delay."""
    decode = fleet.nodes["decode"]
    script = (
        f"import socket, time; t = time.time(); socket.create_connection(('{decode.address}', {decode.port}), 1);"
        " print(time.time() - t)"
    )

    def connect() -> subprocess.CompletedProcess:
        return fleet.run(*fleet.inside("prefill", sys.executable, "-c", script))

    fleet.link("decode", "down")
    assert connect().returncode != 0, "a node without link was reached"
    fleet.link("decode", "up")
    slurm.wait_until("the node is reached again", lambda: connect().returncode == 0)
    try:
        fleet.netem("decode", "delay 20ms")
    except RuntimeError as refused:
        print(f"netem: not on this kernel: {refused}")
        return
    delayed = float(connect().stdout)
    assert 0.04 <= delayed, f"expected a round trip of 40 ms or more, found {delayed * 1e3:.1f} ms"
    fleet.netem("decode", None)
    restored = min(float(connect().stdout) for _ in range(3))
    assert restored < 0.04, f"expected no delay, found {restored * 1e3:.1f} ms"


def left(home: Path, guard: int) -> list[str]:
    found = [f"process {pid}" for pid in slurm._descendants(guard) | slurm._clients(home)]
    found += [f"bridge {name}" for name, of in slurm._bridges() if of == guard]
    return found + [str(path) for path in [home] if path.exists()]


def killed(folder: Path) -> None:
    """A test that SIGKILL ends in the middle of a step leaves no process, no bridge and no file."""
    script = (
        "import sys, json, time, slurm\n"
        "with slurm.cluster(sys.argv[1]) as fleet:\n"
        "    fleet.start('srun', '-N2', 'sleep', '300')\n"
        "    slurm.wait_until('the step runs', lambda: fleet.stepds('prefill') and fleet.stepds('decode'))\n"
        "    print(json.dumps([str(fleet.home), fleet.guard.pid]), flush=True)\n"
        "    time.sleep(300)\n"
    )
    path = str(Path(__file__).parent)
    process = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {path!r})\n{script}", str(folder)], stdout=subprocess.PIPE
    )
    assert process.stdout
    home, guard = json.loads(process.stdout.readline())
    process.send_signal(signal.SIGKILL)
    process.communicate()
    slurm.wait_until("nothing is left", lambda: not slurm._alive(guard) and not left(Path(home), guard), 20)


def timed(what: str, call: Callable[..., None], *argv) -> None:
    start = time.monotonic()
    call(*argv)
    print(f"{what:<24}{time.monotonic() - start:6.2f} s", flush=True)


def faults(folder: Path) -> None:
    start = time.monotonic()
    with slurm.cluster(folder) as fleet:
        print(f"{'start':<24}{time.monotonic() - start:6.2f} s")
        try:
            timed("two steps", addresses, fleet)
            timed("one step", lambda: fleet.run("srun", "-N2", "true", check=True))
            timed("allocation, two steps", allocation, fleet)
            timed("allocation, 40 steps", forty_steps, fleet)
            timed("slurmd killed", slurmd_killed, fleet, folder)
            timed("slurmstepd killed", stepd_killed, fleet, folder)
            timed("node down and back", down_and_back, fleet, folder)
            timed("job requeued", requeued, fleet, folder)
            if fleet.namespaces:
                timed("link down and up", cable, fleet)
            else:
                print(f"no link test: {slurm.lacking_namespaces()}")
        except Exception:
            print(fleet.logs())
            raise
        home, guard = fleet.home, fleet.guard.pid
    assert not left(home, guard), left(home, guard)


def shared_network(folder: Path) -> None:
    """Nodes without namespaces, one cluster beside another."""
    with slurm.cluster(folder, names=("a", "b", "c"), cpus=1, namespaces=False) as one, slurm.cluster(folder, ("d",)) as two:
        assert one.run("srun", "-N3", "echo", "here", check=True).stdout.split() == ["here"] * 3
        assert two.run("srun", "-N1", "echo", "here", check=True).stdout.split() == ["here"]
        try:
            one.link("a", "down")
        except RuntimeError as refused:
            assert "no network of its own" in str(refused), refused
        else:
            raise AssertionError("a node without a network of its own has a link")


def main() -> int:
    if missing := slurm.lacking():
        print(f"skipped: {missing}")
        return 77
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        faults(folder)
        timed("shared network", shared_network, folder)
        timed("test killed", killed, folder)
        assert not list(folder.glob("slurm.*")), list(folder.iterdir())
    return 0


if __name__ == "__main__":
    finish(main)
