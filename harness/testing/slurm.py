"""A real Slurm for tests: munged, one slurmctld and one slurmd per node, all on this machine and below one folder.

    with slurm.cluster(folder) as fleet:
        fleet.run("srun", "-N2", "hostname", "-I")     # two addresses: every node has a network of its own
        fleet.kill_slurmd("decode")

As root, a node is a network, host name and /etc/hosts of its own: 10.77.N.1, 10.77.N.2, ... behind one end of a veth pair
each, on a bridge 10.77.N.254 of this machine, where slurmctld and the test are. Elsewhere nodes share this machine's
network: 127.0.0.2, 127.0.0.3, ... with ports of their own, no link() and no netem().

The processes of the cluster belong to a guard, which adopts whatever they leave behind (Linux: child subreaper) and ends
all of it, deletes the bridge and removes the files when the test's process ends, also by SIGKILL. Should the guard itself
be killed, the next cluster removes the bridge. Nothing is written outside the folder and no service of the machine is
touched. Linux; Slurm >= 22.05; standard library only.

Sources: man slurm.conf, slurmd, munged, ip-link, tc-netem, prctl(2) PR_SET_CHILD_SUBREAPER."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import random
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "salloc", "sbatch", "scontrol", "sinfo", "squeue", "scancel")
SECONDS = 60.0  # to wait for anything; a loaded machine is slow
BRIDGE = "kvcts"  # kvctsN, its ports kvctsN.I; at most 15 bytes
MARK = "02:4b"  # first bytes of a bridge's hardware address; the other four are the process id of its guard
NETWORKS = Path("/sys/class/net")
SEARCH = os.pathsep.join(dict.fromkeys([*os.environ.get("PATH", "").split(os.pathsep), "/usr/sbin", "/sbin"]))

CONFIGURATION = """\
ClusterName=kvcts
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={home}/munge.socket,cred_expire=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool.%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
ReturnToService=2
KillWait=2
MpiDefault=none
SchedulerParameters=bf_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
"""
# cred_expire: a requeued job waits that long (seconds) for its next start; 120 by default.
# config_overrides: believe the CPUs and memory below, whatever the machine has.


def lacking() -> str:
    """What this machine lacks for a cluster, in words; "" when nothing."""
    missing = [name for name in PROGRAMS if not shutil.which(name, path=SEARCH)]
    return f"no {', '.join(missing)} here (Debian: slurmctld slurmd slurm-client munge)" if missing else ""


def lacking_namespaces() -> str:
    """Why nodes cannot have networks of their own here; "" when they can."""
    if missing := [name for name in ("ip", "unshare", "nsenter", "mount") if not shutil.which(name, path=SEARCH)]:
        return f"no {', '.join(missing)} here (Debian: iproute2 util-linux mount)"
    if os.geteuid() != 0:
        return "not root"
    network = "ip link add br0 type bridge && ip link add veth0 type veth peer name veth1"
    tried = f"{network} && mount --bind /dev/null /etc/hosts"
    done = subprocess.run(
        ["unshare", "--net", "--uts", "--mount", "sh", "-c", tried],
        env=os.environ | {"PATH": SEARCH},
        capture_output=True,
        text=True,
    )
    return "" if done.returncode == 0 else f"not allowed here: {done.stderr.strip()}"


def wait_until(what: str, true: Callable[[], object], seconds: float = SECONDS) -> None:
    """Raises TimeoutError when it has not come true by then."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {seconds:.0f} s in vain until {what}")
        time.sleep(0.02)


# ---- processes ----------------------------------------------------------------------------------------------------------


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _parents() -> dict[int, int]:
    """Process id to that of its parent, of all processes."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                found[int(entry)] = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
    return found


def _descendants(root: int) -> set[int]:
    parents = _parents()
    found: set[int] = set()
    while more := {pid for pid, parent in parents.items() if parent in found | {root}} - found:
        found |= more
    return found


def _clients(home: Path) -> set[int]:
    """Processes started with the cluster's environment, such as an srun that the test left."""
    mark = f"\0SLURM_CONF={home}/slurm.conf\0".encode()
    found = set()
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if entry.isdigit() and mark in b"\0" + Path(f"/proc/{entry}/environ").read_bytes():
                found.add(int(entry))
    return found - {os.getpid(), os.getppid()}


