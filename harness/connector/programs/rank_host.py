"""What hosts of an engine's connectors share (vllm_host.py, sglang_host.py): a process that has imported everything once
forks a process for each rank of a job, and speaks the suite's protocol for all of them.

A job on a pool like that of the last job, if that went well, is another request on the existing registered connectors: its
memory replaces the last job's (its result says so: engine_claims.registration). Every other job has separate processes, so
it never sees what another one left."""

import contextlib
import ctypes
import gc
import importlib.util
import json
import logging
import mmap
import os
import shutil
import signal
import socket
import struct
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

import mirror
import pressure
import refusal
import template

LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long
MAP_FIXED = 0x10
# Of this side and of its peer: the suite names them where the two are on different hosts.
ADDRESS, PEER_ADDRESS = (os.environ.get(name, "127.0.0.1") for name in ("KVCTS_ADDRESS", "KVCTS_PEER_ADDRESS"))


def threads():
    """Threads of this process that Python has not started: their names, by id."""
    ours, names = {thread.native_id for thread in threading.enumerate()}, {}
    for tid in {int(tid) for tid in os.listdir("/proc/self/task")} - ours:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            names[tid] = Path(f"/proc/self/task/{tid}/comm").read_text()
    return names


def calm(before):
    """NIXL's agents poll without a pause; with five others, one would miss an engine's deadline for a handshake."""
    for tid, name in threads().items():
        if tid not in before and not name.startswith("ZMQ"):
            with contextlib.suppress(ProcessLookupError):
                os.setpriority(os.PRIO_PROCESS, tid, 19)


class Memory(template.Memory):
    """One allocation of the suite's, whose file can be replaced by another of its size."""

    def address(self):
        return ctypes.addressof(ctypes.c_char.from_buffer(self.map))

    def replace(self, entry):
        with open(entry["file"], "r+b") as file:
            if os.fstat(file.fileno()).st_size != len(self.map):
                raise template.Refusal(f"{entry['name']} does not have the registered size")
            here, protection = self.address(), mmap.PROT_READ | mmap.PROT_WRITE
            if LIBC.mmap(here, len(self.map), protection, mmap.MAP_SHARED | MAP_FIXED, file.fileno(), 0) != here:
                raise OSError(ctypes.get_errno(), "mmap")


class Said(logging.Handler):
    """The last error that a package logged, such as its reason for a failed load."""

    text = ""

    def __init__(self, package):
        super().__init__(logging.ERROR)
        logging.getLogger(package).addHandler(self)

    def emit(self, record):
        error = record.exc_info and record.exc_info[1]
        self.text = (f"{type(error).__name__}: {error}" if error else record.getMessage())[:300]


class Rank:
    """One rank of a job, in its process: begin() and poll() are its engine's; `peer` is set before meet(). A producer's
    engine says free() when a request's blocks are free for others, and runs on when `given` has the request: by then the
    suite has given them to another one. Blocks that it never frees are free at its answer."""

    memories, said, freed, given = (), None, (), frozenset()

    def free(self, told, word):
        """told: a request as begin() has it. word: by which the code under test says so."""
        self.freed = (*self.freed, {"request": told["name"], "word": word})

    def metadata(self):
        return {"handshake": None}

    def serve(self, handshakes): ...
    def meet(self): ...
    def close(self): ...

    def again(self, memory):
        """Another job's memory replaces the last one's, address for address: registrations stay valid."""
        for at, entry in zip(self.memories, memory, strict=True):
            at.replace(entry)
        if self.said:
            self.said.text = ""


