from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hmx.config.schema import Config, RunConfig
from hmx.runs.sinks import RunInfo, SinkGroup
from hmx.runs.wandb_sink import WandbSink


def run_info(path: Path, seeds: int = 1, created: str = "2026-01-01T00:00:00Z") -> RunInfo:
    cfg = Config(run=RunConfig(name="a-run", seed=3, num_seeds=seeds))
    return RunInfo("a-run", path, cfg, created, 0, 10, 64, seeds)


def test_without_the_package_there_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    sink_group = SinkGroup([WandbSink("online")])
    sink_group.start(run_info(tmp_path))
    sink_group.records([{"update": 1, "env_steps": 64, "seed": 3, "train/x": 1.0}])
    sink_group.close("finished")
    assert len(sink_group.warnings) == 1
    assert "wandb" in sink_group.warnings[0]
    assert "pip install wandb" in sink_group.warnings[0]


class Fake:
    """Stands in for the package: remembers what it is told."""

    Settings = SimpleNamespace
    run: Any = None

    def __init__(self, logged_in: bool = True, fail_in: str = "", wait_for: Any = None) -> None:
        self.logged_in, self.fail_in, self.wait_for = logged_in, fail_in, wait_for
        self.runs: list[dict[str, Any]] = []
        self.logged: list[tuple[str, int, dict[str, float]]] = []
        self.axes: list[tuple[str, str, dict[str, str]]] = []
        self.torn_down = 0
        self.hold: Any = lambda: None

    def teardown(self) -> None:
        self.torn_down += 1

    def login(self, prompt: bool) -> bool:
        assert not prompt, "a question would hold up the run"
        return self.logged_in

    def init(self, **given: Any) -> Any:
        if self.fail_in == "init":
            raise ConnectionError("no such host")
        self.runs.append(given)

        def log(metrics: dict[str, float], step: int) -> None:
            if self.fail_in == "log":
                raise ConnectionError("broken pipe")
            self.hold()
            self.logged.append((given["id"], step, metrics))

        def finish(exit_code: int) -> None:
            if self.fail_in == "finish":
                raise ConnectionError("broken pipe")
            given["exit_code"] = exit_code
            if self.wait_for is not None:
                self.wait_for()

        def define_metric(name: str, *, step_metric: str, **more: str) -> None:
            self.axes.append((name, step_metric, more))

        return SimpleNamespace(log=log, finish=finish, define_metric=define_metric)


def drive(fake: Fake, path: Path, monkeypatch: pytest.MonkeyPatch, seeds: int = 1, **info: str) -> SinkGroup:
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink_group = SinkGroup([WandbSink("online", "hackmatrix")])
    sink_group.start(run_info(path, seeds, **info))
    for update in (1, 2):
        sink_group.records(
            {
                "update": update,
                "env_steps": 64 * update,
                "seed": 3 + s,
                "wall_time": 5.0,
                "reward/kills": 0.1 * s,
                "train/x": 2.0,
            }
            for s in range(seeds)
        )
    sink_group.close("finished")
    return sink_group


