"""One rank of one side of SGLang's separate prefill and decode, in a separate process: its manager, and a sender or receiver
for each request, between the suite's memory and the other side. sglang_host.py starts it and lists what replaces the
engine around it."""

import ctypes
import importlib
import time

import rank_host
import sglang_requests
import template

DTYPES = {"bf16": "auto", "fp16": "auto", "e4m3fn": "fp8_e4m3", "e5m2": "fp8_e5m2"}  # --kv-cache-dtype; auto: the model's


def load(backend):
    """Everything that a rank needs of SGLang, imported. publish() once, as the first one imports more."""
    importlib.import_module(f"sglang.srt.disaggregation.{backend}.conn")
    publish(backend, "prefill", 1, 16, 0, 1)


def publish(backend, mode, port, page_size, rank, ranks):
    """SGLang's own way to make a process a scheduler of such a launch."""
    from sglang.srt import runtime_context
    from sglang.srt.server_args import ServerArgs

    arguments = ServerArgs(
        model_path="dummy",
        device="cpu",
        host=rank_host.ADDRESS,
        port=1,
        tp_size=ranks,
        page_size=page_size,
        disaggregation_mode=mode,
        disaggregation_transfer_backend=backend,
        disaggregation_bootstrap_port=port,
    )
    runtime_context.publish(arguments, role="scheduler", ranks=runtime_context.SpawnRanks(world_rank=rank, gpu_id=0))
    runtime_context.get_parallel().override_permanently(pp_group=None)
    return arguments


class Pool:
    """A pool of the suite's memory, as get_contiguous_buf_infos() describes one: K of all layers, then V of all layers."""

    def __init__(self, call, memories):
        if len(call["groups"]) != 1:
            raise template.Refusal("this host drives one KV cache group")
        (rank,) = call["groups"][0]["ranks"]
        geometry = self.geometry = rank["geometry"]
        self.page_size, self.latent = geometry["block_size"], geometry["kv"] == 1
        claims = sorted(rank["tensors"], key=lambda one: (one["origin"].get("K", 0), one["origin"].get("L", 0)))
        self.dtype = claims[0]["dtype"]
        if self.dtype not in DTYPES:
            raise template.Refusal(f"this host drives {', '.join(DTYPES)}, not {self.dtype}")
        row = geometry["heads"] * geometry["head_dim"] * claims[0]["itemsize"]
        self.item = self.page_size * row
        for claim in claims:
            self.check(claim, row)
        self.addresses = [memories[one["memory"]].address() + memories[one["memory"]].base + one["offset"] for one in claims]
        self.layers = [one["origin"].get("L", 0) for one in claims]

    def check(self, claim, row):
        """SGLang's pools with K, V or latents of a layer as one tensor [tokens, heads, head_dim]."""
        axes, packed = claim["axes"], [claim["itemsize"]]
        for extent in reversed(claim["shape"][1:]):
            packed.insert(0, packed[0] * extent)
        if axes[0] != "BN" or claim["strides"] != packed or packed[0] != row:
            raise template.Refusal(
                f"expected {claim['name']} as a pool of SGLang's, [tokens, heads, head_dim] without gaps; found the axes "
                f"{axes} with strides {claim['strides']} (disaggregation refuses SGLANG_USE_HND_KVCACHE, too)"
            )


