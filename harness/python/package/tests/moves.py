"""Toy connectors, right and wrong. Like real ones they see tensors and block ids."""

from __future__ import annotations

import numpy as np


def tensors(cache) -> list[np.ndarray]:
    return cache.tensors if isinstance(cache.tensors, list) else [cache.tensors]


def codes(array: np.ndarray) -> np.ndarray:
    """Elements as integers: copying floats may change bytes."""
    return array.view(f"u{array.dtype.itemsize}")


def flat(array: np.ndarray) -> np.ndarray:
    """The memory of a tensor that fills its allocation, as elements in address order."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array.reshape(-1).view(np.uint16)


def blocks(pair) -> list[tuple[int, int]]:
    return list(zip(pair.source_blocks, pair.target_blocks))


def copy(pair) -> None:
    """[2, blocks, ...] by axes: correct for any strides."""
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        for s, t in blocks(pair):
            codes(target)[:, t] = codes(source)[:, s]


def copy_as_it_lies(pair) -> None:
    """Each block's bytes of K and of V, in address order: correct only if both layouts are the same."""
    for source, target in zip(tensors(pair.producer), tensors(pair.consumer)):
        n = pair.producer.layout.numbers
        shape = (2, n["blocks"], -1)
        for s, t in blocks(pair):
            flat(target).reshape(shape)[:, t] = flat(source).reshape(shape)[:, s]
