"""Writes cases/oracles/sglang_pools_0.5.23.json: shapes, strides and places of the KV pools that SGLang's own classes
allocate on a CPU.

    sglang_pools.py > cases/oracles/sglang_pools_0.5.23.json

Needs sglang 0.5.23 without its dependencies, torch for the CPU, and the packages that its memory pools import
(transformers, msgspec, pydantic, pyzmq, orjson, pybase64, IPython, loguru, gguf, triton, apache-tvm-ffi,
compressed_tensors, ...): too many for CI, which reads the data. One stand-in: sglang.srt.configs, which needs
torchvision, is a mock; no pool uses it."""

import importlib.abc
import importlib.machinery
import importlib.metadata
import json
import os
import subprocess
import sys
from unittest import mock

SIZES = {"layers": 3, "tokens": 24, "page": 4, "heads": 2, "head_dim": 8, "v_head_dim": 4, "latent": 16, "rope": 8}


class Configs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The stand-in for sglang.srt.configs."""

    def find_spec(self, name, path, target=None):
        if name == "sglang.srt.configs" or name.startswith("sglang.srt.configs."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = mock.MagicMock()
        module.__path__, module.__spec__, module.__name__ = [], spec, spec.name
        return module

    def exec_module(self, module):
        pass


def seen(tensor):
    """Shape, strides and place in its allocation, in elements, and the number of that allocation."""
    return {
        "shape": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset(),
        "allocation": tensor.untyped_storage().data_ptr(),
    }


def numbered(entries):
    """Numbers allocations in order of appearance."""
    known = {}
    for entry in entries:
        entry["allocation"] = known.setdefault(entry["allocation"], len(known))
    return entries


def mha(**more):
    from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
    import torch

    return MHATokenToKVPool(
        size=SIZES["tokens"],
        page_size=SIZES["page"],
        dtype=torch.float16,
        head_num=SIZES["heads"],
        head_dim=SIZES["head_dim"],
        layer_num=SIZES["layers"],
        device="cpu",
        enable_memory_saver=False,
        **more,
    )


def device_pool(kind):
    import torch
    from sglang.srt.mem_cache.memory_pool import MLATokenToKVPool

    if kind == "mla":
        pool = MLATokenToKVPool(
            size=SIZES["tokens"],
            page_size=SIZES["page"],
            dtype=torch.float16,
            kv_lora_rank=SIZES["latent"],
            qk_rope_head_dim=SIZES["rope"],
            layer_num=SIZES["layers"],
            device="cpu",
            enable_memory_saver=False,
        )
        return {"latents": numbered([seen(t) for t in pool.kv_buffer])}
    pool = mha(**({"v_head_dim": SIZES["v_head_dim"]} if kind == "separate" else {}))
    both = numbered([seen(t) for t in (*pool.k_buffer, *pool.v_buffer)])
    return {"k": both[: SIZES["layers"]], "v": both[SIZES["layers"] :]}


def host_pool(layout):
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

    info = mha()._mha_buffer_info()
    pool = MHATokenToKVPoolHost(
        info,
        2.0,
        0,
        SIZES["page"],
        layout,
        pin_memory=False,
        device="cpu",
        device_capacity_tokens=SIZES["tokens"],
        start_layer=0,
        end_layer=SIZES["layers"],
    )
    return {"tokens": pool.size, "pages": pool.page_num, "pool": numbered([seen(pool.kv_buffer)])[0]}


def main():
    """Each pool in a separate process: SGLang reads its environment on import."""
    if len(sys.argv) > 1:
        sys.meta_path.insert(0, Configs())
        kind, name = sys.argv[1:]
        print(json.dumps(device_pool(name) if kind == "device" else host_pool(name)))
        return
    out = {
        "sglang": importlib.metadata.version("sglang"),
        "torch": importlib.metadata.version("torch"),
        "sizes": SIZES,
        "device": {},
        "host": {},
    }
    for kind, name, environment in [
        ("device", "nhd", {}),
        ("device", "hnd", {"SGLANG_USE_HND_KVCACHE": "1"}),
        ("device", "separate", {}),
        ("device", "mla", {}),
        *(
            ("host", layout, {})
            for layout in ("layer_first", "page_first", "page_first_direct", "page_head", "page_unified")
        ),
    ]:
        run = subprocess.run(
            [sys.executable, __file__, kind, name], env={**os.environ, **environment}, capture_output=True, text=True
        )
        if run.returncode != 0:
            sys.exit(f"{kind} pool {name}: {run.stderr[-2000:]}")
        out[kind][name] = json.loads(run.stdout.splitlines()[-1])
    print(json.dumps(out, indent=1))


main()
