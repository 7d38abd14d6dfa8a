"""vLLM 0.33.0, tier fs: LBHNC and LBNHC share a file; a flipped bit is loaded with success. For Python with vLLM."""

import mmap
import tempfile
import types
from pathlib import Path

import numpy as np
from vllm.v1.kv_offload import base, config
from vllm.v1.kv_offload.tiering.base import TransferJob
from vllm.v1.kv_offload.tiering.fs.manager import FileSystemTierManager


def launch(layout, what):
    parallel, key = config.OffloadingParallelConfig(0, 1, 1, 1, 1, 1, 0, 1, None, True), base.make_offload_key(bytes(32), 0)
    model, cache = config.OffloadingModelConfig("org/model", "bfloat16"), config.OffloadingCacheConfig(16, 1)
    groups = (config.OffloadingGroupConfig(16, ("layer",), 0),)
    whole = config.OffloadingConfig(groups, 4096, False, {}, "engine", model, cache, parallel, kv_cache_layout=layout)
    page[0, :4] = (1, 2, 3, 4) if what == "submit_store" else 0
    spec = types.SimpleNamespace(config=whole, blocks_per_chunk=1)
    tier = FileSystemTierManager(spec, memoryview(page), "fs", folder, 1, 1)
    getattr(tier, what)(TransferJob(1, [key], np.array([0]), what == "submit_load", base.ReqContext("request")))
    tier.drain_jobs()
    return f"{layout}, {what}: success {next(iter(tier.get_finished_jobs())).success}, first bytes {page[0, :4]}"


folder, page = tempfile.mkdtemp(), np.frombuffer(mmap.mmap(-1, 4096), "u1").reshape(1, -1)
print(launch("LBHNC", "submit_store"), launch("LBNHC", "submit_load"), sep="\n")
(file := next(Path(folder).rglob("*.bin"))).write_bytes(b"\x03" + file.read_bytes()[1:])
print("one bit of the file flipped:", launch("LBHNC", "submit_load"))
