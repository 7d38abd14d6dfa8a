"""A connector program to copy: moves a KV cache between two processes through shared memory. Needs NumPy.

The suite starts it twice, once per side; it speaks framed JSON on descriptor 3 (reports/guide/add-a-connector.md). Your own
connector changes view() (how it reads the tensors it receives), transfer() (how bytes travel), and what it refuses.

`done` hands a side's blocks to its engine: the side that does not move the bytes stays pending until the other has said that
they have moved."""

import faulthandler
import json
import mmap
import os
import signal
import socket
import struct
import traceback

try:
    import numpy as np
except ImportError:
    np = None


class Refusal(Exception):
    """A clean no, before any byte has moved. Any other exception is unexpected."""


class Memory:
    """One allocation: the suite names a file, and the allocation's place in it."""

    def __init__(self, entry):
        with open(entry["file"], "r+b") as file:
            self.map, self.base = mmap.mmap(file.fileno(), 0), entry["offset"]


class Over:
    """How many transfers of a job have moved their bytes: a number in a file of the side that waits for them."""

    def __init__(self, path=None):
        self.file = os.fdopen(os.memfd_create("over"), "r+b", 0) if path is None else open(path, "r+b", 0)
        self.path = f"/proc/{os.getpid()}/fd/{self.file.fileno()}"

    def say(self, transfers):
        os.pwrite(self.file.fileno(), struct.pack("<I", transfers), 0)

    def said(self, transfers):
        return os.pread(self.file.fileno(), 4, 0) == struct.pack("<I", transfers)


def view(tensor, memories):
    """The tensor as the suite claims it: shape, strides in bytes, elements of `itemsize` opaque bytes."""
    at = memories[tensor["memory"]]
    return np.ndarray(tensor["shape"], f"V{tensor['itemsize']}", at.map, at.base + tensor["offset"], tensor["strides"])


def blocks_first(tensor, array, axes):
    """The array with its dims in the order of `axes`, the block axis in front."""
    if tensor["axes"] != axes:
        array = array.transpose([tensor["axes"].index(axis) for axis in axes])
    return np.moveaxis(array, axes.index("B"), 0) if "B" in axes else array


class Job:
    def __init__(self, call):
        self.call = call
        self.memories = [Memory(entry) for entry in call["memory"]]
        self.moves = (call["op"] == "write") == (ROLE == "producer")
        self.over, self.waiting = Over(), None

    def tensors(self, call):
        for group, entry in enumerate(call["groups"]):
            if len(entry["ranks"]) != 1:
                raise Refusal(f"this connector serves one rank, this side has {len(entry['ranks'])}")
            for tensor in entry["ranks"][0]["tensors"]:
                yield group, tensor

    def handshake(self, peer):
        self.peer_memories = [Memory(entry) for entry in peer["memory"]]
        self.peer_over = Over(peer["over"])
        mine, theirs = list(self.tensors(self.call)), list(self.tensors(peer))
        self.pairs = []
        for group, tensor in mine:
            same = [
                t for g, t in theirs if (g, t["component"], t["origin"]) == (group, tensor["component"], tensor["origin"])
            ]
            if len(same) != 1 or len(mine) != len(theirs):
                raise Refusal(
                    f"the other side has no single tensor like {tensor['name']}; this connector pairs tensors one to one"
                )
            self.check(tensor, same[0])
            self.pairs.append((group, tensor, same[0]))

    @staticmethod
    def check(a, b):
        if (a["dtype"], a["itemsize"]) != (b["dtype"], b["itemsize"]):
            raise Refusal(f"{a['name']} is {a['dtype']} here and {b['dtype']} there; this connector converts nothing")
        sizes = lambda t: {axis: n for axis, n in zip(t["axes"], t["shape"]) if axis != "B"}  # pools may differ
        if sizes(a) != sizes(b):
            raise Refusal(f"{a['name']} is {a['axes']} {a['shape']} here and {b['axes']} {b['shape']} there")
        if a["axes"] != b["axes"] and not all(axis in "LKBNHC" for axis in a["axes"]):
            raise Refusal(f"{a['name']}: {a['axes']} cannot be turned into {b['axes']}")
        if "B" not in a["axes"] and a["component"] != "gscale":
            raise Refusal(f"{a['name']}: {a['axes']} has no separate dim for blocks")

    def transfer(self, call):
        """The producer writes or the consumer reads, as `op` says; the other side waits for it."""
        if not self.moves:
            self.waiting = call
            return {"state": "pending"}
        moved = self.move(call["requests"])
        self.peer_over.say(call["transfer"] + 1)
        return {"moved": moved}

    def poll(self):
        """The answer to a transfer that is over by now."""
        if self.waiting and self.over.said(self.waiting["transfer"] + 1):
            yield {"id": self.waiting["id"], "state": "done"}
            self.waiting = None

    def move(self, requests):
        moved = 0
        for group, tensor, other in self.pairs:
            axes = tensor["axes"]
            mine = blocks_first(tensor, view(tensor, self.memories), axes)
            theirs = blocks_first(other, view(other, self.peer_memories), axes)
            source, target = (mine, theirs) if ROLE == "producer" else (theirs, mine)
            if "B" not in axes:  # one value for the whole cache
                target[...] = source
                moved += target.nbytes
                continue
            for request in requests:
                if request["group"] == group:
                    pair = request["blocks"], request["peer_blocks"]
                    for b, c in zip(*(pair if ROLE == "producer" else pair[::-1])):
                        target[c] = source[b]
                        moved += target[c].nbytes
        return moved


def handle(call, jobs):
    name = call["call"]
    if name == "hello":
        if np is None:
            return {"state": "skipped", "text": "NumPy is missing: pip install numpy"}
        return {"name": "template.py", "version": "1", "capabilities": {"ops": ["write", "read"]}}
    if name == "register":
        jobs[call["job"]] = job = Job(call)
        list(job.tensors(call))
        return {"metadata": {"memory": call["memory"], "groups": call["groups"], "over": job.over.path}}
    if name == "handshake":
        jobs[call["job"]].handshake(call["peer"])
    elif name == "transfer":
        return jobs[call["job"]].transfer(call)
    elif name == "poll":
        return {"calls": [answer for job in jobs.values() for answer in job.poll()]}
    elif name == "release":
        jobs.pop(call["job"], None)
    elif name != "shutdown":
        raise Refusal(f"unknown call {name}")
    return {}


def main():
    global ROLE
    faulthandler.register(signal.SIGUSR1)  # a hang is reported with this program's own stack
    with socket.socket(fileno=3) as suite, suite.makefile("rwb") as stream:
        jobs = {}
        while len(header := stream.read(4)) == 4:
            call = json.loads(stream.read(struct.unpack("<I", header)[0]))
            ROLE = call.get("role") or ROLE
            try:
                answer = {"state": "done", **handle(call, jobs)}
            except Exception as error:
                if not isinstance(error, Refusal):
                    traceback.print_exc()  # shown with the result
                at = traceback.extract_tb(error.__traceback__)[-1]
                answer = {
                    "state": "refused" if isinstance(error, Refusal) else "raised",
                    "type": type(error).__name__,
                    "text": str(error),
                    "file": os.path.basename(at.filename),
                    "line": at.lineno,
                }
            body = json.dumps({"id": call["id"], **answer}).encode()
            stream.write(struct.pack("<I", len(body)) + body)
            stream.flush()
            if call["call"] == "shutdown":
                break


ROLE = ""
if __name__ == "__main__":
    main()
