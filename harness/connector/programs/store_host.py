"""Hosts a storage backend of SGLang's HiCache, the real class, as a connector program (hicache_rank.py): the producer's
process puts the pages of its KV cache, the consumer's, another one, asks whether they are there and gets them. CPU tensors
in the suite's memory.

    options: {store: hicache, backend: file | nixl}, and in a case, as its engine_options, those of store_rank.py"""

import importlib

import sglang_host


class Store(sglang_host.Sglang):
    separate = frozenset({"store"})  # a folder of its own

    def preload(self):
        sglang_host.stand_in_for_torchvision()
        importlib.import_module("hicache_rank").load(self.options["backend"])

    def about(self):
        return super().about() | {"name": f"HiCache {self.options['backend']}", "op": "read"}

    def rank(self, call):
        return importlib.import_module("hicache_rank").Rank(call)


if __name__ == "__main__":
    Store().main()
