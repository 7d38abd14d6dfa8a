"""Hosts a storage backend of an engine, the real class, as a connector program: the producer's process puts the pages of its
KV cache, the consumer's, another one, asks whether they are there and gets them. CPU tensors in the suite's memory.

    options: {store: hicache, backend: file | nixl | mooncake}    a backend of SGLang's HiCache (hicache_rank.py)
    and in a case, as its engine_options, those of store_rank.py

Everything is imported once; each rank is a process (rank_host.py). What a real component needs (a folder, a master) is
started by the producer's first rank and ends with it, or with the case where the producer's processes end before."""

import gc
import importlib
import importlib.metadata
import importlib.util
import os
import sys

import rank_host
import sglang_host

KINDS = {"hicache": ("hicache_rank", "sglang", {"file": "torch", "nixl": "nixl", "mooncake": "mooncake"})}


class Store(rank_host.Host):
    separate = frozenset({"store"})  # a folder of its own

    def missing(self):
        module, self.package, needs = KINDS[self.options["store"]]
        names = (self.package, "torch", needs[self.options["backend"]])
        lack = [name for name in names if not importlib.util.find_spec(name)]
        return (
            f"{', '.join(lack)} cannot be imported by {sys.executable}: ./run_suite.sh --with {self.package} install"
            if lack
            else ""
        )

    def preload(self):
        sglang_host.stand_in_for_torchvision()
        importlib.import_module(KINDS[self.options["store"]][0]).load(self.options["backend"])
        gc.freeze()  # otherwise a collection in a rank would touch, and so copy, everything imported

    def about(self):
        version = importlib.metadata.version
        return {
            "name": f"{self.options['store']} {self.options['backend']}",
            "version": version(self.package),
            "op": "read",
            "facts": {"torch": version("torch")},
        }

    def rank(self, call):
        return importlib.import_module(KINDS[self.options["store"]][0]).Rank(call)


if __name__ == "__main__":
    os.environ.setdefault("MC_FORCE_TCP", "1")
    Store().main()
