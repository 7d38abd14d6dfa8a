"""What an engine would know about the model and its caches, derived from the suite's claims: configuration, cache
specifications, tensors. The only place that knows how two versions of vLLM differ in it."""

import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import os
import sys
import tempfile
import types

import template

# Of the run: a rank's own folder for temporary files would give the two sides different models. On two hosts the path that
# both have.
MODELS = "/tmp" if "KVCTS_PEER_ADDRESS" in os.environ else tempfile.gettempdir()
LAYOUTS = {"HNC": "LBHNC", "NHC": "LBNHC"}
OLDER = {"LBHNC": "HND", "LBNHC": "NHD"}  # up to 0.27.1
DTYPES = {
    "bf16": ("bfloat16", "auto"),
    "fp16": ("float16", "auto"),
    "fp32": ("float32", "auto"),
    "e4m3fn": ("bfloat16", "fp8"),
    "e5m2": ("bfloat16", "fp8_e5m2"),
}


NUMPY = {"bfloat16": "u2", "float16": "f2", "float32": "f4"}  # as its bits where NumPy has no such type


def stands_in():
    """Whether vLLM itself is not here, and vllm_stand_in.py answers for it."""
    return "vllm_stand_in" in sys.modules


@functools.cache
def torch():
    """The module, or None: then tensors are NumPy's."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        return None


def copy_of(part):
    return part.clone() if torch() else part.copy()


def bytes_of(part):
    return part.contiguous().view(torch().uint8).numpy().tobytes() if torch() else part.tobytes()


def array_of(part):
    """A copy for another process: NumPy's, of opaque elements."""
    raw = part.contiguous().view(torch().uint8).numpy() if torch() else part
    size = part.element_size() if torch() else part.itemsize
    return template.np.ascontiguousarray(raw).view(f"V{size}").copy()


def like(part, array):
    """An array of array_of() as what is stored into this part."""
    if torch() is None:
        return array.view(part.dtype)
    return torch().from_numpy(template.np.ascontiguousarray(array).view("u1")).view(part.dtype)


def invert(part):
    """Other bytes in place."""
    flat = part.view(torch().uint8) if torch() else part.view("u1")
    flat ^= 0xFF


