"""Connectors with the typical faults of this field: each must be named, and nothing else must be."""

import numpy as np
import pytest
from moves import blocks, codes, copy, copy_as_it_lies, flat, tensors

import kvcts


def named(pair, fault_class, words=""):
    diagnosis = pair.diagnose()
    assert diagnosis.fault_class == fault_class, diagnosis
    assert diagnosis.exact and not diagnosis.ok and words in diagnosis.text, diagnosis
    assert diagnosis.look_at and diagnosis.first
    return diagnosis


def test_a_right_connector(kv_pair):
    pair = kv_pair("vllm-fa-nhd", "vllm-fa-hnd")
    for _ in pair.passes():
        copy(pair)
        assert pair.verify().checked_bytes == pair.consumer.layout.nbytes


def test_hnd_handed_over_as_nhd(kv_pair):
    pair = kv_pair("vllm-fa-hnd", "vllm-fa-nhd")
    copy_as_it_lies(pair)
    named(pair, "axis-permuted", "vllm-fa-hnd (KBHNC) read as vllm-fa-nhd (KBNHC)")


def test_hnd_read_as_nhd_and_written_right(kv_pair):
    pair = kv_pair("vllm-fa-hnd", "vllm-fa-nhd", heads=8)
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        wrong = flat(source).reshape(codes(target).shape)  # the memory of [2, B, H, N, C] taken for [2, B, N, H, C]
        for s, t in blocks(pair):
            codes(target)[:, t] = wrong[:, s]
    named(pair, "axis-permuted")


def test_only_the_source_is_misread(kv_pair):
    """Not a plain copy: the target's blocks are smaller, so only a reading of the source explains the bytes."""
    producer = kvcts.Layout("vllm-fa-hnd", blocks=7, block_size=16, heads=4, head_dim=64)
    consumer = kvcts.Layout("vllm-fa-nhd", blocks=20, block_size=8, heads=4, head_dim=64)
    pair = kv_pair(producer, consumer, tokens=48)
    source, target = pair.producer.tensors, codes(pair.consumer.tensors)
    wrong = flat(source).reshape(2, 7, 16, 4, 64)
    rows = np.concatenate([wrong[:, s] for s in pair.source_blocks], axis=1)
    for i, t in enumerate(pair.target_blocks):
        target[:, t] = rows[:, i * 8 : (i + 1) * 8]
    named(pair, "axis-permuted", "vllm-fa-hnd (KBHNC) read as vllm-fa-nhd (KBNHC)")


def test_k_and_v_exchanged(kv_pair):
    pair = kv_pair("vllm-fa-nhd")
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        for s, t in blocks(pair):
            codes(target)[:, t] = codes(source)[::-1, s]
    named(pair, "kv-split-vs-interleaved", "K and V are exchanged")


def test_k_and_v_in_another_place(kv_pair):
    """[2, blocks, ...] taken for [blocks, 2, ...] on both sides, ids and all."""
    pair = kv_pair("vllm-fa-nhd", layers=1)
    source, target = (flat(c.tensors).reshape(7, 2, -1) for c in (pair.producer, pair.consumer))
    for s, t in blocks(pair):
        target[t] = source[s]
    assert not pair.diagnose().ok  # bytes of other blocks: no layout change on one side predicts them
    pair = kv_pair("flashinfer-nhd", "vllm-fa-nhd", layers=1)
    flat(pair.consumer.tensors)[:] = flat(pair.producer.tensors)
    request = kvcts.Request(pair.source_blocks, pair.tokens)
    diagnosis = kvcts.verify(
        pair.consumer.tensors,
        pair.consumer.layout,
        [request, *pair.requests[1:]],
        side="producer",
        tail="untouched",
        source=kvcts.Source(pair.producer.tensors, pair.producer.layout, pair.requests),
    )
    assert diagnosis.fault_class == "kv-split-vs-interleaved" and diagnosis.exact, diagnosis


