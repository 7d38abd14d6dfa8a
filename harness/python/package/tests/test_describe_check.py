import subprocess
import sys

import numpy as np
import pytest

import kvcts

SMALL = dict(blocks=7, block_size=16, heads=4, head_dim=64)


def test_every_layout_is_among_those_that_fit_its_own_tensor():
    missing = []
    for name in kvcts.layouts():
        try:
            layout = kvcts.Layout(name, layers=2, **SMALL)
        except kvcts.LayoutError:
            continue  # different geometries
        tensor = layout.empty()
        tensor = tensor[0] if isinstance(tensor, list) else tensor
        d = kvcts.describe(tensor, layers=2, blocks=7, block_size=16, heads=4, head_dim=64)
        if not any(name in fit.layouts for fit in d.fits) and not d.open:
            missing.append((name, layout.tensors[0].axes))
    assert not missing, missing


def test_an_ambiguous_shape_and_what_settles_it():
    tensor = np.zeros((2, 9, 16, 8, 64), "u2").view("f2")
    d = kvcts.describe(tensor)
    assert d.ambiguous and d.settled_by == "num_kv_heads"
    assert {("K B N H C", 16, 8), ("K B H N C", 8, 16)} <= {
        (f.axes, f.numbers["block_size"], f.numbers["heads"]) for f in d.fits
    }
    settled = kvcts.describe(tensor, heads=8)
    assert [f.axes for f in settled.fits] == ["K B N H C"] and not settled.ambiguous and settled.settled_by == ""
    assert "vllm-fa-nhd" in settled.fits[0].layouts and settled.fits[0].layout().shape == tensor.shape


def test_two_blocks_look_like_k_and_v():
    """nb == 2: [2, 2, ...] is [K, B, ...] or [B, K, ...], and no number distinguishes them."""
    d = kvcts.describe(np.zeros((2, 2, 16, 8, 64), "f2"), heads=8, block_size=16, head_dim=64)
    assert d.ambiguous and {"K B N H C", "B K N H C"} <= {f.axes for f in d.fits}
    assert d.settled_by == "axis names" and "say axis names" in str(d)


def test_heads_equal_block_size_and_strides_that_tell():
    square = kvcts.Layout("vllm-fa-hnd", blocks=7, block_size=8, heads=8, head_dim=64, dtype="fp16").empty()
    d = kvcts.describe(square, heads=8, block_size=8)
    assert {"H N C" in f.order for f in d.fits} == {True} or len({f.order for f in d.fits}) > 1
    assert any("vllm-fa-hnd" in f.layouts for f in d.fits) and not any(
        "vllm-fa-nhd" in f.layouts and f.axes == "K B N H C" for f in d.fits
    )


def test_what_a_shape_leaves_open():
    d = kvcts.describe(np.zeros((2, 9, 16 * 8 * 64), "f2"))
    assert any(letters == "K B NHC" and set(missing) == {"slot", "head", "channel"} for letters, missing in d.open)
    told = kvcts.describe(np.zeros((2, 9, 16 * 8 * 64), "f2"), block_size=16, heads=8, head_dim=64)
    assert any("vllm-xformers" in f.layouts for f in told.fits)
    with pytest.raises(kvcts.LayoutError, match="elements of"):
        kvcts.describe(np.zeros((2, 9, 16, 8, 64), "f8"))


def test_the_module_is_the_program():
    run = lambda *argv: subprocess.run([sys.executable, "-m", "kvcts", *argv], capture_output=True, text=True)  # noqa: E731
    done = run("layouts", "--shape", "2,9,16,8,64", "--heads", "8")
    assert done.returncode == 0 and "K B N H C: 9 blocks of 16 tokens, 8 heads, head_dim 64" in done.stdout, done
    wrong = run("desribe")
    assert wrong.returncode == 2 and "kvcts" in wrong.stderr and "Traceback" not in wrong.stderr


def test_check():
    nhd, hnd, apart = (kvcts.Layout(n, **SMALL) for n in ("vllm-fa-nhd", "vllm-fa-hnd", "flashinfer-nhd"))
    assert (
        kvcts.check(nhd, nhd).code == 0
        and kvcts.check(nhd, kvcts.Layout("vllm-fa-nhd", **{**SMALL, "blocks": 99})).code == 0
    )
    conversion = kvcts.check(nhd, hnd)
    assert (
        conversion.verdict == "conversion"
        and "K B N H C in memory, the consumer K B H N C" in conversion.text
        and conversion.told_apart
    )
    silent = kvcts.check(nhd, hnd, moves="blocks")
    assert (silent.code, silent.fault_class) == (12, "axis-permuted") and kvcts.check(
        nhd, apart, moves="blocks"
    ).fault_class == "kv-split-vs-interleaved"
    refused = kvcts.check(nhd, kvcts.Layout("vllm-fa-nhd", dtype="fp16", **{**SMALL, "heads": 2}))
    assert (
        refused.code == 11 and "heads is 4 in the producer and 2 in the consumer" in refused.text and "dtype" in refused.text
    )
    smaller = kvcts.Layout("vllm-fa-nhd", **{**SMALL, "block_size": 8})
    assert kvcts.check(nhd, smaller).code == 10 and kvcts.check(nhd, smaller, moves="blocks").code == 11
    with pytest.raises(kvcts.LayoutError):
        kvcts.check(nhd, hnd, moves="elements")


def test_check_says_when_tensors_cannot_be_told_apart():
    """Two blocks: [2, 2, ...] either way, with the same strides."""
    two = dict(SMALL, blocks=2)
    a, b = kvcts.Layout("L x K B N H C", **two), kvcts.Layout("L x B K N H C", **two)
    assert a.shape == b.shape and a.strides == b.strides
    assert not kvcts.check(a, b).told_apart and kvcts.check(a, a).told_apart


def test_check_is_what_a_copy_comes_to(kv_pair):
    """Executes `silently wrong`: the copy that it describes is named with its class."""
    from moves import copy_as_it_lies

    pair = kv_pair("vllm-fa-hnd", "vllm-fa-nhd")
    said = kvcts.check(pair.producer.layout, pair.consumer.layout, moves="blocks")
    copy_as_it_lies(pair)
    assert pair.diagnose().fault_class == said.fault_class
