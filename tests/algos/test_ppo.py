"""PPO: the importance ratio, one trace, seeds side by side, and the small tasks it must solve."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner
from training import assert_same, build, hypers_of, last_mean, leaves, train_seeds

from hmx.algos.metrics import dormant_units
from hmx.config.schema import Config, EnvConfig, NetConfig, RunConfig
from hmx.types import Max, Mean, Sum

UPDATES = 3


def configure(env_id="frozenlake", num_envs=8, max_steps=9, updates=UPDATES, hidden=(16,), **algo):
    algo = {"num_steps": 16, "learning_rate": 0.01, "update_epochs": 2, "num_minibatches": 4, **algo}
    return Config(
        run=RunConfig(total_steps=updates * num_envs * algo["num_steps"]),
        env=EnvConfig(id=env_id, num_envs=num_envs, max_steps=max_steps),
        net=NetConfig(hidden=hidden),
        **learner(**algo),
    )


def update_with(algorithm):
    """The jitted update, with the scheduled values of the update that comes."""
    update = jax.jit(algorithm.update)
    return lambda state: update(state, hypers_of(algorithm, int(state.update.reshape(-1)[0])))


def ask(algorithm, state, key=0, greedy=True, legal=None):
    """The decision at the state's own observations."""
    legal = state.actors.legal if legal is None else legal
    return algorithm.act(
        state, state.actors.carry, state.actors.obs, legal, state.actors.reset, jax.random.key(key), greedy
    )[0]


def run(cfg, updates=UPDATES, seed=0):
    algorithm = build(cfg)
    update = update_with(algorithm)
    state = jax.jit(algorithm.init)(jax.random.key(seed))
    history = []
    for _ in range(updates):
        state, metrics = update(state)
        history.append(metrics)
    return state, history


@pytest.fixture(scope="module")
def trained():
    cfg = configure(value_target="return_norm")
    return cfg, build(cfg), *run(cfg)


def number(metric):
    match metric:
        case Mean(total, count):
            return float(total / count)
        case Max(value, _):
            return float(value)
        case Sum(total):
            return float(total)


def test_at_learning_rate_0_the_ratio_is_exactly_1_and_the_value_loss_does_not_fall(trained):
    """The policy never changes, so rollout and loss must agree to the last bit on every sample."""
    _, algorithm, *_ = trained
    first = state = jax.jit(algorithm.init)(jax.random.key(0))
    update = jax.jit(algorithm.update)
    for number_of_update in range(UPDATES):
        state, metrics = update(state, hypers_of(algorithm, number_of_update, learning_rate=0.0))
        assert number(metrics["train/approx_kl"]) == 0.0
        assert number(metrics["train/clip_frac"]) == 0.0
        assert abs(number(metrics["train/value_loss_fall"])) < 1e-6
    np.testing.assert_array_equal(state.params["policy_head"]["kernel"], first.params["policy_head"]["kernel"])
    then, now = (ask(algorithm, first._replace(params=s.params, learner=s.learner)) for s in (first, state))
    np.testing.assert_array_equal(now.probs, then.probs)
    np.testing.assert_allclose(now.value, then.value, rtol=1e-3, atol=1e-4)


def test_metrics_have_their_names_and_are_consistent(trained):
    _, _, state, history = trained
    metrics = history[-1]
    names = (
        "mean_reward mean_episode_return mean_episode_length num_episodes policy_loss value_loss total_loss approx_kl"
    )
    names += " advantage_std clip_frac entropy max_entropy explained_variance grad_norm first_ratio_error"
    names += " truncated_frac dormant_units value_loss_fall"
    assert [number(one["train/first_ratio_error"]) for one in history] == [0.0] * UPDATES
    assert 1e-3 < number(history[0]["train/value_loss_fall"]) < 1.0
    actions = {f"actions/{name}_frac" for name in ("left", "down", "right", "up")}
    assert set(metrics) == {f"train/{name}" for name in names.split()} | {"reward/goal"} | actions
    assert sum(number(metrics[name]) for name in actions) == pytest.approx(1.0)
    assert number(metrics["reward/goal"]) == pytest.approx(number(metrics["train/mean_reward"]))
    assert int(state.update) == UPDATES
    total = (
        number(metrics["train/policy_loss"])
        + 0.5 * number(metrics["train/value_loss"])
        - 0.01 * number(metrics["train/entropy"])
    )
    assert number(metrics["train/total_loss"]) == pytest.approx(total, rel=1e-5, abs=1e-6)


