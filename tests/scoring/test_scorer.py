"""The scorer as a whole: order, chunks, agents, continuations, packed states and refusals."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from env_checks import trailing
from machine import NAMES, POLICY, WEIGHTS, at, make_machine, options_of

from hmx.envs.autoreset import Game, TeamGame, batched
from hmx.envs.protocol import Env, EnvSpec, take
from hmx.envs.small.rendezvous import make_rendezvous
from hmx.errors import HmxError
from hmx.scoring import Continuation, Positions, make_continuation, make_scorer
from hmx.scoring.rollouts import rollouts
from hmx.types import Timestep

OPTIONS = options_of(rollouts=8, horizon=6, crn=False, actions="sampled", num_actions=1)


def part(spec, positions, index):
    rest = jax.tree.map(lambda leaf: leaf[index], positions._replace(env_state=()))
    return rest._replace(env_state=take(spec, positions.env_state, index))


def test_scores_do_not_depend_on_order_or_chunks():
    """All at once, and shuffled in threes: the same bits."""
    env = make_machine()
    score = make_scorer(env, POLICY, OPTIONS)
    positions, params = at(env, NAMES, first_id=2**31), jnp.asarray(WEIGHTS)
    whole = score(params, positions, jax.random.key(3))
    order = np.random.default_rng(0).permutation(len(NAMES))
    for start in range(0, len(NAMES), 3):
        index = jnp.asarray(order[start : start + 3])
        alone = score(params, part(env.spec, positions, index), jax.random.key(3))
        expected = jax.tree.map(lambda leaf, index=index: leaf[index], whole._replace(halves=whole.halves.T))
        jax.tree.map(np.testing.assert_array_equal, alone._replace(halves=alone.halves.T), expected)
    other = score(params, positions._replace(id=positions.id + jnp.uint32(1)), jax.random.key(3))
    assert (other.mean != whole.mean).any()
    other = score(params, positions, jax.random.key(4))
    assert (other.mean != whole.mean).any()


@pytest.mark.parametrize(("team_reward", "axis"), [("mean", 0), ("sum", -1)])
def test_agents_are_rewarded_as_a_team(team_reward, axis):
    """Two agents next to each other: who stays and who comes decides whether they meet now."""
    env = trailing(make_rendezvous(20, 2)) if axis else make_rendezvous(20, 2)
    state, shown = env.reset(jax.random.split(jax.random.key(0), 2))
    state = state._replace(core=state.core._replace(cell=jnp.moveaxis(jnp.array([[1, 2], [1, 2]], jnp.int32), 0, axis)))
    legal = jnp.ones((2, 2, 3), bool)
    taken = jnp.array([[1, 0], [1, 1]], jnp.int32)  # meet on cell 1; stay apart
    positions = Positions(state, shown.obs, legal, taken, jnp.arange(2, dtype=jnp.uint32))
    policy = Continuation(lambda params, obs, legal, keys: jnp.ones(obs.shape[:2], jnp.int32))
    options = options_of(actions="all", rollouts=2, horizon=1, team_reward=team_reward)
    found = make_scorer(env, policy, options)(None, positions, jax.random.key(0))
    agents = 2 if team_reward == "sum" else 1
    # on two of nine joint actions they meet, which pays each of them 1
    np.testing.assert_allclose(found.score, [agents * 7 / 8, agents * 2 / 8], rtol=1e-6)
    np.testing.assert_allclose(found.spread, agents, rtol=1e-6)


COIN = EnvSpec(
    id="coin", obs_shape=(1,), num_actions=2, num_agents=1, max_steps=0, reward_terms=("pay",), action_groups=(),
    action_names=("zero", "one"),
)  # fmt: skip


@pytest.mark.parametrize("redrawn", [True, False])
def test_rollouts_draw_hidden_parts_again_where_they_are_asked_to(redrawn):
    """A hidden coin decides the reward: with new draws, heads and tails are worth the same."""

    def tossed(state, keys):
        return state._replace(core=jax.vmap(jax.random.bernoulli)(keys).astype(jnp.int32))

    def move(core, action, key):
        return core, {"pay": core.astype(jnp.float32)}, jnp.array(True)

    env = batched(COIN, Game(lambda key: jnp.int32(0), move, lambda core: jnp.zeros(1)))
    env = env._replace(spec=env.spec._replace(redrawn=tossed))
    keys, policy = jax.random.split(jax.random.key(0), 64), Continuation(lambda params, obs, legal, keys: NEVER)
    state, _ = env.reset(jax.random.clone(keys))

    def paid(side):
        at = state._replace(core=jnp.full(64, side, jnp.int32))
        options = options_of(redrawn=redrawn)
        return rollouts(env, policy, None, at, NEVER, jax.random.clone(keys), options, 1).total

    heads, tails = paid(1), paid(0)
    assert (heads == tails).all() if redrawn else (heads.all() and not tails.any())
    assert 0.25 < float((heads + tails).mean() / 2) < 0.75


NEVER = jnp.zeros((64, 1), jnp.int32)


def test_wins_of_the_next_episode_do_not_count():
    """New games begin at 1 and are won by a step. The games here begin below: one ends at once, the other after it."""

    def move(core, action, key):
        return jnp.where(core < 0, core + 1, core), {"pay": jnp.zeros(1)}, (core >= 0)[None]

    game = TeamGame(
        lambda key: jnp.int32(1), move, lambda core: jnp.zeros((1, 1)), lambda core: jnp.ones((1, 2), bool),
        lambda core: {"wins_sum": (core == 1).astype(jnp.float32)},
    )  # fmt: skip
    env, keys = batched(COIN, game), jax.random.split(jax.random.key(0), 2)
    state, _ = env.reset(jax.random.clone(keys))
    policy = Continuation(lambda params, obs, legal, keys: NEVER[:2])
    for first, won in ((jnp.array([0, -3]), [False, False]), (jnp.array([1, -3]), [True, False])):
        at = state._replace(core=first.astype(jnp.int32))
        found = rollouts(env, policy, None, at, NEVER[:2], jax.random.clone(keys), options_of(), 8)
        assert found.won.tolist() == won and found.steps.tolist() == [1, 4]


def test_policy_and_environment_draw_their_own_random_numbers():
    """The environment shows its number, and pays a policy that draws the same one."""

    def step(state, action, keys):
        shown = jax.vmap(jax.random.uniform)(keys)[:, None, None]
        legal, no = jnp.ones((64, 1, 2), bool), jnp.zeros(64, bool)
        reward = action.astype(jnp.float32)
        return state, Timestep(shown, legal, shown, legal, reward, no, no, no[:, None], {"pay": reward[:, 0]}, {})

    def guess(params, obs, legal, keys):
        return (jax.vmap(jax.random.uniform)(keys)[:, None] == obs[..., 0]).astype(jnp.int32)

    env = Env(COIN, lambda keys: step(jnp.zeros(64), NEVER, keys), step)
    keys = jax.random.split(jax.random.key(0), 64)
    found = rollouts(env, Continuation(guess), None, jnp.zeros(64), NEVER, keys, options_of(), 8)
    assert not found.total.any()


def test_continuation_policies_choose_as_documented():
    values = jnp.log(jnp.array([0.1, 0.2, 0.3, 0.4]))
    obs, legal = jnp.zeros((8000, 1, 1)), jnp.broadcast_to(jnp.array([True, True, True, False]), (8000, 1, 4))
    keys = jax.random.split(jax.random.key(0), 8000)

    def preferences(params, obs):
        return jnp.broadcast_to(params, (*obs.shape[:2], 4))

    for kind, parameter, expected in (
        ("greedy", 1.0, [0, 0, 1, 0]),
        ("softmax", 1.0, [1 / 6, 2 / 6, 3 / 6, 0]),
        ("softmax", 0.5, [1 / 14, 4 / 14, 9 / 14, 0]),
        ("epsilon", 0.3, [0.1, 0.1, 0.8, 0]),
    ):
        policy = make_continuation(preferences, kind, parameter)
        actions = np.asarray(policy.act(values, obs, legal, jax.random.wrap_key_data(jax.random.key_data(keys))))
        np.testing.assert_allclose(np.bincount(actions[:, 0], minlength=4) / 8000, expected, atol=0.025)
        if policy.probs:
            np.testing.assert_allclose(policy.probs(values, obs, legal)[0, 0], expected, rtol=1e-5)


def test_options_without_their_probabilities_or_values_are_refused():
    greedy = make_continuation(lambda params, obs: params, "greedy", 0.0)
    for options in (options_of(aggregate="policy"), options_of(actions="topk")):
        with pytest.raises(HmxError, match="probabilities"):
            make_scorer(make_machine(), greedy, options)
    with pytest.raises(HmxError, match="value function"):
        make_scorer(make_machine(), greedy, options_of(bootstrap=True))
    with pytest.raises(HmxError, match="joint actions"):
        make_scorer(make_rendezvous(9, 12), greedy, options_of(actions="all"))
