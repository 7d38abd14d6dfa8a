"""The wheel: built without network and installed into a separate environment; runs its README's example and a test with
the fixture.

Skipped if the build tools are not installed. The device kernels are left out: compiling them is tested elsewhere and
takes minutes."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(77)


def run(*argv: str | Path, **more) -> str:
    done = subprocess.run(
        [str(a) for a in argv], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=3000, **more
    )
    if done.returncode != 0:
        print(done.stdout[-4000:], done.stderr[-4000:])
        raise SystemExit(f"{argv[0]} ... {argv[-1]} ended with {done.returncode}")
    return done.stdout


def lend(name: str, site: Path) -> None:
    """Links a package of this environment, instead of what pip would fetch."""
    here = Path(sysconfig.get_paths()["purelib"])
    found = [p for p in here.iterdir() if re.fullmatch(rf"_?{name}([.-].*)?", p.name, re.IGNORECASE)]
    assert found, f"{name} is not in {here}"
    for path in found:
        (site / path.name).symlink_to(path)


def main() -> int:
    for module in ("nanobind", "scikit_build_core", "pathspec", "numpy", "pip"):
        if importlib.util.find_spec(module) is None:
            skip(f"{module} is not installed for {sys.executable} (./run_suite.sh install)")
    if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
        skip("Python's headers are not installed (apt-get install python3-dev)")
    for program in ("cmake", "ninja"):
        if not shutil.which(program):
            skip(f"{program} is not installed")

    with tempfile.TemporaryDirectory(prefix="kvcts wheel ") as name:  # a blank in the path, on purpose
        folder = Path(name)
        env = {**os.environ, "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        for leak in ("PYTHONPATH", "KVCTS_CASES"):
            env.pop(leak, None)
        run(
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "--no-build-isolation",
            "--no-deps",
            "--wheel-dir",
            folder,
            "-C",
            "cmake.define.KVCTS_CUDA=OFF",
            "-C",
            f"build-dir={folder / 'build'}",
            PACKAGE,
            env=env,
        )
        [wheel] = folder.glob("kvcts-*.whl")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB")
        assert wheel.stat().st_size < 8e6, "a wheel this large has something in it that does not belong there"

        run(sys.executable, "-m", "venv", "--without-pip", folder / "clean")
        python = folder / "clean" / "bin" / "python"
        site = next((folder / "clean" / "lib").glob("python3*/site-packages"))
        for name in ("numpy",):
            lend(name, site)
        run(sys.executable, "-m", "pip", "--python", python, "install", wheel, env=env)

        [example] = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
        [expected] = re.findall(r"```text\n(.*?)\n\.\.\.", (PACKAGE / "README.md").read_text(), re.S)
        plain = example  # without ml_dtypes bf16 is shown as uint16
        said = run(python, "-c", plain, env=env, cwd=folder)
        assert said.startswith(expected), f"README says\n{expected}\nand its example prints\n{said}"
        assert "site-packages" in run(python, "-c", "import kvcts; print(kvcts.__file__)", env=env, cwd=folder)
        listed = run(python, "-c", "import kvcts; print(len(kvcts.layouts()))", env=env, cwd=folder)
        assert int(listed) == len(list((PACKAGE.parents[2] / "cases" / "layouts").glob("*.yaml"))), listed

        for name in ("pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"):
            lend(name, site)
        (folder / "test_it.py").write_text(
            "def test_it(kv_pair):\n    assert 'silently-skipped' in str(kv_pair('LBHNC').diagnose())\n"
        )
        print(
            run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", env=env, cwd=folder)
            .strip()
            .splitlines()[-1]
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
