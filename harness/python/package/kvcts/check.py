"""Compares two layouts before anything moves."""

from __future__ import annotations

from typing import NamedTuple

from . import _native
from .layouts import Layout

VERDICTS = {0: "compatible", 10: "conversion", 11: "refused", 12: "silently wrong"}


class Compatibility(NamedTuple):
    """code, an exit status for start-up scripts: 0 compatible, 10 with conversion, 11 refused, 12 silently wrong
    (see fault_class). told_apart: shapes and strides differ, so a connector that checks tensors can distinguish the
    layouts."""

    code: int
    fault_class: str
    text: str
    told_apart: bool

    @property
    def verdict(self) -> str:
        return VERDICTS[self.code]

    def __str__(self) -> str:
        return self.text


def check(producer: Layout, consumer: Layout, *, moves: str = "coordinates") -> Compatibility:
    """The outcome of moving a cache from one layout to the other.

    moves   "coordinates": the connector knows both layouts and moves element by element; "blocks": it copies blocks
            unchanged. Raises LayoutError for another word."""
    if moves not in ("coordinates", "blocks"):
        raise _native.LayoutError(f"expected moves coordinates or blocks, found {moves!r}")
    return Compatibility(*_native.compare(producer._native, consumer._native, moves == "blocks"))
