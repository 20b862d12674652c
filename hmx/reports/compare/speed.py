"""Speed and computed memory of each side, and its diagnostics at matched steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from hmx.config.env_facts import facts_known
from hmx.config.rules import problems
from hmx.config.schema import Config
from hmx.errors import counted
from hmx.reports.compare.curves import around
from hmx.reports.compare.findings import Diagnostic, Speed, TaskFindings
from hmx.reports.compare.read import Member, Seed, Side
from hmx.reports.compare.tasks import Groups
from hmx.reports.health.rules import ratio_evidence
from hmx.sizing.memory import trainer_memory
from hmx.sizing.trainer import inputs_of

DIAGNOSTICS = (
    "train/entropy", "train/max_entropy", "train/std", "train/approx_kl", "train/clip_frac", "train/explained_variance",
    "train/grad_norm", "train/first_ratio_error", "train/value_loss", "train/policy_loss", "train/truncated_frac",
    "train/mean_episode_length",
)  # fmt: skip

MOMENTS = (0.1, 0.5, 1.0)
"""Shares of the compared steps at which diagnostics are taken."""

_RATIO = "train/first_ratio_error"


def speeds(sides: Sequence[Side]) -> list[Speed]:
    """Return a row per task and side."""
    rows = []
    for task in sorted({seed.task for side in sides for seed in side.seeds}):
        for side in sides:
            members = [m for m in side.members if any(seed.task == task and len(seed.steps) for seed in m.seeds)]
            if members:
                rows.append(_speed(side.letter, task, members))
    return rows


def _speed(letter: str, task: str, members: Sequence[Member]) -> Speed:
    steps = [sum(seed.end for seed in member.seeds) for member in members]
    seconds = [max(float(seed.time[-1]) for seed in member.seeds if len(seed.steps)) for member in members]
    updates = [max(len(seed.steps) for seed in member.seeds) for member in members]
    memory = [_memory(member.config) for member in members]
    return Speed(
        letter=letter,
        task=task,
        device=" or ".join(sorted({member.meta.device for member in members if member.meta is not None})),
        steps_per_sec=_median([s / t if t > 0 else np.nan for s, t in zip(steps, seconds, strict=True)]),
        updates_per_sec=_median([u / t if t > 0 else np.nan for u, t in zip(updates, seconds, strict=True)]),
        seconds=_median(seconds),
        startup=_median([member.startup for member in members if member.startup is not None]),
        memory=max((found for found in memory if found is not None), default=None),
    )


def _median(values: Sequence[float]) -> float | None:
    known = [value for value in values if np.isfinite(value)]
    return float(np.median(known)) if known else None


def _memory(config: Config | None) -> int | None:
    if config is None or problems(config) or not facts_known(config.env):
        return None
    return trainer_memory(config, inputs_of(config)).total_bytes


def diagnostics(task: TaskFindings, groups: Groups) -> Iterator[Diagnostic]:
    """Yield each metric that some side reports, averaged over the tenth of the steps before each of `MOMENTS`."""
    for name in DIAGNOSTICS:
        values = {
            letter: tuple(_mean(group, name, share * task.end, task.end) for share in MOMENTS)
            for letter, group in groups.items()
        }
        if any(value is not None for row in values.values() for value in row):
            yield Diagnostic(task.name, name, MOMENTS, values)


def _mean(seeds: Sequence[Seed], name: str, at: float, end: float) -> float | None:
    values = [around(seed.series.get(name), at, end) for seed in seeds]
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def warnings(groups: Mapping[str, Groups]) -> Iterator[str]:
    """Yield what the diagnostics say by themselves."""
    for task, by_letter in groups.items():
        for letter, group in by_letter.items():
            worst = max((_worst_ratio(seed) for seed in group), default=0.0)
            if evidence := ratio_evidence(worst):
                yield f"{letter} on {task}: {evidence}; acting and learning do not use the same policy"
            broken = sum(not np.isfinite(s.values).all() for seed in group for s in seed.series.values())
            if broken:
                yield f"{letter} on {task}: values that are not finite in {counted(broken, 'metric')} of its seeds"


def _worst_ratio(seed: Seed) -> float:
    series = seed.series.get(_RATIO)
    values = np.zeros(0) if series is None else series.values[np.isfinite(series.values)]
    return float(values.max(initial=0.0))
