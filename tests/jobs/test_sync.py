from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hmx.config.codec import to_toml
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.sync import sync
from hmx.records import meta as metas
from hmx.records.frozen import known_meta
from hmx.records.jsonl import MetricsWriter
from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths
from hmx.runs.sinks import RunInfo
from hmx.runs.wandb_sink import WandbSink

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


class Cloud:
    """Stands in for the package and its server: keeps the steps of every run between calls."""

    Settings = SimpleNamespace
    run = None

    def __init__(self) -> None:
        self.steps: dict[str, list[int]] = {}
        self.metrics: dict[str, dict[str, Any]] = {}
        self.exit_codes: list[int] = []
        self.axes: dict[str, tuple[str, str]] = {}
        self.logged_in, self.lost_after = True, 10**9

    def login(self, prompt: bool) -> bool:
        return self.logged_in

    def teardown(self) -> None:
        pass

    def init(self, **given: Any) -> Any:
        steps = self.steps.setdefault(given["id"], [])

        def log(metrics: dict[str, float], step: int) -> None:
            if len(steps) >= self.lost_after:
                raise ConnectionError("network is unreachable")
            assert not steps or step > steps[-1], "wandb would drop it"
            steps.append(step)
            self.metrics.setdefault(given["project"], {}).update(metrics)

        def define_metric(name: str, *, step_metric: str, summary: str = "") -> None:
            self.axes[name] = (step_metric, summary)

        def finish(exit_code: int) -> None:
            self.exit_codes.append(exit_code)

        start = steps[-1] + 1 if steps else 0
        return SimpleNamespace(
            log=log,
            define_metric=define_metric,
            finish=finish,
            id=given["id"],
            url="https://w/" + given["id"],
            starting_step=start,
        )


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> Cloud:
    cloud = Cloud()
    monkeypatch.setitem(sys.modules, "wandb", cloud)
    return cloud


@pytest.fixture
def paths(make_config: MakeConfig) -> RunPaths:
    """A run of two seeds that has ended."""
    cfg = make_config(3, run__num_seeds=2, run__seed=5)
    paths = RunPaths(Path(cfg.run.root), "r")
    paths.folder.mkdir(parents=True)
    paths.config.write_text(to_toml(cfg))
    metas.write(paths.meta, metas.changed(metas.collect("cpu"), state="finished"))
    with MetricsWriter(paths.metrics) as writer:
        for update in (1, 2, 3):
            for seed in (5, 6):
                number = float("nan") if update == 2 else 0.5
                writer.write(
                    {"update": update, "env_steps": 32 * update, "seed": seed, "wall_time": 9.0, "train/x": number}
                )
    return paths


def test_run_is_sent_once(paths: RunPaths, cloud: Cloud) -> None:
    first = sync(paths.folder)
    assert (first.sent, first.there, first.project) == (6, 0, "hmx")
    assert list(cloud.steps.values()) == [[32, 64, 96]] * 2
    assert cloud.metrics["hmx"] == {"train/x": 0.5}
    assert cloud.axes["*"] == ("train/env_steps", "")
    assert cloud.exit_codes == [0, 0]
    again = sync(paths.folder)
    assert (again.sent, again.there) == (0, 6)
    data = again.to_json()
    assert [row["seed"] for row in data["wandb_runs"]] == [5, 6]
    assert data["wandb_runs"][0]["url"] == "https://w/" + data["wandb_runs"][0]["id"]


def test_records_sent_by_training_are_skipped(paths: RunPaths, cloud: Cloud, make_config: MakeConfig) -> None:
    sink = WandbSink("online")
    cfg = make_config(3, run__num_seeds=2, run__seed=5)
    sink.start(RunInfo("r", paths.folder, cfg, metas.read(paths.meta).created, 0, 3, 32, 2))
    for seed in (5, 6):
        sink.record({"update": 1, "env_steps": 32, "seed": seed, "train/x": 0.5})
    sink.close("finished")
    assert (result := sync(paths.folder)).there == 2
    assert result.sent == 4
    assert len(cloud.steps) == 2


def test_lost_network_is_reported_and_sync_continues_later(paths: RunPaths, cloud: Cloud) -> None:
    cloud.lost_after = 2
    with pytest.raises(HmxError, match="network is unreachable") as caught:
        sync(paths.folder)
    assert caught.value.exit_code == ExitCode.UNEXPECTED
    cloud.lost_after = 10**9
    result = sync(paths.folder, project="other")
    assert result.sent + result.there == 6
    assert list(cloud.steps.values()) == [[32, 64, 96]] * 2
    assert result.project == "other"


def test_sync_without_login_is_refused(paths: RunPaths, cloud: Cloud) -> None:
    cloud.logged_in = False
    with pytest.raises(HmxError, match="not logged in") as caught:
        sync(paths.folder)
    assert caught.value.exit_code == ExitCode.USAGE


def test_sync_without_the_package_is_refused(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(HmxError, match="pip install wandb"):
        sync(paths.folder)


def test_running_run_is_not_synced(paths: RunPaths, cloud: Cloud) -> None:
    with RunLock(paths), pytest.raises(HmxError, match="is in use by process"):
        sync(paths.folder)
    assert cloud.steps == {}


@pytest.mark.parametrize("line", ['{"update":4,"seed":5}', '{"update":4,"seed":9,"env_steps":128}'])
def test_impossible_records_count_as_damage(line: str, paths: RunPaths, cloud: Cloud) -> None:
    with paths.metrics.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(HmxError, match="is damaged") as caught:
        sync(paths.folder)
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_offline_sync_writes_files_to_send_later(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    result = sync(paths.folder, mode="offline")
    assert result.sent == 6
    files = list((paths.folder / "wandb").glob("offline-run-*/run-*.wandb"))
    assert len(files) == 2
    assert all(b"train/x" in file.read_bytes() for file in files)


def test_run_with_damaged_meta_data_is_sent(paths: RunPaths, cloud: Cloud) -> None:
    paths.meta.write_text("{")
    assert sync(paths.folder).sent == 6
    assert sync(paths.folder).sent == 0, "the id is the same each time"
    paths.meta.unlink()
    assert sync(paths.folder).there == 6


def test_checkpoint_copy_has_the_creation_time_of_the_run(unpack: Callable[..., RunPaths], tmp_path: Path) -> None:
    paths = unpack(2, tmp_path)
    created = metas.read(paths.meta).created
    paths.meta.unlink()
    known = known_meta(paths)
    assert known is not None and known.created == created
    for copy in paths.checkpoints.glob("*/meta.json"):
        copy.unlink()
    assert known_meta(paths) is None


def test_changed_configuration_is_reported(paths: RunPaths, cloud: Cloud) -> None:
    paths.config.write_text(paths.config.read_text().replace("[run]", "[run"))
    with pytest.raises(HmxError, match=r"run\.toml is damaged") as caught:
        sync(paths.folder)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert cloud.steps == {}
