"""The wheels: each installed from its file alone into an empty environment, where it does what the guides say.

    wheel_test.py [WHEEL...]

Without a wheel it makes them first (wheel.py). Standard library only, so that it also runs on a bare machine. What needs
NumPy or pytest is tried where this interpreter has them to lend. Exit status 77: no wheel can be made here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import zipfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
LIMIT_MB = 40


def skip(why: str) -> None:
    print(f"skipped: {why}")
    sys.exit(77)


def run(*argv: str | Path, status: int = 0, **more) -> str:
    done = subprocess.run(
        [str(a) for a in argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
        **more,
    )
    if done.returncode != status:
        print(done.stdout[-4000:])
        raise SystemExit(f"{' '.join(map(str, argv))} ended with {done.returncode}, expected {status}")
    return done.stdout


def lend(names: tuple[str, ...], site: Path) -> bool:
    """Links packages of this environment, instead of what pip would fetch. False: they are not here."""
    here = Path(sysconfig.get_paths()["purelib"])
    for name in names:
        found = [p for p in here.iterdir() if re.fullmatch(rf"_?{name}([.-].*)?", p.name, re.IGNORECASE)]
        if not found:
            return False
        for path in found:
            if not (site / path.name).exists():
                (site / path.name).symlink_to(path)
    return True


def interpreters(wheel: Path) -> list[str]:
    """The interpreters of this machine that the wheel is for."""
    tag = wheel.name.split("-")[2]
    found = [sys.executable]
    found += [p for p in (shutil.which(f"python3.{minor}") for minor in range(9, 20)) if p]
    found += map(str, Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob("3.*/bin/python3"))
    script = "import sys, venv, ensurepip; print('%d.%d' % sys.version_info[:2])"
    versions: dict[str, str] = {}
    for python in found:
        said = subprocess.run([python, "-c", script], capture_output=True, text=True).stdout.strip()
        versions.setdefault(said, python)
    fits = [v for v in versions if v and (f"cp{v.replace('.', '')}" == tag or "abi3" in wheel.name and int(v[2:]) >= 12)]
    return [versions[v] for v in fits]


def check_content(wheel: Path) -> None:
    size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}: {size:.1f} MB")
    assert size < LIMIT_MB, f"{size} MB: something in it does not belong there"
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(wheel) as packed:
        names = packed.namelist()
        for wanted in ("bin/kvcts-worker", "include/kvcts/kvcts_transport.h", "lib/kvcts/engines/kvcts_engine_ucx.so"):
            assert f"kvcts/_suite/{wanted}" in names, wanted
        packed.extractall(name)
        for file in Path(name).rglob("*"):
            if file.is_file() and file.read_bytes()[:4] == b"\x7fELF" and shutil.which("readelf"):
                sections = run("readelf", "-SW", file)
                assert ".debug_info" not in sections and "nv_fatbin" not in sections, file.name
                needed = re.findall(r"\(RUNPATH\).*\[(.*)\]", run("readelf", "-dW", file))
                assert all(part.startswith("$ORIGIN") for path in needed for part in path.split(":")), (file.name, needed)


def try_programs(folder: Path, bin_folder: Path) -> None:
    """What the guides do with the program, where nothing but the wheel is installed."""
    kvcts, python = bin_folder / "kvcts", bin_folder / "python"
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KVCTS_", "PYTHON"))}
    here = dict(cwd=folder, env=env)
    said = run(kvcts, "run", "--suite", "seeds", "-j", "2", "--out", "seeds", **here)
    assert "15 cases ended as expected" in said and ("not isolated" in said) == (shutil.which("bwrap") is None), said
    assert run(python, "-m", "kvcts", "--version", **here) == run(kvcts, "--version", **here)
    assert "K B N H C" in run(kvcts, "layouts", "--shape", "2,9,16,8,64", "--heads", "8", **here)
    assert "compatible" in run(kvcts, "check", "--producer", "vllm-fa-nhd", "--consumer", "vllm-fa-nhd", **here)
    assert "ucx" in run(kvcts, "doctor", "--json", **here)
    case = json.loads((folder / "seeds" / "results.json").read_text())["results"][0]["id"]
    run(kvcts, "repro", case, **here)
    ucx = run(kvcts, "list", "--suite", "engines", "--where", "engine == ucx-shm", **here).splitlines()[0]
    said = run(kvcts, "run", "--suite", "engines", "--id", ucx, "--out", "ucx", **here)
    assert "1 PASS" in said, said
    if shutil.which("cc"):
        source = run(python, "-c", "import kvcts; print(kvcts.get_include())", **here).strip()
        template = Path(source).parents[1] / "share/kvcts/template/transport.c"
        run("cc", "-shared", "-fPIC", "-O2", "-I", source, "-o", "kvcts_engine_acme.so", template, **here)
        assert " 0 BROKEN" in run(kvcts, "conformance", folder / "kvcts_engine_acme.so", **here)
        assert "475 PASS" in run(kvcts, "run", "--engine", "kvcts_engine_acme.so", "-j", "2", "--out", "acme", **here)
    if shutil.which("cc") and shutil.which("bwrap"):
        (folder / "product.yaml").write_text(
            "product: ACME\nvendor: ACME\nversion: '1'\n"
            "engine: {engine: acme-1, title: ACME, plugin: kvcts_engine_acme, processes: 2}\n"
        )
        env["KVCTS_ENGINE_PATH"] = str(folder)
        run(kvcts, "key", "new", "key.pem", **here)
        words = ("--profile", "core", "--product", "product.yaml", "--key", "key.pem", "-o", "acme.kvcert", "-j", "2")
        assert "acme.kvcert: ACME" in run(kvcts, "certify", *words, **here)


def try_package(folder: Path, python: Path, site: Path, versions_differ: bool) -> None:
    """The package's README, and a test with the fixture."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("KVCTS_", "PYTHON"))}
    run(python, "-c", "import kvcts; assert len(kvcts.layouts()) > 40, kvcts.layouts()", cwd=folder, env=env)
    if versions_differ or not lend(("numpy", "pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"), site):
        print("  the package: imported only, there is no numpy or pytest to lend")
        return
    [example] = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
    [expected] = re.findall(r"```text\n(.*?)\n\.\.\.", (PACKAGE / "README.md").read_text(), re.S)
    said = run(python, "-c", example, cwd=folder, env=env)
    assert said.startswith(expected), f"README says\n{expected}\nand its example prints\n{said}"
    (folder / "test_it.py").write_text(
        "def test_it(kv_pair):\n    assert 'silently-skipped' in str(kv_pair('LBNHC').diagnose())\n"
    )
    assert "1 passed" in run(python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_it.py", cwd=folder, env=env)


def try_wheel(wheel: Path, interpreter: str) -> None:
    with tempfile.TemporaryDirectory(prefix="kvcts wheel ") as name:  # a blank in the path, on purpose
        folder = Path(name)
        run(interpreter, "-m", "venv", folder / "clean")
        python = folder / "clean" / "bin" / "python"
        env = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        env.pop("PYTHONPATH", None)
        begin = time.monotonic()
        run(python, "-m", "pip", "install", "--no-index", wheel.resolve(), env=env)
        installed = time.monotonic() - begin
        run(
            folder / "clean/bin/kvcts",
            "run",
            "--suite",
            "seeds",
            "--id",
            "seeds/flashinfer-600",
            "--out",
            "first",
            cwd=folder,
            env=env,
        )
        version = run(python, "--version").split()[1]
        print(f"  Python {version}: installed in {installed:.1f} s, first verdict after {time.monotonic() - begin:.1f} s")
        try_programs(folder, python.parent)
        site = next((folder / "clean" / "lib").glob("python3*/site-packages"))
        try_package(folder, python, site, version.split(".")[1] != str(sys.version_info[1]))


def main() -> int:
    wheels = [Path(name) for name in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as out:
        if not wheels:
            if not Path(sysconfig.get_paths()["include"], "Python.h").exists():
                skip("Python's headers are not installed (apt-get install python3-dev)")
            for program in ("cmake", "ninja"):
                if not shutil.which(program):
                    skip(f"{program} is not installed")
            if importlib.util.find_spec("pip") is None:
                skip(f"pip is not installed for {sys.executable}")
            subprocess.run([sys.executable, PACKAGE / "wheel.py", out], check=True, timeout=3000)
            wheels = sorted(Path(out).glob("*.whl"))
        for wheel in wheels:
            check_content(wheel)
            fitting = interpreters(wheel)
            assert fitting, f"no interpreter on this machine that {wheel.name} is for"
            for interpreter in fitting:
                try_wheel(wheel, interpreter)
    print(f"{len(wheels)} wheels work")
    return 0


if __name__ == "__main__":
    sys.exit(main())
