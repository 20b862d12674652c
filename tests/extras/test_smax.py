"""Battles of SMAX behind the contract of our environments, against JaxMARL itself."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.env_facts import env_facts
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.config.smax_facts import SCENARIOS, sizes
from hmx.env.api_test import check_env
from hmx.env.registry import _measured, make_env

pytest.importorskip("jaxmarl")

ENVS, STOP = 8, 4


def made(scenario, **values):
    return make_env(EnvConfig(id=f"smax/{scenario}", **values), RewardWeights())


def test_it_keeps_the_contract():
    walk = check_env(made("3m", max_steps=12), num_envs=2, num_steps=30)
    assert bool(walk.timestep_tp1.truncated.any())
