"""Runs of a second or two: the corridor, four environments, a network of eight units."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hmx.config import fields
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.runs.sinks import Record, RunInfo, Sink

BATCH = 32

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
