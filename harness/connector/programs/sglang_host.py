"""Hosts SGLang's transfer code for separate prefill and decode, the real classes, as a connector program, on CPU tensors in
the suite's memory: managers, senders, receivers and the bootstrap server of disaggregation/nixl or disaggregation/mooncake.
No GPU, no model weights, no compiled part of SGLang. SGLang 0.5.23.

    options: {backend: nixl | mooncake}, and in a case, as its engine_options, beside those of pressure.py:
      kv_cache_dtype  what --kv-cache-dtype says, if not what the claim's dtype asks for
      kv_layout       [prefill's, decode's]: the name of the byte layout that the pool reports; both sides must share it
      chunk           pages of a chunk of the prefill: the producer sends each by itself (default: all at once)
      cached          page ids before the producer's list: the decode side already has them
      aborts, after   consumer: it gives its requests up, this many seconds after it has asked (default 0.3); the producer
                      sends a second later
      dies            producer | consumer: that side is killed when the transfer begins

What replaces the engine around it, so that no one takes this for a full deployment:
  - the scheduler's calls, in the order of disaggregation/prefill.py and decode.py: no model, no batches, no allreduce
    between ranks of one side: each polls for itself;
  - a pool's addresses, lengths and items come from the strides that the suite claims, as get_contiguous_buf_infos() takes
    them from K and V of each layer;
  - the rows of metadata buffers that go with a request are two small tensors of this host, compared on arrival;
  - ServerArgs and runtime_context.publish() are SGLang's own; torchvision is an empty stand-in, as no released one fits;
  - kv_data_mem_kinds says DRAM to NIXL, MC_FORCE_TCP says tcp to Mooncake: SGLang's own switches;
  - NIXL's agents poll at nice 19, without SGLang's 8 threads: ranks share two processors here; requests give up after 40 s;
  - --disaggregation-enable-kv-checksum cannot run: its kernel and its assertions ask for CUDA.

This process imports SGLang once (20 to 30 s) and forks a process per rank (sglang_rank.py, rank_host.py)."""

import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
import types

import rank_host

PACKAGES = {"nixl": "nixl", "mooncake": "mooncake", "file": "torch"}  # of a backend, its transfers and stores


class Sglang(rank_host.Host):
    package = "sglang"
    separate = frozenset({"dies", "aborts", "cached"})

    def missing(self):
        return rank_host.lacking(
            ("sglang", "torch", "zmq", PACKAGES[self.options["backend"]]),
            ": ./run_suite.sh --with sglang install, or set KVCTS_PYTHON_SGLANG to the interpreter of an environment that "
            "has SGLang 0.5.23",
        )

    def preload(self):
        stand_in_for_torchvision()
        importlib.import_module("sglang_rank").load(self.options["backend"])

    def about(self):
        version, backend = importlib.metadata.version, self.options["backend"]
        return {
            "name": f"SGLang disaggregation/{backend}",
            "version": version("sglang"),
            "op": "write",
            "facts": {"torch": version("torch")},
        }

    def rank(self, call):
        import sglang_rank

        return sglang_rank.Rank(call)


class Anything(types.ModuleType):
    """A module of which every name is another one, and callable."""

    __version__, __path__ = "0", []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name)

    def __call__(self, *arguments, **named):
        return self


def stand_in_for_torchvision():
    """SGLang imports it for images."""
    if importlib.util.find_spec("torchvision"):
        return
    names = ("io", "ops", "transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional")
    for name in ("torchvision", *(f"torchvision.{name}" for name in names)):
        sys.modules[name] = Anything(name)
        sys.modules[name].__spec__ = importlib.machinery.ModuleSpec(name, None)


os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS", '{"num_threads": "0"}')
for name in ("BOOTSTRAP", "WAITING"):  # s; SGLang's 300 would be a hang for the suite
    os.environ.setdefault(f"SGLANG_DISAGGREGATION_{name}_TIMEOUT", "40")
os.environ.setdefault("SGLANG_HOST_IP", os.environ.get("KVCTS_ADDRESS", "127.0.0.1"))
os.environ.setdefault("SGLANG_LOCAL_IP_NIC", "lo")
os.environ.setdefault("UCX_MEM_MMAP_HOOK_MODE", "none")
os.environ.setdefault("MC_FORCE_TCP", "1")
os.environ.setdefault("MOONCAKE_PROTOCOL", "tcp")
os.environ.setdefault("OMP_NUM_THREADS", "1")
if __name__ == "__main__":
    Sglang().main()
