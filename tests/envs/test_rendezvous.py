"""Rendezvous by hand, and its best return by brute force over the joint states."""

import itertools
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.envs.autoreset import BatchState
from hmx.envs.small.rendezvous import HOME, LENGTH, MEETING, STEP_COST, Corridor, make_rendezvous

LEFT, STAY, RIGHT = range(3)


@cache
def compiled(num_agents, max_steps=0):
    return jax.jit(make_rendezvous(max_steps, num_agents).step)


def keys(t, num_envs):
    return jax.random.split(jax.random.fold_in(jax.random.key(3), t), num_envs)


def at(*cells):
    """States of one environment per row of cells, at the start of an episode."""
    cells = jnp.array(cells, jnp.int32)
    none = jnp.zeros(cells.shape, bool)
    return BatchState(Corridor(cells, none[:, 0], none), jnp.zeros(cells.shape[0], jnp.int32))


def play(start, *actions, max_steps=0):
    """One environment from its start through the actions of all agents; the state and timestep after each."""
    state, seen = at(start), []
    for t, action in enumerate(actions):
        state, timestep = compiled(len(start), max_steps)(state, jnp.array([action], jnp.int32), keys(t, 1))
        seen.append((state.core, timestep))
    return seen


def test_two_agents_meet_halfway_and_go_home():
    (met, first), (apart, second), (_, last) = play((1, 3), (RIGHT, LEFT), (LEFT, RIGHT), (LEFT, RIGHT))
    assert (met.cell.tolist(), met.met.tolist()) == ([[2, 2]], [True])
    np.testing.assert_allclose(first.reward, [[MEETING + STEP_COST] * 2])
    assert apart.cell.tolist() == [[1, 3]]
    np.testing.assert_allclose(second.reward, [[STEP_COST] * 2])
    np.testing.assert_allclose(last.reward, [[HOME + STEP_COST] * 2])
    assert (last.terminated.tolist(), last.agent_done.tolist()) == ([True], [[True, True]])
    np.testing.assert_allclose([last.terms["home"][0], last.terms["step_cost"][0]], [2 * HOME, 2 * STEP_COST])


def test_agent_that_is_home_is_done_while_the_other_moves():
    seen = play((1, 2), (STAY, LEFT), (LEFT, RIGHT), (RIGHT, RIGHT), (RIGHT, RIGHT))
    assert [core.cell.tolist()[0] for core, _ in seen[:3]] == [[1, 1], [0, 2], [0, 3]]  # no action moves a done agent
    assert [ts.agent_done.tolist()[0] for _, ts in seen] == [[False, False], [True, False], [True, False], [True, True]]
    np.testing.assert_allclose(seen[2][1].reward, [[0.0, STEP_COST]])
    assert seen[2][1].legal.tolist() == [[[False, True, False], [True, True, True]]]
    assert [bool(ts.terminated[0]) for _, ts in seen] == [False, False, False, True]


def test_home_counts_only_after_the_meeting():
    (_, early), (_, meeting) = play((0, 1), (STAY, STAY), (STAY, LEFT))
    np.testing.assert_allclose(early.reward, [[STEP_COST] * 2])
    assert not early.agent_done.any()
    np.testing.assert_allclose(meeting.reward, [[MEETING + HOME + STEP_COST, MEETING + STEP_COST]])
    assert meeting.agent_done.tolist() == [[True, False]]


def test_swapping_cells_or_two_of_three_agents_is_not_a_meeting():
    (core, timestep), *_ = play((1, 2), (RIGHT, LEFT))
    assert (core.cell.tolist(), core.met.tolist()) == ([[2, 1]], [False])
    np.testing.assert_allclose(timestep.reward, [[STEP_COST] * 2])
    (core, _), (later, _) = play((1, 1, 2), (STAY, STAY, STAY), (RIGHT, RIGHT, STAY))
    assert (core.met.tolist(), later.met.tolist()) == ([False], [True])


