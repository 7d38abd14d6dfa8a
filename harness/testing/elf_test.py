"""Programs, plug-ins and modules search for libraries beside themselves and in the system, never in the folder where they
are called: each entry of RUNPATH begins with $ORIGIN. elf_test.py [FOLDER...]: there instead of in the build tree."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from kvtest import BUILD, finish, need_program

ENTRY = re.compile(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]")


def elf_files(folder: Path) -> list[Path]:
    """Of all that is linked there: executables, shared objects."""
    found = []
    for path in sorted(folder.rglob("*")):
        if path.is_symlink() or not path.is_file() or path.suffix in (".o", ".a", ".gch"):
            continue
        with path.open("rb") as file:
            head = file.read(18)
        if head[:4] == b"\x7fELF" and head[16] in (2, 3):  # ET_EXEC, ET_DYN
            found.append(path)
    return found


def hold(folders: list[Path]) -> int:
    """Asserts that every ELF file there searches beside itself; returns how many there are."""
    files, wrong = [path for folder in folders for path in elf_files(folder)], []
    for path in files:
        told = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        for paths in ENTRY.findall(told):
            if not all(entry == "$ORIGIN" or entry.startswith("$ORIGIN/") for entry in paths.split(":")):
                wrong.append(f"{path.name}: RUNPATH [{paths}], expected entries below $ORIGIN only")
    assert not wrong, "; ".join(wrong)
    return len(files)


def main() -> int:
    need_program()
    folders = [Path(word) for word in sys.argv[1:]] or [BUILD / "bin", BUILD / "lib", BUILD / "python"]
    count = hold(folders)
    assert count > 10, f"only {count} ELF files below {', '.join(map(str, folders))}"
    print(f"{count} programs and libraries search beside themselves and in the system only")
    return 0


if __name__ == "__main__":
    finish(main)
