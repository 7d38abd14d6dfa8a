"""One filled cache: the setup for a test of a kernel, a permute or a scatter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Optional, Union

from ._native import LayoutError
from .backends import usual
from .content import Request, clear, fill, verify
from .diagnosis import Diagnosis
from .layouts import Layout


def shuffled(chance: random.Random, pool: int, need: int) -> list[int]:
    """Ids of `need` blocks, block 0 among them, not in ascending order."""
    if need > pool:
        raise LayoutError(f"the request needs {need} blocks, the pool has {pool}; take fewer tokens or more blocks")
    ids = [0] + chance.sample(range(1, pool), need - 1)
    chance.shuffle(ids)
    if ids == sorted(ids):
        ids.reverse()
    return ids


def layout_for(given: Union[str, Layout], numbers: Mapping[str, Any]) -> Layout:
    return given if isinstance(given, Layout) else Layout(given, **usual(given, dict(numbers)))


class Cache:
    """Tensors with their layout, and a request in them.

    tensors  one tensor, or a list (layout.tensors), as layout.empty() makes them
    memory   the same memory, a vector of uint8 for each allocation; None if another function made the tensors
    blocks   block table of the request: ids, shuffled, block 0 among them
    tokens   of the request; the last block is partial
    """

    def __init__(
        self,
        layout: Layout,
        side: str = "producer",
        *,
        blocks: Optional[list[int]] = None,
        tokens: Optional[int] = None,
        seed: int = 1,
        allocate: Optional[Callable[[Layout], Any]] = None,
        framework: str = "numpy",
        device: str = "cpu",
    ):
        numbers = layout.numbers
        size = numbers["block_size"]
        room = min(max(1, numbers["blocks"] - 1), 3) * size
        self.layout, self.side, self.seed, self.pass_ = layout, side, seed, 0
        self.memory = None if allocate else layout.memory(framework, device)
        self.tensors = allocate(layout) if allocate else layout.view(self.memory)
        self.tokens = tokens if tokens is not None else max(1, room - size // 2)
        need = -(-self.tokens // size)
        self.blocks = shuffled(random.Random(seed), numbers["blocks"], need) if blocks is None else list(blocks)
        self._poison = side

    def __repr__(self) -> str:
        return f"<kvcts.Cache {self.side}: {self.layout!r}>"

    @property
    def request(self) -> Request:
        return Request(self.blocks, self.tokens, 1)

    @property
    def slot_mapping(self) -> Any:
        """int64 array [tokens]: block * block_size + slot of each token, as vLLM's slot_mapping."""
        import numpy as np

        size = self.layout.numbers["block_size"]
        token = np.arange(self.tokens, dtype=np.int64)
        return np.asarray(self.blocks, np.int64)[token // size] * size + token % size

    def key_value(self, layer: int = 0) -> Any:
        """The request's rows of one layer as a kernel gets them: arrays [tokens, heads, head_dim] of key and value, in the
        order of tokens; one array where K and V are one latent. Raises LayoutError where K and V differ in width."""
        n = self.layout.numbers
        if n["v_head_dim"] != n["head_dim"]:
            raise LayoutError(f"expected K and V of one width, found head_dim {n['head_dim']} and {n['v_head_dim']}")
        if not 0 <= layer < n["layers"]:
            raise LayoutError(f"expected a layer below {n['layers']}, found {layer}")
        first = n["first_layer"] + layer
        packed = self.layout.like("K B N H C", blocks=1, block_size=self.tokens, layers=1, first_layer=first)
        tensors = packed.empty()
        fill(tensors, packed, [0], seed=self.seed, pass_=self.pass_)
        data = tensors[0] if isinstance(tensors, list) else tensors
        return tuple(data[:, 0]) if n["kv"] == 2 else data[0, 0]

    def fill(self) -> None:
        """Writes the request's tags into its blocks, and poison into every other byte."""
        fill(self.tensors, self.layout, self.request, seed=self.seed, pass_=self.pass_, side=self.side)
        self._poison = self.side

    def clear(self) -> None:
        """Writes poison into every byte: what a kernel should overwrite."""
        self._poison = "consumer"
        clear(self.tensors, self.layout, seed=self.seed)

    def passes(self, count: Optional[int] = None) -> Iterator[Cache]:
        """Yields the cache repeatedly, filled with new tags each time: after `count` (default: layout.passes) passes
        nothing is right by chance."""
        for self.pass_ in range(count or self.layout.passes):
            self.fill()
            yield self

    def diagnose(self, **options: Any) -> Diagnosis:
        """verify() of the tensors: exactly the request in its blocks, every other byte as fill() or clear() left it.
        Options of kvcts.verify(), e.g. tail="open"."""
        given = dict(seed=self.seed, pass_=self.pass_, side=self._poison, tail="untouched")
        return verify(self.tensors, self.layout, self.request, **{**given, **options})

    def verify(self, **options: Any) -> Diagnosis:
        """Raises WrongBytes (an AssertionError with the diagnosis) unless the cache holds exactly the request."""
        __tracebackhide__ = True
        diagnosis = self.diagnose(**options)
        diagnosis.raise_if_wrong()
        return diagnosis


def assert_kv_equal(
    actual: Any,
    expected: Cache,
    *,
    layout: Union[None, str, Layout] = None,
    blocks: Optional[list[int]] = None,
    side: Optional[str] = "",
    **options: Any,
) -> None:
    """Raises WrongBytes, an AssertionError with the diagnosis, unless `actual` holds exactly the request of `expected`.

    actual    a Cache, or tensors
    expected  the cache whose request it is; it may have been overwritten since
    layout    that the result has; None: the layout of the cache. Its numbers are those of the cache. If `actual` is the
              cache or its tensors, its memory is read in this layout: a permute in place.
    blocks    block ids of the result, in the order of tokens; None: those of the cache
    side      None: only the request's slots are checked; otherwise every other byte must be as before, too. Default: None
              for tensors that are not the cache's
    options   of kvcts.verify()

    A permute:            kvcts.assert_kv_equal(permute(cache.tensors), cache, layout="flashinfer:HND")
    In place:             kvcts.assert_kv_equal(cache, cache, layout="flashinfer:HND")
    A scatter of tokens:  cache.clear(); scatter(key, value, cache.tensors, cache.slot_mapping);
                          kvcts.assert_kv_equal(cache, cache)"""
    __tracebackhide__ = True
    own = actual is expected or actual is expected.tensors
    tensors = actual.tensors if isinstance(actual, Cache) else actual
    its = actual.layout if isinstance(actual, Cache) else expected.layout
    if isinstance(layout, str):
        its = expected.layout.like(layout)
    elif layout is not None:
        its = layout
    if own and layout is not None and expected.memory is not None:
        tensors = expected.memory
    if side == "":
        side = expected._poison if own else actual._poison if isinstance(actual, Cache) else None
    given = dict(seed=expected.seed, pass_=expected.pass_, side=side, tail="untouched")
    ids = expected.blocks if blocks is None else blocks
    verify(tensors, its, Request(ids, expected.tokens, 1), **{**given, **options}).raise_if_wrong()


def cache(layout: Union[str, Layout], **numbers: Any) -> Cache:
    """A Cache that is filled. Numbers of Layout; defaults: what the layout fixes, 3 layers, 7 blocks of 16 tokens, 4
    heads, head_dim 64, bf16. Further arguments: tokens, seed, allocate (a function of the layout that makes tensors),
    framework ("numpy" or "torch"), device."""
    mine = {key: numbers.pop(key) for key in ("tokens", "seed", "allocate", "framework", "device") if key in numbers}
    out = Cache(layout_for(layout, numbers), **mine)
    out.fill()
    return out
