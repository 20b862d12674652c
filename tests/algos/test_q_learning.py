"""Targets, losses and target networks of Q-learning, worked by hand on a network that is a table."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.algos.dqn.learning import Learner, learn, next_value, taken_value, targets, without_stored
from hmx.algos.dqn.update import make_dqn_components
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.envs.small.counting import make_counting
from hmx.nets import QNet
from hmx.replay import ReplayBatch, blank

GAMMA = 0.5
ACTIONS = 4
TABLE = jnp.array([[1.0, 2.0, 3.0, 9.0], [4.0, 8.0, 6.0, 5.0], [0.0, -1.0, -2.0, 7.0]])
TARGET = jnp.array([[10.0, 20.0, 30.0, 90.0], [40.0, 10.0, 60.0, 50.0], [-5.0, -6.0, -7.0, 70.0]])
TABLE_NET = QNet(lambda key: TABLE, lambda table, obs: table[obs[..., 0].astype(jnp.int32)])


def make(**changes):
    keys = {
        "algo.name": "dqn", "algo.gamma": GAMMA, "algo.num_steps": 1, "algo.max_grad_norm": 0.0, "env.num_envs": 1,
        "replay.capacity": 8, "replay.mixing": "uniform", "dqn.batch_size": 2, "dqn.learn_starts": 1,
        "dqn.gradient_steps": 1, "dqn.double": False, "dqn.loss": "squared", "run.total_steps": 100,
    }  # fmt: skip
    cfg = replace(Config(), {**keys, **{key.replace("__", "."): value for key, value in changes.items()}})
    return make_dqn_components(cfg, make_counting(0))._replace(net=TABLE_NET)


def item(agents=1, **fields):
    """One transition from state 0 to state 1 in which everything is legal and action 0 pays 1."""
    items = blank(1, agents, (1,), jnp.float32, ACTIONS)
    usual = {
        "reward_tp1": jnp.ones(1),
        "agent_done_tp1": jnp.zeros((1, agents), bool),
        "obs_tp1": jnp.ones((1, agents, 1)),
    }
    return items._replace(**{**usual, **{name: jnp.asarray(value) for name, value in fields.items()}})


def one_batch(items):
    zero = jnp.zeros(1, jnp.int32)
    return ReplayBatch(zero, zero.astype(jnp.uint32), items, jnp.ones(1), jnp.ones(1))


def learner_of(parts, replay=None, params=TABLE, target=TARGET):
    light = () if replay is None else without_stored(replay)
    return Learner(params, target, parts.optimiser.init(params), light, jnp.int32(0))


def target_of(parts, items):
    def target(items):
        replay = parts.replay.init(items, None)
        return targets(parts, learner_of(parts, replay), replay, one_batch(items))[0]

    return float(jax.jit(target)(items))


def test_target_network_evaluates_its_own_or_the_online_choice():
    assert target_of(make(), item()) == 1.0 + GAMMA * 60.0
    # the network likes action 1 best, of which the target network thinks little
    assert target_of(make(dqn__double=True), item()) == 1.0 + GAMMA * 10.0


@pytest.mark.parametrize(("double", "value"), [(False, 50.0), (True, 50.0)])
def test_illegal_actions_never_maximise(double, value):
    legal = [[[False, False, False, True]]]
    assert target_of(make(dqn__double=double), item(legal_tp1=legal)) == 1.0 + GAMMA * value
    # with action 2 legal as well the target network takes that, the network in training too
    legal = [[[False, False, True, True]]]
    assert target_of(make(dqn__double=double), item(legal_tp1=legal)) == 1.0 + GAMMA * 60.0


def test_only_terminated_episodes_do_not_bootstrap():
    assert target_of(make(), item(agent_done_tp1=[[True]])) == 1.0
    assert target_of(make(), item(truncated_tp1=[True])) == 1.0 + GAMMA * 60.0


def test_team_value_is_the_sum_over_active_agents():
    parts = make()
    both = item(agents=2, action_t=[[2, 3]], obs_t=[[[0.0], [1.0]]])
    assert float(taken_value(parts, TABLE, both)[0]) == 3.0 + 5.0
    assert float(taken_value(parts, TABLE, both._replace(alive_t=jnp.array([[True, False]])))[0]) == 3.0
    assert float(next_value(parts, TABLE, TARGET, both)[0]) == 60.0 + 60.0
    one_left = both._replace(agent_done_tp1=jnp.array([[True, False]]))
    assert target_of(parts, one_left) == 1.0 + GAMMA * 60.0
    assert target_of(parts, both._replace(agent_done_tp1=jnp.array([[True, True]]))) == 1.0


def filled(parts, steps):
    """A buffer of one environment with these transitions, oldest first."""
    state, add = jnp.zeros(1), jax.jit(parts.replay.add)
    replay = jax.jit(parts.replay.init)(item(), state)
    for step in steps:
        replay = add(replay, step, state)
    return replay


def n_step_targets(parts, steps, index):
    @jax.jit
    def find(replay, slots):
        batch = parts.replay.sample(replay, jax.random.key(0), len(index), 0.0)
        batch = batch._replace(index=slots, items=jax.tree.map(lambda leaf: leaf[slots], replay.items))
        return targets(parts, learner_of(parts, replay), replay, batch)

    return np.asarray(find(filled(parts, steps), jnp.array(index))).tolist()


def test_three_step_returns_stop_at_the_episode_and_the_newest_step():
    pays = [1.0, 2.0, 4.0, 8.0, 16.0]
    steps = [item(reward_tp1=[pay], obs_tp1=[[[float(i % 3)]]]) for i, pay in enumerate(pays)]
    parts = make(dqn__n_step=3)
    best = [90.0, 60.0, 70.0]  # of the target network in states 0, 1 and 2
    found = n_step_targets(parts, steps, [0, 3, 4])
    # three steps end in state 2; of the fourth and fifth only two steps and one are known, which end in state 1
    assert found == [1 + 0.5 * 2 + 0.25 * 4 + 0.125 * best[2], 8 + 0.5 * 16 + 0.25 * best[1], 16 + 0.5 * best[1]]
    ended = [*steps[:1], steps[1]._replace(agent_done_tp1=jnp.array([[True]])), *steps[2:]]
    assert n_step_targets(parts, ended, [0]) == [1 + 0.5 * 2]
    cut = [*steps[:1], steps[1]._replace(truncated_tp1=jnp.array([True])), *steps[2:]]
    assert n_step_targets(parts, cut, [0]) == [1 + 0.5 * 2 + 0.25 * best[1]]
    assert n_step_targets(make(), steps, [0]) == [1 + 0.5 * best[0]]


def step_of(parts):
    """A gradient step as one program."""
    return jax.jit(partial(learn, parts))


@pytest.mark.parametrize("loss", ["squared", "huber"])
def test_gradient_step_moves_sampled_values_and_stores_their_errors(loss):
    parts = make(dqn__loss=loss, replay__mixing="td", algo__learning_rate=0.01, dqn__batch_size=4)
    replay = filled(parts, [item()])
    hypers = {"learning_rate": jnp.float32(0.01), "is_beta": jnp.float32(1.0)}
    after, metrics, (target, _) = step_of(parts)(learner_of(parts, replay), replay, hypers, jax.random.key(1))
    error = 1.0 + GAMMA * 60.0 - 1.0
    assert target.tolist() == [[1.0 + GAMMA * 60.0] * 4]
    assert after.replay.td_errors[0] == error and after.replay.td_max == error
    # Adam's first step is as long as the learning rate, towards the target, and touches nothing else
    moved = np.asarray(after.params - TABLE)
    assert moved[0, 0] == pytest.approx(0.01, rel=1e-3) and np.count_nonzero(moved) == 1
    # with a weight of 1 each: half the square, or a straight line of slope 1
    loss_value = 0.5 * error**2 if loss == "squared" else error - 0.5
    mean = metrics["train/total_loss"]
    assert float(mean.total / mean.count) == pytest.approx(loss_value)
    norm = metrics["train/grad_norm"]
    assert float(norm.total / norm.count) == pytest.approx(error if loss == "squared" else 1.0)


@pytest.mark.parametrize(("tau", "every", "shares"), [(1.0, 2, [0, 1, 0]), (0.25, 1, [0.25, 0.25, 0.25])])
def test_the_target_network_follows_hard_or_soft(tau, every, shares):
    parts = make(dqn__target_tau=tau, dqn__target_every=every, dqn__gradient_steps=1)
    replay = filled(parts, [item()])
    hypers = {"learning_rate": jnp.float32(0.01)}
    learner = learner_of(parts, replay)
    train = step_of(parts)
    for number, share in enumerate(shares):
        before = learner
        learner, _, _ = train(before, replay, hypers, jax.random.key(number))
        wanted = before.target_params + share * (learner.params - before.target_params)
        np.testing.assert_allclose(learner.target_params, wanted, rtol=1e-6)
        if share == 1:
            np.testing.assert_array_equal(learner.target_params, learner.params)
        elif share == 0:
            np.testing.assert_array_equal(learner.target_params, before.target_params)
