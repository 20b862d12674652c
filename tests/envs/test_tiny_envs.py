"""The rules of the three tiny environments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import ENV_IDS, EnvConfig, RewardWeights
from hmx.envs.autoreset import Game, TeamGame, batched
from hmx.envs.registry import make_env
from hmx.envs.small.corridor import LENGTH, make_corridor
from hmx.envs.small.counting import make_counting
from hmx.envs.small.frozenlake import make_frozenlake
from hmx.errors import HmxError

LEFT, DOWN, RIGHT, UP = range(4)


def play(env, actions, seed=0):
    """One environment through a list of actions; the timesteps, the first one included."""
    step = jax.jit(env.step)
    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(seed), 1))
    timesteps = [timestep]
    for t, action in enumerate(actions):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed + 1), t), 1)
        state, timestep = step(state, jnp.array([[action]], jnp.int32), keys)
        timesteps.append(timestep)
    return timesteps


def cell(obs):
    return int(np.argmax(obs[0, 0]))


def test_counting_environment_returns_the_step_number():
    steps = play(make_counting(3), [0, 1, 2, 0])
    assert [float(ts.obs[0, 0, 0]) for ts in steps] == [0, 1, 2, 0, 1]
    assert [float(ts.final_obs[0, 0, 0]) for ts in steps[1:]] == [1, 2, 3, 1]
    assert [float(ts.reward[0, 0]) for ts in steps[1:]] == [0, 1, 2, 0]
    assert [bool(ts.truncated[0]) for ts in steps[1:]] == [False, False, True, False]
    assert [np.flatnonzero(ts.legal[0, 0]).tolist() for ts in steps] == [[0, 1], [1, 2], [2, 3], [0, 1], [1, 2]]
    # what would be legal after the third step, were the episode not cut there
    assert [np.flatnonzero(ts.final_legal[0, 0]).tolist() for ts in steps[1:]] == [[1, 2], [2, 3], [0, 3], [1, 2]]


def test_termination_at_the_step_limit_is_not_a_truncation():
    last = play(make_counting(3, length=3), [0, 1, 2])[-1]
    assert (bool(last.terminated[0]), bool(last.truncated[0])) == (True, False)


def test_corridor_without_slip():
    steps = play(make_corridor(0, slip=0.0), [1, 1, 0, 1, 1, 1, 1, 1, 1])
    assert [cell(ts.obs) for ts in steps] == [0, 1, 2, 1, 2, 3, 4, 5, 6, 0]
    assert cell(steps[-1].final_obs) == LENGTH - 1
    assert bool(steps[-1].terminated[0])
    np.testing.assert_allclose(steps[-1].reward[0, 0], 0.99, rtol=1e-6)
    assert steps[0].legal[0, 0].tolist() == [False, True]


def test_corridor_slips_with_its_probability():
    envs = 20_000
    env = make_corridor(0, slip=0.25)
    state, _ = jax.jit(env.reset)(jax.random.split(jax.random.key(0), envs))
    _, timestep = jax.jit(env.step)(state, jnp.ones((envs, 1), jnp.int32), jax.random.split(jax.random.key(1), envs))
    moved = float((timestep.obs[:, 0, 1] == 1).mean())
    assert abs(moved - 0.75) < 5 * np.sqrt(0.75 * 0.25 / envs)


def test_frozenlake_goal_is_reached_along_the_edge():
    steps = play(make_frozenlake(0, slippery=False), [UP, LEFT] + [RIGHT] * 7 + [DOWN] * 7)
    assert [cell(ts.obs) for ts in steps[:4]] == [0, 0, 0, 1]  # borders stop
    assert cell(steps[-1].final_obs) == 63
    assert (float(steps[-1].reward[0, 0]), bool(steps[-1].terminated[0]), cell(steps[-1].obs)) == (1.0, True, 0)


def test_frozenlake_holes_end_the_episode_without_reward():
    last = play(make_frozenlake(0, slippery=False), [DOWN, DOWN, RIGHT, RIGHT, RIGHT])[-1]
    assert (float(last.reward[0, 0]), bool(last.terminated[0]), cell(last.final_obs)) == (0.0, True, 19)


def test_slippery_ice_moves_in_three_directions_equally_and_never_back():
    envs = 9_000
    env = make_frozenlake(0, slippery=True)
    state, _ = jax.jit(env.reset)(jax.random.split(jax.random.key(0), envs))
    _, timestep = jax.jit(env.step)(
        state, jnp.full((envs, 1), RIGHT, jnp.int32), jax.random.split(jax.random.key(1), envs)
    )
    cells = np.bincount(np.argmax(timestep.obs[:, 0], -1), minlength=64)
    assert cells.sum() == cells[[0, 1, 8]].sum()  # up is the border: stays
    assert ((cells[[0, 1, 8]] - envs / 3) ** 2 / (envs / 3)).sum() < 13.8


def test_registry_builds_the_requested_environment():
    for env_id in set(ENV_IDS) - {"hackmatrix"}:
        env = make_env(EnvConfig(id=env_id, max_steps=17), RewardWeights())
        assert (env.spec.id, env.spec.max_steps) == (env_id, 17)


def test_unknown_id_suggests_the_nearest():
    with pytest.raises(HmxError) as error:
        make_env(EnvConfig(id="frozenlak"), RewardWeights())
    assert "frozenlak" in error.value.message
    assert "did you mean frozenlake?" in error.value.hint


def test_info_describes_the_state_after_the_step():
    """Not of the one that the next episode begins with."""
    spec = make_counting(0, 4).spec._replace(num_agents=2, reward_terms=("none",))

    def move(core, action, key):
        return core + 1, {"none": jnp.zeros(2)}, jnp.full(2, core + 1 == 3)

    game = TeamGame(
        start=lambda key: jnp.int32(0),
        move=move,
        observe=lambda core: jnp.full((2, 1), core, jnp.float32),
        legal=lambda core: jnp.ones((2, spec.num_actions), bool),
        info=lambda core: {"steps_max": core},
    )
    env = batched(spec, game)
    state, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 2))
    assert timestep.info["steps_max"].tolist() == [0, 0]
    step_both = jax.jit(env.step)
    for t, step in enumerate((1, 2, 3, 1)):
        keys = jax.random.split(jax.random.key(t + 1), 2)
        state, timestep = step_both(state, jnp.zeros((2, 2), jnp.int32), keys)
        assert timestep.info["steps_max"].tolist() == [step, step]


def test_expensive_reset_is_skipped_in_steps_without_an_end_with_equal_results():
    def place(key):
        return jax.random.uniform(key)

    def move(core, action, key):
        now = core + 0.4 * jax.random.uniform(key)
        return now, {"reward": now}, now > 1.5

    spec = make_counting(9).spec._replace(obs_shape=(1,), num_actions=1, reward_terms=("reward",))
    game = Game(place, move, lambda core: core[None], lambda core: jnp.ones(1, bool))

    def keys(seed):
        return jax.random.split(jax.random.key(seed), 3)

    still, seen = jnp.zeros((3, 1), jnp.int32), []
    for costly in (False, True):
        env = batched(spec._replace(costly_reset=costly), game)
        step, timesteps = jax.jit(env.step), []
        state, timestep = jax.jit(env.reset)(keys(0))
        for t in range(30):
            state, timestep = step(state, still, keys(t + 1))
            timesteps.append(timestep)
        seen.append(timesteps)
        assert ("cond" in str(jax.make_jaxpr(env.step)(state, still, keys(0)))) == costly
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), *seen))
    ended = jnp.stack([timestep.terminated for timestep in seen[1]]).sum(1)
    assert {0, 1} <= set(ended.tolist())
