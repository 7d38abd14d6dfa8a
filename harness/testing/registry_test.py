"""Every connector, tier and store that the pinned engines register is hosted here or has its reason in
cases/registry.yaml.

    registry_test.py            the file itself, and that each check fails where it should
    registry_test.py vllm       beside the installed vLLM
    registry_test.py sglang     beside the installed SGLang
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import registry
import yaml

from kvtest import finish

UPSTREAM = """class Factory:
    @classmethod
    def register_it(cls, name, module): ...
Factory.register_it("First", "m")
Factory.register_it(name="Second", module="n")  # needs a ring
class Kind(Enum):
    A = "First"
    B = "Second"
"""
HERE = """registry: r
title: t
project: P
package: p
version: "1"
file: p/factory.py
reads: Factory.register_it
names:
  First: {hosted: [real-first]}
  Second: {cannot: needs a ring, source: "p/factory.py:5: # needs a ring"}
"""
CONNECTOR = "connector: real-first\noptions: {options: {connector: First}}\n"
SUITE = "suite: s\nmatrix: [{axes: {connector: real-first}}]\n"
WHOLE = {"here": HERE, "upstream": UPSTREAM, "connector": CONNECTOR, "suite": SUITE}
# What replaces what where, and the sentence about it.
BROKEN = (
    (
        "upstream",
        '"m")\n',
        '"m")\nFactory.register_it("Third", "o")\n',
        "new name upstream: Third (p/factory.py:5), host it",
    ),
    ("upstream", 'Factory.register_it("First", "m")', "", "First: expected P to register it, found only Second"),
    ("upstream", '"First", "m"', 'FIRST, "m"', "expected a literal name at p/factory.py:4, found none"),
    ("upstream", "Factory.", "Works.", "expected Factory.register_it in p/factory.py, found none"),
    ("upstream", "# needs a ring", "", "Second: expected '# needs a ring' at p/factory.py:5, found it nowhere"),
    ("upstream", 'Factory.register_it("F', '\nFactory.register_it("F', "at p/factory.py:5, found it at line 6"),
    ("here", 'version: "1"', 'version: "2"', "expected P 2, found 1"),
    ("here", "  First: {hosted: [real-first]}\n", "", "new name upstream: First (p/factory.py:4), host it"),
    ("here", "  First:", '  Third: {later: x, source: "a:1: b"}\n  First:', "Third: expected P to register it"),
    ("here", "title: t\n", "", "expected a document with the keys"),
    ("here", "{hosted: [real-first]}", "{}", "First: expected one of hosted, cannot, later, found {}"),
    ("here", "{hosted:", "{later: x, hosted:", "First: expected one of hosted, cannot, later, found hosted, later"),
    ("here", "[real-first]}", "real-first}", "First: expected a list of entries of cases/connectors, found 'real-first'"),
    ("here", "[real-first]}", "[real-first], why: x}", "First: expected hosted with by, source, found why"),
    ("here", "cannot: needs a ring", "cannot: a b c d e f g", "Second: expected a reason of at most 6 words"),
    ("here", ', source: "p/factory.py:5: # needs a ring"', "", "Second: expected a source, found none"),
    ("here", "py:5: #", "py: #", "Second: source: expected FILE:LINE: TEXT, found"),
    ("here", "[real-first]}", "[real-gone]}", "First: expected an entry of cases/connectors, found none named real-gone"),
    (
        "here",
        "[real-first]}",
        '[real-first], by: "cases/s/s.yaml: x: y"}',
        "First: expected 'x: y' in cases/s/s.yaml, found none",
    ),
    ("connector", "connector: First", "connector: Second", "First: expected an option First in real-first, found none"),
    ("suite", "real-first", "real-second", "First: expected a suite or a case with real-first, found none"),
)


def problems(folder: Path, texts: dict[str, str]) -> list[str]:
    """Everything that is wrong with such files."""
    files = {"p/factory.py": "upstream", "cases/connectors/c.yaml": "connector", "cases/s/s.yaml": "suite"}
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(texts[text])
    document = yaml.safe_load(texts["here"])
    return list(registry.malformed(document)) or [
        *registry.unhosted(document, folder),
        *registry.different(document, folder, "1"),
    ]


def each_check_fails() -> None:
    with tempfile.TemporaryDirectory(prefix="kvcts registry ") as place:
        folder = Path(place)
        assert problems(folder, WHOLE) == [], problems(folder, WHOLE)
        enum = HERE.replace("Factory.register_it", "Kind")
        assert problems(folder, WHOLE | {"here": enum}) == [], "values of an enumeration are names, too"
        for where, old, new, sentence in BROKEN:
            assert old in WHOLE[where], old
            found = problems(folder, WHOLE | {where: WHOLE[where].replace(old, new)})
            assert any(sentence in one for one in found), f"expected {sentence!r}, found {found}"


def main() -> None:
    documents = registry.read()
    found = [problem for document in documents for problem in registry.malformed(document)]
    assert not found, "\n".join(found)
    for package in sys.argv[1:]:
        about = [document for document in documents if document["package"] == package]
        assert about, f"{registry.FILE}: expected a document with package: {package}, found none"
        if (there := registry.installed(package)) is None:
            print(f"skipped: {about[0]['project']} is not installed: ./run_suite.sh --with {package} install")
            sys.exit(77)
        found += [problem for document in about for problem in registry.different(document, *there)]
        counts = [sum(one in entry for document in about for entry in document["names"].values()) for one in registry.KINDS]
        print(f"{about[0]['project']} {there[1]}: {counts[0]} hosted, {counts[1]} that cannot be, {counts[2]} for later")
    if not sys.argv[1:]:
        found += [problem for document in documents for problem in registry.unhosted(document)]
        each_check_fails()
        print(f"{len(documents)} registries, {len(BROKEN)} checks that fail where they should")
    assert not found, "\n".join(found)


if __name__ == "__main__":
    finish(main)