@pytest.mark.parametrize("wrong_side", ["source", "target"])
def test_a_wrong_stride(kv_pair, wrong_side):
    """Padded pages, and a connector that steps through them as if they were packed."""
    layout = kvcts.Layout("B { K N H C ; pad 512 }", blocks=12, block_size=8, heads=2, head_dim=32)
    pair = kv_pair(layout, layout, tokens=24, allocate=lambda of: np.empty(of.nbytes, np.uint8))
    page, step = 8 * 2 * 2 * 32 * 2, 8 * 2 * 2 * 32 * 2 + 512
    for s, t in blocks(pair):
        begin = s * (page if wrong_side == "source" else step)
        end = t * (page if wrong_side == "target" else step)
        pair.consumer.tensors[end : end + page] = pair.producer.tensors[begin : begin + page]
    diagnosis = pair.diagnose()
    assert diagnosis.fault_class == "wrong-stride" and diagnosis.exact, diagnosis
    assert f"a stride of {page} bytes from block to block instead of {step}" in diagnosis.text


def test_a_stale_block(kv_pair):
    """Block reuse: the request is written again, and one of its blocks is not moved again."""
    pair = kv_pair("vllm-fa-nhd", tokens=48)
    copy(pair)
    again = kvcts.Request(pair.source_blocks, pair.tokens, generation=2)
    kvcts.fill(pair.producer.tensors, pair.producer.layout, [again])
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        for s, t in blocks(pair)[:-1]:
            codes(target)[:, t] = codes(source)[:, s]
    diagnosis = kvcts.verify(pair.consumer.tensors, pair.consumer.layout, pair.target_blocks, pair.tokens, generation=2)
    assert diagnosis.fault_class == "stale-block" and diagnosis.exact, diagnosis
    assert f"generation 1 was written to blocks [{pair.target_blocks[-1]}]" in diagnosis.text
    assert [b.block for b in diagnosis.blocks if not b.right] == [pair.target_blocks[-1]]


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda ids: ids[::-1], "reversed"),
        (sorted, "sorted"),
        (lambda ids: ids[1:] + ids[:1], "shifted by one position"),
        (lambda ids: [i + 1 for i in ids], "ids shifted by 1"),
    ],
)
def test_wrong_block_ids(kv_pair, change, words):
    pair = kv_pair("vllm-fa-nhd", blocks=12, tokens=48)
    right = [4, 0, 7]
    pair.target_blocks = change(right)
    copy(pair)
    pair.target_blocks = right
    named(pair, "wrong-block-id", words)


def test_wrong_block_ids_of_the_producer(kv_pair):
    pair = kv_pair("vllm-fa-nhd", blocks=12, tokens=48)
    pair.source_blocks = [4, 0, 7]
    pair.reset()
    right = list(pair.source_blocks)
    pair.source_blocks = [i + 1 for i in right]
    copy(pair)
    pair.source_blocks = right
    named(pair, "wrong-block-id", "of producer (ids shifted by 1)")


def test_tokens_that_never_arrived(kv_pair):
    pair = kv_pair("vllm-fa-nhd", tokens=48)
    pair_ids, pair.target_blocks = pair.target_blocks, pair.target_blocks[:2]
    copy(pair)
    pair.target_blocks = pair_ids
    named(pair, "truncated", "only 32 of 48 tokens")


def test_nothing_arrived(kv_pair):
    named(kv_pair("vllm-fa-nhd"), "silently-skipped", "nothing arrived")
    pair = kv_pair("vllm-fa-nhd")
    for target in tensors(pair.consumer):
        codes(target)[:] = 0
    named(pair, "read-before-ready", "zeros arrived")


def test_more_arrived_than_was_asked_for(kv_pair):
    pair = kv_pair("vllm-fa-nhd", blocks=8)
    copy(pair)
    other = pair.requests[1].blocks[0]
    free = next(b for b in range(8) if b not in pair.target_blocks)
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        codes(target)[:, free] = codes(source)[:, other]
    named(pair, "wrong-block-id", f"request 1 was written to blocks [{free}]")


def test_layers_misrouted(kv_pair):
    pair = kv_pair("vllm-fa-nhd", "vllm-fa-nhd")
    pair.producer.tensors.reverse()
    copy(pair)
    pair.producer.tensors.reverse()
    named(pair, "layer-misrouted", "layers [2, 1, 0] went to [0, 1, 2]")


def test_a_layer_that_never_arrived(kv_pair):
    pair = kv_pair("vllm-fa-nhd")
    left = pair.consumer.tensors.pop()
    copy(pair)
    pair.consumer.tensors.append(left)
    named(pair, "layer-missing", "only 2 of 3 layers")


