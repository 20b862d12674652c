"""The control suite of MuJoCo Playground behind the contract of ours, against Playground itself."""

import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.registry import make_env, sizes_of
from hmx.envs.suites.importing import importing, quiet
from hmx.envs.suites.playground import OVERRIDES
from hmx.errors import HmxError
from hmx.records.checkpoints import Retention
from hmx.runs import checkpoint

pytest.importorskip("mujoco_playground")

LIMIT = 5


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


@pytest.fixture(scope="module")
def pole():
    """CartpoleBalance, its functions compiled once for two environments."""
    with jax.numpy_rank_promotion("allow"):
        env = made("playground/CartpoleBalance", max_steps=LIMIT)
    return env, jax.jit(env.reset), jax.jit(env.step)


def keys_of(stream):
    return jax.random.split(jax.random.key(stream), 2)


def played(pole, state, actions, first=0):
    _, _, step = pole
    for t, action in enumerate(actions, first):
        state, timestep = step(state, jnp.full((2, 1, 1), action), keys_of(10 + t))
        yield state, timestep


def test_environment_passes_the_contract():
    # its linear algebra depends on the size of the batch
    walk = check_env(made("playground/CartpoleBalance", max_steps=LIMIT), num_envs=2, num_steps=8, tolerance=1e-3)
    assert walk.timestep_tp1.truncated.sum() == 2


def test_steps_match_playground(pole):
    with importing("playground"):
        from mujoco_playground import dm_control_suite as suite
    with quiet():
        theirs = suite.load("CartpoleBalance", config_overrides=OVERRIDES)
    own = jax.jit(jax.vmap(theirs.step))
    state, timestep = pole[1](keys_of(0))
    assert float(jnp.abs(timestep.obs[0] - timestep.obs[1]).max()) > 1e-4  # each begins elsewhere
    for action, limited in ((0.5, 0.5), (-7.0, -1.0)):
        with quiet():
            after = own(state.core.state, jnp.full((2, 1), limited))
        state, timestep = next(played(pole, state, [action]))
        np.testing.assert_allclose(timestep.obs[:, 0], after.obs, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(timestep.reward[:, 0], after.reward, rtol=1e-5)
        assert not bool(timestep.terminated.any())


def test_step_limit_truncates_and_keeps_the_last_observation(pole):
    state, _ = pole[1](keys_of(0))
    *_, (_, earlier), (_, last) = played(pole, state, [1.0] * LIMIT)
    assert last.truncated.tolist() == [True, True] and not bool((last.terminated | earlier.truncated).any())
    # pushed all the while, the cart goes on moving one way; the next episode begins at rest, elsewhere
    speed = [float(jnp.abs(obs[:, 0, 3]).min()) for obs in (earlier.obs, last.final_obs, last.obs)]
    assert speed[1] > speed[0] > speed[2]


def test_diverging_simulation_terminates(pole):
    state, first = pole[1](keys_of(0))
    broken = state.core.state.data.replace(qvel=state.core.state.data.qvel.at[1].set(jnp.nan))
    core = state.core._replace(state=state.core.state.replace(data=broken))
    _, timestep = next(played(pole, state._replace(core=core), [0.0]))
    assert timestep.terminated.tolist() == [False, True]
    assert timestep.final_obs[1].tolist() == first.obs[1].tolist() and float(timestep.reward[1, 0]) == 0.0
    assert bool(jnp.isfinite(timestep.obs).all())


def test_state_resumes_from_a_checkpoint_with_the_same_bits(pole, tmp_path):
    env, reset, _ = pole
    state, _ = next(played(pole, reset(keys_of(0))[0], [1.0]))
    folder = checkpoint.write(tmp_path, checkpoint.snapshot(state), 1, Retention(1))
    back = checkpoint.restore(folder, jax.eval_shape(env.reset, keys_of(0))[0])
    ends = [list(played(pole, start, [-1.0, 0.5]))[-1] for start in (state, back)]
    for a, b in zip(*map(jax.tree.leaves, ends), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


@pytest.mark.parametrize(("name", "obs", "actions"), [("WalkerWalk", 24, 6), ("HopperHop", 15, 4)])
def test_other_environments_are_built_with_known_sizes(name, obs, actions):
    env = made(f"playground/{name}", max_steps=1000)
    spec = env.spec
    assert (spec.obs_shape, spec.action_dim, spec.max_steps) == ((obs,), actions, 1000)
    sizes = sizes_of(env)
    assert (sizes.features, sizes.action_dim) == (obs, actions) and sizes.state_bytes > 4000


@pytest.mark.parametrize(
    ("env_id", "message", "hint"),
    [
        ("playground/WalkerWalking", "control suite has no environment WalkerWalking", "playground/WalkerWalk"),
        ("playground/\x1b[31m", "control suite has no environment", "known: AcrobotSwingup"),
        ("playground/Go1JoystickFlatTerrain", "needs robots that Playground downloads", "known: AcrobotSwingup"),
    ],
)
def test_unsupported_environments_are_refused_without_a_download(env_id, message, hint, monkeypatch):
    def clone(*command, **_):
        raise AssertionError(f"{command} was called")

    monkeypatch.setattr(subprocess, "Popen", clone)
    with pytest.raises(HmxError, match=message) as found:
        made(env_id)
    assert hint in found.value.hint and "\x1b" not in found.value.message
