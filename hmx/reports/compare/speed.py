"""How fast each side ran, what it holds in memory, and its diagnostics at matched steps."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hmx.config.derive import problems
from hmx.config.env_facts import facts_known
from hmx.config.schema import Config
from hmx.reports.compare.read import Seed, Side, Source
from hmx.reports.compare.scores import around
from hmx.reports.compare.tasks import Task
from hmx.sizing.batch import derive_batch, inputs_of
from hmx.sizing.memory import trainer_memory

MOMENTS = (0.1, 0.5, 1.0)
"""Shares of the compared steps at which diagnostics are taken."""

DIAGNOSTICS = (
    "train/entropy", "train/max_entropy", "train/std", "train/approx_kl", "train/clip_frac", "train/explained_variance",
    "train/grad_norm", "train/first_ratio_error", "train/value_loss", "train/policy_loss", "train/cut_frac",
    "train/mean_episode_length",
)  # fmt: skip

_RATIO = "train/first_ratio_error"
_ROUNDING = 1e-3


@dataclasses.dataclass(frozen=True, kw_only=True)
class Speed:
    """One side on one task. Medians over its runs; None where it is not known."""

    letter: str
    task: str
    device: str
    steps_per_sec: float | None  # over all seeds of a run, without compilation, saving and evaluation
    updates_per_sec: float | None
    seconds: float | None  # of training, per run
    startup: float | None  # seconds from the start to the first update, most of it compilation unless cached
    memory: int | None  # bytes that a run is computed to hold on its device; no measurement


def speeds(sides: Sequence[Side]) -> list[Speed]:
    """A row per task and side."""
    rows = []
    tasks = sorted({seed.task for side in sides for seed in side.seeds})
    for task in tasks:
        for side in sides:
            sources = [s for s in side.sources if any(seed.task == task and len(seed.steps) for seed in s.seeds)]
            if sources:
                rows.append(_speed(side.letter, task, sources))
    return rows


def _speed(letter: str, task: str, sources: Sequence[Source]) -> Speed:
    steps = [sum(seed.end for seed in source.seeds) for source in sources]
    seconds = [max(float(seed.time[-1]) for seed in source.seeds if len(seed.steps)) for source in sources]
    rates = [s / t if t > 0 else np.nan for s, t in zip(steps, seconds, strict=True)]
    updates = [max(len(seed.steps) for seed in source.seeds) for source in sources]
    return Speed(
        letter=letter,
        task=task,
        device=" or ".join(sorted({source.meta.device for source in sources if source.meta is not None})),
        steps_per_sec=_median(rates),
        updates_per_sec=_median([u / t if t > 0 else np.nan for u, t in zip(updates, seconds, strict=True)]),
        seconds=_median(seconds),
        startup=_median([source.startup for source in sources if source.startup is not None]),
        memory=max((found for s in sources if (found := _memory(s.config)) is not None), default=None),
    )


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else None


def _memory(config: Config | None) -> int | None:
    if config is None or problems(config) or not facts_known(config.env):
        return None
    return trainer_memory(config, derive_batch(inputs_of(config))).total


def diagnostics(task: Task, seeds: Mapping[str, Sequence[Seed]]) -> dict[str, dict[str, list[float | None]]]:
    """Metric -> letter -> its mean over seeds at each of `MOMENTS`, in the tenth of the steps before.

    Metrics that no side reports are left out.
    """
    found = {}
    for name in DIAGNOSTICS:
        rows = {
            letter: [_mean(group, name, share * task.end, task.end) for share in MOMENTS]
            for letter, group in seeds.items()
        }
        if any(value is not None for row in rows.values() for value in row):
            found[name] = rows
    return found


def _mean(seeds: Sequence[Seed], name: str, at: float, end: float) -> float | None:
    values = [around(seed.series.get(name), at, end) for seed in seeds]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def findings(task: str, seeds: Mapping[str, Sequence[Seed]]) -> list[str]:
    """What the diagnostics say outright."""
    words = []
    for letter, group in seeds.items():
        worst = max((_worst(seed) for seed in group), default=0.0)
        if worst > _ROUNDING:
            words.append(
                f"{letter} on {task}: an importance ratio was {worst:.2g} away from 1 before the first gradient step; "
                "acting and learning do not see the same policy"
            )
        skipped = sum(not np.isfinite(s.values).all() for seed in group for s in seed.series.values())
        if skipped:
            words.append(f"{letter} on {task}: numbers that are not finite in {skipped} metrics of its seeds")
    return words


def _worst(seed: Seed) -> float:
    series = seed.series.get(_RATIO)
    values: Any = series.values[np.isfinite(series.values)] if series is not None else np.zeros(0)
    return float(values.max()) if len(values) else 0.0
