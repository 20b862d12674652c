"""Statistics of runs on plain numbers, as `hmx compare` uses them; importing them loads no JAX.

The names below are public; docs/stats.md explains them. Scores come as one sequence of runs per task: `[[0.1, 0.4],
[0.5, 0.7]]` is two runs on each of two tasks. A name loads NumPy when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hmx.stats.aggregates import (
        bootstrap,
        gap_estimate,
        improvement,
        interquartile_mean,
        iqm_difference,
        iqm_estimate,
        mean_estimate,
        median,
        p_value,
        profile,
    )
    from hmx.stats.estimate import Estimate
    from hmx.stats.intervals import Interval, bounded_interval, mean_interval, median_interval, wilson
    from hmx.stats.sizes import detectable_improvement, fewest_runs, power, runs_needed

__all__ = [
    "Estimate",
    "Interval",
    "interquartile_mean",
    "median",
    "profile",
    "improvement",
    "mean_estimate",
    "iqm_estimate",
    "iqm_difference",
    "gap_estimate",
    "bootstrap",
    "p_value",
    "mean_interval",
    "median_interval",
    "wilson",
    "bounded_interval",
    "power",
    "runs_needed",
    "detectable_improvement",
    "fewest_runs",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in __all__:
        raise AttributeError(f"module 'hmx.stats' has no attribute {name!r}")
    from hmx.stats import aggregates, estimate, intervals, sizes

    home = next(module for module in (aggregates, estimate, intervals, sizes) if hasattr(module, name))
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
