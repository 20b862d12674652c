"""Positions whose consequence is known: payments, chances, delays, and a chain worked out by hand."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from machine import comparer, options_of, outcomes_of, scores_of

from hmx.envs.autoreset import Game, batched
from hmx.envs.protocol import EnvSpec
from hmx.scoring import Continuation, Positions, play

ROLLOUTS, GAMMA = 512, 0.9
LN2 = np.log(2.0)


def of(metric="w1", **options):
    """The options of most tests: few sets of them, so that few programs are compiled."""
    return options_of(**{"rollouts": ROLLOUTS, "horizon": 4, "gamma": GAMMA, "metric": metric, **options})


@pytest.mark.parametrize(
    ("metric", "expected"),
    [  # fork, eight to three, nine to six, equal means
        ("w1", [1.0, 0.5, 0.3, 0.45]),
        ("dmean", [1.0, 0.5, 0.3, 0.0]),
        ("tv", [1.0, 0.5, 0.3, 1.0]),
        ("js", [LN2, 0.132505, 0.063288, LN2]),
    ],
)
def test_one_step(metric, expected):
    """Divergences of constants are not 0, and equal means are told apart by all but their difference."""
    names = ["fork", "eight to three", "nine to six", "equal means"]
    found = scores_of(names * 16, of(metric), key=1)
    mean = np.asarray(found.score).reshape(16, 4).mean(0)
    assert (np.abs(mean - np.array(expected)) < [1e-6, 0.02, 0.02, 0.03]).all(), mean
    np.testing.assert_allclose(found.halves[:, 0], expected[0], rtol=1e-5)


@pytest.mark.parametrize("metric", ["dmean", "js_bins"])
def test_actions_with_equal_outcomes_score_0(metric):
    """Exactly, since they meet the same random numbers; and a position without alternatives neither."""
    names = ["coins", "same, slow", "only one"]
    found = scores_of(names, of(metric, rollouts=16, null=True))
    np.testing.assert_array_equal(found.score, 0.0)
    np.testing.assert_array_equal(found.spread, 0.0)
    np.testing.assert_array_equal(found.valid, [[True, True, False], [True] * 3, [True, False, False]])
    assert found.null[0] > 0.0 or metric == "dmean"


def test_equal_actions_differ_without_common_random_numbers():
    """By `E |p - q|` of two binomial shares; so does an action from itself."""
    found = scores_of(["coins"] * 1000, of("tv", rollouts=16, crn=False, null=True))
    for values in (np.asarray(found.score, np.float64), np.asarray(found.null, np.float64)):
        assert abs(values.mean() - 0.1399) < 4 * values.std() / np.sqrt(1000)
    halves = np.asarray(found.halves, np.float64)
    assert abs(halves.mean() - 0.1964) < 4 * halves.std() / np.sqrt(2000)


@pytest.mark.parametrize(("metric", "plug_in"), [("w1", 0.14), ("js", 0.016)])
def test_correction_removes_noise_of_equal_actions_and_keeps_certain_differences(metric, plug_in):
    """Two coins without common random numbers: their distance is 0, and 16 throws of each show more."""
    names = ["coins"] * 998 + ["fork"] * 2
    plain, corrected = (
        scores_of(names, of(metric, rollouts=16, crn=False, corrected=corrected)) for corrected in (False, True)
    )
    coins = np.asarray(plain.score[:998]).mean()
    assert coins == pytest.approx(plug_in, rel=0.15)
    assert np.asarray(corrected.score[:998]).mean() < 0.7 * coins
    np.testing.assert_array_equal(corrected.score[998:], plain.score[998:])
    np.testing.assert_allclose(corrected.score + corrected.bias, plain.score, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(corrected.bias, plain.bias)


def test_bins_are_corrected_by_the_noise_within_an_action():
    """Uncorrected, two equal actions under other random numbers would show their chance difference."""
    found = scores_of(["coins"] * 998 + ["fork"] * 2, of("tv_bins", rollouts=16, crn=False))
    assert 0.12 < float(found.null[:998].mean()) < 0.16
    assert float(found.score[:998].mean()) < 0.5 * float(found.null[:998].mean())
    np.testing.assert_allclose(found.score[998:], 1.0)
    np.testing.assert_array_equal(found.null[998:], 0.0)


@pytest.mark.parametrize("metric", ["tv_bins", "w1"])
def test_actions_that_were_not_tried_do_not_matter(metric):
    """Their rows repeat the action taken with other random numbers, or here with returns that no action has."""
    options = of(metric, rollouts=16, crn=False)
    outcomes = outcomes_of(["coins", "only one"], options)
    strange = jnp.where(outcomes.tried.valid[..., None], outcomes.returns, 1e6)
    judge = comparer(options_of(metric=metric, rollouts=16))
    jax.tree.map(np.testing.assert_array_equal, judge(outcomes._replace(returns=strange)), judge(outcomes))


def test_halves_are_the_scores_of_either_half_of_the_rollouts():
    outcomes = outcomes_of(["coins", "eight to three"] * 8, of(rollouts=16, crn=False), key=2)
    halves = np.asarray(comparer(options_of(metric="w1", rollouts=16))(outcomes).halves)
    for half, part in zip(halves, (slice(0, 8), slice(8, 16)), strict=True):
        alone = comparer(options_of(metric="w1", rollouts=8))(outcomes._replace(returns=outcomes.returns[..., part]))
        np.testing.assert_allclose(half, alone.score, rtol=1e-5)
    assert (halves[0] != halves[1]).mean() > 0.5


@pytest.mark.parametrize(("aggregate", "expected"), [("mean", 2.0), ("max", 3.0), ("policy", 2.5)])
def test_aggregates_match_their_definitions(aggregate, expected):
    """Alternatives pay 1 and 3, and the policy is three times as likely to choose the latter."""
    found = scores_of(["aggregation", "fork", "slow"], of(rollouts=4, aggregate=aggregate))
    np.testing.assert_allclose(found.score[0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.spread[0], 3.0)
    np.testing.assert_allclose(found.divergence[0], [0.0, 1.0, 3.0])
    np.testing.assert_allclose(found.mean[0], [0.0, 1.0, 3.0])


def test_units_of_scores_are_as_documented():
    """Rewards times k: Wasserstein-1 times k, the others as they were."""
    names = ["eight to three", "nine to six", "equal means", "fork"] * 16
    outcomes = outcomes_of(names, of(), key=1)
    for metric, factor in (("w1", 100.0), ("tv", 1.0), ("js", 1.0)):
        judge = comparer(options_of(metric=metric, rollouts=ROLLOUTS))
        one, hundred = judge(outcomes), judge(outcomes._replace(returns=100.0 * outcomes.returns))
        np.testing.assert_allclose(hundred.score, factor * one.score, rtol=1e-5)


@pytest.mark.parametrize(("horizon", "expected"), [(5, GAMMA**4), (4, 0.0)])
def test_too_short_horizon_has_score_0(horizon, expected):
    for metric, full in (("w1", expected), ("tv", float(expected > 0))):
        found = scores_of(["fork", "slow", "slow"], of(metric, rollouts=4, horizon=horizon))
        np.testing.assert_allclose(found.score[1:], full, rtol=1e-6)
    # two of the three tries pull the slow lever: the third action is illegal, and repeats it
    np.testing.assert_allclose(found.ended[1:], 1.0 if expected else 1 / 3)


@pytest.mark.parametrize("max_steps", [0, 2])
def test_bootstrapping_restores_truncated_returns(max_steps):
    """After 2 steps, by the horizon or by the environment's limit, the exact value stands for what comes later.

    Where the limit cuts, the horizon is longer, and nothing of the next episode enters, nor what is legal in it.
    """
    options = of(rollouts=4, horizon=6 if max_steps else 2, bootstrap=True)
    found = scores_of(["slow", "fork", "slow"], options, max_steps=max_steps)
    np.testing.assert_allclose(found.score, [GAMMA**4, 1.0, GAMMA**4], rtol=1e-6)


def test_an_episode_that_is_cut_before_others_keeps_its_value():
    """One step before the limit of two; meanwhile its environment plays and ends another episode."""
    options = of(rollouts=4, horizon=6, bootstrap=True)
    found = scores_of(["slow", "slow"], options, max_steps=2, taken=(1, 0))
    np.testing.assert_allclose(found.score, [GAMMA * GAMMA**2, GAMMA**4], rtol=1e-6)


def test_rewards_of_the_next_episode_are_ignored():
    """The environment resets itself to a machine that pays 1; a long horizon must not collect that."""
    names = ["coins", "fork", "same, slow"]
    short, long = (outcomes_of(names, of(rollouts=4, horizon=h)) for h in (5, 30))
    np.testing.assert_array_equal(short.returns, long.returns)


class Chain:
    """States 0, 1 and the goal 2; `go` advances with probability .8 and pays 1 at the goal; `stay` stays."""

    spec = EnvSpec(
        id="chain",
        obs_shape=(1,),
        obs_dtype=jnp.float32,
        num_actions=2,
        num_agents=1,
        max_steps=0,
        reward_terms=("goal",),
        action_groups=(("go", 0, 1), ("stay", 1, 2)),
        action_names=("go", "stay"),
    )

    @staticmethod
    def move(cell, action, key):
        moves = (action == 0) & (jax.random.uniform(key) < 0.8)
        cell = cell + moves.astype(jnp.int32)
        return cell, {"goal": (cell == 2).astype(jnp.float32)}, cell == 2

    @classmethod
    def env(cls):
        def start(key):
            return jnp.int32(0)

        def observe(cell):
            return cell.astype(jnp.float32)[None]

        return batched(cls.spec, Game(start, cls.move, observe, lambda cell: jnp.ones(2, bool)))


def test_scores_of_a_chain_match_a_hand_calculation():
    """Always go, after going or after staying once; the steps to the goal are negative binomial."""
    env, num = Chain.env(), 4
    state, shown = env.reset(jax.random.split(jax.random.key(0), num))
    ids, taken = jnp.arange(num, dtype=jnp.uint32), jnp.zeros((num, 1), jnp.int32)
    positions = Positions(state, shown.obs, shown.legal, taken, ids)
    policy = Continuation(lambda params, obs, legal, keys: jnp.zeros(obs.shape[:2], jnp.int32))
    options = options_of(rollouts=4096, horizon=10, gamma=0.9, crn=False)
    outcomes = jax.jit(lambda: play(env, policy, None, positions, jax.random.key(1), options))()
    for metric, expected in (("w1", 0.085668), ("dmean", 0.085668), ("tv", 0.64), ("js", 0.301758)):
        found = comparer(replace(options, metric=metric))(outcomes)
        np.testing.assert_allclose(found.score.mean(), expected, atol=0.006)
    np.testing.assert_allclose(found.mean[:, 0].mean(), 0.856632, atol=0.004)
