"""The templates pass the conformance test; a program with a fault does not; the suite's own messages match the
schema."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
BUILD = Path(os.environ.get("KVCTS_BINARY_DIR", HERE.parents[2] / "build"))
TEMPLATE = [sys.executable, str(HERE / "template.py")]


def conformance(argv, *options):
    run = subprocess.run(
        [sys.executable, str(HERE / "conformance.py"), *options, "--", *argv], capture_output=True, text=True, timeout=120
    )
    return run.returncode, run.stdout


def test_the_templates_conform():
    programs = [TEMPLATE]
    if (BUILD / "lib/kvcts/connectors/template").exists():
        programs.append([str(BUILD / "lib/kvcts/connectors/template")])
    for argv in programs:
        status, out = conformance(argv)
        assert status == 0 and out.endswith("10 of 10\n"), out


@pytest.mark.parametrize("program", ["mooncake_store.py", "mooncake_transfer.py"])
def test_mooncake_conforms(program):
    status, out = conformance([sys.executable, str(HERE / program)])
    if status == 77:
        pytest.skip(out.strip().splitlines()[-1])
    assert status == 0 and out.endswith("10 of 10\n"), out


def test_they_are_short():
    for name in ("template.py", "template.cpp"):
        assert len((HERE / name).read_text().splitlines()) < 200


@pytest.mark.parametrize(
    "fault, words",
    [
        ("garbage", "FAILED"),
        ("wrong-id", "expected the answer to call"),
        ("no-state", "'state' is a required property"),
        ("exit", "closed its socket"),
        ("raise", "not enough values to unpack"),
        ("nothing", "of the destination"),
        ("early", "the producer had answered done"),
        ("miscounted", "it reports that 6144 bytes moved"),
        ("load-errors", "load errors of blocks"),
        ("register:raise", "expected done"),
        ("release:raise", "expected done"),
        ("poll:raise", "expected done"),
        ("shutdown:immortal", "no answer within"),
        ("transfer:pending", "pending for more than"),
        ("hello:raise", "FAILED"),
    ],
)
def test_a_fault_is_found(fault, words):
    status, out = conformance([sys.executable, str(HERE / "hostile.py")], "--timeout", "1", "--option", f"fault={fault}")
    assert status == 1 and "FAILED" in out and words in out, out


def test_what_is_missing_is_a_skip():
    status, out = conformance([sys.executable, str(HERE / "hostile.py")], "--option", "fault=hello:skip")
    assert status == 77 and "pip install it" in out


def test_the_suites_calls_have_the_schemas_form(tmp_path):
    pytest.importorskip("jsonschema")
    kvcts = BUILD / "bin" / "kvcts"
    if not kvcts.exists():
        pytest.skip("kvcts is not built")
    case = """case: t/valid-{n}
geometry: {{base: small, layers: 2}}
dtype: {dtype}
producer: {{layout: {layout}}}
connector: hostile-program
engine: own
op: {op}
engine_options: {{fault: validate}}
"""
    cases = [("bf16", "vllm-fa-nhd", "write"), ("nvfp4", "flashinfer-hnd", "read"), ("fp8_e4m3", "vllm-xformers", "write")]
    (tmp_path / "valid.yaml").write_text(
        "---\n".join(case.format(n=n, dtype=d, layout=l, op=o) for n, (d, l, o) in enumerate(cases))
    )
    environment = {**os.environ, "KVCTS_PYTHON": sys.executable}
    run = subprocess.run(
        [str(kvcts), "run", "--file", str(tmp_path / "valid.yaml"), "--out", str(tmp_path / "run"), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    results = json.loads((tmp_path / "run" / "results.json").read_text())["results"]
    assert [r["outcome"] for r in results] == ["PASS"] * 3
