"""Tests of what needs an optional extra; `make test-extras` installs it, elsewhere they are skipped."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def as_other_libraries_expect():
    """Their code promotes ranks and reads keys twice, which is refused elsewhere; in every thread, so no context."""
    changes = {"jax_numpy_rank_promotion": "allow", "jax_debug_key_reuse": False}
    before = {name: getattr(jax.config, name) for name in changes}
    for name, value in changes.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)
