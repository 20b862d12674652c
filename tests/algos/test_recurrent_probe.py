"""A cue to be recalled: PPO with a memory learns it, PPO without one stays at chance."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learner import learner
from training import build, train_seeds

from hmx.algos.types import Algorithm
from hmx.config.schema import Config, EnvConfig, NetConfig, RunConfig
from hmx.envs.small.recall import CHANCE, NUM_CUES, make_recall
from hmx.nets import make_net

pytestmark = pytest.mark.long_run
RECURRENT = ["gru", pytest.param("lstm", marks=pytest.mark.thorough)]

SEEDS = range(5)  # one in ten does not learn to recall
DELAY, ENVS, STEPS, UPDATES = 4, 32, 12, 120  # episodes of 5 steps: rows begin in the middle of them
HORIZONS = {"none": 0, "gru": 6, "lstm": 0}  # 0: a row is the whole rollout


class Trained(NamedTuple):
    algorithm: Algorithm
    state: Any  # of the first seed
    returns: np.ndarray  # `[S, U]`: of each seed and update the mean over its episodes
    episodes: np.ndarray
    ratio_error: np.ndarray  # at the first gradient step of each update
    hypers: dict[str, jax.Array]  # of one more update


@functools.cache
def train(rnn):
    options = learner(
        num_steps=STEPS,
        bptt_horizon=HORIZONS[rnn],
        update_epochs=2,
        num_minibatches=2,
        learning_rate=5e-3,
        lr_schedule="constant",
        ent_coef=0.0,
        value_target="identity",
    )
    cfg = Config(
        run=RunConfig(total_steps=UPDATES * ENVS * STEPS),
        env=EnvConfig(id="recall", num_envs=ENVS, max_steps=0, recall_delay=DELAY),
        net=NetConfig(hidden=(64,), activation="tanh", rnn=rnn, rnn_hidden=64),
        **options,
    )
    algorithm = build(cfg)
    states, metrics = zip(*train_seeds(algorithm, UPDATES, SEEDS), strict=True)
    returns = [of_seed["train/mean_episode_return"] for of_seed in metrics]
    totals, episodes = np.array([one.total for one in returns]), np.array([one.count for one in returns])
    errors = np.array([of_seed["train/first_ratio_error"].value for of_seed in metrics])
    last = {name: jnp.asarray(value) for name, value in algorithm.hypers(UPDATES - 1).items()}
    return Trained(algorithm, states[0], totals / episodes, episodes, errors, last)


@pytest.mark.parametrize("rnn", RECURRENT)
def test_recurrent_network_recalls_the_cue(rnn):
    returns = train(rnn).returns
    assert np.median(returns[:, 0]) < 0.0
    assert np.median(returns[:, -20:].mean(1)) > 0.95


@pytest.mark.thorough
def test_feed_forward_network_stays_at_random_level():
    returns, episodes = train("none").returns[:, 20:], train("none").episodes[:, 20:]
    error = np.sqrt((1.0 - CHANCE**2) / episodes.sum())
    assert episodes.sum() > 4000
    assert abs(np.average(returns, weights=episodes) - CHANCE) < 4 * error


@pytest.mark.parametrize("rnn", [pytest.param("none", marks=pytest.mark.thorough), *RECURRENT])
def test_rollout_and_loss_agree_at_the_first_gradient_step(rnn):
    """The ratio is exactly 1 in the first update; later a sum of other length may round otherwise."""
    assert train(rnn).ratio_error.shape == (len(SEEDS), UPDATES)
    assert (train(rnn).ratio_error[:, 0] == 0.0).all()
    assert train(rnn).ratio_error.max() < 1e-5


@pytest.mark.parametrize("rnn", RECURRENT)
def test_carry_covers_exactly_the_current_episode(rnn):
    """Played again from the first cue on with an empty memory at each cue, and nowhere else, every value comes back."""
    algorithm, state, *_, hypers = train(rnn)
    horizon = HORIZONS[rnn] or STEPS
    seen = jax.jit(algorithm.experience)(state, hypers)

    def in_time(leaf):
        """Rows `[H, R x E, ...]` -> `[T, E, ...]`."""
        return np.moveaxis(np.asarray(leaf).reshape(horizon, -1, ENVS, *leaf.shape[2:]), 1, 0).reshape(
            STEPS, ENVS, *leaf.shape[2:]
        )

    obs, value = in_time(seen["obs"]), in_time(seen["value_old"])
    cue = obs[..., :NUM_CUES].any(-1)
    np.testing.assert_array_equal(in_time(seen["reset"]), cue)
    net = make_net(NetConfig(hidden=(64,), activation="tanh", rnn=rnn, rnn_hidden=64), make_recall(0, DELAY).spec)
    apply = jax.jit(net.apply)
    carry, known, forgetful = net.initial_carry((ENVS,)), np.zeros(ENVS, bool), []
    for t in range(STEPS):
        known |= cue[t]
        output, carry = apply(state.params, carry, obs[t], cue[t])
        np.testing.assert_allclose(output.value_raw[known, 0], value[t, known], rtol=1e-4, atol=1e-5)
        empty, _ = apply(state.params, net.initial_carry((ENVS,)), obs[t], cue[t])
        forgetful.append(np.abs(empty.value_raw[:, 0] - value[t])[known & ~cue[t]])
    assert known.all()
    assert np.concatenate(forgetful).max() > 0.01  # what is remembered matters to the value
