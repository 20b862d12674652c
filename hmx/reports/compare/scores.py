"""Figures of one agent's curve: its final value, the area under it, when it reached a threshold; and curves of many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hmx.reports.compare.read import Array, Seed, Series
from hmx.stats.aggregates import band

POINTS = 100  # of a drawn curve
SMOOTHING = 0.05  # share of the compared steps that a value is averaged over before it counts as reached
REPORTS = 3  # updates that at least are averaged: the first episodes to end are the short ones, and no fair sample

NOT_FINITE = "is not finite at the end"
NO_VALUE = "was never reported"


class Final(NamedTuple):
    """The value at the end; None where there is none, and why."""

    value: float | None
    why: str = ""


class Reached(NamedTuple):
    """When a threshold was first reached, in environment steps and seconds of training."""

    steps: float
    seconds: float


class Window(NamedTuple):
    """How far back the end goes: a share of the steps that are compared, or a number of steps."""

    share: float = 0.1
    steps: int = 0

    def width(self, end: float) -> float:
        """In steps."""
        return min(float(self.steps), end) if self.steps else self.share * end


def final(series: Series | None, end: float, window: Window) -> Final:
    """The mean over the last part before `end`, each value weighed by the episodes it is of.

    Where that part reported nothing, as when no episode ended, the newest value before it counts.
    """
    if series is None:
        return Final(None, NO_VALUE)
    series = series.until(end)
    if not len(series.steps):
        return Final(None, NO_VALUE)
    inside = series.steps > end - window.width(end)
    if not inside.any():
        inside = np.arange(len(series.steps)) == len(series.steps) - 1
    values, weights = series.values[inside], series.weights[inside]
    if not np.isfinite(values).all():
        return Final(None, NOT_FINITE)
    return Final(_average(values, weights))


def _average(values: Array, weights: Array) -> float:
    centre = values[0]  # equal values keep their mean to the last digit
    return float(centre + (weights / weights.sum() * (values - centre)).sum())


def area(series: Series | None, end: float) -> float | None:
    """The area under the curve from 0 to `end`, divided by `end`: the average over training.

    The curve is straight between reports, and level before the first and after the last.
    """
    if series is None or end <= 0:
        return None
    series = series.until(end)
    if not len(series.steps) or not np.isfinite(series.values).all():
        return None
    steps = np.concatenate([[0.0], series.steps.astype(np.float64), [end]])
    values = np.concatenate([series.values[:1], series.values, series.values[-1:]])
    return float((np.diff(steps) * (values[1:] + values[:-1]) / 2).sum() / end)


def reached(series: Series | None, threshold: float, end: float, up: bool = True) -> Reached | None:
    """When the mean over what came before was first at least (`up`) or at most the threshold; None if never.

    The mean is over the last `SMOOTHING` of the steps that are compared, and over `REPORTS` updates at least.
    """
    if series is None:
        return None
    series = series.until(end)
    good = np.isfinite(series.values)
    values = np.where(good, series.values, 0.0)
    totals = np.concatenate([[0.0], np.cumsum(values * series.weights)])
    counts = np.concatenate([[0.0], np.cumsum(series.weights)])
    bad = np.concatenate([[0], np.cumsum(~good)])
    first = np.searchsorted(series.steps, series.steps - SMOOTHING * end, side="right")
    last = np.arange(1, len(series.steps) + 1)
    first = np.maximum(np.minimum(first, last - REPORTS), 0)
    means = (totals[last] - totals[first]) / (counts[last] - counts[first])
    enough = (means >= threshold) if up else (means <= threshold)
    enough &= (bad[last] == bad[first]) & (last - first >= REPORTS)
    hits = np.flatnonzero(enough)
    return Reached(float(series.steps[hits[0]]), float(series.time[hits[0]])) if len(hits) else None


def around(series: Series | None, at: float, end: float) -> float | None:
    """The mean of what was reported in the tenth of the compared steps that ends at `at`; None for nothing finite."""
    if series is None:
        return None
    inside = (series.steps <= at) & (series.steps > at - 0.1 * end)
    values = series.values[inside]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def curve(seeds: Sequence[Seed], metric: str, over: str, samples: int, seed: int) -> dict[str, Any] | None:
    """The interquartile mean of several agents over environment steps or seconds, as far as all of them go.

    Args:
        seeds: the agents.
        metric: what is drawn.
        over: `steps` or `time`.
        samples: redraws of the interval.
        seed: of the redraws.

    Returns:
        `x`, `centre`, `low` and `high`, each a list; the last two None for a single agent; None without data.
    """
    found = [seed_.series[metric] for seed_ in seeds if metric in seed_.series]
    lines = [(getattr(s, over).astype(np.float64), s.values) for s in found]
    lines = [(x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]) for x, y in lines]
    if not lines or min(len(x) for x, _ in lines) < 1:
        return None
    end = min(x[-1] for x, _ in lines)
    start = max(x[0] for x, _ in lines)
    edges = np.linspace(0.0, end, POINTS + 1)
    grid = edges[1:]
    binned = np.stack([_binned(x, y, edges) for x, y in lines])
    keep = grid >= start
    if not keep.any():
        keep[-1] = True
    centre, low, high = band(binned[:, keep], samples, seed)
    return {
        "x": grid[keep].tolist(),
        "centre": centre.tolist(),
        "low": None if low is None else low.tolist(),
        "high": None if high is None else high.tolist(),
    }


def _binned(x: Array, y: Array, edges: Array) -> Array:
    """The mean in each bin, and between bins that hold something a straight line."""
    places = np.clip(np.searchsorted(edges, x, side="left") - 1, 0, len(edges) - 2)
    inside = x <= edges[-1] * (1 + 1e-9)
    counts = np.bincount(places[inside], minlength=len(edges) - 1)
    totals = np.bincount(places[inside], weights=y[inside], minlength=len(edges) - 1)
    full = counts > 0
    means: Array = np.interp(edges[1:], edges[1:][full], totals[full] / counts[full])
    return means


def median(values: Sequence[float | None]) -> float | None:
    """The middle value where None counts as later than any; None where the middle was not reached."""
    found = float(np.median([math.inf if value is None else value for value in values])) if values else math.inf
    return found if math.isfinite(found) else None
