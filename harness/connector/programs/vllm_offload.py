"""One rank of OffloadingConnector with two tiers, memory and files (tier fs): the producer's side writes the files, the
consumer's reads them. vLLM refuses its memory tier on a CPU because of the copy between a device and the host. That copy is
replaced, and the device's streams and events with it: here a copy is over when it returns."""

import contextlib
import ctypes
import dataclasses
import types
from pathlib import Path

import torch
import vllm_engine
import vllm_model
from vllm.v1.kv_offload.cpu import gpu_worker
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec

MEMORY = 32 << 20
THREADS = 2  # for each of reading and writing; vLLM's 16 are for a machine to itself


class OnDevice(torch.Tensor):
    """The suite's memory, as the device's."""

    is_cuda = True


def copy(sources, targets, sizes, **_):
    for source, target, size in zip(sources.tolist(), targets.tolist(), sizes.tolist()):
        ctypes.memmove(target, source, size)


class Spec(TieringOffloadingSpec):
    def __init__(self, config):
        # vLLM divides the one allocation of all layers; here each layer may have its own.
        super().__init__(dataclasses.replace(config, worker_kv_bytes_per_block=config.extra_config["bytes_per_block"]))

    def get_worker(self, kv_caches):
        if self._worker is None:
            for cache in kv_caches.tensors:
                cache.tensor = cache.tensor.as_subclass(OnDevice)
            self._worker = self.create_worker(kv_caches)
        return self._worker


def stand_in_for_copies():
    stream = types.SimpleNamespace(wait_stream=lambda other: None, wait_event=lambda event: None)
    gpu_worker.current_platform = types.SimpleNamespace(
        Stream=lambda: stream, current_stream=lambda: stream, stream=contextlib.nullcontext, is_xpu=lambda: False
    )
    gpu_worker.ops = types.SimpleNamespace(swap_blocks_batch=copy)
    vllm_model.stand_in_for_events()


class Rank(vllm_engine.Rank):
    meets = True

    def connect(self):
        stand_in_for_copies()
        super().connect()

    def extra_config(self):
        files = {"type": "fs", "root_dir": str(self.files("own")), "n_read_threads": THREADS, "n_write_threads": THREADS}
        return super().extra_config() | {
            "spec_name": "Spec",
            "spec_module_path": __name__,
            "cpu_bytes_to_use": MEMORY,
            "secondary_tiers": [files],
            "bytes_per_block": sum(group.spec().page_size_bytes * len(group.names) for group in self.caches),
        }

    def referenced(self, one):
        """vLLM fences a store from the next request that gets its blocks; this engine gives them to none before that."""
        return self.scheduler.has_pending_push_work()

    def perform(self, order, **what):
        answers = yield from super().perform(order, **what)
        Path(f"/dev/shm/vllm_offload_{self.engine_id}.mmap").unlink(missing_ok=True)  # every rank has it open now
        return answers
