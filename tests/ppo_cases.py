"""Cases that tell implementations of PPO apart: inputs, expected numbers, and how closely they are to be met."""

import json
from pathlib import Path

import jax.numpy as jnp
import numpy as np

_FILE = Path(__file__).parent / "data/ppo-cases.json"
CASES = {found["id"]: found for found in json.loads(_FILE.read_text())["cases"]}


def case(name):
    """Inputs, expected numbers, and a comparison at the case's own tolerance."""
    found = CASES[name]

    def same(got, wanted, atol=1e-6):
        np.testing.assert_allclose(np.asarray(got, np.float64), wanted, rtol=max(found["rtol"], 2e-5), atol=atol)

    return found["inputs"], found["expected"], same


def arrays(inputs, *names):
    return [jnp.asarray(inputs[name], jnp.float32) for name in names]
