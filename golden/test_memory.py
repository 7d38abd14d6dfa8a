"""Built memory against hand-written NumPy formulas, layout by layout."""

import numpy as np
import pytest

from kvgold import GoldenError, poison, tag
from kvgold.dtypes import Scheme
from kvgold.memory import Geometry, Key, build

BF16 = Scheme("bf16", data="bf16")
NVFP4 = Scheme("nvfp4", data="e2m1", scale="e4m3fn", group=16, global_scale="fp32")
G = Geometry()
WIDE = Geometry("wide", head_dim=64)


def logical(dtype, geometry, layer, component="data", kv=range(2), width=None, first=0):
    """Codes [K, B, N, H, C] of one layer and where they are written [B, N]."""
    table = geometry.token_table()
    k, b, n, h, c = np.ix_(
        kv,
        range(geometry.blocks),
        range(geometry.block_size),
        range(geometry.heads),
        range(first, first + (width or geometry.head_dim)),
    )
    codes = tag.codes(dtype, 1, 0, 0, component, k, layer, h, np.maximum(table[b, n], 0), 1, c)
    return codes, table >= 0


def over_poison(data, written, allocation):
    """`data` bytes where written, poison of the allocation elsewhere; both in memory order."""
    ground = poison.fill(poison.key(1, 0, 0, allocation), data.size)
    return np.where(written.ravel(), data.ravel(), ground)


def nibbles(codes):
    """Pairs along the last dimension, low nibble first."""
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def test_token_table():
    assert G.token_table().tolist() == [[4, 5, 6, 7], [-1] * 4, [-1] * 4, [0, 1, 2, 3], [8, 9, -1, -1]]


@pytest.mark.parametrize(
    "text, order",
    [
        ("L x K B N H C", (0, 1, 2, 3, 4)),
        ("L x K B H N C", (0, 1, 3, 2, 4)),
        ("L x B K N H C", (1, 0, 2, 3, 4)),
        ("L x B H N C K", (1, 3, 2, 4, 0)),
        ("L x B N H K C", (1, 2, 3, 0, 4)),
    ],
)
def test_plain_orders(text, order):
    cache = build(text, G, BF16)
    assert len(cache.allocations) == 2
    for layer in range(2):
        codes, written = logical("bf16", G, layer)
        written = np.broadcast_to(written[None, :, :, None, None], codes.shape)
        data = codes.astype("<u2").transpose(order)
        expected = over_poison(
            np.ascontiguousarray(data).view(np.uint8), np.repeat(written.transpose(order).ravel(), 2), layer
        )
        assert (cache.allocations[layer].bytes == expected).all()


def test_two_lists_give_one_allocation_each():
    cache = build("L x K x B N H C", G, BF16)
    assert len(cache.allocations) == 4
    codes, written = logical("bf16", G, 1)
    written = np.broadcast_to(written[:, :, None, None], codes[1].shape)
    expected = over_poison(codes[1].astype("<u2").view(np.uint8), np.repeat(written.ravel(), 2), 3)
    assert (cache.allocations[3].bytes == expected).all()


def test_paged_attention_x_packed():
    cache = build("L x { K=0 B H C/x N C%x ; K=1 B H C N }", G, BF16)
    codes, written = logical("bf16", G, 0)
    written = np.broadcast_to(written[:, :, None, None], codes[0].shape)

    def key(a):  # [B, N, H, D] -> [nb, H, D/x, N, x]
        return a.transpose(0, 2, 3, 1).reshape(5, 3, 4, 8, 4).swapaxes(3, 4)

    def value(a):  # [B, N, H, D] -> [nb, H, D, N]
        return a.transpose(0, 2, 3, 1)

    data = np.concatenate([key(codes[0]).ravel(), value(codes[1]).ravel()]).astype("<u2")
    mask = np.concatenate([key(written).ravel(), value(written).ravel()])
    assert (cache.allocations[0].bytes == over_poison(data.view(np.uint8), np.repeat(mask, 2), 0)).all()


def test_dsv4_footer():
    g = Geometry(layers=1, kv=1, heads=1, head_dim=512)
    cache = build("L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }", g, BF16)
    nope, written = logical("e4m3fn", g, 0, kv=[0], width=448)
    rope, _ = logical("bf16", g, 0, kv=[0], width=64, first=448)
    scale, _ = logical("e8m0", g, 0, "scale", kv=[0], width=7)
    block = np.zeros((5, 4 * 576 + 4 * 8), np.uint8)
    mask = np.zeros(block.shape, bool)
    for b in range(5):
        for n in range(4):
            row = slice(n * 576, n * 576 + 576)
            block[b, row] = np.concatenate(
                [nope[0, b, n, 0].astype(np.uint8), rope[0, b, n, 0].astype("<u2").view(np.uint8)]
            )
            foot = slice(4 * 576 + n * 8, 4 * 576 + n * 8 + 7)
            block[b, foot] = scale[0, b, n, 0]
            mask[b, row] = mask[b, foot] = written[b, n]
    assert cache.allocations[0].bytes.size == 5 * 4 * 584
    assert (cache.allocations[0].bytes == over_poison(block, mask, 0)).all()


