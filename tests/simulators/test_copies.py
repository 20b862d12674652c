"""Copies of a simulator in compiled programs: they step as an environment in JAX does, and depend on nothing else."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import EnvConfig
from hmx.envs.protocol import playable
from hmx.own.copies import naming_failures
from hmx.own.simulator import simulated
from hmx.registry import user_code
from hmx.simulators.pool import SimulatorFailed
from hmx.simulators.recipe import Recipe

LINE = """
import numpy as np
from walk_sim import Box, Discrete

class Line:
    observation_space, action_space = Box(-50.0, 50.0, (2,)), Discrete(2)

    def reset(self, *, seed=None, options=None):
        self.np_random = np.random.default_rng(seed)
        self.place, self.time, self.noise = 3 + int(self.np_random.integers(STARTS)), 0, 0.0
        return self.seen(), self.info()

    def info(self):
        return {"action_mask": np.array([True, self.time < 2])} if MASKED and self.time != 3 else {}

    def seen(self):
        return np.array([self.place, self.time], np.float32)

    def step(self, action):
        self.place, self.time = self.place + 2 * action - 1, self.time + 1
        self.noise = self.np_random.random()
        if self.place == 40:
            raise ValueError("the line is broken")
        return self.seen(), self.place + NOISE * self.noise, self.place < 1, self.time % 4 == 0 and CUT, self.info()

    def get_state(self):
        more = [0] * (LONG * max(self.place - 20, 0))
        return {"at": [self.place, self.time, *more], "noise": self.np_random.bit_generator.state}

    def set_state(self, state):
        self.place, self.time = state["at"][:2]
        self.np_random.bit_generator.state = state["noise"]
"""


@pytest.fixture
def line(tmp_path):
    """Build copies of a line, with values of its names."""

    def line(noise=0, cut=True, long=0, starts=1, masked=False, limit=0):
        file = tmp_path / f"line_{noise}_{cut}_{long}.py"
        values = f"NOISE, CUT, LONG, STARTS, MASKED = {noise}, {cut}, {long}, {starts}, {masked}"
        file.write_text(f"{values}\n{LINE}")
        user_code.allow(str(file), "env.id")
        cfg = EnvConfig(id=str(file), num_workers=2, async_factor=1)
        return playable(simulated(Recipe(str(file), reference=str(file), max_steps=limit), cfg), "a test")

    return line


def keys(seed, many):
    """Return keys that no other call has used."""
    return jax.random.split(jax.random.key(seed), many)


def in_jax(place, time, action):
    """Step the line in JAX: the next place and time, those seen last, the reward, and both kinds of ends."""
    place, time = place + 2 * action - 1, time + 1
    terminated = place < 1
    truncated = (time % 4 == 0) & ~terminated
    done = terminated | truncated
    return jnp.where(done, 3, place), jnp.where(done, 0, time), (place, time), place, terminated, truncated


def test_copies_step_as_the_same_environment_in_jax(line):
    env = line()
    actions = jax.random.bernoulli(jax.random.key(1), 0.4, (9, 5)).astype(jnp.int32)

    @jax.jit
    def play(actions):
        state, _ = env.reset(keys(0, 5))
        step = jax.random.split(jax.random.key(2), (9, 5))
        return jax.lax.scan(lambda state, now: env.step(state, now[0][:, None], now[1]), state, (actions, step))[1]

    seen = play(actions)
    place, time = jnp.full(5, 3), jnp.zeros(5, jnp.int32)
    for t, action in enumerate(actions):
        place, time, last, reward, terminated, truncated = in_jax(place, time, action)
        np.testing.assert_array_equal(seen.obs[t, :, 0], np.stack([place, time], 1))
        np.testing.assert_array_equal(seen.final_obs[t, :, 0], np.stack(last, 1))
        np.testing.assert_array_equal(seen.reward[t, :, 0], reward)
        np.testing.assert_array_equal(seen.terminated[t], terminated)
        np.testing.assert_array_equal(seen.truncated[t], truncated)
    assert seen.terminated.any() and seen.truncated.any()


def test_keys_decide_the_future_of_copies_and_vmap_changes_nothing(line):
    env = line(noise=1)
    first, _ = env.reset(keys(0, 1))
    state = jax.tree.map(lambda leaf: jnp.repeat(leaf, 3, axis=0), first)
    action = jnp.ones((3, 1), jnp.int32)
    one, other = (env.step(state, action, keys(1, 3))[1] for _ in range(2))
    np.testing.assert_array_equal(one.reward, other.reward)
    assert len(set(np.asarray(one.reward)[:, 0].tolist())) == 3
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), state)
    both = jax.vmap(env.step, (0, None, None))(stacked, action, keys(1, 3))[1]
    np.testing.assert_array_equal(both.reward, np.stack([one.reward, one.reward]))


def test_an_end_shows_its_last_mask_and_the_next_episodes_begin_at_random(line):
    env = line(starts=6, masked=True)
    state, _ = env.reset(keys(0, 8))
    left = jnp.zeros((8, 1), jnp.int32)
    steps = []
    for t in range(8):
        state, seen = env.step(state, left, keys(t + 1, 8))
        steps.append(seen)
    seen = jax.tree.map(lambda *leaves: np.stack(leaves), *steps)
    cut, over = seen.truncated & ~seen.terminated, seen.terminated
    assert cut.any() and over.any()
    assert (seen.final_legal[cut, 0] == [True, False]).all(), "a value is bootstrapped with the last mask"
    assert seen.final_legal[over].all() and seen.legal[cut | over].all()
    assert len(set(seen.obs[cut | over][:, 0, 0].tolist())) > 3
    time = seen.obs[:, :, 0, 1]
    assert (seen.legal[time == 2, 0] == [True, False]).all()
    assert seen.legal[time == 3].all(), "without a mask every action is legal"


def test_the_step_limit_counts_the_steps_of_each_state(line):
    env = line(cut=False, limit=3)
    right = jnp.ones((2, 1), jnp.int32)
    start, _ = env.reset(keys(0, 2))
    later, _ = env.step(start, right, keys(1, 2))
    state = jax.tree.map(lambda one, other: jnp.stack([one[0], other[0]]), start, later)
    ends = []
    for t in range(3):
        state, seen = env.step(state, right, keys(t + 2, 2))
        ends.append(seen.truncated.tolist())
    assert ends == [[False, False], [False, True], [True, False]]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cut": False}, "ValueError: the line is broken\n  .*line_0_False_0.py:24, in step"),
        ({"cut": False, "long": 500}, "cannot copy a state of .* bytes: there is room for"),
    ],
)
def test_a_failure_in_a_program_is_that_of_the_simulator(line, options, words, caplog):
    env = line(**options)
    advance = jax.jit(env.step)
    state, _ = env.reset(keys(0, 2))
    with pytest.raises(SimulatorFailed, match=words), naming_failures():
        for t in range(38):
            state, _ = jax.block_until_ready(advance(state, jnp.ones((2, 1), jnp.int32), keys(t + 1, 2)))
    assert not caplog.records
