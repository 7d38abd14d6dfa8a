"""The suite works wherever it stands: a clone with its build, and an installation, in each folder that the sandbox replaces,
called from inside and from elsewhere, with an environment that names nothing. Where the sandbox does not start, the run says
why, as its own error."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from kvtest import BUILD, KVCTS, ROOT, finish, kvcts, need_program, results, sandbox_works

HOME = "/mnt"  # of the user inside
VENV = f"{HOME}/venv"
REPLACED = ["/tmp", "/var/tmp", "/run", HOME]
PLACES = ["/tmp/place", "/var/tmp/place", "/run/place", f"{HOME}/.cache/place"]
CASE = """case: my/first
producer: {layout: vllm-fa-nhd}
consumer: {layout: vllm-fa-hnd}
controls:
  - {name: shm, set: {engine: shm}}
  - {name: program, set: {consumer: {layout: vllm-fa-nhd}, connector: python-template, engine: own}}
"""
# Passes the suite's own try, then fails as bubblewrap does.
BROKEN = """#!/bin/sh
for word; do [ "$word" = probe ] && exit 0; done
echo "bwrap: Can't make symlink at /tmp/place: File exists" >&2
exit 1
"""


def copy(folder: Path) -> Path:
    """A clone of the checkout, with what was built here."""
    subprocess.run(["git", "clone", "-q", "--no-hardlinks", str(ROOT), str(folder)], check=True)
    (folder / "build").mkdir()
    for part in ("bin", "lib", "share"):
        shutil.copytree(BUILD / part, folder / "build" / part, symlinks=True, ignore=shutil.ignore_patterns("kvcts_test_*"))
    (folder / ".venv").symlink_to(ROOT / ".venv")
    return folder


def run_at(tree: Path, place: str, cwd: str, program: str, **variables: str) -> None:
    """Runs the case where `tree` stands at `place`, in a mount namespace, for which no root is needed."""
    script = f"cat > {HOME}/first.yaml && cd {cwd} && exec {place}/{program} run --file {HOME}/first.yaml --out {HOME}/run"
    fresh = [word for folder in {HOME, next(f for f in REPLACED if place.startswith(f))} for word in ("--tmpfs", folder)]
    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *fresh, "--ro-bind", str(ROOT / ".venv"), VENV, "--bind", str(tree), place]
        + ["sh", "-c", script],
        input=CASE,
        text=True,
        capture_output=True,
        env={"PATH": "/usr/bin:/bin", "HOME": HOME, **variables},
        timeout=120,
    )
    assert done.returncode == 0 and "3 PASS" in done.stdout, f"{place} from {cwd}: {done.stdout}{done.stderr}"


def main() -> int:
    need_program()
    if not sandbox_works():
        print("skipped: there is no sandbox here")
        return 77
    with tempfile.TemporaryDirectory(prefix="kvcts-places-") as name:
        folder = Path(name)
        installed = folder / "installed"
        subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(installed)], check=True, stdout=subprocess.DEVNULL)
        for place in PLACES:
            for cwd in (place, "/"):
                run_at(ROOT, place, cwd, f"{BUILD.relative_to(ROOT)}/bin/kvcts")
            run_at(installed, place, "/", "bin/kvcts", KVCTS_PYTHON=f"{VENV}/bin/python")

        clone = copy(folder / "clone")
        clean = {"PATH": "/usr/bin:/bin", "HOME": name}
        ended = kvcts("run", "--suite", "seeds", env=clean, cwd=clone, program=clone / "build/bin/kvcts")
        assert ended.status == 0 and "ended as expected" in ended.out, f"seeds in {clone}: {ended.out}{ended.err}"

        fake = folder / "bwrap"
        fake.write_text(BROKEN)
        fake.chmod(0o755)
        (folder / "first.yaml").write_text(CASE)
        # Instead of the machine's own: one that stands first in PATH is not asked.
        ended = subprocess.run(
            ["bwrap", "--dev-bind", "/", "/", "--ro-bind", str(fake), os.path.realpath(str(shutil.which("bwrap")))]
            + [str(KVCTS), "run", "--file", str(folder / "first.yaml"), "--out", str(folder / "run")],
            text=True,
            capture_output=True,
            cwd=folder,
            env=clean,
            timeout=120,
        )
        assert ended.returncode == 3, f"a sandbox that does not start ended with {ended.returncode}: {ended.stdout}"
        for result in results(folder / "run"):
            assert result["outcome"] == "ERROR" and "bwrap: Can't make symlink" in result["message"], result
    print(f"{len(PLACES)} places, a checkout and an installation in each; seeds in a clone below {Path(name).parent}")
    return 0


if __name__ == "__main__":
    finish(main)
