"""Craftax, navix, XLand-MiniGrid and Jumanji behind the contract of ours; each test needs the package of its suite."""

from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.registry import make_env
from hmx.errors import ExitCode, HmxError


def needs(package):
    return pytest.mark.skipif(find_spec(package) is None, reason=f"{package} is not installed")


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


CLASSIC = "craftax/Craftax-Classic-Symbolic-v1"

SUITES = [
    pytest.param(CLASSIC, (1345,), 17, 10_000, marks=needs("craftax"), id="craftax"),
    pytest.param("navix/Navix-Empty-5x5-v0", (5 * 5 * 21,), 7, 100, marks=needs("navix"), id="navix"),
    pytest.param("xminigrid/MiniGrid-Empty-5x5", (7 * 7 * 25,), 6, 100, marks=needs("xminigrid"), id="xminigrid"),
    pytest.param("jumanji/Snake-v1", (721,), 4, 4000, marks=needs("jumanji"), id="jumanji"),
    pytest.param("jumanji/Tetris-v0", (117,), 40, 400, marks=needs("jumanji"), id="choices at once"),
]
"""An id of each suite, the shape of its observations, its number of actions and its own step limit."""


@pytest.mark.optimised  # so that a batch is its members to the last bit
@pytest.mark.parametrize(("env_id", "shape", "num_actions", "limit"), SUITES)
def test_suite_passes_the_contract(env_id, shape, num_actions, limit):
    env = made(env_id, max_steps=7)
    walk = check_env(env, num_envs=2, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any()) and not bool(walk.timestep_tp1.terminated.all())
    assert (env.spec.obs_shape, env.spec.num_actions, env.spec.max_steps) == (shape, num_actions, 7)
    assert made(env_id, max_steps=0).spec.max_steps == limit
    assert made(env_id, max_steps=1_000_000).spec.max_steps == (limit or 1_000_000)


@needs("craftax")
def test_steps_match_craftax_and_actions_have_its_names():
    from craftax.craftax_env import make_craftax_env_from_name

    theirs = make_craftax_env_from_name(CLASSIC.removeprefix("craftax/"), auto_reset=False)
    env, own = made(CLASSIC, max_steps=0), jax.jit(theirs.step_env)
    assert env.spec.action_names[:6] == ("noop", "left", "right", "up", "down", "do")
    state, timestep = env.reset(jax.random.split(jax.random.key(3), 1))
    step = jax.jit(env.step)
    for t, action in enumerate([5, 1, 3, 5, 2, 6]):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(4), t), 1)
        k_move, _ = jax.random.split(keys[0])
        before = jax.tree.map(lambda leaf: leaf[0], state.core.state)
        obs, _, reward, _, _ = own(jax.random.key_data(k_move), before, action, theirs.default_params)
        state, timestep = step(state, jnp.full((1, 1), action), keys)
        np.testing.assert_allclose(timestep.obs[0, 0], obs, rtol=1e-5, atol=1e-6)
        assert float(timestep.reward[0, 0]) == pytest.approx(float(reward))


@needs("craftax")
def test_craftax_limit_truncates_a_living_player():
    """Its own environment reports both in one flag."""
    env = made(CLASSIC, max_steps=0)
    state, _ = env.reset(jax.random.split(jax.random.key(3), 1))
    late = state._replace(steps=state.steps + 9_999)
    late = late._replace(core=late.core._replace(state=late.core.state.replace(timestep=jnp.array([9_999]))))
    _, timestep = jax.jit(env.step)(late, jnp.zeros((1, 1), jnp.int32), jax.random.split(jax.random.key(4), 1))
    assert bool(timestep.truncated[0]) and not bool(timestep.terminated[0])


def walked(env_id, actions, **values):
    """The timesteps of one environment that takes these actions."""
    env = made(env_id, **values)
    state, timestep = env.reset(jax.random.split(jax.random.key(0), 1))
    step, timesteps = jax.jit(env.step), []
    for t, action in enumerate(actions):
        chosen = int(timestep.legal[0, 0].argmax()) if action is None else action
        state, timestep = step(state, jnp.full((1, 1), chosen), jax.random.split(jax.random.key(t), 1))
        timesteps.append(timestep)
    return timesteps


