"""pytest fixtures; pytest loads them once the package is installed (else: -p kvcts.pytest_plugin)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from .cache import Pair, pair
from .contract import Contract, add_options
from .filled import Cache, cache


def pytest_addoption(parser: pytest.Parser) -> None:
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("kvcts_connector") or config.getoption("kvcts_store"):
        config.pluginmanager.register(Contract(config), "kvcts-contract")


@pytest.fixture
def kv_cache() -> Callable[..., Cache]:
    """Makes a filled cache: kv_cache("flash_attn", heads=8). Arguments: kvcts.cache().

    A test of a kernel uses cache.tensors, cache.blocks, cache.tokens and cache.slot_mapping, and ends with cache.verify()
    or kvcts.assert_kv_equal(), which fail with the diagnosis."""
    return cache


@pytest.fixture
def kv_pair() -> Callable[..., Pair]:
    """Makes filled producers and cleared consumers: kv_pair("flash_attn", "flashinfer:HND", heads=8, ranks=(2, 4)).
    Arguments: kvcts.pair().

    A test moves pair.source_blocks of pair.producer.tensors to pair.target_blocks of pair.consumer.tensors (with ranks:
    pair.producers, pair.consumers) and calls pair.verify(), which fails with the diagnosis."""
    return pair
