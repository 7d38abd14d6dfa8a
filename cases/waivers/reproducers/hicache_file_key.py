"""SGLang 0.5.23: the key of HiCacheFile has neither dtype nor layout. For Python with SGLang (and torchvision or a stub)."""

import tempfile

import torch
from sglang.srt.mem_cache.hicache_storage import HiCacheFile, HiCacheStorageConfig


def launch(page_first):
    config = HiCacheStorageConfig(
        tp_rank=0,
        tp_size=1,
        pp_rank=0,
        pp_size=1,
        attn_cp_rank=0,
        attn_cp_size=1,
        is_mla_model=False,
        enable_storage_metrics=False,
        is_page_first_layout=page_first,
        model_name="org/model",
    )
    return HiCacheFile(config, file_path=folder)


folder = tempfile.mkdtemp()
page = torch.arange(2 * 3 * 4).to(torch.bfloat16)  # K and V, 3 layers, 4 tokens: as a layer_first pool lays it
launch(page_first=False).set("key", page)
print("bf16 5.0 is read by a launch with fp16 as", launch(False).get("key", torch.zeros(24, dtype=torch.float16))[5].item())
other = launch(page_first=True).get("key", torch.zeros(24, dtype=torch.bfloat16)).reshape(2, 4, 3)
print("K of layer 1, token 0 is 4.0; a launch with page_first reads", other[0, 0, 1].item())
