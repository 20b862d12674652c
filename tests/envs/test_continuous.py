"""The control tasks against their published equations, and actions that last."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import check_env, with_info

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.autoreset import repeated
from hmx.envs.registry import make_env
from hmx.envs.small import cartpole, pendulum
from hmx.envs.small.counting import make_counting


def key():
    return jax.random.key(0)


def made(env_id, **values):
    return make_env(EnvConfig(id=env_id, **values), RewardWeights())


@pytest.mark.optimised  # so that a batch is its members to the last bit
@pytest.mark.parametrize("env_id", ["pendulum", "cartpole"])
def test_environments_pass_the_contract(env_id):
    walk = check_env(made(env_id, max_steps=7), num_envs=3, num_steps=16)
    assert bool(walk.timestep_tp1.truncated.any())
    assert walk.action_t.shape == (16, 3, 1, 1)
    assert float(jnp.abs(walk.action_t).max()) > 1.0


@pytest.mark.parametrize(("env_id", "own"), [("pendulum", 200), ("cartpole", 500), ("cartpole-discrete", 500)])
@pytest.mark.parametrize("given", [0, 50, 1000])
def test_the_published_limit_can_only_be_shortened(env_id, own, given):
    assert made(env_id, max_steps=given).spec.max_steps == (50 if given == 50 else own)


def test_pendulum_follows_its_equations():
    """Gym's Pendulum-v1, worked with Python's own floats."""
    angle, speed = 2.5, -0.4
    swing = pendulum.Swing(jnp.float32(angle), jnp.float32(speed))
    for action in (0.3, -0.9, 5.0, -1.0):
        torque = 2.0 * max(-1.0, min(1.0, action))
        wrapped = (angle + math.pi) % (2 * math.pi) - math.pi
        swing, terms, ended = pendulum.move(swing, jnp.array([action]), key())
        assert float(sum(terms.values())) == pytest.approx(-(wrapped**2 + 0.1 * speed**2 + 0.001 * torque**2), rel=1e-4)
        speed = max(-8.0, min(8.0, speed + (15.0 * math.sin(angle) + 3.0 * torque) * 0.05))
        angle += speed * 0.05
        assert (float(swing.angle), float(swing.speed)) == pytest.approx((angle, speed), rel=1e-4)
        assert not bool(ended)
    np.testing.assert_allclose(pendulum.observe(swing), [math.cos(angle), math.sin(angle), speed], rtol=1e-3)


def test_pendulum_limits_its_speed_and_wraps_its_angle():
    swing, terms, _ = pendulum.move(pendulum.Swing(jnp.float32(7.0), jnp.float32(7.9)), jnp.array([1.0]), key())
    assert float(swing.speed) == 8.0
    assert float(terms["angle"]) == pytest.approx(-((7.0 - 2 * math.pi) ** 2), rel=1e-4)


def test_cartpole_follows_its_equations():
    """As Gymnasium's CartPole-v1, with the force in place of its sign."""
    state = (0.1, -0.2, 0.05, 0.3)
    cart = cartpole.Cart(*map(jnp.float32, state))
    for action in (0.5, -1.0, 3.0):
        state, _ = gymnasium_cartpole(state, 10.0 * max(-1.0, min(1.0, action)))
        cart, terms, fallen = cartpole.move_by_force(cart, jnp.array([action]), key())
        np.testing.assert_allclose([float(q) for q in cart], state, rtol=1e-4)
        assert (float(terms["upright"]), bool(fallen)) == (1.0, False)


@pytest.mark.parametrize(
    ("position", "angle", "fallen"), [(2.39, 0, False), (2.41, 0, True), (0, 0.209, False), (0, -0.21, True)]
)
def test_cartpole_falls_at_its_limits(position, angle, fallen):
    cart = cartpole.Cart(jnp.float32(position), jnp.float32(0), jnp.float32(angle), jnp.float32(0))
    assert bool(cartpole.move_by_force(cart, jnp.zeros(1), key())[2]) == fallen
    for action in (0, 1):
        assert bool(cartpole.move_left_or_right(cart, jnp.int32(action), key())[2]) == fallen


