"""The result of a trial at a rung, from the records of its run up to that rung."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence

from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluation import RANDOM, read_evaluation
from hmx.records.curves import CPU_SPEED
from hmx.records.paths import RunPaths
from hmx.reports.compare.request import EVALUATION, TENTH
from hmx.reports.compare.tasks import median
from hmx.reports.curves import Curve, agents_of, read_metrics
from hmx.study.records import Objective, RungResult


def measure(
    paths: RunPaths, objective: Objective, rung: int, update: int, env_steps: int, num_seeds: int
) -> RungResult:
    """Compute the objective of a run at a rung; later records do not matter.

    Args:
        paths: paths of the run.
        objective: what is computed.
        rung: number of the rung.
        update: last update of the rung.
        env_steps: environment steps until then, per seed.
        num_seeds: seeds of the run.

    Raises:
        HmxError: the file lacks records of an update (exit code 3).
    """
    metrics = paths.metrics
    curves = read_metrics(metrics, {objective.metric}, CPU_SPEED)
    seeds = agents_of(curves, speed=CPU_SPEED)
    counts = [int((seed.steps <= env_steps).sum()) for seed in seeds]
    if curves.whole and counts != [update] * num_seeds:
        message = f"{metrics} lacks records of updates 1 to {update:,}: {'; '.join(curves.warnings) or counts}"
        run = shlex.quote(str(metrics.parent))
        hint = f"hmx runs verify {run}; without its folder checkpoints, the trial trains again"
        raise HmxError(message, hint, ExitCode.ARTEFACT)
    if objective.metric == EVALUATION:
        returns = {row.seed: row.return_mean for row in read_evaluation(paths)[0] if row.policy != RANDOM}
        per_seed = tuple(returns.get(seed.number) for seed in seeds)
    else:
        value = _VALUES[objective.measure]
        per_seed = tuple(value(seed.curve(objective.metric), objective, env_steps) for seed in seeds)
    return RungResult(
        rung=rung, update=update, env_steps=env_steps, per_seed=per_seed, objective=_over_seeds(per_seed, objective)
    )


def _over_seeds(values: Sequence[float | None], objective: Objective) -> float | None:
    """Return the median for a threshold, where a seed that never reaches it counts as the last; otherwise the IQM."""
    if objective.threshold is not None:
        return median(values)
    import numpy as np

    from hmx.stats.aggregates import interquartile_mean

    known = [value for value in values if value is not None]
    return float(interquartile_mean([np.array(known)])) if known and len(known) == len(values) else None


def _reached(curve: Curve, objective: Objective, end: int) -> tuple[float | None, float | None]:
    """Return the steps and the CPU seconds to the threshold."""
    assert objective.threshold is not None
    return curve.reached(objective.threshold, end, objective.maximize) or (None, None)


_VALUES: dict[str, Callable[[Curve, Objective, int], float | None]] = {
    "final": lambda curve, objective, end: curve.final(end, TENTH.width(end))[0],
    "auc": lambda curve, objective, end: curve.area(end),
    "steps_to": lambda curve, objective, end: _reached(curve, objective, end)[0],
    "cpu_seconds_to": lambda curve, objective, end: _reached(curve, objective, end)[1],
}
