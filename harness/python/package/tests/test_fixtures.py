"""The fixtures and helpers for tests of kernels, permutes, scatters and connectors: each check is seen to fail."""

import numpy as np
import pytest
from moves import codes, tensors

import kvcts


# ---- kv_cache ----------------------------------------------------------------------------------------------------------


def test_a_cache_is_filled_shuffled_and_partial(kv_cache):
    cache = kv_cache("flash_attn", heads=8)
    assert cache.layout.numbers["heads"] == 8 and len(cache.tensors) == 3
    assert 0 in cache.blocks and cache.blocks != sorted(cache.blocks) and cache.tokens % 16 != 0
    assert cache.slot_mapping.dtype == np.int64 and cache.slot_mapping.shape == (cache.tokens,)
    assert [int(s) for s in cache.slot_mapping[:17]] == [cache.blocks[0] * 16 + s for s in range(16)] + [
        cache.blocks[1] * 16
    ]
    for _ in cache.passes():
        assert cache.verify().checked_bytes == cache.layout.nbytes


def scatter(key, value, cache, mapping, last=None) -> None:
    """reshape_and_cache of the layout [2, blocks, slots, heads, channels]."""
    for kv, rows in enumerate((key, value)):
        pool = codes(cache.tensors)[kv].reshape(-1, *rows.shape[1:])
        pool[mapping[:last]] = codes(rows)[:last]


def test_a_scatter_of_tokens(kv_cache):
    cache = kv_cache("vllm-fa-nhd", layers=1)
    key, value = cache.key_value()
    assert key.shape == (cache.tokens, 4, 64)
    cache.clear()
    scatter(key, value, cache, cache.slot_mapping)
    cache.verify()
    kvcts.assert_kv_equal(cache, cache)


