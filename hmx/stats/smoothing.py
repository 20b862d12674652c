"""Smooth noisy curves for the eye; every computation uses the values themselves."""

from __future__ import annotations

import numpy as np

from hmx.stats.intervals import Floats

WIDTH = 0.015  # standard deviation of the kernel, as a share of the range of x
_NEIGHBOURS = 1.2  # least standard deviation, in mean distances of two values
_FEWEST = 8  # values; fewer stay as they are


def smoothed(x: Floats, y: Floats) -> Floats:
    """Return a local linear regression of `y` at each `x`, with Gaussian weights.

    It keeps straight lines exactly, also at both ends, where a moving average would be biased (Fan 1992,
    doi:10.1080/01621459.1992.10476255).

    Args:
        x: ascending places `[N]`.
        y: finite values `[N]`.
    """
    if len(x) < _FEWEST or x[-1] <= x[0]:
        return y
    width = max(WIDTH, _NEIGHBOURS / (len(x) - 1))
    distance = (x[None, :] - x[:, None]) / (width * (x[-1] - x[0]))
    weights = np.exp(-0.5 * distance**2)
    s0, s1, s2 = (np.sum(weights * distance**power, 1) for power in (0, 1, 2))
    spread = s0 * s2 - s1**2
    alone = spread < 1e-9 * s0**2  # no neighbour within reach
    effective = np.where(alone[:, None], weights, weights * (s2[:, None] - s1[:, None] * distance))
    fitted: Floats = (effective @ y) / np.where(alone, s0, spread)
    return fitted
