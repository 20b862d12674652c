"""Probabilities without a buffer are those that the buffer draws by."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.learning import ReplayConfig
from hmx.replay import Replay
from hmx.replay.offline import probabilities


@pytest.mark.parametrize(
    "options",
    [
        ReplayConfig(mixing="uniform"),
        ReplayConfig(mixing="td"),
        ReplayConfig(mixing="additive", mu=0.3),
        ReplayConfig(mixing="additive", target_ess=0.6),
    ],
)
def test_offline_replay_matches_the_buffer(options):
    rng, size = np.random.default_rng(0), 24
    errors = jnp.asarray(rng.exponential(size=size), jnp.float32)
    scores = jnp.asarray(rng.exponential(size=size), jnp.float32)
    slots = jnp.arange(size)
    some = slots[::2]
    replay = Replay(size, size, options)
    state = replay.add(replay.init(errors, slots), errors, slots)
    state = replay.set_priority(state, slots, state.birth, errors)
    state = replay.set_scores(state, some, state.birth[some], scores[some])
    probs, ess, alphas = probabilities(errors, scores, state.scored, options)
    np.testing.assert_allclose(probs, replay.probs(state), rtol=1e-5)
    np.testing.assert_allclose(alphas, state.alphas, rtol=1e-6)
    share = 1 / (size * np.square(np.asarray(probs, np.float64)).sum())
    assert float(ess) == pytest.approx(share, rel=1e-4)
    if options.target_ess:
        assert share == pytest.approx(0.6, abs=1e-3)
