"""Tensors of any framework in the form that kvcts._native takes: (object with DLPack or the buffer protocol, dtype
name)."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ._native import LayoutError

# Names of ml_dtypes and torch -> names of element dtypes.
NAMES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3fn",
    "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz",
    "float8_e5m2fnuz": "e5m2fnuz",
    "float8_e8m0fnu": "e8m0",
    "int8": "int8",
    "uint8": "uint8",
    "int16": "int16",
    "uint16": "uint16",
    "int32": "int32",
    "uint32": "uint32",
}
WIDTHS = {"fp32": 4, "fp16": 2, "bf16": 2}


def numpy_dtype(name: str) -> Any:
    """The NumPy type for such elements; 4-bit codes are shown as uint8, two per byte."""
    import numpy as np

    plain = {"fp32": "f4", "fp16": "f2", "int8": "i1"}
    if name in plain:
        return np.dtype(plain[name])
    try:
        import ml_dtypes

        ours = {theirs_name: theirs for theirs, theirs_name in NAMES.items()}
        if name in ours and hasattr(ml_dtypes, ours[name]):
            return np.dtype(getattr(ml_dtypes, ours[name]))
    except ImportError:
        pass
    return np.dtype({2: "u2", 4: "u4"}.get(WIDTHS.get(name, 1), "u1"))


def native(tensor: Any) -> tuple[Any, str]:
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(tensor, torch.Tensor):
        tensor = tensor.detach()
        name = NAMES.get(str(tensor.dtype).removeprefix("torch."), "?")
        if tensor.itemsize == 1:
            return tensor.view(torch.uint8), name  # some versions cannot export fp8 through DLPack
        return (tensor.view(torch.int16) if tensor.itemsize == 2 else tensor), name
    numpy = sys.modules.get("numpy")
    if (
        numpy is not None
        and not isinstance(tensor, numpy.ndarray)
        and hasattr(tensor, "__array_interface__")
        and not hasattr(tensor, "__dlpack__")
    ):
        tensor = numpy.asarray(tensor)
    if numpy is not None and isinstance(tensor, numpy.ndarray):
        if tensor.dtype.byteorder == ">" or tensor.dtype.kind in "OSU":
            raise LayoutError(f"expected elements of numbers in the machine's byte order, found dtype {tensor.dtype}")
        if tensor.dtype.kind in "fiu" and tensor.dtype.isbuiltin == 1:
            return tensor, NAMES.get(tensor.dtype.name, "?")
        return tensor.view(f"u{tensor.dtype.itemsize}"), NAMES.get(tensor.dtype.name, f"uint{8 * tensor.dtype.itemsize}")
    return tensor, ""


def natives(tensors: Any) -> list[tuple[Any, str]]:
    """One tensor, a sequence of them, or a mapping (vLLM's {layer name: tensor}, in its order)."""
    if isinstance(tensors, Mapping):
        tensors = list(tensors.values())
    if isinstance(tensors, (list, tuple)):
        return [native(t) for t in tensors]
    return [native(tensors)]
