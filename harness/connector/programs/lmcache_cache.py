"""The two things between which LMCache moves KV, as LMCache itself sees them: an engine's paged cache (Paged) and
LMCache's own objects (Objects), both on the suite's memory. LMCache's code makes every decision that counts: which
format a cache has (detect_format), how to read its sizes (KVFormatSpec), where to take and put bytes
(device_ops)."""

import math

import torch

import template
from lmcache import device_ops
from lmcache.lmcache_native import EngineKVFormat, TransferDirection
from lmcache.utils import EngineType
from lmcache.v1.gpu_connector.kv_format import detect_format, get_spec, get_spec_class
from lmcache.v1.gpu_connector.utils import make_page_buffer_shape_desc, resolve_block_stride_and_log_layout

GATHER, SCATTER = TransferDirection.D2H, TransferDirection.H2D
DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
FLOAT8 = {"e4m3fn": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def open_tensors(call, float8=False):
    """[(claim, tensor)] of the one rank of the one group: the suite's memory in the claimed shapes and strides. FP8 is
    shown as uint8, as vLLM and SGLang have it, or as torch.float8 dtypes."""
    if len(call["groups"]) != 1 or len(call["groups"][0]["ranks"]) != 1:
        raise template.Refusal("this host drives one KV cache group and one rank")
    memories = [template.Memory(entry) for entry in call["memory"]]
    out = []
    for claim in call["groups"][0]["ranks"][0]["tensors"]:
        memory, size, kind = memories[claim["memory"]], claim["itemsize"], claim["dtype"]
        dtype = (
            DTYPES.get(kind)
            if size > 1
            else FLOAT8.get(kind, torch.uint8)
            if float8 and claim["axes"][-1] != "*"
            else torch.uint8
        )
        if dtype is None:
            raise template.Refusal(f"this host drives fp16, bf16, fp32 and one-byte elements, not {kind}")
        flat = torch.frombuffer(
            memory.map, dtype=dtype, offset=memory.base, count=call["memory"][claim["memory"]]["bytes"] // size
        )
        out.append(
            (
                claim,
                flat.as_strided(claim["shape"], [stride // size for stride in claim["strides"]], claim["offset"] // size),
            )
        )
    return out


def is_object(tensors):
    """LMCache's objects have the heads and channels of a token in one dim; an engine's cache has its heads in a separate
    dim, or its tokens, too, in that of the heads. Objects of latents and of raw bytes have layers before blocks, or K
    before the layers."""
    axes = tensors[0][0]["axes"]
    if axes[-1] in ("C", "*"):
        return "L" in axes and "H" not in axes and (axes[0] in "KL" or axes[:2] == ["B", "K"])
    return "H" in axes[-1] and "N" not in axes[-1]


def nest(tensors, engine):
    """The tensors in the lists of the engine: one bare tensor of all layers; a list of layers; SGLang: [K layers, V
    layers]; vLLM: planes of a layer (K and V, or stretches of the row) as tuples."""
    if any("L" in axes for axes in tensors[0][0]["axes"]):
        return tensors[0][1]
    group = "K" if engine == "sglang" else "L"
    lists = {}
    for claim, tensor in tensors:
        lists.setdefault(claim["origin"].get(group, 0), []).append(tensor)
    if len(lists) == 1 and group == "K":
        return lists[0]
    lists = [lists[at] for at in sorted(lists)]
    if group == "K":
        return lists
    return [tensors[0] for tensors in lists] if len(lists[0]) == 1 else [tuple(tensors) for tensors in lists]


def hints_of(claim, geometry, options):
    """What the engine would report besides its tensors. `hint`: the order of heads and tokens of the claimed strides
    (claim), none, or any name."""
    hints = {}
    strides = {axis: stride for axes, stride in zip(claim["axes"], claim["strides"]) for axis in axes}
    hint = options.get("hint", "claim")
    if hint == "claim" and {"N", "H"} <= strides.keys():
        hints["kv_layout"] = "NHD" if strides["N"] > strides["H"] else "HND"
    elif hint not in ("claim", "none"):
        hints["kv_layout"] = hint
    if options["engine"] == "trtllm" or options.get("flat"):
        hints |= {
            "num_kv_heads": geometry["heads"],
            "tokens_per_block": geometry["block_size"],
            "head_dim": geometry["head_dim"],
        }
    if lists := options.get("lists", "k_v" if options.get("flat") else None):
        hints["kv_list_layout"] = lists
    return hints


class Objects:
    """LMCache's memory objects: one for the whole pool (.. BN ..), or one per block (B in front)."""

    def __init__(self, call, tensors):
        claim, tensor = tensors[0]
        self.block_size = call["groups"][0]["ranks"][0]["geometry"]["block_size"]
        self.token_major = claim["axes"][0] == "BN"
        if claim["axes"][-1] == "*":  # pages of raw bytes: as many rows as tokens
            tensor = tensor.view(tensor.shape[0], tensor.shape[1] * self.block_size, -1)
        self.whole = claim["axes"][0] != "B"
        self.tokens = tensor.shape[0 if self.token_major else -2]
        pool = [tensor for _, tensor in tensors] if self.whole else list(tensor)
        # One latent: LMCache's objects have no dim for K and V then.
        self.objects = [one.squeeze(0) if one.dim() == 4 and one.shape[0] == 1 else one for one in pool]

    def runs(self, blocks, per_object):
        """[(objects, blocks to skip, first and last position in `blocks`)]: what one LMCache call can do. In the whole
        pool's object it continues without a gap; it fills each of the others from its start."""
        if not self.whole:
            return [([self.objects[b] for b in blocks], 0, 0, len(blocks))]
        out, begin = [], 0
        for at in range(1, len(blocks) + 1):
            if at == len(blocks) or blocks[at] != blocks[at - 1] + 1:
                out.append((self.objects, blocks[begin] * per_object, begin, at))
                begin = at
        return out


class Paged:
    """An engine's paged cache, registered with LMCache: its format detected (or declared: options.format), its sizes as
    LMCache reads them."""

    def __init__(self, call, tensors, options):
        geometry = call["groups"][0]["ranks"][0]["geometry"]
        self.pointers = options.get("inputs") == "pointers"
        self.engine_blocks = geometry["block_size"], geometry["blocks"]
        kv = nest(tensors, options["engine"])
        if options.get("flat"):
            kv = [tensor for layers in kv for tensor in layers]
        self.given, self.hints = kv, hints_of(tensors[0][0], geometry, options)
        if name := options.get("format"):
            self.format, self.kv = EngineKVFormat.__members__[name], kv
        else:
            self.format, self.kv = detect_format(kv, EngineType[options["engine"].upper()], self.hints)
        self.facts = get_spec_class(self.format)
        self.spec = get_spec(self.kv, self.format)
        # If blocks and tokens share a dim, the engine reports how many tokens a block has.
        self.block_size, self.blocks = (
            self.engine_blocks if self.facts.is_pbs_fused else (self.spec.block_size(), self.spec.num_blocks())
        )
        self.layers = self.spec.num_layers()
        # LMCache's own two ways: with tensors, the block stride is not queried (gather_paged_kv_to_cpu); with addresses,
        # it is in the descriptor.
        stride = resolve_block_stride_and_log_layout(self.kv, self.format, 0, 0) if self.pointers else None
        self.desc = make_page_buffer_shape_desc(
            self.kv,
            self.format,
            layer_idx=0,
            num_layers_in_group=self.layers,
            num_blocks=self.blocks,
            block_size=self.block_size,
            block_stride_elems=stride,
        )

    def object_shape(self, tokens):
        """For an object of that many tokens, as LMCache allocates it for this format."""
        hidden = self.desc.nh * self.desc.hs
        return ((2,) if self.desc.kv_size == 2 else ()) + (self.layers, tokens, hidden)

    def move(self, direction, objects, tokens, blocks, skip):
        """LMCache's block transfer of `blocks` from or to objects of `tokens` tokens, after `skip` blocks that stay
        unchanged."""
        chunk = tokens // self.engine_blocks[0] * self.block_size
        shape = self.object_shape(chunk)
        objects = [self.shaped(one, shape) for one in objects]
        ids = [blocks[0]] * skip + blocks
        if self.pointers:
            paged = torch.tensor(self.spec.data_ptrs(list(range(self.layers))), dtype=torch.int64)
            objects = [one.data_ptr() for one in objects]
            ids = torch.tensor(ids, dtype=torch.int64)
        else:
            paged = self.kv
        device_ops.multi_layer_block_kv_transfer(
            paged, objects, ids, torch.device("cpu"), direction, self.desc, chunk, self.format, skip
        )

    def shaped(self, one, shape):
        """The object's memory in the shape that LMCache would have allocated for this format."""
        if one.dtype != self.spec.dtype():
            one = one.view(self.spec.dtype())
        return one.view(shape) if one.shape[:-2] == shape[:-2] and one.numel() == torch.Size(shape).numel() else one


def between(direction, paged, objects, blocks, object_blocks, tokens, options):
    """Gathers `blocks` into the objects, or scatters them back: position i of object_blocks holds the i-th stretch of
    blocks."""
    api = options.get("api", "blocks")
    if api != "blocks":
        import lmcache_tokens  # imports what the daemon mode needs
    if api in ("tokens", "layers"):
        slots = lmcache_tokens.slot_mapping(blocks, paged.engine_blocks[0], objects, object_blocks, tokens)
        (lmcache_tokens.all_layers if api == "tokens" else lmcache_tokens.by_layer)(direction, paged, objects, slots)
        return
    if objects.block_size % paged.engine_blocks[0] != 0:
        raise template.Refusal(
            f"an LMCache object holds whole blocks: {objects.block_size} tokens are no multiple of {paged.engine_blocks[0]}"
        )
    per_object = objects.block_size // paged.engine_blocks[0]
    for some, skip, begin, end in objects.runs(object_blocks, per_object):
        part = blocks[begin * per_object : end * per_object]
        if api == "chunks":
            lmcache_tokens.chunks(direction == GATHER, paged, some, part, per_object, options.get("cached", 0))
        else:
            paged.move(direction, some, objects.tokens, part, skip)


def through(producer, consumer, source, target):
    """From one cache to another through objects that LMCache would allocate for the producer's format."""
    tokens = math.lcm(producer.engine_blocks[0], consumer.engine_blocks[0])
    count = -(-len(source) * producer.engine_blocks[0] // tokens)
    objects = [torch.empty(producer.object_shape(tokens), dtype=producer.spec.dtype()) for _ in range(count)]
    producer.move(GATHER, objects, tokens, source, 0)
    consumer.move(SCATTER, objects, tokens, target, 0)
