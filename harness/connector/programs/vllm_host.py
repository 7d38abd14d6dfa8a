"""Hosts a connector of vLLM, the real class, as a connector program: NixlConnector (the consumer pulls), MooncakeConnector
and NixlPushConnector (the producer pushes), ExampleConnector (files: the producer saves, the consumer loads),
MooncakeStoreConnector (vllm_mooncake_store.py), OffloadingConnector (vllm_offload.py), LMCacheMPConnector
(vllm_lmcache_mp.py) or a class of the user's
($KVCTS_CONNECTOR; a store of pages, $KVCTS_STORE: store_rank.py), on CPU tensors in the suite's memory. No GPU, no model
weights, no compiled part of vLLM. vLLM 0.33.0 and 0.27.1: whichever is installed; a user's class runs without vLLM,
too (vllm_stand_in.py).

    options: {connector: one of PACKAGES, or class: true}, and in a case, as its
    engine_options, beside those of vllm_engine.py and pressure.py:
      kv_layout         the layout that the engine reports, if not the strides'
      extra             more keys of kv_connector_extra_config;  transfer_config: of KVTransferConfig;  environment: of
                        the rank's process
      sliding_window    of the second KV cache group
      cached            block ids before the producer's list: the consumer already has them (one group)
      also              [{producer: [ids], consumer: [ids]}]: further requests of which nothing arrives: all cached (no
                        ids), or of a side that leaves or does not ask
      alias             every layer gets the first one's tensor

What replaces the engine around the connector, so that no one takes this for a full deployment:
  - the attention backend is reported as FLASH_ATTN (TRITON_MLA for latents); the CPU platform would choose another one;
  - the layout is set from the strides that the suite claims, separately on each side: vLLM's engine core would resolve it;
  - vllm_engine.py calls both halves as an engine does, and lets appear what a model would compute;
  - MooncakeConnector: torch.accelerator answers device 0; the transfer engine speaks tcp;
  - threads that the connector starts outside Python run at nice 19: NIXL's poll without a pause;
  - a model of one Llama (DeepSeek-V2 for latents) configuration without weights; each group's layers have separate tensors.

This process imports vLLM once and forks a process per rank (vllm_engine.py, rank_host.py)."""

import importlib
import importlib.util
import os
import sys

import rank_host
import template
import vllm_model

PACKAGES = {
    "NixlConnector": ("nixl", "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"),
    "NixlPushConnector": ("nixl", "vllm.distributed.kv_transfer.kv_connector.v1.nixl.connector"),
    "MooncakeConnector": ("mooncake", "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector"),
    "ExampleConnector": ("safetensors", "vllm.distributed.kv_transfer.kv_connector.v1.example_connector"),
    "OffloadingConnector": ("torch", "vllm.distributed.kv_transfer.kv_connector.v1.offloading_connector"),
    "MooncakeStoreConnector": ("mooncake", "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.connector"),
    "LMCacheMPConnector": ("lmcache", "vllm.distributed.kv_transfer.kv_connector.v1.lmcache_mp_connector"),
}
MODULES = {  # else vllm_engine
    "MooncakeStoreConnector": "vllm_mooncake_store",
    "OffloadingConnector": "vllm_offload",
    "LMCacheMPConnector": "vllm_lmcache_mp",
}
PUSHES = ("MooncakeConnector", "NixlPushConnector")  # whose producer writes


def take_class(options):
    """The class under test, $KVCTS_CONNECTOR or $KVCTS_STORE: [FOLDER:]MODULE:CLASS, FOLDER being where its module lies. Why
    there is none, in words; ""."""
    kind = "store" if "store" in options else "connector"
    named = os.environ.get(f"KVCTS_{kind.upper()}", "")
    folder, module, name = ([""] * 3 + named.split(":"))[-3:]
    if not module or not name:
        return f"no class is under test: kvcts run --{kind} MODULE:CLASS, or pytest --kvcts-{kind}; found '{named}'"
    sys.path[:0] = [folder] if folder else []
    try:
        real = "store" not in options and importlib.util.find_spec("vllm") is not None
        if not real:
            importlib.import_module("vllm_stand_in").install()
        else:
            vllm_model.stand_in_for_platform()
        loaded = importlib.import_module(module)
        subject = getattr(loaded, name)
    except (ImportError, AttributeError) as error:
        return f"{named} cannot be imported by {sys.executable}: {error}"
    options.update({"class": named, "connector": name, "module": module})
    options.setdefault("transfer_config", {})["kv_connector_module_path"] = module
    os.environ["KVCTS_CONNECTOR_FOLDER"] = os.path.dirname(os.path.abspath(sys.modules[subject.__module__].__file__))
    return "" if real or vllm_model.torch() or template.np is not None else "NumPy is missing: pip install numpy"


class Vllm(rank_host.Host):
    package = "vllm"
    separate = frozenset({"aborts", "also", "cached", "leaves", "unasked", "class", "store"})

    def missing(self):
        options = self.options
        if "class" in options or "store" in options:
            return take_class(options)
        return rank_host.lacking(
            ("vllm", "torch", "zmq", PACKAGES[options["connector"]][0]),
            "; set KVCTS_PYTHON_VLLM to the interpreter of an environment that has vLLM 0.33.0",
        )

    def preload(self):
        if vllm_model.stands_in():
            return
        vllm_model.stand_in_for_platform()
        for name in (
            "torch",
            "vllm.engine.arg_utils",
            "vllm.distributed.kv_transfer.kv_connector.factory",
            "vllm.v1.kv_cache_interface",
            self.options.get("module") or PACKAGES[self.options["connector"]][1],
            MODULES.get(self.options["connector"], "vllm_engine"),
        ):
            importlib.import_module(name)
        vllm_model.warm(self.options["connector"], self.options.get("module"))

    def about(self):
        import vllm

        torch, name = vllm_model.torch(), self.options["connector"]
        return {
            "name": name,
            "version": vllm.__version__,
            "op": "write" if name in PUSHES else "read",
            "facts": {
                "torch": torch.__version__ if torch else "none: NumPy's arrays",
                "interface": "stand-in, without vLLM" if vllm_model.stands_in() else "vLLM's own",
            },
        }

    def rank(self, call):
        options = call["options"]
        module = "store_rank" if "store" in options else MODULES.get(options["connector"], "vllm_engine")
        return importlib.import_module(module).Rank(call)

    def folder(self, path):
        os.environ["VLLM_RPC_BASE_PATH"] = path


os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("UCX_MEM_MMAP_HOOK_MODE", "none")
os.environ.setdefault("MC_FORCE_TCP", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
os.environ.setdefault("LMCACHE_DISABLE_BANNER", "1")
if __name__ == "__main__":
    Vllm().main()
