"""An installation can be moved: `cmake --install` into one folder, the folder renamed, everything found from there,
nothing from here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import elf_test
from kvtest import BUILD, ROOT, finish, kvcts, need_program, sandbox_works


ENGINE = "engine: acme\ntitle: built outside\nplugin: kvcts_engine_acme\nprocesses: 2\n"
IN_MEMORY = ENGINE.replace("engine: acme\n", "engine: acme-memory\n") + "options: {memory_provider: kvcts_memory_acme}\n"


def vendor(installed: Path, place: Path) -> None:
    """What a vendor has with an installation and no source: headers, templates, a compiler."""
    work = place / "vendor"
    work.mkdir()
    template, headers = installed / "share/kvcts/template", next(installed.glob("include/kvcts"))
    for source, library in (("transport.c", "kvcts_engine_acme.so"), ("memory.c", "kvcts_memory_acme.so")):
        lines = len((template / source).read_text().splitlines())
        assert lines < 270, f"{source} has {lines} lines"
        built = subprocess.run(
            [
                "cc",
                "-shared",
                "-fPIC",
                "-O2",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fvisibility=hidden",
                "-I",
                str(headers),
                "-o",
                str(work / library),
                str(template / source),
            ],
            capture_output=True,
            text=True,
        )
        assert built.returncode == 0, built.stderr
    (installed / "share/kvcts/cases/engines/acme.yaml").write_text(ENGINE)
    (installed / "share/kvcts/cases/engines/acme-memory.yaml").write_text(IN_MEMORY)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "KVCTS_ENGINE_PATH": str(work)}
    pairs = [
        f"kv/producer={a}/consumer={b}/dtype={dtype}/engine={engine}{op}"
        for a, b, dtype in (("vllm-fa-nhd", "vllm-fa-hnd", "fp16"), ("vllm-xformers", "flashinfer-nhd", "fp8_e4m3"))
        for engine in ("acme", "acme-memory")
        for op in ("", "/op=read")
    ]
    for argv in (
        ["conformance", str(work / "kvcts_engine_acme.so")],
        ["conformance", "acme-memory"],
        ["run", *(word for pair in pairs for word in ("--id", pair)), "--out", str(place / "acme")],
    ):
        ended = kvcts(*argv, program=installed / "bin" / "kvcts", env=env, cwd=work, timeout=300)
        assert ended.status == 0, f"kvcts {' '.join(argv)} ended with {ended.status}: {ended.err or ended.out[-2000:]}"


def certificate(installed: Path, place: Path) -> None:
    """From a key to a verdict, by both verifiers, with what an installation has."""
    work, tool = place / "vendor", installed / "bin" / "kvcts"
    (work / "product.yaml").write_text(
        "product: ACME\nvendor: ACME\nversion: '1'\nengine: {"
        + ENGINE.replace("acme\n", "acme-1\n", 1).strip().replace("\n", ", ")
        + "}\n"
    )
    env = {"PATH": "/usr/bin:/bin", "HOME": str(place), "KVCTS_ENGINE_PATH": str(work)}

    def does(*argv: str) -> str:
        ended = kvcts(*argv, program=tool, env=env, cwd=work, timeout=300)
        assert ended.status == 0, f"kvcts {' '.join(argv)} ended with {ended.status}: {ended.err or ended.out[-2000:]}"
        return ended.out

    (work / "key.pub").write_text(does("key", "new", "key.pem"))
    (work / "challenge.json").write_text(does("challenge", "--negatives", "3"))
    does(
        "certify",
        "--profile",
        "disaggregated",
        "--product",
        "product.yaml",
        "--key",
        "key.pem",
        "--challenge",
        "challenge.json",
        "-o",
        "acme.kvcert",
        "-j",
        "2",
    )
    seen = does("verify", "acme.kvcert", "--key", "key.pub", "--challenge", "challenge.json", "--replay", "5")
    assert "of 239 cases: ACME 1 passes all 239" in seen and "3 blind negatives caught" in seen, seen
    ours = kvcts("verify", "acme.kvcert", "--key", "key.pub", "--challenge", "challenge.json", cwd=work)
    assert ours.status == 0 and "TOLD" in ours.out, ("a checkout takes what an installation made", ours)
    second = subprocess.run(
        [
            sys.executable,
            str(installed / "share/kvcts/verify/verify.py"),
            "acme.kvcert",
            "--key",
            "key.pub",
            "--challenge",
            "challenge.json",
        ],
        cwd=work,
        capture_output=True,
        text=True,
    )
    assert second.returncode == 0 or "cryptography" in second.stderr, second


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts install ") as name:
        first, moved = Path(name) / "first", Path(name) / "moved to"
        done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(first)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        first.rename(moved)
        plugins = sorted(moved.glob("lib*/**/kvcts/engines/*.so"))
        assert plugins, "no engine plug-in was installed"
        assert (moved / "share/kvcts/cases/layouts").is_dir() and list((moved / "share/kvcts/golden").glob("*.h5"))
        elf_test.hold([moved])
        clean = {"PATH": "/usr/bin:/bin", "HOME": name}
        tool = moved / "bin" / "kvcts"
        for argv, wanted in (
            (["list", "--suite", "smoke"], 0),
            (["run", "--suite", "seeds", "--out", str(Path(name) / "run")], 0),
            (["run", "--suite", "golden", "--shard", "1/8", "--out", str(Path(name) / "golden")], 0),
            (["golden", "verify", "--no-python"], 0),
            (["doctor"], 0),
        ):
            ended = kvcts(*argv, program=tool, env=clean, cwd=Path(name))
            assert ended.status == wanted, (
                f"kvcts {' '.join(argv)} ended with {ended.status}: {ended.err or ended.out[-2000:]}"
            )
            assert f"{BUILD}/" not in ended.out and f"{ROOT}/" not in ended.out, (
                f"kvcts {' '.join(argv)} speaks of the build folder"
            )
        vendor(moved, Path(name))
        if sandbox_works():
            certificate(moved, Path(name))
        else:
            print("no certificate: there is no sandbox here")
    print(
        "installed, moved, run: seeds, part of golden, golden verify, doctor; a vendor's transport built against it, "
        "conforms, moves caches"
    )
    return 0


if __name__ == "__main__":
    finish(main)
