import numpy as np
import pytest

import kvcts

SMALL = dict(blocks=7, block_size=16, heads=4, head_dim=64)


def test_one_layout_under_its_names():
    a = kvcts.Layout("flashinfer-nhd", **SMALL)
    assert (
        a
        == kvcts.Layout("flashinfer:NHD", **SMALL)
        == kvcts.Layout("L x B K N H C", **SMALL)
        == kvcts.Layout("NL_X_NB_TWO_BS_NH_HS", **SMALL)
    )
    assert a != kvcts.Layout("flashinfer:HND", **SMALL) and a != kvcts.Layout("flashinfer:NHD", dtype="fp16", **SMALL)
    assert a.names["flashinfer"] == "NHD"


def test_shape_strides_and_offsets_are_numpys():
    layout = kvcts.Layout("vllm-fa-hnd", **SMALL)  # shown as [2, B, N, H, C], in memory H before N
    tensor = layout.empty()
    assert layout.shape == tensor.shape == (2, 7, 16, 4, 64) and layout.strides == tensor.strides == (
        57344,
        8192,
        128,
        2048,
        2,
    )
    base = tensor.ctypes.data
    for kv, block, slot, head, channel in [(0, 0, 0, 0, 0), (1, 6, 15, 3, 63), (1, 2, 3, 1, 5)]:
        place = layout.offset(kv=kv, block=block, slot=slot, head=head, channel=channel)
        assert place.byte == tensor[kv, block, slot, head, channel:].ctypes.data - base and place.bits == 16
        at = (0, kv, block, slot, head, channel, "data")
        assert layout.inverse(place.byte) == layout.inverse(place.byte + 1) == [at]


@pytest.mark.parametrize(
    "name", ["vllm-paged-attn", "vllm-xformers", "trtllm-pool", "flashinfer-nvfp4-nhd", "vllm-mla", "sglang-separate"]
)
def test_inverse_of_offset(name):
    numbers = dict(SMALL, dtype="") if name != "vllm-mla" else dict(blocks=3, block_size=16, heads=1, head_dim=576)
    if name == "sglang-separate":
        numbers = dict(blocks=20, block_size=1, heads=4, head_dim=64)
    layout = kvcts.Layout(name, **numbers)
    chance = np.random.default_rng(1)
    n = layout.numbers
    for _ in range(200):
        at = dict(
            kv=int(chance.integers(n["kv"])),
            block=int(chance.integers(n["blocks"])),
            slot=int(chance.integers(n["block_size"])),
            head=int(chance.integers(n["heads"])),
            channel=int(chance.integers(n["head_dim"])),
        )
        place = layout.offset(**at)
        found = [c for c in layout.inverse(place.byte, place.allocation) if c.component == "data"]
        assert any({k: getattr(c, k) for k in at} == at for c in found), (at, place, found)


def test_padding_belongs_to_nobody():
    layout = kvcts.Layout("B { K N H C ; pad 64 }", blocks=3, block_size=4, heads=2, head_dim=8)
    assert layout.inverse(255) != [] and layout.inverse(256) == []


def test_errors_say_what_to_do():
    with pytest.raises(kvcts.LayoutError, match="needs block_size, heads"):
        kvcts.Layout("flashinfer:NHD", blocks=4, head_dim=64)
    with pytest.raises(kvcts.LayoutError, match="vllm-fa-nhd"):
        kvcts.Layout("vllm-fa-ndh", **SMALL)
    with pytest.raises(kvcts.LayoutError, match="kv = 2, found 1"):
        kvcts.Layout("vllm-fa-nhd", kv=1, **SMALL)
    with pytest.raises(kvcts.LayoutError, match="bf17"):
        kvcts.Layout("vllm-fa-nhd", dtype="bf17", **SMALL)
    with pytest.raises(kvcts.LayoutError, match="block 7"):
        kvcts.Layout("vllm-fa-nhd", **SMALL).offset(block=7)
    assert issubclass(kvcts.LayoutError, ValueError)


def test_every_layout_of_the_catalogue_can_be_filled_and_verified():
    done = 0
    for name in kvcts.layouts():
        for numbers in (
            dict(blocks=3, block_size=16, heads=4, head_dim=128),
            dict(blocks=3, block_size=16, heads=1, head_dim=512),
            dict(blocks=40, heads=4, head_dim=64),
            dict(blocks=3, block_size=16),
            dict(blocks=3),
            dict(blocks=3, block_size=16, heads=4),
            dict(blocks=3, block_size=64, heads=1, head_dim=576, kv=1),
            dict(blocks=3, block_size=16, heads=4, head_dim=128, v_head_dim=64),
            dict(blocks=1, heads=4, head_dim=64, block_size=32),
        ):
            try:
                layout = kvcts.Layout(name, **numbers)
            except kvcts.LayoutError:
                continue
            memory = [np.zeros(size, np.uint8) for _, size in layout.allocations]
            kvcts.fill(memory, layout, [0], side="consumer")
            right = kvcts.verify(memory, layout, [0])
            assert right, (name, right)
            memory[0][len(memory[0]) // 2] ^= 1
            wrong = kvcts.verify(memory, layout, [0])
            assert wrong.wrong_bytes == 1 and not wrong.exact, (name, wrong)
            done += 1
            break
    assert done >= 0.9 * len(kvcts.layouts()), f"{done} of {len(kvcts.layouts())}"
