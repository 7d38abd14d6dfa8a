"""Conformance test of connector programs: starts one as the suite does and exercises the protocol
(reports/guide/add-a-connector.md).

    conformance.py [--timeout SECONDS] [--option KEY=VALUE...] -- PROGRAM [ARGUMENT...]

Passes the options to the program with hello.

It implements the protocol itself and shares no code with the suite. Exit status: 0 all passed, 1 some failed, 2 usage,
77 the program reports that something is missing. Checks answers against the JSON Schema if the package jsonschema is
installed."""

from __future__ import annotations

import argparse
import fcntl
import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import jsonschema
except ImportError:
    jsonschema = None

SCHEMA = Path(__file__).resolve().parents[1] / "program" / "protocol.schema.json"
SEALS = 0x0001 | 0x0002 | 0x0004  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW
GUARD, LAYERS, BLOCKS, SLOTS, HEADS, DIM, ITEM = 4096 + 64, 2, 6, 4, 2, 16, 2
BLOCK_BYTES = SLOTS * HEADS * DIM * ITEM
LAYER_BYTES = 2 * BLOCKS * BLOCK_BYTES


class Broken(Exception):
    """What the program did in breach of the protocol."""


class Skipped(Exception):
    pass


def validator():
    if jsonschema is None or not SCHEMA.exists():
        return None
    schema = json.loads(SCHEMA.read_text())
    return jsonschema.Draft202012Validator({"$defs": schema["$defs"], "$ref": "#/$defs/answer"})


class Program:
    """One process of the program, and its calls."""

    def __init__(self, argv, role, timeout, options):
        ours, theirs = socket.socketpair()
        child = theirs.detach()
        os.set_inheritable(child, True)

        def third():
            if child != 3:
                os.dup2(child, 3)

        self.process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, close_fds=False, preexec_fn=third
        )
        os.close(child)
        ours.settimeout(timeout)
        self.socket, self.next, self.timeout, self.seen = ours, 1, timeout, []
        self.validator = validator()
        self.hello = self.call("hello", protocol=1, role=role, name=f"conformance/{role}", options=options)
        if self.hello["state"] == "skipped":
            raise Skipped(self.hello.get("text", ""))
        if self.hello["state"] != "done" or not {"name", "version"} <= self.hello.keys():
            raise Broken(f"expected done with name and version, found {self.hello}")

    def read(self, size):
        data = b""
        while len(data) < size:
            try:
                part = self.socket.recv(size - len(data))
            except socket.timeout:
                raise Broken(f"no answer within {self.timeout:g} s") from None
            if not part:
                raise Broken(
                    f"it closed its socket; standard error: {self.process.stderr.read().decode(errors='replace')[-500:]}"
                )
            data += part
        return data

    def send(self, call, /, **arguments):
        body = json.dumps({"call": call, "id": self.next, **arguments}).encode()
        self.socket.sendall(struct.pack("<I", len(body)) + body)
        self.next += 1
        return self.next - 1

    def receive(self, wanted):
        (length,) = struct.unpack("<I", self.read(4))
        if length > 8 << 20:
            raise Broken(f"a frame of {length} bytes; the limit is 8 MiB")
        answer = json.loads(self.read(length))
        if answer.get("id") != wanted:
            raise Broken(f"expected the answer to call {wanted}, found {answer}")
        if self.validator and (error := jsonschema.exceptions.best_match(self.validator.iter_errors(answer))):
            raise Broken(f"{error.json_path}: {error.message[:200]}")
        self.seen.append(answer)
        return answer

    def call(self, name, /, **arguments):
        """One answer; polls pending calls until they end."""
        wanted = self.send(name, **arguments)
        answer = self.receive(wanted)
        deadline = time.monotonic() + self.timeout
        while answer["state"] == "pending":
            if time.monotonic() > deadline:
                raise Broken(f"{name} is pending for more than {self.timeout:g} s")
            for peer in (self, getattr(self, "peer", self)):
                polled = peer.receive(peer.send("poll"))
                answer = next((a for a in polled.get("calls", []) if peer is self and a["id"] == wanted), answer)
            time.sleep(0.001)
        return answer

    def done(self, name, /, **arguments):
        answer = self.call(name, **arguments)
        if answer["state"] != "done":
            raise Broken(f"{name}: expected done, found {answer}")
        return answer

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()
        self.socket.close()


