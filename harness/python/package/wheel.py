"""The wheels: wheel.py OUT makes kvcts-VERSION-*.whl for this interpreter and, if that is older than 3.12, the one for 3.12
and everything newer; and kvcts-VERSION-debug.tar.xz, their debug information by build ID.

Programs and data are one CMake build (build-wheel), installed under kvcts/_suite; auditwheel adds the libraries and says
which systems the result is for. Exit status: 0 = made, 3 = something failed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from pathlib import Path
from typing import Optional

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
BUILD = ROOT / "build-wheel"
STABLE = (3, 12)  # nanobind's stable ABI begins there


def say(text: str) -> None:
    print(f"== {text}", file=sys.stderr, flush=True)


def run(*argv: str | Path, **more) -> str:
    done = subprocess.run(
        [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], file=sys.stderr)
        say(f"{Path(argv[0]).name} {' '.join(map(str, argv[1:4]))} ... ended with {done.returncode}")
        sys.exit(3)
    return done.stdout


def has_headers(python: str) -> bool:
    script = "import ensurepip, sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_path('include'))"
    done = subprocess.run([python, "-c", script], capture_output=True, text=True)
    major, minor, include = done.stdout.split() if done.returncode == 0 else ("0", "0", "")
    return (int(major), int(minor)) >= STABLE and Path(include, "Python.h").exists()


def newer_python() -> Optional[str]:
    """An interpreter that can build against the stable ABI: of PATH, or of pyenv, whose shims answer for one only."""
    found = [shutil.which(f"python3.{minor}") for minor in range(STABLE[1], 20)]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions")
    found += sorted(map(str, pyenv.glob("3.*/bin/python3")))
    return next((p for p in found if p and has_headers(p)), None)


def environment(python: str) -> Path:
    """Interpreter of an environment with what builds a wheel, made anew when a pin changes."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    pins = HERE / "wheel-requirements.txt"
    folder = BUILD / f"env-{version}"
    stamp = folder / "pins.txt"
    if not stamp.exists() or stamp.read_bytes() != pins.read_bytes():
        say(f"installing what wheels are made with, for Python {version}")
        shutil.rmtree(folder, ignore_errors=True)
        run(python, "-m", "venv", folder)
        run(folder / "bin/python", "-m", "pip", "-q", "install", "--no-deps", "--require-hashes", "-r", pins)
        shutil.copy(pins, stamp)
    return folder / "bin" / "python"


def build_id(file: Path) -> Optional[str]:
    """Of an ELF file with debug information; None for any other file."""
    with open(file, "rb") as stream:
        if stream.read(4) != b"\x7fELF":
            return None
    notes = subprocess.run(["readelf", "--wide", "-nS", str(file)], capture_output=True, text=True).stdout
    ids = [line.split()[-1] for line in notes.splitlines() if "Build ID:" in line]
    return ids[0] if ids and ".debug_info" in notes else None


def keep_debug(wheel: Path, folder: Path) -> None:
    """Debug information of the programs and plug-ins in the wheel, where gdb and elfutils look for it."""
    with tempfile.TemporaryDirectory() as name:
        zipfile.ZipFile(wheel).extractall(name)
        for file in Path(name).rglob("*"):
            if not file.is_file() or not (found := build_id(file)):
                continue
            target = folder / ".build-id" / found[:2] / f"{found[2:]}.debug"
            if target.exists():  # a program that another wheel has, too
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            run("objcopy", "--only-keep-debug", file, target)


def make(python: Path, out: Path, debug: Path) -> Path:
    """One wheel, for the interpreter of an environment of environment()."""
    environ = {**os.environ, "PATH": f"{python.parent}:{os.environ['PATH']}", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    with tempfile.TemporaryDirectory() as name:
        raw = Path(name)
        options = ("--no-build-isolation", "--no-deps", "-C", f"build-dir={BUILD / 'cmake'}", "--wheel-dir", raw)
        run(python, "-m", "pip", "wheel", *options, HERE, env=environ)
        [built] = raw.glob("*.whl")
        keep_debug(built, debug)
        # Beside the programs, in the folder that a sandbox shows.
        run("auditwheel", "repair", "--strip", "--lib-sdir", "/_suite/lib", "-w", raw / "out", built, env=environ)
        [wheel] = (raw / "out").glob("*.whl")
        return Path(shutil.move(wheel, out / wheel.name))


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("kvcts-*"):
        old.unlink()
    pythons = [sys.executable]
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        say(f"expected the headers of {sys.executable}, found none; apt-get install python3-dev")
        return 3
    if sys.version_info < STABLE:
        newer = newer_python()
        if newer is None:
            say("no Python from 3.12 on with its headers (pyenv has them): the wheel for 3.12 and newer is not made")
        pythons += [newer] if newer else []
    BUILD.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as debug:
        for python in pythons:
            interpreter = environment(python)
            say(f"building the wheel for {python} in build-wheel")
            wheel = make(interpreter, out, Path(debug))
            say(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB")
        archive = out / (wheel.name.split("-cp")[0] + "-debug.tar.xz")
        with tarfile.open(archive, "w:xz", preset=1) as tar:
            tar.add(debug, ".")
        say(f"{archive}: {archive.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
