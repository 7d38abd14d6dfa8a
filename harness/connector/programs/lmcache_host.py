"""Hosts the LMCache 0.5.6 code that detects KV cache formats and moves blocks between an engine's paged cache and its
own objects, on CPU tensors in the suite's memory: its device_ops for the CPU, which are torch.

    job_options: {engine: vllm | sglang | trtllm,   owner of the cache, for detect_format
                  inputs: tensors | pointers}       tensors, or addresses and a shape descriptor, as for CUDA kernels
    and in a case, as its engine_options:
             {hint: claim | none | NAME,            kv_layout: the order that the suite claims, nothing, or this name
              api: blocks | chunks | tokens | layers,   which LMCache function: multi_layer_block_kv_transfer; its daemon
                                                        mode's functions around that; multi_layer_kv_transfer;
                                                        single_layer_kv_transfer (lmcache_tokens.py)
              cached: N,                            chunks: this many blocks before the request's are already cached
              flat: true,                           SGLang's lists of K and V as one list, as its daemon mode sends them
              format: NAME,                         this format, without detection
              float8: true}                         FP8 as torch.float8 dtypes; otherwise uint8

A side is either an engine's cache or LMCache's objects. From cache to objects is a gather (a store in LMCache's words),
from objects to a cache a scatter (a retrieve); between two caches go objects of LMCache's own shape.

What replaces the engine and the rest of LMCache, so that no one takes this for a full deployment:
  - the hint comes from the strides that the case claims, separately on each side: a connector would query its engine;
  - the suite names blocks: no scheduler, no token hashes, no storage backend, no eviction; one process does both halves;
  - one rank, one KV cache group.
"""

import importlib.metadata
import importlib.util
import os
import sys

import refusal
import template

ROLE = None
INSTALL = "./run_suite.sh --with lmcache install"


def missing():
    """What has to be installed, in words; "" when all is there."""
    lack = [name for name in ("lmcache", "torch", "numba") if not importlib.util.find_spec(name)]
    return (
        f"{', '.join(lack)} cannot be imported by {sys.executable}: {INSTALL}, or set KVCTS_PYTHON_LMCACHE to an "
        f"interpreter that has LMCache 0.5.6"
        if lack
        else ""
    )


class Side:
    """One side's memory, opened in this process, as LMCache takes it."""

    def __init__(self, call, options):
        import lmcache_cache as lm

        tensors = lm.open_tensors(call, options.get("float8", False))
        self.objects = lm.is_object(tensors)
        self.cache = lm.Objects(call, tensors) if self.objects else lm.Paged(call, tensors, options)
        self.block_size = call["groups"][0]["ranks"][0]["geometry"]["block_size"]


class Job:
    """The acting side (the producer writes, the consumer reads) does all the work; the other only says where its memory
    is."""

    def __init__(self, call):
        self.options = call["options"]
        self.acts = (call["op"] == "write") == (ROLE == "producer")
        self.mine = Side(call, self.options) if self.acts else None
        self.over, self.waiting = template.Over(), None

    poll = template.Job.poll

    def handshake(self, peer):
        self.peer_over = template.Over(peer["over"])
        self.theirs = Side(peer, self.options) if self.acts else None

    def transfer(self, call):
        if not self.acts:
            self.waiting = call
            return {"state": "pending"}
        producer, consumer = (self.mine, self.theirs) if ROLE == "producer" else (self.theirs, self.mine)
        if producer.objects and consumer.objects:
            raise template.Refusal("both sides are LMCache's objects: there is no cache to take from or put to")
        for request in call["requests"]:
            blocks = request["blocks"], request["peer_blocks"]
            if request["tokens"]:
                self.move(producer, consumer, *(blocks if ROLE == "producer" else blocks[::-1]), request["tokens"])
        self.peer_over.say(call["transfer"] + 1)
        paged = consumer if producer.objects else producer
        return {
            "path": {
                "format": paged.cache.format.name,
                "block_size": paged.cache.block_size,
                "inputs": self.options.get("inputs", "tensors"),
            }
        }

    def move(self, producer, consumer, source, target, tokens):
        import lmcache_cache as lm

        if producer.objects:
            lm.between(lm.SCATTER, consumer.cache, producer.cache, target, source, tokens, self.options)
        elif consumer.objects:
            lm.between(lm.GATHER, producer.cache, consumer.cache, source, target, tokens, self.options)
        else:
            lm.through(producer.cache, consumer.cache, source, target)


def handle(call, jobs):
    global ROLE
    name = call["call"]
    try:
        if name == "hello":
            ROLE = call["role"]
            if lack := missing():
                return {"state": "skipped", "text": lack}
            importlib.import_module("lmcache_cache")  # LMCache, seconds of it, before any case's time runs
            version = importlib.metadata.version
            return {
                "name": "LMCache",
                "version": version("lmcache"),
                "capabilities": {"ops": ["write", "read"]},
                "facts": {"torch": version("torch"), "python": sys.version.split()[0]},
            }
        if name == "register":
            jobs[call["job"]] = job = Job(call)
            return {"metadata": {key: call[key] for key in ("memory", "groups", "dtype", "op")} | {"over": job.over.path}}
        if name == "handshake":
            jobs[call["job"]].handshake(call["peer"])
        elif name == "transfer":
            return jobs[call["job"]].transfer(call)
        elif name == "poll":
            return {"calls": [answer for job in jobs.values() for answer in job.poll()]}
        elif name == "release":
            jobs.pop(call["job"], None)
    except Exception as error:
        return refusal.answer(error, "lmcache", spent=False)
    return {}


os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
template.handle = handle
if __name__ == "__main__":
    template.main()
