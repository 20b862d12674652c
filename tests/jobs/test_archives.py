"""Files that hmx 0.1.0 wrote still load, and its interrupted runs resume to the same result: tests/data/README.md."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hmx.config import codec
from hmx.config.fields import FIELDS, get
from hmx.config.learning import PpoConfig
from hmx.config.schema import Config
from hmx.jobs import runs
from hmx.jobs.evaluate import evaluate
from hmx.jobs.evaluation import PolicyStats
from hmx.jobs.resume import plan, resume
from hmx.records import jsonl, score_file
from hmx.records.frozen import read_config
from hmx.records.layout import RunPaths
from hmx.records.metrics_table import METRICS
from hmx.registry.load import load_stored
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.reports.grad_report.job import grad_report
from hmx.reports.grad_report.request import GradReportRequest
from hmx.reports.score_buffer.job import score_buffer
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.runs import buffers
from hmx.runs.checkpoint import to_host
from hmx.runs.restoring import restore
from hmx.runs.session import open_session

ARCHIVE = Path(__file__).parents[1] / "data" / "0.1.0"
NAMES = ["ppo", "lstm", "dqn"]
TRAINED = {"ppo": "sampled", "lstm": "sampled", "dqn": "greedy"}
CLOCK = {"wall_time", "elapsed", "run", "train/steps_per_sec", "train/steps_per_cpu_sec", "train/grad_report_seconds"}
MOVED: dict[str, str] = {f"algo.{field.name}": f"ppo.{field.name}" for field in dataclasses.fields(PpoConfig)}
"""Configuration keys that have another name today: key in the archive -> key today."""

each_run = pytest.mark.parametrize("name", NAMES)


@pytest.fixture(scope="module")
def is_exact(fingerprint: dict[str, str]) -> bool:
    """Whether this process computes the same bits as the one that wrote the archive."""
    recorded: dict[str, str] = json.loads((ARCHIVE / "machine.json").read_text())
    return recorded == fingerprint


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked archives, which no test changes: `NAME/interrupted/NAME` and `NAME/finished/NAME`."""
    folder = tmp_path_factory.mktemp("archives")
    for name in NAMES:
        with tarfile.open(ARCHIVE / f"{name}.tar.gz") as archive:
            archive.extractall(folder / name, filter="data")
    return folder


def copy_run(pristine: Path, name: str, state: str, target: Path) -> RunPaths:
    """Copy one archived run to `target`, which the test may change."""
    shutil.copytree(pristine / name / state, target / state)
    return RunPaths(target / state, name)


def content(paths: RunPaths) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in paths.folder.rglob("*") if path.is_file()}


def state_of(paths: RunPaths) -> dict[str, np.ndarray[Any, Any]]:
    """Every array of the newest checkpoint by name, read as resuming reads it."""
    session = open_session(read_config(paths))
    return to_host(restore(session, paths).state)


def records_of(paths: RunPaths) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in CLOCK} for record in jsonl.read(paths.metrics)]


def assert_same(found: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any], what: str, is_exact: bool) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    if is_exact or found.dtype.kind != "f":
        assert found.tobytes() == wanted.tobytes(), what
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-4, err_msg=what)


def assert_arrays_of_file(found: dict[str, np.ndarray[Any, Any]], path: Path, is_exact: bool = True) -> None:
    """The arrays are those that NumPy itself finds in an archived file."""
    with np.load(path) as file:
        wanted = {name: file[name] for name in file.files if name != "header.json"}
    assert set(found) == set(wanted)
    for name, array in wanted.items():
        assert_same(found[name], array, name, is_exact)


def assert_values_of_file(cfg: Config, path: Path) -> None:
    """Every value in an archived configuration file, read by the TOML reader alone, is in the configuration."""
    sections = {k: v for k, v in tomllib.loads(path.read_text()).items() if k != "schema"}
    for section, body in sections.items():
        for name, value in body.items():
            key = MOVED.get(f"{section}.{name}", f"{section}.{name}")
            if codec.current(key)[0] in codec._REMOVED:
                continue
            if key == "env.loopholes":
                key, value = "env.rules", "original" if value else "closed"
            found = get(cfg, key)
            assert (list(found) if isinstance(found, tuple) else found) == value, key


def assert_archived_evaluation(rows: tuple[PolicyStats, ...], paths: RunPaths, is_exact: bool) -> None:
    wanted = json.loads((paths.reports / "evaluation.json").read_text())["policies"]
    assert [(row.policy, row.seed) for row in rows] == [(row["policy"], row["seed"]) for row in wanted]
    for row, old in zip(rows, wanted, strict=True):
        numbers = (old["return_mean"], old["return_median"], old["length_mean"])
        close = pytest.approx(numbers, rel=0.0 if is_exact else 1e-4, abs=0.0 if is_exact else 1e-6)
        assert (row.return_mean, row.return_median, row.length_mean) == close


@each_run
def test_archived_runs_are_intact_and_reading_changes_nothing(name: str, pristine: Path) -> None:
    for state, update, kept in (("interrupted", 4, (4,) if name == "lstm" else (2, 4)), ("finished", 6, (6,))):
        paths = RunPaths(pristine / name / state, name)
        before = content(paths)
        found = runs.verify(paths.folder)
        assert (found.damage, found.notes, found.intact) == ((), (), kept)
        (row,) = runs.list_runs(paths.root).runs
        assert (row.state, row.update, row.env_steps) == (state, update, 32 * update)
        assert_values_of_file(read_config(paths), paths.config)
        assert content(paths) == before


