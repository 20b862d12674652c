"""PPO and learning from search find the known values and actions of the probes, with every form of a value."""

import pytest
from learner import learner
from probes import GAMMA, PROBES, assert_solved, matching_for_ever

from hmx.algos.build import make_algorithm
from hmx.config.schema import Config, EnvConfig, NetConfig, RunConfig

UPDATES = 150


def solve(probe, value_target, **more):
    """Compare the medians over seeds with the answers."""
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
    assert_solved(probe, make_algorithm(cfg, probe.env), UPDATES, sure=0.95)


EASY = [pytest.param(make, marks=pytest.mark.thorough) for make in PROBES if make is not matching_for_ever]
"""An algorithm that solves the last probe has learned what these ask for."""


@pytest.mark.thorough
@pytest.mark.parametrize("make_probe", PROBES, ids=lambda make: make.__name__)
def test_ppo_solves_the_probes(make_probe):
    solve(make_probe(), "identity")


@pytest.mark.parametrize("make_probe", [matching_for_ever, *EASY], ids=lambda make: make.__name__)
def test_learning_from_search_solves_the_probes(make_probe):
    solve(make_probe(), "identity", name="gumbel")


@pytest.mark.parametrize(
    "value_target",
    [
        pytest.param("symlog", marks=pytest.mark.thorough),
        pytest.param("return_norm", marks=pytest.mark.thorough),
        "two_hot",
    ],
)
def test_ppo_solves_a_probe_with_every_value_target(value_target):
    solve(matching_for_ever(), value_target)
