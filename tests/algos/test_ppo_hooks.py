"""Hooks by which other algorithms extend PPO."""

import jax
import jax.numpy as jnp
import pytest
from learner import learner
from training import hypers_of

from hmx.algos.ppo.components import PpoComponents, make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.ppo.update import make_batch, make_ppo_algorithm
from hmx.config.schema import Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.registry import make_env
from hmx.types import Mean


@pytest.fixture(scope="module")
def parts() -> PpoComponents:
    cfg = Config(
        run=RunConfig(total_steps=128),
        env=EnvConfig(id="corridor", num_envs=4, max_steps=10),
        net=NetConfig(hidden=(8,)),
        **learner(num_steps=8, num_minibatches=2, update_epochs=2),
    )
    return make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))


def build(parts):
    """The algorithm, and the hyperparameters of its first update."""
    algorithm = make_ppo_algorithm(parts)
    return algorithm, hypers_of(algorithm)


def test_the_rollout_hook_keeps_own_state_and_feeds_the_loss(parts):
    def rollout(parts, state, rollout):
        seen, before = rollout.transitions, state.learner.own
        count = before + 1.0
        paid = rollout._replace(transitions=seen._replace(reward_tp1=seen.reward_tp1 + 10.0 * count))
        batch = make_batch(paid, parts.cfg, parts.horizon)
        return batch._replace(own={"count": jnp.full(batch.reward.shape, count)}), count, {"mine/count": Mean.of(count)}

    def loss(parts, params, stats, hypers, batch, key=None):
        total, metrics = ppo_loss(parts, params, stats, hypers, batch, key)
        return total, metrics | {"mine/seen": Mean.of(batch.own["count"])}

    algorithm, hypers = build(parts._replace(rollout=rollout, loss=loss, own=lambda: jnp.float32(0.0)))
    both = jax.jit(lambda *given: (*algorithm.update(*given), algorithm.experience(*given)))
    state = jax.jit(algorithm.init)(jax.random.key(0))
    for _ in range(2):
        state, metrics, experience = both(state, hypers)
    assert float(state.learner.own) == 2.0
    for name in ("mine/count", "mine/seen"):
        assert float(metrics[name].total / metrics[name].count) == 2.0
    assert (experience["own_0"] == 2.0).all() and (experience["reward"] > 19.0).all()


def test_hooks_that_do_what_ppo_does_build_the_same_program(parts):
    def rollout(parts, state, rollout):
        return make_batch(rollout, parts.cfg, parts.horizon), state.learner.own, {}

    def program(parts):
        algorithm, hypers = build(parts)
        return jax.jit(algorithm.update).lower(jax.eval_shape(algorithm.init, jax.random.key(0)), hypers).as_text()

    assert program(parts._replace(rollout=rollout, loss=ppo_loss)) == program(parts)