def flip(folder):
    """One bit of a store's longest file, as a disk or another program may change it: the length stays."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    if not files:
        raise template.Refusal("the store keeps nothing in its folder: no bit of it can be flipped")
    file = max(files, key=lambda file: (file.stat().st_size, file.name))
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def lacking(names, mend):
    """What this Python lacks of these modules, in words, and what to do; "" when all are there."""
    lack = [name for name in names if not importlib.util.find_spec(name)]
    return f"{', '.join(lack)} cannot be imported by {sys.executable}{mend}" if lack else ""


class Host:
    """One engine's part of a host. Its package's exceptions can be refusals (refusal.py)."""

    package = ""
    separate = frozenset()  # options of jobs that share their processes with no other
    role, options = None, {}

    def missing(self):
        """What has to be installed, in words; "" when all is there."""
        return ""

    def preload(self):
        """All that a rank imports, before the first fork."""

    def about(self):
        """Of the answer to hello: name, version, op, facts."""
        raise NotImplementedError

    def rank(self, call):
        """A Rank."""
        raise NotImplementedError

    def folder(self, path):
        """A rank's folder for temporary files is this one."""

    # ---- in the process of a rank -----------------------------------------------------------------------------------
    def live(self, socket):
        """The rest of a forked process: answers its calls on this socket, then ends."""
        os.dup2(socket.fileno(), 3)
        sys.stdout.reconfigure(line_buffering=True)  # what it prints is shown with the case in which it does
        template.handle = self.handle_in_rank
        try:
            template.main()
        finally:
            sys.stdout.flush(), sys.stderr.flush()
            os._exit(0)

    def handle_in_rank(self, call, ranks):
        """The host's calls: those of the protocol, for this one rank, and `serve`."""
        try:
            name = call["call"]
            if name == "register" and "again" in call:
                ranks["job"].again(call["again"])
            elif name == "register":
                ranks["pressure"] = pressure.Pressure(call["options"], call["place"]["role"], call["op"])
                ranks["pressure"].begin()
                ranks["job"] = self.rank(call)
                return ranks["job"].metadata()
            if name == "serve":
                ranks["job"].serve(call["handshakes"])
            elif name == "handshake":
                ranks["job"].peer = call["peer"]
                ranks["job"].meet()
            elif name == "transfer":
                ranks["job"].freed, ranks["job"].given = (), frozenset()
                ranks["job"].begin(call["transfer"], call["requests"])
            elif name == "poll":
                ranks["pressure"].step()
                job = ranks["job"]
                job.given |= set(call["given"])
                answer, freed = job.poll() or {"state": "pending"}, job.freed
                job.freed = ()
                return answer | {"freed": freed}
            elif name == "shutdown" and ranks:
                ranks["job"].close()
        except Exception as error:
            return refusal.answer(error, self.package, spent=False, beside=os.environ.get("KVCTS_CONNECTOR_FOLDER", ""))
        return {}

    # ---- in the host ------------------------------------------------------------------------------------------------
    def handle(self, call, jobs):
        name = call["call"]
        if name == "hello":
            self.role, self.options = call["role"], call["options"]
            if lack := self.missing():
                return {"state": "skipped", "text": lack}
            began = time.monotonic()
            self.preload()
            gc.freeze()  # otherwise a collection in a rank would touch, and so copy, everything imported
            about = self.about()
            facts = {"python": sys.version.split()[0], "import_s": round(time.monotonic() - began, 1)} | about.pop("facts")
            return about | {"capabilities": {"ops": [about.pop("op")], "abandon": True}, "facts": facts}
        if name == "register":
            reap()
            jobs[call["job"]] = Job(self, call)
            return jobs[call["job"]].register()
        if name == "handshake":
            return jobs[call["job"]].handshake(call["peer"])
        if name == "transfer":
            answer = jobs[call["job"]].transfer(call)
            if answer is None:
                PENDING[call["id"]] = call["job"]
                return {"state": "pending"}
            return answer
        if name == "poll":
            answers = {number: jobs[job].poll() for number, job in PENDING.items()}
            ended = [{"id": number, "state": "done", **answer} for number, answer in answers.items() if answer is not None]
            freed = [{"id": number, **one} for number, job in PENDING.items() for one in jobs[job].freed]
            for answer in ended:
                del PENDING[answer["id"]]
            return {"calls": ended, "freed": freed}
        if name == "release":
            for number in [number for number, job in PENDING.items() if job == call["job"]]:
                del PENDING[number]
            if job := jobs.pop(call["job"], None):
                job.release()
        if name == "shutdown":
            for job in [*jobs.values(), *IDLE]:
                job.close(kill=True)
            for child, _ in LEAVING:
                child.kill()
        return {}

    def main(self):
        template.handle = self.handle
        template.main()