def _kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGKILL)


def _bridges() -> Iterator[tuple[str, int]]:
    """Name and guard's process id of every bridge that a cluster made."""
    for path in NETWORKS.glob(f"{BRIDGE}*"):
        with contextlib.suppress(OSError):
            address = (path / "address").read_text().strip()
            if (path / "bridge").is_dir() and address.startswith(MARK):
                yield path.name, int(address.removeprefix(MARK).replace(":", ""), 16)


def _ip(*argv: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *argv], env=os.environ | {"PATH": SEARCH}, capture_output=True, text=True)


def _remove_bridges(of: Callable[[int], bool]) -> None:
    for name, guard in list(_bridges()):
        if of(guard):
            for port in (NETWORKS / name / "brif").glob("*"):
                _ip("link", "del", port.name)
            _ip("link", "del", name)


def _guard(home: Path) -> None:
    """Starts the program of every line {"argv", "env", "log"} on standard input and prints its process id. When the input
    or the test ends: ends them all, with their children, and removes what they leave."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    parent = os.getppid()
    print(os.getpid(), flush=True)
    started = []  # Popen objects; _reap waits for their processes
    pending = b""
    while os.getppid() == parent:  # a fork of the test may hold the pipe open for longer than the test lives
        if select.select([0], [], [], 0.2)[0]:
            if not (data := os.read(0, 1 << 16)):
                break
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                order = json.loads(line)
                with open(order["log"], "ab") as log:
                    process = subprocess.Popen(
                        order["argv"], env=order["env"], cwd=home, stdin=subprocess.DEVNULL, stdout=log, stderr=log
                    )
                started.append(process)
                print(process.pid, flush=True)
        _reap()
    end = time.monotonic() + 20
    while (left := _descendants(os.getpid()) | _clients(home)) and time.monotonic() < end:
        for pid in left:
            _kill(pid)
        _reap()
        time.sleep(0.01)
    _remove_bridges(lambda guard: guard == os.getpid())
    shutil.rmtree(home, ignore_errors=True)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


# ---- the cluster --------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    name: str
    address: str  # of NodeAddr; a process of a step sees it in `hostname -I` where nodes have networks of their own
    port: int
    slurmd: int = 0  # process id
    holder: int = 0  # process whose namespaces the node has; 0: none of its own
    veth: str = ""  # this machine's end of its link
    relay: int = 0  # process that stands in for netem


@dataclass
class Cluster:
    """What `cluster` yields. Methods raise on failure and return when Slurm knows of the change, in SECONDS at most."""

    home: Path  # slurm.conf, logs, state; gone at the end
    environment: dict[str, str]  # for child processes: SLURM_CONF, PATH with Slurm's programs
    nodes: dict[str, Node]
    namespaces: bool  # each node has a network of its own
    guard: subprocess.Popen[bytes]
    user: str  # of jobs and daemons

    def run(self, *argv: str, **options) -> subprocess.CompletedProcess:
        """subprocess.run with the environment; text, captured output and a time limit unless the options say otherwise."""
        defaults = {"env": self.environment, "text": True, "timeout": SECONDS, "stdin": subprocess.DEVNULL}
        if not {"stdout", "stderr", "capture_output"} & set(options):
            defaults["capture_output"] = True
        if "input" in options:
            del defaults["stdin"]
        return subprocess.run(argv, **(defaults | options))

    def start(self, *argv: str, **options) -> subprocess.Popen:
        """subprocess.Popen with the environment; what still runs is killed at the end of the cluster."""
        return subprocess.Popen(argv, **({"env": self.environment, "text": True, "stdin": subprocess.DEVNULL} | options))

    def inside(self, name: str, *argv: str) -> list[str]:
        """The command line that runs argv on the node without Slurm."""
        if holder := self.nodes[name].holder:
            return ["nsenter", f"--target={holder}", "--net", "--uts", "--mount", f"--wd={os.getcwd()}", "--", *argv]
        return list(argv)

    def state(self, name: str) -> str:
        """Of the node, as `sinfo -o %T` has it: idle, mixed, allocated, down, ...; a trailing * means no answer."""
        return self.run("sinfo", "-h", "-N", "-n", name, "-o", "%T", check=True).stdout.strip()

    def job_state(self, job: int | str) -> str:
        """PENDING, RUNNING, COMPLETED, ..."""
        shown = self.run("scontrol", "show", "job", str(job), check=True).stdout
        found = re.search(r"JobState=(\w+)", shown)
        assert found, shown
        return found[1]

    def wait_idle(self, *names: str) -> None:
        for name in names or self.nodes:
            wait_until(f"node {name} is idle", lambda name=name: self.state(name) == "idle")

    def kill_slurmd(self, name: str) -> None:
        """SIGKILL. Steps of the node live on: their slurmstepd is another process."""
        node = self.nodes[name]
        _kill(node.slurmd)
        wait_until(f"slurmd of {name} is dead", lambda: not _alive(node.slurmd))

    def start_slurmd(self, name: str) -> None:
        """After kill_slurmd. Returns when the node answers; it keeps its steps and its state."""
        node = self.nodes[name]
        assert not _alive(node.slurmd), f"slurmd of {name} runs"
        node.slurmd = self._spawn(self.inside(name, "slurmd", "-D", "-N", name), f"slurmd.{name}.out")
        wait_until(f"slurmd of {name} answers", lambda: self._started(node) and not self.state(name).endswith("*"))

    def stepds(self, name: str, step: str | None = None) -> list[int]:
        """Process ids of the node's slurmstepd, of that step ("12.0", "12.batch") or of all."""
        log = f"{self.home}/slurmd.{name}.log"  # which of its files are open says whose it is
        found = []
        for pid in _descendants(self.guard.pid) - {self.nodes[name].slurmd}:
            with contextlib.suppress(OSError):
                title = Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0 ").decode(errors="replace")
                if Path(f"/proc/{pid}/comm").read_text().strip() != "slurmstepd":
                    continue
                if step is not None and not title.endswith(f"[{step}]"):
                    continue
                if any(os.readlink(fd) == log for fd in Path(f"/proc/{pid}/fd").iterdir()):
                    found.append(pid)
        return sorted(found)

    def kill_stepd(self, name: str, step: str | None = None) -> int:
        """SIGKILL to them; how many there were. Their tasks live on, without anything to forward what they print, and their
        srun waits until the job is cancelled (22.05.8: longer than 60 s), then may end with status 0."""
        killed = self.stepds(name, step)
        for pid in killed:
            _kill(pid)
        wait_until(f"slurmstepd of {name} is dead", lambda: not any(map(_alive, killed)))
        return len(killed)

    def down(self, name: str) -> None:
        """scontrol: the node is DOWN, and its jobs end or are requeued."""
        self.run("scontrol", "update", f"NodeName={name}", "State=DOWN", "Reason=test", check=True)
        wait_until(f"node {name} is down", lambda: self.state(name).startswith("down"))

    def resume(self, name: str) -> None:
        self.run("scontrol", "update", f"NodeName={name}", "State=RESUME")  # refused if it has come back by itself
        wait_until(f"node {name} is back", lambda: not self.state(name).startswith("down"))

    def requeue(self, job: int | str) -> None:
        """Ends the batch job and starts it again, cred_expire seconds later. Does not wait for that."""
        self.run("scontrol", "requeue", str(job), check=True)

    def link(self, name: str, state: str) -> None:
        """Pulls ("down") or plugs in ("up") the node's cable."""
        assert state in ("down", "up"), state
        self._command("ip", "link", "set", self._veth(name), state)
        if state == "up":
            carrier = NETWORKS / self._veth(name) / "operstate"
            wait_until(f"the link of {name} is up", lambda: carrier.read_text().strip() == "up")

    def netem(self, name: str, how: str | None) -> None:
        """Delay or loss (tc-netem's words) of what the node sends, and of what it receives: "delay 20ms" adds 40 ms to a
        round trip. None: neither. Where the kernel has no netem: relay.py, which knows "delay Nms" and "loss N%" alone."""
        self._end_relay(name)
        for prefix, device in ([], self._veth(name)), (self.inside(name), "eth0"):
            if how is not None:
                words = (*prefix, "tc", "qdisc", "replace", "dev", device, "root", "netem", *how.split())
                done = self.run(*words)
                if "kind is unknown" in done.stderr:
                    return self._start_relay(name, how)
                if done.returncode:
                    raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.strip()}")
            elif "netem" in self._command(*prefix, "tc", "qdisc", "show", "dev", device):
                self._command(*prefix, "tc", "qdisc", "del", "dev", device, "root")

    def _start_relay(self, name: str, how: str) -> None:
        found = re.fullmatch(r"(?:delay (?P<ms>[\d.]+)ms ?)?(?:loss (?P<percent>[\d.]+)%)?", how)
        if not found:
            raise RuntimeError(f'no netem in this kernel: expected "delay Nms", "loss N%" or both, found "{how}"')
        node, ready = self.nodes[name], self.home / f"{name}.relay"
        numbers = [found["ms"] or "0", found["percent"] or "0"]
        argv = [sys.executable, str(Path(__file__).with_name("relay.py")), node.veth, node.veth.partition(".")[0]]
        node.relay = self._spawn([*argv, *numbers, str(ready)], f"{name}.relay.out")
        self._wait(node.relay, f"the relay of {name}", ready.exists)

    def _end_relay(self, name: str) -> None:
        node = self.nodes[name]
        if not node.relay:
            return
        _kill(node.relay)
        wait_until(f"the relay of {name} is dead", lambda: not _alive(node.relay))
        node.relay = 0
        (self.home / f"{name}.relay").unlink()
        self._command("ip", "link", "set", node.veth, "master", node.veth.partition(".")[0])

    def logs(self, lines: int = 15) -> str:
        """The end of every log, for a test that failed."""
        texts = []
        for log in sorted([*self.home.glob("*.log"), *self.home.glob("*.out")]):
            last = log.read_text(errors="replace").splitlines()[-lines:]
            texts.append("\n".join([f"-- {log.name}", *last]))
        return "\n".join(texts)

    def _veth(self, name: str) -> str:
        if not self.nodes[name].veth:
            raise RuntimeError(f"node {name} has no network of its own: {lacking_namespaces() or 'namespaces=False'}")
        return self.nodes[name].veth

    def _command(self, *argv: str) -> str:
        done = self.run(*argv)
        if done.returncode:
            raise RuntimeError(f"{' '.join(argv)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _spawn(self, argv: Sequence[str], log: str) -> int:
        """Starts it under the guard; its process id."""
        assert self.guard.stdin and self.guard.stdout
        order = {"argv": list(argv), "env": self.environment, "log": str(self.home / log)}
        self.guard.stdin.write(json.dumps(order).encode() + b"\n")
        self.guard.stdin.flush()
        answer = self.guard.stdout.readline()
        assert answer, f"the guard ended: could not start {argv[0]}\n{self.logs()}"
        return int(answer)

    def _started(self, node: Node) -> bool:
        """Whether slurmd listens; raises when it is dead."""
        assert _alive(node.slurmd), f"slurmd of {node.name} ended\n{self.logs()}"
        with contextlib.suppress(OSError), socket.create_connection((node.address, node.port), timeout=1):
            return True
        return False

    # ---- making one ----

    def _make_network(self) -> str:
        """Bridge, namespaces and links; the controller's address."""
        _remove_bridges(lambda guard: not _alive(guard))
        mark = ":".join([MARK, *re.findall("..", f"{self.guard.pid:08x}")])
        taken = _ip("-4", "-o", "addr").stdout
        for i in range(256):
            number = (self.guard.pid + i) % 256
            bridge, network = f"{BRIDGE}{number}", f"10.77.{number}"
            # Its name is the lock: two clusters cannot both add it.
            if (
                f" {network}." not in taken
                and not _ip("link", "add", "name", bridge, "address", mark, "type", "bridge").returncode
            ):
                break
        else:
            raise RuntimeError("no network 10.77.N.0/24 is free, or bridges cannot be made")
        self._command("ip", "addr", "add", f"{network}.254/24", "dev", bridge)
        self._command("ip", "link", "set", bridge, "up")
        for i, node in enumerate(self.nodes.values()):
            node.address, node.veth = f"{network}.{i + 1}", f"{bridge}.{i}"
        hosts = ["127.0.0.1 localhost", f"{network}.254 {socket.gethostname()}"]
        hosts += [f"{node.address} {node.name}" for node in self.nodes.values()]
        (self.home / "hosts").write_text("\n".join(hosts) + "\n")
        # The name of a node resolves on every node: programs ask for the address of their own host name.
        commands = 'mount --bind "$1/hosts" /etc/hosts && hostname "$2" && ip link set lo up && : >"$1/$2.ready"'
        for node in self.nodes.values():
            node.holder = self._spawn(
                ["unshare", "--net", "--uts", "--mount", "sh", "-c", f"{commands} && exec sleep infinity"]
                + ["sh", str(self.home), node.name],
                f"{node.name}.out",
            )
        for node in self.nodes.values():
            ready = self.home / f"{node.name}.ready"
            wait_until(f"{node.name} has its namespaces", lambda ready=ready, node=node: self._ready(ready, node))
            self._command(
                *("ip", "link", "add", node.veth, "type", "veth", "peer", "name", "eth0", "netns", str(node.holder))
            )
            self._command("ip", "link", "set", node.veth, "master", bridge, "up")
            for words in (
                ("addr", "add", f"{node.address}/24", "dev", "eth0"),
                ("link", "set", "eth0", "up"),
                ("route", "add", "default", "via", f"{network}.254"),
            ):
                self._command(*self.inside(node.name, "ip", *words))
        return f"{network}.254"

    def _ready(self, file: Path, node: Node) -> bool:
        assert _alive(node.holder), f"no namespaces for {node.name}\n{self.logs()}"
        return file.exists()

    def _start(self, cpus: int, settings: Mapping[str, object], features: Mapping[str, str]) -> None:
        controller = "127.0.0.1"
        if self.namespaces:
            controller = self._make_network()
        else:
            for i, node in enumerate(self.nodes.values()):
                node.address = f"127.0.0.{i + 2}"
        (self.home / "state").mkdir()
        key = self.home / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        port, *ports = _free_ports(1 + len(self.nodes))
        text = CONFIGURATION.format(
            host=socket.gethostname().partition(".")[0], address=controller, port=port, user=self.user, home=self.home
        )
        kept = [line for line in text.splitlines() if line.partition("=")[0] not in settings]
        kept += [f"{name}={value}" for name, value in settings.items()]
        for node, node.port in zip(self.nodes.values(), ports, strict=True):
            host = node.name if self.namespaces else socket.gethostname()
            kept.append(
                f"NodeName={node.name} NodeAddr={node.address} NodeHostname={host} Port={node.port} CPUs={cpus}"
                f" RealMemory={1000 * cpus} State=UNKNOWN"
                + (f" Features={features[node.name]}" if node.name in features else "")
            )
        kept.append(f"PartitionName=kvcts Nodes={','.join(self.nodes)} Default=YES MaxTime=INFINITE State=UP")
        (self.home / "slurm.conf").write_text("\n".join(kept) + "\n")
        # Slurm >= 23.11 looks for a cgroup of its own in a slurmd, which a test has no right to; older ones lack the word.
        if _version(self.run("slurmd", "-V").stdout) >= (23, 11):
            (self.home / "cgroup.conf").write_text("CgroupPlugin=disabled\n")

        files = [f"--{name}-file={self.home}/munge.{name}" for name in ("key", "pid", "seed")]
        munged = self._spawn(
            # --force: a folder that others may write to, such as one of a build, is only a warning.
            ["munged", "--foreground", "--force", "--num-threads=2", f"--socket={self.home}/munge.socket", *files],
            "munged.out",
        )
        self._wait(munged, "munged", lambda: (self.home / "munge.socket").exists())
        slurmctld = self._spawn(["slurmctld", "-D"], "slurmctld.out")
        for name, node in self.nodes.items():
            node.slurmd = self._spawn(self.inside(name, "slurmd", "-D", "-N", name), f"slurmd.{name}.out")
        self._wait(slurmctld, "slurmctld", lambda: self.run("scontrol", "ping").returncode == 0)
        for name, node in self.nodes.items():
            self._wait(node.slurmd, f"slurmd of {name}", lambda name=name: self.state(name) == "idle")

    def _wait(self, pid: int, what: str, ready: Callable[[], bool]) -> None:
        def ready_or_dead() -> bool:
            assert _alive(pid), f"{what} ended\n{self.logs()}"
            return ready()

        try:
            wait_until(f"{what} is ready", ready_or_dead)
        except TimeoutError as late:
            raise TimeoutError(f"{late}\n{self.logs()}") from None


def _version(text: str) -> tuple[int, ...]:
    """(22, 5) of "slurm-wlm 22.05.8"."""
    found = re.search(r"(\d+)\.(\d+)", text)
    assert found, f"no version in {text!r}"
    return tuple(map(int, found.groups()))


def _free_ports(count: int) -> list[int]:
    """Below those that the system gives to connections (32768 and more)."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            if port not in found:
                found.append(port)
    return found


@contextlib.contextmanager
def cluster(
    folder: Path | str,
    names: Sequence[str] = ("prefill", "decode"),
    cpus: int = 2,
    namespaces: bool = True,
    settings: Mapping[str, object] | None = None,
    features: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A cluster of idle nodes, as a Cluster.

    folder: exists; everything is in one new folder below it, removed at the end.
    cpus: per node, whatever the machine has; memory is 1000 MB per CPU.
    namespaces: a network per node where the machine allows that; the cluster's `namespaces` says whether it did.
    settings: more of slurm.conf, or other values than CONFIGURATION's, such as {"SlurmdTimeout": 5} (seconds until a node
    that does not answer is down).
    features: of nodes, by name, such as {"decode": "gpu,rdma"}."""
    home = Path(tempfile.mkdtemp(prefix="slurm.", dir=Path(folder).resolve()))
    try:
        home.chmod(0o755)  # munged: everyone may reach the socket
        room = 107 - len("/munge.socket")
        assert len(os.fsencode(home)) <= room, f"{home} is too long for a socket in it (at most {room} bytes)"
        # A test may itself run in a step of another Slurm.
        kept = {k: v for k, v in os.environ.items() if not re.match(r"SLURM|SBATCH_|SALLOC_|SRUN_|SINFO_|SQUEUE_", k)}
        environment = kept | {"PATH": SEARCH, "SLURM_CONF": f"{home}/slurm.conf"}
        guard = subprocess.Popen(
            [sys.executable, __file__, "guard", str(home)],
            env=kept | {"PATH": SEARCH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
    except BaseException:
        shutil.rmtree(home)
        raise
    try:
        assert guard.stdin and guard.stdout
        assert int(guard.stdout.readline()) == guard.pid
        made = Cluster(
            home=home,
            environment=environment,
            nodes={name: Node(name, "", 0) for name in names},
            namespaces=namespaces and not lacking_namespaces(),
            guard=guard,
            user=pwd.getpwuid(os.geteuid()).pw_name,
        )
        made._start(cpus, settings or {}, features or {})
        yield made
    finally:
        with contextlib.suppress(BrokenPipeError):
            guard.stdin.close()
        guard.wait(timeout=SECONDS)
        guard.stdout.close()


if __name__ == "__main__":
    _guard(Path(sys.argv[2]))
