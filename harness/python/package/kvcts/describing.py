"""What a tensor can be, given only its shape and strides."""

from __future__ import annotations

from html import escape
from typing import Any, NamedTuple, Optional

from . import _native
from ._tensors import natives
from .layouts import Layout, catalogue


class Fit(NamedTuple):
    """One map that the tensor can have. `axes` name its dimensions, `order` the axes of memory; `layouts` are
    catalogue ids."""

    axes: str
    order: str
    numbers: dict[str, int]
    dtype: str
    layouts: list[str]

    def layout(self, **numbers: int) -> Layout:
        """The first of them as a Layout. `numbers` replace its own (layers=32 for a cache of 32 such tensors)."""
        return Layout(
            self.layouts[0],
            dtype=self.dtype,
            **{**{k: v for k, v in self.numbers.items() if v or k.startswith("first_")}, **numbers},
        )


class Description(NamedTuple):
    """ambiguous: more than one map fits, so a connector that guesses may be wrong; settled_by: the fact that would
    leave one. open: readings that leave a number open, with the missing axes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    fits: list[Fit]
    open: list[tuple[str, list[str]]]
    ambiguous: bool
    settled_by: str
    text: str  # everything, as text for people

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{escape(f.axes)}</td><td>{f.numbers['blocks']}</td><td>{f.numbers['block_size']}</td>"
            f"<td>{f.numbers['heads']}</td>"
            f"<td>{f.numbers['head_dim']}</td><td>{escape(', '.join(f.layouts))}</td></tr>"
            for f in self.fits
        )
        head = f"<div>{escape(self.dtype)}, shape {self.shape}, strides {self.strides} bytes</div>"
        note = f"<div><b>ambiguous</b>: say {escape(self.settled_by)}</div>" if self.ambiguous else ""
        return (
            f"{head}<table><tr><th>axes</th><th>blocks</th><th>block size</th><th>heads</th><th>head "
            f"dim</th><th>layouts</th></tr>{rows}</table>{note}"
        )


def describe(
    tensor: Any,
    *,
    layers: Optional[int] = None,
    blocks: Optional[int] = None,
    block_size: Optional[int] = None,
    heads: Optional[int] = None,
    head_dim: Optional[int] = None,
) -> Description:
    """The catalogue layouts with this shape and these strides, given the facts.

    tensor   one tensor of a cache, of any framework; its bytes are not read. Up to 8 dimensions.
    Raises LayoutError for an element type that no cache uses.
    """
    facts = {
        k: int(v)
        for k, v in dict(layers=layers, blocks=blocks, block_size=block_size, heads=heads, head_dim=head_dim).items()
        if v is not None
    }
    d = _native.describe(natives(tensor), facts, catalogue())
    return Description(
        tuple(d["shape"]),
        tuple(d["strides"]),
        d["dtype"],
        [Fit(*f) for f in d["fits"]],
        d["open"],
        d["ambiguous"],
        d["settled_by"],
        d["text"],
    )