def test_heads_of_another_rank(kv_pair):
    pair = kv_pair("vllm-fa-nhd")
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        for s, t in blocks(pair):
            codes(target)[:, t] = codes(source)[:, s][:, :, [2, 3, 0, 1]]
    named(pair, "head-shard-mapping", "heads [2, 3, 0, 1] went to [0, 1, 2, 3]")


def test_noise_has_no_name(kv_pair):
    pair = kv_pair("vllm-fa-nhd", layers=1)
    copy(pair)
    codes(pair.consumer.tensors)[0, pair.target_blocks[0], 3, 1, 5] ^= 0x40
    diagnosis = pair.diagnose()
    assert (
        diagnosis.wrong_bytes == 1
        and diagnosis.fault_class == ""
        and not diagnosis.exact
        and "cause not identified; what happened:" in diagnosis.text
    )
    assert diagnosis.first[0].where == f"K layer 0 block {pair.target_blocks[0]} slot 3 head 1 channel 5"


def test_one_wrong_byte_beside_a_known_fault_is_no_match(kv_pair):
    pair = kv_pair("vllm-fa-hnd", "vllm-fa-nhd", layers=1)
    copy_as_it_lies(pair)
    assert pair.diagnose().exact
    codes(pair.consumer.tensors)[1, pair.target_blocks[0], 2, 1, 7] ^= 0x40
    assert not pair.diagnose().exact


def test_a_free_block_is_damaged(kv_pair):
    pair = kv_pair("vllm-fa-nhd", layers=1)
    copy(pair)
    free = next(b for b in range(7) if b not in pair.target_blocks)
    codes(pair.consumer.tensors)[0, free, 0, 0, 0] = 0
    diagnosis = pair.diagnose()
    assert diagnosis.wrong_bytes == 2 and "free slot" in diagnosis.first[0].where


def test_the_producer_must_not_change(kv_pair):
    pair = kv_pair("vllm-fa-nhd", layers=1)
    copy(pair)
    codes(pair.producer.tensors)[0, pair.source_blocks[0], 0, 0, 0] ^= 1
    assert pair.diagnose()
    with pytest.raises(kvcts.WrongBytes):
        pair.verify()


def test_tails():
    layout = kvcts.Layout("flashinfer:NHD", blocks=4, block_size=8, heads=2, head_dim=32)
    tensor = layout.empty()
    kvcts.fill(tensor, layout, [2, 1], tokens=11, side="consumer")
    assert kvcts.verify(tensor, layout, [2, 1], tokens=11, tail="untouched")
    codes(tensor)[1, 1, 3] = 0  # slot 3 of the second block: unowned
    assert kvcts.verify(tensor, layout, [2, 1], tokens=11)
    assert kvcts.verify(tensor, layout, [2, 1], tokens=11, tail="untouched").wrong_bytes == 128
    codes(tensor)[1, 1, 2] = 0  # slot 2: a token's
    assert kvcts.verify(tensor, layout, [2, 1], tokens=11).wrong_bytes == 128


def test_passes_and_seeds_have_nothing_in_common():
    layout = kvcts.Layout("flashinfer:NHD", blocks=4, block_size=8, heads=2, head_dim=32)
    tensor = layout.empty()
    kvcts.fill(tensor, layout, [1], pass_=1, seed=3)
    assert kvcts.verify(tensor, layout, [1], pass_=1, seed=3, side="producer")
    assert not kvcts.verify(tensor, layout, [1], pass_=0, seed=3, side="producer")
    assert not kvcts.verify(tensor, layout, [1], pass_=1, seed=4, side="producer")
    assert not kvcts.verify(tensor, layout, [1], pass_=1, seed=3, side="consumer")
    assert kvcts.verify(tensor, layout, [1], pass_=1, seed=4, side=None).wrong_bytes > 0
    assert kvcts.verify(tensor, layout, [1], pass_=1, seed=3, side=None)


