"""Search at play time: it plans ahead, does not foresee chance, and stays within what is legal."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import trailing
from training import whole_episodes

from hmx.algos.evaluate import search_policy
from hmx.algos.search import make_search
from hmx.algos.types import Algorithm, Decision
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.envs.autoreset import Game, batched
from hmx.envs.belief import as_seen
from hmx.envs.small.counting import make_counting
from hmx.errors import HmxError
from hmx.play.frames import FramePolicy
from hmx.play.spectator import Spectator

SPEC = make_counting(0).spec._replace(id="small", num_actions=3, max_steps=0, reward_terms=("reward",))
LEGAL = jnp.array([True, True, False])


def even_handed(value=0.0):
    """An algorithm that knows nothing: all legal actions alike, all positions worth the same."""

    def act(state, carry, obs, legal, reset, key, greedy):
        probs = legal / legal.sum(-1, keepdims=True)
        nothing = jnp.zeros(legal.shape[:-1])
        return Decision(legal.argmax(-1), nothing, probs, nothing + value), carry

    return Algorithm(lambda key: None, lambda state, hypers: (state, {}), lambda update: {}, act)


def lock():
    """Three steps; only 1, 1, 1 opens it and is worth 1."""

    def move(core, action, key):
        at, right = core
        right = right & (action == 1)
        return (at + 1, right), {"reward": jnp.where(right & (at == 2), 1.0, 0.0)}, at == 2

    return game(lambda key: (jnp.int32(0), jnp.array(True)), move)


def coin(known):
    """One guess, worth 1 if right. The coin lies there from the start, hidden, or is tossed after the guess."""

    def move(core, action, key):
        tossed = core if known else jax.random.bernoulli(key).astype(jnp.int32)
        return core, {"reward": (action == tossed).astype(jnp.float32)}, jnp.array(True)

    return game(lambda key: jax.random.bernoulli(key).astype(jnp.int32), move)


def game(start, move):
    return batched(SPEC, Game(start, move, lambda core: jnp.zeros(1), lambda core: LEGAL))


def trap():
    """Action 1 pays 0. Action 0 leads to one legal action, which pays -5; an illegal one would pay 20."""

    def move(core, action, key):
        paid = jnp.where(core == 0, 0.0, jnp.where(action == 0, -5.0, 20.0))
        return core + 1, {"reward": paid}, (core > 0) | (action == 1)

    def legal(core):
        return jnp.where(core == 0, LEGAL, jnp.array([True, False, False]))

    return batched(SPEC, Game(lambda key: jnp.int32(0), move, lambda core: jnp.zeros(1), legal))


def searched(env, num_simulations, algorithm=None, cfg=None):
    """Decide by a search at the start of the first environments, four at most: `count -> decision`."""
    search = jax.jit(make_search(algorithm or even_handed(), env, cfg or Config(), num_simulations, greedy=True))
    state, seen = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 4))

    def decide(count):
        first, obs, legal = jax.tree.map(lambda leaf: leaf[:count], (state, seen.obs, seen.legal))
        return search(None, first, None, obs, legal, jnp.ones(count, bool), jax.random.key(2))[0]

    return decide


def mean_return(env, num_simulations, episodes=400):
    policy = search_policy(even_handed(), make_search(even_handed(), env, Config(), num_simulations, greedy=True))
    played = whole_episodes(env, policy, episodes, episodes, None, jax.random.key(1))
    return float(played.total.mean())


@pytest.mark.parametrize("env", [lock(), trailing(lock())], ids=["leading", "trailing"])
def test_plans_three_steps_ahead(env):
    """Random play opens the lock once in eight games."""
    assert mean_return(env, 32, 16) == 1.0


@pytest.mark.parametrize(("known", "expected"), [(False, 0.5), (True, 1.0)])
def test_search_knows_the_state_but_not_random_outcomes(known, expected):
    """A search that saw the random numbers of the real step would always guess right."""
    assert abs(mean_return(coin(known), 16) - expected) < 0.1


def test_search_that_sees_what_the_player_sees_does_not_know_a_hidden_coin():
    """The coin lies there from the start; what the player imagines is any coin, and stays the same in an episode."""
    env = coin(known=True)

    def redrawn(state, keys, expected, known):
        drawn = jax.vmap(jax.random.bernoulli)(keys).astype(jnp.int32)
        return state._replace(core=jnp.where(known, expected.core, drawn))

    hiding = env._replace(spec=env.spec._replace(redrawn=redrawn, render=lambda state: f"{state.core[0]}"))
    seen = as_seen(hiding)
    assert abs(mean_return(seen, 16) - 0.5) < 0.1
    assert as_seen(env) is env
    keys = jax.random.split(jax.random.key(0), 8)
    (state, first), (alone, expected) = seen.reset(keys), hiding.reset(jax.random.clone(keys))
    assert seen.spec.render(state) == hiding.spec.render(alone)
    action, keys = jnp.arange(8)[:, None] % 2, jax.random.split(jax.random.key(1), 8)
    after, step = seen.step(state, action, keys)
    same = (state.true, first, after.true, step), (alone, expected, *hiding.step(alone, action, jax.random.clone(keys)))
    for a, b in zip(*map(jax.tree.leaves, same), strict=True):
        np.testing.assert_array_equal(a, b)
    policy = FramePolicy(partial(jax.jit(make_search(even_handed(), seen, Config(), 4)), None))
    shown = Spectator(seen, seed=0, policy=policy)
    assert shown.act(shown.choice).outcome == "terminated" and shown.frame.picture in ("0", "1")


def test_probabilities_are_legal_and_independent_of_the_batch():
    decide = searched(lock(), 8)
    whole, alone = decide(4), decide(1)
    np.testing.assert_allclose(whole.probs.sum(-1), 1.0, rtol=1e-6)
    assert float(whole.probs[..., 2].max()) == 0.0
    np.testing.assert_allclose(whole.probs[:1], alone.probs, rtol=1e-6)
    assert int(whole.action[0, 0]) == int(alone.action[0, 0])


def test_no_value_makes_search_follow_an_illegal_action():
    """The network says 10 everywhere, so the illegal action of the trap looks better than the legal one."""
    cfg = replace(Config(), {"gumbel.value_scale": 50.0})
    found = searched(trap(), 64, even_handed(10.0), cfg)(4)
    assert found.action.tolist() == [[1]] * 4


@pytest.mark.parametrize(("reward_scale", "action"), [(1.0, 1), (20.0, 0)])
def test_step_limit_is_worth_the_value_of_the_last_position(reward_scale, action):
    """Action 0 pays 1 and ends the game; action 1 reaches the step limit in a position that is worth 10.

    Values that predict 20 times the rewards make action 0 the better one.
    """

    def move(core, action, key):
        return core, {"reward": jnp.where(action == 0, 1.0, 0.0)}, action == 0

    game = Game(lambda key: jnp.int32(0), move, lambda core: jnp.zeros(1), lambda core: LEGAL)
    env = batched(SPEC._replace(max_steps=1), game)
    algorithm = even_handed(10.0)._replace(reward_scale=reward_scale)
    found = searched(env, 8, algorithm)(4)
    assert found.action.tolist() == [[action]] * 4


def test_value_is_that_of_the_improved_policy():
    """The search tries the trap, which loses 5, and then avoids it, so that the position is worth 0."""
    found = searched(trap(), 16)(4)
    np.testing.assert_allclose(found.value, 0.0, atol=1e-3)


@pytest.mark.parametrize(
    ("spec", "num_simulations", "message"),
    [
        (SPEC, 0, "0 simulations"),
        (SPEC._replace(num_agents=2), 4, "2 agents"),
        (SPEC._replace(action_dim=2), 4, "continuous actions"),
    ],
)
def test_unsearchable_environments_are_refused(spec, num_simulations, message):
    with pytest.raises(HmxError, match=message):
        make_search(even_handed(), lock()._replace(spec=spec), Config(), num_simulations)
