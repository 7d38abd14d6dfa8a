"""The page of benchmarks: rows below target are bold, listed and explained; a quick run is refused."""

import copy

import pytest
import write_table

MACHINE = {
    "cpu": "Model",
    "processors": 2,
    "memory_gib": 8.0,
    "os": "Linux",
    "isa": "avx2",
    "compiler": "12",
    "load": 0.1,
    "date": "2026-01-02T03:04:05Z",
}


def row(name, ratio, target=0.8, why="", threads=1):
    return {
        "name": name,
        "family": name.split("/")[0],
        "against": "memset",
        "buffer_bytes": 256 << 20,
        "threads": threads,
        "bytes": 1,
        "speed": ratio * 1e10,
        "reference_speed": 1e10,
        "ratio": ratio,
        "target": target,
        "repetitions": 5,
        "why": why,
    }


def run(rows, **more):
    return {"program": "kvcts_bench", "quick": False, "machine": MACHINE, "rows": rows, "skipped": [], **more}


def test_short_rows_are_bold_and_explained():
    text = write_table.page([run([row("tags/a", 0.9), row("tags/b", 0.5, why="many keys"), row("tags/b", 0.95, threads=2)])])
    assert "| `tags/a` | memset | 0.80 | 0.90 |  |" in text
    assert "| `tags/b` | memset | 0.80 | **0.50** | 0.95 |" in text
    assert "- `tags/b`, 256 MiB, 1 thread: 0.50 (wanted 0.80); many keys" in text
    assert "Measured 2026-01-02 on Model, 2 processors" in text
    assert "- `tags/a`" not in text


def test_a_run_in_the_caches_tells_why():
    inside = run([{**row("tags/a", 0.2), "buffer_bytes": 1 << 20, "speed": 6e9}])
    text = write_table.page([run([row("tags/a", 0.5, why="many keys"), row("tags/b", 0.5)]), inside])
    assert "0.50 (wanted 0.80); many keys; 5.0 GB/s, memset 10.0; with all buffers in the caches one thread does 6.0" in text
    assert "- `tags/b`, 256 MiB, 1 thread: 0.50 (wanted 0.80)\n" in text, (
        "nothing is made up of a row that was not in that run"
    )
    assert text.count("## Kernels beside their yardsticks") == 1


def test_a_row_without_target_is_never_short():
    assert "**" not in write_table.page([run([row("tags/c", 0.1, target=0)])])


def test_peers_and_what_was_skipped():
    peers = {
        "program": "peers.py",
        "quick": False,
        "machine": MACHINE,
        "mib": 64,
        "skipped": {"torch.allclose": "No module named 'torch'"},
        "rows": [{"name": "h5diff", "threads": 1, "speed": 9e9, "peer_speed": 3e7, "ratio": 300.0, "target": 100}],
    }
    text = write_table.page([peers])
    assert "| h5diff | 1 | 9.00 | 0.030 | 300.0 | 100 | ok |" in text
    assert "torch.allclose: SKIPPED, No module named 'torch'." in text


def test_a_quick_run_has_no_times():
    quick = copy.deepcopy(run([row("tags/a", 0.9)]))
    quick["quick"] = True
    with pytest.raises(SystemExit, match="--quick"):
        write_table.page([quick])
