"""PPO and learning from search find the known values and actions of the probes, with every form of a value."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env
from learner import learner
from probes import GAMMA, PROBES, action_must_match_observation, delayed_reward, never_ending
from training import train_seeds

from hmx.algos.build import make_algorithm
from hmx.config.schema import Config, EnvConfig, NetConfig, RunConfig

UPDATES = 150


def solve(probe, value_target, **more):
    options = learner(
        num_steps=4,
        learning_rate=0.01,
        num_minibatches=2,
        update_epochs=4,
        gamma=GAMMA,
        ent_coef=0.0,
        value_target=value_target,
        **more,
    )
    run = RunConfig(total_steps=UPDATES * 4 * 32)
    cfg = Config(run=run, env=EnvConfig(num_envs=32), net=NetConfig(hidden=(16,), activation="tanh"), **options)
    algorithm = make_algorithm(cfg, probe.env)
    return algorithm, [state for state, _ in train_seeds(algorithm, UPDATES)]


def check_answers(probe, value_target, atol=0.05, **more):
    """Compare the medians over seeds with the answers."""
    algorithm, states = solve(probe, value_target, **more)
    for obs, value, action in probe.answers:
        seen, legal, begins = jnp.full((1, 1, 1), obs), jnp.ones((1, 1, 2), bool), jnp.ones(1, bool)
        found = [algorithm.act(state, (), seen, legal, begins, jax.random.key(1), True)[0] for state in states]
        np.testing.assert_allclose(np.median([one.value for one in found]), value, atol=atol, rtol=0.05)
        if action is not None:
            assert np.median([one.action for one in found]) == action
            assert np.median([one.probs[0, 0, action] for one in found]) > 0.95


HARD = (delayed_reward, action_must_match_observation, never_ending)
"""An algorithm that solves these has learned what the others ask for."""
EASY = [pytest.param(make, marks=pytest.mark.thorough) for make in PROBES if make not in HARD]


@pytest.mark.parametrize("make_probe", [*HARD, *EASY], ids=lambda make: make.__name__)
def test_ppo_solves_the_probes(make_probe):
    check_answers(make_probe(), "identity")


@pytest.mark.parametrize("make_probe", [*HARD, *EASY], ids=lambda make: make.__name__)
def test_learning_from_search_solves_the_probes(make_probe):
    check_answers(make_probe(), "identity", name="gumbel")


@pytest.mark.parametrize(
    "value_target",
    [
        pytest.param("symlog", marks=pytest.mark.thorough),
        pytest.param("return_norm", marks=pytest.mark.thorough),
        "two_hot",
    ],
)
def test_every_value_target_solves_the_probes(value_target):
    check_answers(never_ending(), value_target)


@pytest.mark.parametrize("make_probe", [action_must_match_observation, never_ending], ids=lambda make: make.__name__)
def test_probes_pass_the_contract(make_probe):
    check_env(make_probe().env, num_envs=2, num_steps=7)