class Group:
    """One KV cache group of this rank, as the suite claims it."""

    def __init__(self, call, place, number):
        self.rank, self.number, options = call["groups"][number]["ranks"][0], number, call["options"]
        geometry = self.rank["geometry"]
        self.blocks, self.block_size, self.heads, self.head_dim = (
            geometry[key] for key in ("blocks", "block_size", "heads", "head_dim")
        )
        self.latent, self.total_heads, first = geometry["kv"] == 1, place["heads"][number], place["first_layer"][number]
        self.claims, self.bytes = (
            self.rank["tensors"][:1] * len(self.rank["tensors"]) if options.get("alias") else self.rank["tensors"],
            [memory["bytes"] for memory in call["memory"]],
        )
        self.names = [f"model.layers.{first + n}.self_attn.attn" for n in range(len(self.claims))]
        self.window = options.get("sliding_window", 0) if number else 0
        self.layout = layout_of(self.claims)
        said = self.claims[0]["dtype"]
        if said not in DTYPES:
            raise template.Refusal(f"this host drives {', '.join(DTYPES)}, not {said}")
        self.dtype, self.cache_dtype = DTYPES[said]

    def element(self):
        """The type of the tensors' elements."""
        if torch() is None:
            return template.np.dtype("u1" if self.cache_dtype != "auto" else NUMPY[self.dtype])
        return torch().uint8 if self.cache_dtype != "auto" else getattr(torch(), self.dtype)

    def tensors(self, memories):
        """The suite's memory as tensors of the claimed shape and strides. A storage is the allocation, without the guard
        zones."""
        for name, claim in zip(self.names, self.claims):
            memory, size = memories[claim["memory"]], claim["itemsize"]
            if torch() is None:
                start = memory.base + claim["offset"]
                yield name, template.np.ndarray(claim["shape"], self.element(), memory.map, start, claim["strides"])
                continue
            flat = torch().frombuffer(
                memory.map, dtype=self.element(), offset=memory.base, count=self.bytes[claim["memory"]] // size
            )
            yield (
                name,
                flat.as_strided(claim["shape"], [stride // size for stride in claim["strides"]], claim["offset"] // size),
            )

    def spec(self):
        from vllm.v1.kv_cache_interface import FullAttentionSpec, MLAAttentionSpec, SlidingWindowSpec

        common = {
            "block_size": self.block_size,
            "num_kv_heads": self.heads,
            "head_size": self.head_dim,
            "dtype": self.element(),
        }
        if self.latent:
            return MLAAttentionSpec(**common, cache_dtype_str=self.cache_dtype)
        return SlidingWindowSpec(**common, sliding_window=self.window) if self.window else FullAttentionSpec(**common)


def layout_of(claims):
    """vLLM's name for the order of the claimed strides. A tensor that is not [B, H, N, C] gets the default."""
    dims = sorted(zip(claims[0]["strides"], claims[0]["axes"]), key=lambda d: -d[0])
    order = "".join("C" if axes.endswith("C") else axes for stride, axes in dims if axes not in "B1")
    name = LAYOUTS.get(order, "LBHNC" if order == "NC" else "LBNHC")
    return "BL" + name[2:] if len(claims) > 1 and claims[0]["memory"] == claims[1]["memory"] else name


def announce(layout):
    """Up to 0.27.1 the layout is a setting of the process."""
    if stands_in():
        return
    try:
        import vllm.v1.kv_cache_layout  # noqa: F401  # newer: in the cache's configuration
    except ImportError:
        if layout not in OLDER:
            raise template.Refusal(f"this vLLM has the layouts NHD and HND, not {layout}") from None
        os.environ["VLLM_KV_CACHE_LAYOUT"] = OLDER[layout]


def cache_config(groups, memory, layout, config):
    from vllm.v1.kv_cache_interface import KVCacheConfig, KVCacheGroupSpec, KVCacheTensor

    known = inspect.signature(KVCacheTensor).parameters
    tensors = []
    for group in groups:
        for name, claim in zip(group.names, group.claims):
            size = memory[claim["memory"]]["bytes"]
            stride = claim["strides"][claim["axes"].index("B")] if "B" in claim["axes"] else size // group.blocks
            if "shared_by" in known:
                tensors.append(KVCacheTensor(size=size, shared_by=[name]))
            else:
                tensors.append(
                    KVCacheTensor(size=size, layers=[name], layer_stride=size, block_stride=stride, offset=claim["offset"])
                )
    named = {"kv_cache_layout": layout} if "kv_cache_layout" in inspect.signature(KVCacheConfig).parameters else {}
    return KVCacheConfig(
        num_blocks=groups[0].blocks,
        kv_cache_tensors=tensors,
        kv_cache_groups=[KVCacheGroupSpec(group.names, group.spec()) for group in groups],
        **named,
    )


def named(options, kind, producer):
    """This side's name of a kind in `identity` (vllm_engine.py), or None."""
    return options.get("identity", {}).get(kind, (None, None))[0 if producer else 1]


def model_folder(groups, name=None):
    """A configuration with these numbers and no weights: Llama, DeepSeek-V2 for latents. Both sides name the same
    folder because vLLM compares it; a folder in it where the model has a name."""
    dim, heads, layers = groups[0].head_dim, groups[0].total_heads, sum(len(group.names) for group in groups)
    queries = 8 * heads
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": queries * dim,
        "intermediate_size": 64,
        "num_attention_heads": queries,
        "num_key_value_heads": heads,
        "head_dim": dim,
        "num_hidden_layers": layers,
        "vocab_size": 64,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
        "rope_theta": 10000.0,
    }
    if groups[0].latent:
        config |= {
            "architectures": ["DeepseekV2ForCausalLM"],
            "model_type": "deepseek_v2",
            "hidden_size": 256,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "kv_lora_rank": dim - 64,
            "qk_rope_head_dim": 64,
            "qk_nope_head_dim": 128,
            "v_head_dim": 128,
            "q_lora_rank": None,
            "n_routed_experts": 8,
            "first_k_dense_replace": layers,
        }
        del config["head_dim"]
    text = json.dumps(config, sort_keys=True)
    folder = os.path.join(MODELS, "kvcts-vllm-" + hashlib.sha256(text.encode()).hexdigest()[:16], name or "")
    folder = folder.rstrip("/")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, f"config.json.{os.getpid()}"), "w") as file:
        file.write(text)
    os.replace(file.name, os.path.join(folder, "config.json"))
    return folder


