"""Files of another run, or of an earlier moment of the same run, are reported and not used."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from new_runs import train

from hmx.errors import ExitCode, HmxError
from hmx.jobs import evaluate as evaluates
from hmx.jobs import resume as resumes
from hmx.jobs import runs
from hmx.records import checkpoints, jsonl
from hmx.records import meta as metas
from hmx.records.artefact import read_json
from hmx.records.paths import RunPaths
from hmx.reports.compare.read import read_side
from hmx.reports.compare.sides import choose

MakeConfig = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("compiled_once")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, watcher: Any, new_config: MakeConfig) -> dict[str, Path]:
    """Two runs of one configuration with other seeds, and the first one's files as they were after update 2."""
    root = tmp_path_factory.mktemp("runs")
    config = {"run__root": str(root), "run__eval_episodes": 2, "run__checkpoint_every": 1}
    train(new_config(4, run__name="theirs", run__seed=1, **config))
    stopped = train(new_config(3, run__name="ours", **config), sinks=[watcher(stop_at=2)]).run
    shutil.copytree(stopped, root / "early")
    resumes.resume(stopped, changes={"run.total_steps": "128"})
    return {"ours": stopped, "theirs": root / "theirs", "early": root / "early"}


@pytest.fixture
def ours(made: dict[str, Path], tmp_path: Path) -> RunPaths:
    shutil.copytree(made["ours"], tmp_path / "ours")
    return RunPaths(tmp_path, "ours")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Run evaluate and resume, without playing or training."""

    def run_session(training: Any, start: Any, first: int, **more: Any) -> int:
        return first

    monkeypatch.setattr(evaluates, "make_player", lambda *given: lambda *played: [])
    monkeypatch.setattr(resumes, "run_session", run_session)
    longer = {"run.total_steps": "512"}
    return SimpleNamespace(
        evaluate=lambda paths: evaluates.evaluate(paths.folder, policies=("sampled",)),
        resume=lambda paths: resumes.resume(paths.folder, changes=longer),
    )


def replace(paths: RunPaths, source: Path, *names: str) -> None:
    for name in names:
        if (source / name).is_dir():
            shutil.rmtree(paths.folder / name)
            shutil.copytree(source / name, paths.folder / name)
        else:
            shutil.copy(source / name, paths.folder / name)


def damage(paths: RunPaths) -> dict[str, str]:
    return {found.path: found.what for found in runs.verify(paths.folder).damage}


def test_every_file_of_a_run_has_its_id(ours: RunPaths, made: dict[str, Path]) -> None:
    run_id = metas.read(ours.meta).run_id
    assert len(run_id) == 16 and run_id != metas.read(made["theirs"] / "meta.json").run_id
    assert {checkpoints.read_manifest(path).run_id for path in checkpoints.listing(ours.checkpoints)} == {run_id}
    assert {jsonl.run_of(record) for record in jsonl.read(ours.metrics)} == {run_id}
    assert read_json(ours.reports / "evaluation.json", 3, "", "")["run_id"] == run_id
    assert damage(ours) == {}


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["checkpoints/4"], {"checkpoints/4"}),
        (["meta.json"], {"checkpoints/2", "checkpoints/4", "metrics.jsonl", "reports/evaluation.json"}),
        (["reports/evaluation.json"], {"reports/evaluation.json"}),
        (["checkpoints", "metrics.jsonl"], {"checkpoints/2", "checkpoints/4", "metrics.jsonl"}),
    ],
)
def test_verify_reports_files_of_another_run(
    names: list[str], found: set[str], ours: RunPaths, made: dict[str, Path]
) -> None:
    replace(ours, made["theirs"], *names)
    known = damage(ours)
    assert found <= known.keys()
    assert all("belongs to another run (id " in known[path] for path in found)


def test_evaluate_and_resume_do_not_use_a_checkpoint_of_another_run(
    ours: RunPaths, made: dict[str, Path], commands: SimpleNamespace
) -> None:
    replace(ours, made["theirs"], "checkpoints/4")
    result = commands.evaluate(ours)
    assert result.checkpoint == 2
    assert "checkpoint 4 is damaged (belongs to another run" in result.warnings[0]
    assert commands.resume(ours) == 2


def test_evaluate_and_resume_refuse_a_run_without_a_checkpoint_of_its_own(
    ours: RunPaths, made: dict[str, Path], commands: SimpleNamespace
) -> None:
    replace(ours, made["theirs"], "checkpoints", "metrics.jsonl")
    before = sorted(ours.folder.rglob("*"))
    for command in (commands.evaluate, commands.resume):
        with pytest.raises(HmxError, match="belongs to another run") as caught:
            command(ours)
        assert caught.value.exit_code == ExitCode.ARTEFACT
    assert sorted(ours.folder.rglob("*")) == before


def test_checkpoint_of_another_run_is_detected_without_meta_data(
    ours: RunPaths, made: dict[str, Path], commands: SimpleNamespace
) -> None:
    replace(ours, made["theirs"], "checkpoints/4")
    replace(ours, made["early"], "run.toml")
    ours.meta.unlink()
    assert commands.evaluate(ours).checkpoint == 2
    assert commands.resume(ours) == 2
    assert metas.read(ours.meta).run_id == metas.read(made["ours"] / "meta.json").run_id


def test_verify_and_resume_detect_older_files(ours: RunPaths, made: dict[str, Path], commands: SimpleNamespace) -> None:
    replace(ours, made["early"], "meta.json", "run.toml")
    known = damage(ours)
    assert known["meta.json"] == "is older than checkpoint 4: it is from an earlier moment of the run"
    assert "run.total_steps: 128 became 96" in known["run.toml"]
    with pytest.raises(HmxError, match="has changed since checkpoint 4"):
        commands.resume(ours)
    replace(ours, made["ours"], "run.toml")
    assert commands.resume(ours) == 4
    meta = metas.read(ours.meta)
    assert meta.run_id == metas.read(made["ours"] / "meta.json").run_id
    assert any("is older than checkpoint 4" in note for note in meta.resumes[-1].notes)
    assert damage(ours) == {}


def test_evaluate_warns_that_the_newest_checkpoint_is_missing(ours: RunPaths, commands: SimpleNamespace) -> None:
    shutil.rmtree(ours.checkpoint(4))
    result = commands.evaluate(ours)
    assert (result.checkpoint, result.warnings) == (2, ("checkpoint 4 is missing; checkpoint 2 is used instead",))


def test_compare_warns_of_metrics_and_evaluations_of_another_run(ours: RunPaths, made: dict[str, Path]) -> None:
    replace(ours, made["theirs"], "metrics.jsonl", "reports/evaluation.json")
    (side, _) = choose([str(ours.folder), str(made["theirs"])], root=ours.root)
    (source,) = read_side(side, ["train/mean_episode_return"]).members
    assert [text.partition(" (")[0] for text in source.warnings if "another run" in text] == [
        "metrics.jsonl belongs to another run", "reports/evaluation.json belongs to another run"
    ]  # fmt: skip


def test_elapsed_time_continues_after_a_resume(ours: RunPaths, made: dict[str, Path]) -> None:
    early = [record["elapsed"] for record in jsonl.read(made["early"] / "metrics.jsonl")]
    times = [(record["elapsed"], record["wall_time"]) for record in jsonl.read(ours.metrics)]
    assert len(times) == 4 and times == sorted(times) and times[2][0] > early[-1] > 0