@pytest.mark.parametrize(
    "fault, words",
    [
        (lambda m, s: (m + 16) % (7 * 16), "wrong-block-id"),
        (lambda m, s: np.where(m // 16 == m[0] // 16, m ^ 1, m), "wrong-block-size"),
    ],
)
def test_a_wrong_slot_mapping_is_named(kv_cache, fault, words):
    cache = kv_cache("vllm-fa-nhd", layers=1)
    key, value = cache.key_value()
    cache.clear()
    scatter(key, value, cache, fault(cache.slot_mapping, 16))
    with pytest.raises(AssertionError, match=words) as caught:
        cache.verify()
    assert f"wrong: {cache.blocks[0]}" in str(caught.value)


def test_tokens_that_were_not_scattered(kv_cache):
    cache = kv_cache("vllm-fa-nhd", layers=1)
    key, value = cache.key_value()
    cache.clear()
    scatter(key, value, cache, cache.slot_mapping, last=-1)
    with pytest.raises(AssertionError, match=f"only {cache.tokens - 1} of {cache.tokens} tokens") as caught:
        kvcts.assert_kv_equal(cache, cache)
    assert f"blocks    2 of 3 right; wrong: {cache.blocks[-1]}" in str(caught.value)


def test_a_slot_beyond_the_tokens_is_written(kv_cache):
    cache = kv_cache("vllm-fa-nhd", layers=1)
    codes(cache.tensors)[0, cache.blocks[-1], -1] = 0
    with pytest.raises(AssertionError, match=f"block {cache.blocks[-1]} slot 15 .*free slot"):
        cache.verify()
    cache.verify(tail="open")


def test_nothing_was_written(kv_cache):
    cache = kv_cache("flashinfer:HND")
    cache.clear()
    with pytest.raises(AssertionError, match="silently-skipped"):
        cache.verify()


def test_the_latent_of_mla(kv_cache):
    cache = kv_cache("flashmla", layers=1)
    latent = cache.key_value()
    assert latent.shape == (cache.tokens, 1, 576)
    cache.clear()
    codes(cache.tensors).reshape(-1, 1, 576)[cache.slot_mapping] = codes(latent)
    cache.verify()


def test_what_a_cache_refuses(kv_cache):
    with pytest.raises(kvcts.LayoutError, match="layer below 3, found 3"):
        kv_cache("flash_attn").key_value(3)
    with pytest.raises(kvcts.LayoutError, match="needs 8 blocks, the pool has 7"):
        kv_cache("flash_attn", tokens=127)


# ---- permutes ----------------------------------------------------------------------------------------------------------


def permute(cache, out, axes) -> None:
    for source, target in zip(tensors(cache), out):
        codes(target)[...] = codes(source).transpose(axes)


def test_a_permute(kv_cache):
    cache = kv_cache("vllm-fa-nhd")
    layout = cache.layout.like("flashinfer:HND")
    out = layout.empty()
    permute(cache, out, (1, 0, 3, 2, 4))
    kvcts.assert_kv_equal(out, cache, layout="flashinfer:HND")
    kvcts.assert_kv_equal(out, cache, layout=layout)


def test_a_wrong_permute_names_the_axes(kv_cache):
    cache = kv_cache("vllm-fa-nhd", block_size=4)  # as many slots as heads: the shape is right
    out = cache.layout.like("flashinfer:HND").empty()
    permute(cache, out, (1, 0, 2, 3, 4))
    with pytest.raises(AssertionError, match="axis-permuted") as caught:
        kvcts.assert_kv_equal(out, cache, layout="flashinfer:HND")
    assert "blocks    0 of 3 right" in str(caught.value)


def test_one_flipped_byte_names_its_block(kv_cache):
    cache = kv_cache("vllm-fa-nhd")
    out = cache.layout.like("flashinfer:HND").empty()
    permute(cache, out, (1, 0, 3, 2, 4))
    block = cache.blocks[1]
    codes(out[2])[block, 1, 3, 5, 7] ^= 1
    with pytest.raises(AssertionError, match=f"V layer 2 block {block} slot 5 head 3 channel 7") as caught:
        kvcts.assert_kv_equal(out, cache, layout="flashinfer:HND")
    assert f"2 of 3 right; wrong: {block}" in str(caught.value) and "1 wrong" in str(caught.value)


def post_process(cache, blocks) -> None:
    """NHD to HND in place, block by block, as a connector does after it received HND."""
    for memory in cache.memory:
        pool = memory.reshape(7, 2, 16, 4, 128)
        for b in blocks:
            pool[b] = pool[b].copy().reshape(2, -1).reshape(2, 16, 4, 128).transpose(0, 2, 1, 3).reshape(2, 16, 4, 128)


def test_a_permute_in_place(kv_cache):
    cache = kv_cache("flashinfer:NHD", tokens=48)
    post_process(cache, cache.blocks)
    kvcts.assert_kv_equal(cache, cache, layout="flashinfer:HND")
    kvcts.assert_kv_equal(cache.tensors, cache, layout="flashinfer:HND")


def test_a_block_that_was_not_permuted(kv_cache):
    cache = kv_cache("flashinfer:NHD", tokens=48)
    post_process(cache, cache.blocks[:-1])
    with pytest.raises(AssertionError, match=f"2 of 3 right; wrong: {cache.blocks[-1]}"):
        kvcts.assert_kv_equal(cache, cache, layout="flashinfer:HND")


def test_a_block_too_many_was_permuted(kv_cache):
    cache = kv_cache("flashinfer:NHD", tokens=48)
    free = next(b for b in range(7) if b not in cache.blocks)
    post_process(cache, [*cache.blocks, free])
    with pytest.raises(AssertionError, match=rf"block {free} .*free slot") as caught:
        kvcts.assert_kv_equal(cache, cache, layout="flashinfer:HND")
    assert "blocks    3 of 3 right" in str(caught.value)


def test_the_result_in_other_blocks(kv_cache):
    cache = kv_cache("flashinfer:NHD", layers=1)
    out = cache.layout.empty()
    for s, t in zip(cache.blocks, [5, 2, 6]):
        codes(out)[t] = codes(cache.tensors)[s]
    kvcts.assert_kv_equal(out, cache, blocks=[5, 2, 6])
    with pytest.raises(AssertionError, match=r"blocks \[5, 2, 6\] instead of \[5, 6, 2\]"):
        kvcts.assert_kv_equal(out, cache, blocks=[5, 6, 2])


# ---- backends ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", kvcts.backends())
def test_every_backend_makes_a_cache(kv_cache, backend):
    cache = kv_cache(backend)
    assert cache.verify()
    cache.memory[0].view("u1")[cache.layout.offset(block=cache.blocks[0]).byte] ^= 1
    with pytest.raises(AssertionError, match=f"block {cache.blocks[0]} slot 0"):
        cache.verify()


@pytest.mark.parametrize(
    "name, id",
    [
        ("flash_attn", "vllm-lbnhc"),
        ("FLASH_ATTN:HND", "vllm-lbhnc"),
        ("flash_attn@0.10", "vllm-fa-nhd"),
        ("flash_attn@0.22.1:HND", "vllm-fa-hnd"),
        ("flash_attn:HND@0.25", "vllm-blocks-first-hnd"),
        ("triton_attn@0.10.2", "vllm-fa-nhd"),
        ("flashinfer@0.27", "vllm-lbnhc"),
        ("xformers", "vllm-xformers"),
        ("triton_mla", "vllm-mla"),
        ("flashmla", "vllm-mla"),
        ("sglang-mha:HND", "sglang-hnd"),
        ("trtllm", "trtllm-pool"),
    ],
)
def test_backends_have_the_layouts_of_the_catalogue(name, id):
    assert kvcts.cache(name).layout.id == id


def test_flashinfer_is_its_own_page():
    numbers = dict(blocks=3, block_size=16, heads=4, head_dim=64)
    for name, page in (("flashinfer", "flashinfer-nhd"), ("flashinfer:HND", "flashinfer-hnd")):
        assert kvcts.Layout(name, **numbers) == kvcts.Layout(page, **numbers)


def test_names_that_no_backend_has():
    with pytest.raises(
        kvcts.LayoutError, match="expected a layout, backend or template, found 'flash_atn'; near names: .*flash_attn"
    ):
        kvcts.cache("flash_atn")
    with pytest.raises(kvcts.LayoutError, match="no layout 'flash_attn:NDH'; it has the settings HND, NHD and"):
        kvcts.cache("flash_attn:NDH")
    with pytest.raises(kvcts.LayoutError, match="versions 0.8.5 to 0.27.1"):
        kvcts.cache("flash_attn@0.7")


def test_backends_that_take_these_numbers():
    assert {"flash_attn:NHD", "flash_attn:HND", "flashinfer:NHD", "xformers", "flashmla"} <= set(kvcts.backends())
    assert "flashmla" not in kvcts.backends(heads=8) and "triton_attn:HND" in kvcts.backends(heads=8)
    assert all("mla" in name for name in kvcts.backends("mla")) and "triton_mla" in kvcts.backends("mla")


# ---- ranks -------------------------------------------------------------------------------------------------------------


def move(pair, wrong=None, skip_tail=False) -> None:
    """Every consumer rank takes its heads from the producers that have them. `wrong`: consumer rank -> heads of which."""
    for rank, consumer in enumerate(pair.consumers):
        n = (pair.consumers[wrong[rank]] if wrong and rank in wrong else consumer).layout.numbers
        for i in range(n["heads"]):
            head = n["first_head"] + i
            for producer in pair.producers:
                p = producer.layout.numbers
                if not p["first_head"] <= head < p["first_head"] + p["heads"]:
                    continue
                for source, target in zip(tensors(producer), tensors(consumer)):
                    for s, t in zip(pair.source_blocks, pair.target_blocks):
                        if not (skip_tail and rank == 3 and t == pair.target_blocks[-1]):
                            codes(target)[:, t, :, i] = codes(source)[:, s, :, head - p["first_head"]]


@pytest.mark.parametrize(
    "ranks, heads, first",
    [
        ((2, 4), [4, 2], [0, 2, 4, 6]),
        ((4, 2), [2, 4], [0, 4]),
        ((1, 2), [8, 4], [0, 4]),
        ((2, 16), [4, 1], [h // 2 for h in range(16)]),
    ],
)
def test_ranks(kv_pair, ranks, heads, first):
    pair = kv_pair("vllm-fa-nhd", heads=8, ranks=ranks)
    assert (len(pair.producers), len(pair.consumers)) == ranks and pair.tokens % 16 != 0
    assert [pair.producer.layout.numbers["heads"], pair.consumer.layout.numbers["heads"]] == heads
    assert [c.layout.numbers["first_head"] for c in pair.consumers] == first
    for _ in pair.passes(2):
        move(pair)
        assert pair.verify().checked_bytes == sum(c.layout.nbytes for c in pair.consumers)


def test_exchanged_ranks_are_named(kv_pair):
    pair = kv_pair("vllm-fa-nhd", heads=8, ranks=(2, 4))
    move(pair, wrong={1: 2, 2: 1})
    with pytest.raises(AssertionError, match="head-shard-mapping") as caught:
        pair.verify()
    assert "consumer rank 1 of 4, KV heads 2 to 3; also wrong: rank 2\n" in str(caught.value)
    assert "holds heads 4..5" in str(caught.value)


def test_a_replicated_head_of_another_rank(kv_pair):
    pair = kv_pair("vllm-fa-nhd", heads=2, ranks=(2, 4))
    assert [c.layout.numbers["first_head"] for c in pair.consumers] == [0, 0, 1, 1]
    move(pair, wrong={1: 2})
    diagnosis = pair.diagnose()
    assert diagnosis.of == "consumer rank 1 of 4, KV heads 0 to 0" and diagnosis.fault_class == "head-shard-mapping", (
        diagnosis
    )


def test_one_flipped_byte_of_one_rank(kv_pair):
    pair = kv_pair("vllm-fa-nhd", heads=8, ranks=(2, 4))
    move(pair)
    block = pair.target_blocks[1]
    codes(pair.consumers[3].tensors[1])[1, block, 5, 1, 3] ^= 1
    with pytest.raises(AssertionError, match=f"V layer 1 block {block} slot 5 head 7 channel 3") as caught:
        pair.verify()
    assert "consumer rank 3 of 4, KV heads 6 to 7\n" in str(caught.value) and f"wrong: {block}" in str(caught.value)


def test_a_partial_last_block_that_one_rank_lacks(kv_pair):
    pair = kv_pair("vllm-fa-nhd", heads=8, ranks=(2, 4))
    move(pair, skip_tail=True)
    diagnosis = pair.diagnose()
    assert diagnosis.fault_class == "truncated" and diagnosis.of.startswith("consumer rank 3 of 4"), diagnosis
    assert [b.block for b in diagnosis.blocks if not b.right] == [pair.target_blocks[-1]]


def test_a_producer_rank_must_not_change(kv_pair):
    pair = kv_pair("vllm-fa-nhd", heads=8, ranks=(2, 4))
    move(pair)
    codes(pair.producers[1].tensors[0])[0, pair.source_blocks[0], 0, 0, 0] ^= 1
    with pytest.raises(AssertionError, match="producer rank 1 of 2, KV heads 4 to 7"):
        pair.verify()


def test_ranks_of_mla_and_of_backends(kv_pair):
    pair = kv_pair("flashmla", ranks=(2, 4))
    assert {c.layout.numbers["first_head"] for c in pair.consumers} == {0}
    assert kv_pair("flash_attn@0.10", "flashinfer:HND", heads=8, ranks=(2, 4)).consumers[1].layout.name == "flashinfer:HND"
    with pytest.raises(kvcts.LayoutError, match="ranks that divide the 8 KV heads"):
        kv_pair("flash_attn", heads=8, ranks=(2, 3))