def engine_arguments(groups, name=None):
    return {
        "model": model_folder(groups, name),
        "skip_tokenizer_init": True,
        "dtype": groups[0].dtype,
        "kv_cache_dtype": groups[0].cache_dtype,
        "block_size": groups[0].block_size,
        "max_model_len": 1024,
        "load_format": "dummy",
        "enforce_eager": True,
        "disable_hybrid_kv_cache_manager": len(groups) == 1,
    }


def warm(connector, module=None):
    """What the configurations of all jobs share, before the first fork. vLLM would inspect the model's class in a
    separate process (10 s)."""
    from vllm.config import KVTransferConfig
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.models import registry

    registry._run_in_subprocess = lambda function: function()
    for latent in (False, True):
        group = types.SimpleNamespace(
            head_dim=576, total_heads=1, names=[""], latent=latent, dtype="bfloat16", cache_dtype="auto", block_size=16
        )
        transfer = KVTransferConfig(
            kv_connector=connector, kv_role="kv_producer", engine_id="warm", kv_connector_module_path=module
        )
        EngineArgs(**engine_arguments([group]), kv_transfer_config=transfer).create_engine_config()


def stand_in_for_backend(latent):
    """The attention backend that the connectors query: the CPU platform would choose another one."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    backend = (AttentionBackendEnum.TRITON_MLA if latent else AttentionBackendEnum.FLASH_ATTN).get_class()
    for name, module in list(sys.modules.items()):
        if name.startswith("vllm.distributed"):
            if hasattr(module, "get_current_attn_backends"):
                module.get_current_attn_backends = lambda config, layers=None: [backend]
            if hasattr(module, "get_current_attn_backend"):
                module.get_current_attn_backend = lambda config, layers=None: backend


def stand_in_for_platform():
    """Before importing vLLM. Up to 0.27.1 it searches the wheel's version for the word and ignores VLLM_TARGET_DEVICE."""
    version = importlib.metadata.version
    importlib.metadata.version = lambda name: version(name) + ("+cpu" if name == "vllm" else "")


def stand_in_for_device():
    """MooncakeConnector queries the index of an accelerator, and there is none."""
    torch().accelerator.current_device_index = lambda: 0
    torch().accelerator.set_device_index = lambda device: None


def stand_in_for_events():
    """What a connector records on an accelerator's stream: here, all before it has happened."""
    torch().cuda.Event = torch().Event = lambda *_, **__: types.SimpleNamespace(
        record=lambda *_: None, synchronize=lambda: None, query=lambda: True, elapsed_time=lambda end: 0.0
    )


HANDSHAKE_MS = 60_000


@functools.cache
def stand_in_for_processors():
    """Ranks that would each have a machine share this one's processors: NIXL's side may take a minute to answer a
    handshake, not vLLM's 5 s."""
    import zmq
    from vllm.distributed.kv_transfer.kv_connector.v1.nixl import base_worker

    socket_of = base_worker.zmq_ctx

    class Patient:
        def __init__(self, socket):
            self.socket = socket

        def __getattr__(self, name):
            return getattr(self.socket, name)

        def setsockopt(self, option, value):
            self.socket.setsockopt(option, HANDSHAKE_MS if option == zmq.RCVTIMEO else value)

    @contextlib.contextmanager
    def patient(*which):
        with socket_of(*which) as socket:
            yield Patient(socket)

    base_worker.zmq_ctx = patient
