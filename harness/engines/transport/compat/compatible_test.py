"""Today's headers still are version 1: every declaration of the verbatim copies in v1/ is in them, in its place and as
it was. Structures and enums may only grow at the end. That plug-ins which were built against the copies still load and
conform is asked by rules.conformance and engines/conformance_test.cpp (template_v1)."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
FROZEN = {
    "kvcts_transport.h": "bbfb61dcff2eda1605a0450888c5663e989bc4d9d65e727de2f742f0eee33521",
    "kvcts_memory.h": "9f50b7607a986c1ab00785b0fce4476629aa4e067f2872042b1bb341e872f03f",
}


def declarations(text: str) -> dict[str, list[str]]:
    """Name -> members in order: structs, enums (by their first enumerator), and what stands alone."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.S)
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r"^#define (\w+(?:\([^)]*\))?)[ \t]+((?:[^\n\\]|\\\n)+)", text, flags=re.M):
        found[f"#define {name}"] = [" ".join(value.replace("\\\n", " ").split())]
    text = re.sub(r"^#(?:[^\n\\]|\\\n)*", " ", text, flags=re.M)
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, flags=re.S):
        found[f"struct {name}"] = [" ".join(member.split()) for member in body.split(";") if member.strip()]
    for body in re.findall(r"enum \{(.*?)\}", text, flags=re.S):
        members = [" ".join(member.split()) for member in body.split(",") if member.strip()]
        found[f"enum of {members[0].split()[0]}"] = members
    rest = re.sub(r"typedef struct \w+ \{.*?\} \w+;|enum \{.*?\};", " ", text, flags=re.S)
    for declaration in rest.split(";"):
        if words := " ".join(declaration.replace('extern "C" {', "").replace("}", "").split()):
            found[words] = []
    return found


def differences(old: str, new: str) -> list[str]:
    now = declarations(new)
    problems = []
    for name, members in declarations(old).items():
        if name not in now:
            problems.append(f"{name} is gone")
        elif now[name][: len(members)] != members:
            at = next((i for i, member in enumerate(members) if i >= len(now[name]) or now[name][i] != member), 0)
            problems.append(
                f"{name}: expected '{members[at]}' at place {at}, found "
                f"'{now[name][at] if at < len(now[name]) else 'nothing'}'"
            )
        elif len(now[name]) > len(members) and not (
            name.startswith("struct ") and members and members[0] == "uint64_t size"
        ):
            problems.append(f"{name}: has new members, and only structures with a size may grow")
    return problems


def main() -> int:
    problems = []
    for file, digest in FROZEN.items():
        old, new = (HERE / "v1" / file).read_text(), (HERE.parent / file).read_text()
        if hashlib.sha256(old.encode()).hexdigest() != digest:
            problems.append(f"compat/v1/{file} is a verbatim copy of version 1 and has been changed")
        problems += [f"{file}: {problem}" for problem in differences(old, new)]
        if len(declarations(old)) < 8:
            problems.append(f"{file}: only {len(declarations(old))} declarations were read")
        # What must be found: an exchange, a removal, another type, another value, a longer array element; and what may be.
        struct = "typedef struct kvcts_error {" if "kvcts_error {" in old else "typedef struct kvcts_allocation {"
        changes = {
            "removed": re.sub(r"(\{\s*uint64_t size;[^;]*;)([^;]*;)", r"\1", old, count=1),
            "exchanged": re.sub(r"(uint64_t size;[^;]*?)\n([^;]*;)([^;]*;)", r"\1\n\3\2", old, count=1),
            "retyped": old.replace("uint64_t bytes;", "uint32_t bytes;", 1),
            "renumbered": re.sub(r"_ABI 1u", "_ABI 2u", old, count=1),
        }
        problems += [
            f"{file}: a member that is {what} is not seen"
            for what, text in changes.items()
            if text == old or not differences(old, text)
        ]
        grown = re.sub(r"(\n\} kvcts_(?:transport|memory);)", r"\n  int32_t (*later)(void);\1", old)
        problems += [f"{file}: an optional call at the end of the table is refused: {d}" for d in differences(old, grown)]
        problems += [f"{file}: {struct} not read"] if struct not in old else []
    print("\n".join(problems) or "both headers are compatible with version 1")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