def test_nvfp4_interleaved_value_scales():
    """FlashInfer fp4_quantization.py: out[(t//4)*4*S + s*4 + t%4] = in[t*S + s] in each [P, S] tile of V's scales; K's
    are linear."""
    cache = build("L x B { K=0 { H N C ; scale H N C } ; K=1 { H N C ; scale H N/4 C N%4 } }", WIDE, NVFP4)
    data, written = logical("e2m1", WIDE, 1)
    scales, _ = logical("e4m3fn", WIDE, 1, "scale", width=4)
    out, mask = [], []
    for b in range(5):
        for kv in range(2):
            for h in range(3):
                out.append(nibbles(data[kv, b, :, h]).ravel())
                mask.append(np.repeat(written[b], 32))
            for h in range(3):
                tile = scales[kv, b, :, h].astype(np.uint8)
                lie = tile.copy().ravel()
                own = np.zeros(16, bool)
                for t in range(4):
                    for s in range(4):
                        at = (t // 4) * 16 + s * 4 + t % 4 if kv else t * 4 + s
                        lie[at], own[at] = tile[t, s], written[b, t]
                out.append(lie)
                mask.append(own)
    expected = over_poison(np.concatenate(out), np.concatenate(mask), 1)
    assert (cache.allocations[1].bytes == expected).all()
    assert cache.allocations[2].bytes.size == 16  # the global scales, L K, on the side


def test_side_scales_take_the_order_of_the_data():
    cache = build("L x K B H N C", WIDE, NVFP4)
    assert [a.bytes.size for a in cache.allocations] == [3840, 3840, 480, 480, 16]
    scales, written = logical("e4m3fn", WIDE, 0, "scale", width=4)
    order = (0, 1, 3, 2, 4)
    mask = np.broadcast_to(written[None, :, :, None, None], scales.shape).transpose(order)
    expected = over_poison(np.ascontiguousarray(scales.astype(np.uint8).transpose(order)), mask, 2)
    assert (cache.allocations[2].bytes == expected).all()
    layer, kv = np.ix_(range(2), range(2))
    assert (
        cache.allocations[4].bytes.view("<u4") == tag.codes("fp32", 1, 0, 0, "gscale", kv, layer, 0, 0, 1, 0).ravel()
    ).all()


def test_high_nibble_first_and_tokens_innermost():
    low = build("L x K B H C N", WIDE, Scheme("int4", data="int4")).allocations[0].bytes
    high = build("L x K B H C N :int4.hi", WIDE, Scheme("int4", data="int4")).allocations[0].bytes
    codes, written = logical("int4", WIDE, 0)
    order = (0, 1, 3, 4, 2)
    pairs = np.ascontiguousarray(codes.transpose(order))
    mask = np.repeat(
        np.ascontiguousarray(np.broadcast_to(written[None, :, :, None, None], codes.shape).transpose(order)).ravel(), 1
    )
    ground = poison.fill(poison.key(1, 0, 0, 0), low.size)
    lie = np.where(mask, pairs.ravel(), np.stack([ground & 15, ground >> 4], -1).ravel())
    assert (low == nibbles(lie)).all()
    swapped = np.where(
        mask.reshape(-1, 2)[:, ::-1], pairs.reshape(-1, 2)[:, ::-1], np.stack([ground & 15, ground >> 4], -1)
    ).ravel()
    assert (high == nibbles(swapped)).all()


def test_places_say_where_each_element_is():
    for text, scheme, geometry in (
        ("L x { K=0 B H C/x N C%x ; K=1 B H C N }", BF16, G),
        ("L x B { K=0 { H N C ; scale H N C } ; K=1 { H N C ; scale H N/4 C N%4 } }", NVFP4, WIDE),
    ):
        cache = build(text, geometry, scheme)
        for plane in cache.planes:
            width = {"bf16": 16, "e2m1": 4, "e4m3fn": 8, "fp32": 32}[plane.dtype]
            for at in zip(*np.nonzero(plane.written)):
                data = cache.allocations[plane.allocation[at]].bytes
                bit = int(plane.bit[at])
                value = int.from_bytes(data[bit // 8 : bit // 8 + 4].tobytes(), "little") >> bit % 8 & ((1 << width) - 1)
                assert value == int(plane.codes[at])


@pytest.mark.parametrize(
    "text, geometry, scheme, says",
    [
        ("L x B N H C", G, BF16, "has no K"),
        ("L x K B N H", G, BF16, "has no C"),
        ("L x K B N H C/5 C%5", G, BF16, "does not divide by 5"),
        ("L x K B N H C/x C%4", G, BF16, "need one divisor"),
        ("L x K B N H C%x", G, BF16, "expected it once"),
        ("L x K B N H C C", G, BF16, "expected it once"),
        ("L x K B N H C=0..33", G, BF16, "not inside 0..32"),
        ("L x K B N H { C ; scale C }", G, BF16, "no scales"),
        ("L x K B N H C", Geometry(v_head_dim=16), BF16, "different widths"),
        ("L x K B N H C", Geometry(head_dim=40), NVFP4, "scale groups of 16"),
        ("L x K B H C=0..1 N", Geometry(layers=1, kv=1, blocks=5, block_size=4, heads=3), Scheme("int4", data="int4"), None),
        (
            "L x K B N H C=0..1",
            Geometry(layers=1, kv=1, blocks=5, block_size=4, heads=3),
            Scheme("int4", data="int4"),
            "3 codes of 4 bits along H do not fill whole bytes",
        ),
        ("L x K B N H { C=0..1 ; C=1..32 }", G, Scheme("int4", data="int4"), "a part in braces ('C=0..1') does not fill"),
        ("L x K B=0..1 N=0..1 H=0..1 C=0..1", G, Scheme("int4", data="int4"), None),
        ("L x K=0 B=0..1 N=0..1 H=0..1 C=0..1", G, Scheme("int4", data="int4"), "middle of a byte"),
        ("L x K B { N=0..2 H C ; pad N*", G, BF16, "column"),
    ],
)
def test_layouts_that_cannot_be(text, geometry, scheme, says):
    if says is None:
        assert build(text, geometry, scheme).allocations[0].bytes.size == (30 if "N=" not in text else 1)
        return
    with pytest.raises(GoldenError) as error:
        build(text, geometry, scheme)
    assert says in str(error.value)


def test_different_widths_of_k_and_v():
    cache = build("L x { K=0 B N H C ; K=1 B N H C }", Geometry(v_head_dim=16), BF16)
    assert cache.allocations[0].bytes.size == 5 * 4 * 3 * (32 + 16) * 2


def test_lists_of_k_and_v_of_different_width():
    cache = build("L x K x B N H C", Geometry(v_head_dim=16), BF16)
    assert [a.bytes.size for a in cache.allocations] == [5 * 4 * 3 * 32 * 2, 5 * 4 * 3 * 16 * 2] * 2
    assert [sorted({int(a) for a in p.allocation.ravel()}) for p in cache.planes] == [[0, 2], [1, 3]]


def test_side_scales_of_split_ranged_and_padded_data():
    text = "L x { K=0 B H C%x N C/x ; K=1 B N H { C=0..32 ; pad 4 ; C=32..64 } }"
    planes = build(text, WIDE, NVFP4).planes
    assert [(p.path, p.first[5], p.shape[5]) for p in planes if p.component == "scale"] == [
        ("L x K=0 B H N C scale", 0, 4),
        ("L x K=1 B N H C=(0)/16..(32)/16 scale", 0, 2),
        ("L x K=1 B N H C=(32)/16..(64)/16 scale", 2, 2),
    ]
    row = Scheme("fp8_per_token_head", data="e4m3fn", scale="fp32")
    assert [(p.path, p.shape[5]) for p in build(text, WIDE, row).planes if p.component == "scale"] == [
        ("L x K=0 B H N C scale", 1),
        ("L x K=1 B N H C scale", 1),
    ]
    own = build("L x K B N H { C=0..32 :bf16 ; C=32..64 }", WIDE, NVFP4).planes
    assert [(p.first[5], p.shape[5]) for p in own if p.component == "scale"] == [(2, 2)]


def test_one_scale_for_several_tokens():
    plane = build("L x K B N H C & L x scale K B H C N/2", WIDE, NVFP4).planes[1]
    assert plane.coordinates["slot"][0, 0, 0, :, 0, 0].tolist() == [0, 2] and plane.shape == (2, 2, 5, 2, 3, 4)
    assert plane.coordinates["token"][0, 0, 3, :, 0, 0].tolist() == [0, 2]


def test_the_request_fits_into_fewer_blocks():
    assert Geometry(blocks=1).within().token_table().tolist() == [[0, 1, -1, -1]]
    assert Geometry(block_size=1).within().token_table().ravel().tolist() == [1, -1, -1, 0, 2]
    assert G.within() == G


def test_sides_and_seeds_change_bytes():
    one = build("L x K B N H C", G, BF16).allocations[0].bytes
    assert (one != build("L x K B N H C", G, BF16, Key(seed=2)).allocations[0].bytes).mean() > 0.9
    other_side = build("L x K B N H C", G, BF16, Key(side=1)).allocations[0]
    differs = one != other_side.bytes
    assert not differs[other_side.owned].any() and differs[~other_side.owned].mean() > 0.9
