"""Smoothing of curves."""

from __future__ import annotations

import numpy as np

from hmx.stats.smoothing import smoothed


def test_straight_lines_stay_also_at_both_ends() -> None:
    x = np.sort(np.random.default_rng(0).uniform(0, 1e6, 240))
    np.testing.assert_allclose(smoothed(x, 3.0 - 2e-6 * x), 3.0 - 2e-6 * x, atol=1e-9)


def test_noise_shrinks_to_a_third() -> None:
    x, draws = np.arange(240.0), np.random.default_rng(1).normal(size=(20, 240))
    assert 0.2 < np.mean([smoothed(x, noise).std() for noise in draws]) < 0.4


def test_few_values_and_distant_ones_stay() -> None:
    assert smoothed(np.arange(4.0), np.array([0.0, 5.0, 0.0, 5.0])).tolist() == [0.0, 5.0, 0.0, 5.0]
    x, y = np.array([*range(50), 1000.0]), np.array([*[1.0] * 50, 7.0])
    np.testing.assert_allclose(smoothed(x, y), y, atol=1e-6)
