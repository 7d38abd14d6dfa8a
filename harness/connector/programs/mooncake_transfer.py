"""A connector program over the Mooncake Transfer Engine, through its own Python module: regions registered with one
engine per side, TCP with P2PHANDSHAKE on loopback, every block of every tensor written or read in its longest pieces by
batch_transfer_sync_*.

It does not use the C++ ABI that the engine mooncake restates, so it outlives releases; it needs a wheel for this Python,
otherwise it is SKIPPED. Options: package (default mooncake-0.3.13.post1); consumer_package: another one for that
side."""

import ctypes
import os
import threading

os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
os.environ.setdefault("MC_FORCE_TCP", "1")

import mooncake_package
import template
from template import Refusal

AT_ONCE = 1024  # requests per batch: Mooncake's queue holds no more
ENGINES = []  # shutting one down takes seconds; it ends with the process


class Engine:
    """This process' transfer engine; every job uses it."""

    def __init__(self, role, options):
        chosen = options.get("consumer_package") if role == "consumer" else None
        self.folder, module = mooncake_package.load("mooncake.engine", options | ({"package": chosen} if chosen else {}))
        self.engine = module.TransferEngine()
        self.ask("initialize", "127.0.0.1", "P2PHANDSHAKE", "tcp", "")
        self.name = f"127.0.0.1:{self.engine.get_rpc_port()}"

    def ask(self, call, *arguments):
        if (code := getattr(self.engine, call)(*arguments)) != 0:
            raise RuntimeError(f"Mooncake's {call} answered {code}")


def outer_dims(order, *tensors):
    """How many dims of this order lie outside the part that is contiguous in all tensors, and the bytes of such a piece."""
    size, dims = tensors[0]["itemsize"], len(order)
    while (
        dims > 0
        and order[dims - 1] != "B"
        and all(tensor["strides"][tensor["axes"].index(order[dims - 1])] == size for tensor in tensors)
    ):
        dims -= 1
        size *= tensors[0]["shape"][tensors[0]["axes"].index(order[dims])]
    return dims, size


def addresses(tensor, order, base):
    """Of the pieces, by the outer dims in this order."""
    grid = template.np.array(base + tensor["offset"])
    for axis in order:
        dim = tensor["axes"].index(axis)
        grid = template.np.add.outer(grid, template.np.arange(tensor["shape"][dim]) * tensor["strides"][dim])
    return grid


class Job(template.Job):
    def __init__(self, engine, call):
        super().__init__(call)
        self.engine, self.outcome, self.thread = engine, None, None
        self.bases = [ctypes.addressof(ctypes.c_char.from_buffer(memory.map)) + memory.base for memory in self.memories]
        for base, entry in zip(self.bases, call["memory"]):
            engine.ask("register_memory", base, entry["bytes"])

    def metadata(self):
        return {"groups": self.call["groups"], "bases": self.bases, "engine": self.engine.name, "over": self.over.path}

    def handshake(self, peer):
        super().handshake({**peer, "memory": []})  # pairs the tensors
        self.peer = peer

    def pieces(self, requests):
        """(address here, address there, bytes)"""
        for group, tensor, other in self.pairs:
            order = [axis for axis in "B" if axis in tensor["axes"]] + [axis for axis in tensor["axes"] if axis != "B"]
            dims, size = outer_dims(order, tensor, other)
            here, there = (
                addresses(tensor, order[:dims], self.bases[tensor["memory"]]),
                addresses(other, order[:dims], self.peer["bases"][other["memory"]]),
            )
            blocks = [
                pair
                for request in requests
                if request["group"] == group
                for pair in zip(request["blocks"], request["peer_blocks"])
            ]
            for mine, theirs in blocks if "B" in order else [((), ())]:
                for a, b in zip(here[mine].flat, there[theirs].flat):
                    yield int(a), int(b), size

    def transfer(self, call):
        """Starts it; a thread waits, because Mooncake's calls block."""
        self.outcome, self.waiting = None, call
        if self.moves:
            pieces = list(self.pieces(call["requests"]))
            self.thread = threading.Thread(target=self.move, args=(pieces, call["transfer"] + 1), daemon=True)
            self.thread.start()
        return {"state": "pending"}

    def poll(self):
        if self.waiting and not self.moves and self.over.said(self.waiting["transfer"] + 1):
            self.outcome = {"state": "done"}
        if self.waiting and self.outcome:
            yield {"id": self.waiting["id"], **self.outcome}
            self.waiting = None

    def move(self, pieces, transfers):
        try:
            for at in range(0, len(pieces), AT_ONCE):
                here, there, sizes = zip(*pieces[at : at + AT_ONCE])
                self.engine.ask(f"batch_transfer_sync_{self.call['op']}", self.peer["engine"], here, there, sizes)
            self.peer_over.say(transfers)
            self.outcome = {
                "state": "done",
                "moved": sum(size for _, _, size in pieces),
                "path": {"transport": "mooncake/tcp", "package": self.engine.folder.name, "descriptors": str(len(pieces))},
            }
        except RuntimeError as error:
            self.outcome = {
                "state": "raised",
                "type": "RuntimeError",
                "text": str(error),
                "file": os.path.basename(__file__),
                "line": error.__traceback__.tb_lineno,
            }

    def release(self):
        """A moving job keeps its regions: Mooncake has no cancel."""
        if self.thread is None or not self.thread.is_alive():
            for base in self.bases:
                self.engine.ask("unregister_memory", base)


def handle(call, jobs):
    name, job = call["call"], jobs.get(call.get("job"))
    if name == "hello":
        try:
            ENGINES.append(Engine(call["role"], call["options"]))
        except mooncake_package.Missing as error:
            return {"state": "skipped", "text": str(error)}
        return {
            "name": "mooncake_transfer.py",
            "version": "1",
            "capabilities": {"ops": ["write", "read"]},
            "facts": {"mooncake": ENGINES[0].folder.name},
        }
    if name == "register":
        jobs[call["job"]] = job = Job(ENGINES[0], call)
        list(job.tensors(call))
        return {"metadata": job.metadata()}
    if name == "handshake":
        job.handshake(call["peer"])
    elif name == "transfer":
        return job.transfer(call)
    elif name == "poll":
        return {"calls": [answer for job in jobs.values() for answer in job.poll()]}
    elif name == "release":
        if job is not None:
            jobs.pop(call["job"]).release()
    elif name != "shutdown":
        raise Refusal(f"unknown call {name}")
    return {}


if __name__ == "__main__":
    template.handle = handle
    template.main()
    os._exit(0)  # its threads need not end in order
