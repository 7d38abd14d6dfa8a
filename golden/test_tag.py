"""tag/1 and poison: known answers as literals, an independent scalar re-reading of the contract, and its promises about
values."""

import numpy as np
import pytest

from kvgold import dtypes, poison, tag

MASK = (1 << 64) - 1


def mix(z):
    z ^= z >> 30
    z = z * 0xBF58476D1CE4E5B9 & MASK
    z ^= z >> 27
    z = z * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def word(row, i):
    x = (row + i * 0x9E3779B9) & 0xFFFFFFFF
    x ^= x >> 16
    x = x * 0x21F0AAAD & 0xFFFFFFFF
    x ^= x >> 15
    x = (x + (row >> 32)) * 0x735A2D97 & 0xFFFFFFFF
    return x ^ x >> 15


def scalar_code(dtype, component, kv, layer, head, token, generation, channel, seed=1, pass_=0, origin=0):
    """The contract comment of kernels/tag.hpp, read again with Python integers."""
    width = {"fp32": 32, "fp16": 16, "bf16": 16, "int4": 4, "e2m1": 4}.get(dtype, 8)
    base = mix(seed + 0x9E3779B97F4A7C15 * (pass_ + 1) & MASK)
    base = mix((mix(base ^ (component | kv << 4 | layer << 8 | origin << 32)) + generation) & MASK)
    row = mix(base ^ (head + (token << 20)))
    h = word(row, channel * width // 32) >> (channel * width % 32) & ((1 << width) - 1)
    if width == 4:
        code = h | 1
    elif dtype.startswith(("int", "uint")):
        code = h | 3
    else:
        code = h & ~(1 << (width - 2)) | 3
    if component:
        code = code & ~12 | (channel + token + head + layer + 2 * kv) % 4 << 2
    return code


KNOWN = {  # codes of channels 0..4: seed 1, pass 0, origin 0, data, kv 1, layer 2, head 3, token 5, generation 1
    "fp32": [0x83316D57, 0xA3DC0EFB, 0x9EDBD95B, 0x28A4BED3, 0x96E1B387],
    "fp16": [0x2D57, 0x8333, 0xEFB, 0xA3DF, 0x995B],
    "bf16": [0x2D57, 0x8333, 0xEFB, 0xA3DF, 0x995B],
    "e4m3fn": [0x17, 0x2F, 0x33, 0x83, 0xBB],
    "e5m2": [0x17, 0x2F, 0x33, 0x83, 0xBB],
    "e4m3fnuz": [0x17, 0x2F, 0x33, 0x83, 0xBB],
    "e5m2fnuz": [0x17, 0x2F, 0x33, 0x83, 0xBB],
    "int8": [0x57, 0x6F, 0x33, 0xC3, 0xFB],
    "uint8": [0x57, 0x6F, 0x33, 0xC3, 0xFB],
    "int4": [0x7, 0x5, 0xD, 0x7, 0x1],
    "e2m1": [0x7, 0x5, 0xD, 0x7, 0x1],
    "e8m0": [0x17, 0x2F, 0x33, 0x83, 0xBB],
}
KNOWN_SCALES = {  # the same row of a scale plane
    "fp32": [0xAA8548E3, 0x91CA6EC7, 0xAA5FD33B, 0x12EF096F, 0x19F5F123],
    "fp16": [0x8E3, 0xAA87, 0x2ECB, 0x91CF, 0x9333],
    "e4m3fn": [0xA3, 0x7, 0x8B, 0xAF, 0x83],
    "e8m0": [0xA3, 0x7, 0x8B, 0xAF, 0x83],
}
KNOWN_POISON = [0xAA, 0x62, 0x66, 0xE2, 0xA2, 0xA2, 0x6A, 0x62]  # first bytes of seed 1, side 0, rank 0, allocation 1


@pytest.mark.parametrize("dtype", dtypes.NUMPY)
def test_known_answers(dtype):
    codes = tag.codes(dtype, 1, 0, 0, "data", 1, 2, 3, 5, 1, np.arange(5))
    assert [hex(c) for c in codes] == [hex(c) for c in KNOWN[dtype]]


@pytest.mark.parametrize("dtype", KNOWN_SCALES)
def test_known_scales(dtype):
    codes = tag.codes(dtype, 1, 0, 0, "scale", 1, 2, 3, 5, 1, np.arange(5))
    assert [hex(c) for c in codes] == [hex(c) for c in KNOWN_SCALES[dtype]]


@pytest.mark.parametrize("dtype", dtypes.NUMPY)
@pytest.mark.parametrize("component", ["data", "scale", "gscale"])
def test_vectorised_equals_scalar(dtype, component):
    random = np.random.default_rng(7)
    rows = [random.integers(0, n, 200) for n in (2, 1 << 24, 1 << 20, 1 << 44, 1 << 32, 4096)]
    codes = tag.codes(dtype, 99, 3, 2, component, *rows[:5], rows[5])
    number = {"data": 0, "scale": 1, "gscale": 2}[component]
    assert codes.tolist() == [scalar_code(dtype, number, *map(int, row), seed=99, pass_=3, origin=2) for row in zip(*rows)]


@pytest.mark.parametrize("dtype", dtypes.NUMPY)
def test_no_fixed_points(dtype):
    codes = tag.codes(dtype, 1, 0, 0, "data", 0, 0, 0, np.arange(512)[:, None], 1, np.arange(256))
    values = dtypes.values(dtype, codes)
    assert np.isfinite(values).all() and (values != 0).all() and (codes & 1).all()
    if dtypes.bits(dtype) >= 8 and dtype != "e8m0":
        assert ((np.abs(np.frexp(values)[0]) != 0.5) | (values == -1)).all()
    if not dtypes.is_integer(dtype) and dtypes.bits(dtype) >= 8 and dtype != "e8m0":
        assert (np.abs(values) < 2).all()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "e4m3fn", "e8m0"])
