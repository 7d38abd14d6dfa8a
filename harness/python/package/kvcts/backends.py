"""Attention backends by name, and the layout that each uses: read from the catalogue (used_by of cases/layouts, and
cases/backends)."""

from __future__ import annotations

import difflib
import functools
import re
from typing import Any, NamedTuple, Optional

from . import _native
from .paths import cases


@functools.lru_cache(maxsize=None)
def catalogue() -> _native.Catalogue:
    """The layouts, backends and dtypes that the package knows."""
    return _native.Catalogue(str(cases()))


class _Use(NamedTuple):
    hint: str
    first: tuple[int, ...]  # version
    last: tuple[int, ...]
    layout: str


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", text))


@functools.lru_cache(maxsize=None)
def _uses() -> dict[str, list[_Use]]:
    """By name in lower case, the newest version last."""
    out: dict[str, list[_Use]] = {}
    for name, versions, hint, layout in catalogue().backends():
        first, _, last = versions.partition("..")
        out.setdefault(name.lower(), []).append(_Use(hint, _version(first), _version(last or first), layout))
    for uses in out.values():
        uses.sort(key=lambda use: (use.last, use.hint != "HND"))
    return out


def layout_of(name: str) -> str:
    """The layout's id or template for a name that kvcts.Layout() takes. Raises LayoutError with the nearest names."""
    if catalogue().knows(name) or " " in name:
        return name
    backend, at, rest = name.partition("@")
    backend, _, hint = backend.partition(":")
    version, _, late_hint = rest.partition(":")
    hint = hint or late_hint
    if backend.lower() == "flashinfer" and not at:  # FlashInfer's own page; its default is kv_layout="NHD"
        return f"flashinfer:{hint or 'NHD'}"
    uses = _uses().get(backend.lower())
    if uses is None:
        known = [*(id for id, _, _ in catalogue().layouts()), *_uses()]
        near = difflib.get_close_matches(name, known, 4, 0.5) or difflib.get_close_matches(backend.lower(), known, 4, 0.3)
        raise _native.LayoutError(
            f"expected a layout, backend or template, found {name!r}; "
            + (f"near names: {', '.join(near)}; " if near else "")
            + "kvcts.layouts() and kvcts.backends() list them"
        )
    wanted = _version(version)
    fits = [
        use
        for use in uses
        if use.hint.upper() == (hint.upper() or use.hint.upper())
        and (not at or (use.first[: len(wanted)] <= wanted <= use.last))
    ]
    if not fits:
        hints = sorted({use.hint for use in uses if use.hint})
        versions = sorted({".".join(map(str, v)) for use in uses for v in (use.first, use.last)}, key=_version)
        raise _native.LayoutError(
            f"{backend} has no layout {name!r}; it has "
            + (f"the settings {', '.join(hints)} and " if hints else "no settings and ")
            + f"the versions {versions[0]} to {versions[-1]}"
        )
    return fits[-1].layout


def usual(name: str, numbers: dict[str, Any]) -> dict[str, Any]:
    """The arguments of kvcts.Layout() for a test: what the layout fixes, these numbers, and 3 layers, 7 blocks of 16
    tokens, 4 heads, head_dim 64, bf16 where nothing else is said."""
    id = layout_of(name)
    fixed, dtypes = catalogue().demands(id) if id in {known for known, _, _ in catalogue().layouts()} else ({}, [])
    dtype = "bf16" if not dtypes or "bf16" in dtypes else dtypes[0]
    return {**dict(layers=3, blocks=7, block_size=16, heads=4, head_dim=64, dtype=dtype), **fixed, **numbers}


def backends(like: Optional[str] = None, **numbers: Any) -> list[str]:
    """Names of backends, as kvcts.Layout(), kv_cache and kv_pair take them: "flash_attn", "flashinfer:HND". With the
    setting (VLLM_KV_CACHE_LAYOUT) where a backend has several; without a version the newest is meant.

    like      only names that contain this: "mla"
    numbers   only those that can have these numbers of kvcts.Layout: heads=8, dtype="fp8_e4m3"

        @pytest.mark.parametrize("backend", kvcts.backends(heads=8))"""
    from .layouts import Layout

    names = {"flashinfer:NHD", "flashinfer:HND"}
    for name, uses in _uses().items():
        if name in ("flashinfer", "kvcachelayout"):
            continue
        hints = {use.hint for use in uses if use.last == uses[-1].last}
        names |= {f"{name}:{hint}" for hint in hints if hint} or {name}
    out = []
    for name in sorted(names):
        try:
            Layout(name, **usual(name, numbers))
        except _native.LayoutError:
            continue
        if like is None or like in name:
            out.append(name)
    return out
