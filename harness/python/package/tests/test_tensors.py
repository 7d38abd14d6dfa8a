"""Tensors of every kind, without a copy."""

import os
from pathlib import Path

import numpy as np
import pytest
from dlpack_twin import BF16, CUDA, E4M3FN, Twin

import kvcts

SMALL = dict(blocks=5, block_size=8, heads=2, head_dim=32)


def right_in_place(tensor, layout, memory):
    """Fills through the tensor; its memory must have the tags."""
    kvcts.fill(tensor, layout, [3, 0], tokens=11)
    assert kvcts.verify(tensor, layout, [3, 0], tokens=11, side="producer")
    assert kvcts.verify(memory, layout, [3, 0], tokens=11, side="producer", tail="untouched")


@pytest.mark.parametrize("name, dtype, code, integer", [("bf16", "bf16", BF16, "u2"), ("fp8", "fp8_e4m3", E4M3FN, "u1")])
def test_dlpack_alone(name, dtype, code, integer):
    layout = kvcts.Layout("flashinfer:NHD", dtype=dtype, **SMALL)
    array = np.zeros(layout.shape, integer)
    right_in_place(Twin(array, code), layout, array.reshape(-1).view("u1"))
    assert kvcts.describe(Twin(array, code), heads=2).dtype == layout.tensors[0].dtype


def test_dlpack_of_another_dtype():
    layout = kvcts.Layout("flashinfer:NHD", dtype="bf16", **SMALL)
    with pytest.raises(kvcts.LayoutError, match="expected elements of bf16, found fp16"):
        kvcts.fill(np.zeros(layout.shape, "f2"), layout)
    with pytest.raises(kvcts.LayoutError, match="expected elements of bf16, found uint8"):
        kvcts.fill(np.zeros(layout.shape, "u1"), layout)


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "nvfp4"])
def test_numpy(dtype):
    layout = kvcts.Layout("flashinfer:NHD", dtype=dtype, **SMALL)
    tensors = layout.empty()
    for tensor in tensors if isinstance(tensors, list) else [tensors]:
        tensor.view("u1")[...] = 0
    right_in_place(tensors, layout, tensors)
    raw = [np.zeros(size, "u1") for _, size in layout.allocations]
    right_in_place(raw, layout, raw)


def test_array_interface_and_buffers():
    layout = kvcts.Layout("flashinfer:NHD", dtype="fp16", **SMALL)
    array = np.zeros(layout.shape, "f2")

    class Interface:
        __array_interface__ = array.__array_interface__

    right_in_place(Interface(), layout, array)
    memory = bytearray(layout.nbytes)
    right_in_place(memory, layout, memory)
    assert memory == bytearray(array.tobytes())


def test_views_with_strides():
    """A permuted view, and one of two tensors interleaved in a foreign pool: the bytes between are not touched."""
    layout = kvcts.Layout("vllm-fa-hnd", **SMALL)
    backing = np.zeros((2, 5, 2, 8, 32), "u2")
    right_in_place(backing.transpose(0, 1, 3, 2, 4), layout, backing.reshape(-1).view("u1"))
    with pytest.raises(kvcts.LayoutError, match="expected strides of .* the order in memory is not"):
        kvcts.fill(np.zeros(layout.shape, "u2"), layout)
    with pytest.raises(kvcts.LayoutError, match="expected shape"):
        kvcts.fill(backing, layout)
    pool = np.full((5, 3, 2 * 8 * 2 * 32), 0xABCD, "u2")  # three layers per page, ours is the middle one
    middle = kvcts.Layout("B { pad 2048 ; K N H C ; pad 2048 }", **SMALL)
    kvcts.fill(pool.reshape(-1).view("u1"), middle, [1], side=None)
    assert (pool[:, [0, 2]] == 0xABCD).all() and (pool[[0, 2, 3, 4], 1] == 0xABCD).all() and (pool[1, 1] != 0xABCD).any()


def test_mappings_keep_their_order():
    layout = kvcts.Layout("vllm-fa-nhd", layers=2, **SMALL)
    first, second = layout.empty()
    kvcts.fill({"model.layers.0": first, "model.layers.1": second}, layout)
    assert kvcts.verify([first, second], layout) and not kvcts.verify([second, first], layout)


def test_tensors_of_one_allocation_must_lie_as_they_should():
    layout = kvcts.Layout("K B N H C", tensors=("K", "B N H C"), **SMALL)
    k, v = layout.empty()
    kvcts.fill([k, v], layout)
    assert kvcts.verify([k, v], layout)
    with pytest.raises(kvcts.LayoutError, match="parts of one allocation"):
        kvcts.verify([k, np.empty_like(v)], layout)


