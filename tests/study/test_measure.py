"""The result of a trial at a rung, from curves whose values are known."""

from __future__ import annotations

from pathlib import Path

import pytest
from made_runs import STEPS, write_metrics

from hmx.errors import HmxError
from hmx.records.paths import RunPaths
from hmx.study.measure import measure
from hmx.study.records import Measure, Objective

RISE = [float(update) for update in range(1, 41)]
SLOW = [value / 2 for value in RISE]


def result(folder: Path, update: int = 40, /, **objective: object):
    """Measure two seeds that train side by side: 4,096 steps per CPU second, 1,024 per second."""
    more = {"train/steps_per_cpu_sec": 4096.0}
    paths = RunPaths(folder, "0001")
    write_metrics(paths.metrics, {0: RISE, 1: SLOW}, **more)
    return measure(paths, Objective(**objective), 1, update, update * STEPS, 2)


@pytest.mark.parametrize(
    ("kind", "per_seed"),
    [("final", (38.5, 19.25)), ("auc", (20.0125, 10.00625))],
)
def test_objective_is_the_mean_of_the_last_tenth_or_the_area(
    kind: Measure, per_seed: tuple[float, ...], tmp_path: Path
) -> None:
    measured = result(tmp_path, measure=kind)
    assert measured.per_seed == pytest.approx(per_seed)
    assert measured.objective == pytest.approx(sum(per_seed) / 2)


def test_thresholds_are_in_steps_or_in_cpu_seconds_of_all_seeds(tmp_path: Path) -> None:
    steps = result(tmp_path, measure="steps_to", threshold=10.0).per_seed
    seconds = result(tmp_path, measure="cpu_seconds_to", threshold=10.0).per_seed
    assert None not in steps
    assert seconds == pytest.approx([2 * value / 4096 for value in steps])


def test_threshold_that_a_seed_never_reaches_counts_as_the_last(tmp_path: Path) -> None:
    measured = result(tmp_path, measure="cpu_seconds_to", threshold=30.0)
    assert measured.per_seed[1] is None
    assert measured.objective is None  # half of the seeds


def test_later_records_do_not_matter(tmp_path: Path) -> None:
    measured = result(tmp_path, 20)
    assert measured.per_seed == pytest.approx((19.5, 9.75))
    assert (measured.rung, measured.update, measured.env_steps) == (1, 20, 20 * STEPS)


def test_missing_update_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(HmxError, match="lacks records of updates 1 to 41") as damaged:
        result(tmp_path, 41)
    assert damaged.value.exit_code == 3
