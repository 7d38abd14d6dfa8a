"""LMCache's own detection against the repository's facts: the oracle's answers, and the formats that the catalogue's
layouts name. Skipped without an LMCache environment (./run_suite.sh --with lmcache install)."""

import json
import os
import subprocess
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
ORACLE = ROOT / "cases" / "oracles" / "lmcache_formats.json"
PYTHON = Path(os.environ.get("KVCTS_PYTHON_LMCACHE") or ROOT / ".venv" / "with" / "lmcache" / "bin" / "python")
# No detector answers with these: older forms of 12 and 13, distinguished by rank 4 and the hint.
NOT_DETECTED = {
    "NL_X_NB_NH_BS_TWO_HS": "NL_X_NB_TWO_NH_BS_HS",
    "NL_X_NB_BS_NH_TWO_HS": "ERR unsupported kv_caches structure for EngineType.VLLM",
}


@pytest.fixture(scope="module")
def detected():
    if not PYTHON.exists():
        pytest.skip(f"there is no environment lmcache: ./run_suite.sh --with lmcache install ({PYTHON})")
    run = subprocess.run(
        [str(PYTHON), str(HERE / "detected_formats.py"), str(ORACLE)], capture_output=True, text=True, timeout=240
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return json.loads(run.stdout.splitlines()[-1])


def test_every_hint_gives_what_the_oracle_says(detected):
    known = {
        name: entry["detected_as"]
        for name, entry in json.loads(ORACLE.read_text())["formats"].items()
        if "structure" in entry
    }
    assert len(known) == 17
    for name, answers in known.items():
        assert detected[name] == answers, name


def hint_of(name, engine, order):
    if engine == "SGLang":
        return "sglang/unified" if name == "NL_X_NB_BS_NH_HS" else "sglang/nohint"
    return "trtllm" if engine == "TRT-LLM" else f"vllm/{order}"


def test_the_catalogues_formats_are_detected_as_themselves(detected):
    formats = json.loads(ORACLE.read_text())["formats"]
    seen = 0
    for path in sorted((ROOT / "cases" / "layouts").glob("lmcache-*.yaml")):
        layout = yaml.safe_load(path.read_text())
        name = layout.get("names", {}).get("lmcache")
        if not any(user["backend"] == "EngineKVFormat" for user in layout.get("used_by", [])) or name not in detected:
            continue
        engine = formats[name]["backends"][0].split()[0]
        hint = hint_of(name, engine, layout["names"].get("flashinfer", "NHD"))
        assert detected[name][hint] == NOT_DETECTED.get(name, name), f"{path.name} under {hint}"
        seen += 1
    assert seen == 17
