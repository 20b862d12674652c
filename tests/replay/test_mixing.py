"""Probabilities and importance weights: against formulas in float64, against what is drawn, and at their limits."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.replay.priority import EPS_C

CAPACITY = 24  # of the fixture `make`
ALL = np.arange(CAPACITY, dtype=np.int32)
MIXINGS = [{"mixing": "td"}, {"mixing": "additive", "mu": 0.3}]
RNG = np.random.default_rng(4)
ERRORS = RNG.exponential(size=CAPACITY).astype(np.float32)
SCORES = (RNG.random(CAPACITY) ** 6 * 50).astype(np.float32)
SOME = np.array([0, 2, 3, 7, 11, 12, 13, 20], np.int32)


def prepared(replay, scored=SOME, scale=1.0):
    """A full buffer with TD errors, and scores of some slots, if any."""
    state = replay.filled(8)
    state = replay.set_priority(state, ALL, state.birth, ERRORS)
    return state if not len(scored) else replay.set_scores(state, scored, state.birth[scored], scale * SCORES[scored])


def expected_probs(options, scored, size=CAPACITY):
    """The definition, in float64."""
    by_error = (ERRORS[:size].astype(np.float64) + options.eps_td) ** options.alpha_td
    by_score = np.full(size, np.nan)
    if len(scored):
        scores = SCORES.astype(np.float64)[scored]
        by_score[scored] = (scores / scores.mean() + EPS_C) ** options.alpha_c
    neutral = np.nanmean(by_score) if len(scored) else 1.0
    by_score = np.where(np.isnan(by_score), neutral, by_score)
    p_delta, p_c = by_error / by_error.sum(), by_score / by_score.sum()
    if options.mixing == "td":
        return p_delta
    return options.mu * p_c + (1 - options.mu) * p_delta


@pytest.mark.parametrize("options", MIXINGS, ids=lambda o: o["mixing"])
@pytest.mark.parametrize("scored", [[], SOME, ALL], ids=["none", "some", "all"])
@pytest.mark.parametrize("more", [{}, {"eps_td": 0.5}], ids=["usual", "constant added to errors"])
def test_probabilities_follow_the_definition(make, options, scored, more):
    """For any unit of the scores, and any constant added to TD errors."""
    replay = make(**options, **more)
    scored = np.asarray(scored, np.int32)
    state = prepared(replay, scored, scale=1000.0)
    expected = expected_probs(replay.options, scored)
    np.testing.assert_allclose(replay.probs(state), expected, rtol=1e-5)
    batch = replay.sample(state, jax.random.key(0), 64, 0.4)
    np.testing.assert_allclose(batch.probs, expected[batch.index], rtol=1e-5)
    weights = (CAPACITY * expected[batch.index]) ** -0.4
    np.testing.assert_allclose(batch.weights, weights / weights.max(), rtol=1e-5)


@pytest.mark.parametrize("options", MIXINGS, ids=lambda o: o["mixing"])
def test_samples_follow_the_probabilities(make, options):
    """Batches are stratified and partly drawn by score: still every slot comes as often as it should."""
    replay = make(**options)
    state = prepared(replay)
    draw = jax.jit(jax.vmap(lambda key: replay.replay.sample(state, key, 7, 0.4).index))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 20_000)))
    expected = expected_probs(replay.options, SOME) * drawn.size
    counts = np.bincount(drawn.ravel(), minlength=CAPACITY)
    # strata make counts of a batch less random than independent draws, so this bound is on the safe side
    assert (np.abs(counts - expected) < 4.5 * np.sqrt(expected)).all()
    per_batch = (drawn == counts.argmax()).sum(1)
    assert per_batch.var() <= 1.05 * per_batch.mean()


def inclusion(probs):
    """Probability that each slot is among three, each sampled in proportion among those that remain."""
    first, second, third = np.ix_(probs, probs, probs)
    triple = first * second / (1 - first) * third / (1 - first - second)
    slots = np.arange(len(probs))
    distinct = (slots[:, None, None] != slots[:, None]) & (slots[:, None, None] != slots) & (slots[:, None] != slots)
    triple = np.where(distinct, triple, 0.0)
    np.testing.assert_allclose(triple.sum(), 1.0)
    return triple.sum((1, 2)) + triple.sum((0, 2)) + triple.sum((0, 1))


@pytest.mark.parametrize(
    ("options", "largest"),
    [(MIXINGS[1], 1.0), (MIXINGS[0], 1e3)],
    ids=["even, additive", "one slot nearly always, td"],
)
def test_samples_without_replacement_are_distinct_and_in_proportion(make, options, largest):
    """With one large TD error, twice the batch contains too few distinct slots, so the rest is sampled otherwise."""
    replay = make(**options, replacement=False)
    state = prepared(replay)
    errors = np.where(ALL == 5, largest * ERRORS.max(), ERRORS).astype(np.float32)
    state = replay.set_priority(state, ALL, state.birth, errors)
    probs = np.asarray(replay.probs(state), np.float64)
    sample = jax.jit(jax.vmap(lambda key: replay.replay.sample(state, key, 3, 1.0)))
    batches = sample(jax.random.split(jax.random.key(1), 20_000))
    drawn = np.sort(np.asarray(batches.index), 1)
    assert (drawn[:, 1:] > drawn[:, :-1]).all()
    share = np.bincount(drawn.ravel(), minlength=CAPACITY) / len(drawn)
    expected = inclusion(probs / probs.sum())
    assert (np.abs(share - expected) < 4.5 * np.sqrt(expected * (1 - expected) / len(drawn)) + 1e-4).all()
    first = np.bincount(np.asarray(batches.index)[:, 0], minlength=CAPACITY) / len(drawn)
    assert (np.abs(first - probs) < 4.5 * np.sqrt(probs * (1 - probs) / len(drawn)) + 1e-4).all()
    weights = 1 / (CAPACITY * probs[np.asarray(batches.index)])
    np.testing.assert_allclose(batches.weights, weights / weights.max(1, keepdims=True), rtol=1e-4)


def test_batch_as_large_as_the_buffer_contains_every_slot_once(make):
    replay = make(mixing="td", replacement=False)
    state = replay.filled(4)
    size = int(state.size)
    state = replay.set_priority(state, ALL[:size], state.birth[:size], 10.0 ** (4 * ERRORS[:size]))
    batch = replay.sample(state, jax.random.key(3), size, 1.0)
    assert sorted(np.asarray(batch.index).tolist()) == list(range(size))


def test_largest_possible_weight_is_that_of_an_error_of_zero(make):
    """For any constant added to TD errors."""
    replay = make(mixing="td", eps_td=0.5, is_norm="bound")
    state = replay.filled(8)
    state = replay.set_priority(state, ALL, state.birth, np.where(ALL < 12, 0.0, ERRORS))
    batch = replay.sample(state, jax.random.key(0), 64, 1.0)
    np.testing.assert_allclose(np.asarray(batch.weights)[np.asarray(batch.index) < 12], 1.0, rtol=1e-5)


@pytest.mark.parametrize("options", MIXINGS, ids=lambda o: o["mixing"])
@pytest.mark.parametrize("rounds", [3, 8])
def test_exponents_of_zero_are_uniform_replay_exactly(make, options, rounds):
    replay = make(**options, alpha_td=0.0, alpha_c=0.0)
    state = replay.filled(rounds)
    size = int(state.size)
    state = replay.set_priority(state, ALL[:size], state.birth[:size], ERRORS[:size])
    state = replay.set_scores(state, ALL[1:size:2], state.birth[1:size:2], SCORES[1:size:2])
    expected = np.where(size > ALL, np.float32(1) / np.float32(size), np.float32(0))
    np.testing.assert_array_equal(replay.probs(state), expected)
    batch = replay.sample(state, jax.random.key(0), 64, 1.0)
    np.testing.assert_array_equal(batch.probs, expected[0])
    np.testing.assert_array_equal(batch.weights, 1.0)


def test_mu_of_zero_is_prioritised_replay_to_the_bit(make):
    """Through adding, learning and scoring; nothing of the scores reaches what is drawn."""
    plain, mixed = make(mixing="td"), make(mixing="additive", mu=0.0)
    states, key = [plain.filled(5), mixed.filled(5)], jax.random.key(0)
    for turn in range(8):
        k_draw, k_td, k_score, key = jax.random.split(key, 4)
        batches = [r.sample(s, k_draw.copy(), 16, 0.4) for r, s in zip([plain, mixed], states, strict=True)]
        jax.tree.map(np.testing.assert_array_equal, *batches)
        batch, errors = batches[0], jax.random.normal(k_td, (16,))
        states[0] = plain.set_priority(states[0], batch.index, batch.birth, errors)
        states[1] = mixed.set_priority(states[1], batch.index, batch.birth, errors)
        if turn % 2:
            states[1] = mixed.set_scores(states[1], batch.index, batch.birth, jax.random.uniform(k_score, (16,)))
        states = [r.filled(1, s) for r, s in zip([plain, mixed], states, strict=True)]
    assert states[1].num_scored > 0
    np.testing.assert_array_equal(plain.probs(states[0]), mixed.probs(states[1]))


def test_mu_of_one_is_replay_by_score_to_the_bit(make):
    """TD errors change nothing of what is drawn."""
    replay = make(mixing="additive", mu=1.0)
    state = prepared(replay)
    other = replay.set_priority(state, ALL, state.birth, 5.0 * ERRORS[::-1])
    batches = [replay.sample(s, jax.random.key(2), 16, 0.4) for s in (state, other)]
    jax.tree.map(np.testing.assert_array_equal, *batches)


@settings(max_examples=25)
@given(st.sets(st.integers(0, CAPACITY - 1), min_size=1))
def test_scoring_alone_does_not_change_priorities(make, scored):
    """On average over the scored: they keep the share of draws by score that uniform replay would give them."""
    replay = make(mixing="additive", mu=1.0)
    scored = np.array(sorted(scored), np.int32)
    padded = np.resize(scored, CAPACITY)  # one shape, one compilation; written twice is written once
    state = replay.filled(8)
    state = replay.set_scores(state, padded, state.birth[padded], SCORES[padded])
    probs = np.asarray(replay.probs(state), np.float64)
    np.testing.assert_allclose(probs[scored].sum(), len(scored) / CAPACITY, rtol=1e-5)
    np.testing.assert_allclose(np.delete(probs, scored), 1 / CAPACITY, rtol=1e-5)


def test_slot_without_consequence_gets_the_minimum(make):
    replay = make(mixing="additive", mu=1.0)
    state = replay.filled(8)
    scores = jnp.where(ALL < 6, 0.0, 2.0)
    state = replay.set_scores(state, ALL, state.birth, scores)
    floor, high = 0.01**0.6, (24 / 18 + 0.01) ** 0.6
    np.testing.assert_allclose(replay.probs(state)[:6], floor / (6 * floor + 18 * high), rtol=1e-5)


def test_slots_are_equal_without_any_consequence(make):
    replay = make(mixing="additive", mu=1.0)
    state = replay.filled(8)
    state = replay.set_scores(state, ALL, state.birth, jnp.zeros(CAPACITY))
    np.testing.assert_allclose(replay.probs(state), 1 / CAPACITY, rtol=1e-6)


def test_weights_are_raw_or_scaled_by_the_bound(make):
    """By the bound no weight is above 1, and a slot has the same weight in every batch."""
    for options in MIXINGS:
        raw, bound = make(**options, is_norm="raw"), make(**options, is_norm="bound")
        state = prepared(raw)
        for seed in range(2):
            a = raw.sample(state, jax.random.key(seed), 64, 0.7)
            b = bound.sample(state, jax.random.key(seed), 64, 0.7)
            np.testing.assert_allclose(a.weights, (CAPACITY * a.probs) ** -0.7, rtol=1e-5)
            assert (b.weights <= 1.0).all()
            ratio = b.weights / a.weights
            np.testing.assert_allclose(ratio, ratio[0], rtol=1e-5)
        np.testing.assert_array_equal(raw.sample(state, jax.random.key(0), 64, 0.0).weights, 1.0)


@pytest.mark.parametrize("options", MIXINGS, ids=lambda o: o["mixing"])
def test_effective_sample_size_matches_its_target(make, options):
    target = 0.6
    replay = make(**options, target_ess=target)
    probs = np.asarray(replay.probs(prepared(replay)), np.float64)
    np.testing.assert_allclose(1 / (CAPACITY * (probs**2).sum()), target, rtol=1e-3)
    state = replay.retune(replay.set_priority(prepared(replay), ALL, ALL.astype(np.uint32), ERRORS**3))
    probs = np.asarray(replay.probs(state), np.float64)
    np.testing.assert_allclose(1 / (CAPACITY * (probs**2).sum()), target, rtol=1e-3)
    np.testing.assert_allclose(state.alphas[0], state.alphas[1], rtol=1e-6)


def test_unreachable_effective_sample_size_is_harmless(make):
    replay = make(mixing="td", target_ess=0.5)
    state = replay.retune(replay.filled(8))
    np.testing.assert_allclose(replay.probs(state), 1 / CAPACITY, rtol=1e-6)
    np.testing.assert_allclose(state.alphas[0], 8.0, rtol=1e-4)
