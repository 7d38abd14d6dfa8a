"""Parser of the layout template (grammar: harness/layout/template.hpp) into a tree of plain values.

Expressions stay text; memory.py evaluates them once a geometry is known.
"""

import re
from dataclasses import dataclass, field

from . import GoldenError

AXES = "LKBNHC"
COMPONENTS = ("data", "scale", "gscale")
DTYPES = ("fp32", "fp16", "bf16", "e4m3fn", "e5m2", "e4m3fnuz", "e5m2fnuz", "int8", "uint8", "int4", "e2m1", "e8m0")

_TERM = r"(?:[0-9]+|[LBNHDVxG])"
_EXPR = rf"(?:{_TERM}(?:\s*[*/+-]\s*{_TERM})*)"
_MODE = re.compile(
    rf"(?P<axis>[{AXES}])(?:(?P<op>[/%])(?P<n>{_EXPR})|=(?P<lo>{_EXPR})(?:\.\.(?P<hi>{_EXPR}))?)?(?![A-Za-z0-9_])"
)
_DTYPE = re.compile(r":\s*(?P<dtype>[a-z0-9]+)(?P<hi>\.hi)?(?![A-Za-z0-9_])")
_WORD = re.compile(r"(?P<word>data|scale|gscale)(?![A-Za-z0-9_])")
_PAD = re.compile(rf"pad\s+(?P<n>{_EXPR})")
_LIST = re.compile(rf"(?P<axis>[{AXES}])\s+x(?![A-Za-z0-9_])")


@dataclass(frozen=True)
class Mode:
    """One nested loop: kind '' whole axis, '/' outer digit, '%' inner digit, '=' range [lo, hi) (hi None: one
    coordinate)."""

    axis: str
    kind: str = ""
    n: str = ""
    lo: str = ""
    hi: str | None = None

    def text(self):
        if self.kind == "=":
            return f"{self.axis}={self.lo}" + (f"..{self.hi}" if self.hi is not None else "")
        return f"{self.axis}{self.kind}{self.n}"


@dataclass(frozen=True)
class Leaf:
    """Elements of one component, or `pad` unowned bytes."""

    component: str = "data"
    dtype: str = ""  # "": the scheme's
    high_nibble_first: bool = False
    pad: str = ""

    def text(self):
        if self.pad:
            return f"pad {self.pad}"
        words = [] if self.component == "data" else [self.component]
        if self.dtype:
            words.append(f":{self.dtype}" + (".hi" if self.high_nibble_first else ""))
        return " ".join(words)


@dataclass(frozen=True)
class Part:
    modes: tuple = ()
    leaf: Leaf | None = None
    children: tuple = ()

    def text(self):
        words = [m.text() for m in self.modes]
        if self.leaf is None:
            words.append("{ " + " ; ".join(c.text() for c in self.children) + " }")
        elif self.leaf.text():
            words.append(self.leaf.text())
        return " ".join(words)


@dataclass(frozen=True)
class Region:
    """Allocations: one per combination of the list axes, outermost first."""

    lists: tuple = ()
    part: Part = field(default_factory=Part)

    def text(self):
        return "".join(f"{a} x " for a in self.lists) + self.part.text()


class _Parser:
    def __init__(self, text):
        self.text, self.at = text, 0

    def fail(self, expected):
        found = self.text[self.at :].split()[0] if self.text[self.at :].split() else "the end"
        raise GoldenError(f"layout template '{self.text}', column {self.at + 1}: expected {expected}, found '{found}'")

    def skip(self):
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1

    def take(self, pattern):
        self.skip()
        match = pattern.match(self.text, self.at)
        if match:
            self.at = match.end()
        return match

    def symbol(self, char):
        self.skip()
        if self.text.startswith(char, self.at):
            self.at += len(char)
            return True
        return False

    def cache(self):
        regions = [self.region()]
        while self.symbol("&"):
            regions.append(self.region())
        self.skip()
        if self.at != len(self.text):
            self.fail("a mode, '{', ';', '}', '&' or the end")
        return tuple(regions)

    def region(self):
        lists, word = [], self.take(_WORD)
        while match := self.take(_LIST):
            if match["axis"] in lists:
                self.at = match.start()
                self.fail(f"another list axis than {match['axis']}, which is used already")
            lists.append(match["axis"])
        return Region(tuple(lists), self.part("data", word["word"] if word else None))

    def part(self, inherited, word=None):
        start, modes = self.at, []
        while True:
            if match := self.take(_WORD):
                if word is not None:
                    self.at = match.start()
                    self.fail("only one component word")
                word = match["word"]
                if modes:  # a component comes before the modes or after them
                    break
                continue
            if match := self.take(_MODE):
                kind = match["op"] or ("=" if match["lo"] is not None else "")
                modes.append(Mode(match["axis"], kind, match["n"] or "", match["lo"] or "", match["hi"]))
                continue
            break
        component = word or inherited
        if self.symbol("{"):
            children = [self.part(component)]
            while self.symbol(";"):
                children.append(self.part(component))
            if not self.symbol("}"):
                self.fail("'}' or ';'")
            return Part(tuple(modes), None, tuple(children))
        if match := self.take(_PAD):
            return Part(tuple(modes), Leaf(pad=match["n"]))
        if match := self.take(_DTYPE):
            if match["dtype"] not in DTYPES:
                self.at = match.start("dtype")
                self.fail("a dtype: " + " ".join(DTYPES))
            return Part(tuple(modes), Leaf(component, match["dtype"], bool(match["hi"])))
        if not modes and word is None:
            self.at = start
            self.skip()
            self.fail(f"an axis ({' '.join(AXES)}), 'pad', a component or '{{'")
        return Part(tuple(modes), Leaf(component))


def parse(text):
    """Regions of a template. Raises GoldenError with the column."""
    return _Parser(text).cache()


def leaves(part, outer=()):
    """Every leaf with all modes from the part's root to it, in text order."""
    path = outer + part.modes
    if part.leaf is not None:
        yield path, part.leaf
    for child in part.children:
        yield from leaves(child, path)