class Rank(rank_host.Rank):
    def __init__(self, call):
        self.said = rank_host.Said("sglang")
        self.place, self.options, self.port = call["place"], call["options"], call["ports"][0]
        self.producer, self.backend = self.place["role"] == "producer", self.options["backend"]
        self.memories = [rank_host.Memory(entry) for entry in call["memory"]]
        self.pool = Pool(call, self.memories)
        self.aux = [bytearray(sglang_requests.ROWS * size) for size in sglang_requests.AUX]
        self.conn = importlib.import_module(f"sglang.srt.disaggregation.{self.backend}.conn")
        mode = "prefill" if self.producer else "decode"
        self.arguments = publish(self.backend, mode, self.port, self.pool.page_size, self.place["rank"], self.place["ranks"])
        if self.producer and self.place["rank"] == 0:
            self.server = self.named("BootstrapServer")(rank_host.ADDRESS, self.port)

    def named(self, kind):
        """The backend's class of this kind: NixlKVManager, MooncakeKVManager, ..."""
        return getattr(self.conn, self.backend.capitalize() + "KV" + kind)

    def serve(self, handshakes):
        """The manager: after the first rank's bootstrap server, at which it registers."""
        from sglang.srt.disaggregation.utils import DisaggregationMode

        if self.backend == "mooncake":
            from sglang.srt.distributed.device_communicators import mooncake_transfer_engine

            mooncake_transfer_engine.init_mooncake_transfer_engine(rank_host.ADDRESS, 0, None)
        mode = DisaggregationMode.PREFILL if self.producer else DisaggregationMode.DECODE
        before = rank_host.threads()
        self.manager = self.named("Manager")(self.kv_args(), mode, self.arguments, self.pool.latent)
        if self.backend == "nixl":
            rank_host.calm(before)

    def kv_args(self):
        """As PrefillBootstrapQueue and DecodePreallocQueue fill it, _init_kv_manager()."""
        from sglang.srt.disaggregation.base.conn import KVArgs

        pool, geometry, args = self.pool, self.pool.geometry, KVArgs()
        each, many = pool.addresses, len(pool.addresses)
        args.engine_rank = self.place["rank"]
        args.kv_data_ptrs, args.kv_item_lens, args.kv_layer_ids = list(each), [pool.item] * many, pool.layers
        args.kv_data_lens = [geometry["blocks"] * pool.item] * many
        args.kv_data_mem_kinds = ["DRAM"] * many
        args.kv_cache_dtype_str = self.options.get("kv_cache_dtype", DTYPES[pool.dtype])
        args.kv_layout = self.options.get("kv_layout", (None, None))[0 if self.producer else 1]
        args.aux_data_ptrs = [ctypes.addressof(ctypes.c_char.from_buffer(rows)) for rows in self.aux]
        args.aux_data_lens, args.aux_item_lens = (
            [sglang_requests.ROWS * size for size in sglang_requests.AUX],
            list(sglang_requests.AUX),
        )
        args.state_types, args.state_data_ptrs, args.state_data_lens, args.state_item_lens = [], [], [], []
        args.state_layer_ids, args.state_dim_per_tensor, args.state_slice_outer_counts = [], [], []
        args.state_conv_shard_groups, args.swa_kv_cache_layout, args.is_hybrid_mla_backend = [], None, False
        args.ib_device, args.gpu_id, args.system_dp_rank, args.rust_http_port, args.pp_rank = "", 0, None, None, 0
        args.prefill_start_layer, args.prefill_end_layer, args.mla_compression_ratios = 0, geometry["layers"], None
        args.page_size, args.kv_head_num = pool.page_size, geometry["heads"]
        args.total_kv_head_num = self.place["heads"][0]
        args.kv_buf_groups, args.hidden_kv_layers, args.draft_kv_layers = 1, 0, 0
        return args

    def meet(self):
        """A decode rank asks the bootstrap server who the prefill is, and compares."""
        own = rank_host.ADDRESS, self.port
        self.address = "{}:{}".format(*own if self.producer else (rank_host.PEER_ADDRESS, self.peer["port"]))
        if self.producer:
            return
        for _ in range(100):
            if self.manager.try_ensure_parallel_info(self.address):
                return
            time.sleep(0.1)
        raise RuntimeError(f"the bootstrap server of the prefill side does not answer: {self.said.text}")

    def begin(self, number, requests):
        self.answer = None
        kind = sglang_requests.Sent if self.producer else sglang_requests.Received
        self.flows = [kind(self, row, f"{told['request']}-{number}", told) for row, told in enumerate(requests)]

    def poll(self):
        """The answer when all requests are over, else None."""
        if self.answer is None and not [flow for flow in self.flows if flow.step() is None]:
            failed = [flow.failed for flow in self.flows if flow.failed]
            text = "; ".join(failed) + (f"; SGLang says: {self.said.text}" if self.said.text else "")
            self.answer = {"state": "refused", "type": "KVTransferError", "text": text} if failed else {"state": "done"}
        return self.answer
