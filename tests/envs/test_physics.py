"""What holds of every engine behind `make_physics`, shown on a toy with the `State` of Brax and Playground."""

import sys
import types
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest
from env_checks import check_env

from hmx.config.extras import install
from hmx.envs.suites.importing import importing, quiet
from hmx.envs.suites.physics import make_physics
from hmx.errors import ExitCode, HmxError
from hmx.types import Array

EDGE = 2.0


class State(NamedTuple):
    place: Array
    obs: Any
    reward: Any
    done: Any
    info: dict[str, Array]


class Drift:
    """A place that actions move; it is over beyond 2, and below -2 its logarithm is no number."""

    action_size = 1
    parts = ("state",)

    def observed(self, place):
        seen = {"state": jnp.stack([place, jnp.log(place + EDGE)]), "privileged_state": jnp.zeros(3), "pixels": 0.0}
        return {name: seen[name] for name in self.parts} if self.parts else seen["state"]

    def reset(self, key):
        place = jax.random.uniform(key, minval=-0.1, maxval=0.1)
        return State(place, self.observed(place), 0, 0, {"rng": key, "paid": 0.0})

    def step(self, state, action):
        place = state.place + action[0]
        obs = self.observed(place)
        ended = jnp.where(place > EDGE, 1.0, 0.0)
        state.info["paid"] = 1.0  # as Brax writes its metrics, into the state it was given
        return state._replace(place=place, obs=obs, reward=1 if self.parts else obs[1], done=ended)


class Plain(Drift):
    parts = ()


class Asymmetric(Drift):
    parts = ("state", "privileged_state")


class Pictures(Drift):
    parts = ("pixels",)


def stepped(env, actions):
    k_reset, *k_steps = jax.random.split(jax.random.key(1), len(actions) + 1)
    state, timestep = env.reset(k_reset[None])
    step = jax.jit(env.step)
    for action, k_step in zip(actions, k_steps, strict=True):
        state, timestep = step(state, jnp.full((1, 1, 1), action), k_step[None])
        yield timestep


@pytest.mark.parametrize("toy", [Plain(), Asymmetric()], ids=["an array", "of several parts the one for the policy"])
def test_environment_passes_the_contract(toy):
    env = make_physics("toy", toy, 9)
    assert (env.spec.obs_shape, env.spec.action_dim, env.spec.num_actions) == ((2,), 1, 0)
    walk = check_env(env, num_envs=3, num_steps=30)
    assert bool(walk.timestep_tp1.truncated.any()) and bool(walk.timestep_tp1.terminated.any())


def test_last_observation_belongs_to_its_episode():
    env = make_physics("toy", Plain(), 0)
    *_, before, last = stepped(env, [1.0, 0.8, 0.4])
    assert not bool(before.terminated[0]) and bool(last.terminated[0])
    assert float(last.final_obs[0, 0, 0]) == pytest.approx(float(before.obs[0, 0, 0]) + 0.4)
    assert abs(float(last.obs[0, 0, 0])) <= 0.1


def test_actions_beyond_the_limits_count_as_the_limit():
    ends = [[float(t.obs[0, 0, 0]) for t in stepped(make_physics("toy", Plain(), 0), a)] for a in ([1.0], [7.0])]
    assert ends[0] == ends[1]


def test_non_finite_simulation_terminates():
    env = make_physics("toy", Plain(), 0)
    *_, before, last = stepped(env, [-1.0, -0.5, -1.0])
    assert not bool(before.terminated[0]) and bool(last.terminated[0]) and not bool(last.truncated[0])
    assert float(last.reward[0, 0]) == 0.0
    assert last.final_obs.tolist() == before.obs.tolist()
    assert bool(jnp.isfinite(last.obs).all())


def test_environments_with_only_images_are_refused():
    with pytest.raises(HmxError, match="toy shows pixels, and networks here take one vector"):
        make_physics("toy", Pictures(), 0)


def test_module_incompatible_with_this_jax_is_reported(tmp_path, monkeypatch):
    (tmp_path / "too_old_for_jax.py").write_text("import jax\njax.function_that_is_gone\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(HmxError, match="the brax that is installed does not work with JAX") as found, importing("brax"):
        __import__("too_old_for_jax")
    assert found.value.hint == install("brax") and found.value.exit_code == ExitCode.USAGE


def test_third_party_warnings_are_hidden_and_mujoco_writes_no_log(monkeypatch):
    handler = ["its own"]
    mujoco = types.SimpleNamespace(
        get_mju_user_warning=lambda: handler[-1], set_mju_user_warning=lambda new: handler.append(new)
    )
    monkeypatch.setitem(sys.modules, "mujoco", mujoco)
    with quiet():
        warnings.warn("no longer maintained", DeprecationWarning, stacklevel=1)
        warnings.warn("not actively maintained", UserWarning, stacklevel=1)
        handler[-1]("settotalmass is deprecated")
    assert handler[-1] == "its own" and len(handler) == 3
    with quiet(), pytest.raises(RuntimeWarning):
        warnings.warn("a number overflowed", RuntimeWarning, stacklevel=1)
