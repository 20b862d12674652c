"""What is reported of a buffer."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.replay import replay_metrics
from hmx.replay.stats import quantile, spearman

CAPACITY = 24  # of the fixture `make`
ALL = np.arange(CAPACITY, dtype=np.int32)
rank_correlation = jax.jit(spearman)


def ranks(values):
    """Equal values have the mean of their ranks."""
    return np.array([(values < v).sum() + ((values == v).sum() + 1) / 2 for v in values])


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_rank_correlation_with_ties(seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 4, 30).astype(np.float32), rng.normal(size=30).astype(np.float32).round(1)
    where = rng.random(30) < 0.7
    got, known = rank_correlation(a, b, where)
    if where.sum() < 2 or np.ptp(a[where]) == 0 or np.ptp(b[where]) == 0:
        assert not known
    else:
        np.testing.assert_allclose(got, np.corrcoef(ranks(a[where]), ranks(b[where]))[0, 1], atol=1e-5)


def test_quantiles_ignore_empty_slots():
    values, where = jnp.array([5.0, 1.0, 9.0, 3.0, 7.0]), jnp.array([True, True, False, True, False])
    assert [float(quantile(values, where, share)) for share in (0.3, 0.5, 0.9)] == [1.0, 3.0, 5.0]


def test_metrics_of_a_known_buffer(make):
    replay = make(mixing="additive", mu=1.0)
    measure = jax.jit(lambda state: replay_metrics(state, replay.options))
    state = replay.filled(7)
    state = replay.set_scores(state, ALL[:6], state.birth[:6], jnp.array([0.0, 0.0, 0.0, 1.0, 2.0, 3.0]))
    state = replay.filled(1, state)
    state = replay.set_priority(state, ALL, state.birth, jnp.asarray(ALL, jnp.float32))
    state = replay.set_scores(state, ALL[6:9], state.birth[6:9], jnp.array([4.0, 5.0, jnp.nan]))
    values = {name: float(m.total / m.count) for name, m in measure(state).items() if m.count}
    probs = np.asarray(replay.probs(state), np.float64)
    np.testing.assert_allclose(values["ess"], 1 / (CAPACITY * (probs**2).sum()), rtol=1e-5)
    np.testing.assert_allclose(values["prob_ratio"], probs.max() / probs.min(), rtol=1e-5)
    np.testing.assert_allclose(values["coverage"], 9 / 24)
    assert (values["staleness_p50"], values["staleness_p90"]) == (3.0, 3.0)
    np.testing.assert_allclose(values["score_zero"], 4 / 9, rtol=1e-6)
    scores = np.array([0, 0, 0, 1, 2, 3, 4, 5, 0])
    expected = np.corrcoef(ranks(scores), np.arange(9))[0, 1]
    np.testing.assert_allclose(values["score_td_rank"], expected, rtol=1e-5)
    np.testing.assert_allclose([values["alpha_td"], values["alpha_c"], values["nonfinite"]], [0.6, 0.6, 1.0])
    empty = {name for name, m in measure(replay.empty).items() if m.count == 0}
    assert empty == set(measure(replay.empty))
    unscored = {name for name, m in measure(replay.filled(2)).items() if m.count == 0}
    assert unscored == {"staleness_p50", "staleness_p90", "score_zero", "score_td_rank"}