def test_observation_of_an_agent_is_as_documented():
    (_, timestep), *_ = play((1, 4, 1), (STAY, STAY, RIGHT))
    own, others, number, met = np.split(np.asarray(timestep.obs[0]), [LENGTH, 2 * LENGTH, 2 * LENGTH + 3], axis=-1)
    assert own.tolist() == [[0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]
    assert others.tolist() == [[0, 0, 0.5, 0, 0.5], [0, 0.5, 0.5, 0, 0], [0, 0.5, 0, 0, 0.5]]
    assert (number.tolist(), met.tolist()) == (np.eye(3).tolist(), [[0], [0], [0]])
    assert timestep.legal[0].tolist() == [[True, True, True], [True, True, False], [True, True, True]]


def test_single_agent_has_met_at_once():
    (_, first), (_, last) = play((2,), (LEFT,), (LEFT,))
    np.testing.assert_allclose([first.reward[0, 0], last.reward[0, 0]], [MEETING + STEP_COST, HOME + STEP_COST])
    assert last.terminated.tolist() == [True]


def test_step_limit_ends_the_episode_for_all_agents():
    *_, (_, last) = play((0, 4), (STAY, STAY), (STAY, STAY), max_steps=2)
    assert (last.truncated.tolist(), last.agent_done.tolist()) == ([True], [[False, False]])


def outcome(state, actions):
    """The rules once more, in plain Python: the next joint state, None at the end, and the sum of the rewards."""
    cells, met, done = state
    steps = [0 if out else a - 1 for out, a in zip(done, actions, strict=True)]
    moved = [min(max(cell + step, 0), LENGTH - 1) for cell, step in zip(cells, steps, strict=True)]
    meets = met or len(set(moved)) == 1
    home = [0 if i % 2 == 0 else LENGTH - 1 for i in range(len(cells))]
    out = tuple(was or (meets and cell == goal) for was, cell, goal in zip(done, moved, home, strict=True))
    reward = len(cells) * MEETING * (meets and not met) + HOME * (sum(out) - sum(done)) + STEP_COST * done.count(False)
    return None if all(out) else (tuple(moved), meets, out), reward


def best_play(num_agents):
    """Value and best joint action of every joint state that can be reached, without discount, by value iteration."""
    starts = [(cells, False, (False,) * num_agents) for cells in itertools.product(range(LENGTH), repeat=num_agents)]
    table, frontier = {}, starts
    while frontier:
        for state in frontier:
            table[state] = {a: outcome(state, a) for a in itertools.product(range(3), repeat=num_agents)}
        frontier = {s for moves in table.values() for s, _ in moves.values()} - table.keys() - {None}
    values = dict.fromkeys([*table, None], 0.0)
    for _ in range(5 * LENGTH):
        values = {None: 0.0} | {s: max(r + values[s1] for s1, r in moves.values()) for s, moves in table.items()}
    action = {s: max(moves, key=lambda a, m=moves: m[a][1] + values[m[a][0]]) for s, moves in table.items()}
    return starts, values, action


@pytest.mark.parametrize(("num_agents", "optimum"), [(1, 1.89), (2, 3.676), (3, 5.4916)])
def test_best_joint_play_matches_brute_force(num_agents, optimum):
    starts, values, best = best_play(num_agents)
    assert np.mean([values[s] for s in starts]) == pytest.approx(optimum)
    if num_agents == 2:
        for state in starts:
            meeting = max(1, -(-abs(state[0][0] - state[0][1]) // 2))
            assert values[state] == pytest.approx(2 * (MEETING + HOME) + STEP_COST * (2 * meeting + 4))
    now, total, running = at(*(s[0] for s in starts)), np.zeros(len(starts)), np.ones(len(starts), bool)
    for t in range(5 * LENGTH):
        rows = zip(*(leaf.tolist() for leaf in now.core), strict=True)
        action = [best[tuple(cells), met, tuple(done)] for cells, met, done in rows]
        now, timestep = compiled(num_agents)(now, jnp.array(action, jnp.int32), keys(t, len(starts)))
        total += np.asarray(timestep.reward).sum(-1) * running
        running &= ~np.asarray(timestep.terminated)
        if not running.any():
            break
    assert not running.any()
    np.testing.assert_allclose(total, [values[s] for s in starts], rtol=1e-5)
