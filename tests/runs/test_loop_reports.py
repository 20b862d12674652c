"""Reports while a run trains: before their updates, and without a trace in them."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from driving import Memory, bits, drive, same, without_clock

from hmx.algos.types import Algorithm
from hmx.jobs.grad_training import KIND
from hmx.runs.chunk import Chunk
from hmx.runs.loop import Reports


class Measuring:
    """Reports that note what they see, and may fail or meet a signal."""

    def __init__(self, every: int, meet: Callable[[int], None] = lambda update: None) -> None:
        self.seen: list[tuple[int, list[np.ndarray[Any, Any]]]] = []
        self.meet, self.reports = meet, (Reports(range(every, 100, every), self.measure, *KIND),)

    def measure(self, state: Any, update: int) -> list[dict[str, float]]:
        self.seen.append((update, bits(state)))
        self.meet(update)
        return [{"grad_norm/all/task": float(update)}]


@pytest.mark.parametrize(("every", "updates"), [(1, [1, 2, 3, 4, 5, 6, 7, 8]), (3, [3, 6]), (5, [5]), (9, [])])
def test_reports_come_before_their_updates_and_change_nothing(
    every: int, updates: list[int], chunk: Chunk, learner: Algorithm
) -> None:
    plain, memory, measuring = Memory(), Memory(), Measuring(every)
    before, disk = drive(chunk, learner, plain, total=8, every=1)
    after, other = drive(chunk, learner, memory, total=8, every=1, reports=measuring.reports)
    assert same(before.state, after.state)
    assert other.saved == disk.saved == [3, 6, 8]
    assert other.scores == disk.scores
    assert [update for update, _ in measuring.seen] == updates
    for update, state in measuring.seen:
        if update in (4, 7):
            assert same(state, disk.states[update - 1])
    records = without_clock(memory.records)
    found = {record["update"]: record.pop("grad_norm/all/task", None) for record in records}
    assert found == {update: float(update) if update in updates else None for update in range(1, 9)}
    assert records == without_clock(plain.records)
    assert chunk.traces == 1


def test_a_signal_during_a_report_ends_the_run_before_its_update(chunk: Chunk, learner: Algorithm) -> None:
    """And the resumed run measures it again."""

    class Interrupted(Memory):
        def phase(self, name: str) -> None:
            super().phase(name)
            if name == "measuring":
                signal.raise_signal(signal.SIGINT)

    memory, measuring = Interrupted(), Measuring(5)
    result, disk = drive(chunk, learner, memory, total=8, reports=measuring.reports)
    assert (result.updates, result.signum, disk.saved) == (4, signal.SIGINT, [4])
    assert memory.phases == ["training", "measuring", "training", "saving"]
    rest, again = Memory(), Measuring(5)
    drive(chunk, learner, rest, total=8, state=result.state, first=4, reports=again.reports)
    assert [update for update, _ in again.seen] == [5]
    assert same(again.seen[0][1], measuring.seen[0][1])
    assert rest.records[0]["grad_norm/all/task"] == 5.0


def test_failed_report_is_skipped(chunk: Chunk, learner: Algorithm) -> None:
    def meet(update: int) -> None:
        raise MemoryError if update < 7 else ValueError("no such thing")

    memory = Memory()
    result, _ = drive(chunk, learner, memory, total=8, reports=Measuring(2, meet).reports)
    assert result.updates == 8
    assert not any("grad_norm/all/task" in record for record in memory.records)
    assert memory.warnings == [
        "a gradient report is missing: not enough memory while measuring the gradient",
        "a gradient report is missing: no such thing",
    ]
