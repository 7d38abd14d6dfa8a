"""One rank of one side with SGLang's HiCache: a host pool, MHATokenToKVPoolHost, in the suite's memory and a storage
backend, both the real classes, and between them what HiCacheController does with pages: _generic_page_set and
_generic_page_get, or their zero-copy twins, whichever attach_storage_backend() would take.

    engine_options of a case, besides those of store_rank.py:
      model_name      [producer's, consumer's] --model-path
      extra           --hicache-storage-backend-extra-config"""

import collections
import importlib
import os
import types

import store_rank
import template
import vllm_model

LAYOUTS = {
    ("K", "L", "BN", "H", "C"): "layer_first",
    ("K", "BN", "L", "H", "C"): "page_first",
    ("K", "B", "L", "N", "H", "C"): "page_first_direct",
    ("K", "B", "H", "N", "L", "C"): "page_head",
}
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "e4m3fn": "float8_e4m3fn", "e5m2": "float8_e5m2"}


def load(backend):
    for name in ("srt.mem_cache.storage.backend_factory", "srt.mem_cache.pool_host.mha", "srt.managers.cache_controller"):
        importlib.import_module(f"sglang.{name}")
    if backend == "nixl":
        importlib.import_module("sglang.srt.mem_cache.storage.nixl.hicache_nixl")


class Rank(store_rank.Rank):
    def __init__(self, call):
        super().__init__(call)
        self.dtype, (self.claim,) = call["groups"][0]["ranks"][0]["tensors"][0]["dtype"], self.groups[0].claims
        if tuple(self.claim["axes"]) not in LAYOUTS:
            raise template.Refusal(f"HiCache has no host pool with the dims {self.claim['axes']}")

    def pool(self):
        """SGLang's own pool of this geometry, whose allocation is the suite's."""
        import torch
        from sglang.srt.mem_cache import device_pool_info as info
        from sglang.srt.mem_cache.pool_host import mha

        geometry, (tensor,) = self.groups[0].rank["geometry"], self.layers.values()
        dtype = getattr(torch, DTYPES[self.dtype])
        taken = lambda dims, **_: tensor.view(dtype).view(dims)
        mha.ALLOC_MEMORY_FUNCS = collections.defaultdict(lambda: taken)
        size, heads, dim = geometry["block_size"], geometry["heads"], geometry["head_dim"]
        device = tuple(torch.empty(size, heads, dim, dtype=dtype) for _ in range(geometry["layers"]))
        pointers = torch.tensor([one.data_ptr() for one in device], dtype=torch.uint64)
        buffers = info.KVBuffers(
            k=device, v=device, k_data_ptrs=pointers, v_data_ptrs=pointers, layout=info.KVBufferLayout.NHD
        )
        return mha.MHATokenToKVPoolHost(
            info.MHABufferInfo(
                buffers=buffers,
                page_size=size,
                head_num=heads,
                head_dim=dim,
                v_head_dim=dim,
                dtype=dtype,
                device=torch.device("cpu"),
            ),
            host_to_device_ratio=1.0,
            host_size=0,
            page_size=size,
            layout=LAYOUTS[tuple(self.claim["axes"])],
            pin_memory=False,
            device_capacity_tokens=size,
            start_layer=0,
            end_layer=geometry["layers"],
            host_token_capacity=geometry["blocks"] * size,
        )

    def open(self):
        from sglang.srt.managers.cache_controller import HiCacheController
        from sglang.srt.mem_cache.hicache_storage import HiCacheStorageConfig
        from sglang.srt.mem_cache.storage.backend_factory import StorageBackendFactory

        backend, folder, side = self.options["backend"], str(self.shared / "store"), 0 if self.producer else 1
        os.environ.update(SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR=folder, SGLANG_HICACHE_NIXL_BACKEND_STORAGE_DIR=folder)
        pool = self.pool()
        config = HiCacheStorageConfig(
            tp_rank=self.rank,
            tp_size=self.place["ranks"],
            pp_rank=0,
            pp_size=1,
            attn_cp_rank=0,
            attn_cp_size=1,
            is_mla_model=False,
            enable_storage_metrics=False,
            is_page_first_layout=pool.layout.startswith("page_first"),
            model_name=self.options.get("model_name", ("kvcts", "kvcts"))[side],
            extra_config=self.extra(),
        )
        self.store = StorageBackendFactory.create_backend(backend, config, pool)
        self.store.register_mem_pool_host(pool)
        self.store.on_host_pools_registered()
        controller = types.SimpleNamespace(storage_host_pool=pool, page_size=pool.page_size, storage_backend=self.store)
        how = "_page_{}_zero_copy" if backend == "nixl" else "_generic_page_{}"
        put, get = (getattr(HiCacheController, how.format(name)) for name in ("set", "get"))
        operation = types.SimpleNamespace(request_id="kvcts", is_terminated=lambda: False)
        self.page_set = lambda keys, blocks: put(controller, keys, self.indices(blocks))
        self.page_get = lambda keys, blocks: get(controller, operation, keys, self.indices(blocks))

    def extra(self):
        own = {"plugin": {"posix": {"active": True}}} if self.options["backend"] == "nixl" else {}
        return own | self.options.get("extra", {})

    def indices(self, blocks):
        """Token slots of these pages, as the controller passes them on."""
        torch, size = vllm_model.torch(), self.groups[0].block_size
        return torch.cat([torch.arange(block * size, (block + 1) * size) for block in blocks])

    def put_pages(self, keys, blocks):
        if not self.page_set(keys, blocks):
            raise template.Refusal("the backend does not take the pages")

    def get_pages(self, keys, blocks):
        there = self.store.batch_exists(keys)
        if there < len(keys):
            raise template.Refusal(f"batch_exists() says that {there} of {len(keys)} pages are there")
        if (got := self.page_get(keys, blocks)) < len(keys):
            raise template.Refusal(f"{got} of {len(keys)} pages were loaded")
