"""An installation can be moved: `cmake --install` into one folder, the folder renamed, everything found from there, nothing from here."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from kvtest import BUILD, ROOT, finish, kvcts, need_program


def main() -> int:
    need_program()
    with tempfile.TemporaryDirectory(prefix="kvcts install ") as name:
        first, moved = Path(name) / "first", Path(name) / "moved to"
        done = subprocess.run(["cmake", "--install", str(BUILD), "--prefix", str(first)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        first.rename(moved)
        programs = sorted(p for p in (moved / "bin").iterdir())
        plugins = sorted(moved.glob("lib*/**/kvcts/engines/*.so"))
        assert plugins, "no engine plug-in was installed"
        assert (moved / "share/kvcts/cases/layouts").is_dir() and list((moved / "share/kvcts/golden").glob("*.h5"))
        for file in [*programs, *plugins]:
            headers = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True).stdout
            for path in re.findall(r"(?:RUNPATH|RPATH).*\[(.*)\]", headers):
                assert str(BUILD) not in path, f"{file.name} looks for libraries in the build folder: {path}"
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
            assert ended.status == wanted, f"kvcts {' '.join(argv)} ended with {ended.status}: {ended.err or ended.out[-2000:]}"
            assert str(BUILD) not in ended.out and str(ROOT) not in ended.out, f"kvcts {' '.join(argv)} speaks of the build folder"
    print("installed, moved, run: seeds, part of golden, golden verify, doctor")
    return 0


if __name__ == "__main__":
    finish(main)
