"""Our environments with gymnax's interface, and another library's PPO on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.export import chosen, exported, named_terms
from hmx.envs.registry import make_env
from hmx.errors import HmxError

gymnax = pytest.importorskip("gymnax")

from hmx.envs.to_gymnax import GymnaxEnv  # noqa: E402

TERMS = (
    "step_penalty", "stage_completion", "score_gain", "kills", "data_siphon", "distance_shaping", "victory",
    "death_penalty", "resource_gain", "resource_holding", "damage_penalty", "hp_recovery", "siphon_quality",
    "siphon_death_penalty", "program_waste",
)  # fmt: skip


@pytest.fixture(scope="module")
def counting():
    return GymnaxEnv("counting", max_steps=3)


def test_gymnax_view_plays_the_same_environment():
    """Step for step what `make_env` gives with the same keys, whichever way keys are passed."""
    theirs, ours = (
        GymnaxEnv("corridor", max_steps=9, slip=0.3),
        make_env(EnvConfig(id="corridor", max_steps=9, slip=0.3), RewardWeights()),
    )
    key = jax.random.key(0)
    obs, state = theirs.reset(jax.random.key_data(key))
    inner, timestep = ours.reset(key[None])
    np.testing.assert_array_equal(obs, timestep.obs[0, 0])
    ended = 0
    for t in range(30):
        key = jax.random.fold_in(jax.random.key(1), t)
        obs, state, reward, terminated, truncated, info = theirs.step(key, state, 1)
        inner, timestep = ours.step(inner, jnp.ones((1, 1), jnp.int32), key[None])
        np.testing.assert_array_equal(obs, timestep.obs[0, 0])
        np.testing.assert_array_equal(info["final_observation"], timestep.final_obs[0, 0])
        assert (reward, terminated, truncated) == (
            timestep.reward[0, 0],
            timestep.terminated[0],
            timestep.truncated[0],
        )
        assert (info["terminated"], info["truncated"]) == (terminated, truncated)
        assert sum(info["reward_terms"].values()) == reward == sum(info[name] for name in ours.spec.reward_terms)
        ended += bool(terminated | truncated)
        assert bool(terminated | truncated) == (int(state.time) == 0)
    assert ended >= 2


def test_a_reward_term_replaces_no_other_entry_of_info():
    terms = {"kills": 0.3, "truncated": -1.0, "final_info": 2.0, "_kills": 1.0}
    assert named_terms(terms) == {"kills": 0.3}


@pytest.mark.slow
def test_info_of_hackmatrix_has_the_15_terms_of_the_reward():
    """By the names of the metrics `reward/*`; the first step pays its penalty of -0.01."""
    env = GymnaxEnv("hackmatrix", max_steps=9)
    _, state = env.reset(jax.random.key(0))
    _, _, reward, *_, info = env.step(jax.random.key(1), state, env.action_mask(state).argmax())
    paid = {name: float(info[name]) for name in TERMS}
    assert paid["step_penalty"] == pytest.approx(-0.01) and sum(paid.values()) == pytest.approx(float(reward))
    assert {name: float(value) for name, value in info["reward_terms"].items()} == paid


def test_masks_belong_to_the_new_state_and_to_the_truncated_one(counting):
    """In step n of counting the actions n and n + 1 mod 4 are legal."""
    obs, state = counting.reset(jax.random.key(0))
    assert counting.action_mask(state).tolist() == [True, True, False, False]
    for t in (1, 2, 3):
        obs, state, _, _, truncated, info = counting.step(jax.random.key(t), state, t - 1)
        np.testing.assert_array_equal(info["action_mask"], counting.action_mask(state))
    assert bool(truncated) and obs.tolist() == [0.0] and info["final_observation"].tolist() == [3.0]
    assert info["action_mask"].tolist() == [True, True, False, False]
    assert info["final_action_mask"].tolist() == [True, False, False, True]


@pytest.mark.parametrize("env_id", ["corridor", "pendulum"])
def test_vmap_equals_single_environments(env_id):
    """Also where actions or keys are shared, and where one vmap is inside another."""
    env = GymnaxEnv(env_id, max_steps=9)
    action = jnp.ones(env.action_space().shape, env.action_space().dtype)
    keys = jax.random.split(jax.random.key(0), (2, 3))
    _, state = jax.vmap(jax.vmap(env.reset))(keys)
    many = jax.vmap(jax.vmap(env.step, (0, 0, None)), (0, 0, None))(keys, state, action)
    shared = jax.vmap(env.step, (None, 0, None))(keys[1, 0], jax.tree.map(lambda leaf: leaf[1], state), action)
    for i, j in ((0, 0), (1, 0), (1, 2)):
        _, own = env.reset(keys[i, j])
        one = env.step(keys[i, j], own, action)
        jax.tree.map(lambda a, b, i=i, j=j: np.testing.assert_array_equal(a[i, j], b), many, one)
    jax.tree.map(
        lambda a, b: np.testing.assert_array_equal(a[0], b), shared, env.step(keys[1, 0], state_of(state, 1, 0), action)
    )


@pytest.mark.slow
def test_vmap_of_hackmatrix_equals_single_games():
    """Its state keeps the batch in the last axis."""
    env, keys = GymnaxEnv("hackmatrix", max_steps=9), jax.random.split(jax.random.key(0), 2)
    obs, state = jax.vmap(env.reset)(keys)
    actions = jax.vmap(env.action_mask)(state).argmax(-1)
    many = jax.vmap(env.step)(keys, state, actions)
    alone, own = env.reset(keys[1])
    np.testing.assert_array_equal(obs[1], alone)
    one = env.step(keys[1], own, actions[1])
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[1], b), many, one)
    assert not bool(one[3]) and bool((one[0] != alone).any())


def state_of(state, *index):
    return jax.tree.map(lambda leaf: leaf[index], state)


def test_illegal_action_can_be_replaced_by_the_next_legal_one():
    """In step n of counting n and n + 1 mod 4 are legal, and nothing else is."""
    env, legal = exported("counting", None, "next_legal", {}), jnp.array([[True, False, False, True]] * 4)
    assert chosen(env, "next_legal", jnp.arange(4), legal).tolist() == [0, 3, 3, 3]
    assert chosen(env, "next_legal", jnp.arange(4), ~legal).tolist() == [1, 1, 2, 1]
    assert chosen(env, "as_is", jnp.arange(4), legal).tolist() == [0, 1, 2, 3]


def test_gymnax_wrappers_accept_the_environment(counting):
    """Its LogWrapper sums up episodes, batched by vmap."""
    from gymnax.wrappers.purerl import LogWrapper

    env = LogWrapper(counting)
    keys = jax.random.split(jax.random.key(0), 2)
    _, state = jax.vmap(env.reset, (0, None))(keys, counting.default_params)
    for _ in range(3):
        _, state, *_, info = jax.vmap(env.step, (0, 0, 0, None))(
            keys, state, jnp.zeros(2, int), counting.default_params
        )
    assert info["returned_episode_returns"].tolist() == [3.0, 3.0]  # 0 + 1 + 2
    assert info["returned_episode_lengths"].tolist() == [3, 3]


def test_spaces_and_params(counting):
    assert counting.action_space().n == counting.num_actions == 4
    assert counting.observation_space().shape == (1,)
    assert counting.default_params.max_steps_in_episode == 3
    with pytest.raises(ValueError, match="make the environment with max_steps"):
        counting.reset(jax.random.key(0), counting.default_params.replace(max_steps_in_episode=5))
    swing = GymnaxEnv("pendulum", max_steps=5)
    assert (swing.action_space().shape, swing.name) == ((1,), "pendulum")
    obs, state = swing.reset(jax.random.key(0))
    assert swing.step(jax.random.key(1), state, jnp.array([0.3]))[0].shape == obs.shape == (3,)


@pytest.mark.parametrize(
    ("env_id", "settings", "message"),
    [
        ("hackmatirx", {}, "unknown environment"),
        ("corridor", {"slipp": 1}, "no setting of an environment: slipp"),
        ("rendezvous", {"num_agents": 2}, "2 agents"),
        ("hackmatrix", {"obs": "packed"}, "packed"),
        ("hackmatrix", {"illegal": "skip"}, "not a way to treat"),
    ],
)
def test_environments_that_cannot_be_exported_are_refused(env_id, settings, message):
    with pytest.raises(HmxError, match=message):
        GymnaxEnv(env_id, **settings)


class FiveValues(GymnaxEnv):
    """The step of gymnax before 1.0, which rejax 0.1.3 calls."""

    def step(self, key, state, action, params=None):
        obs, state, reward, terminated, truncated, info = super().step(key, state, action, params)
        return obs, state, reward, terminated | truncated, info


def trained(env, steps, **values):
    """Mean return and length of 128 episodes before training with rejax's PPO, and after it."""
    rejax = pytest.importorskip("rejax")
    algo = rejax.PPO.create(env=env, total_timesteps=steps, eval_freq=steps, **values)
    _, (lengths, returns) = jax.jit(algo.train)(jax.random.key(0))
    return np.asarray(returns.mean(1)), np.asarray(lengths.mean(1))


def test_ppo_of_another_library_learns_the_corridor():
    returns, lengths = trained(
        FiveValues("corridor", max_steps=60), 16384, num_envs=32, num_steps=64, num_minibatches=4, learning_rate=1e-3
    )
    assert returns[0] < 0.5 and returns[-1] > 0.8
    assert lengths[-1] < 0.5 * lengths[0]


@pytest.mark.slow
def test_ppo_of_another_library_learns_hackmatrix():
    """Illegal actions stand for legal ones: rejax knows no masks, and episodes would last one step."""
    returns, lengths = trained(
        FiveValues("hackmatrix", illegal="next_legal", max_steps=100),
        131072,
        num_envs=64,
        num_steps=64,
        num_minibatches=4,
        num_epochs=4,
        learning_rate=1e-3,
        agent_kwargs={"activation": "tanh"},
    )
    assert lengths[0] > 10
    assert returns[-1] > returns[0] + 0.5