def test_scales_differ_from_their_neighbours_and_from_one(dtype):
    kv, layer, head, token, channel = np.ix_(range(2), range(3), range(3), range(5), range(4))
    codes = tag.codes(dtype, 1, 0, 0, "scale", kv, layer, head, token, 1, channel)
    assert (dtypes.values(dtype, codes) != 1).all()
    for axis in range(5):
        assert (np.diff(codes.astype(np.int64), axis=axis) != 0).all()


def test_each_field_changes_the_row():
    base = dict(seed=1, pass_=0, origin=0, component="data", kv=0, layer=0, head=0, token=0, generation=0)
    keys = {int(tag.row_key(**base))}
    for name in base:
        keys.add(int(tag.row_key(**{**base, name: "scale" if name == "component" else base[name] + 1})))
    assert len(keys) == len(base) + 1


def test_poison_known_answer_and_prefix():
    key = poison.key(1, 0, 0, 1)
    assert poison.fill(key, 8).tolist() == KNOWN_POISON
    whole = poison.fill(key, 4099)
    for count in (0, 1, 3, 4, 5, 4098):
        assert (poison.fill(key, count) == whole[:count]).all()


def test_poison_equals_scalar():
    key = mix(mix(5 ^ 0x706F69736F6E) + (1 << 32 | 2 << 16 | 3) & MASK)
    assert int(poison.key(5, 1, 2, 3)) == key
    words = [word(mix(key), i) & 0xEEEEEEEE | 0x22222222 for i in range(64)]
    assert poison.fill(poison.key(5, 1, 2, 3), 256).tobytes() == b"".join(w.to_bytes(4, "little") for w in words)


def test_poison_is_no_tag():
    data = poison.fill(poison.key(1, 0, 0, 0), 1 << 16)
    assert not (data & 0x11).any() and ((data & 0x22) == 0x22).all()
