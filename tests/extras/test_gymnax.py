"""Environments of gymnax behind the contract of ours, against gymnax itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env
from new_runs import plan

from hmx.config.fields import replace
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.envs.registry import make_env, sizes_of
from hmx.envs.suites.gymnax import _actions
from hmx.errors import HmxError
from hmx.registry.environments import known_sizes

gymnax = pytest.importorskip("gymnax")

EXTENT = {"gymnax/CartPole-v1": ((4,), 2, 0, 500), "gymnax/Pendulum-v1": ((3,), 0, 1, 200)}


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


@pytest.mark.optimised  # so that a batch is its members to the last bit
@pytest.mark.parametrize("env_id", EXTENT)
def test_environments_pass_the_contract(env_id):
    env = made(env_id, max_steps=7)
    walk = check_env(env, num_envs=2, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any())
    facts = sizes_of(env)
    assert (facts.features, facts.num_actions, facts.action_dim) == (
        *env.spec.obs_shape,
        env.spec.num_actions,
        env.spec.action_dim,
    )


@pytest.mark.optimised  # so that a batch is its members to the last bit
@pytest.mark.parametrize("env_id", EXTENT)
@pytest.mark.parametrize("given", [0, 50, 1000])
def test_spec_matches_gymnax(env_id, given):
    spec = made(env_id, max_steps=given).spec
    shape, num_actions, action_dim, own = EXTENT[env_id]
    assert (spec.id, spec.obs_shape, spec.num_actions, spec.action_dim) == (env_id, shape, num_actions, action_dim)
    assert spec.max_steps == (50 if given == 50 else own)


def test_minatar_shows_images():
    env = made("gymnax/Breakout-MinAtar", max_steps=7)
    walk = check_env(env, num_envs=2, num_steps=16)
    assert (env.spec.obs_shape, walk.first.obs.dtype, sizes_of(env).image) == ((10, 10, 4), np.float32, True)
    assert walk.first.obs.any()


def played(env_id, actions):
    """Our steps, and gymnax's own from the same states with the same keys."""
    env = made(env_id, max_steps=0)
    theirs, params = gymnax.make(env_id.removeprefix("gymnax/"))
    state, _ = env.reset(jax.random.split(jax.random.key(3), 1))
    step, own = jax.jit(env.step), jax.jit(theirs.step_env)
    for t, action in enumerate(actions):
        keys = jax.random.split(jax.random.fold_in(jax.random.key(4), t), 1)
        before = jax.tree.map(lambda leaf: leaf[0], state.core.state)
        state, timestep = step(state, action[None, None], keys)
        yield timestep, lambda a, before=before, key=keys[0]: own(key, before, a, params)


def test_cartpole_steps_match_gymnax_and_keep_the_last_observation():
    ended = 0
    for timestep, own in played("gymnax/CartPole-v1", jnp.ones(40, jnp.int32)):
        obs, _, reward, terminated, _ = own(1)
        np.testing.assert_allclose(timestep.final_obs[0, 0], obs, rtol=1e-5, atol=1e-6)
        assert float(timestep.reward[0, 0]) == float(reward)
        assert bool(timestep.terminated[0]) == bool(terminated)
        if terminated:  # falling over, not what the next episode begins with
            ended += 1
            assert abs(float(timestep.final_obs[0, 0, 2])) > 0.2 > abs(float(timestep.obs[0, 0, 2]))
    assert ended >= 2


def test_a_box_is_scaled_to_its_limits():
    units, torques = [0.5, -1.0, 7.0], [1.0, -2.0, 2.0]
    steps = played("gymnax/Pendulum-v1", jnp.array(units)[:, None])
    for (timestep, own), torque in zip(steps, torques, strict=True):
        obs, _, reward, _, _ = own(jnp.array([torque]))
        assert float(timestep.reward[0, 0]) == pytest.approx(float(reward), rel=1e-5)
        np.testing.assert_allclose(timestep.obs[0, 0], obs, rtol=1e-5, atol=1e-6)


def test_numbers_of_a_box_have_separate_limits():
    box = gymnax.environments.spaces.Box(jnp.array([[-1.0], [0.0]]), jnp.array([[3.0], [2.0]]), (2, 1))
    num_actions, quantities, scaled = _actions("gymnax/x", box)
    assert num_actions == 0 and [(number.low, number.high) for number in quantities] == [(-1.0, 3.0), (0.0, 2.0)]
    assert scaled(jnp.array([0.0, 0.5])).tolist() == [[1.0], [1.5]]
    assert scaled(jnp.array([-7.0, 7.0])).tolist() == [[-1.0], [2.0]]


@pytest.mark.parametrize(
    ("env_id", "message", "hint"),
    [
        ("gymnax/CartPole-v2", "gymnax has no environment CartPole-v2", "gymnax/CartPole-v1"),
        ("gymnax/\x1b[31m", "gymnax has no environment", "known: CartPole-v1"),
    ],
)
def test_unknown_name_suggests_similar_names(env_id, message, hint):
    with pytest.raises(HmxError, match=message) as found:
        made(env_id)
    assert hint in found.value.hint and "\x1b" not in found.value.message


class Odd(gymnax.environments.classic_control.cartpole.CartPole):
    """CartPole that shows or takes something else."""

    def __init__(self, space=None, several=False):
        super().__init__()
        self._space, self._several = space, several

    def action_space(self, params=None):
        return self._space or super().action_space(params)

    def reset_env(self, key, params):
        obs, state = super().reset_env(key, params)
        return (obs, obs) if self._several else obs, state


def no_network(**_):
    raise OSError("no\x1b network")


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (lambda: Odd(gymnax.environments.spaces.Dict({})), "neither one choice nor a box"),
        (lambda: Odd(gymnax.environments.spaces.Box(-jnp.inf, 1.0, (2,))), "gymnax/Odd takes actions without limits"),
        (no_network, "gymnax/Odd cannot be built: .*network"),
    ],
)
def test_unsupported_environments_are_refused(monkeypatch, factory, message):
    monkeypatch.setattr(gymnax, "registered_envs", ["Odd"])
    monkeypatch.setattr(gymnax, "make", lambda name: (made := factory(), made.default_params))
    with pytest.raises(HmxError, match=message) as found:
        made("gymnax/Odd")
    assert "\x1b" not in found.value.message


def test_built_environment_has_known_training_sizes(tmp_path):
    cfg = replace(Config(), {"env.id": "gymnax/Acrobot-v1", "env.num_envs": 8, "algo.num_steps": 16})
    cfg = replace(cfg, {"run.root": str(tmp_path), "run.total_steps": 128, "ppo.num_minibatches": 2})
    assert known_sizes(cfg.env) is None
    planned = plan(cfg)
    assert planned.run.name.startswith("gymnax-Acrobot-v1-ppo-s0")
    assert planned.memory.total_bytes > 0


def test_q_learning_refuses_continuous_actions(tmp_path):
    cfg = replace(Config(), {"env.id": "gymnax/Pendulum-v1", "algo.name": "dqn", "run.root": str(tmp_path)})
    with pytest.raises(HmxError, match="continuous"):
        plan(cfg)
