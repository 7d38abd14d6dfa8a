"""Makes kvgold importable, and provides a small catalogue so that these tests do not depend on cases/."""

import shutil
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

LAYOUTS = {
    "nhd": 'template: "L x K B N H C"',
    "packed": 'template: "L x { K=0 B H C/x N C%x ; K=1 B H C N }"',
    "footer": 'template: "L x B { N { C=0..448 :e4m3fn ; C=448..512 :bf16 } ; N { scale C=0..7 :e8m0 ; pad 1 } }"\n'
    "fixed: {kv: 1, heads: 1, head_dim: 512}\ndtypes: [bf16]",
}
DTYPES = {
    "bf16": "data: bf16",
    "fp16": "data: fp16",
    "nvfp4": "data: e2m1\nscale: {dtype: e4m3fn, group: 16}\nglobal_scale: fp32",
}


@pytest.fixture
def cases(tmp_path):
    for kind, key, texts in (("layouts", "layout", LAYOUTS), ("dtypes", "dtype", DTYPES)):
        (tmp_path / "cases" / kind).mkdir(parents=True)
        for name, text in texts.items():
            (tmp_path / "cases" / kind / f"{name}.yaml").write_text(f"{key}: {name}\n{text}\n")
    return tmp_path / "cases"


@pytest.fixture
def golden(tmp_path):
    folder = tmp_path / "golden"
    folder.mkdir()
    shutil.copy(HERE / "plan.yaml", folder)
    return folder
