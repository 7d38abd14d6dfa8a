"""Plain English: phrases that read like a translation do not come back. A word list catches only some of them; review
catches the rest.

It searches comments, docstrings and strings of code, Markdown, and text of YAML files. Words in backticks are not
prose. Names in C++ must not have a word in them that a term of the field has replaced.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from kvtest import ROOT, finish

# Phrase -> what a native writes.
PHRASES = {
    r"for want of": "without",
    r"(?<![-\w])nobody('s)?(?![-\w])": "no one, none, unowned, never",
    r"\bsomebody('s)?\b": "someone, or the person meant",
    r"\banybody('s)?\b": "anyone, any",
    r"\b(is|are|was|were|be|been|being|and|or) told\b": "is given, knows, is reported",
    r"\btells? (of|that|apart)\b": "reports, shows, distinguishes",
    r"\b(goes|gone|went) on\b": "continues",
    r"\bgo on (with|by|as|and|until|after)\b": "continue",
    r"\b(comes|came|come) to (nothing|an end|that|this|what)\b": "ends, is",
    r"\bat the (most|least)\b": "at most, at least",
    r"\bin the place of\b": "instead of",
    r"\bonce more\b": "again",
    r"\bthat very\b": "that",
    r"\bwhereof\b|\bthereof\b|\bwhereupon\b": "of which",
    r"\bwith commas\b": "comma-separated",
    r"\bto be had\b|\bis had\b": "available",
    r"\bthe asked\b": "the process asked",
    r"\bas long as it takes\b": "until",
}
# Part of a name -> the term that replaced it.
RETIRED = {
    "arena": "address space",
    "backing": "buffer",
    "clue": "attribution",
    "errand": "proxy request",
    "lane": "executor",
    "mover": "copy executor",
    "namer": "symbol resolver",
    "painter": "reference model",
    "rehearsed": "replay result",
    "saboteur": "fault injector",
    "script": "scenario",
    "seat": "element run",
    "sighting": "observed move",
    "sitting": "session",
    "stray": "orphan, unexpected source",
    "tape": "copy program",
    "teller": "provenance formatter",
    "told": "reported",
    "warden": "launcher",
    "whereabouts": "element index",
    "workshop": "hypothesis search",
}
# Where such a word is the term: vector lanes, UCX's lanes, shell and page scripts, what a certificate's vendor told.
IN_USE = {
    "lane": ("kernels/", "harness/engines/ucx.cpp", "harness/python/package/src/tensors.cpp"),
    "script": ("harness/cli/", "harness/process/"),
    "told": ("harness/cli/certify/",),
}
SUFFIXES = {".cpp", ".hpp", ".h", ".c", ".cu", ".py", ".md", ".yaml", ".sh", ".js", ".html", ".txt"}
# Kept word for word: released headers, golden files' own text, what follows public reports, this list.
KEPT = ("harness/engines/transport/compat/", "golden/kvgold/h5file.py", "cases/museum/", "reports/results/published-bugs.md",
        "harness/testing/english_test.py")  # fmt: skip


def prose(path: Path) -> list[tuple[int, str]]:
    """Lines of text with their numbers."""
    out = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        line = re.sub(
            r"`[^`]*`|contains: .*|(local|remote): nobody|.nobody.(?=[;)])|the word nobody|otherwise: go on", "", line
        )
        if path.suffix in (".cpp", ".hpp", ".h", ".c", ".cu", ".js"):
            found = re.findall(r'//.*$|/\*.*$|^\s*\* .*$|"(?:[^"\\]|\\.)*"', line)
        elif path.suffix == ".py":
            found = re.findall(r"""#.*$|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|^\s+[A-Z][a-z].*[a-z.]$""", line)
        elif path.suffix == ".sh":
            found = re.findall(r"#.*$|\"[^\"]*\"", line) or ([line] if line.startswith(" ") else [])
        else:
            found = [line]
        out += [(number, text) for text in found]
    return out


def retired_names(name: str, text: str) -> list[str]:
    """Names of a C++ file that have a retired word in them, each with what to write."""
    code = re.sub(r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"', "", text, flags=re.S)
    out = []
    for identifier in sorted(set(re.findall(r"[A-Za-z_]\w*", code))):
        for part in re.findall(r"[A-Z]?[a-z]+", identifier):
            word = part.lower().removesuffix("s")
            if word in RETIRED and not name.startswith(IN_USE.get(word, ())):
                out.append(f"{name}: '{identifier}' (write {RETIRED[word]})")
    return out


def main() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout.split("\n")
    problems, read = [], 0
    for name in listed:
        path = ROOT / name
        if path.suffix not in SUFFIXES or name.startswith(KEPT) or not path.is_file():
            continue
        read += 1
        if path.suffix in (".cpp", ".hpp"):
            problems += retired_names(name, path.read_text(encoding="utf-8"))
        for number, text in prose(path):
            for phrase, instead in PHRASES.items():
                if found := re.search(phrase, text, re.I):
                    problems.append(f"{name}:{number}: '{found[0]}' ({instead}): {text.strip()[:100]}")
    assert not problems, "\n".join([*problems, f"{len(problems)} phrases or names"])
    print(f"{read} files, {len(PHRASES)} phrases and {len(RETIRED)} retired words, none found")


if __name__ == "__main__":
    finish(main)