def gymnasium_cartpole(state, force):
    """The step of Gymnasium's CartPole-v1 (Euler), from its published source, in float64: state and terminated."""
    x, x_dot, theta, theta_dot = state
    gravity, masscart, masspole, length, tau = 9.8, 1.0, 0.1, 0.5, 0.02
    temp = (force + masspole * length * theta_dot**2 * np.sin(theta)) / (masscart + masspole)
    theta_acc = (gravity * np.sin(theta) - np.cos(theta) * temp) / (
        length * (4.0 / 3.0 - masspole * np.cos(theta) ** 2 / (masscart + masspole))
    )
    x_acc = temp - masspole * length * theta_acc * np.cos(theta) / (masscart + masspole)
    state = np.array([x + tau * x_dot, x_dot + tau * x_acc, theta + tau * theta_dot, theta_dot + tau * theta_acc])
    return state, bool(abs(state[0]) > 2.4 or abs(state[2]) > 12 * 2 * np.pi / 360)


def steered(obs, num_envs):
    """Pushes that keep the pole of the last environment up, and let that of all others fall."""
    x, v, angle, spin = np.asarray(obs)[:, 0].T
    wanted = 0.5 * x + v + 15.0 * angle + 3.0 * spin > 0
    return np.where(np.arange(num_envs) == num_envs - 1, wanted, np.arange(num_envs) % 2)


def test_discrete_cartpole_matches_gymnasium():
    """Whole episodes of three environments: two that fall to either side, and one that is cut standing."""
    env, num_envs, limit = made("cartpole-discrete", max_steps=120), 3, 120
    assert env.spec.action_names == ("left", "right") and env.spec.action_dim == 0
    step = jax.jit(env.step)
    state, timestep = env.reset(jax.random.split(key(), num_envs))
    assert float(jnp.abs(timestep.obs).max()) <= 0.05
    age, ends = np.zeros(num_envs, int), []
    for t in range(limit):
        # from float32 at every step: the pole is unstable, and rounding grows
        before, action = np.asarray(timestep.obs, np.float64)[:, 0], steered(timestep.obs, num_envs)
        state, timestep = step(
            state, jnp.asarray(action, jnp.int32)[:, None], jax.random.split(jax.random.key(t), num_envs)
        )
        age += 1
        for e in range(num_envs):
            after, fallen = gymnasium_cartpole(before[e], 10.0 if action[e] == 1 else -10.0)
            np.testing.assert_allclose(timestep.final_obs[e, 0], after, rtol=1e-5, atol=1e-6)
            assert bool(timestep.terminated[e]) == fallen
            assert bool(timestep.truncated[e]) == (age[e] == limit and not fallen)
            assert float(timestep.reward[e, 0]) == 1.0
            assert timestep.legal[e, 0].tolist() == [True, True]
            if fallen or age[e] == limit:
                ends.append((e, int(age[e]), fallen))
                age[e] = 0
    assert {e for e, _, fallen in ends if fallen} == {0, 1} and (2, limit, False) in ends
    assert all(8 <= length <= 11 for _, length, fallen in ends if fallen)  # pushed one way only


def test_an_action_lasts_until_the_episode_ends():
    """Counting: the step from n pays n; episodes of 5 steps, so the second action of each lasts two steps only."""
    env = repeated(make_counting(5), 3)
    assert env.spec.max_steps == 2
    keys, step = jax.random.split(key(), 2), jax.jit(env.step)
    state, _ = env.reset(jax.random.clone(keys))
    seen = []
    for _ in range(3):
        state, timestep = step(state, jnp.zeros((2, 1), jnp.int32), jax.random.clone(keys))
        seen.append([float(leaf[0].reshape(-1)[0]) for leaf in (timestep.reward, timestep.obs, timestep.final_obs)])
        seen[-1].append(bool(timestep.truncated[0]))
    assert seen == [[0 + 1 + 2, 3, 3, False], [3 + 4, 0, 5, True], [0 + 1 + 2, 3, 3, False]]
    assert float(timestep.terms["count"][0]) == 3.0


def test_info_is_summed_or_maximised_over_repeats():
    def info(timestep):
        count = timestep.final_obs[:, 0, 0]
        return {"a_sum": count, "b_max": -count, "c_mean": count}

    keys = jax.random.split(key(), 1)
    twice = repeated(with_info(make_counting(0), info), 2)
    state, _ = jax.jit(twice.reset)(jax.random.clone(keys))
    _, timestep = jax.jit(twice.step)(state, jnp.zeros((1, 1), jnp.int32), keys)
    assert {name: float(value[0]) for name, value in timestep.info.items()} == {"a_sum": 3, "b_max": -1, "c_mean": 2}


def test_action_repeat_passes_the_contract():
    walk = check_env(made("rendezvous", num_agents=2, max_steps=9, action_repeat=2), num_envs=3, num_steps=12)
    assert bool((walk.timestep_tp1.truncated | walk.timestep_tp1.terminated).any())
