"""Tests of what needs an optional extra; `make test-extras` installs it, elsewhere they are skipped."""

import jax
import pytest


@pytest.fixture(autouse=True)
def as_other_libraries_expect():
    """Their code promotes ranks and reads keys twice, which is refused elsewhere."""
    with jax.numpy_rank_promotion("allow"), jax.debug_key_reuse(False):
        yield
