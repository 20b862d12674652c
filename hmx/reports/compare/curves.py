"""Values of one agent's curve (final value, area, when a threshold was reached), and the curves of a side."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from hmx.reports.compare.findings import CurveBand, Over
from hmx.reports.compare.read import MetricSeries, Seed
from hmx.reports.compare.request import Window
from hmx.stats.aggregates import band
from hmx.stats.intervals import Floats

POINTS = 100  # of a drawn curve
SMOOTHING = 0.05  # share of the compared steps over which values are averaged before they count as reached
MIN_REPORTS = 3  # updates to average at least: the first episodes to end are short ones, a biased sample


class Reached(NamedTuple):
    """When a threshold was first reached, in environment steps and seconds of training."""

    steps: float
    seconds: float


def final(series: MetricSeries | None, end: float, window: Window) -> tuple[float | None, str]:
    """Return the mean over the last part before `end`, weighted by episodes, or None and the reason.

    Where that part reported nothing, for example because no episode ended, the latest value before it counts.
    """
    series = None if series is None else series.until(end)
    if series is None or not len(series.steps):
        return None, "was never reported"
    inside = series.steps > end - window.width(end)
    if not inside.any():
        inside = np.arange(len(series.steps)) == len(series.steps) - 1
    values, weights = series.values[inside], series.weights[inside]
    if not np.isfinite(values).all():
        return None, "is not finite at the end"
    # As an offset from the first value, so that equal values have exactly that mean.
    return float(values[0] + (weights / weights.sum() * (values - values[0])).sum()), ""


def area(series: MetricSeries | None, end: float) -> float | None:
    """Return the area under the curve from 0 to `end`, divided by `end`: the average over training.

    The curve is straight between reports, and constant before the first and after the last.
    """
    series = None if series is None else series.until(end)
    if series is None or end <= 0 or not len(series.steps) or not np.isfinite(series.values).all():
        return None
    steps = np.concatenate([[0.0], series.steps.astype(np.float64), [end]])
    values = np.concatenate([series.values[:1], series.values, series.values[-1:]])
    return float((np.diff(steps) * (values[1:] + values[:-1]) / 2).sum() / end)


def reached(series: MetricSeries | None, threshold: float, end: float, up: bool = True) -> Reached | None:
    """Return when the moving average first was at least (`up`) or at most the threshold; None if never.

    The average is over the last `SMOOTHING` of the compared steps, and over at least `MIN_REPORTS` updates.
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
    first = np.maximum(np.minimum(first, last - MIN_REPORTS), 0)
    means = (totals[last] - totals[first]) / (counts[last] - counts[first])
    enough = (means >= threshold) if up else (means <= threshold)
    enough &= (bad[last] == bad[first]) & (last - first >= MIN_REPORTS)
    hits = np.flatnonzero(enough)
    return Reached(float(series.steps[hits[0]]), float(series.time[hits[0]])) if len(hits) else None


def around(series: MetricSeries | None, at: float, end: float) -> float | None:
    """Return the mean of the tenth of the compared steps that ends at `at`; None without finite values."""
    if series is None:
        return None
    values = series.values[(series.steps <= at) & (series.steps > at - 0.1 * end)]
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def median(values: Sequence[float | None]) -> float | None:
    """Return the median where None counts as later than any value; None where the middle was not reached."""
    found = float(np.median([math.inf if value is None else value for value in values])) if values else math.inf
    return found if math.isfinite(found) else None


def curve(seeds: Sequence[Seed], metric: str, over: Over, resamples: int, seed: int) -> CurveBand | None:
    """Return the interquartile mean of several agents over steps or time, as far as all of them go."""
    found = [agent.series[metric] for agent in seeds if metric in agent.series]
    lines = [((s.steps if over == "steps" else s.time).astype(np.float64), s.values) for s in found]
    lines = [(x[np.isfinite(x) & np.isfinite(y)], y[np.isfinite(x) & np.isfinite(y)]) for x, y in lines]
    if not lines or min(len(x) for x, _ in lines) < 1:
        return None
    edges = np.linspace(0.0, min(x[-1] for x, _ in lines), POINTS + 1)
    grid = edges[1:]
    keep = grid >= max(x[0] for x, _ in lines)
    keep[-1] |= not keep.any()
    center, low, high = band(np.stack([_binned(x, y, edges) for x, y in lines])[:, keep], resamples, seed)
    ends = [() if end is None else tuple(end.tolist()) for end in (low, high)]
    return CurveBand(tuple(grid[keep].tolist()), tuple(center.tolist()), *ends)


def _binned(x: Floats, y: Floats, edges: Floats) -> Floats:
    """Return the mean in each bin, with straight lines across empty bins."""
    places = np.clip(np.searchsorted(edges, x, side="left") - 1, 0, len(edges) - 2)
    inside = x <= edges[-1] * (1 + 1e-9)
    counts = np.bincount(places[inside], minlength=len(edges) - 1)
    totals = np.bincount(places[inside], weights=y[inside], minlength=len(edges) - 1)
    full = counts > 0
    return np.interp(edges[1:], edges[1:][full], totals[full] / counts[full])
