"""A connector program over Mooncake Store: the producer puts each block under a separate key, the consumer gets them, in
two client processes.

The producer's process starts mooncake_master on loopback and lends the store its memory; the consumer has none, so each
get crosses processes. Keys are job/transfer/tensor/position; the last put is a list of all keys with a digest of each
value, which shows where a value went wrong:

  at write  what the writer reads back is not what it put
  at rest   the writer read back what it put, but every later get returns something else
  at read   one get returned something else, and the next one what was put

Options: package (default mooncake-0.3.13.post1); keys: fresh, or taken (an earlier request put other blocks under
them); on_existing: put or upsert; verify: on, or off (no read-back and no digest check, as in real connectors);
lease_ms (the master's lease after a get); fault: write, rest or read (changes one byte there); probe: on (tests the
store against rules S1 to S4)."""

import ctypes
import faulthandler
import hashlib
import json
import os
import signal
import socket
import struct
import subprocess
import time
import traceback

import mooncake_package
import template

os.environ.setdefault("MC_LOG_LEVEL", "ERROR")
os.environ.setdefault("MC_FORCE_TCP", "1")

SEGMENT = 256 << 20
BUFFER = 32 << 20


class WrongBytes(Exception):
    """The store did not give back what was put."""


def digest(value):
    return hashlib.sha256(value).hexdigest()[:32]


