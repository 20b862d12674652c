"""Which alternatives are tried."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from machine import options_of

from hmx.envs.small.rendezvous import make_rendezvous
from hmx.scoring import candidates, env_steps
from hmx.scoring.options import joint_probs

TWO, ONE = make_rendezvous(9, 2).spec, make_rendezvous(9, 1).spec
LEGAL = jnp.array([[[True, True, True], [False, True, True]], [[False, True, False], [True, True, False]]])
TAKEN = jnp.array([[0, 1], [1, 0]], jnp.int32)
PROBS = jnp.array([[[0.2, 0.5, 0.3], [0.0, 0.1, 0.9]], [[0.0, 1.0, 0.0], [0.6, 0.4, 0.0]]])


def tried(spec, taken=TAKEN, legal=LEGAL, probs=PROBS, seed=0, **options):
    """As a list of tuples per position, the action taken first; and the raw result."""
    keys = jax.random.split(jax.random.key(seed), taken.shape[0])
    got = candidates(options_of(**options), spec, taken, legal, keys, probs)
    rows = zip(np.asarray(got.action), np.asarray(got.valid), strict=True)
    return [[tuple(int(x) for x in a) for a, v in zip(*row, strict=True) if v] for row in rows], got


def every_legal(position):
    sets = [np.flatnonzero(row) for row in np.asarray(LEGAL[position])]
    return {tuple(int(x) for x in joint) for joint in itertools.product(*sets)}


def test_all_joint_actions_are_listed():
    rows, got = tried(TWO, actions="all")
    assert got.action.shape == (2, 9, 2)
    for position, row in enumerate(rows):
        assert row[0] == tuple(np.asarray(TAKEN[position])) and len(row) == len(set(row))
        assert set(row) == every_legal(position)
    repeats = np.asarray(got.action)[~np.asarray(got.valid)]
    assert {tuple(x) for x in repeats} <= {tuple(x) for x in np.asarray(TAKEN)}


def test_deviations_change_one_agent():
    rows, got = tried(TWO, actions="single")
    assert got.action.shape == (2, 5, 2)
    for position, row in enumerate(rows):
        taken = tuple(np.asarray(TAKEN[position]))
        near = {a for a in every_legal(position) if sum(x != y for x, y in zip(a, taken, strict=True)) <= 1}
        assert row[0] == taken and set(row) == near and len(row) == len(near)


def test_the_likeliest_joint_actions_are_exact():
    """Whether or not the action taken is among them, and fewer where fewer are legal."""
    rows, got = tried(TWO, actions="topk", num_actions=3)
    assert got.action.shape == (2, 4, 2)
    order = [sorted(every_legal(i), key=lambda a, i=i: -float(PROBS[i, 0, a[0]] * PROBS[i, 1, a[1]])) for i in range(2)]
    for position, row in enumerate(rows):
        taken = tuple(np.asarray(TAKEN[position]))
        assert row == [taken, *[a for a in order[position] if a != taken][:3]]
    rows, _ = tried(TWO, taken=jnp.array([[1, 2], [1, 1]]), actions="topk", num_actions=3)
    assert rows[0] == [(1, 2), (2, 2), (0, 2), (1, 1)] and rows[1] == [(1, 1), (1, 0)]
    np.testing.assert_allclose(joint_probs(PROBS, jnp.array([[[1, 2]], [[1, 0]]])), [[0.45], [0.6]], rtol=1e-6)


def test_sampled_actions_of_one_agent_are_different():
    legal = jnp.array([[[True, True, True]]] * 200)
    taken = jnp.ones((200, 1), jnp.int32)
    rows, got = tried(ONE, taken, legal, None, actions="sampled", num_actions=1)
    assert got.action.shape == (200, 2, 1)
    assert 60 < sum(row == [(1,), (0,)] for row in rows) < 140 and all(len(row) == 2 for row in rows)
    rows, got = tried(ONE, taken, legal, None, actions="sampled", num_actions=9)
    assert got.action.shape == (200, 3, 1) and all(set(row) == {(0,), (1,), (2,)} for row in rows)


def test_sampled_joint_actions_are_legal_and_distinct():
    seen = [set(), set()]
    for seed in range(12):
        rows, _ = tried(TWO, actions="sampled", num_actions=4, seed=seed)
        for position, row in enumerate(rows):
            assert row[0] == tuple(np.asarray(TAKEN[position])) and len(row) == len(set(row))
            seen[position] |= set(row)
    assert seen == [every_legal(0), every_legal(1)]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"actions": "all"}, 9),
        ({"actions": "single"}, 5),
        ({"actions": "sampled", "num_actions": 6}, 7),
        ({"actions": "topk", "num_actions": 50}, 9),
        ({"actions": "single", "metric": "tv_bins"}, 6),
    ],
)
def test_the_cost_is_actions_times_rollouts_times_horizon(options, expected):
    assert env_steps(options_of(rollouts=4, horizon=10, **options), TWO, 7) == 7 * expected * 40


@pytest.mark.optimised
@pytest.mark.parametrize("actions", ["all", "single", "sampled", "topk"])
def test_other_one_of_two_actions_is_always_tried(actions):
    """Compiled, and for many positions: XLA 0.10.2 made nothing of the alternative to action 0 on a CPU."""
    size, rng = 64, np.random.default_rng(0)
    taken = rng.integers(0, 2, (size, 1)).astype(np.int32)
    legal = rng.random((size, 1, 2)) < 0.7
    np.put_along_axis(legal, taken[..., None], True, -1)
    spec, keys, probs = (
        ONE._replace(num_actions=2),
        jax.random.split(jax.random.key(0), size),
        jnp.full((size, 1, 2), 0.5),
    )
    options = options_of(actions=actions, num_actions=1)
    found = jax.jit(lambda *given: candidates(options, spec, *given, probs))(
        jnp.asarray(taken), jnp.asarray(legal), keys
    )
    both = legal[:, 0].all(-1)
    np.testing.assert_array_equal(np.asarray(found.valid)[:, 1], both)
    np.testing.assert_array_equal(np.asarray(found.action)[both, 1], 1 - taken[both])
