"""Simulators in workers, played by the functions that compiled programs use."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import walk_sim
from simulators.conftest import recipe

from hmx.algos.evaluate import EvalPolicy, make_chunks, make_evaluation, make_recorder, record, taking
from hmx.config.schema import EnvConfig
from hmx.own.simulator import simulated
from hmx.runs.simulated import opened
from hmx.simulators.episode import EVALUATION, episode_seed

SEED, ENVS, EPISODES, LENGTH = 3, 4, 6, 5


def played_alone(env, number):
    """Play an episode without workers: its last observation, and its return in float32."""
    walk = walk_sim.make(walk_sim.Options(length=LENGTH))
    walk.reset(seed=episode_seed(SEED, EVALUATION, env, number))
    total = np.float32(0.0)
    for _ in range(LENGTH):
        obs, reward, *_ = walk.step(1)
        total += np.float32(reward)
    return obs, total


def right(state, env_state, carry, obs, legal, reset, key):
    return taking(jnp.ones(legal.shape[:2], jnp.int32)), carry


def test_each_simulator_plays_its_own_episodes_and_their_steps_can_be_kept():
    cfg = EnvConfig(id="walk", num_envs=ENVS)
    env = simulated(recipe(length=LENGTH), cfg)
    whole = make_evaluation(env, EvalPolicy(right), ENVS, EPISODES)
    expected = [played_alone(i % ENVS, i // ENVS) for i in range(EPISODES)]
    with opened(env, cfg, ENVS, SEED) as stepped:
        chunks = make_chunks(whole.on(stepped))
        play, key = chunks.start(jax.random.key(0))
        play, seen = chunks.advance(None, key, play, 3)
        assert seen.unfinished and (int(seen.episodes), int(seen.steps)) == (0, 3 * ENVS)
        play, seen = chunks.advance(None, key, play, 100)
    assert not seen.unfinished and play.episodes.length.tolist() == [LENGTH] * EPISODES
    assert play.episodes.finished.all()
    np.testing.assert_array_equal(play.episodes.total, [total for _, total in expected])
    np.testing.assert_array_equal(play.episodes.terms["reward"], play.episodes.total)

    def keep(step, envs):
        return step.before.step, step.timestep.final_obs[envs], step.ended[envs]

    last = {}
    with opened(env, cfg, ENVS, SEED) as stepped:
        steps = record(make_recorder(whole.on(stepped), keep), None, jax.random.key(0), [5, 0])
        for _, (playing, (step, obs, ended), _) in steps:
            last |= {i: (int(step), obs[i, 0], bool(ended[i])) for i in range(2) if playing[i]}
    assert [(last[i][0], last[i][2]) for i in range(2)] == [(2 * LENGTH - 1, True), (LENGTH - 1, True)]
    for i, entry in enumerate((5, 0)):
        np.testing.assert_array_equal(last[i][1], expected[entry][0])