class Cache:
    """(2, blocks, slots, heads, dim) per layer, as vLLM's FlashAttention had it, with guard zones around each."""

    def __init__(self, seed, dtype="bf16"):
        self.files, self.maps = [], []
        for layer in range(LAYERS):
            fd = os.memfd_create(f"layer{layer}", os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, LAYER_BYTES + 2 * GUARD)
            fcntl.fcntl(fd, 1033, SEALS)  # F_ADD_SEALS
            view = mmap.mmap(fd, 0)
            view[:] = bytes((seed * 89 + layer * 31 + i * 7 + (i >> 8) * 13) & 0xFF for i in range(len(view)))
            self.files.append(fd)
            self.maps.append(view)
        self.dtype, self.free = dtype, []

    def reuse(self):
        """Other bytes in the blocks of a transfer, as the next request's would be."""
        self.free = [(view, at, view[at]) for view in self.maps for at in BLOCKS_SENT]
        for view, at, was in self.free:
            view[at] = inverted(was)

    def restore(self):
        for view, at, was in self.free:
            if view[at] == inverted(was):
                view[at] = was
        self.free = []

    def bytes(self):
        return [bytes(view) for view in self.maps]

    def arguments(self, job, op):
        shape = [2, BLOCKS, SLOTS, HEADS, DIM]
        strides = [BLOCKS * BLOCK_BYTES, BLOCK_BYTES, HEADS * DIM * ITEM, DIM * ITEM, ITEM]
        memory = [
            {"name": f"kv.L{n}", "file": f"/proc/{os.getpid()}/fd/{fd}", "offset": GUARD, "bytes": LAYER_BYTES}
            for n, fd in enumerate(self.files)
        ]
        tensors = [
            {
                "name": f"kv.L{n}",
                "memory": n,
                "offset": 0,
                "component": "data",
                "dtype": self.dtype,
                "itemsize": ITEM,
                "shape": shape,
                "strides": strides,
                "axes": list("KBNHC"),
                "origin": {"L": n} if n else {},
            }
            for n in range(LAYERS)
        ]
        geometry = {
            "layers": LAYERS,
            "blocks": BLOCKS,
            "block_size": SLOTS,
            "heads": HEADS,
            "head_dim": DIM,
            "v_head_dim": DIM,
            "kv": 2,
            "first_layer": 0,
            "first_head": 0,
        }
        return {
            "job": job,
            "op": op,
            "dtype": self.dtype,
            "ports": [free_port(), free_port()],
            "memory": memory,
            "groups": [{"name": "", "ranks": [{"geometry": geometry, "tensors": tensors}]}],
        }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


FROM, TO = [4, 0, 2], [1, 5, 3]
TOKENS = 3 * SLOTS


def place(kv, block):
    begin = GUARD + (kv * BLOCKS + block) * BLOCK_BYTES
    return slice(begin, begin + BLOCK_BYTES)


BLOCKS_SENT = [place(kv, block) for kv in range(2) for block in FROM]


def inverted(data):
    return bytes(byte ^ 0xFF for byte in data)