class Child:
    """The process of one rank. It answers each call immediately. Its folder for temporary files is deleted with it,
    however it ends."""

    def __init__(self, host):
        self.socket, theirs = socket.socketpair()
        self.folder = tempfile.mkdtemp(prefix="rank-")
        self.pid = os.fork()
        if self.pid == 0:
            self.socket.close()
            tempfile.tempdir = os.environ["TMPDIR"] = self.folder
            host.folder(self.folder)
            host.live(theirs)
        theirs.close()
        self.stream = self.socket.makefile("rwb")

    def send(self, name, **arguments):
        body = json.dumps({"call": name, "id": 0, **arguments}).encode()
        self.stream.write(struct.pack("<I", len(body)) + body)
        self.stream.flush()

    def answer(self):
        header = self.stream.read(4)
        if len(header) < 4:
            self.follow()
        answer = json.loads(self.stream.read(struct.unpack("<I", header)[0]))
        del answer["id"]  # of these calls, not of the suite's
        return answer

    def follow(self):
        """It ended by itself during a call: this program then ends the same way."""
        status = self.reap(0)
        if os.WIFSIGNALED(status):
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.WEXITSTATUS(status) or 1)

    def sleep(self, asleep):
        """NIXL's progress thread polls without a pause: an idle agent would take a whole core."""
        os.kill(self.pid, signal.SIGSTOP if asleep else signal.SIGCONT)

    def reap(self, options, keep=False):
        """Its status; None while it is alive."""
        pid, status = os.waitpid(self.pid, options)
        if pid == 0:
            return None
        if not keep:
            shutil.rmtree(self.folder, ignore_errors=True)
        return status

    def kill(self, keep=False):
        """keep: its folder stays, for the other side; the run's ends with it."""
        os.kill(self.pid, signal.SIGKILL)
        self.reap(0, keep)


class Job:
    """One job of this side, over all of its ranks."""

    def __init__(self, host, call):
        ranks = len(call["groups"][0]["ranks"])
        if any(len(group["ranks"]) != ranks for group in call["groups"]):
            raise template.Refusal("this host drives the same number of ranks in all KV cache groups")
        self.host, self.role, self.options = host, host.role, host.options | call["options"]
        self.groups, self.well = len(call["groups"]), False
        self.pressure = pressure.Pressure(self.options, self.role, call["op"])
        self.pool = pool_of(call, self.options, host.separate)
        if last := take_idle(self.pool):
            self.engine_id, self.port, self.children, self.served = last.engine_id, last.port, last.children, last.served + 1
            self.answers = self.all("register", again=call["memory"])
        else:
            self.engine_id, self.port, self.children, self.served = str(uuid.uuid4()), call["ports"][0], [], 0
            self.answers = self.start(call, ranks)
        apart = PEER_ADDRESS != ADDRESS
        self.mirror = mirror.Mirror(ADDRESS if apart and self.role == "producer" else None)

    def start(self, call, ranks):
        heads, first_layer, layers = [], [], 0
        for group in call["groups"]:
            heads.append(max(rank["geometry"]["first_head"] + rank["geometry"]["heads"] for rank in group["ranks"]))
            first_layer.append(layers)
            layers += len(group["ranks"][0]["tensors"])
        for rank in range(ranks):
            mine = [{"name": group["name"], "ranks": [group["ranks"][rank]]} for group in call["groups"]]
            self.children.append(Child(self.host))
            place = {
                "role": self.role,
                "rank": rank,
                "ranks": ranks,
                "engine_id": self.engine_id,
                "heads": heads,
                "first_layer": first_layer,
                "folder": self.children[0].folder,
            }
            self.children[-1].send(
                "register",
                **{key: call[key] for key in ("op", "dtype", "ports", "memory")},
                groups=mine,
                options=self.options,
                place=place,
            )
        return [child.answer() for child in self.children]

    def all(self, name, **arguments):
        for child in self.children:
            child.send(name, **arguments)
        return [child.answer() for child in self.children]

    def register(self):
        if bad := worst(self.answers):
            return bad
        bad = None if self.served else worst(self.all("serve", handshakes=[answer["handshake"] for answer in self.answers]))
        return bad or {
            "metadata": {
                "engine_id": self.engine_id,
                "port": self.port,
                "ranks": len(self.children),
                "served": self.served,
                "folder": self.children[0].folder,
                "mirror": self.mirror.invitation,
            }
        }

    def handshake(self, peer):
        # Connectors that outlive a job must not see a request name again: both sides know how many jobs each has served.
        both = (self.served, peer["served"])[:: 1 if self.role == "producer" else -1]
        self.suffix = "-{}-{}".format(*both) if any(both) else ""
        if PEER_ADDRESS != ADDRESS:
            peer = peer | {"folder": self.children[0].folder}
            self.mirror.meet(Path(peer["folder"]) / "shared", peer["mirror"])
        return worst(self.all("handshake", peer=peer)) or {}

    def requests(self, call):
        """The requests of the call with their groups joined, plus those that the case's options add."""
        joined, tokens, mine = {}, {}, "blocks" if self.role == "producer" else "peer_blocks"
        for request in call["requests"]:
            tokens[request["request"]] = request["tokens"]
            groups = joined.setdefault(request["request"], [{"blocks": [], "peer_blocks": []} for _ in range(self.groups)])
            groups[request["group"]] = {key: request[key] for key in ("blocks", "peer_blocks")}
            groups[request["group"]][mine] = self.options.get("cached", []) + groups[request["group"]][mine]
        for number, more in enumerate(self.options.get("also", [])):
            sides = more["producer"], more["consumer"]
            joined[f"also{number}"] = [
                dict(zip(("blocks", "peer_blocks"), sides if self.role == "producer" else sides[::-1]))
            ]
        return [
            {"name": name, "request": name + self.suffix, "groups": groups, "tokens": tokens.get(name)}
            for name, groups in joined.items()
        ]

    def transfer(self, call):
        self.done, self.began = {}, time.monotonic()
        self.freeing, self.freed = {}, []
        if self.options.get("dies") == self.role:
            self.close(kill=True)
            return {}
        return worst(self.all("transfer", transfer=call["transfer"], requests=self.requests(call)))

    def poll(self):
        """The answer of all ranks; None until every rank has one."""
        if self.pressure.asleep():
            return None
        self.pressure.wake(self.pids())
        self.mirror.turn()
        given = [one["request"] for one in self.freed]  # the suite asks again when it has
        for child in self.children:
            if child not in self.done:
                child.send("poll", given=given)
                answer = child.answer()
                for one in answer.pop("freed", ()):
                    self.freeing.setdefault(one["request"], []).append(one["word"])
                if answer["state"] != "pending":
                    self.done[child] = answer
        self.mirror.turn()
        # The blocks of a request are free when all ranks have said so.
        whole = [name for name, words in self.freeing.items() if len(words) == len(self.children)]
        self.freed = [{"request": name, "word": self.freeing.pop(name)[0]} for name in whole]
        answers = list(self.done.values())
        if bad := worst(answers):
            return bad
        if errors := sorted({block for answer in answers for block in answer.get("load_errors", [])}):
            return {"load_errors": errors, "text": next(answer["text"] for answer in answers if "load_errors" in answer)}
        if len(answers) < len(self.children):
            self.pressure.stop(self.pids())
            return None
        if any(answer.get("leaves") for answer in answers):
            stays = self.children[0].folder
            for child in self.children:
                child.kill(keep=True)
            self.children = []
            open(os.path.join(stays, "shared", "gone"), "w").close()
        self.well = time.monotonic() - self.began < LATE
        return {"path": {"registration": "of the job before" if self.served else "of its own"}}

    def pids(self):
        return [child.pid for child in self.children]

    def close(self, kill=False):
        """Releases the processes without waiting for their end."""
        self.pressure.wake(self.pids())
        for child in self.children:
            if kill:
                child.kill()
            else:
                child.send("shutdown")
                LEAVING.append((child, time.monotonic() + 5))
        self.children = []

    def release(self):
        """It is over. If it went well, its processes wait for another of its kind."""
        if not (self.well and self.pool):
            self.close()
            return
        take_idle(None)
        IDLE.append(self)
        for child in self.children:
            child.sleep(True)


