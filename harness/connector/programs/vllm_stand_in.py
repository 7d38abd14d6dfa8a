"""What a connector class imports of vLLM, for a Python without vLLM: the interface of a connector and the objects that its
methods are called with, of vLLM 0.33.0 by name, fields and signature, and nothing of the engine behind them.

install() puts the modules into sys.modules. Tensors are torch's where torch is, else NumPy's."""

import enum
import hashlib
import logging
import sys
import types
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

VERSION = "0.33.0"
RANK = {"rank": 0, "ranks": 1}  # of this process


class KVConnectorRole(enum.Enum):
    SCHEDULER = 0
    WORKER = 1


class KVConnectorMetadata(ABC):  # noqa: B024  # as upstream's: a base to derive from
    pass


class KVConnectorHandshakeMetadata(ABC):  # noqa: B024
    pass


class KVConnectorWorkerMetadata(ABC):
    @abstractmethod
    def aggregate(self, other): ...


class SupportsHMA(ABC):
    @abstractmethod
    def request_finished_all_groups(self, request, block_ids): ...


@dataclass
class KVConnectorTransferResults:
    finished_sending: set = field(default_factory=set)
    finished_recving: set = field(default_factory=set)
    failed_recving: set = field(default_factory=set)


class KVConnectorBase_V1(ABC):
    """Both halves: docs.vllm.ai, vllm/distributed/kv_transfer/kv_connector/v1/base.py."""

    def __init__(self, vllm_config, role, kv_cache_config=None):
        if vllm_config.kv_transfer_config is None:
            raise ValueError("kv_transfer_config must be set for KVConnectorBase_V1")
        self._connector_metadata = None
        self._vllm_config, self._kv_transfer_config = vllm_config, vllm_config.kv_transfer_config
        self._kv_cache_config, self._role = kv_cache_config, role

    @property
    def role(self):
        return self._role

    # The worker's half.
    def bind_connector_metadata(self, connector_metadata):
        self._connector_metadata = connector_metadata

    def clear_connector_metadata(self):
        self._connector_metadata = None

    def _get_connector_metadata(self):
        assert self._connector_metadata is not None
        return self._connector_metadata

    def has_connector_metadata(self):
        return self._connector_metadata is not None

    def register_kv_caches(self, kv_caches): ...
    def handle_preemptions(self, kv_connector_metadata): ...
    def finish_forward(self): ...
    def shutdown(self): ...

    @abstractmethod
    def start_load_kv(self, forward_context, **kwargs): ...
    @abstractmethod
    def wait_for_layer_load(self, layer_name): ...
    @abstractmethod
    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **kwargs): ...
    @abstractmethod
    def wait_for_save(self): ...

    def get_finished(self, finished_req_ids):
        return None, None

    def get_transfer_results(self, finished_req_ids):
        sending, receiving = self.get_finished(finished_req_ids)
        return KVConnectorTransferResults(set(sending or ()), set(receiving or ()))

    def get_block_ids_with_load_errors(self):
        return set()

    def get_handshake_metadata(self):
        return None

    def build_connector_worker_meta(self):
        return None

    # The scheduler's half.
    @abstractmethod
    def get_num_new_matched_tokens(self, request, num_computed_tokens): ...
    @abstractmethod
    def update_state_after_alloc(self, request, blocks, num_external_tokens): ...
    @abstractmethod
    def build_connector_meta(self, scheduler_output): ...

    def on_new_request(self, request): ...
    def update_connector_output(self, connector_output): ...
    def set_xfer_handshake_metadata(self, metadata): ...

    def request_finished(self, request, block_ids):
        return False, None

    def take_events(self):
        return ()

    @classmethod
    def get_required_kvcache_layout(cls, vllm_config):
        return None


class RequestStatus(enum.IntEnum):
    WAITING = 1
    WAITING_FOR_REMOTE_KVS = 3
    RUNNING = 5
    FINISHED_STOPPED = 7
    FINISHED_LENGTH_CAPPED = 8
    FINISHED_ABORTED = 9


class SamplingParams:
    def __init__(self, max_tokens=16, extra_args=None):
        self.max_tokens, self.extra_args = max_tokens, extra_args

    def update_from_generation_config(self, generation_config, eos_token_id=None): ...


@dataclass
class LoRARequest:
    lora_name: str
    lora_int_id: int
    lora_path: str = ""


@dataclass
class PlaceholderRange:
    offset: int
    length: int


@dataclass
class MultiModalFeatureSpec:
    data: Any
    modality: str
    identifier: str
    mm_position: PlaceholderRange
    mm_hash: Any = None


