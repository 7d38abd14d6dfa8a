"""LMCache's other ways between a paged cache and its objects, for lmcache_host.py: token by token
(multi_layer_kv_transfer and, for SGLang's lists, multi_layer_kv_transfer_unilateral; single_layer_kv_transfer layer by
layer), as its in-engine connectors do it, and the chunks of its daemon mode. On the CPU these are the torch forms, which
devices without special kernels also use."""

import torch

import template
from lmcache import device_ops
from lmcache.v1.multiprocess.transfer_context.base import gather_paged_kv_to_cpu, scatter_cpu_to_paged_kv

CPU = torch.device("cpu")


def slot_mapping(blocks, block_size, objects, object_blocks, tokens):
    """[tokens of the objects]: the paged-cache slot of each token, -1 where there is none."""
    out = torch.full((objects.tokens,), -1, dtype=torch.int64)
    at = torch.arange(tokens)
    out[torch.tensor(object_blocks)[at // objects.block_size] * objects.block_size + at % objects.block_size] = (
        torch.tensor(blocks)[at // block_size] * block_size + at % block_size
    )
    return out


def all_layers(direction, paged, objects, slots):
    """One object [2 or 1, L, tokens, hidden]."""
    [one] = objects.objects
    one = one if one.dim() == 4 else one.unsqueeze(0)
    pointers = torch.tensor(paged.spec.data_ptrs(list(range(paged.layers))), dtype=torch.int64)
    arguments = one, pointers, slots, CPU, paged.blocks * paged.block_size, direction, paged.format
    if paged.facts.is_kv_list:
        device_ops.multi_layer_kv_transfer_unilateral(*arguments)
    else:
        device_ops.multi_layer_kv_transfer(*arguments, block_size=paged.block_size, head_size=paged.desc.hs)


def by_layer(direction, paged, objects, slots):
    """One object per layer, [2, tokens, hidden] or [tokens, 2, hidden]."""
    for one, layer in zip(objects.objects, paged.kv):
        device_ops.single_layer_kv_transfer(one, layer, slots, direction, paged.format, token_major=objects.token_major)


def chunks(gathers, paged, objects, blocks, per_object, cached):
    """The daemon mode's own functions. `cached`: this many blocks before the request's are already cached and must be
    skipped; they get block ids that no request has, which exposes code that does not skip them."""
    layers = dict(enumerate(paged.given))
    if gathers:
        gather_paged_kv_to_cpu(
            layers,
            blocks,
            per_object,
            layout_hints=paged.hints,
            out=[paged.shaped(one, paged.object_shape(per_object * paged.block_size)) for one in objects],
        )
        return
    free = [block for block in range(paged.engine_blocks[1]) if block not in blocks]
    if cached % per_object or len(free) < cached:
        raise template.Refusal(f"{cached} cached blocks: expected a multiple of {per_object}, and at most {len(free)}")
    objects = [paged.shaped(one, paged.object_shape(per_object * paged.block_size)) for one in objects]
    before = [torch.zeros_like(objects[0]) for _ in range(cached // per_object)]
    scatter_cpu_to_paged_kv(
        layers,
        free[:cached] + blocks,
        before + objects,
        per_object,
        skip_first_n_tokens=cached * paged.engine_blocks[0],
        layout_hints=paged.hints,
    )
