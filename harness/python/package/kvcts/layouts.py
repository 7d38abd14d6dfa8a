"""Layouts: where each element of a KV cache lies."""

from __future__ import annotations

from typing import Any, NamedTuple, Optional

from . import _native
from ._tensors import numpy_dtype
from .backends import catalogue, layout_of

AXES = ("layer", "kv", "block", "slot", "head", "channel")


def layouts() -> dict[str, str]:
    """Id and title of every layout of the catalogue."""
    return {name: title for name, title, _ in catalogue().layouts()}


class Coordinate(NamedTuple):
    """The identity of an element. `kv`: 0 = K (or the one latent), 1 = V. `channel` of a scale counts groups."""

    layer: int
    kv: int
    block: int
    slot: int
    head: int
    channel: int
    component: str = "data"


class Place(NamedTuple):
    """The place of an element: `bit` is 0, or 4 for the high half of a byte. `bits` is its width."""

    allocation: int
    byte: int
    bit: int
    bits: int


class TensorInfo(NamedTuple):
    """A tensor as a framework shows it. Strides and offset (in its allocation) are in bytes; axes name each
    dimension ("K", "B", "NHC")."""

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    axes: tuple[str, ...]
    dtype: str
    allocation: int
    offset: int


class Layout:
    """The map from (layer, kv, block, slot, head, channel) to bytes, for one rank's cache.

    name        an id of the catalogue ("vllm-fa-nhd"), a name used by vLLM, FlashInfer, LMCache or KVBM ("LBNHC",
                "flashinfer:HND", "NL_X_TWO_NB_BS_NH_HS"), an attention backend ("flash_attn", "triton_mla:NHD",
                "flash_attn@0.10": see kvcts.backends()), or a template: axes from outside to inside, `x` between
                list levels ("L x K B N H C")
    blocks      blocks of the pool                       block_size  tokens of a block
    heads       KV heads of this rank                    head_dim    channels per head; v_head_dim if V's differ
    kv          2 = K and V, 1 = one latent (MLA)        layers      layers of this rank
    first_layer, first_head   where this rank's layers and heads begin in the model
    dtype       "bf16", "fp16", "fp8_e4m3", "nvfp4", ... (scales come with it)
    tensors     (list, shape): how tensors are shown, if different from the layout: ("L", "K B NHC")

    Omit numbers that the layout fixes. Raises LayoutError (a ValueError) that says what was expected, what was found
    and what to do."""

    def __init__(
        self,
        name: str,
        *,
        blocks: Optional[int] = None,
        block_size: Optional[int] = None,
        heads: Optional[int] = None,
        head_dim: Optional[int] = None,
        layers: Optional[int] = None,
        kv: Optional[int] = None,
        v_head_dim: Optional[int] = None,
        first_layer: Optional[int] = None,
        first_head: Optional[int] = None,
        dtype: str = "",
        tensors: Optional[tuple[str, str]] = None,
    ):
        given = dict(
            blocks=blocks,
            block_size=block_size,
            heads=heads,
            head_dim=head_dim,
            layers=layers,
            kv=kv,
            v_head_dim=v_head_dim,
            first_layer=first_layer,
            first_head=first_head,
        )
        numbers = {key: int(value) for key, value in given.items() if value is not None}
        self._native = _native.Layout(catalogue(), layout_of(name), dtype, numbers, tensors)
        self.name, self._shown = name, tensors

    @property
    def id(self) -> str:
        """The catalogue id; "" for names and templates."""
        return self._native.id

    @property
    def title(self) -> str:
        return self._native.title

    @property
    def template(self) -> str:
        """The axes, from outside to inside."""
        return self._native.template

    @property
    def dtype(self) -> str:
        return self._native.dtype

    @property
    def numbers(self) -> dict[str, int]:
        """blocks, block_size, heads, head_dim, v_head_dim, kv, layers, first_layer, first_head."""
        return self._native.numbers

    @property
    def names(self) -> dict[str, str]:
        """Its names in vllm, flashinfer, lmcache and kvbm; those without a name for it are left out."""
        return {system: name for system, name in self._native.names.items() if name}

    @property
    def order(self) -> str:
        """Axes of memory by descending stride."""
        return self._native.order

    @property
    def planes(self) -> list[str]:
        """One line per plane: component, dtype, place, and every mode as axis=extent:stride in bytes."""
        return self._native.planes

    @property
    def allocations(self) -> list[tuple[str, int]]:
        """Name and bytes of each piece of memory."""
        return self._native.allocations

    @property
    def nbytes(self) -> int:
        return sum(size for _, size in self.allocations)

    @property
    def tensors(self) -> list[TensorInfo]:
        """The tensors that a framework passes to a connector, in order."""
        return [
            TensorInfo(name, tuple(shape), tuple(strides), tuple(axes), *rest)
            for name, shape, strides, axes, *rest in self._native.tensors
        ]

    def _of_tensors(self, what: str) -> tuple[Any, ...]:
        values = {getattr(t, what) for t in self.tensors}
        if len(values) != 1:
            raise _native.LayoutError(f"the tensors of {self.name} differ in {what}: look at layout.tensors")
        return values.pop()

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of a tensor, if all have the same."""
        return self._of_tensors("shape")

    @property
    def strides(self) -> tuple[int, ...]:
        """Strides of a tensor in bytes, as in NumPy, if all have the same."""
        return self._of_tensors("strides")

    @property
    def axes(self) -> tuple[str, ...]:
        """What each dimension of a tensor runs over, if all are alike."""
        return self._of_tensors("axes")

    @property
    def passes(self) -> int:
        """Number of passes (with different tags each) after which two exchanged elements cannot look alike by chance
        (p < 2^-64)."""
        return self._native.deciding_passes

    def rank(self, rank: int, ranks: int) -> Layout:
        """The layout of one of `ranks` tensor-parallel ranks, of which this is the whole: its share of the KV heads, or
        one head that several ranks have where there are fewer heads than ranks. Raises LayoutError if they do not
        divide."""
        heads = self.numbers["heads"]
        if not 0 <= rank < ranks or max(heads, ranks) % min(heads, ranks):
            raise _native.LayoutError(
                f"expected ranks that divide the {heads} KV heads, or a multiple of them, and a rank below; found rank "
                f"{rank} of {ranks}"
            )
        first = self.numbers["first_head"] + rank * heads // ranks
        return self.like(self.name, tensors=self._shown, heads=max(1, heads // ranks), first_head=first)

    def like(self, name: str, *, tensors: Optional[tuple[str, str]] = None, **numbers: int) -> Layout:
        """Another layout with these numbers and the dtype of this one."""
        own = self.numbers
        if own["v_head_dim"] == own["head_dim"]:
            del own["v_head_dim"]
        return Layout(name, dtype=self.dtype, tensors=tensors, **{**own, **numbers})

    def offset(
        self,
        *,
        layer: int = 0,
        kv: int = 0,
        block: int = 0,
        slot: int = 0,
        head: int = 0,
        channel: int = 0,
        component: str = "data",
    ) -> Place:
        """Where an element is, counted from the start of its allocation. Raises LayoutError for a coordinate outside
        the layout."""
        at = (layer, kv, block, slot, head, channel)
        found = self._native.locate(component, list(at))
        if found is None:
            where = ", ".join(f"{axis} {value}" for axis, value in zip(AXES, at))
            raise _native.LayoutError(f"{self.name} has no {component} at {where}; its numbers are {self.numbers}")
        allocation, bit, bits = found
        return Place(allocation, bit // 8, bit % 8, bits)

    def inverse(self, byte: int, allocation: int = 0) -> list[Coordinate]:
        """The elements that a byte belongs to: none (padding), one, two (4-bit codes), or more (a layout that
        overlaps itself)."""
        if not 0 <= allocation < len(self.allocations) or not 0 <= byte < self.allocations[allocation][1]:
            raise _native.LayoutError(
                f"expected an allocation below {len(self.allocations)} and a byte inside it, found allocation "
                f"{allocation}, byte {byte}"
            )
        return [Coordinate(*at, component) for component, at in self._native.inverse(allocation, byte)]

    def empty(self, framework: str = "numpy", device: str = "cpu") -> Any:
        """New tensors of this layout, uninitialised: one, or a list if the layout has several.

        framework "numpy" (bf16 and fp8 as ml_dtypes if installed, else as uint16 and uint8) or "torch" (on `device`)."""
        return self.view(self.memory(framework, device))

    def memory(self, framework: str = "numpy", device: str = "cpu") -> list[Any]:
        """New memory for this layout, uninitialised: a vector of uint8 for each allocation. Arguments: see empty()."""
        if framework == "torch":
            import torch

            return [torch.empty(size, dtype=torch.uint8, device=device) for _, size in self.allocations]
        if framework != "numpy":
            raise _native.LayoutError(f"expected framework numpy or torch, found {framework!r}")
        import numpy as np

        return [np.empty(size, np.uint8) for _, size in self.allocations]

    def view(self, memory: list[Any]) -> Any:
        """The tensors of this layout in such memory: one, or a list if the layout has several."""
        sizes = [len(m) for m in memory]
        if sizes != [size for _, size in self.allocations]:
            raise _native.LayoutError(
                f"expected allocations of {[size for _, size in self.allocations]} bytes for {self.name}, found {sizes}"
            )
        made = self._numpy(memory) if type(memory[0]).__module__ == "numpy" else self._torch(memory)
        return made[0] if len(made) == 1 else made

    def _numpy(self, memory: list[Any]) -> list[Any]:
        import numpy as np

        return [np.ndarray(t.shape, numpy_dtype(t.dtype), memory[t.allocation], t.offset, t.strides) for t in self.tensors]

    def _torch(self, memory: list[Any]) -> list[Any]:
        import torch

        names = {
            "fp32": "float32",
            "fp16": "float16",
            "bf16": "bfloat16",
            "e4m3fn": "float8_e4m3fn",
            "e5m2": "float8_e5m2",
            "e4m3fnuz": "float8_e4m3fnuz",
            "e5m2fnuz": "float8_e5m2fnuz",
            "int8": "int8",
        }
        out = []
        for t in self.tensors:
            dtype = getattr(torch, names.get(t.dtype, "uint8"))
            flat = memory[t.allocation].view(dtype)
            out.append(flat.as_strided(t.shape, [s // dtype.itemsize for s in t.strides], t.offset // dtype.itemsize))
        return out

    def __eq__(self, other: object) -> bool:
        """The same coordinates at the same bytes, under any names."""
        return isinstance(other, Layout) and self._native.same_map(other._native)

    __hash__ = None  # type: ignore[assignment]  # equal layouts may be written in many ways

    def __repr__(self) -> str:
        n = self.numbers
        size = (
            f"{n['layers']} layers, {n['blocks']} blocks of {n['block_size']} tokens, {n['heads']} heads, head_dim "
            f"{n['head_dim']}"
        )
        return f"<kvcts.Layout {self.name}: {self.template}; {self.dtype}, {size}>"