class Pair:
    """A producer and a consumer of the program, and jobs between them."""

    def __init__(self, argv, timeout, options):
        self.producer, self.consumer = (Program(argv, role, timeout, options) for role in ("producer", "consumer"))
        self.producer.peer, self.consumer.peer = self.consumer, self.producer

    def open(self, job, op, source, target, **more):
        offers = [
            side.done("register", **cache.arguments(job, op), **more)
            for side, cache in ((self.producer, source), (self.consumer, target))
        ]
        wanted = [
            side.send("handshake", job=job, peer=offer.get("metadata"))
            for side, offer in ((self.producer, offers[1]), (self.consumer, offers[0]))
        ]
        return self.both(wanted)

    def both(self, wanted):
        """The final answers of one call to each side, polled in turn until both are over."""
        return self.follow(wanted, [self.producer.receive(wanted[0]), self.consumer.receive(wanted[1])])

    def follow(self, wanted, answers, freed=None):
        """From the first answers on. `freed`: called when the producer is done or says that r1 is free, and the consumer is
        not done."""
        deadline = time.monotonic() + self.producer.timeout
        while any(answer["state"] == "pending" for answer in answers):
            if time.monotonic() > deadline:
                raise Broken(f"pending for more than {self.producer.timeout:g} s: {answers}")
            if freed and answers[0]["state"] == "done":
                freed = freed()
            for i, side in enumerate((self.producer, self.consumer)):
                polled = side.done("poll")
                if freed and i == 0 and any(one["request"] == "r1" for one in polled.get("freed", ())):
                    freed = freed()
                answers[i] = next((a for a in polled.get("calls", []) if a["id"] == wanted[i]), answers[i])
            if any(answer["state"] in ("refused", "raised") for answer in answers):
                break
            time.sleep(0.001)
        return answers

    def transfer(self, job, source, **more):
        """The consumer hears of it when the producer has answered: a producer that is done by then has freed its blocks."""
        wanted, answers, freed = [], [], source.reuse
        try:
            for side, blocks, others in ((self.producer, FROM, TO), (self.consumer, TO, FROM)):
                if freed and answers and answers[0]["state"] == "done":
                    freed = freed()
                request = {"request": "r1", "group": 0, "tokens": TOKENS, "blocks": blocks, "peer_blocks": others}
                wanted.append(side.send("transfer", job=job, transfer=0, requests=[request], **more))
                answers.append(side.receive(wanted[-1]))
            return self.follow(wanted, answers, freed)
        finally:
            source.restore()

    def release(self, job):
        for side in (self.producer, self.consumer):
            side.done("release", job=job)

    def end(self):
        self.producer.end()
        self.consumer.end()


def expected(source, target):
    out = [bytearray(data) for data in target]
    for layer in range(LAYERS):
        for kv in range(2):
            for a, b in zip(FROM, TO):
                out[layer][place(kv, b)] = source[layer][place(kv, a)]
    return [bytes(data) for data in out]


def moved_bytes():
    return LAYERS * 2 * len(FROM) * BLOCK_BYTES


def check_bytes(before_source, before_target, source, target):
    if source.bytes() != before_source:
        raise Broken("the source was changed")
    pairs = list(zip(expected(before_source, before_target), target.bytes()))
    wrong = sum(a != b for want, have in pairs for a, b in zip(want, have))
    if wrong and all(a == b or a ^ b == 0xFF for want, have in pairs for a, b in zip(want, have)):
        raise Broken(f"{wrong} bytes were read from blocks that were free: the producer had answered done")
    if wrong:
        raise Broken(f"{wrong} bytes of the destination, its guard zones included, are wrong")


def run_job(pair, job, op, source=None, target=None, **more):
    source, target = source or Cache(1), target or Cache(2)
    before = source.bytes(), target.bytes()
    require_done(pair.open(job, op, source, target, **more))
    answers = require_done(pair.transfer(job, source, **more))
    mover = answers[0 if op == "write" else 1]
    if mover.get("load_errors"):
        raise Broken(f"load errors of blocks {mover['load_errors']}")
    if mover.get("moved", moved_bytes()) != moved_bytes():
        raise Broken(f"it reports that {mover['moved']} bytes moved; they are {moved_bytes()}")
    check_bytes(*before, source, target)


def require_done(answers):
    for answer in answers:
        if answer["state"] != "done":
            raise Broken(f"expected done, found {answer}")
    return answers


def check_op(pair, job, op):
    ops = pair.producer.hello.get("capabilities", {}).get("ops", ["write", "read"])
    if op not in ops:
        return f"not claimed: the program has {', '.join(ops)}"
    run_job(pair, job, op)
    pair.release(job)
    return f"{moved_bytes():,} bytes arrived, nothing else changed"


def check_several(pair):
    op = pair.producer.hello.get("capabilities", {}).get("ops", ["write"])[0]
    for order in ((21, 22), (22, 21)):
        run_job(pair, 21, op)
        run_job(pair, 22, op, Cache(3), Cache(4))
        for job in order:
            pair.release(job)
    return "two at once, released in either order"


def check_again(pair):
    op = pair.producer.hello.get("capabilities", {}).get("ops", ["write"])[0]
    for seed in (5, 7):
        run_job(pair, 31, op, Cache(seed), Cache(seed + 1))
        pair.release(31)
    return "the same job number, registered anew after its release"


