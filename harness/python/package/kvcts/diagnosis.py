"""The result of verify()."""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple


class WrongPlace(NamedTuple):
    """The first wrong byte of a row, and the bytes after it (hex). `offset`: bytes from the start of the allocation."""

    allocation: str
    offset: int
    expected: str
    found: str
    where: str
    is_: str  # whose data are there instead; "" = unknown


class BlockState(NamedTuple):
    """A block of a request: holds tokens [first_token, first_token + tokens) of a generation, if `right`."""

    block: int
    first_token: int
    tokens: int
    generation: int
    right: bool


class Cause(NamedTuple):
    """What may have gone wrong. `share`: of the wrong bytes that it predicts; `rival`: about as likely as the named one."""

    fault_class: str
    words: str
    share: float
    rival: bool

    def __str__(self) -> str:
        return f"{self.fault_class}: {self.words}"


class WrongBytes(AssertionError):
    """Raised by Diagnosis.raise_if_wrong(); `diagnosis` has the details, the message is its text."""

    def __init__(self, diagnosis: Diagnosis):
        super().__init__(str(diagnosis))
        self.diagnosis = diagnosis


@dataclass(frozen=True)
class Diagnosis:
    """The outcome of verify(): true if every byte is right.

    fault_class   one word of the suite's vocabulary ("axis-permuted", "wrong-stride", "stale-block", ...); "" = right,
                  or not identified
    exact         a transformation was found that predicts every byte; without it there is no fault_class
    text, look_at what happened in one sentence, and where in the code to look
    what_happened which rows hold what, in words: read off the bytes, whatever the cause
    causes        the one that is named, then others that explain as much
    sure          exact, no other class explains as much, and the text names no doubt
    first         up to eight wrong places
    blocks        the named blocks and whether each is right
    of            which cache of several, "consumer rank 1 of 4 (KV heads 2 to 3)"; "" if there is only one"""

    checked_bytes: int
    wrong_bytes: int
    fault_class: str = ""
    exact: bool = False
    text: str = ""
    look_at: str = ""
    causes: tuple[Cause, ...] = ()
    sure: bool = False
    first: tuple[WrongPlace, ...] = ()
    blocks: tuple[BlockState, ...] = field(default=(), repr=False)
    what_happened: tuple[str, ...] = ()
    of: str = ""

    @property
    def ok(self) -> bool:
        return self.wrong_bytes == 0

    def __bool__(self) -> bool:
        return self.ok

    def raise_if_wrong(self) -> None:
        """Raises WrongBytes (an AssertionError) with the whole text unless every byte is right."""
        __tracebackhide__ = True
        if not self.ok:
            raise WrongBytes(self)

    @property
    def verdict(self) -> str:
        return "PASS" if self.ok else f"FAIL {self.fault_class}".rstrip()

    def __str__(self) -> str:
        lines = [f"{self.verdict}: {self.checked_bytes:,} bytes checked, {self.wrong_bytes:,} wrong"]
        if self.ok:
            return lines[0]
        if self.of:
            lines.append(f"  {self.of}")
        lines.append(f"  {self.text}")
        lines += [f"  or {other}" for other in self.causes[1:]]
        if self.exact:  # else the text has them
            lines += [f"  {finding}" for finding in self.what_happened[:4]]
        if self.look_at:
            lines.append(f"look at   {self.look_at}")
        for w in self.first[:4]:
            lines.append(f"  {w.allocation} + {w.offset}: expected {w.expected}, found {w.found}: {w.where}")
            if w.is_:
                lines.append(f"    holds {w.is_}")
        wrong = [b for b in self.blocks if not b.right]
        if self.blocks:
            lines.append(
                f"blocks    {len(self.blocks) - len(wrong)} of {len(self.blocks)} right"
                + (f"; wrong: {', '.join(str(b.block) for b in wrong[:16])}" if wrong else "")
            )
        return "\n".join(lines)

    def __repr__(self) -> str:
        # One line: pytest shows it for `assert kvcts.verify(...)`.
        return f"<kvcts {self.verdict}{'' if self.ok else ': ' + self.text}>"

    def _repr_html_(self) -> str:
        """For notebooks: verdict, cause, a drawing of the blocks, the first wrong places. Colour is not the only
        sign: wrong blocks are struck through."""
        good, bad = "#2e7d32", "#b3261e"
        out = [
            f'<div style="font-family:sans-serif;border-left:4px solid {good if self.ok else bad};padding:2px 10px">',
            f'<b style="color:{good if self.ok else bad}">{escape(self.verdict)}</b> &nbsp; {self.checked_bytes:,} '
            f"bytes checked, {self.wrong_bytes:,} wrong",
        ]
        if not self.ok:
            out.append(f"<div>{escape(' '.join(filter(None, (self.of, self.text))))}</div>")
            out += [f"<div>or {escape(str(other))}</div>" for other in self.causes[1:]]
            out += [f"<div>{escape(finding)}</div>" for finding in self.what_happened]
            if self.look_at:
                out.append(f"<div><i>{escape(self.look_at)}</i></div>")
        if self.blocks:
            cells = "".join(
                f'<span title="block {b.block}: tokens {b.first_token} to {b.first_token + b.tokens - 1}, generation '
                f"{b.generation}, "
                f'{"right" if b.right else "wrong"}" '
                f'style="display:inline-block;min-width:2em;text-align:center;margin:1px;padding:1px 3px;'
                f"border:1px solid {good if b.right else bad};"
                f'{"" if b.right else "text-decoration:line-through;background:#fbe9e7;"}">{b.block}</span>'
                for b in self.blocks[:256]
            )
            out.append(f"<div>blocks {cells}{' ...' if len(self.blocks) > 256 else ''}</div>")
        if self.first:
            rows = "".join(
                f"<tr><td>{escape(w.allocation)} + "
                f"{w.offset}</td><td>{escape(w.where)}</td><td><code>{w.expected}</code></td>"
                f"<td><code>{w.found}</code></td><td>{escape(w.is_)}</td></tr>"
                for w in self.first
            )
            out.append(
                f"<table><tr><th>byte</th><th>who should be there</th><th>expected</th><th>found</th><th>who is "
                f"there</th></tr>{rows}</table>"
            )
        return "".join(out) + "</div>"


def from_native(report: dict[str, Any]) -> Diagnosis:
    return Diagnosis(
        report["checked_bytes"],
        report["wrong_bytes"],
        report["fault_class"],
        report["exact"],
        report["text"],
        report["look_at"],
        tuple(Cause(*cause) for cause in report["causes"]),
        report["sure"],
        tuple(WrongPlace(*w) for w in report["first"]),
        tuple(BlockState(*b) for b in report["blocks"]),
        tuple(report["what_happened"]),
    )
