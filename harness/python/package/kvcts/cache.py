"""Two sides and what should move between them: the setup for a connector test."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Optional, Union

from .filled import Cache, layout_for, shuffled
from .content import Request, Source, clear, fill, verify
from .diagnosis import Diagnosis
from .layouts import Layout


class Pair:
    """Filled producers and cleared consumers.

    producers, consumers          Cache objects, one per tensor-parallel rank: .tensors, .layout (with first_head, heads)
    producer, consumer            rank 0 of either side: the only one unless there are ranks
    source_blocks, target_blocks  block ids of the request to move, on either side; unordered, block 0 among them
    tokens                        of the request: the last block is not full

    The ranks of a side have the same block ids. The producers also hold another request, which must not arrive. Move the
    request, then call verify().
    """

    def __init__(
        self,
        producer: Layout,
        consumer: Layout,
        *,
        ranks: tuple[int, int] = (1, 1),
        tokens: Optional[int] = None,
        seed: int = 1,
        allocate: Optional[Callable[[Layout], Any]] = None,
    ):
        p, c = producer.numbers, consumer.numbers
        room = min(p["blocks"] - 1, 3) * p["block_size"]
        room = min(room, c["blocks"] * c["block_size"])
        self.tokens = tokens if tokens is not None else max(1, room - p["block_size"] // 2)
        self.seed, self.pass_ = seed, 0
        chance = random.Random(seed)
        self.source_blocks = shuffled(chance, p["blocks"], -(-self.tokens // p["block_size"]))
        self.target_blocks = shuffled(chance, c["blocks"], -(-self.tokens // c["block_size"]))
        more = dict(tokens=self.tokens, seed=seed, allocate=allocate)
        sides = (("producer", producer, ranks[0], self.source_blocks), ("consumer", consumer, ranks[1], self.target_blocks))
        self.producers, self.consumers = (
            [
                Cache(layout if n == 1 else layout.rank(rank, n), side, blocks=blocks, **more)  # type: ignore[arg-type]
                for rank in range(n)
            ]
            for side, layout, n, blocks in sides
        )
        self._heads = 0 if ranks == (1, 1) else p["first_head"] + p["heads"]
        free = [b for b in range(p["blocks"]) if b not in self.source_blocks]
        self._other = [Request(free[:1], None, 2)] if free else []
        self.reset()

    @property
    def producer(self) -> Cache:
        return self.producers[0]

    @property
    def consumer(self) -> Cache:
        return self.consumers[0]

    @property
    def requests(self) -> list[Request]:
        """The producers' content: the request to move, and the other one."""
        return [Request(self.source_blocks, self.tokens, 1), *self._other]

    def reset(self) -> None:
        """Fills the producers and clears the consumers, with the tags of the current pass."""
        for producer in self.producers:
            fill(producer.tensors, producer.layout, self.requests, seed=self.seed, pass_=self.pass_)
        for consumer in self.consumers:
            clear(consumer.tensors, consumer.layout, seed=self.seed)

    def passes(self, count: Optional[int] = None) -> Iterator[Pair]:
        """Yields the pair repeatedly, with new tags each time: after `count` (default: layout.passes) passes nothing
        is right by chance."""
        for self.pass_ in range(count or self.producer.layout.passes):
            self.reset()
            yield self

    def _source_of(self, consumer: Cache) -> Cache:
        """The producer's rank that has the consumer's first head."""
        head = consumer.layout.numbers["first_head"]
        for producer in self.producers:
            n = producer.layout.numbers
            if n["first_head"] <= head < n["first_head"] + n["heads"]:
                return producer
        return self.producer

    def _of_ranks(self, caches: list[Cache], ask: Callable[[Cache], Diagnosis]) -> Diagnosis:
        """The diagnosis of the first rank that is wrong, which names it, and the other wrong ones."""
        said = [ask(cache) for cache in caches]
        wrong = [rank for rank, diagnosis in enumerate(said) if not diagnosis]
        if not wrong:
            return replace(said[0], checked_bytes=sum(d.checked_bytes for d in said))
        rank = wrong[0]
        if len(caches) == 1:
            return said[rank]
        n = caches[rank].layout.numbers
        last = n["first_head"] + n["heads"] - 1
        of = f"{caches[rank].side} rank {rank} of {len(caches)}, KV heads {n['first_head']} to {last}"
        if len(wrong) > 1:
            of += f"; also wrong: rank {', '.join(map(str, wrong[1:]))}"
        return replace(said[rank], of=of)

    def diagnose(self, **options: Any) -> Diagnosis:
        """verify() of every consumer, with the producer as its source: the first diagnosis of a wrong one."""

        def ask(consumer: Cache) -> Diagnosis:
            producer = self._source_of(consumer)
            return verify(
                consumer.tensors,
                consumer.layout,
                self.target_blocks,
                self.tokens,
                seed=self.seed,
                pass_=self.pass_,
                source=Source(producer.tensors, producer.layout, self.requests),
                model_heads=self._heads,
                **options,
            )

        return self._of_ranks(self.consumers, ask)

    def verify(self, **options: Any) -> Diagnosis:
        """Raises WrongBytes (an AssertionError with the whole diagnosis) unless every consumer holds exactly the
        request and the producers are unchanged."""
        __tracebackhide__ = True
        diagnosis = self.diagnose(**options)
        diagnosis.raise_if_wrong()

        def ask(producer: Cache) -> Diagnosis:
            return verify(
                producer.tensors,
                producer.layout,
                self.requests,
                seed=self.seed,
                pass_=self.pass_,
                side="producer",
                tail="untouched",
            )

        self._of_ranks(self.producers, ask).raise_if_wrong()
        return diagnosis


def pair(
    producer: Union[str, Layout],
    consumer: Union[None, str, Layout] = None,
    *,
    ranks: tuple[int, int] = (1, 1),
    tokens: Optional[int] = None,
    seed: int = 1,
    allocate: Optional[Callable[[Layout], Any]] = None,
    framework: str = "numpy",
    device: str = "cpu",
    **numbers: Any,
) -> Pair:
    """A Pair of layouts given by name. Numbers (see Layout) apply to both; defaults: what a layout fixes, 3 layers, 7
    blocks of 16 tokens, 4 heads, head_dim 64, bf16. consumer None: same as the producer.

    ranks   tensor-parallel ranks of the producer and of the consumer; heads are those of the model. Where a side has more
            ranks than heads, ranks have the same head. Raises LayoutError if they do not divide."""
    first = layout_for(producer, numbers)
    return Pair(
        first,
        first if consumer is None else layout_for(consumer, numbers),
        ranks=ranks,
        tokens=tokens,
        seed=seed,
        allocate=allocate or (lambda of: of.empty(framework, device)),
    )