def check_polled(pair):
    for _ in range(10):
        pair.producer.done("poll")
        pair.consumer.done("poll")
    return "20 polls without a pending call"


def check_noise(pair):
    op = pair.producer.hello.get("capabilities", {}).get("ops", ["write"])[0]
    run_job(pair, 41, op, a_key_of_a_later_version={"x": [1]})
    pair.release(41)
    return "unknown keys are ignored"


def check_refuses(pair):
    op = pair.producer.hello.get("capabilities", {}).get("ops", ["write"])[0]
    source, target = Cache(1, "bf16"), Cache(2, "fp16")
    before = source.bytes(), target.bytes()
    answers = [
        pair.producer.call("register", **source.arguments(51, op)),
        pair.consumer.call("register", **target.arguments(51, op)),
    ]
    if all(a["state"] == "done" for a in answers):
        offers = [a.get("metadata") for a in answers]
        answers = pair.both(
            [
                pair.producer.send("handshake", job=51, peer=offers[1]),
                pair.consumer.send("handshake", job=51, peer=offers[0]),
            ]
        )
    if all(a["state"] == "done" for a in answers):
        answers = pair.transfer(51, source)
    if (source.bytes(), target.bytes()) != before:
        raise Broken("bf16 was moved into fp16, or bytes had moved before it refused")
    bad = [a for a in answers if a["state"] == "raised"]
    if bad or not any(a["state"] == "refused" or a.get("load_errors") for a in answers):
        raise Broken(f"a dtype of the other side's own: expected a clean refusal, found {answers}")
    return "a dtype of the other side's own: refused, no byte changed"


def check_shutdown(pair):
    begin = time.monotonic()
    for side in (pair.producer, pair.consumer):
        side.done("shutdown")
        try:
            status = side.process.wait(side.timeout)
        except subprocess.TimeoutExpired:
            raise Broken(f"still there {side.timeout:g} s after shutdown") from None
        if status != 0:
            raise Broken(f"ended with status {status}")
    return f"status 0 after {(time.monotonic() - begin) * 1000:.0f} ms"


def check_answers(pair):
    """Each was checked against the schema on arrival; this reports how many there were."""
    if not pair.producer.validator:
        return "jsonschema is not installed: their form was not checked"
    return f"{len(pair.producer.seen) + len(pair.consumer.seen)} answers, each of the schema's form"


def main() -> int:
    if "--" not in sys.argv:
        print(__doc__, file=sys.stderr)
        return 2
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser()
    parser.add_argument("--timeout", type=float, default=30.0)
    parser.add_argument("--option", action="append", default=[])
    options, argv = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    try:
        pair = Pair(argv, options.timeout, dict(option.split("=", 1) for option in options.option))
    except Skipped as lack:
        print(f"skipped: {lack}")
        return 77
    except (Broken, OSError, ValueError) as error:
        print(f"{'hello':18} FAILED  {error}")
        return 1
    hello = pair.producer.hello
    checks = [
        ("hello", lambda: f"{hello['name']} {hello['version']}"),
        ("write", lambda: check_op(pair, 11, "write")),
        ("read", lambda: check_op(pair, 12, "read")),
        ("several jobs", lambda: check_several(pair)),
        ("again", lambda: check_again(pair)),
        ("polled", lambda: check_polled(pair)),
        ("noise", lambda: check_noise(pair)),
        ("refuses", lambda: check_refuses(pair)),
        ("shutdown", lambda: check_shutdown(pair)),
        ("answers", lambda: check_answers(pair)),
    ]
    passed = 0
    for name, check in checks:
        try:
            print(f"{name:18} ok  {check()}", flush=True)
            passed += 1
        except (Broken, OSError, ValueError, KeyError) as error:
            print(f"{name:18} FAILED  {error if isinstance(error, Broken) else repr(error)}", flush=True)
            if (
                pair.producer.process.poll() is not None
                or pair.consumer.process.poll() is not None
                or "no answer" in str(error)
            ):
                break
    pair.end()
    print(f"\n{passed} of {len(checks)}")
    return 0 if passed == len(checks) else 1


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="kvcts-conformance-") as folder:  # for the programs: deleted with their files
        os.environ["TMPDIR"] = folder
        sys.exit(main())
