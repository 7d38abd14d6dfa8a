#!/usr/bin/env python3
"""load_failures.py: what vLLM's own scheduler does with a request whose blocks did not arrive, for each
kv_load_failure_policy and each way in which a connector can report it. Runs in an environment of `./run_suite.sh --with
vllm` (or vllm-0.27.1): one line per row of the table in reports/results/vllm.md.

No worker, no model: the worker's answers are made by hand; the scheduler and the connector's scheduler half are vLLM's
own."""

import os
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "programs"))
os.environ.update(VLLM_TARGET_DEVICE="cpu", VLLM_LOGGING_LEVEL="CRITICAL", VLLM_KV_CACHE_LAYOUT="HND")
SCRATCH = tempfile.TemporaryDirectory(prefix="kvcts-load-failures-")
tempfile.tempdir = SCRATCH.name

import vllm_model  # noqa: E402

TOKENS, BLOCK = 40, 16


def scheduler(policy):
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.structured_output import StructuredOutputManager

    geometry = {"layers": 1, "blocks": 32, "block_size": BLOCK, "heads": 1, "head_dim": 64, "kv": 2}
    tensor = {
        "memory": 0,
        "offset": 0,
        "itemsize": 2,
        "dtype": "bf16",
        "shape": [32, 1, BLOCK, 128],
        "strides": [4096, 4096, 256, 2],
        "axes": ["B", "H", "N", "KC"],
    }
    call = {
        "groups": [{"ranks": [{"geometry": geometry, "tensors": [tensor]}]}],
        "memory": [{"bytes": 32 * 4096}],
        "options": {},
    }
    group = vllm_model.Group(call, {"heads": [1], "first_layer": [0]}, 0)
    transfer = KVTransferConfig(kv_connector="NixlConnector", kv_role="kv_consumer", kv_load_failure_policy=policy)
    config = EngineArgs(
        **vllm_model.engine_arguments([group]), enable_prefix_caching=False, kv_transfer_config=transfer
    ).create_engine_config()
    config.cache_config.num_gpu_blocks = 32
    cache = vllm_model.cache_config([group], call["memory"], group.layout, config)
    return Scheduler(
        vllm_config=config,
        kv_cache_config=cache,
        structured_output_manager=StructuredOutputManager(config),
        block_size=BLOCK,
    )


def request():
    from vllm.sampling_params import SamplingParams
    from vllm.v1.request import Request

    params = SamplingParams(
        max_tokens=4,
        extra_args={
            "kv_transfer_params": {
                "do_remote_prefill": True,
                "do_remote_decode": False,
                "remote_engine_id": "prefill",
                "remote_block_ids": ([4, 0, 2],),
                "remote_request_id": "prefill-1",
                "remote_host": "127.0.0.1",
                "remote_port": 1,
                "tp_size": 1,
                "remote_num_tokens": TOKENS,
            }
        },
    )
    params.update_from_generation_config({}, 2)
    return Request("r1", list(range(TOKENS)), params, None)


def fate(policy, tells):
    """The request's fate: "recomputes N tokens", or how it ended."""
    from vllm.v1.outputs import KVConnectorOutput, ModelRunnerOutput

    engine, one = scheduler(policy), request()
    engine.add_request(one)
    first = engine.schedule()
    (blocks,) = engine.kv_cache_manager.get_block_ids("r1")
    said = {"finished_recving": {"r1"}}
    if tells == "all blocks failed":
        said["invalid_block_ids"] = set(blocks)
    elif tells == "the last block failed":
        said["invalid_block_ids"] = {blocks[-1]}
    elif tells == "the request failed":
        said["failed_recving"] = {"r1"}
    if "failed_recving" in said and "failed_recving" not in KVConnectorOutput.__dataclass_fields__:
        return "not in this version"
    outputs = engine.update_from_output(
        first, ModelRunnerOutput(req_ids=[], req_id_to_index={}, kv_connector_output=KVConnectorOutput(**said))
    )
    ended = [
        output.finish_reason for batch in outputs.values() for output in batch.outputs if output.finish_reason is not None
    ]
    if ended:
        return f"ends, finish reason {ended[0]}"
    scheduled = engine.schedule().num_scheduled_tokens.get("r1", 0)
    return f"continues: {scheduled} of {TOKENS} tokens are computed here"


if __name__ == "__main__":
    vllm_model.stand_in_for_platform()
    import vllm

    vllm_model.warm("NixlConnector")
    for policy in ("recompute", "fail"):
        for tells in ("nothing failed", "all blocks failed", "the last block failed", "the request failed"):
            print(f"| {vllm.__version__} | {policy} | {tells} | {fate(policy, tells)} |", flush=True)
