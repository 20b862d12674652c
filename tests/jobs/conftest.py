"""Runs of a second or two: the corridor, four environments, a network of eight units."""

from __future__ import annotations

import json
import signal
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmx.config import fields
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, PpoConfig, RunConfig
from hmx.records.paths import RunPaths
from hmx.runs.sinks import Record, RunInfo, Sink

BATCH = 32
DATA = Path(__file__).parents[1] / "data"

MakeConfig = Callable[..., Config]


class Watcher(Sink):
    """Remembers what it is told; raises a signal, or fails, in a given update or phase."""

    name = "the watcher"

    def __init__(self, stop_at: int = 0, fail_at: int = 0, stop_in: str = "") -> None:
        self.stop_at, self.fail_at, self.stop_in = stop_at, fail_at, stop_in
        self.info: RunInfo | None = None
        self.phases: list[str] = []
        self.records: list[dict[str, Any]] = []
        self.warnings: list[str] = []
        self.closed: list[str] = []

    def start(self, info: RunInfo) -> None:
        self.info = info

    def phase(self, name: str) -> None:
        if self.phases[-1:] != [name]:
            self.phases.append(name)
            if name == self.stop_in:
                signal.raise_signal(signal.SIGTERM)

    def record(self, record: Record) -> None:
        if record["update"] == self.fail_at:
            raise OSError("gone")
        self.records.append(dict(record))
        if record["update"] == self.stop_at:
            self.stop_at = 0  # once, however many seeds there are
            signal.raise_signal(signal.SIGTERM)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def close(self, state: str) -> None:
        self.closed.append(state)


@pytest.fixture(scope="session")
def watcher() -> type[Watcher]:
    return Watcher


def config_of(updates: int = 6, **values: Any) -> Config:
    cfg = Config(
        run=RunConfig(name="r", total_steps=updates * BATCH, updates_per_chunk=2, eval_episodes=0),
        env=EnvConfig(id="corridor", num_envs=4, max_steps=20),
        net=NetConfig(kind="mlp", hidden=(8,)),
        algo=AlgoConfig(num_steps=8),
        ppo=PpoConfig(update_epochs=1, num_minibatches=2),
    )
    return fields.replace(cfg, {key.replace("__", "."): value for key, value in values.items()})


@pytest.fixture
def make_config(tmp_path: Path) -> MakeConfig:
    return lambda updates=6, **values: config_of(updates, **{"run__root": str(tmp_path / "runs"), **values})


@pytest.fixture(scope="session")
def new_config() -> MakeConfig:
    return config_of


def _lines(run: Path) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert {record.pop("schema") for record in found} <= {1, 2}
    assert len({record.pop("run", "") for record in found} - {""}) <= 1
    return found


@pytest.fixture(scope="session")
def lines() -> Callable[[Path], list[dict[str, Any]]]:
    """The records of a run."""
    return _lines


@pytest.fixture(scope="session")
def deterministic() -> Callable[[Path], list[dict[str, Any]]]:
    """The records of a run without what depends on the clock."""
    clock = {"elapsed", "wall_time", "train/steps_per_sec", "train/steps_per_cpu_sec", "train/grad_report_seconds"}
    return lambda run: [{k: v for k, v in record.items() if k not in clock} for record in _lines(run)]


@pytest.fixture(scope="session")
def unpack() -> Callable[[int, Path], RunPaths]:
    """A run folder as it was published, by the schema of its checkpoints, made once by the code of its day.

    Each is a run of the corridor that was stopped after update 4 of 8, with checkpoints at 2 and 4.
    """

    def make(schema: int, root: Path) -> RunPaths:
        with tarfile.open(DATA / f"run-schema-{schema}.tar.gz") as archive:
            archive.extractall(root, filter="data")
        return RunPaths(root, "corridor")

    return make