@each_run
def test_metrics_of_archived_runs_have_current_names_and_equal_values(name: str, pristine: Path) -> None:
    paths = RunPaths(pristine / name / "finished", name)
    raw = [json.loads(line) for line in paths.metrics.read_text().splitlines()]
    records = list(jsonl.read(paths.metrics))
    assert len(records) == 6 * (2 if name == "lstm" else 1)
    for record, old in zip(records, raw, strict=True):
        assert list(record.values()) == [value for key, value in old.items() if key != "schema"]
    known = {metric for record in records for metric in record if metric.startswith(("train/", "replay/", "score/"))}
    assert known <= set(METRICS)


@each_run
def test_archived_runs_can_be_compared(name: str, pristine: Path) -> None:
    sides = (f"{state}={pristine / name / state / name}" for state in ("finished", "interrupted"))
    result = compare(CompareRequest(sides=tuple(sides)))
    (task,) = result.tasks
    assert all(side.mean is not None for side in task.sides)


@each_run
def test_interrupted_run_resumes_to_the_archived_result(
    name: str, pristine: Path, tmp_path: Path, is_exact: bool
) -> None:
    paths = copy_run(pristine, name, "interrupted", tmp_path)
    reference = RunPaths(pristine / name / "finished", name)
    planned = plan(paths.folder)
    assert (planned.update, planned.total_updates, planned.warnings) == (4, 6, ())
    result = resume(paths.folder)
    assert (result.state, result.first_update, result.updates) == ("finished", 4, 6)
    found, wanted = state_of(paths), state_of(reference)
    assert list(found) == list(wanted)
    for leaf, array in wanted.items():
        assert_same(found[leaf], array, leaf, is_exact)
    for record, old in zip(records_of(paths), records_of(reference), strict=True):
        known = {name: record[name] for name in old}  # a later version may record more
        assert known == (old if is_exact else pytest.approx(old, rel=1e-2, abs=1e-3))
    assert_archived_evaluation(result.evaluation, reference, is_exact)
    assert runs.verify(paths.folder).damage == ()
    if name == "dqn":
        saved = buffers.named(buffers.load(paths.reports / "buffer.npz"))
        assert_arrays_of_file(saved, reference.reports / "buffer.npz", is_exact)


@each_run
def test_finished_run_evaluates_to_its_archived_report(name: str, pristine: Path, is_exact: bool) -> None:
    paths = RunPaths(pristine / name / "finished", name)
    found = evaluate(paths.folder, policies=("random", TRAINED[name]))
    assert (found.checkpoint, found.episodes, found.warnings) == (6, 8, ())
    assert_archived_evaluation(found.policies, paths, is_exact)


def test_archived_buffer_and_scores_load_and_scoring_gives_the_same_scores(
    pristine: Path, tmp_path: Path, is_exact: bool
) -> None:
    paths = RunPaths(pristine / "dqn" / "interrupted", "dqn")
    file, old = paths.reports / "buffer.npz", paths.reports / "buffer.scores" / "scores.npz"
    buffer = buffers.load(file)
    assert (buffer.header.env, buffer.header.run, buffer.header.update) == ("frozenlake", "dqn", 2)
    assert (buffer.header.capacity, buffer.header.size, buffer.header.num_added) == (48, 48, 64)
    assert_arrays_of_file(buffers.named(buffer), file)
    assert_arrays_of_file(scores_in(old), old)
    request = ScoreRequest(select="all", rollouts=4, horizon=4, bootstrap=False, top=2)
    score_buffer(file, checkpoint=paths.checkpoint(2), request=request, out=tmp_path)
    scores = scores_in(tmp_path / "scores.npz")
    assert np.all(scores.pop("bias") >= 0.0)  # a column since schema 2
    assert_arrays_of_file(scores, old, is_exact)


def scores_in(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    return {name: buffers.loaded(column) for name, column in score_file.read(path)[1].items()}


def test_new_report_is_compared_with_archived_gradient_report(pristine: Path, is_exact: bool) -> None:
    """The policy gradient of the same checkpoint has the same norms; the weight of the value loss has changed since."""
    run = pristine / "ppo" / "interrupted" / "ppo"
    compare = str(ARCHIVE / "grad-report.json")
    found = grad_report(run, GradReportRequest(groups=4, per_group=4, buckets=2, checkpoint=2, compare=compare)).compare
    assert found is not None
    assert {name: ratios["task"] for name, ratios in found.norm_ratio.items()} == pytest.approx(
        dict.fromkeys(found.norm_ratio, 1.0), rel=0.0 if is_exact else 1e-3
    )
    assert found.norm_ratio["all"]["value"] == pytest.approx(0.6 / 0.7, rel=1e-4)


@pytest.mark.filterwarnings("ignore:score.kind = qgap")
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_archived_configuration_file_loads_with_every_value(name: str) -> None:
    path = ARCHIVE / f"{name}.toml"
    cfg = load_stored(path).config
    assert_values_of_file(cfg, path)
    assert sum(get(cfg, key) != field.default for key, field in FIELDS.items()) > 50
