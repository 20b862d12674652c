"""Tests compile with less optimisation; those marked `optimised` compile as users do, whatever ran before them."""

from __future__ import annotations

import os

import jax
import jax.numpy as jnp
import pytest

turned = jax.jit(lambda x: x[::-1])
QUICK = "xla_cpu_use_fusion_emitters=false" in os.environ.get("XLA_FLAGS", "")


def is_optimised() -> bool:
    """XLA wraps a single operation into a fusion for no other reason than to emit it as it emits fusions."""
    return "wrapped_reverse" in turned.lower(jnp.ones(3)).compile().as_text()


@pytest.fixture
def optimised_fixture() -> bool:
    return is_optimised()


def test_without_the_mark(optimised_fixture: bool) -> None:
    assert optimised_fixture == is_optimised() == (not QUICK)
    assert turned(jnp.ones(3))[0] == 1 and turned._cache_size() == 1


@pytest.mark.optimised
def test_with_the_mark(optimised_fixture: bool) -> None:
    assert optimised_fixture and is_optimised()
    assert not QUICK or turned._cache_size() == 0, "what was compiled otherwise is not used"


def test_without_the_mark_again() -> None:
    assert is_optimised() == (not QUICK)