def test_memory_that_cannot_be_written():
    layout = kvcts.Layout("flashinfer:NHD", **SMALL)
    tensor = layout.empty().view("u2")
    kvcts.fill(tensor, layout, side="consumer")
    tensor.flags.writeable = False
    assert kvcts.verify(tensor, layout)
    with pytest.raises(kvcts.LayoutError, match="read-only"):
        kvcts.fill(tensor, layout)


def test_things_that_are_no_tensors():
    layout = kvcts.Layout("flashinfer:NHD", **SMALL)
    for thing in ("text", 3, None, object()):
        with pytest.raises(kvcts.LayoutError, match="DLPack"):
            kvcts.fill(thing, layout)
    with pytest.raises(kvcts.LayoutError):
        kvcts.fill(np.array(["a"]), layout)


# ---- CUDA: device memory here is NumPy's, and the driver a stand-in that runs the kernels' twin on it
# -----------------------------------

FAKE = Path(os.environ.get("KVCTS_BINARY_DIR", "")) / "lib" / "kvcts" / "testing" / "libkvcts_fake_cuda.so"


def test_cuda_without_a_driver(cuda_process):
    out = cuda_process("none.so", "kvcts.fill(Twin(array, BF16, CUDA), layout)")
    assert "LayoutError: found a tensor on cuda:0, but " in out and (
        "no driver" in out if kvcts.cuda else "built without CUDA" in out
    )


@pytest.mark.skipif(not FAKE.exists(), reason=f"{FAKE} is not built")
def test_cuda_on_a_stand_in_driver(cuda_process):
    out = cuda_process(
        str(FAKE),
        """
tensor, host = Twin(array, BF16, CUDA), array
kvcts.fill(tensor, layout, [3, 0], tokens=11)
assert kvcts.verify(host, layout, [3, 0], tokens=11, side="producer", tail="untouched")
print(kvcts.verify(tensor, layout, [3, 0], tokens=11, side="producer"))
array[3] = array[3][::-1].copy()
array[0] = array[0][::-1].copy()
print(repr(kvcts.verify(tensor, layout, [3, 0], tokens=11, side="producer")))
""",
    )
    assert "PASS: 10,240 bytes checked, 0 wrong" in out and "K and V are exchanged" in out, out


@pytest.fixture
def cuda_process():
    """The driver is opened once per process, so each question runs in a separate one."""
    import subprocess
    import sys

    def run(driver: str, code: str) -> str:
        setup = f"""
import ctypes, os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np, kvcts
from dlpack_twin import *
layout = kvcts.Layout("flashinfer:NHD", blocks=5, block_size=8, heads=2, head_dim=32)
memory = np.zeros(layout.nbytes, "u1")
if os.path.exists(os.environ["KVCTS_CUDA_DRIVER"]):
    cuda, at, context = ctypes.CDLL(os.environ["KVCTS_CUDA_DRIVER"]), ctypes.c_ulonglong(), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxSetCurrent(context) == 0
    assert cuda.cuMemAlloc_v2(ctypes.byref(at), ctypes.c_size_t(layout.nbytes)) == 0
    memory = np.ctypeslib.as_array(ctypes.cast(at.value, ctypes.POINTER(ctypes.c_uint8)), (layout.nbytes,))
array = memory.view("u2").reshape(layout.shape)
"""
        done = subprocess.run(
            [sys.executable, "-c", setup + code],
            capture_output=True,
            text=True,
            env={**os.environ, "KVCTS_CUDA_DRIVER": driver},
            timeout=120,
        )
        return done.stdout + done.stderr

    return run


# ---- torch, where it is
# ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8"])
def test_torch(dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed (it is not needed)")
    layout = kvcts.Layout("vllm-fa-hnd", dtype=dtype, **SMALL)
    tensor = layout.empty("torch")
    kvcts.fill(tensor, layout, [3, 0], tokens=11)
    assert kvcts.verify(tensor, layout, [3, 0], tokens=11, side="producer", tail="untouched")
    assert kvcts.describe(tensor, heads=2, block_size=8).fits
    bytes_ = torch.as_strided(
        tensor.view(torch.uint8) if tensor.itemsize == 1 else tensor.view({2: torch.int16, 4: torch.int32}[tensor.itemsize]),
        (layout.nbytes // tensor.itemsize,),
        (1,),
    )
    assert kvcts.verify(bytes_.view(torch.uint8), layout, [3, 0], tokens=11, side="producer", tail="untouched")
    if dtype in ("fp16", "bf16", "fp32"):
        tensor.requires_grad_()
        assert kvcts.verify(tensor, layout, [3, 0], tokens=11, side="producer")
