"""Every switch of PPO's loss, told apart from its other side on a batch worked by hand."""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner
from training import build, hypers_of

from hmx.algos.ppo.components import make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.sequences import Batch
from hmx.config.schema import Config, EnvConfig, NetConfig, RewardWeights, RunConfig
from hmx.envs.registry import make_env

HORIZON, ROWS = 2, 3
GAMMA, LAMBDA = 0.9, 0.8
HYPERS = {"clip_eps": 0.2, "ent_coef": 0.0, "learning_rate": 0.01}


def configure(**algo):
    return Config(
        run=RunConfig(total_steps=48),
        env=EnvConfig(id="frozenlake", num_envs=3, max_steps=9),
        net=NetConfig(hidden=(4,)),
        **learner(
            **{
                "num_steps": 2,
                "bptt_horizon": HORIZON,
                "num_minibatches": 1,
                "gamma": GAMMA,
                "gae_lambda": LAMBDA,
                "norm_adv": False,
                "value_target": "identity",
                **algo,
            }
        ),
    )


@pytest.fixture(scope="module")
def made():
    """What PPO works with, parameters, and a batch in which everything differs from step to step."""
    cfg = configure()
    parts = make_ppo_components(cfg, make_env(cfg.env, RewardWeights()))
    params = parts.net.init(jax.random.key(0))
    random = np.random.default_rng(0)

    def numbers():
        return jnp.asarray(random.normal(size=(HORIZON, ROWS)), jnp.float32)

    obs = jax.nn.one_hot(jnp.arange(HORIZON * ROWS).reshape(HORIZON, ROWS), 64)
    (logits, value_raw), _ = parts.net.unroll(params, (), obs, jnp.zeros((HORIZON, ROWS), bool))
    action = jnp.asarray(random.integers(0, 4, (HORIZON, ROWS)))
    log_prob = np.take_along_axis(np.asarray(jax.nn.log_softmax(logits)), np.asarray(action)[..., None], -1)[..., 0]
    ratio = np.array([[0.5, 1.0, 1.1], [1.5, 0.9, 1.3]])
    batch = Batch(
        obs=obs,
        legal=jnp.ones((HORIZON, ROWS, 4), bool),
        reset=jnp.zeros((HORIZON, ROWS), bool),
        action=action,
        log_prob_old=jnp.asarray(log_prob - np.log(ratio), jnp.float32),
        value_old=numbers(),
        advantage=numbers(),
        target=numbers(),
        weight=jnp.ones((HORIZON, ROWS)),
        reward=numbers(),
        bootstrap=numbers(),
        done=jnp.array([[False, True, False], [False, False, False]]),
        carry=(),
        advantage_next=numbers()[0],
        sequence_weight=jnp.ones(ROWS),
    )
    return parts, params, batch, ratio, np.asarray(value_raw[..., 0], np.float64)


def switched(parts, **ppo):
    cfg = dataclasses.replace(parts.cfg, ppo=dataclasses.replace(parts.cfg.ppo, **ppo))
    return parts._replace(cfg=cfg)


def loss_of(parts, params, batch, hypers=None, **algo):
    parts = switched(parts, **algo)
    hypers = {name: jnp.float32(value) for name, value in {**HYPERS, **(hypers or {})}.items()}
    total, metrics = ppo_loss(parts, params, (), hypers, batch)
    return float(total), {name.removeprefix("train/"): float(metric[0]) for name, metric in metrics.items()}


def surrogate(ratio, advantage, eps=0.2):
    return -np.minimum(ratio * advantage, np.clip(ratio, 1 - eps, 1 + eps) * advantage).mean()


def test_clip_range_and_entropy_weight_are_arguments_of_the_update(made):
    parts, params, batch, ratio, _ = made
    advantage = np.asarray(batch.advantage)
    for eps in (0.05, 0.2):
        _, metrics = loss_of(parts, params, batch, {"clip_eps": eps})
        assert metrics["policy_loss"] == pytest.approx(surrogate(ratio, advantage, eps), rel=1e-4)
        assert metrics["clip_frac"] == pytest.approx((np.abs(ratio - 1) > eps + 1e-6).mean())
    (without, metrics), (with_bonus, _) = (loss_of(parts, params, batch, {"ent_coef": c}) for c in (0.0, 0.5))
    assert without - with_bonus == pytest.approx(0.5 * metrics["entropy"], rel=1e-4)
    assert metrics["first_ratio_error"] == pytest.approx(0.5, rel=1e-4)


def test_advantages_are_normalised_before_they_are_weighted(made):
    parts, params, batch, ratio, _ = made
    weight = np.array([1.0, 0.5, 0.1], np.float32)
    advantage = np.asarray(batch.advantage, np.float64)
    scaled = (advantage - advantage.mean()) / advantage.std()
    for norm_adv, expected in ((True, scaled), (False, advantage)):
        _, metrics = loss_of(parts, params, batch._replace(sequence_weight=jnp.asarray(weight)), norm_adv=norm_adv)
        assert metrics["policy_loss"] == pytest.approx(surrogate(ratio, expected * weight), rel=1e-3)