@pytest.mark.parametrize(
    ("env_id", "forward", "right", "paid"),
    [
        pytest.param("navix/Navix-Empty-5x5-v0", 2, 1, 1.0, marks=needs("navix")),
        pytest.param("xminigrid/MiniGrid-Empty-5x5", 0, 1, 1.0 - 0.9 * 5 / 100, marks=needs("xminigrid")),
    ],
)
def test_grid_terminates_at_its_goal_and_truncates_otherwise(env_id, forward, right, paid):
    *before, last = walked(env_id, [forward, forward, right, forward, forward])
    assert not any(bool((timestep.terminated | timestep.truncated)[0]) for timestep in before)
    assert bool(last.terminated[0]) and not bool(last.truncated[0])
    assert float(last.reward[0, 0]) == pytest.approx(paid)
    assert not bool((last.final_obs == last.obs).all())  # at the goal, not where the next episode begins
    assert set(np.unique(last.obs)) == {0.0, 1.0}  # one-hot
    idle = walked(env_id, [right] * 7, max_steps=7)[-1]
    assert bool(idle.truncated[0]) and not bool(idle.terminated[0])


@needs("jumanji")
def test_steps_and_masks_match_jumanji():
    import jumanji

    theirs, env = jumanji.make("Minesweeper-v0"), made("jumanji/Minesweeper-v0")
    (key,) = keys = jax.random.split(jax.random.key(3), 1)
    state, timestep = env.reset(keys)
    own, shown = theirs.reset(jax.random.key_data(key))
    for action in (37, 4, 92):
        own, shown = theirs.step(own, jnp.array([action // 10, action % 10]))
        state, timestep = env.step(state, jnp.full((1, 1), action), keys)
        if bool(shown.last()):
            break
        np.testing.assert_array_equal(timestep.legal[0, 0], shown.observation.action_mask.reshape(-1))
        np.testing.assert_array_equal(timestep.obs[0, 0, :100], shown.observation.board.reshape(-1))
        assert float(timestep.reward[0, 0]) == float(shown.reward)
    assert not bool(timestep.legal.all())


@needs("jumanji")
def test_the_time_limit_of_jumanji_truncates_and_its_rules_terminate():
    cube = walked("jumanji/RubiksCube-partly-scrambled-v0", [0] * 20, max_steps=0)
    assert [bool(timestep.truncated[0]) for timestep in cube] == [False] * 19 + [True]
    assert not any(bool(timestep.terminated[0]) for timestep in cube)
    tour = walked("jumanji/TSP-v1", [None] * 20, max_steps=0)
    assert [bool(timestep.terminated[0]) for timestep in tour] == [False] * 19 + [True]


@needs("jumanji")
def test_all_actions_are_legal_if_jumanji_allows_none():
    packed = walked("jumanji/FlatPack-v0", [None] * 25, max_steps=0)
    assert all(bool(timestep.legal.any()) for timestep in packed) and bool(packed[-1].terminated[0])
    assert any(bool(timestep.legal.all()) for timestep in packed)


@pytest.mark.parametrize(
    ("env_id", "message", "hint"),
    [
        pytest.param("craftax/Craftax-Classic-Pixels-v1", "no environment", "-Symbolic-v1", marks=needs("craftax")),
        pytest.param("navix/Navix-Empty-v0", "no environment", "navix/Navix-Empty-", marks=needs("navix")),
        pytest.param("xminigrid/MiniGrid-Door", "no environment", "xminigrid/MiniGrid-", marks=needs("xminigrid")),
        pytest.param("xminigrid/XLand-MiniGrid-R1-9x9", "rulesets that", "MiniGrid-DoorKey", marks=needs("xminigrid")),
        pytest.param("jumanji/Snake", "no environment Snake", "jumanji/Snake-v1", marks=needs("jumanji")),
        pytest.param("jumanji/Cleaner-v0", "has several agents", "another", marks=needs("jumanji")),
        pytest.param("jumanji/MultiCVRP-v0", "has several agents", "another", marks=needs("jumanji")),
    ],
)
def test_unsupported_environments_are_refused(env_id, message, hint):
    with pytest.raises(HmxError, match=message) as found:
        made(env_id)
    assert hint in found.value.hint


@needs("jumanji")
def test_failed_download_is_reported(monkeypatch):
    import jumanji

    def offline(*args, **options):
        raise OSError("no\x1b network")

    monkeypatch.setattr(jumanji, "make", offline)
    with pytest.raises(HmxError, match=r"jumanji/Sokoban-v0 cannot be built: .*network") as found:
        made("jumanji/Sokoban-v0")
    assert "\x1b" not in found.value.message and found.value.exit_code == ExitCode.ARTEFACT
