"""Bytes of a cache by reshape, transpose and concatenate: no offset and no stride is ever computed.

The memory of a region is built bottom up from *nibbles* (4 bits, the smallest code). Each leaf of the template becomes an
array of element ids in logical order [L, K, B, N, H, C]. Reshape splits its axes, transpose orders them, and concatenate
joins the leaves of one part along the innermost dimension. The flattened result gives, for each nibble in memory order,
the element there. Tags are then looked up; unowned nibbles hold poison.
"""

from dataclasses import dataclass, replace

import numpy as np

from . import GoldenError, dtypes, poison, tag, template
from .expr import evaluate
from .template import AXES, Leaf, Mode, Part, Region

FREE = -1  # unowned nibble (padding)
FIELDS = ("layer", "kv", "block", "slot", "token", "head", "channel")


@dataclass(frozen=True)
class Geometry:
    """The numbers of one rank's cache and the one request in it."""

    name: str = "small"
    layers: int = 2
    blocks: int = 5
    block_size: int = 4
    heads: int = 3
    head_dim: int = 32
    v_head_dim: int = 0  # 0: as head_dim
    kv: int = 2
    tokens: int = 10
    table: tuple = (3, 0, 4)  # blocks of the request, in order
    generation: int = 1

    def names(self, scheme):
        """Names that expressions may use: single letters of the template and the keys of the geometry."""
        width = self.head_dim
        return {
            "L": self.layers,
            "B": self.blocks,
            "N": self.block_size,
            "H": self.heads,
            "D": width,
            "V": self.v_head_dim or width,
            "x": scheme.x if scheme else None,
            "layers": self.layers,
            "blocks": self.blocks,
            "block_size": self.block_size,
            "heads": self.heads,
            "head_dim": width,
            "v_head_dim": self.v_head_dim or width,
            "kv": self.kv,
            "K": self.kv,
            "tokens": self.tokens,
        }

    def within(self):
        """This geometry with a request that fits its blocks: the last block is half full if a block can be halved."""
        table = tuple(b for b in self.table if b < self.blocks) or (0,)
        room = len(table) * self.block_size
        return replace(self, table=table, tokens=self.tokens if self.tokens < room else room - self.block_size // 2)

    def token_table(self):
        """[blocks, block_size] token of the request in each slot, -1 where there is none."""
        slots = np.full((self.blocks, self.block_size), -1, dtype=np.int64)
        order = np.arange(len(self.table) * self.block_size).reshape(len(self.table), self.block_size)
        slots[list(self.table)] = np.where(order < self.tokens, order, -1)
        return slots


@dataclass
class Plane:
    """One leaf of the template: its elements, their content, and where they ended up."""

    path: str  # modes from the list axes to the leaf, as text
    component: str
    dtype: str
    high_nibble_first: bool
    coordinates: dict  # FIELDS -> int64 array of `shape`; token -1: unowned
    codes: np.ndarray  # right-aligned tag codes, of `shape` (layer, kv, block, slot, head, channel)
    blocked: bool  # False: no block or slot axis; always written, with token 0
    first: list  # the first coordinate of each axis of `shape`
    step: list  # coordinates from one element to the next
    allocation: np.ndarray = None  # int16, of `shape`
    bit: np.ndarray = None  # int64: first bit of the element in its allocation

    @property
    def shape(self):
        return self.codes.shape

    @property
    def written(self):
        return self.coordinates["token"] >= 0


@dataclass
class Allocation:
    name: str
    bytes: np.ndarray  # uint8
    owned: np.ndarray  # bool per byte: some nibble of it holds a tag


@dataclass
class Cache:
    allocations: list
    planes: list
    token_table: np.ndarray


class _Builder:
    """Walks one template; every leaf takes the next free element ids."""

    def __init__(self, geometry, scheme, key):
        self.geometry, self.scheme, self.key = geometry, scheme, key
        self.tokens = geometry.token_table()
        self.planes, self.next_id, self.lists = [], 0, 0

    # ---- extents of the axes in one leaf ----------------------------------------------------------------------------

    def number(self, text, groups=None):
        names = self.geometry.names(self.scheme)
        names["G"] = groups if groups is not None else self.scheme.groups(self.geometry.head_dim)
        return evaluate(text, names)

    def whole(self, axis, path, leaf):
        """Extent of an axis in this cache; None where the scheme has no such component (the template must say its range)."""
        g = self.geometry
        if axis != "C":
            return {"L": g.layers, "K": g.kv, "B": g.blocks, "N": g.block_size, "H": g.heads}[axis]
        if leaf.component == "gscale":
            return 1
        fixed = [self.number(m.lo) for m in path if m.axis == "K" and m.kind == "=" and m.hi is None]
        v = g.v_head_dim or g.head_dim
        if not fixed and g.kv == 2 and v != g.head_dim:
            raise GoldenError(
                f"K and V have different widths ({g.head_dim}, {v}), but '{_words(path)}' holds both; name K=0 and K=1"
            )
        width = v if fixed == [1] else g.head_dim
        return self.scheme.groups(width) if leaf.component == "scale" else width

    def range(self, axis, path, leaf):
        """(coordinates, digits) of an axis in a leaf; digits are (position in path, extent), outermost first."""
        modes = [(i, m) for i, m in enumerate(path) if m.axis == axis]
        kinds = sorted(m.kind for _, m in modes)
        whole = self.whole(axis, path, leaf)
        groups = whole if axis == "C" and leaf.component == "scale" else None
        if kinds == ["="]:
            position, mode = modes[0]
            low = self.number(mode.lo, groups)
            high = low + 1 if mode.hi is None else self.number(mode.hi, groups)
            free = (
                axis == "C" and leaf.component == "scale" and mode.hi is not None
            )  # a layout with its own scales counts them itself
            if low < 0 or high <= low or (not free and whole is not None and high > whole):
                raise GoldenError(f"'{mode.text()}' is not inside 0..{whole}, the extent of {axis} here")
            return np.arange(low, high), [(position, high - low)]
        if whole is None:
            raise GoldenError(f"dtype {self.scheme.name} has no scales, but '{_words(path)}' holds them")
        if not modes:
            optional = bool(leaf.pad) or leaf.component == "gscale" and axis in "BNHC"
            if whole != 1 and not optional:
                raise GoldenError(f"'{_words(path)}' has no {axis}, but the cache has {whole} of it; name the axis")
            return np.arange(1), []
        if kinds == [""]:
            return np.arange(whole), [(modes[0][0], whole)]
        divisors = {m.kind: self.number(m.n, groups) for _, m in modes if m.n}
        if kinds not in (["%", "/"], ["/"]) and not (leaf.pad and kinds == ["%"]):
            raise GoldenError(
                f"axis {axis} appears as {' '.join(m.text() for _, m in modes)} in '{_words(path)}'; expected it once, "
                "as one outer '/' digit, or as one outer '/' and one inner '%' digit"
            )
        n = max(divisors.values())
        if len(set(divisors.values())) != 1:
            raise GoldenError(f"the two digits of {axis} in '{_words(path)}' need one divisor")
        if n < 1 or whole % n:
            raise GoldenError(f"{axis} has extent {whole}, which does not divide by {n} in '{_words(path)}'")
        digits = [(i, whole // n if m.kind == "/" else n) for i, m in sorted(modes, key=lambda m: m[1].kind, reverse=True)]
        # Without its inner digit, an element stands for n coordinates (one scale of 16 tokens), at the first of them.
        return np.arange(0, whole, n) if kinds == ["/"] else np.arange(whole), digits

    # ---- leaves and parts -------------------------------------------------------------------------------------------

    def leaf(self, path, leaf):
        """Nibble array [extents of path..., nibbles of one element]."""
        ranges = [self.range(axis, path, leaf) for axis in AXES]
        extents = {position: extent for _, digits in ranges for position, extent in digits}
        order = [extents[i] for i in range(len(path))]
        if leaf.pad:
            return np.full(order + [2 * self.number(leaf.pad)], FREE, dtype=np.int64)
        scheme = self.scheme
        dtype = leaf.dtype or {"data": scheme.data, "scale": scheme.scale, "gscale": scheme.global_scale}[leaf.component]
        if not dtype:
            raise GoldenError(f"dtype {scheme.name} has no {leaf.component}, but '{_words(path)}' holds it")
        coordinates = [c for c, _ in ranges]
        shape = [len(c) for c in coordinates]
        ids = np.arange(self.next_id, self.next_id + int(np.prod(shape)), dtype=np.int64).reshape(shape)
        self.next_id += ids.size
        self.planes.append(self.plane(path, leaf, dtype, coordinates))
        # Split each axis into its digits, outermost first; then put the digits in path order.
        digits = [digit for _, axis_digits in ranges for digit in (axis_digits or [(len(path), 1)])]
        by_path = sorted(range(len(digits)), key=lambda d: digits[d][0])
        memory = ids.reshape([extent for _, extent in digits]).transpose(by_path).reshape(order)
        return memory[..., np.newaxis] * 8 + np.arange(dtypes.bits(dtype) // 4)

    def plane(self, path, leaf, dtype, coordinates):
        layer, kv, block, slot, head, channel = np.ix_(*coordinates)
        blocked = any(m.axis in "BN" for m in path)
        token = self.tokens[block, slot] if blocked else np.zeros((1,) * 6, dtype=np.int64)
        fields = dict(zip(FIELDS, np.broadcast_arrays(layer, kv, block, slot, token, head, channel)))
        codes = tag.codes(
            dtype,
            self.key.seed,
            self.key.pass_,
            self.key.origin,
            leaf.component,
            fields["kv"],
            fields["layer"],
            fields["head"],
            np.maximum(fields["token"], 0),
            self.geometry.generation,
            fields["channel"],
        )
        lists = "".join(f"{m.axis} x " for m in path[: self.lists])
        text = lists + " ".join(t for t in (_words(path[self.lists :]), leaf.text()) if t)
        return Plane(
            text,
            leaf.component,
            dtype,
            leaf.high_nibble_first,
            fields,
            codes.astype(dtypes.code_type(dtype)),
            blocked,
            [int(c[0]) for c in coordinates],
            [int(c[1] - c[0]) if len(c) > 1 else 1 for c in coordinates],
        )

    def region(self, region):
        """One flat nibble array per allocation, list axes outermost first."""
        g, self.lists = self.geometry, len(region.lists)
        apart = (
            "K" in region.lists and g.kv == 2 and g.v_head_dim not in (0, g.head_dim)
        )  # K and V differ in width: one at a time
        found = {}
        for kv in range(2) if apart else (None,):
            lists = tuple(Mode(a, "=", lo=str(kv)) if a == "K" and apart else Mode(a) for a in region.lists)
            nibbles = self.part(region.part, lists)
            for index in np.ndindex(nibbles.shape[:-1]):
                found[tuple(kv if apart and a == "K" else i for a, i in zip(region.lists, index))] = nibbles[index]
        return [found[index] for index in sorted(found)]

    def part(self, part, outer, braces=False):
        """Nibble array [extents of outer..., flat]."""
        path = outer + part.modes
        if part.leaf is not None:
            joined = self.leaf(path, part.leaf)
        else:
            pieces = [self.part(child, path, True) for child in part.children]
            sizes = {piece.shape[:-1] for piece in pieces}
            if len(sizes) != 1:
                raise GoldenError(f"the parts inside '{_words(path)} {{ }}' disagree about its extents: {sorted(sizes)}")
            joined = np.concatenate(pieces, axis=-1)
        nibbles = joined.shape[-1]
        for mode, extent in reversed(list(zip(part.modes, joined.shape[len(outer) : -1]))):
            if nibbles % 2 and extent > 1 and extent % 2:
                raise GoldenError(f"{extent} codes of 4 bits along {mode.axis} do not fill whole bytes; use an even extent")
            nibbles *= extent
        if nibbles % 2 and braces:
            raise GoldenError(f"a part in braces ('{part.text()}') does not fill whole bytes; use an even extent")
        return joined.reshape(joined.shape[: len(outer)] + (-1,))


@dataclass(frozen=True)
class Key:
    """What is constant over a golden cache: the tag key, and the place of its memory files for poison."""

    seed: int = 1
    pass_: int = 0
    origin: int = 0
    side: int = 0
    rank: int = 0


def _words(path):
    return " ".join(m.text() for m in path)


def components(regions):
    """Components that a template places."""
    return {leaf.component for region in regions for _, leaf in template.leaves(region.part) if not leaf.pad}


def _scale_part(part, group):
    """The data part with its scales: a split C becomes one C at the place of its outer digit, a range of C is counted
    in groups, padding and leaves with an explicit dtype disappear. None if nothing is left."""
    modes = []
    for mode in part.modes:
        if mode.axis == "C" and mode.kind == "%":
            continue
        if mode.axis == "C" and mode.kind == "/":
            mode = Mode("C")
        elif mode.axis == "C" and mode.hi is not None:
            if group:
                mode = replace(mode, lo=f"({mode.lo})/{group}", hi=f"({mode.hi})/{group}")
            elif mode.lo == "0":
                mode = Mode("C")  # a row's one scale goes with the part that holds channel 0
            else:
                return None
        modes.append(mode)
    if part.leaf is not None:
        if part.leaf.pad or part.leaf.dtype or part.leaf.component != "data":
            return None
        return Part(tuple(modes), Leaf("scale"))
    children = tuple(c for c in (_scale_part(child, group) for child in part.children) if c)
    return Part(tuple(modes), None, children) if children else None


def side_regions(regions, scheme):
    """Regions that a scheme needs and the template does not place: scales in the data's order, and one global scale
    per (layer, kv)."""
    placed = components(regions)
    side = []
    if scheme.scale and "scale" not in placed:
        parts = [(r.lists, _scale_part(r.part, scheme.group)) for r in regions]
        side += [Region(lists, part) for lists, part in parts if part]
    if scheme.global_scale and "gscale" not in placed:
        side.append(Region((), Part((Mode("L"), Mode("K")), Leaf("gscale"))))
    return tuple(side)


def build(text, geometry, scheme, key=Key()):
    """Allocations and planes of one rank's cache. Raises GoldenError if the layout cannot hold the scheme at this
    geometry."""
    regions = template.parse(text)
    builder = _Builder(geometry, scheme, key)
    memories = []  # one flat nibble array per allocation
    for region in regions + side_regions(regions, scheme):
        memories += builder.region(region)
    return _fill(memories, builder, key)


def _fill(memories, builder, key):
    planes = builder.planes
    codes = np.concatenate([p.codes.ravel().astype(np.uint32) for p in planes])
    written = np.concatenate([p.written.ravel() for p in planes])
    high = np.concatenate([np.full(p.codes.size, p.high_nibble_first) for p in planes])
    home = np.full(codes.size, -1, dtype=np.int16)
    bit = np.full(codes.size, -1, dtype=np.int64)
    allocations = []
    for index, nibbles in enumerate(memories):
        if nibbles.size % 2:
            raise GoldenError(f"allocation {index} ends in the middle of a byte: {nibbles.size} codes of 4 bits")
        pairs = nibbles.reshape(-1, 2)
        flip = (pairs >= 0) & high[np.maximum(pairs, 0) // 8]
        if (flip.any(axis=1) != flip.all(axis=1)).any():
            raise GoldenError(f"allocation {index}: a byte is shared by codes of different nibble order")
        pairs = np.where(flip.any(axis=1)[:, np.newaxis], pairs[:, ::-1], pairs)  # in memory order: low nibble, high nibble
        element, digit = np.maximum(pairs, 0) // 8, np.maximum(pairs, 0) % 8
        own = (pairs >= 0) & written[element]
        ground = poison.fill(poison.key(key.seed, key.side, key.rank, index), len(pairs))
        ground = np.stack([ground & 0xF, ground >> 4], axis=-1)
        value = np.where(own, (codes[element] >> (4 * digit).astype(np.uint32)) & 0xF, ground)
        allocations.append(Allocation(f"a{index}", (value[:, 0] | value[:, 1] << 4).astype(np.uint8), own.any(axis=1)))
        place = np.arange(pairs.size).reshape(pairs.shape)
        start = (pairs >= 0) & (digit == 0)
        home[element[start]] = index
        bit[element[start]] = 4 * place[start]
    at = 0
    for plane in planes:
        size = plane.codes.size
        plane.allocation = home[at : at + size].reshape(plane.shape)
        plane.bit = bit[at : at + size].reshape(plane.shape)
        at += size
    return Cache(allocations, planes, builder.tokens)
