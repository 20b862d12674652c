from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from hmx.runs.clock import RunClock


def test_time_never_goes_back_when_the_system_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunClock()
    before = clock.now()
    monkeypatch.setattr(time, "time", lambda: 0.0)
    after = clock.now()
    assert 0 <= before["elapsed"] <= after["elapsed"] < 60
    assert before["wall_time"] <= after["wall_time"] < before["wall_time"] + 60


def test_a_clock_continues_after_the_last_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = tmp_path / "metrics.jsonl"
    metrics.write_text("".join(json.dumps({"update": u, "elapsed": 50.0 + u, "wall_time": 9e9}) + "\n" for u in (1, 2)))
    monkeypatch.setattr(time, "time", lambda: 1e9)
    now = RunClock.after(metrics).now()
    assert 52 <= now["elapsed"] < 112
    assert 9e9 <= now["wall_time"] < 9e9 + 60


@pytest.mark.parametrize("text", ["", '{"update":1,"wall_time":null}\n', '{"elapsed":"x","wall_time":-1}\n'])
def test_a_clock_starts_at_0_without_usable_records(text: str, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text(text)
    assert 0 <= RunClock.after(tmp_path / "metrics.jsonl").now()["elapsed"] < 60
    assert 0 <= RunClock.after(tmp_path / "none").now()["elapsed"] < 60
