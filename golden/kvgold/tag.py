"""tag/1, vectorised, from the contract comment in kernels/tag.hpp. Every argument may be an array; they broadcast."""

import numpy as np

from . import dtypes

U64 = np.uint64
COMPONENT_CODE = {"data": 0, "scale": 1, "gscale": 2}


def mix(z):
    """splitmix64's finaliser on uint64 arrays (wrapping)."""
    z = np.asarray(z, dtype=U64)
    with np.errstate(over="ignore"):
        z = (z ^ (z >> U64(30))) * U64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> U64(27))) * U64(0x94D049BB133111EB)
    return z ^ (z >> U64(31))


def row_key(seed, pass_, origin, component, kv, layer, head, token, generation):
    """The 64-bit key of a row of channels."""
    kv, layer, head, token, generation = (np.asarray(a, dtype=U64) for a in (kv, layer, head, token, generation))
    with np.errstate(over="ignore"):
        first = mix(U64(seed) + U64(0x9E3779B97F4A7C15) * U64(pass_ + 1))
        who = U64(COMPONENT_CODE[component]) | kv << U64(4) | layer << U64(8) | U64(origin) << U64(32)
        base = mix(mix(first ^ who) + generation)
        return mix(base ^ (head + (token << U64(20))))


def word(row, index):
    """The index-th 32-bit word of a row, as uint32."""
    row, index = np.asarray(row, dtype=U64), np.asarray(index, dtype=np.uint32)
    low, high = (row & U64(0xFFFFFFFF)).astype(np.uint32), (row >> U64(32)).astype(np.uint32)
    u = np.uint32
    with np.errstate(over="ignore"):
        x = low + index * u(0x9E3779B9)
        x = (x ^ (x >> u(16))) * u(0x21F0AAAD)
        x = x ^ (x >> u(15))
        x = (x + high) * u(0x735A2D97)
    return x ^ (x >> u(15))


def _and_or(dtype):
    width = dtypes.bits(dtype)
    ones = (1 << width) - 1
    if dtype in ("int4", "e2m1"):
        return ones, 1
    if dtype in ("int8", "uint8"):
        return ones, 3
    return ones & ~(1 << (width - 2)), 3


def codes(dtype, seed, pass_, origin, component, kv, layer, head, token, generation, channel):
    """Right-aligned codes (uint32) of elements; all coordinates broadcast against each other."""
    width = dtypes.bits(dtype)
    kv, layer, head, token, channel = (np.asarray(a, dtype=np.int64) for a in (kv, layer, head, token, channel))
    row = row_key(seed, pass_, origin, component, kv, layer, head, token, generation)
    bit = channel * width
    w = word(row, (bit // 32).astype(np.uint32))
    hashed = (w >> (bit % 32).astype(np.uint32)) & np.uint32((1 << width) - 1)
    keep, force = _and_or(dtype)
    code = (hashed & np.uint32(keep)) | np.uint32(force)
    if component != "data":
        neighbour = ((channel + token + head + layer + 2 * kv) % 4).astype(np.uint32)
        code = (code & ~np.uint32(12)) | (neighbour << np.uint32(2))
    return code
