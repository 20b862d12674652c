"""Functions of the numeric packages refuse wrong shapes, dtypes and types while tests run."""

import importlib
import pkgutil

import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError
from shape_checks import PACKAGES

from hmx.rl.advantages import gae
from hmx.rl.distributions import log_prob
from hmx.rl.weighted import mean

LOGITS, LEGAL = jnp.zeros((3, 4)), jnp.ones((3, 4), bool)


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (mean, (jnp.ones((2, 3)), jnp.ones((3, 2)))),
        (log_prob, (LOGITS, LEGAL, jnp.zeros(4, int))),  # one action too many
        (log_prob, (LOGITS, LEGAL, jnp.zeros(3))),  # a float for an action
        (log_prob, (LOGITS, LEGAL.astype(jnp.float32), jnp.zeros(3, int))),
        (gae, (*(jnp.zeros((5, 2)),) * 2, jnp.zeros(3), *(jnp.zeros((5, 2)),) * 3, 0.9, 0.9)),
        (gae, (*(jnp.zeros((5, 2)),) * 2, jnp.zeros(2), *(jnp.zeros((5, 2)),) * 3, "0.9", 0.9)),
    ],
)
def test_wrong_arguments_are_refused(function, arguments):
    with pytest.raises(TypeCheckError, match=f"{function.__module__}.{function.__name__}"):
        function(*arguments)


def test_right_arguments_are_accepted():
    assert float(mean(jnp.ones((2, 3)), jnp.ones((2, 3)))) == 1.0
    assert log_prob(LOGITS, LEGAL, jnp.zeros(3, int)).shape == (3,)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_was_imported_with_checks(package):
    """A module that `conftest.py` imported before the checks were installed would not be checked."""
    found = importlib.import_module(package)
    for info in pkgutil.iter_modules(found.__path__, f"{package}."):
        spec = importlib.util.find_spec(info.name)
        assert spec is not None and "jaxtyping" in type(spec.loader).__module__, info.name
