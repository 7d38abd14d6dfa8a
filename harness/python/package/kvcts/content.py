"""Filling and checking tensors. Every element's value is a function of its identity (layer, K or V, token, head,
channel), the generation and the seed; every other byte holds poison, which is not a tag of any dtype and differs
between the two sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import _native
from ._tensors import natives
from .diagnosis import Diagnosis, from_native
from .layouts import Layout

SIDES = {"producer": 0, "consumer": 1, None: None}


@dataclass(frozen=True)
class Request:
    """Tokens of one request and its blocks: blocks[i] holds tokens [i * block_size, (i + 1) * block_size).

    tokens      None: as many as the blocks hold
    generation  who wrote them: another request, or the same blocks written again, has a different number
    """

    blocks: Sequence[int]
    tokens: Optional[int] = None
    generation: int = 1


Blocks = Union[None, Sequence[int], Request, Sequence[Request]]


def requests_of(layout: Layout, blocks: Blocks, tokens: Optional[int], generation: int) -> list[Request]:
    if blocks is None:
        return [Request(range(layout.numbers["blocks"]), tokens, generation)]
    if isinstance(blocks, Request):
        return [blocks]
    blocks = list(blocks)
    if blocks and all(isinstance(b, Request) for b in blocks):
        return blocks
    return [Request([int(b) for b in blocks], tokens, generation)]


def _tuples(requests: Sequence[Request]) -> list[tuple[list[int], int, int]]:
    return [([int(b) for b in r.blocks], -1 if r.tokens is None else int(r.tokens), int(r.generation)) for r in requests]


def _side(side: Optional[str]) -> Optional[int]:
    if side not in SIDES:
        raise _native.LayoutError(f"expected side producer, consumer or None, found {side!r}")
    return SIDES[side]


@dataclass(frozen=True)
class Source:
    """The producer's tensors, for verify(source=...): they must still hold what fill() wrote."""

    tensors: Any
    layout: Layout
    blocks: Blocks = None
    tokens: Optional[int] = None
    generation: int = 1
    side: Optional[str] = "producer"


def fill(
    tensors: Any,
    layout: Layout,
    blocks: Blocks = None,
    tokens: Optional[int] = None,
    *,
    generation: int = 1,
    seed: int = 1,
    pass_: int = 0,
    side: Optional[str] = "producer",
    threads: int = 0,
) -> None:
    """Writes tags into the blocks, and poison into every other byte.

    tensors     one tensor, or a list or mapping of them in the order of layout.tensors, with its shapes and strides. Each
                allocation may also be passed whole, as a vector of uint8.
    blocks      block ids of one request, or Request objects; None: all blocks, in order
    tokens      of the request; None: as many as its blocks hold
    seed, pass_ select other tags: pass the same to verify(). Two passes have nothing in common.
    side        whose poison, "producer" or "consumer"; None: does not touch bytes outside the blocks
    threads     0: one per processor

    Raises LayoutError (a ValueError) if tensors do not match the layout, or blocks are not in the pool or have two
    owners."""
    _native.fill(
        layout._native,
        natives(tensors),
        _tuples(requests_of(layout, blocks, tokens, generation)),
        seed,
        pass_,
        _side(side),
        threads,
    )


def clear(tensors: Any, layout: Layout, *, seed: int = 1, side: Optional[str] = "consumer", threads: int = 0) -> None:
    """Writes poison into every byte: the content of a consumer's tensors before a transfer. Arguments and errors as
    for fill()."""
    if side is None:
        raise _native.LayoutError("clear() writes poison: expected side producer or consumer")
    _native.fill(layout._native, natives(tensors), [], seed, 0, _side(side), threads)


def verify(
    tensors: Any,
    layout: Layout,
    blocks: Blocks = None,
    tokens: Optional[int] = None,
    *,
    generation: int = 1,
    seed: int = 1,
    pass_: int = 0,
    side: Optional[str] = "consumer",
    tail: str = "open",
    source: Optional[Source] = None,
    model_heads: int = 0,
    threads: int = 0,
) -> Diagnosis:
    """Checks every byte: tags in the blocks, poison everywhere else. Reports what is there instead.

    tensors, layout, blocks, tokens, generation, seed, pass_   the expected content; see fill()
    side        whose poison: "consumer" for tensors that clear() prepared, "producer" for those that fill() wrote; None:
                checks only the blocks
    tail        slots of a request's last block beyond its tokens: "open" (they may hold anything, because transfers move
                whole blocks) or "untouched"
    source      the producer: also tries readings of the source through a wrong layout, stride or block list
    model_heads KV heads of all ranks together: also recognises rows of another rank's heads

    Never raises because of the bytes; raises LayoutError like fill(). In one pass two single elements may look alike by
    chance (bf16: 1 in 2^13); layout.passes is the number of times to fill, move and verify, each time with another
    pass_."""
    if tail not in ("open", "untouched"):
        raise _native.LayoutError(f"expected tail open or untouched, found {tail!r}")
    origin = None
    if source is not None:
        theirs = requests_of(source.layout, source.blocks, source.tokens, source.generation)
        origin = (source.layout._native, natives(source.tensors), _tuples(theirs), _side(source.side))
    return from_native(
        _native.verify(
            layout._native,
            natives(tensors),
            _tuples(requests_of(layout, blocks, tokens, generation)),
            seed,
            pass_,
            _side(side),
            tail == "open",
            origin,
            threads,
            model_heads,
        )
    )
