"""The collector stores what belongs together: the counting environment shows every mistake of one step."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import with_info

from hmx.algos.collector import Policy, RolloutState, collect, start, value_where
from hmx.algos.metrics import step_metrics
from hmx.algos.types import Decision, Episode, Starts
from hmx.envs.autoreset import Game, TeamGame, batched
from hmx.envs.protocol import EnvSpec
from hmx.envs.small.counting import make_counting
from hmx.rl import distributions
from hmx.types import Max, Mean, Sum

ENVS, STEPS, LIMIT = 3, 8, 5


def act(carry, obs, legal, reset, key):
    """Uniform over the legal; says as its value a hundred times what it sees, and remembers how often it was asked."""
    logits = jnp.zeros(legal.shape, jnp.float32)
    action = distributions.sample(key, logits, legal)
    log_prob, probs = distributions.log_prob(logits, legal, action), distributions.probs(logits, legal)
    return Decision(action, log_prob, probs, value(carry, obs, reset)), jnp.where(reset[:, None], 0, carry) + 1


def value(carry, obs, reset):
    return 100.0 * obs[..., 0]


POLICY = Policy(act, value)
NOTHING = jnp.zeros((ENVS, 1), jnp.int32)


def make_env(length=0):
    """Counts, and reports the number it shows under each kind of key."""

    def info(timestep):
        names = ("top_max", "all_sum", "avg_mean", "uses/zero_sum", "note", "last_episode")
        return dict.fromkeys(names, timestep.final_obs[:, 0, 0])

    return with_info(make_counting(LIMIT, length=length), info)


@pytest.fixture(scope="module")
def played():
    """Two rollouts on end."""
    env = make_env()
    run = jax.jit(partial(collect, env, POLICY, num_steps=STEPS, num_sequences=2))
    actors_1, rollout_1, _ = run(start(env, ENVS, NOTHING, jax.random.key(0)), jax.random.key(1))
    return actors_1, rollout_1, *run(actors_1, jax.random.key(2))


def counted(first):
    """What the counting environment shows from one step on, in every environment."""
    return np.repeat((np.arange(first, first + STEPS) % LIMIT)[:, None], ENVS, 1)


def test_every_entry_belongs_to_the_observation_acted_upon(played):
    _, rollout_1, _, rollout_2, _ = played
    for first, rollout in ((0, rollout_1), (STEPS, rollout_2)):
        seen = rollout.transitions
        step_t = counted(first)
        np.testing.assert_array_equal(seen.obs_t[:, :, 0, 0], step_t)
        np.testing.assert_array_equal(seen.value_t[:, :, 0], 100 * step_t)
        np.testing.assert_array_equal(seen.reward_tp1[:, :, 0], step_t)
        np.testing.assert_array_equal(seen.legal_t[:, :, 0].argmax(-1) % 3 == 0, (step_t % 4 == 0) | (step_t % 4 == 3))
        offset = (np.asarray(seen.action_t[:, :, 0]) - step_t) % 4
        assert set(offset.ravel()) == {0, 1}  # legal in that very step, and both are taken
        np.testing.assert_allclose(seen.log_prob_t, np.log(0.5), rtol=1e-6)


def test_final_and_last_observations_have_their_values(played):
    _, rollout, actors_2, rollout_2, _ = played
    seen = rollout.transitions
    cut = counted(0) == LIMIT - 1
    np.testing.assert_array_equal(seen.truncated_tp1[:, :, 0], cut)
    assert not seen.terminated_tp1.any()
    np.testing.assert_array_equal(seen.value_final_tp1[:, :, 0], np.where(cut, 100 * LIMIT, 0))
    np.testing.assert_array_equal(rollout.value_last, 100 * (STEPS % LIMIT))
    np.testing.assert_array_equal(rollout_2.value_last, 100 * (2 * STEPS % LIMIT))
    np.testing.assert_array_equal(actors_2.obs[:, 0, 0], 2 * STEPS % LIMIT)


def test_termination_computes_no_final_value():
    env = make_env(length=LIMIT - 1)
    run = jax.jit(partial(collect, env, POLICY, num_steps=STEPS))
    _, rollout, _ = run(start(env, ENVS, NOTHING, jax.random.key(0)), jax.random.key(1))
    assert bool(rollout.transitions.terminated_tp1.any())
    assert not rollout.transitions.value_final_tp1.any()


def test_second_rollout_has_the_expected_metrics(played):
    """Steps 8 to 15 show 3 4 | 0 1 2 3 4 | 0: two episodes end in each environment, the first begun before."""
    *_, metrics = played
    per_env = {"shown": 3 + 4 + 0 + 1 + 2 + 3 + 4 + 0, "final": 4 + 5 + 1 + 2 + 3 + 4 + 5 + 1}

    def mean(name):
        assert isinstance(metrics[name], Mean)
        return float(metrics[name].total / metrics[name].count)

    assert mean("reward/count") == mean("train/mean_reward") == per_env["shown"] / STEPS
    assert mean("train/mean_episode_return") == 10.0
    assert mean("train/mean_episode_length") == LIMIT
    assert float(metrics["train/num_episodes"].total) == 2 * ENVS
    assert float(metrics["train/mean_episode_return"].count) == 2 * ENVS
    assert mean("actions/zero_frac") + mean("actions/other_frac") == pytest.approx(1.0)
    assert isinstance(metrics["stats/top"], Max)
    assert float(metrics["stats/top"].value) == LIMIT
    assert isinstance(metrics["stats/all"], Sum)
    assert float(metrics["stats/all"].total) == float(metrics["uses/zero"].total) == ENVS * per_env["final"]
    assert mean("stats/avg") == per_env["final"] / STEPS
    assert mean("stats/last") == LIMIT  # of the steps that end an episode alone
    assert not any("note" in name for name in metrics)


def test_later_starts_count_only_in_their_own_metrics():
    """Two of three environments play such an episode, one of which ends; the third one ends too."""
    env = make_env()
    _, timestep = env.reset(jax.random.split(jax.random.key(0), ENVS))
    shown, ended = jnp.array([1.0, 5.0, 9.0]), jnp.array([True, True, False])
    info = {"top_max": shown, "wins_sum": shown, "last_episode": shown}
    timestep = timestep._replace(
        info=info, terms={"count": shown}, reward=shown[:, None], terminated=ended, truncated=~ended & False
    )
    episode = Episode(10.0 * shown, jnp.array([2, 4, 6]), jnp.array([False, True, True]))
    metrics = step_metrics(env.spec, jnp.array([[0], [1], [1]]), timestep, episode)
    means = {name: metric.total / metric.count for name, metric in metrics.items() if isinstance(metric, Mean)}
    of_the_first = ("reward/count", "train/mean_reward", "stats/last", "actions/zero_frac")
    assert {float(means[name]) for name in of_the_first} == {1.0}
    assert float(means["actions/other_frac"]) == 0.0
    assert (float(metrics["stats/top"].value), float(metrics["stats/wins"].total)) == (1.0, 1.0)
    for group, ret, length in (("train", 10.0, 2.0), ("starts", 50.0, 4.0)):
        assert float(means[f"{group}/mean_episode_return"]) == ret
        assert float(means[f"{group}/mean_episode_length"]) == length
        assert float(metrics[f"{group}/num_episodes"].total) == 1.0
    assert float(metrics["starts/wins"].total) == 14.0
    assert float(means["starts/share"]) == pytest.approx(2 / 3)
    everyone = step_metrics(env.spec, jnp.array([[0], [1], [1]]), timestep, episode._replace(later=jnp.ones(3, bool)))
    assert float(everyone["stats/top"].count) == float(everyone["train/mean_episode_return"].count) == 0.0


def make_two_lengths():
    """Half of the episodes last 2 steps and return 1; the other half last 7 steps and return -1."""
    spec = EnvSpec(
        id="two-lengths", obs_shape=(1,), num_actions=2, max_steps=100, reward_terms=("outcome",), action_groups=(),
        action_names=("zero", "one"),
    )  # fmt: skip

    def reset(key):
        return jnp.where(jax.random.bernoulli(key), jnp.array([2, 1]), jnp.array([7, -1]))

    def move(state, action, key):
        left, outcome = state
        ends = left == 1
        return jnp.array([left - 1, outcome]), {"outcome": jnp.where(ends, outcome, 0).astype(jnp.float32)}, ends

    def observe(state):
        return state[:1].astype(jnp.float32)

    return batched(spec, Game(reset, move, observe, legal=lambda state: jnp.ones(2, bool)))


def test_first_mean_covers_the_first_episode_of_every_environment():
    """The short episodes return more: a mean over those that have ended would begin too high."""
    env, num_envs = make_two_lengths(), 64
    run = jax.jit(partial(collect, env, POLICY, num_steps=3))
    actors = start(env, num_envs, jnp.zeros((num_envs, 1), jnp.int32), jax.random.key(0))
    first_returns = actors.env_state.core[:, 1]
    ended, returns, counts = [], [], []
    for number in range(5):
        actors, rollout, metrics = run(actors, jax.random.key(number))
        ended.append(int(rollout.transitions.terminated_tp1.sum()))
        returns.append(metrics["train/mean_episode_return"])
        counts.append(int(metrics["train/num_episodes"].total))
    assert ended[0] > 0
    assert counts == [0, 0, num_envs, *ended[3:]]
    assert [int(mean.count) for mean in returns] == counts
    assert float(returns[2].total) == first_returns.sum()


def test_rollouts_join_without_a_seam(played):
    """The accumulators of episodes under way and the observation travel with the actors."""
    actors, *_ = played
    assert isinstance(actors, RolloutState)
    np.testing.assert_array_equal(actors.episode.length, STEPS % LIMIT)
    np.testing.assert_array_equal(actors.episode.total, 0 + 1 + 2)


def test_episodes_start_again_in_a_stored_state_with_its_legal_actions():
    """They begin in the state that shows 2, with its three steps to the limit."""
    env = make_env()
    begun = start(env, ENVS, NOTHING, jax.random.key(0))
    later, _, _ = collect(env, POLICY, begun, jax.random.key(1), 2)
    actors = begun._replace(starts=Starts(later.env_state, later.obs, later.legal))
    _, rollout, _ = collect(env, POLICY, actors, jax.random.key(2), STEPS)
    step_t = np.repeat(np.array([0, 1, 2, 3, 4, 2, 3, 4])[:, None], ENVS, 1)
    np.testing.assert_array_equal(rollout.transitions.obs_t[:, :, 0, 0], step_t)
    first_legal = rollout.transitions.legal_t[:, :, 0].argmax(-1)
    np.testing.assert_array_equal(first_legal % 3 == 0, (step_t % 4 == 0) | (step_t % 4 == 3))


def test_an_agent_that_is_done_is_not_truncated():
    """Agent 0 is done after one step; agent 1 goes on to the limit of three."""
    spec = EnvSpec(
        id="two", obs_shape=(1,), num_actions=2, num_agents=2, max_steps=3, reward_terms=("none",), action_groups=(),
        action_names=("zero", "one"),
    )  # fmt: skip

    def move(core, action, key):
        return core + 1, {"none": jnp.zeros(2)}, jnp.array([True, False])

    game = TeamGame(
        lambda key: jnp.int32(0), move, lambda core: jnp.full((2, 1), core, jnp.float32),
        lambda core: jnp.ones((2, 2), bool),
    )  # fmt: skip
    env = batched(spec, game)
    _, rollout, _ = collect(env, POLICY, start(env, 1, NOTHING[:1], jax.random.key(0)), jax.random.key(1), 4)
    seen = rollout.transitions
    assert seen.terminated_tp1[:, 0].tolist() == [[True, False]] * 4
    assert seen.truncated_tp1[:, 0].tolist() == [[False, step == 2] for step in range(4)]
    assert seen.alive_t[:, 0].tolist() == [[step % 3 == 0, True] for step in range(4)]


def test_carry_is_reset_per_episode_and_stored_per_sequence(played):
    """The policy counts its own steps: it must agree with the environment, which counts too."""
    actors_1, rollout_1, actors_2, rollout_2, _ = played
    seen = rollout_1.transitions
    np.testing.assert_array_equal(seen.reset_t, counted(0) == 0)
    rows = np.stack([rollout_1.carry[..., 0], rollout_2.carry[..., 0]]).reshape(4, ENVS)
    # before step 0, 4, 8 and 12; a memory that is about to be emptied still holds the episode that ended
    np.testing.assert_array_equal(rows, np.repeat([[0], [4], [3], [2]], ENVS, 1))
    np.testing.assert_array_equal(actors_1.carry[:, 0], 3)
    np.testing.assert_array_equal(actors_2.carry[:, 0], 1)
    np.testing.assert_array_equal(actors_2.reset, False)


@pytest.mark.parametrize("where", [[False, False], [True, False]])
def test_value_is_computed_only_where_it_is_needed(where):
    """Under vmap too: an evaluation that was skipped cannot spoil anything, one that ran shows."""
    obs = jnp.ones((1, 2, 1, 1))
    masks = jnp.array([where])
    got = jax.vmap(lambda mask, obs: value_where(mask, lambda o: 100.0 * o[..., 0], obs))(masks, obs)
    np.testing.assert_array_equal(got[0, :, 0], 100.0 * np.array(where))
    body = jax.make_jaxpr(jax.vmap(lambda mask, obs: value_where(mask, lambda o: jnp.sin(o[..., 0]), obs)))(masks, obs)
    outside = [eqn.primitive.name for eqn in body.eqns]
    assert "while" in outside
    assert "sin" not in outside
