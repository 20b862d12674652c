"""TensorBoard files, read back with the package that users read them with."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from made_runs import RETURN, make_run

from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.jobs.export_metrics import export_metrics
from hmx.jobs.requests import ExportRequest
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.runs.event_files import TensorboardSink
from hmx.runs.sinks import RunInfo

NAN = float("nan")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "r", {0: [1.0, None, 3.0], 1: [-1.0, NAN, -3.0]})


def scalars(folder: Path, name: str) -> list[tuple[int, float]]:
    """Steps and values of a scalar, as TensorBoard shows them."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    return [(event.step, event.value) for event in EventAccumulator(str(folder)).Reload().Scalars(name)]


def test_event_files_have_one_folder_per_seed_and_the_same_names(run: Path) -> None:
    pytest.importorskip("tensorboard")
    export_metrics(run, ExportRequest(to="tensorboard"))
    assert scalars(run / "tensorboard" / "seed-0", RETURN) == [(256, 1.0), (768, 3.0)]
    steps, values = zip(*scalars(run / "tensorboard" / "seed-1", RETURN), strict=True)
    assert steps == (256, 512, 768) and math.isnan(values[1])
    (run / "tensorboard" / "mine.txt").touch()
    export_metrics(run, ExportRequest(to="tensorboard", force=True))
    assert scalars(run / "tensorboard" / "seed-0", RETURN) == [(256, 1.0), (768, 3.0)]
    assert (run / "tensorboard" / "mine.txt").exists()


@pytest.mark.parametrize(("names", "tag"), [("sb3", "rollout/ep_rew_mean"), ("cleanrl", "charts/episodic_return")])
def test_event_files_have_the_names_of_another_library(run: Path, names: str, tag: str) -> None:
    pytest.importorskip("tensorboard")
    export_metrics(run, ExportRequest(to="tensorboard", names=names))
    assert scalars(run / "tensorboard" / "seed-0", tag) == [(256, 1.0), (768, 3.0)]
    with pytest.raises(KeyError):
        scalars(run / "tensorboard" / "seed-0", RETURN)


def test_resumed_run_drops_repeated_records(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    cfg = replace(Config(), {"run.name": "r"})
    for first, values in ((0, (1.0, 2.0, 9.0, 9.0)), (2, (3.0,))):
        info = RunInfo("r", tmp_path, cfg, "", first_update=first, total_updates=4, steps_per_update=10, num_seeds=1)
        sink = TensorboardSink()
        sink.start(info)
        for update, value in enumerate(values, first + 1):
            sink.record({"update": update, "env_steps": 10 * update, "seed": 0, "elapsed": 0.5, RETURN: value})
        sink.flush()
        sink.close("finished")
    assert scalars(tmp_path / "tensorboard", RETURN) == [(10, 1.0), (20, 2.0), (30, 3.0)]


def test_compare_of_event_files_equals_compare_of_the_run(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    export_metrics(run, ExportRequest(to="tensorboard", output=tmp_path / "events"))
    findings = compare(CompareRequest(sides=(str(run), str(tmp_path / "events")), samples=50))
    (task,) = findings.tasks
    ours, theirs = ([seed.value for seed in side.seeds] for side in task.sides)
    assert ours == theirs and None not in ours
