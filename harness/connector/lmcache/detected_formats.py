"""Prints, as JSON, the format that LMCache's detect_format reports for a cache of each format, under each engine's
possible hints: {format: {hint: answer}}. Needs an interpreter that has LMCache; the shapes are those of
cases/oracles/lmcache_formats.json.

    detected_formats.py lmcache_formats.json
"""

import json
import os
import sys

os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")

import torch
from lmcache.utils import EngineType
from lmcache.v1.gpu_connector.kv_format import detect_format


def build(levels, shape):
    """Nested lists of int16 tensors, contiguous."""
    return [build(levels[1:], shape) for _ in range(levels[0])] if levels else torch.zeros(shape, dtype=torch.int16)


def answer(kv, engine, hints):
    try:
        return detect_format(kv, EngineType[engine], hints)[0].name
    except Exception as error:
        return f"ERR {error}"


def main():
    with open(sys.argv[1]) as file:
        known = json.load(file)
    size = known["geometry"]
    blocks = {"tokens_per_block": size["BS"]}
    hints = {
        "vllm/NHD": ("VLLM", {"kv_layout": "NHD"}),
        "vllm/HND": ("VLLM", {"kv_layout": "HND"}),
        "vllm/nohint": ("VLLM", {}),
        "sglang/nohint": ("SGLANG", {}),
        "sglang/k_v": ("SGLANG", {"kv_list_layout": "k_v", **blocks}),
        "sglang/unified": ("SGLANG", {"kv_list_layout": "unified", **blocks}),
        "trtllm": ("TRTLLM", {"num_kv_heads": size["NH"], "head_dim": size["HS"], **blocks}),
    }
    print(
        json.dumps(
            {
                name: {
                    hint: answer(build(entry["structure"]["list_levels"], entry["structure"]["tensor_shape"]), *what)
                    for hint, what in hints.items()
                }
                for name, entry in known["formats"].items()
                if "structure" in entry
            }
        )
    )


main()
