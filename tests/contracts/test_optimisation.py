"""Tests compile without optimisation; those marked `optimised` compile as users do, whatever ran before them."""

from __future__ import annotations

import os

import jax
import pytest

add_one = jax.jit(lambda x: x + 1)


def is_optimised() -> bool:
    """In this process and in those that it starts."""
    here, there = jax.config.read("jax_disable_most_optimizations"), os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"]
    assert there == str(int(here))
    return not here


@pytest.fixture(scope="module")
def usual() -> bool:
    """How a test without the mark compiles, which the developer may have changed."""
    return is_optimised()


def test_without_the_mark(usual: bool) -> None:
    assert is_optimised() == usual and add_one(1) == 2 and add_one._cache_size() == 1


@pytest.fixture
def compiled_before_the_test() -> bool:
    return is_optimised()


@pytest.mark.optimised
def test_with_the_mark(usual: bool, compiled_before_the_test: bool) -> None:
    assert is_optimised() and compiled_before_the_test
    assert usual or add_one._cache_size() == 0, "what was compiled otherwise is not used"


def test_without_the_mark_again(usual: bool) -> None:
    assert is_optimised() == usual
