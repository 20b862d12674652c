"""The ring and what it remembers: overwriting, write-back, windows and the choice of what to score."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.learning import ReplayConfig
from hmx.errors import HmxError
from hmx.replay import Replay

CAPACITY, ENVS = 24, 3  # of the fixture `make`
ALL = np.arange(CAPACITY, dtype=np.int32)


@pytest.fixture
def additive(make):
    return make(mixing="additive", mu=0.5)


@pytest.mark.parametrize("rounds", [1, 3, 8, 11])
def test_ring_keeps_the_newest_items(additive, rounds):
    state = additive.filled(rounds)
    added = ENVS * rounds
    slots = np.arange(max(0, added - CAPACITY), added)
    assert (state.size, state.position, state.num_added) == (len(slots), added % CAPACITY, added)
    np.testing.assert_array_equal(state.birth[slots % CAPACITY], slots)
    np.testing.assert_array_equal(state.items["number"][slots % CAPACITY], slots)
    np.testing.assert_array_equal(state.items["wide"][slots % CAPACITY, 1], -slots)
    scalar, matrix = additive.replay.env_states(state, jnp.asarray(slots % CAPACITY))
    np.testing.assert_array_equal(scalar, slots)
    np.testing.assert_array_equal(matrix, [slots, 10 * slots])


@pytest.mark.parametrize("axis", [0, -1])
def test_environment_states_can_use_either_axis(axis):
    replay = Replay(6, 2, ReplayConfig(), axis)
    boards = jnp.arange(6.0).reshape(2, 3) if axis == 0 else jnp.arange(6.0).reshape(3, 2)
    states = {"board": boards}
    add = jax.jit(replay.add)
    state = jax.jit(replay.init)(jnp.zeros(2), states)
    state = add(add(state, jnp.zeros(2), states), jnp.ones(2), states)
    got = jax.jit(replay.env_states)(state, jnp.array([3, 0]))
    np.testing.assert_array_equal(got["board"], boards.take(jnp.array([1, 0]), axis=axis))


@pytest.mark.parametrize("mixing", ["td", "additive"])
def test_sampled_items_belong_to_their_slots(make, mixing):
    replay = make(mixing=mixing)
    state = replay.filled(3)
    batch = replay.sample(state, jax.random.key(0), 64, 0.5)
    assert (batch.index < 9).all() and (np.unique(batch.index).size == 9)
    np.testing.assert_array_equal(batch.items["number"], batch.index)
    np.testing.assert_array_equal(batch.birth, batch.index)
    np.testing.assert_allclose(batch.probs, replay.probs(state)[batch.index], rtol=1e-6)


@pytest.mark.parametrize("mixing", ["td", "additive"])
def test_overwritten_slot_resets_score_and_error(make, mixing):
    """And counts like any new transition: the largest error seen, and the mean of the scores."""
    replay = make(mixing=mixing)
    state = replay.filled(8)
    scores = jnp.asarray(ALL, jnp.float32)
    state = replay.set_priority(state, ALL, state.birth, jnp.linspace(0.1, 2.0, CAPACITY))
    state = replay.set_scores(state, ALL, state.birth, scores)
    assert state.scored.all() and state.num_scored == CAPACITY
    state = replay.filled(1, state)
    assert not state.scored[:ENVS].any() and state.scored[ENVS:].all()
    assert state.num_scored == CAPACITY - ENVS and state.scored.sum() == CAPACITY - ENVS
    np.testing.assert_array_equal(state.td_errors[:ENVS], 2.0)
    np.testing.assert_array_equal(state.consequence_scores[:ENVS], 0.0)
    if mixing == "additive":
        by_error = (state.td_errors + 0.01) ** 0.6
        expected = 0.5 / CAPACITY + 0.5 * by_error[:ENVS] / by_error.sum()
        np.testing.assert_allclose(replay.probs(state)[:ENVS], expected, rtol=1e-5)


def test_trees_always_match_the_slots(make):
    """After adding, writing and scoring in turn, the leaves are what building anew would make them."""
    for mixing in ("td", "additive"):
        replay = make(mixing=mixing)
        state, key = replay.filled(6), jax.random.key(1)
        for turn in range(6):
            k_draw, k_td, k_score, key = jax.random.split(key, 4)
            batch = replay.sample(state, k_draw, 8, 0.5)
            state = replay.set_priority(state, batch.index, batch.birth, jax.random.normal(k_td, (8,)))
            if turn % 2:
                state = replay.set_scores(state, batch.index, batch.birth, jax.random.uniform(k_score, (8,)))
            state = replay.filled(2, state)
            batch = replay.sample(state, jax.random.fold_in(k_draw, 1), 8, 0.5)
            np.testing.assert_allclose(batch.probs, replay.probs(state)[batch.index], rtol=1e-6)
            np.testing.assert_allclose(replay.probs(state).sum(), 1.0, rtol=1e-6)


def test_errors_of_overwritten_transitions_are_dropped(additive):
    state = additive.filled(8)
    chosen = additive.replay.choose(state, jax.random.key(0), 6, "uniform")
    stale = np.array([0, 1, 2, 9, 10, 11], np.int32)
    birth = state.birth[stale]
    later = additive.filled(2, state)  # overwrites slots 0 to 5
    scored = additive.set_scores(later, stale, birth, jnp.full(6, 7.0))
    np.testing.assert_array_equal(scored.scored, np.isin(ALL, stale[3:]))
    np.testing.assert_array_equal(scored.consequence_scores, np.where(np.isin(ALL, stale[3:]), 7.0, 0.0))
    np.testing.assert_array_equal(scored.scored_at[stale[3:]], later.num_added)
    written = additive.set_priority(later, stale, birth, jnp.full(6, 7.0))
    np.testing.assert_array_equal(written.td_errors == 7.0, np.isin(ALL, stale[3:]))
    np.testing.assert_array_equal(chosen.birth, state.birth[chosen.index])


def test_a_transition_drawn_twice_is_written_once(additive):
    state = additive.filled(8)
    once = additive.set_priority(state, jnp.array([4, 9]), state.birth[jnp.array([4, 9])], jnp.array([3.0, 5.0]))
    index = jnp.array([4, 9, 4, 9, 9])
    twice = additive.set_priority(state, index, state.birth[index], jnp.array([3.0, 5.0, 3.0, 5.0, 5.0]))
    jax.tree.map(np.testing.assert_array_equal, once, twice)
    differing = additive.set_priority(state, index, state.birth[index], jnp.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    leaf = (differing.td_errors + 0.01) ** 0.6
    np.testing.assert_allclose(differing.forest[0].sum((1, 2))[0], leaf.sum(), rtol=1e-5)


def test_nan_values_count_as_zero_and_are_counted(additive):
    state = additive.filled(8)
    values = jnp.array([jnp.nan, jnp.inf, -jnp.inf, 2.0])
    state = additive.set_priority(state, ALL[:4], state.birth[:4], values)
    np.testing.assert_array_equal(state.td_errors[:4], [0.0, 0.0, 0.0, 2.0])
    state = additive.set_scores(state, ALL[:4], state.birth[:4], values)
    assert state.num_nonfinite == 6
    assert np.isfinite(additive.probs(state)).all() and (additive.probs(state) > 0.0).all()


def test_new_transitions_start_from_the_largest_error(make):
    replay = make(mixing="td")
    state = replay.filled(8)
    np.testing.assert_array_equal(state.td_errors, 1.0)  # nothing known yet
    state = replay.set_priority(state, ALL[:2], state.birth[:2], jnp.array([0.2, -8.0]))
    assert state.td_max == 8.0
    state = replay.set_priority(state, ALL[:2], state.birth[:2], jnp.array([0.2, 0.1]))
    np.testing.assert_array_equal(replay.filled(1, state).td_errors[:ENVS], 8.0)


def test_windows_follow_one_environment_up_to_its_newest_step(additive):
    window = jax.jit(additive.replay.window, static_argnums=2)
    state = additive.filled(2)
    slots, there = window(state, jnp.array([1, 4]), 3)
    np.testing.assert_array_equal(slots, [[1, 4], [4, 7], [7, 10]])
    np.testing.assert_array_equal(there, [[True, True], [True, False], [False, False]])
    state = additive.filled(9)  # the ring has begun anew: slots 0 to 2 are the newest
    slots, there = window(state, jnp.array([22, 1, 18]), 3)
    np.testing.assert_array_equal(slots, [[22, 1, 18], [1, 4, 21], [4, 7, 0]])
    np.testing.assert_array_equal(there, [[True, True, True], [True, False, True], [False, False, True]])


def test_stale_scores_are_renewed_first(additive):
    choose = jax.jit(additive.replay.choose, static_argnums=(2, 3))
    state = additive.filled(6)
    state = additive.set_scores(state, ALL[:5], state.birth[:5], jnp.ones(5))
    state = additive.filled(1, state)
    state = additive.set_scores(state, ALL[5:12], state.birth[5:12], jnp.ones(7))
    first = choose(state, jax.random.key(0), 24, "stale")
    np.testing.assert_array_equal(first.valid, ALL < 21)
    assert set(np.asarray(first.index[:9])) == set(range(12, 21))
    assert set(np.asarray(first.index[9:14])) == set(range(5))
    assert set(np.asarray(first.index[14:21])) == set(range(5, 12))
    other = choose(state, jax.random.key(1), 24, "stale")
    assert list(other.index[:9]) != list(first.index[:9])


def test_selections_for_scoring(additive):
    choose = jax.jit(additive.replay.choose, static_argnums=(2, 3))
    state = additive.filled(8)
    state = additive.set_priority(state, ALL, state.birth, jnp.where(ALL == 5, 1e6, 0.0))
    state = additive.set_scores(state, ALL, state.birth, jnp.where(ALL == 5, 1e6, 0.0))
    picks = [choose(state, jax.random.key(i), 4, "replay").index for i in range(20)]
    assert np.mean([5 in pick for pick in picks]) > 0.9
    assert all(np.unique(pick).size == 4 for pick in picks)
    picks = np.concatenate([choose(state, jax.random.key(i), 12, "uniform").index for i in range(40)])
    assert np.bincount(picks, minlength=24).min() > 5
    with pytest.raises(HmxError, match="25 transitions"):
        additive.replay.choose(state, jax.random.key(0), 25, "stale")


def test_scan_and_several_seeds_give_equal_results(additive):
    """A training loop in miniature: types stay, and each of the buffers of several seeds does what it does alone."""

    def step(key, state, turn):
        k_draw, k_td = jax.random.split(jax.random.fold_in(key, turn))
        number = state.num_added.astype(jnp.int32) + jnp.arange(ENVS)
        items = {"number": number, "wide": jnp.stack([number, -number], 1)}
        state = additive.replay.add(state, items, (number, jnp.stack([number, 10 * number])))
        batch = additive.replay.sample(state, k_draw, 4, 0.4)
        state = additive.replay.set_priority(state, batch.index, batch.birth, jax.random.normal(k_td, (4,)))
        return state, batch

    def run(key):
        return jax.lax.scan(partial(step, key), start, jnp.arange(20))

    start = additive.filled(2)
    keys = jax.random.split(jax.random.key(3), 2)
    together = jax.jit(jax.vmap(run))(keys)
    for i in range(2):
        alone = jax.jit(run)(keys[i])
        jax.tree.map(lambda a, b, i=i: np.testing.assert_allclose(a[i], b, rtol=2e-6), together, alone)


def test_capacity_that_splits_batches_is_refused_with_a_fix():
    with pytest.raises(HmxError, match="multiple of 3") as caught:
        Replay(25, 3, ReplayConfig())
    assert "24" in caught.value.hint
    with pytest.raises(HmxError):
        Replay(2, 3, ReplayConfig())
    with pytest.raises(ValueError, match="2 transitions"):
        replay = Replay(24, 3, ReplayConfig())
        replay.add(replay.init(jnp.zeros(3), jnp.zeros(3)), jnp.zeros(2), jnp.zeros(2))