def pool_of(call, options, separate):
    """What a job must share with the last one to be another request on the same connectors. None: nothing is shared."""
    if separate & options.keys() or os.path.isdir("/sys/class/infiniband"):  # a NIC would continue with the old pages
        return None
    memory = [{key: entry[key] for key in ("name", "offset", "bytes")} for entry in call["memory"]]
    return json.dumps([options, call["op"], call["dtype"], call["groups"], memory], sort_keys=True)


def take_idle(pool):
    """The last job, if it is like this one; otherwise its processes end."""
    if not IDLE:
        return None
    last = IDLE.pop()
    alive = [child for child in last.children if child.reap(os.WNOHANG) is None]
    for child in alive:
        child.sleep(False)
    if pool is not None and last.pool == pool and alive == last.children:
        return last
    last.children = alive
    last.close()
    return None


def worst(answers):
    """The first refusing answer, exceptions before refusals; None if there is none."""
    return next((answer for state in ("raised", "refused") for answer in answers if answer["state"] == state), None)


PENDING = {}
LATE = 5  # s; a longer job met something that the next one should not
IDLE = []  # the last job, if it went well
LEAVING = []  # processes of jobs that are over, with their deadlines


def reap():
    for entry in list(LEAVING):
        child, deadline = entry
        if child.reap(os.WNOHANG) is None:
            if time.monotonic() < deadline:
                continue
            child.kill()
        LEAVING.remove(entry)
