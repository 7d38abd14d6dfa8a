"""vLLM 0.33.0: ExampleConnector's key has no cache salt, LoRA or model. For Python with vLLM (VLLM_TARGET_DEVICE=cpu)."""

import tempfile
from types import SimpleNamespace

import torch
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
from vllm.distributed.kv_transfer.kv_connector.v1.example_connector import ExampleConnector
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.output import NewRequestData, SchedulerOutput
from vllm.v1.request import Request


def launch(model):
    transfer, cache = SimpleNamespace(get_from_extra_config=lambda *_: folder), SimpleNamespace(block_size=16)
    named = SimpleNamespace(kv_transfer_config=transfer, cache_config=cache, model_config=SimpleNamespace(model=model))
    return ExampleConnector(named, KVConnectorRole.SCHEDULER, None)


folder, prompt = tempfile.mkdtemp(), list(range(40))
saves, output = launch("org/model"), SchedulerOutput.make_empty()
lora = LoRARequest("poet", 1, "/poet")
first = Request("first", prompt, SamplingParams(), None, cache_salt="tenant-a", lora_request=lora)
output.scheduled_new_reqs.append(NewRequestData.from_request(first, ([0, 1, 2],)))
saves.bind_connector_metadata(saves.build_connector_meta(output))
saves.save_kv_layer("layer", torch.ones(3, 1, 16, 8), None)
other = Request("other", prompt, SamplingParams(), None, cache_salt="tenant-b")
found, _ = launch("org/other").get_num_new_matched_tokens(other, 0)
print("another model, salt and no LoRA may load", found, "of 40 tokens")
