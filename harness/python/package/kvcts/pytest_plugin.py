"""pytest fixtures; pytest loads them once the package is installed (else: -p kvcts.pytest_plugin)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .cache import Pair, pair


@pytest.fixture
def kv_pair() -> Callable[..., Pair]:
    """Makes a filled producer and a cleared consumer: kv_pair("vllm-fa-nhd", "flashinfer:HND", heads=8). Arguments:
    kvcts.pair().

    A test moves pair.source_blocks of pair.producer.tensors to pair.target_blocks of pair.consumer.tensors and calls
    pair.verify(), which fails with the diagnosis."""
    return pair
