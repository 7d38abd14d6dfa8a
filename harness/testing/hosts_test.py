"""kvcts run --hosts in a real Slurm whose two nodes have networks of their own (slurm.py): producer and consumer of each
case on different nodes, over a link that delays, loses and is cut, and with a host that dies.

    hosts_test.py [--engines ucx-tcp,...] [--cases 8]       NIGHTLY: all engines that work between hosts, more cases

On a right link every case is what it is on one machine, digests included. Where a host is lost, the case under way is no
PASS, all others are, and the run ends."""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import slurm
from kill_test import essence, results
from kvtest import KVCTS, ROOT, kvcts

HOLD = 600  # s, for one run
SUITE = ("--suite", "engines")


def selection(engine: str, cases: int) -> list[str]:
    return [*SUITE, "--where", f"engine == {engine}", "--draw", str(cases)]


def start(fleet: slurm.Cluster, words: list[str], out: Path) -> subprocess.Popen:
    log = open(f"{out}.log", "w")
    command = (str(KVCTS), "run", *words, "--hosts", "prefill,decode", "--out", str(out))
    return fleet.start("salloc", "--quiet", "--nodes=2", "--no-kill", *command, stdout=log, stderr=subprocess.STDOUT)


def run(fleet: slurm.Cluster, words: list[str], out: Path) -> int:
    return start(fleet, words, out).wait(HOLD)


def decided(out: Path) -> int:
    """Cases that are over, by the progress line."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(f"{out}.log").read_text().split("\n")[-2].split("/")[0])
    return 0


def fars(fleet: slurm.Cluster, node: str) -> list[int]:
    """Processes of kvcts-host on the node."""
    found = []
    space = Path(f"/proc/{fleet.nodes[node].holder}/ns/net").readlink()
    for pid in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (pid / "cmdline").read_bytes().split(b"\0")[0].endswith(b"kvcts-host") and (
                pid / "ns/net"
            ).readlink() == space:
                found.append(int(pid.name))
    return found


def right_links(fleet: slurm.Cluster, engines: list[str], cases: int, folder: Path) -> int:
    """All cases are as on one machine, whatever the link does to packets."""
    count = 0
    for engine in engines:
        words = selection(engine, cases)
        alone = folder / f"{engine}-alone"
        kvcts("run", *words, "--out", str(alone))
        expected = {one["id"]: essence(one) for one in results(alone)}
        for how in (None, "delay 20ms", "loss 5%"):
            out = folder / f"{engine}-{(how or 'plain').replace(' ', '-').replace('%', '')}"
            fleet.netem("decode", how)
            began = time.monotonic()
            status = run(fleet, words, out)
            fleet.netem("decode", None)
            assert status == 0, f"{engine}, {how}: status {status}\n" + Path(f"{out}.log").read_text()[-3000:]
            found = results(out)
            assert {one["id"]: essence(one) for one in found} == expected, f"{engine}, {how}: not what it is on one machine"
            for result in found:
                hosts = result["facts"]["hosts"]
                sides = [hosts[side]["host"] for side in ("producer", "consumer")]
                assert sides == ["prefill", "decode"], hosts
                assert hosts["producer"]["address"] != hosts["consumer"]["address"], hosts
                assert result["outcome"] == "PASS", result
            print(f"{engine}, {how or 'plain'}: {len(found)} cases, {time.monotonic() - began:.1f} s", flush=True)
            count += len(found)
    return count


def wrong_bytes(fleet: slurm.Cluster, folder: Path) -> None:
    """What is wrong on one machine is wrong between two, and named by the same words."""
    file = folder / "wrong.yaml"
    seed = (ROOT / "cases/seeds/xformers-t4.yaml").read_text()
    file.write_text(seed.replace("case: seeds/", "case: two/").replace("engine: memcpy", "engine: ucx-tcp"))
    kvcts("run", "--file", str(file), "--out", str(folder / "wrong-alone"))
    assert run(fleet, ["--file", str(file)], folder / "wrong") == 0, Path(f"{folder}/wrong.log").read_text()
    said = lambda out: {one["id"]: (essence(one), one["message"]) for one in results(folder / out)}
    assert said("wrong") == said("wrong-alone")
    assert sum(one["outcome"] == "FAIL" for one in results(folder / "wrong")) == 2


def lost_host(fleet: slurm.Cluster, engine: str, cases: int, folder: Path, how: str) -> None:
    """`how`: killed, stopped (then ended), or cut (then plugged in again)."""
    out = folder / how
    process = start(fleet, selection(engine, cases), out)
    slurm.wait_until("some cases are over", lambda: decided(out) >= 3 or process.poll() is not None)
    began = time.monotonic()
    if how == "cut":
        fleet.link("decode", "down")
        time.sleep(14)
        fleet.link("decode", "up")
    else:
        pids = fars(fleet, "decode")
        assert pids, "no kvcts-host runs on decode"
        for pid in pids:
            subprocess.run(["kill", "-KILL" if how == "killed" else "-STOP", str(pid)], check=True)
        if how == "stopped":
            time.sleep(12)
            for pid in pids:  # what is left of them
                subprocess.run(["kill", "-KILL", str(pid)], check=False, stderr=subprocess.DEVNULL)
    try:
        status = process.wait(HOLD)
    finally:
        process.send_signal(signal.SIGTERM)
    text = Path(f"{out}.log").read_text()
    assert status in (0, 1), f"{how}: status {status}\n{text[-3000:]}"
    found = results(out)
    assert len({result["id"] for result in found}) == cases, f"{how}: {len(found)} results of {cases}"
    bad = [result for result in found if result["outcome"] != "PASS"]
    assert len(bad) <= 2, [result["message"] for result in bad]
    for result in bad:
        assert result["outcome"] in ("HANG", "CRASH", "REFUSED", "FAIL"), result
        assert "decode" in json.dumps(result) or result["outcome"] != "CRASH", result
    words = "; ".join(f"{result['outcome']} {result['message'][:150]}" for result in bad) or "seen between two cases"
    print(f"{engine}, {how}: {time.monotonic() - began:.1f} s to the end; {words}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--engines", default="ucx-tcp")
    parser.add_argument("--cases", type=int, default=8)
    options = parser.parse_args()
    if lacks := slurm.lacking() or slurm.lacking_namespaces():
        print(f"SKIPPED: {lacks}")
        sys.exit(77)
    engines = options.engines.split(",")
    with tempfile.TemporaryDirectory(prefix="kvcts-hosts-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with slurm.cluster(folder) as fleet:
            count = right_links(fleet, engines, options.cases, folder)
            wrong_bytes(fleet, folder)
            for how in ("killed", "stopped", "cut"):
                lost_host(fleet, engines[0], 60, folder, how)
    print(f"OK: {count} cases on two hosts as on one; three ways to lose a host")


if __name__ == "__main__":
    main()
