"""KV caches under test: layouts as values, tensors filled with tags that identify every element, and a diagnosis of
what went wrong.

    layout = kvcts.Layout("flashinfer:NHD", blocks=8, block_size=16, heads=4, head_dim=64)
    source, target = layout.empty(), layout.empty()
    kvcts.fill(source, layout, blocks=[6, 0, 4])
    kvcts.clear(target, layout)
    my_connector(source, target, [6, 0, 4], [1, 2, 5])
    print(kvcts.verify(target, layout, blocks=[1, 2, 5]))

Tensors are NumPy arrays, torch tensors, or anything with DLPack, the buffer protocol or __array_interface__; nothing is
copied. torch is not needed. CUDA tensors work if the package was built with nvcc (kvcts.cuda).
"""

import sys

try:
    from ._native import LayoutError, __version__, cuda
except ModuleNotFoundError as error:
    if error.name != f"{__name__}._native":
        raise
    raise ImportError(
        f"kvcts._native is not there for this Python, {sys.version.split()[0]}: install a wheel that is (pip install "
        "kvcts-*.whl), or ./run_suite.sh build in a checkout and PYTHONPATH=build/python"
    ) from None
from .backends import backends
from .cache import Pair, pair
from .check import Compatibility, check
from .content import Request, Source, clear, fill, verify
from .describing import Description, Fit, describe
from .diagnosis import BlockState, Cause, Diagnosis, WrongBytes, WrongPlace
from .filled import Cache, assert_kv_equal, cache
from .layouts import Coordinate, Layout, Place, TensorInfo, layouts
from .paths import get_include

__all__ = [
    "BlockState",
    "Cache",
    "Cause",
    "Compatibility",
    "Coordinate",
    "Description",
    "Diagnosis",
    "Fit",
    "Layout",
    "LayoutError",
    "Pair",
    "Place",
    "Request",
    "Source",
    "TensorInfo",
    "WrongBytes",
    "WrongPlace",
    "__version__",
    "assert_kv_equal",
    "backends",
    "cache",
    "check",
    "clear",
    "cuda",
    "describe",
    "fill",
    "get_include",
    "layouts",
    "pair",
    "verify",
]