class Request:
    def __init__(self, request_id, prompt_token_ids, sampling_params, pooling_params=None, block_hasher=None, **identity):
        self.request_id, self.prompt_token_ids = request_id, prompt_token_ids
        self.sampling_params, self.pooling_params = sampling_params, pooling_params
        self.kv_transfer_params = (sampling_params.extra_args or {}).get("kv_transfer_params")
        self.all_token_ids, self.num_computed_tokens = list(prompt_token_ids), 0
        self.status, self.cache_salt = RequestStatus.WAITING, identity.get("cache_salt")
        self.lora_request, self.mm_features = identity.get("lora_request"), identity.get("mm_features") or []
        self.block_hashes = block_hasher(self) if block_hasher else []

    @property
    def num_tokens(self):
        return len(self.all_token_ids)

    num_prompt_tokens = num_tokens


def get_request_block_hasher(block_size, hash_function):
    def hashes(request):
        lora, images = request.lora_request, [feature.identifier for feature in request.mm_features]
        seed = [request.cache_salt, lora and (lora.lora_name, lora.lora_path), *images]  # upstream's: block by block
        chain, out = hash_function(tuple(seed)) if any(seed) else b"", []
        for end in range(block_size, len(request.all_token_ids) + 1, block_size):
            out.append(chain := hash_function((chain, tuple(request.all_token_ids[end - block_size : end]))))
        return out

    return hashes


@dataclass
class KVCacheBlock:
    block_id: int
    block_hash: Any = None

    def set_block_hash(self, block_hash, num_tokens=None):
        self.block_hash = block_hash


@dataclass
class KVCacheBlocks:
    blocks: tuple

    def get_block_ids(self, allow_none=False, *, group_ids=None):
        groups = self.blocks if group_ids is None else [self.blocks[number] for number in group_ids]
        return None if allow_none and not any(groups) else tuple([block.block_id for block in group] for group in groups)

    def get_unhashed_block_ids(self):
        return [block.block_id for block in self.blocks[0] if block.block_hash is None]


@dataclass
class NewRequestData:
    req_id: str
    prompt_token_ids: list
    mm_features: list
    sampling_params: Any
    pooling_params: Any
    block_ids: tuple
    num_computed_tokens: int
    lora_request: Any = None

    @classmethod
    def from_request(cls, request, block_ids):
        return cls(
            request.request_id,
            request.prompt_token_ids,
            request.mm_features,
            request.sampling_params,
            request.pooling_params,
            block_ids,
            request.num_computed_tokens,
            request.lora_request,
        )


@dataclass
class CachedRequestData:
    req_ids: list = field(default_factory=list)
    resumed_req_ids: set = field(default_factory=set)
    new_token_ids: list = field(default_factory=list)
    all_token_ids: dict = field(default_factory=dict)
    new_block_ids: list = field(default_factory=list)
    num_computed_tokens: list = field(default_factory=list)
    num_output_tokens: list = field(default_factory=list)

    @property
    def num_reqs(self):
        return len(self.req_ids)


@dataclass
class SchedulerOutput:
    scheduled_new_reqs: list = field(default_factory=list)
    scheduled_cached_reqs: CachedRequestData = field(default_factory=CachedRequestData)
    num_scheduled_tokens: dict = field(default_factory=dict)
    total_num_scheduled_tokens: int = 0
    finished_req_ids: set = field(default_factory=set)
    preempted_req_ids: Any = None
    kv_connector_metadata: Any = None

    make_empty = classmethod(lambda cls: cls())


@dataclass
class KVConnectorOutput:
    finished_sending: Any = None
    finished_recving: Any = None
    kv_connector_worker_meta: Any = None
    invalid_block_ids: set = field(default_factory=set)
    failed_recving: set = field(default_factory=set)


@dataclass
class KVTransferConfig:
    kv_connector: Any = None
    engine_id: Any = None
    kv_role: Any = None
    kv_connector_extra_config: dict = field(default_factory=dict)
    kv_connector_module_path: Any = None
    kv_load_failure_policy: str = "fail"
    kv_buffer_device: str = "cpu"

    is_kv_producer = property(lambda self: self.kv_role in ("kv_producer", "kv_both"))
    is_kv_consumer = property(lambda self: self.kv_role in ("kv_consumer", "kv_both"))
    is_kv_transfer_instance = property(lambda self: self.kv_role is not None)

    def get_from_extra_config(self, key, default):
        return self.kv_connector_extra_config.get(key, default)


class Config(types.SimpleNamespace):
    """VllmConfig and its parts: what the host knows."""


