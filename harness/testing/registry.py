"""What upstream registers, beside cases/registry.yaml. Reads the source of an installed project and imports none of it.
Each problem is one sentence: what was expected, what was found, what to do."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

try:
    import yaml
except ImportError:
    print("skipped: PyYAML is not installed (./run_suite.sh install)")
    sys.exit(77)

from kvtest import ROOT

FILE = "cases/registry.yaml"
HEAD = {"registry", "title", "project", "package", "version", "file", "reads", "names"}
KINDS = ("hosted", "cannot", "later")
OTHERS = {"hosted": {"by", "source"}, "cannot": {"source"}, "later": {"source"}}
WORDS = 6  # of a reason
SOURCE = re.compile(r"([^:]+):([1-9][0-9]*): (.+)")
BY = re.compile(r"([^:]+): (.+)")
WHERE = """
import importlib.metadata, importlib.util
found = importlib.util.find_spec("{0}")
print(next(iter(found.submodule_search_locations or [])) if found else "")
print(importlib.metadata.version("{0}") if found else "")
"""


def read(file: Path = ROOT / FILE) -> list[dict]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document is not None]


def kind(entry: dict) -> str:
    return next(one for one in KINDS if one in entry)


def malformed(document: object) -> Iterator[str]:
    if not isinstance(document, dict) or set(document) != HEAD or not isinstance(document.get("names"), dict):
        found = ", ".join(map(str, document)) if isinstance(document, dict) else repr(document)
        yield f"{FILE}: expected a document with the keys {', '.join(sorted(HEAD))}, found {found}"
        return
    for name, entry in document["names"].items():
        place = f"{FILE}: {document['registry']}: {name}"
        kinds = [one for one in KINDS if isinstance(entry, dict) and one in entry]
        if len(kinds) != 1:
            yield f"{place}: expected one of {', '.join(KINDS)}, found {', '.join(kinds) or repr(entry)}"
            continue
        (one,) = kinds
        if unknown := set(entry) - {one} - OTHERS[one]:
            yield f"{place}: expected {one} with {', '.join(sorted(OTHERS[one]))}, found {', '.join(sorted(unknown))}"
        if one == "hosted":
            if not entry[one] or not isinstance(entry[one], list):
                yield f"{place}: expected a list of entries of cases/connectors, found {entry[one]!r}"
        else:
            if not 1 <= len(str(entry[one]).split()) <= WORDS:
                yield f"{place}: expected a reason of at most {WORDS} words, found {entry[one]!r}"
            if "source" not in entry:
                yield f"{place}: expected a source, found none; quote upstream: FILE:LINE: TEXT"
        for key, pattern, form in (("source", SOURCE, "FILE:LINE: TEXT"), ("by", BY, "FILE: TEXT")):
            if key in entry and not pattern.fullmatch(str(entry[key])):
                yield f"{place}: {key}: expected {form}, found {entry[key]!r}"


def scalars(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from scalars(one)
    else:
        yield str(value)


def catalogue(root: Path = ROOT) -> dict[str, dict]:
    files = sorted((root / "cases" / "connectors").glob("*.yaml"))
    return {one["connector"]: one for file in files for one in yaml.safe_load_all(file.read_text()) if one}


def used(root: Path = ROOT) -> set[str]:
    """Connectors that a suite or a case names."""
    files = [file for file in (root / "cases").glob("*/*.yaml") if file.parent.name not in ("connectors", "waivers")]
    return {name for file in files for name in re.findall(r"\breal-[\w.-]+", file.read_text())}


def unhosted(document: dict, root: Path = ROOT) -> Iterator[str]:
    """Names said to be hosted that nothing here drives."""
    entries, in_use = catalogue(root), used(root)
    for name, entry in document["names"].items():
        place = f"{FILE}: {document['registry']}: {name}"
        for hosted in entry.get("hosted", []):
            if hosted not in entries:
                yield (
                    f"{place}: expected an entry of cases/connectors, found none named {hosted}; take it out of hosted and "
                    f"say why"
                )
            elif hosted not in in_use:
                yield f"{place}: expected a suite or a case with {hosted}, found none; add one, or take it out of hosted"
            elif not {"by", "source"} & set(entry) and name not in scalars(entries[hosted].get("options")):
                yield f"{place}: expected an option {name} in {hosted}, found none; say by: FILE: TEXT what drives it"
        if "by" in entry:
            file, text = BY.fullmatch(entry["by"]).groups()
            if not (root / file).is_file() or text not in (root / file).read_text():
                yield f"{place}: expected '{text}' in {file}, found none; correct by, or take {name} out of hosted"


def literal(node: ast.expr | None) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def registered(text: str, reads: str) -> Iterator[tuple[str | None, int]]:
    """Names and lines: first arguments of calls of Class.method, or values of class Enum; None: no literal."""
    for node in ast.walk(ast.parse(text)):
        if "." in reads and isinstance(node, ast.Call) and ast.unparse(node.func) == reads:
            named = [word.value for word in node.keywords if word.arg == "name"]
            yield literal(next(iter([*node.args, *named]), None)), node.lineno
        elif isinstance(node, ast.ClassDef) and node.name == reads:
            for statement in node.body:
                if isinstance(statement, ast.Assign):
                    yield literal(statement.value), statement.lineno


def different(document: dict, site: Path, version: str) -> Iterator[str]:
    """How what is installed in the folder `site` differs from the document."""
    project, reads, names = document["project"], document["reads"], document["names"]
    place = f"{FILE}: {document['registry']}"
    if version != str(document["version"]):
        yield f"{place}: expected {project} {document['version']}, found {version}; read its registry, then change version"
    files = {site / document["file"]}
    if "." in reads:  # calls may be anywhere
        files |= {file for file in (site / document["package"]).rglob("*.py") if reads.encode() in file.read_bytes()}
    upstream: dict[str, str] = {}
    for file in sorted(file for file in files if file.is_file()):
        for name, line in registered(file.read_text(), reads):
            where = f"{file.relative_to(site)}:{line}"
            if name is None:
                yield f"{place}: expected a literal name at {where}, found none; teach {Path(__file__).name} to read it"
            else:
                upstream[name] = where
    if not upstream:
        yield f"{place}: expected {reads} in {document['file']}, found none; find where {project} registers now"
        return
    for name in sorted(upstream.keys() - names.keys()):
        yield f"new name upstream: {name} ({upstream[name]}), host it or say why not in {FILE} ({document['registry']})"
    for name in sorted(names.keys() - upstream.keys()):
        yield f"{place}: {name}: expected {project} to register it, found only {', '.join(sorted(upstream))}; take it out"
    for name, entry in names.items():
        if "source" in entry:
            file, line, text = SOURCE.fullmatch(entry["source"]).groups()
            lines = (site / file).read_text().splitlines() if (site / file).is_file() else []
            if text not in (lines[int(line) - 1] if int(line) <= len(lines) else ""):
                now = [number for number, there in enumerate(lines, 1) if text in there]
                found = f"it at line {now[0]}" if now else "it nowhere"
                yield f"{place}: {name}: expected '{text}' at {file}:{line}, found {found}; read upstream's reason again"


def installed(package: str) -> tuple[Path, str] | None:
    """The folder that the package lies in, and its version, by the interpreter that its suite uses."""
    python = os.environ.get(f"KVCTS_PYTHON_{package.upper()}", ROOT / ".venv" / "with" / package / "bin" / "python")
    try:
        asked = subprocess.run([python, "-I", "-c", WHERE.format(package)], stdout=subprocess.PIPE, text=True)
    except OSError:
        return None
    found = asked.stdout.splitlines()
    return (Path(found[0]).parent, found[1]) if asked.returncode == 0 and found and found[0] else None
