"""A connector program that misbehaves deliberately, to prove that the suite survives with the right outcome. Case
option (engine_options): fault, side (producer, consumer; default: the one that moves the bytes), and abandon: it can
drop a job midway.

It is template.py with one method replaced.
"""

import json
import os
import signal
import socket
import struct
import sys
import threading
import time

import template

FAULT = SIDE = ""
OPS = {}


def send(body):
    with socket.socket(fileno=os.dup(3)) as suite:
        suite.sendall(struct.pack("<I", len(body)) + body)


def sleep_for_ever():
    while True:
        time.sleep(3600)


def spin():
    while True:
        pass


def validate(call):
    import jsonschema

    path = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "program", "protocol.schema.json")
    with open(path) as file:
        schema = json.load(file)
    jsonschema.validate(call, {"$defs": schema["$defs"], "$ref": "#/$defs/call"})


def late_write(job):
    def write():
        time.sleep(0.1)
        memory = job.memories[0] if template.ROLE == "consumer" else job.peer_memories[0]
        memory.map[memory.base] ^= 0xFF

    threading.Thread(target=write, daemon=True).start()


def early(call, job):
    """The producer is done 300 ms before its blocks are read."""

    def move():
        time.sleep(0.3)
        template.Job.transfer(job, call)

    if template.ROLE == "consumer":
        if job.moves:
            time.sleep(0.3)
        return job.transfer(call)
    if job.moves:
        threading.Thread(target=move, daemon=True).start()
    return {}


FREED = []  # ids of transfers that are said to be free at the next poll


def act_freed(call, jobs, handle):
    """The producer gives its blocks up with the first poll of a transfer, 300 ms before they are read. What is no such word
    (garbage, the consumer's) ends the program: that side does nothing else."""
    says = (template.ROLE == "producer") != (FAULT == "freed-by-consumer")
    if call["call"] == "transfer" and says:
        FREED.append(call["id"])
        return handle(call, jobs) if FAULT == "freed" else {"state": "pending"}
    if call["call"] == "transfer" and FAULT == "freed":
        time.sleep(0.3)
    said = handle(call, jobs)
    if call["call"] == "poll" and FREED:
        entry = {"id": FREED.pop(), "request": "r1", "word": "sent"}
        said = said | {"freed": ["r1"] if FAULT == "freed-garbage" else [entry]}
    return said


def fault_of(call):
    """The fault, when it belongs to this side and this call; else ""."""
    name = call["call"]
    mover = "producer" if OPS.get(call.get("job"), "write") == "write" else "consumer"
    if template.ROLE != (SIDE or mover) and FAULT != "early":
        return ""
    where, _, what = FAULT.rpartition(":")
    return what if name == (where or "transfer") else ""


def act(call, jobs, handle):
    global FAULT, SIDE
    if call["call"] == "hello":
        FAULT, SIDE = call["options"].get("fault", ""), call["options"].get("side", "")
    if call["call"] == "register":
        OPS[call["job"]] = call["op"]
    if FAULT == "validate":  # no fault at all: every call has the form that the schema states
        validate(call)
        return handle(call, jobs)
    if FAULT.startswith("freed") and call["call"] in ("transfer", "poll"):
        return act_freed(call, jobs, handle)
    fault = "" if FAULT.startswith("freed") else fault_of(call)
    if not fault:
        said = handle(call, jobs)
        if call["call"] == "hello" and call["options"].get("abandon"):
            said["capabilities"]["abandon"] = True
        return said | {"facts": {"pid": os.getpid()}} if call["call"] == "hello" else said
    if fault == "skip":
        return {"state": "skipped", "text": "a library is missing: pip install it"}
    if fault == "garbage":
        send(b"\x00\x01 this is no JSON")
    elif fault == "wrong-id":
        send(json.dumps({"id": call["id"] + 7, "state": "done"}).encode())
    elif fault == "no-state":
        send(json.dumps({"id": call["id"]}).encode())
    elif fault == "huge":
        os.write(3, struct.pack("<I", 1 << 31) + b"{")
    elif fault == "half-a-frame":
        os.write(3, struct.pack("<I", 100) + b"{")
        os._exit(0)
    elif fault == "exit":
        print("the program says why on its standard output", flush=True)
        os._exit(3)
    elif fault == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif fault == "close":
        os.close(3)
        sleep_for_ever()
    elif fault == "sleep":
        sleep_for_ever()
    elif fault == "spin":
        spin()
    elif fault == "stop":
        while True:  # a stop in the same microseconds as the suite's own is one with it, and ends with it
            os.kill(os.getpid(), signal.SIGSTOP)
    elif fault == "raise":
        _, num_blocks, block_size, num_heads, head_dim = (2, 7, 3072)
    elif fault == "nothing":
        job = jobs[call["job"]]
        job.peer_over.say(call["transfer"] + 1)
        return {}
    elif fault == "early":
        return early(call, jobs[call["job"]])
    elif fault == "pending":
        return {"state": "pending"}
    elif fault == "moved-and-pending":
        handle(call, jobs)
        return {"state": "pending"}
    elif fault == "miscounted":
        return {"moved": 2 * handle(call, jobs)["moved"]}
    elif fault == "refuse":
        raise template.Refusal("the other side has another layout")
    elif fault == "refuse-and-write":
        late_write(jobs[call["job"]])
        raise template.Refusal("the other side has another layout")
    elif fault == "refuse-late":
        handle(call, jobs)
        return {"state": "refused", "text": "the last block is missing", "moved": 0}
    elif fault == "refuse-lying":
        return {"state": "refused", "text": "half of it is missing", "moved": 4096}
    elif fault == "load-errors":
        jobs[call["job"]].peer_over.say(call["transfer"] + 1)
        return {"load_errors": call["requests"][0]["blocks"]}
    elif fault == "load-errors-late":
        handle(call, jobs)
        return {"load_errors": call["requests"][0]["blocks"]}
    elif fault == "late-write":
        late_write(jobs[call["job"]])
    elif fault == "flood":
        for _ in range(20000):
            print("noise on the standard output is no protocol " * 8)
        sys.stdout.flush()
    elif fault == "immortal":
        sleep_for_ever()
    else:
        raise ValueError(f"unknown fault {fault}")
    return handle(call, jobs)


original = template.handle
template.handle = lambda call, jobs: act(call, jobs, original)
if __name__ == "__main__":
    template.main()