def test_value_clipping_matches_its_definition(made):
    parts, params, batch, _, value = made
    old, target = np.asarray(batch.value_old, np.float64), np.asarray(batch.target, np.float64)
    plain = 0.5 * (value - target) ** 2
    near = 0.5 * (old + np.clip(value - old, -0.1, 0.1) - target) ** 2
    assert loss_of(parts, params, batch)[1]["value_loss"] == pytest.approx(plain.mean(), rel=1e-4)
    _, clipped = loss_of(parts, params, batch, {"clip_vf_eps": 0.1})
    assert clipped["value_loss"] == pytest.approx(np.maximum(plain, near).mean(), rel=1e-4)
    assert clipped["value_loss"] != pytest.approx(plain.mean(), rel=1e-2)


def vtrace_by_hand(batch, ratio, row_end):
    reward, bootstrap, value = (np.asarray(x, np.float64) for x in (batch.reward, batch.bootstrap, batch.value_old))
    ratio = ratio.copy()
    if row_end != "bootstrap":
        ratio[-1] = 0.0
    weight = np.minimum(ratio, 1.0)
    delta = weight * (reward + GAMMA * bootstrap - value)
    advantage, following = np.zeros_like(delta), np.asarray(batch.advantage_next, np.float64)
    for t in (1, 0):
        following = delta[t] + GAMMA * LAMBDA * weight[t] * (1.0 - np.asarray(batch.done[t])) * following
        advantage[t] = following
    return advantage


@pytest.mark.parametrize("row_end", ["bootstrap", "zero"])
def test_vtrace_recomputes_advantages_with_current_ratios(made, row_end):
    parts, params, batch, ratio, _ = made
    _, metrics = loss_of(parts, params, batch, advantage="vtrace", row_end=row_end)
    expected = vtrace_by_hand(batch, ratio, row_end)
    assert metrics["policy_loss"] == pytest.approx(surrogate(ratio, expected), rel=1e-4)
    # the targets stay those of the rollout
    assert metrics["value_loss"] == loss_of(parts, params, batch)[1]["value_loss"]


def test_vtrace_advantages_are_constants_for_the_gradient(made):
    """With ratios at 1 and clipped nowhere, d loss / d log_prob is minus the advantage: nothing flows through it."""
    parts, params, batch, _, _ = made
    parts = switched(parts, advantage="vtrace", vf_coef=0.0)
    (logits, _), _ = parts.net.unroll(params, (), batch.obs, batch.reset)
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.action[..., None], -1)[..., 0]
    batch = batch._replace(log_prob_old=chosen)
    hypers = {name: jnp.float32(value) for name, value in HYPERS.items()}
    got = jax.grad(lambda p: ppo_loss(parts, p, (), hypers, batch)[0])(params)
    advantage = vtrace_by_hand(batch, np.ones((HORIZON, ROWS)), "bootstrap")

    def frozen(p):
        (logits, _), _ = parts.net.unroll(p, (), batch.obs, batch.reset)
        log_prob = jnp.take_along_axis(jax.nn.log_softmax(logits), batch.action[..., None], -1)[..., 0]
        return -(jnp.asarray(advantage, jnp.float32) * log_prob).mean()

    expected = jax.grad(frozen)(params)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-5), got, expected)


def test_steps_of_weight_0_are_ignored(made):
    parts, params, batch, _, _ = made
    weight = batch.weight.at[1, 2].set(0.0)
    hypers = {name: jnp.float32(value) for name, value in {**HYPERS, "ent_coef": 0.1}.items()}
    parts = switched(parts, norm_adv=True)

    def grad(junk):
        spoiled = batch._replace(
            weight=weight,
            advantage=batch.advantage.at[1, 2].set(junk),
            target=batch.target.at[1, 2].set(junk),
            obs=batch.obs.at[1, 2].set(junk),
        )
        return jax.grad(lambda p: ppo_loss(parts, p, (), hypers, spoiled)[0])(params)

    jax.tree.map(np.testing.assert_array_equal, grad(0.0), grad(7.0))


def test_gradient_steps_are_epochs_times_minibatches():
    algorithm = build(configure(update_epochs=2, num_minibatches=3))
    state, metrics = jax.jit(algorithm.update)(jax.jit(algorithm.init)(jax.random.key(0)), hypers_of(algorithm))
    counts = [int(leaf) for leaf in jax.tree.leaves(state.opt_state) if leaf.dtype == jnp.int32]
    assert counts == [6]
    assert float(metrics["train/grad_norm"].count) == 6


def test_schedules_follow_the_share_of_the_run():
    algo = {
        "learning_rate": 4e-4,
        "lr_schedule": "cosine",
        "lr_end": 0.5,
        "clip_schedule": "linear",
        "clip_end": 0.0,
        "ent_coef": 0.01,
        "clip_vf_eps": 1.0,
        "prio_alpha": 1.0,
        "prio_beta0": 0.4,
    }
    cfg = configure(**algo)  # 48 steps in updates of 6
    hypers = build(cfg).hypers
    assert hypers(0) == {"learning_rate": 4e-4, "clip_eps": 0.2, "ent_coef": 0.01, "clip_vf_eps": 1.0, "prio_beta": 0.4}
    assert hypers(4) == pytest.approx(
        {"learning_rate": 3e-4, "clip_eps": 0.1, "ent_coef": 0.01, "clip_vf_eps": 1.0, "prio_beta": 0.7}
    )
    assert hypers(8) == pytest.approx(hypers(800))
    assert hypers(8)["clip_eps"] == 0.0
    assert set(build(configure()).hypers(0)) == set(HYPERS)
