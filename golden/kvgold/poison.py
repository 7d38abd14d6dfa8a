"""Poison bytes, from the contract comment in kernels/poison.hpp."""

import numpy as np

from .tag import U64, mix, word


def key(seed, side, rank, allocation):
    """The 64-bit key of one memory file."""
    place = U64(side) << U64(32) | U64(rank) << U64(16) | U64(allocation)
    with np.errstate(over="ignore"):
        return mix(mix(U64(seed) ^ U64(0x706F69736F6E)) + place)


def fill(poison_key, count):
    """Bytes [0, count) of a memory file; count < 2^34."""
    words = word(mix(poison_key), np.arange((count + 3) // 4, dtype=np.uint32))
    words = (words & np.uint32(0xEEEEEEEE)) | np.uint32(0x22222222)
    return words.astype("<u4").view(np.uint8)[:count]