@pytest.mark.parametrize("place", ["login", "init", "log", "finish"])
def test_login_and_network_never_stop_a_run(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake(logged_in=place != "login", fail_in=place)
    assert len(drive(fake, tmp_path, monkeypatch).warnings) == 1
    assert fake.torn_down == 1, "or the exit of the process would wait for what cannot be reached"


def test_hanging_call_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("hmx.runs.wandb_sink._FINISH_SECONDS", 0.01)
    monkeypatch.setattr("hmx.runs.wandb_sink._WAITING", 3)
    fake = Fake()
    fake.hold = release.wait
    monkeypatch.setitem(sys.modules, "wandb", fake)
    sink_group = SinkGroup([WandbSink("online")])
    sink_group.start(run_info(tmp_path))
    for update in range(1, 9):
        sink_group.records([{"update": update, "env_steps": update, "seed": 3, "train/x": 1.0}])
    sink_group.close("finished")
    release.set()
    (warning,) = sink_group.warnings
    assert "3 records are waiting" in warning


def test_wandb_of_the_calling_program_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    fake.run = object()
    drive(fake, tmp_path, monkeypatch)
    assert fake.torn_down == 0


def test_hanging_network_at_the_end_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr("hmx.runs.wandb_sink._FINISH_SECONDS", 0.01)
    fake = Fake(wait_for=release.wait)
    others = threading.enumerate()
    (warning,) = drive(fake, tmp_path, monkeypatch).warnings
    release.set()
    for thread in set(threading.enumerate()) - set(others):
        thread.join()  # or it would import the real wandb while the next test puts a fake in its place
    assert "wandb sync" in warning


def test_metrics_keep_their_names_and_use_the_environment_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    assert drive(fake, tmp_path, monkeypatch).warnings == []
    assert [(step, metrics) for _, step, metrics in fake.logged] == [
        (64, {"reward/kills": 0.0, "train/x": 2.0}),
        (128, {"reward/kills": 0.0, "train/x": 2.0}),
    ]
    steps = "train/env_steps"  # a metric of every record
    assert fake.axes == [("*", steps, {}), ("train/mean_episode_return", steps, {"summary": "max,last"})]
    (run,) = fake.runs
    assert run["project"] == "hackmatrix"
    assert run["config"]["env"]["num_envs"] == 512
    assert run["exit_code"] == 0


def test_each_seed_is_a_run_of_one_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = Fake()
    drive(fake, tmp_path, monkeypatch, seeds=2)
    assert [run["name"] for run in fake.runs] == ["a-run-seed3", "a-run-seed4"]
    assert {run["group"] for run in fake.runs} == {"a-run"}
    kills = {(name, metrics["reward/kills"]) for name, _, metrics in fake.logged}
    assert kills == {(fake.runs[0]["id"], 0.0), (fake.runs[1]["id"], 0.1)}


def test_a_resumed_run_keeps_its_identity_and_a_new_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = []
    for created in ("monday", "monday", "tuesday"):
        fake = Fake()
        drive(fake, tmp_path, monkeypatch, created=created)
        ids.append(fake.runs[0]["id"])
    assert ids[0] == ids[1] != ids[2]


def test_offline_writes_into_the_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WANDB_MODE", raising=False)
    sink_group = SinkGroup([WandbSink("offline")])
    sink_group.start(run_info(tmp_path))
    sink_group.records([{"update": 1, "env_steps": 64, "seed": 3, "wall_time": 1.0, "reward/step_penalty": -0.01}])
    sink_group.close("finished")
    assert sink_group.warnings == []
    (file,) = (tmp_path / "wandb").glob("offline-run-*/run-*.wandb")
    written = file.read_bytes()
    assert b"reward/step_penalty" in written
    assert b"-0.01" in written
    assert b"train/env_steps" in written, "the axis of the charts"
    assert b"wall_time" not in written


KILLED = """
    import os, signal, sys, time
    from pathlib import Path
    from hmx.config.schema import Config
    from hmx.runs.sinks import SinkGroup, RunInfo
    from hmx.runs.wandb_sink import WandbSink

    def service():
        for status in Path("/proc").glob("[0-9]*/stat"):
            try:
                text = status.read_text()
            except OSError:
                continue
            if int(text.rpartition(")")[2].split()[1]) == os.getpid() and "wandb" in text:
                return int(status.parent.name)

    sink_group = SinkGroup([WandbSink("offline")])
    sink_group.start(RunInfo("a-run", Path(sys.argv[1]), Config(), "monday", 0, 10, 64, 1))
    os.kill(service(), signal.SIGKILL)
    for update in range(1, 3000):
        sink_group.records([{"update": update, "env_steps": 64 * update, "seed": 0, "train/x": 1.0}])
        if sink_group.warnings:
            break
        time.sleep(0.01)
    sink_group.close("finished")
    print(*sink_group.warnings, sep="\\n")
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to find wandb's process")
def test_death_of_the_wandb_process_is_survived(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "WANDB_MODE"}
    command = [sys.executable, "-c", textwrap.dedent(KILLED), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    (warning,) = done.stdout.splitlines()
    assert warning.startswith("wandb failed and gets no more records")
    assert (done.returncode, done.stderr) == (0, ""), "and the end of the process is quiet"
