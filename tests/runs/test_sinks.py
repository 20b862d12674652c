from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hmx.config.schema import Config, RunConfig
from hmx.errors import ExitCode, HmxError
from hmx.runs.sinks import JsonlSink, Record, RunInfo, Sink, SinkGroup


def run_info(path: Path, seeds: int = 1, seed: int = 0) -> RunInfo:
    cfg = Config(run=RunConfig(name="a-run", seed=seed, num_seeds=seeds))
    return RunInfo("a-run", path, cfg, "2026-01-01T00:00:00Z", 0, 10, 64, seeds)


class Failing(Sink):
    name = "brittle"

    def __init__(self, where: str, required: bool = False) -> None:
        self.where, self.required = where, required
        self.calls: list[str] = []

    def _call(self, hook: str) -> None:
        self.calls.append(hook)
        if hook == self.where:
            raise OSError(f"{hook} went\nwrong")

    def start(self, info: RunInfo) -> None:
        self._call("start")

    def phase(self, name: str) -> None:
        self._call("phase")

    def record(self, record: Any) -> None:
        self._call("record")

    def close(self, state: str) -> None:
        self._call("close")


def drive(sink_group: SinkGroup, path: Path) -> None:
    sink_group.start(run_info(path))
    sink_group.phase("training")
    sink_group.records([{"update": 1}, {"update": 2}])
    sink_group.close("finished")


@pytest.mark.parametrize("where", ["start", "phase", "record", "close"])
def test_an_optional_sink_fails_alone(where: str, tmp_path: Path) -> None:
    bad, good = Failing(where), Failing("never")
    sink_group = SinkGroup([bad, good])
    drive(sink_group, tmp_path)
    assert sink_group.warnings == [f"brittle failed and gets no more records: {where} went wrong"]
    assert good.calls == ["start", "phase", "record", "record", "close"]
    assert bad.calls[-1] == where


@pytest.mark.parametrize("where", ["start", "phase", "record", "close"])
def test_a_required_sink_raises(where: str, tmp_path: Path) -> None:
    other = Failing("never")
    with pytest.raises(HmxError, match=f"cannot write brittle: {where} went wrong") as caught:
        drive(SinkGroup([Failing(where, required=True), other]), tmp_path)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert other.calls[-1] == where, "the others still hear of it"


def test_a_warning_is_kept_once(tmp_path: Path) -> None:
    sink_group = SinkGroup([])
    sink_group.warn("the same")
    sink_group.warn("the same")
    assert sink_group.warnings == ["the same"]


def test_message_of_a_known_error_is_kept(tmp_path: Path) -> None:
    class Broken(Sink):
        name = "broken"

        def start(self, info: RunInfo) -> None:
            raise HmxError("nobody is logged in", "log in")

    sink_group = SinkGroup([Broken()])
    sink_group.start(run_info(tmp_path))
    assert sink_group.warnings == ["broken failed and gets no more records: nobody is logged in"]


def test_jsonl_has_one_line_per_record_and_appends(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    for updates in ([1, 2], [3]):
        sink_group = SinkGroup([JsonlSink(path)])
        sink_group.start(run_info(tmp_path))
        sink_group.records([{"update": u, "train/x": 0.5} for u in updates])
        assert [json.loads(line)["update"] for line in path.read_text().splitlines()][-len(updates) :] == updates
        sink_group.close("finished")
    assert len(path.read_text().splitlines()) == 3


def test_jsonl_that_cannot_be_opened_is_an_error_and_removed(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").mkdir()
    sink_group = SinkGroup([JsonlSink(tmp_path / "metrics.jsonl")])
    assert sink_group.has(JsonlSink)
    with pytest.raises(HmxError, match=r"cannot write .*metrics\.jsonl"):
        sink_group.start(run_info(tmp_path))
    assert not sink_group.has(JsonlSink), "a failed sink is removed"


def test_signal_phase_waits_for_the_sinks(tmp_path: Path) -> None:
    heard: list[str] = []

    class Busy(Sink):
        def record(self, record: Record) -> None:
            sink_group.phase_from_signal("stopping")  # as a signal handler would, in the middle of this
            heard.append("record")

        def phase(self, name: str) -> None:
            heard.append(name)

    sink_group = SinkGroup([Busy()])
    sink_group.phase_from_signal("training")
    sink_group.records([{"update": 1}, {"update": 2}])
    assert heard == ["training", "record", "record", "stopping", "stopping"]
