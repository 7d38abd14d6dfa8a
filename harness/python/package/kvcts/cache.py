"""Two caches and what should move between them: the setup for a connector test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Optional, Union

from ._native import LayoutError
from .content import Request, Source, clear, fill, verify
from .diagnosis import Diagnosis
from .layouts import Layout


class Cache:
    """Tensors with their layout. `tensors` is the result of layout.empty(): one tensor, or a list."""

    def __init__(self, layout: Layout, tensors: Any, side: str):
        self.layout, self.tensors, self.side = layout, tensors, side

    def __repr__(self) -> str:
        return f"<kvcts.Cache {self.side}: {self.layout!r}>"


class Pair:
    """A filled producer and a cleared consumer.

    producer, consumer            Cache objects: .tensors, .layout
    source_blocks, target_blocks  block ids of the request to move, on either side; unordered, block 0 among them
    tokens                        of the request: the last block is not full

    The producer also holds another request, which must not arrive. Move the request, then call verify().
    """

    def __init__(
        self,
        producer: Layout,
        consumer: Layout,
        *,
        tokens: Optional[int] = None,
        seed: int = 1,
        allocate: Optional[Callable[[Layout], Any]] = None,
    ):
        allocate = allocate or Layout.empty
        self.producer = Cache(producer, allocate(producer), "producer")
        self.consumer = Cache(consumer, allocate(consumer), "consumer")
        p, c = producer.numbers, consumer.numbers
        room = min(p["blocks"] - 1, 3) * p["block_size"]
        room = min(room, c["blocks"] * c["block_size"])
        self.tokens = tokens if tokens is not None else max(1, room - p["block_size"] // 2)
        self.seed, self.pass_ = seed, 0
        chance = random.Random(seed)
        need_p, need_c = -(-self.tokens // p["block_size"]), -(-self.tokens // c["block_size"])
        self.source_blocks = self._ids(chance, p["blocks"], need_p)
        self.target_blocks = self._ids(chance, c["blocks"], need_c)
        free = [b for b in range(p["blocks"]) if b not in self.source_blocks]
        self._other = [Request(free[:1], None, 2)] if free else []
        self.reset()

    @staticmethod
    def _ids(chance: random.Random, pool: int, need: int) -> list[int]:
        if need > pool:
            raise LayoutError(f"the request needs {need} blocks, the pool has {pool}; take fewer tokens or more blocks")
        ids = [0] + chance.sample(range(1, pool), need - 1)
        chance.shuffle(ids)
        if ids == sorted(ids):
            ids.reverse()
        return ids

    @property
    def requests(self) -> list[Request]:
        """The producer's content: the request to move, and the other one."""
        return [Request(self.source_blocks, self.tokens, 1), *self._other]

    def reset(self) -> None:
        """Fills the producer and clears the consumer, with the tags of the current pass."""
        fill(self.producer.tensors, self.producer.layout, self.requests, seed=self.seed, pass_=self.pass_)
        clear(self.consumer.tensors, self.consumer.layout, seed=self.seed)

    def passes(self, count: Optional[int] = None) -> Iterator[Pair]:
        """Yields the pair repeatedly, with new tags each time: after `count` (default: layout.passes) passes nothing
        is right by chance."""
        for self.pass_ in range(count or self.producer.layout.passes):
            self.reset()
            yield self

    def diagnose(self, **options: Any) -> Diagnosis:
        """verify() of the consumer, with the producer as its source."""
        source = Source(self.producer.tensors, self.producer.layout, self.requests)
        return verify(
            self.consumer.tensors,
            self.consumer.layout,
            self.target_blocks,
            self.tokens,
            seed=self.seed,
            pass_=self.pass_,
            source=source,
            **options,
        )

    def verify(self, **options: Any) -> Diagnosis:
        """Raises WrongBytes (an AssertionError with the whole diagnosis) unless the consumer holds exactly the
        request and the producer is unchanged."""
        __tracebackhide__ = True
        diagnosis = self.diagnose(**options)
        diagnosis.raise_if_wrong()
        verify(
            self.producer.tensors,
            self.producer.layout,
            self.requests,
            seed=self.seed,
            pass_=self.pass_,
            side="producer",
            tail="untouched",
        ).raise_if_wrong()
        return diagnosis


def pair(
    producer: Union[str, Layout],
    consumer: Union[None, str, Layout] = None,
    *,
    tokens: Optional[int] = None,
    seed: int = 1,
    allocate: Optional[Callable[[Layout], Any]] = None,
    framework: str = "numpy",
    device: str = "cpu",
    **numbers: Any,
) -> Pair:
    """A Pair of layouts given by name. Numbers (see Layout) apply to both; defaults: 3 layers, 7 blocks of 16
    tokens, 4 heads, head_dim 64, bf16. consumer None: same as the producer."""
    usual = dict(layers=3, blocks=7, block_size=16, heads=4, head_dim=64, dtype="bf16")

    def layout(given: Union[str, Layout]) -> Layout:
        return given if isinstance(given, Layout) else Layout(given, **{**usual, **numbers})

    first = layout(producer)
    return Pair(
        first,
        first if consumer is None else layout(consumer),
        tokens=tokens,
        seed=seed,
        allocate=allocate or (lambda of: of.empty(framework, device)),
    )
