"""Hosts a connector of vLLM, the real class, as a connector program: vLLM 0.33.0's NixlConnector (the consumer pulls) and MooncakeConnector (the
producer pushes), on CPU tensors that lie in the suite's memory. No GPU, no model weights, no compiled part of vLLM.

    options: {connector: NixlConnector | MooncakeConnector}

What stands in for the engine around the connector, so that no one takes this for a full deployment:
  - the attention backend is said to be FLASH_ATTN (the CPU platform would choose another one);
  - cache_config.kv_cache_layout is set from the strides that the suite claims, on each side by itself: vLLM's engine core would resolve it;
  - metadata of requests is made by hand, as the scheduler half of the connector would make it;
  - MooncakeConnector: torch.accelerator answers device 0; the transfer engine speaks tcp;
  - one rank, one KV cache group, one model of one Llama configuration that has no weights.
"""

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import time
import uuid

import refusal
import template

ROLE = OPTIONS = None
STARTED = False
LAYOUTS = {"HNC": "LBHNC", "NHC": "LBNHC"}


def missing():
    """What has to be installed, in words; "" when all is there."""
    lack = [name for name in ("vllm", "torch", "zmq", "nixl" if OPTIONS["connector"] == "NixlConnector" else "mooncake") if not importlib.util.find_spec(name)]
    return f"{', '.join(lack)} cannot be imported by {sys.executable}; set KVCTS_PYTHON_VLLM to the interpreter of an environment that has vLLM 0.33.0" if lack else ""


def start(port):
    """Once a process: torch.distributed with a world of one, which vLLM's connectors ask for their rank."""
    global STARTED
    if STARTED:
        return
    import torch
    from vllm.distributed import parallel_state

    if OPTIONS["connector"] == "MooncakeConnector":
        torch.accelerator.current_device_index = lambda: 0
        torch.accelerator.set_device_index = lambda device: None
    parallel_state.init_distributed_environment(world_size=1, rank=0, local_rank=0, backend="gloo", distributed_init_method=f"tcp://127.0.0.1:{port}")
    STARTED = True


def model_folder(geometry, layers):
    """A Llama configuration with these numbers. Both sides name the same folder: vLLM compares it."""
    heads, dim = geometry["heads"], geometry["head_dim"]
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": heads * dim, "intermediate_size": 64, "num_attention_heads": heads,
              "num_key_value_heads": heads, "head_dim": dim, "num_hidden_layers": layers, "vocab_size": 64, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
              "hidden_act": "silu", "torch_dtype": "bfloat16", "bos_token_id": 1, "eos_token_id": 2, "rope_theta": 10000.0}
    text = json.dumps(config, sort_keys=True)
    folder = os.path.join(tempfile.gettempdir(), "kvcts-vllm-" + hashlib.sha256(text.encode()).hexdigest()[:16])
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"config.json.{os.getpid()}"), "w") as file:
        file.write(text)
    os.replace(file.name, os.path.join(folder, "config.json"))
    return folder


def layout_of(tensor):
    """vLLM's name for the order that the claimed strides have. A tensor that is no [B, H, N, C] goes under the default."""
    dims = sorted(zip(tensor["strides"], tensor["axes"]), key=lambda d: -d[0])
    order = "".join("C" if axes.endswith("C") else axes for stride, axes in dims if axes != "B")
    return LAYOUTS.get(order, "LBNHC")


