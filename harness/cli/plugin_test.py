"""--engine FILE: a plug-in that no file of cases/ names is listed, run, resumed and reproduced, and a wrong file is one
sentence."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "testing"))
from kvtest import BUILD, KVCTS, ROOT, expect, finish, kvcts, need_program, results  # noqa: E402

TEMPLATE = ROOT / "harness/engines/transport/template/transport.c"
SHORT = "memmove(there, here, d->bytes - 1)"
PLUGIN = str(BUILD / "harness/engines/example/kvcts_engine_template_now.so")
HOSTILE = BUILD / "harness/engines/transport/hostile"
CASE = "kv/producer=vllm-fa-nhd/consumer=vllm-fa-hnd/engine=acme"


def works(folder: Path) -> None:
    ids = expect(0, "list", "--engine", PLUGIN).splitlines()
    assert len(ids) > 400 and all("engine=acme" in one for one in ids), ids[:3]
    run = str(folder / "run")
    expect(0, "run", "--engine", PLUGIN, "--id", CASE, "--out", run, "--seed", "7")
    [one] = results(Path(run))
    assert one["outcome"] == "PASS" and one["id"] == CASE, one
    expect(0, "run", "--resume", run)
    assert kvcts("list", "--id", CASE).status != 0, "nothing else knows the engine"


def wrong_bytes(folder: Path) -> None:
    """The line of a failure brings the plug-in back, from any folder."""
    (folder / "short.c").write_text(TEMPLATE.read_text().replace("memmove(there, here, d->bytes)", SHORT))
    compiler = ["cc", "-shared", "-fPIC", "-O2", f"-I{TEMPLATE.parents[1]}", "-o", "short.so", "short.c"]
    subprocess.run(compiler, cwd=folder, check=True)
    said = kvcts("run", "--engine", "./short.so", "--id", CASE, "--out", "wrong", cwd=folder)
    lines = re.findall(r"KVCTS_PRODUCT=\S+ (?:KVCTS_PYTHON=\S+ )?kvcts repro \S+", said.out)
    assert said.status == 1 and lines, said
    again = subprocess.run(
        lines[0].replace("kvcts repro", f"{KVCTS} repro"), shell=True, cwd="/", capture_output=True, text=True
    )
    assert again.returncode == 1 and "FAIL truncated" in again.stdout, again


def refused(folder: Path) -> None:
    no_plugin = folder / "text.so"
    no_plugin.write_text("no library\n")
    expect(2, "list", "--engine", str(no_plugin), err="--engine expects a transport's plug-in, a shared library")
    expect(2, "list", "--engine", str(folder / "none.so"), err="none.so")
    for kind in ("no_entry", "null_entry", "wrong_version", "no_agent"):
        expect(2, "list", "--engine", str(HOSTILE / f"kvcts_hostile_{kind}.so"), err="does not answer: ")
    own = str(BUILD / "lib/kvcts/engines/kvcts_engine_memcpy.so")
    expect(2, "list", "--engine", own, err="expected a new engine id, found 'memcpy'")


def main() -> None:
    need_program()
    with tempfile.TemporaryDirectory() as name:
        works(Path(name))
        wrong_bytes(Path(name))
        refused(Path(name))


if __name__ == "__main__":
    finish(main)