class Side:
    """This process: its client of the store, and on the producer's side the master."""

    def __init__(self, role, options):
        self.role, self.options, self.client, self.master, self.address = role, options, None, None, None
        self.folder, self.store = mooncake_package.load("mooncake.store", options)

    def start_master(self, ports):
        if self.master is not None:
            return
        binary = self.folder / "mooncake/mooncake_master"
        rpc, metrics = ports
        self.master = subprocess.Popen(
            [
                binary,
                f"--rpc_port={rpc}",
                "--rpc_address=127.0.0.1",
                f"--metrics_port={metrics}",
                "--metrics_host=127.0.0.1",
                "--enable_metric_reporting=false",
                f"--default_kv_lease_ttl={self.options.get('lease_ms', 500)}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGKILL),
        )  # PR_SET_PDEATHSIG: it ends with this process
        self.address = f"127.0.0.1:{rpc}"
        for end in [time.monotonic() + 20]:
            while True:
                if self.master.poll() is not None:
                    raise RuntimeError(f"mooncake_master ended with {self.master.returncode}")
                try:
                    socket.create_connection(("127.0.0.1", rpc), 1).close()
                    return
                except OSError:
                    if time.monotonic() > end:
                        raise RuntimeError("mooncake_master is not listening after 20 s") from None
                    time.sleep(0.01)

    def connect(self, address):
        if self.client is not None and self.address == address:
            return
        self.address = address
        self.client = self.store.MooncakeDistributedStore()
        code = self.client.setup(
            "127.0.0.1", "P2PHANDSHAKE", SEGMENT if self.role == "producer" else 0, BUFFER, "tcp", "", address
        )
        if code != 0:
            raise RuntimeError(f"Mooncake Store's setup answered {code}")

    def end(self):
        if self.master is not None:
            self.master.kill()
            self.master.wait()


class Job:
    def __init__(self, side, call):
        self.side, self.call, self.keys = side, call, set()
        self.memories = [template.Memory(entry) for entry in call["memory"]]
        self.name = f"{call['job']}"

    def tensors(self):
        for group, entry in enumerate(self.call["groups"]):
            if len(entry["ranks"]) != 1:
                raise template.Refusal(f"this connector serves one rank, this side has {len(entry['ranks'])}")
            for tensor in entry["ranks"][0]["tensors"]:
                if "B" not in tensor["axes"]:
                    raise template.Refusal(f"{tensor['name']}: {tensor['axes']} has no separate dim for blocks")
                yield group, tensor

    def form(self):
        """The form of a block: the same on both sides, or the keys mean different things."""
        return [
            [t["component"], t["dtype"], t["origin"], [[a, n] for a, n in zip(t["axes"], t["shape"]) if a != "B"]]
            for _, t in self.tensors()
        ]

    def metadata(self):
        return {"form": self.form(), "master": self.side.address, "job": self.name}

    def handshake(self, peer):
        if peer["form"] != self.form():
            raise template.Refusal("the two sides' blocks differ in form; this connector transposes nothing")
        if self.side.role == "consumer":
            self.name = peer["job"]
            self.side.connect(peer["master"])

    def blocks(self, requests, number):
        """Each block of each tensor with its key: (key, the block as an array)."""
        prefix = f"{self.name}/{number}"
        for index, (group, tensor) in enumerate(self.tensors()):
            array = template.blocks_first(tensor, template.view(tensor, self.memories), tensor["axes"])
            for request in requests:
                if request["group"] == group:
                    for position, block in enumerate(request["blocks"]):
                        yield f"{prefix}/{index}/{request['request']}/{position}", array[block]

    def list_key(self, number):
        return f"{self.name}/{number}/list"

    def put(self, call):
        client, fault = self.side.client, self.side.options.get("fault")
        digests, wrong, moved = {}, [], 0
        verify = self.side.options.get("verify") != "off"
        if self.side.options.get("keys") == "taken":
            earlier = [(key, block.tobytes()) for key, block in self.blocks(call["requests"], call["transfer"])]
            for (key, _), (_, value) in zip(earlier, earlier[1:] + earlier[:1]):
                client.put(key, value)
        for key, block in self.blocks(call["requests"], call["transfer"]):
            value = block.tobytes()
            digests[key] = digest(value)
            handed = bytes([value[0] ^ 1]) + value[1:] if fault == "write" and len(digests) == 2 else value
            write = client.upsert if self.side.options.get("on_existing") == "upsert" else client.put
            if (code := write(key, handed)) != 0:
                raise RuntimeError(f"put of {key} answered {code}")
            self.keys.add(key)
            moved += len(value)
            if verify and digest(client.get(key)) != digests[key]:
                wrong.append(key)
        if fault == "rest":
            key = sorted(digests)[-1]  # its bytes lie in this process
            ctypes.cast(
                client.get_replica_desc(key)[0].get_memory_descriptor().buffer_descriptor.buffer_address,
                ctypes.POINTER(ctypes.c_ubyte),
            )[0] ^= 1
        if (code := client.put(self.list_key(call["transfer"]), json.dumps(digests).encode())) != 0:
            raise RuntimeError(f"put of the list answered {code}")
        self.keys.add(self.list_key(call["transfer"]))
        if wrong:
            raise WrongBytes(
                f"wrong at write: of {len(digests)} values that were put (each answered 0), {len(wrong)} read back as "
                f"something else, the first {wrong[0]}"
            )
        facts = self.probe() if self.side.options.get("probe") == "on" else {}
        return {
            "moved": moved,
            "path": {
                "transport": "mooncake-store/tcp",
                "package": self.side.folder.name,
                "puts": str(len(digests)),
                **facts,
            },
        }

    def get(self, call):
        """None until the producer has put its list."""
        client, fault = self.side.client, self.side.options.get("fault")
        if client.is_exist(self.list_key(call["transfer"])) != 1:
            return None
        digests = json.loads(client.get(self.list_key(call["transfer"])))
        moved, read, rest = 0, [], []
        for key, block in self.blocks(call["requests"], call["transfer"]):
            value = client.get(key)
            if fault == "read" and moved == 0 and value:
                value = bytes([value[0] ^ 1]) + value[1:]
            if len(value) != block.nbytes:
                raise WrongBytes(f"{key} has {len(value)} bytes, expected {block.nbytes}")
            block[...] = template.np.frombuffer(value, block.dtype).reshape(block.shape)
            moved += len(value)
            if self.side.options.get("verify") != "off" and digest(value) != digests[key]:
                (read if digest(client.get(key)) == digests[key] else rest).append(key)
        for where, keys in (("read", read), ("rest", rest)):
            if keys:
                raise WrongBytes(f"wrong at {where}: {len(keys)} of {len(digests)} values, the first {keys[0]}")
        return {
            "moved": moved,
            "path": {
                "transport": "mooncake-store/tcp",
                "package": self.side.folder.name,
                "gets": str(len(digests)),
                "segment": "the producer's",
            },
        }

    def probe(self):
        """The store's answers to rules S1 to S4, as facts of the result."""
        client, key = self.side.client, f"{self.name}/probe"
        answers = {"put": client.put(key, b"first"), "put_existing": client.put(key, b"second")}
        answers["existing_keeps"] = client.get(key).decode()
        answers["remove_under_lease"] = client.remove(key)
        time.sleep(self.side.options.get("lease_ms", 500) / 1000 + 0.3)
        answers["remove_after_lease"] = client.remove(key)
        answers["get_missing"] = repr(client.get(key))
        answers["size_of_missing"] = client.get_size(key)
        return {name: str(answer) for name, answer in answers.items()}

    def release(self):
        if self.side.role == "producer" and self.side.client is not None:
            for key in self.keys:
                self.side.client.remove(key, True)


class Program:
    def __init__(self):
        self.side, self.jobs, self.waiting = None, {}, {}

    def handle(self, call):
        name = call["call"]
        if name == "hello":
            self.side = Side(call["role"], call["options"])
            return {
                "name": "mooncake_store.py",
                "version": "1",
                "capabilities": {"ops": ["write", "read"]},
                "facts": {"mooncake": self.side.folder.name},
            }
        if name == "register":
            if self.side.role == "producer":
                self.side.start_master(call["ports"])
                self.side.connect(self.side.address)
            self.jobs[call["job"]] = job = Job(self.side, call)
            return {"metadata": job.metadata()}
        if name == "handshake":
            self.jobs[call["job"]].handshake(call["peer"])
        elif name == "transfer":
            job = self.jobs[call["job"]]
            if self.side.role == "producer":
                return job.put(call)
            self.waiting[call["id"]] = (job, call)
            return {"state": "pending"}
        elif name == "poll":
            return {
                "calls": [
                    {"id": number, **answer} for number in list(self.waiting) if (answer := self.attempt(number)) is not None
                ]
            }
        elif name == "release":
            if job := self.jobs.pop(call["job"], None):
                self.waiting = {number: entry for number, entry in self.waiting.items() if entry[0] is not job}
                job.release()
        elif name == "shutdown":
            self.side.end()
        else:
            raise template.Refusal(f"unknown call {name}")
        return {}

    def attempt(self, number):
        answer = self.answer(lambda: self.waiting[number][0].get(self.waiting[number][1]))
        if answer is not None:
            del self.waiting[number]
        return answer

    def answer(self, work):
        try:
            found = work()
            return None if found is None else {"state": "done", **found}
        except mooncake_package.Missing as error:
            return {"state": "skipped", "text": str(error)}
        except Exception as error:
            at = traceback.extract_tb(error.__traceback__)[-1]
            refusal = isinstance(error, template.Refusal)
            return {
                "state": "refused" if refusal else "raised",
                "type": type(error).__name__,
                "text": str(error),
                "file": os.path.basename(at.filename),
                "line": at.lineno,
            }


def main():
    faulthandler.register(signal.SIGUSR1)
    program = Program()
    with socket.socket(fileno=3) as suite, suite.makefile("rwb") as stream:
        while len(header := stream.read(4)) == 4:
            call = json.loads(stream.read(struct.unpack("<I", header)[0]))
            body = json.dumps({"id": call["id"], **program.answer(lambda: program.handle(call))}).encode()
            stream.write(struct.pack("<I", len(body)) + body)
            stream.flush()
            if call["call"] == "shutdown":
                break
    os._exit(0)  # closing a client takes a second or two, and its memory goes with the process


if __name__ == "__main__":
    main()
