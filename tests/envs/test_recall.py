"""Recall shows its cue once, and gives nothing away after that."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.envs.autoreset import BatchState
from hmx.envs.small.recall import CHANCE, NUM_CUES, Recall, make_recall

WAIT = 0


@cache
def compiled(delay):
    env = make_recall(0, delay)
    return jax.jit(env.reset), jax.jit(env.step)


def step_keys(t, num_envs):
    return jax.random.split(jax.random.fold_in(jax.random.key(7), t), num_envs)


def play(delay, answers):
    """One environment per cue, waiting for `delay` steps and then giving `answers [3]`; the timesteps."""
    _, step = compiled(delay)
    zeros = jnp.zeros(NUM_CUES, jnp.int32)
    state, timesteps = BatchState(Recall(jnp.arange(NUM_CUES), zeros), zeros), []
    for t, action in enumerate([[WAIT] * NUM_CUES] * delay + [answers]):
        state, timestep = step(state, jnp.array(action, jnp.int32)[:, None], step_keys(t, NUM_CUES))
        timesteps.append(timestep)
    return timesteps


def test_cue_is_shown_at_reset_and_only_waiting_is_legal():
    _, first = compiled(2)[0](step_keys(0, 20))
    shown = np.asarray(first.obs[:, 0])
    assert set(map(tuple, shown)) == {(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0)}
    assert first.legal[:, 0].tolist() == [[True, False, False, False]] * 20


def test_right_answer_has_positive_and_wrong_one_negative_reward():
    before, asked, answered = play(2, [1, 3, 3])
    assert before.obs[:, 0].tolist() == [[0, 0, 0, 0]] * 3
    assert asked.obs[:, 0].tolist() == [[0, 0, 0, 1]] * 3
    assert asked.legal[:, 0].tolist() == [[False, True, True, True]] * 3
    assert answered.reward[:, 0].tolist() == [1, -1, 1]
    for timestep in (before, asked):
        assert not timestep.reward.any() and not timestep.terminated.any()
    assert answered.terminated.all() and not answered.truncated.any()
    assert answered.final_obs[:, 0].tolist() == [[0, 0, 0, 0]] * 3
    assert (answered.obs[:, 0, :NUM_CUES].sum(-1) == 1).all()  # the next cue


def test_cue_and_question_coincide_without_delay():
    _, first = compiled(0)[0](step_keys(0, 4))
    assert (first.obs[:, 0].sum(-1) == 2).all()
    assert first.legal[:, 0].tolist() == [[False, True, True, True]] * 4
    assert play(0, [1, 2, 3])[0].reward[:, 0].tolist() == [1, 1, 1]


@pytest.mark.parametrize("delay", [1, 2])
def test_observations_after_the_cue_do_not_depend_on_it(delay):
    for timestep in play(delay, [1, 1, 1])[:-1]:
        for seen in (timestep.obs, timestep.final_obs, timestep.legal, timestep.reward):
            np.testing.assert_array_equal(seen, jnp.broadcast_to(seen[:1], seen.shape))


def test_cues_are_uniform_so_fixed_answers_have_equal_returns():
    envs = 9_000
    reset, step = compiled(1)
    state, first = reset(step_keys(0, envs))
    counts = np.asarray(first.obs[:, 0, :NUM_CUES].sum(0))
    assert ((counts - envs / 3) ** 2 / (envs / 3)).sum() < 13.8
    state, _ = step(state, jnp.zeros((envs, 1), jnp.int32), step_keys(1, envs))
    for answer in range(1, NUM_CUES + 1):
        _, last = step(state, jnp.full((envs, 1), answer, jnp.int32), step_keys(2, envs))
        assert abs(float(last.reward.mean()) - CHANCE) < 5 * np.sqrt((1 - CHANCE**2) / envs)