def test_questions_that_make_no_sense():
    layout = kvcts.Layout("flashinfer:NHD", blocks=4, block_size=8, heads=2, head_dim=32)
    tensor = layout.empty()
    with pytest.raises(kvcts.LayoutError, match="block 4"):
        kvcts.fill(tensor, layout, [4])
    with pytest.raises(kvcts.LayoutError, match="named twice"):
        kvcts.fill(tensor, layout, [kvcts.Request([1]), kvcts.Request([2, 1])])
    with pytest.raises(kvcts.LayoutError, match="request of 9 tokens"):
        kvcts.fill(tensor, layout, [0], tokens=9)
    with pytest.raises(kvcts.LayoutError, match="expected 1 tensor .*found 2"):
        kvcts.verify([tensor, tensor], layout)
    with pytest.raises(kvcts.LayoutError, match="tail"):
        kvcts.verify(tensor, layout, tail="odd")


def test_what_people_see(kv_pair):
    pair = kv_pair("vllm-fa-nhd")
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        for s, t in blocks(pair):
            codes(target)[:, t] = codes(source)[::-1, s]
    diagnosis = pair.diagnose()
    text, html = str(diagnosis), diagnosis._repr_html_()
    assert (
        text.startswith("FAIL kv-split-vs-interleaved: ")
        and "look at   " in text
        and "holds V layer 0 token 0 head 0 channel 0" in text
    )
    assert (
        html.count("<div") == html.count("</div>")
        and html.count("<tr>") == 1 + len(diagnosis.first)
        and "line-through" in html
    )
    assert "\n" not in repr(diagnosis) and "exchanged" in repr(diagnosis)
    with pytest.raises(AssertionError, match="K and V are exchanged"):
        pair.verify()


def test_a_wrong_block_among_many_is_named():
    layout = kvcts.Layout("B N H C", kv=1, blocks=9000, block_size=2, heads=1, head_dim=8)
    tensor = layout.empty()
    kvcts.fill(tensor, layout, range(9000), side="consumer")
    codes(tensor)[8999, 1, 0, 3] ^= 1
    diagnosis = kvcts.verify(tensor, layout)
    assert diagnosis.wrong_bytes == 1 and [b.block for b in diagnosis.blocks if not b.right] == [8999]
    assert "token 17999 (block 8999), channel 3" in diagnosis.text and "wrong: 8999" in str(diagnosis)


@pytest.mark.parametrize("wrong", [1, 3, 7])
def test_more_wrong_bytes_than_are_listed(wrong):
    """512 KiB a block: the first wrong one already has more places than verify() lists."""
    layout = kvcts.Layout("B N H C", kv=1, blocks=8, block_size=256, heads=8, head_dim=128)
    tensor = layout.empty()
    kvcts.fill(tensor, layout, [5, 0, 3, 1, 7, 2], side="consumer")
    codes(tensor)[wrong] = 7
    diagnosis = kvcts.verify(tensor, layout, [5, 0, 3, 1, 7, 2])
    assert [b.block for b in diagnosis.blocks if not b.right] == [wrong], diagnosis
    assert diagnosis.wrong_bytes > 500_000 and f"(block {wrong})" in diagnosis.text, diagnosis


def test_a_free_block_among_many_wrong_bytes():
    layout = kvcts.Layout("B N H C", kv=1, blocks=8, block_size=256, heads=8, head_dim=128)
    tensor = layout.empty()
    kvcts.fill(tensor, layout, [5, 0, 3], side="consumer")
    codes(tensor)[6] = codes(tensor)[3]
    diagnosis = kvcts.verify(tensor, layout, [5, 0, 3])
    assert diagnosis.fault_class == "wrong-block-id" and "blocks [6]" in diagnosis.text, diagnosis
    assert all(b.right for b in diagnosis.blocks)


def test_a_copied_tail_hides_nothing(kv_pair):
    """Moved whole blocks make the tail differ, which is allowed; one byte of a token is found among them."""
    pair = kv_pair("vllm-fa-nhd", layers=1, block_size=256)
    copy(pair)
    pair.verify()
    last, slot = pair.target_blocks[-1], (pair.tokens - 1) % 256
    codes(pair.consumer.tensors)[1, last, slot, 3, 9] ^= 1
    diagnosis = pair.diagnose()
    assert diagnosis.wrong_bytes == 1 and len(diagnosis.first) == 1, diagnosis
    assert diagnosis.first[0].where == f"V layer 0 block {last} slot {slot} head 3 channel 9"
    assert pair.diagnose(tail="untouched").wrong_bytes > 1