class Job:
    def __init__(self, call):
        import torch
        from vllm.config import KVTransferConfig, set_current_vllm_config
        from vllm.distributed import parallel_state
        from vllm.distributed.kv_transfer.kv_connector.factory import KVConnectorFactory
        from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorRole
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

        if len(call["groups"]) != 1 or len(call["groups"][0]["ranks"]) != 1:
            raise template.Refusal("this host drives one KV cache group and one rank")
        rank = call["groups"][0]["ranks"][0]
        geometry, tensors = rank["geometry"], rank["tensors"]
        dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(call["dtype"])
        if dtype is None:
            raise template.Refusal(f"this host drives bf16 and fp16, not {call['dtype']}")
        self.port, rendezvous = call["ports"][0], call["ports"][1]
        start(rendezvous)
        os.environ.update(VLLM_NIXL_SIDE_CHANNEL_HOST="127.0.0.1", VLLM_NIXL_SIDE_CHANNEL_PORT=str(self.port), VLLM_MOONCAKE_BOOTSTRAP_PORT=str(self.port), VLLM_HOST_IP="127.0.0.1")
        self.memories = [template.Memory(entry) for entry in call["memory"]]
        self.engine_id = str(uuid.uuid4())
        transfer = KVTransferConfig(kv_connector=OPTIONS["connector"], kv_role="kv_producer" if ROLE == "producer" else "kv_consumer", engine_id=self.engine_id,
                                    kv_load_failure_policy="recompute", kv_connector_extra_config={"mooncake_protocol": "tcp"} if OPTIONS["connector"] == "MooncakeConnector" else {})
        self.config = EngineArgs(model=model_folder(geometry, len(tensors)), skip_tokenizer_init=True, dtype=str(dtype).removeprefix("torch."), block_size=geometry["block_size"],
                                 max_model_len=1024, load_format="dummy", enforce_eager=True, kv_transfer_config=transfer).create_engine_config()
        self.config.cache_config.kv_cache_layout = layout_of(tensors[0])
        self.config.cache_config.num_gpu_blocks = geometry["blocks"]
        with set_current_vllm_config(self.config):
            if not parallel_state.model_parallel_is_initialized():
                parallel_state.initialize_model_parallel(1, 1)
            spec = FullAttentionSpec(block_size=geometry["block_size"], num_kv_heads=geometry["heads"], head_size=geometry["head_dim"], dtype=dtype)
            names = [f"model.layers.{n}.self_attn.attn" for n in range(len(tensors))]
            sizes = [call["memory"][tensor["memory"]]["bytes"] for tensor in tensors]
            cache = KVCacheConfig(num_blocks=geometry["blocks"], kv_cache_tensors=[KVCacheTensor(size, [name], size, size // geometry["blocks"]) for size, name in zip(sizes, names)],
                                  kv_cache_groups=[KVCacheGroupSpec(names, spec)], kv_cache_layout=self.config.cache_config.kv_cache_layout)
            self.patch_backend()
            self.connector = KVConnectorFactory.create_connector(self.config, KVConnectorRole.WORKER, cache)
            self.connector.register_kv_caches({name: self.tensor(torch, tensor, call, dtype) for name, tensor in zip(names, tensors)})
            self.scheduler = None
            if ROLE == "producer" and OPTIONS["connector"] == "NixlConnector":  # its scheduler half answers the consumer's handshake
                self.scheduler = KVConnectorFactory.create_connector(self.config, KVConnectorRole.SCHEDULER, cache)
                self.scheduler.set_xfer_handshake_metadata_pp_aware({(0, 0): self.connector.get_handshake_metadata()})

    @staticmethod
    def patch_backend():
        import vllm.distributed.kv_transfer.kv_connector.utils as utils
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        backend = AttentionBackendEnum.FLASH_ATTN.get_class()
        for name, module in list(sys.modules.items()):
            if name.startswith("vllm.distributed") and hasattr(module, "get_current_attn_backends"):
                module.get_current_attn_backends = lambda config, layers=None: [backend]
        assert utils.get_current_attn_backends(None) == [backend]

    def tensor(self, torch, claim, call, dtype):
        """The suite's memory as a torch tensor of the claimed shape and strides. Its storage is the allocation, without the guard zones."""
        memory = self.memories[claim["memory"]]
        size = claim["itemsize"]
        flat = torch.frombuffer(memory.map, dtype=dtype, offset=memory.base, count=call["memory"][claim["memory"]]["bytes"] // size)
        return flat.as_strided(claim["shape"], [stride // size for stride in claim["strides"]], claim["offset"] // size)

    def metadata(self):
        return {"engine_id": self.engine_id, "port": self.port}

    def begin(self, number, requests):
        """What the scheduler would tell this side for the requests."""
        self.waiting = set()
        nixl = OPTIONS["connector"] == "NixlConnector"
        if nixl:
            from vllm.distributed.kv_transfer.kv_connector.v1.nixl.metadata import NixlConnectorMetadata as Metadata
        else:
            from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.mooncake_connector import MooncakeConnectorMetadata as Metadata
        steps = [Metadata()]
        for request in requests:
            name = f"{request['request']}-{number}"
            self.waiting.add(name)
            if nixl and ROLE == "producer":
                steps[0].reqs_in_batch.add(name)
                steps[0].reqs_to_send[name] = time.perf_counter() + 600
            elif nixl:
                steps[0].add_new_req_to_recv(name, (request["blocks"],), {
                    "remote_block_ids": (request["peer_blocks"],), "remote_engine_id": self.peer["engine_id"], "remote_request_id": name, "remote_host": "127.0.0.1",
                    "remote_port": self.peer["port"], "tp_size": 1}, awaiting_kvs=True)
            elif ROLE == "producer":
                steps[0].add_new_req(name, [], {"transfer_id": name}, load_remote_cache=False)
                steps.append(Metadata())
                steps[-1].add_new_req(name, [request["blocks"]], {"transfer_id": name}, load_remote_cache=False)
            else:
                steps[0].add_new_req(name, [request["blocks"]], {"transfer_id": name, "remote_engine_id": self.peer["engine_id"],
                                                                 "remote_bootstrap_addr": f"http://127.0.0.1:{self.peer['port']}"})
        self.errors = set()
        for step in steps:
            self.step(step)
        self.empty = Metadata()

    def step(self, metadata):
        self.connector.bind_connector_metadata(metadata)
        self.connector.start_load_kv(None)
        self.connector.clear_connector_metadata()

    def poll(self):
        """A step of the engine without new requests. The answer when the transfer is over, else None."""
        self.step(self.empty)
        sent, received = self.connector.get_finished(set())
        self.errors |= set(self.connector.get_block_ids_with_load_errors())
        self.waiting -= set(sent or ()) if ROLE == "producer" else set(received or ())
        if self.errors:
            return {"state": "done", "load_errors": sorted(self.errors), "spent": True}
        return None if self.waiting else {"state": "done"}

    def close(self):
        for half in (self.connector, self.scheduler):
            if half is not None:
                half.shutdown()


PENDING = {}


def handle(call, jobs):
    global ROLE, OPTIONS
    name = call["call"]
    try:
        if name == "hello":
            ROLE, OPTIONS = call["role"], call["options"]
            if lack := missing():
                return {"state": "skipped", "text": lack}
            import torch
            import vllm

            return {"name": OPTIONS["connector"], "version": vllm.__version__, "capabilities": {"ops": ["read" if OPTIONS["connector"] == "NixlConnector" else "write"]},
                    "facts": {"torch": torch.__version__, "python": sys.version.split()[0]}}
        if name == "register":
            jobs[call["job"]] = Job(call)
            return {"metadata": jobs[call["job"]].metadata()}
        if name == "handshake":
            jobs[call["job"]].peer = call["peer"]
        elif name == "transfer":
            jobs[call["job"]].begin(call["transfer"], call["requests"])
            PENDING[call["id"]] = jobs[call["job"]]
            return {"state": "pending"}
        elif name == "poll":
            ended = []
            for number, job in list(PENDING.items()):
                try:
                    answer = job.poll()
                except Exception as error:
                    answer = refusal.answer(error, "vllm")
                if answer:
                    ended.append({"id": number, **answer})
                    del PENDING[number]
            return {"calls": ended}
        elif name == "release":
            if job := jobs.pop(call["job"], None):
                job.close()
    except Exception as error:
        return refusal.answer(error, "vllm")
    return {}


os.environ.setdefault("VLLM_TARGET_DEVICE", "cpu")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("UCX_MEM_MMAP_HOOK_MODE", "none")
os.environ.setdefault("MC_FORCE_TCP", "1")
template.handle = handle
if __name__ == "__main__":
    template.main()
