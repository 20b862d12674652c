"""PPO and learning from search find the known values and actions of the probes, with every form of a value."""

import pytest
from learner import learner
from probes import GAMMA, PROBES, action_must_match_observation, assert_solved, delayed_reward, never_ending

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


HARD = (delayed_reward, action_must_match_observation, never_ending)
"""An algorithm that solves these has learned what the others ask for."""
EASY = [pytest.param(make, marks=pytest.mark.thorough) for make in PROBES if make not in HARD]


@pytest.mark.parametrize("make_probe", [*HARD, *EASY], ids=lambda make: make.__name__)
def test_ppo_solves_the_probes(make_probe):
    solve(make_probe(), "identity")


@pytest.mark.parametrize("make_probe", [*HARD, *EASY], ids=lambda make: make.__name__)
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
def test_every_value_target_solves_the_probes(value_target):
    solve(never_ending(), value_target)