def test_units_killed_during_a_run_are_reported_as_dormant():
    cfg = configure(hidden=(16, 8), learning_rate=0.0)
    cfg = dataclasses.replace(cfg, net=dataclasses.replace(cfg.net, rnn="gru", rnn_hidden=8))
    algorithm = build(cfg)
    state = jax.jit(algorithm.init)(jax.random.key(0))
    torso = state.params["torso"]
    bias = torso["dense_0"]["bias"].at[:12].set(-100.0)
    killed = {**state.params, "torso": {**torso, "dense_0": {**torso["dense_0"], "bias": bias}}}
    update = update_with(algorithm)
    before, after = (update(state._replace(params=params))[1] for params in (state.params, killed))
    assert float(after["train/dormant_units"].count) == 32
    assert 12 <= float(after["train/dormant_units"].total) < 32
    assert float(before["train/dormant_units"].total) < 12


def test_dormant_units_match_the_definition():
    signs = jnp.array([[1.0, -1.0, 1.0, 1.0], [-1.0, 1.0, 1.0, 1.0]])
    above, below = signs * jnp.array([[0.0, 1.3, 98.7, 100.0]]), signs * jnp.array([[0.0, 1.2, 98.8, 100.0]])  # of 1.25
    assert number(dormant_units([above])["train/dormant_units"]) == pytest.approx(1 / 4)
    assert number(dormant_units([below])["train/dormant_units"]) == pytest.approx(2 / 4)
    assert number(dormant_units([above, jnp.zeros((3, 5, 2))])["train/dormant_units"]) == pytest.approx(3 / 6)
    assert dormant_units([]) == {}


def test_an_update_returns_what_the_next_one_takes(trained):
    """So all of them are one program."""
    _, algorithm, *_ = trained
    first = jax.eval_shape(algorithm.init, jax.random.key(0))
    after, _ = jax.eval_shape(algorithm.update, first, hypers_of(algorithm))
    described = [jax.tree.map(lambda x: (x.shape, x.dtype, x.weak_type), state) for state in (first, after)]
    assert described[0] == described[1]


def test_results_depend_only_on_the_key(trained):
    cfg, _, state, _ = trained
    assert_same(state, run(cfg)[0])
    other, _ = run(cfg, seed=1)
    assert any((a != b).any() for a, b in zip(leaves(state.params), leaves(other.params), strict=True))


def test_every_update_uses_new_random_numbers(trained):
    """The key of the state never changes; what it yields must."""
    _, algorithm, state, _ = trained
    update = update_with(algorithm)
    now, _ = update(state)
    later, _ = update(state._replace(update=state.update + 1))
    assert any((a != b).any() for a, b in zip(leaves(now.actors.obs), leaves(later.actors.obs), strict=True))


def test_seeds_trained_together_equal_seeds_trained_alone(trained):
    """Up to rounding: batched matrix products add in another order."""
    cfg, algorithm, *_ = trained
    states = jax.jit(jax.vmap(algorithm.init))(jax.vmap(jax.random.key)(jnp.arange(2)))
    state, metrics = jax.jit(jax.vmap(algorithm.update, in_axes=(0, None)))(states, hypers_of(algorithm, 0))
    for seed in range(2):
        alone, history = run(cfg, updates=1, seed=seed)
        for a, b in zip(leaves(alone), leaves(jax.tree.map(lambda x, seed=seed: x[seed], state)), strict=True):
            np.testing.assert_allclose(b, a, rtol=1e-3, atol=1e-5)
        for name, metric in history[0].items():
            got = jax.tree.map(lambda x, seed=seed: x[seed], metrics[name])
            np.testing.assert_allclose(number(got), number(metric), rtol=1e-3, atol=1e-5, err_msg=name)


def test_act(trained):
    _, algorithm, state, _ = trained
    decision = ask(algorithm, state)
    assert decision.action.shape == decision.value.shape == decision.log_prob.shape == (8, 1)
    np.testing.assert_array_equal(decision.action, decision.probs.argmax(-1))
    np.testing.assert_allclose(decision.probs.sum(-1), 1.0, rtol=1e-5)
    sampled = [ask(algorithm, state, k, greedy=False).action.tolist() for k in range(8)]
    assert len({str(action) for action in sampled}) > 1
    only_up = jnp.zeros_like(state.actors.legal).at[..., 3].set(True)
    assert ask(algorithm, state, greedy=False, legal=only_up).action.tolist() == [[3]] * 8


@pytest.mark.thorough
def test_frozenlake_is_solved():
    """Rewards are rare: with normalised advantages two seeds of five unlearn to explore before they find the goal."""
    options = {"num_steps": 32, "learning_rate": 0.01, "norm_adv": False}
    cfg = configure("frozenlake", num_envs=64, max_steps=100, updates=80, hidden=(64,), **options)
    trained = train_seeds(build(cfg), 80)
    assert np.median([last_mean(metrics, "train/mean_episode_return") for _, metrics in trained]) > 0.95
    lengths = [last_mean(metrics, "train/mean_episode_length") for _, metrics in trained]
    assert np.median(lengths) < 22.0  # 14 at best
