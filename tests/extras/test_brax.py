"""Environments of Brax behind the contract of ours, against Brax itself."""

import dataclasses
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env
from new_runs import plan, train

from hmx.config.extras import install
from hmx.config.fields import replace
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.registry import make_env
from hmx.envs.suites.importing import importing, quiet
from hmx.envs.suites.physics import make_physics
from hmx.errors import HmxError
from hmx.jobs.evaluate import evaluate
from hmx.jobs.resume import resume
from hmx.records.paths import RunPaths
from hmx.registry.environments import known_sizes
from hmx.registry.load import load
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.runs import checkpoint
from hmx.runs.session import open_session

pytest.importorskip("brax")

LIMIT = 10
FALLEN = 0.2  # radians


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


@pytest.fixture(scope="module")
def envs():
    with importing("brax"):
        from brax import envs
    return envs


def test_fast_environment_passes_the_contract():
    walk = check_env(made("brax/fast", max_steps=7), num_envs=2, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any()) and not bool(walk.timestep_tp1.terminated.any())


@pytest.fixture(scope="module")
def pole(envs):
    """The inverted pendulum, ours and Brax's own, compiled once for two environments."""
    env = made("brax/inverted_pendulum", max_steps=LIMIT)
    with quiet():
        theirs = envs.get_environment("inverted_pendulum")
    return env, jax.jit(env.reset), jax.jit(env.step), jax.jit(jax.vmap(theirs.step))


def played(pole, action, steps):
    """Our timesteps, and what Brax makes of the same states and actions."""
    _, reset, step, own = pole
    state, timestep = reset(jax.random.split(jax.random.key(3), 2))
    actions = jnp.broadcast_to(jnp.asarray(action, jnp.float32), (2,))
    for t in range(steps):
        with quiet():
            after = own(state.core.state, jnp.clip(actions, -1.0, 1.0)[:, None])
        keys = jax.random.split(jax.random.fold_in(jax.random.key(4), t), 2)
        state, timestep = step(state, actions[:, None, None], keys)
        yield timestep, after


def test_steps_match_brax_and_keep_the_last_observation(pole):
    ended = 0
    for timestep, after in played(pole, [0.5, 7.0], 20):
        np.testing.assert_allclose(timestep.final_obs[:, 0], after.obs, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(timestep.terminated, after.done > 0)
        np.testing.assert_array_equal(timestep.reward, np.ones((2, 1)))
        for i in np.flatnonzero(timestep.terminated):  # fallen, not what the next episode begins with
            ended += 1
            assert abs(float(timestep.final_obs[i, 0, 1])) > FALLEN > 0.02 > abs(float(timestep.obs[i, 0, 1]))
    assert ended >= 2


def test_hmx_step_limit_truncates_an_episode(pole):
    *_, (timestep, _) = played(pole, 0.0, LIMIT)
    assert timestep.truncated.tolist() == [True, True] and not bool(timestep.terminated.any())
    assert not bool((timestep.final_obs == timestep.obs).all())


def test_environments_start_in_different_states(pole):
    _, first = pole[1](jax.random.split(jax.random.key(0), 2))
    assert float(jnp.abs(first.obs[0] - first.obs[1]).max()) > 1e-4


def test_dict_observations_use_the_state_part(envs):
    with quiet():
        theirs = envs.get_environment("fast", asymmetric_obs=True, obs_mode="dict_state")
    assert make_physics("brax/fast", theirs, 0).spec.obs_shape == (2,)


@pytest.mark.parametrize(
    ("env_id", "obs", "actions"),
    [("brax/halfcheetah@positional", 17, 6), ("brax/reacher@spring", 11, 2), ("brax/swimmer", 8, 2)],
)
def test_other_environments_and_backends_are_built(env_id, obs, actions, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spec = made(env_id, max_steps=1000).spec
    assert (spec.obs_shape, spec.action_dim, spec.max_steps) == ((obs,), actions, 1000)
    assert list(tmp_path.iterdir()) == []  # its model makes MuJoCo write a log


def test_swimmer_works_despite_renamed_clip_arguments_of_jax():
    env = made("brax/swimmer", max_steps=0)
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))
    state, _ = jax.eval_shape(env.reset, keys)
    after, _ = jax.eval_shape(env.step, state, jax.ShapeDtypeStruct((2, 1, 2), jnp.float32), keys)
    assert jax.tree.map(lambda leaf: leaf.shape, after) == jax.tree.map(lambda leaf: leaf.shape, state)
    fluid = sys.modules["brax.fluid"]
    assert fluid.jp.clip(jnp.array([-1.0, 2.0]), a_min=0.5).tolist() == [0.5, 2.0]
    assert fluid.jp.clip(jnp.array([-1.0, 2.0]), a_max=0.5).tolist() == [-1.0, 0.5]


@pytest.mark.parametrize(
    ("env_id", "message", "hint"),
    [
        ("brax/inverted-pendulum", "Brax has no environment inverted-pendulum", "brax/inverted_pendulum"),
        ("brax/\x1b[31m", "Brax has no environment", "known: ant, fast"),
        ("brax/ant@", "Brax has no backend", "known: generalized, mjx, positional, spring"),
        ("brax/swimmer@spring", "brax/swimmer cannot be built: Unsupported backend", "env.id=brax/swimmer"),
    ],
)
def test_unknown_environments_are_refused(env_id, message, hint):
    with pytest.raises(HmxError, match=message) as found:
        made(env_id)
    assert hint in found.value.hint and "\x1b" not in found.value.message


def config(root, total_steps, **values):
    sets = ["env.id=brax/fast", "env.max_steps=12", "env.num_envs=4", "algo.num_steps=8", "ppo.num_minibatches=2"]
    sets += ["ppo.update_epochs=2", "net.hidden=8", "run.updates_per_chunk=1", "run.eval_episodes=2"]
    sets += ["algo.lr_schedule=constant", f"run.root={root}", f"run.total_steps={total_steps}"]
    return load("sound", sets=[*sets, *(f"{key}={value}" for key, value in values.items())], environ={}).config


def test_resumed_run_has_the_same_bits_and_missing_brax_is_named(tmp_path, monkeypatch):
    whole = train(config(tmp_path / "whole", 128)).run
    part = train(config(tmp_path / "part", 64)).run
    assert resume(part, changes={"run.total_steps": "128"}).updates == 4
    abstract = open_session(config(tmp_path, 128)).abstract
    saved = [RunPaths(run.parent, run.name).checkpoints / "4" for run in (whole, part)]
    ends = [checkpoint.to_host(checkpoint.restore(path, abstract)) for path in saved]
    assert ends[0].keys() == ends[1].keys()
    assert [name for name in ends[0] if ends[0][name].tobytes() != ends[1][name].tobytes()] == []
    monkeypatch.setitem(sys.modules, "brax", None)
    request = CompareRequest(sides=(str(whole), str(part)))
    for command in (
        lambda: resume(part, changes={"run.total_steps": "192"}),
        lambda: evaluate(part),
        lambda: compare(dataclasses.replace(request, impl=True)),
    ):
        with pytest.raises(HmxError, match="package that is not installed: brax") as found:
            command()
        assert found.value.hint == install("brax")
    assert compare(request).tasks  # which builds no environment


def test_built_environment_has_known_training_sizes(tmp_path):
    cfg = replace(config(tmp_path, 128), {"env.id": "brax/hopper@spring"})
    assert known_sizes(cfg.env) is None
    planned = plan(cfg)
    assert planned.run.name.startswith("brax-hopper")
    assert planned.memory.total_bytes > 0
