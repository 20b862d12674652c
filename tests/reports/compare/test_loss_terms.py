"""One batch through several losses: what differs is the switch that was turned, and by as much as it must."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from hmx.config.fields import replace
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig
from hmx.reports.compare import loss_terms as losses

BASE = Config(
    env=EnvConfig(id="pendulum", num_envs=2, max_steps=200),
    net=NetConfig(hidden=(8,), activation="tanh", shared_torso=False, gain_policy=1.0, std="softplus", std_min=0.001),
    algo=AlgoConfig(num_steps=8, gamma=0.9, learning_rate=1e-2, lr_schedule="constant", max_grad_norm=0.0),
    ppo=PpoConfig(
        num_minibatches=1,
        gae_lambda=0.9,
        value_target="identity",
        vf_coef=0.5,
        ent_coef=0.01,
        entropy="tanh_quadrature",
        clip_eps=0.2,
    ),
)

TURNS = {
    "same": {},
    "scaled": {"ppo.reward_scale": 10.0},
    "batch": {"ppo.gae_axis": "batch"},
    "exp": {"net.std": "exp", "net.std_min": 0.0, "ppo.entropy": "gaussian"},
    "anew": {"ppo.advantage_when": "minibatch", "ppo.value_forward": "both"},
}


@pytest.fixture(scope="module")
def compared() -> Mapping[str, tuple[losses.Loss, ...]]:
    """Name of a turn -> the loss at the first gradient step, and later; the base itself is `base`."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("NUM_ENVS", 4), ("NUM_STEPS", 12), ("HORIZON", 6), ("MAX_STEPS", 5), ("LATER", 3)):
            patch.setattr(losses, name, value)
        found = losses.compare_losses({"base": BASE, **{name: replace(BASE, turn) for name, turn in TURNS.items()}})
    assert found.truncated_frac == pytest.approx(2 / 12) and found.terminated_frac == 0.0
    return found.sides


def test_the_same_configuration_has_the_same_loss(compared):
    for one, other in zip(compared["base"], compared["same"], strict=True):
        assert one == other
        assert all(cosine == pytest.approx(1.0) for cosine in other.cosine.values())


def test_weighted_terms_add_up(compared):
    for moments in compared.values():
        for loss in moments:
            parts = sum(loss.weighted[name] for name in ("policy", "value", "entropy"))
            assert loss.weighted["total"] == pytest.approx(parts, rel=1e-5)


def test_policies_agree_before_the_first_step_and_not_later(compared):
    for first, later in compared.values():
        assert first.ratio_error < 1e-5 and first.clip_frac == 0.0
        assert later.ratio_error > 1e-3


def test_scaled_rewards_move_targets_and_leave_directions(compared):
    base, scaled = compared["base"][0], compared["scaled"][0]
    assert scaled.advantage[1] > 5 * base.advantage[1]
    assert abs(scaled.target[0]) > 5 * abs(base.target[0])


def test_summing_along_the_batch_turns_the_policy_gradient(compared):
    base, batch = compared["base"][0], compared["batch"][0]
    assert base.cosine["policy"] == pytest.approx(1.0)
    assert batch.cosine["policy"] < 0.99 and batch.correlation < 0.99


def test_action_std_and_entropy_belong_to_each_side(compared):
    base, exp = compared["base"][0], compared["exp"][0]
    assert exp.raw["entropy"] > base.raw["entropy"] + 0.3
    assert exp.ratio_error < 1e-5 and exp.cosine["entropy"] < 0.99
    assert exp.norm["value"] == pytest.approx(base.norm["value"], rel=1e-5)


def test_advantages_per_minibatch_differ_from_those_per_rollout(compared):
    base, anew = compared["base"], compared["anew"]
    assert anew[0].correlation > 0.9 and anew[0].advantage != pytest.approx(base[0].advantage)
    assert anew[1].advantage != pytest.approx(anew[0].advantage)


def test_cosine_with_zero_is_none():
    assert losses._cosine(np.zeros(3), np.ones(3)) is None
    assert losses._cosine(np.array([3.0, 4.0]), np.array([-3.0, -4.0])) == pytest.approx(-1.0)


def test_all_sides_use_the_environment_and_network_of_the_first():
    other = replace(BASE, {"env.id": "corridor", "net.hidden": (32, 32), "net.std": "exp", "algo.gamma": 0.5})
    first, second = losses.on_one_scale([BASE, other])
    assert second.env == first.env and second.env.id == "pendulum" and second.net.hidden == (8,)
    assert second.net.std == "exp" and second.algo.gamma == 0.5
    assert (second.algo.num_steps, second.ppo.bptt_horizon) == (losses.NUM_STEPS, losses.HORIZON)