@dataclass(kw_only=True)
class FullAttentionSpec:
    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: Any
    sliding_window: Any = None
    cache_dtype_str: Any = None

    @property
    def page_size_bytes(self):
        size = getattr(self.dtype, "itemsize", 2)
        return (1 if isinstance(self, MLAAttentionSpec) else 2) * self.block_size * self.num_kv_heads * self.head_size * size


class MLAAttentionSpec(FullAttentionSpec):
    pass


class SlidingWindowSpec(FullAttentionSpec):
    pass


@dataclass
class KVCacheTensor:
    size: int
    layers: list
    layer_stride: int = 0
    block_stride: int = 0
    offset: int = 0


@dataclass
class KVCacheGroupSpec:
    layer_names: list
    kv_cache_spec: Any


@dataclass
class KVCacheConfig:
    num_blocks: int
    kv_cache_tensors: list
    kv_cache_groups: list
    kv_cache_layout: str = "LBNHC"


def sha256(value):
    return hashlib.sha256(repr(value).encode()).digest()


V1 = "vllm.distributed.kv_transfer.kv_connector.v1"
MODULES = {
    f"{V1}.base": (
        KVConnectorBase_V1,
        KVConnectorHandshakeMetadata,
        KVConnectorMetadata,
        KVConnectorRole,
        KVConnectorTransferResults,
        KVConnectorWorkerMetadata,
        SupportsHMA,
    ),
    V1: (KVConnectorBase_V1, KVConnectorRole, SupportsHMA),
    "vllm.config": (KVTransferConfig,),
    "vllm.sampling_params": (SamplingParams,),
    "vllm.lora.request": (LoRARequest,),
    "vllm.multimodal.inputs": (MultiModalFeatureSpec, PlaceholderRange),
    "vllm.v1.request": (Request, RequestStatus),
    "vllm.v1.core.kv_cache_manager": (KVCacheBlocks,),
    "vllm.v1.core.kv_cache_utils": (KVCacheBlock, get_request_block_hasher),
    "vllm.v1.core.sched.output": (CachedRequestData, NewRequestData, SchedulerOutput),
    "vllm.v1.outputs": (KVConnectorOutput,),
    "vllm.v1.kv_cache_interface": (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        KVCacheTensor,
        MLAAttentionSpec,
        SlidingWindowSpec,
    ),
    "vllm.utils.hashing": (sha256,),
}
OTHERS = {
    f"{V1}.base": {"supports_hma": lambda connector: isinstance(connector, SupportsHMA)},
    "vllm.config": {"VllmConfig": Config},
    "vllm.forward_context": {"ForwardContext": Config},
    "vllm.v1.attention.backend": {"AttentionMetadata": Config},
    "vllm.v1.core.kv_cache_utils": {"init_none_hash": lambda function: None},
    "vllm.utils.hashing": {"sha256_cbor": sha256},
    "vllm.logger": {"init_logger": logging.getLogger},
    "vllm.distributed.parallel_state": {
        "get_tensor_model_parallel_rank": lambda: RANK["rank"],
        "get_tensor_model_parallel_world_size": lambda: RANK["ranks"],
    },
    "vllm": {"__version__": VERSION},
}


def install():
    """Makes `import vllm...` find these modules."""
    names = {*MODULES, *OTHERS}
    for name in sorted({".".join(name.split(".")[:n]) for name in names for n in range(1, name.count(".") + 2)}):
        module = sys.modules[name] = types.ModuleType(name)
        module.__path__ = []
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
        for thing in MODULES.get(name, ()):
            setattr(module, thing.__name__, thing)
        for key, thing in OTHERS.get(name, {}).items():
            setattr(module, key, thing)


def configure(caches, layout, transfer, rank, ranks, model):
    """A VllmConfig of what the suite claims."""
    RANK.update(rank=rank, ranks=ranks)
    first = caches[0]
    return Config(
        kv_transfer_config=transfer,
        cache_config=Config(
            block_size=first.block_size,
            cache_dtype=first.cache_dtype,
            num_gpu_blocks=first.blocks,
            kv_cache_layout=layout,
            enable_prefix_caching=True,
        ),
        parallel_config=Config(tensor_parallel_size=ranks, pipeline_parallel_size=1, rank=rank, world_size=ranks),
        model_config=Config(model=model, dtype=first.dtype, use_mla=first.latent, max_model_len=1024),
        scheduler_config=Config(disable_hybrid_kv_cache_manager=len(caches) == 1, max_num_batched_tokens=1024),
        instance_id="kvcts",
    )
