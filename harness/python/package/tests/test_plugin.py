"""The fixture as users see it: a user's test, run by pytest in a separate process."""

import subprocess
import sys
from pathlib import Path

TEST = """
def test_connector(kv_pair):
    pair = kv_pair("vllm-fa-nhd", layers=1)
    source, target = (cache.tensors.view("u2") for cache in (pair.producer, pair.consumer))
    for s, t in zip(pair.source_blocks, pair.target_blocks):
        target[:, t] = source[{index}, s]
    pair.verify()
"""


def run(folder: Path, index: str) -> subprocess.CompletedProcess:
    (folder / "test_it.py").write_text(TEST.format(index=index))
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "kvcts.pytest_plugin", str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
    )


def test_a_failure_shows_the_diagnosis(tmp_path):
    wrong = run(tmp_path, "::-1")
    assert wrong.returncode == 1 and "K and V are exchanged in 'transfer of request 0': explains 100 % of" in wrong.stdout, (
        wrong.stdout
    )
    assert "WrongBytes" in wrong.stdout and "cache.py" not in wrong.stdout  # the traceback ends in the test
    right = run(tmp_path, ":")
    assert right.returncode == 0 and "1 passed" in right.stdout, right.stdout


PERMUTE = """
import kvcts, pytest

@pytest.mark.parametrize("backend", ["flashinfer:NHD", "flash_attn@0.25"])
def test_permute(kv_cache, backend):
    cache = kv_cache(backend, layers=1)
    out = cache.layout.like("flashinfer:HND").empty()
    out.view("u2")[...] = cache.tensors.view("u2").transpose(0, 1, 3, 2, 4)
    out.view("u2")[cache.blocks[1], 0, 0, 0, 0] ^= {flip}
    kvcts.assert_kv_equal(out, cache, layout="flashinfer:HND")
"""


def test_kv_cache_in_a_users_test(tmp_path):
    (tmp_path / "test_it.py").write_text(PERMUTE.format(flip=0))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "kvcts.pytest_plugin", str(tmp_path)]
    right = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert right.returncode == 0 and "2 passed" in right.stdout, right.stdout
    (tmp_path / "test_it.py").write_text(PERMUTE.format(flip=1))
    wrong = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert wrong.returncode == 1 and "2 of 3 right; wrong: " in wrong.stdout, wrong.stdout
    assert "WrongBytes" in wrong.stdout and "filled.py" not in wrong.stdout  # the traceback ends in the test
