from __future__ import annotations

import signal
from typing import Any

import jax
import numpy as np
import pytest

from hmx.agents.types import Algorithm
from hmx.runs import loop as loops
from hmx.runs.loop import Chunk, Loop, LoopResult, compile_chunk, init_state
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Fanout, Record, Sink, SinkError
from hmx.types import Max, Mean, Sum

CLOCK = {"wall_time", "train/steps_per_sec"}


class Memory(Sink):
    name = "memory"

    def __init__(self, stop_at: int = 0, fail_at: int = 0, required: bool = False) -> None:
        self.records: list[dict[str, Any]] = []
        self.phases: list[str] = []
        self.warnings: list[str] = []
        self.stop_at, self.fail_at, self.required = stop_at, fail_at, required

    def phase(self, name: str) -> None:
        self.phases.append(name)

    def warn(self, message: str) -> None:
        self.warnings.append(message)

    def record(self, record: Record) -> None:
        if record["update"] == self.fail_at:
            raise OSError("no space left on device")
        self.records.append(dict(record))
        if record["update"] == self.stop_at:
            signal.raise_signal(signal.SIGINT)


@pytest.fixture(scope="session")
def chunk(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 1), length=3)


@pytest.fixture(scope="session")
def chunk_of_two(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 2), length=3, num_seeds=2)


def drive(
    chunk: Chunk, learner: Algorithm, *sinks: Sink, total: int, state: Any = None, first: int = 0, every: int = 2
) -> tuple[LoopResult, list[int]]:
    saved: list[int] = []
    state = init_state(learner, 7, chunk.num_seeds) if state is None else state
    with SignalGuard() as guard:
        loop = Loop(chunk, Fanout(sinks), guard, lambda _, update: saved.append(update), 7, 8, every)
        return loop.run(state, first, total), saved


def bits(state: Any) -> list[np.ndarray[Any, Any]]:
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, state
    )
    return [np.array(leaf) for leaf in jax.tree.leaves(plain)]


def same(a: Any, b: Any) -> bool:
    return all(x.dtype == y.dtype and np.array_equal(x, y) for x, y in zip(bits(a), bits(b), strict=True))


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in CLOCK} for record in records]


def test_one_trace_serves_full_chunks_and_the_rest(chunk: Chunk, learner: Algorithm) -> None:
    result, saved = drive(chunk, learner, total=8)
    assert chunk.traces == 1
    assert result.updates == 8
    assert saved == [6, 8]
    assert int(result.state["update"]) == 8
    assert result.steps == 64


def test_the_state_is_donated(chunk: Chunk, learner: Algorithm) -> None:
    state = init_state(learner, 7, 1)
    kernel = state["params"]["torso"]["kernel"]
    chunk.call(state, np.int32(1))
    assert kernel.is_deleted()


def test_updates_give_the_same_bits_in_any_chunks(chunk: Chunk, learner: Algorithm) -> None:
    whole, parts = Memory(), Memory()
    a, _ = drive(chunk, learner, whole, total=7)
    b, _ = drive(chunk, learner, parts, total=2)
    b, _ = drive(chunk, learner, parts, total=7, state=b.state, first=2)
    assert same(a.state, b.state)
    assert without_clock(whole.records) == without_clock(parts.records)


def test_the_chunk_equals_plain_updates(chunk: Chunk, learner: Algorithm) -> None:
    state = init_state(learner, 7, 1)
    step = jax.jit(learner.update)
    for _ in range(3):
        state, metrics = step(state)
    memory = Memory()
    result, _ = drive(chunk, learner, memory, total=3)
    np.testing.assert_allclose(result.state["params"]["torso"]["kernel"], state["params"]["torso"]["kernel"], rtol=1e-6)
    loss = metrics["train/loss"]
    assert isinstance(loss, Mean)
    assert memory.records[2]["train/loss"] == pytest.approx(float(loss.total) / 6, rel=1e-5)


def test_one_record_per_update_with_what_has_data(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    drive(chunk, learner, memory, total=4)
    assert [r["update"] for r in memory.records] == [1, 2, 3, 4]
    assert [r["env_steps"] for r in memory.records] == [8, 16, 24, 32]
    assert [r.get("train/mean_episode_return") for r in memory.records] == [None, 2.0, None, 4.0]
    assert [r["programs/push"] for r in memory.records] == [1.0, 2.0, 3.0, 4.0]
    assert all("stats/never" not in r and r["train/steps_per_sec"] > 0 and r["seed"] == 7 for r in memory.records)


def test_seeds_run_side_by_side_as_they_would_alone(chunk: Chunk, chunk_of_two: Chunk, learner: Algorithm) -> None:
    both, alone = Memory(), Memory()
    result, _ = drive(chunk_of_two, learner, both, total=4)
    drive(chunk, learner, alone, total=4)
    assert [(r["update"], r["seed"]) for r in both.records] == [(u, s) for u in (1, 2, 3, 4) for s in (7, 8)]
    mine = [r for r in both.records if r["seed"] == 7]
    assert [r["train/loss"] for r in mine] == pytest.approx([r["train/loss"] for r in alone.records], rel=1e-4)
    assert both.records[0]["train/loss"] != both.records[1]["train/loss"]
    assert result.steps == 4 * 8 * 2
    assert chunk_of_two.traces == 1
    assert int(loops.seed_state(result.state, 1, 2)["update"]) == 4


def test_a_signal_ends_the_loop_after_its_chunk(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory(stop_at=2)
    result, saved = drive(chunk, learner, memory, total=30)
    assert (result.updates, result.signum, saved) == (3, signal.SIGINT, [3])
    assert memory.phases == ["training", "saving"]


def test_a_failing_optional_sink_is_dropped_with_one_warning(chunk: Chunk, learner: Algorithm) -> None:
    good, bad = Memory(), Memory(fail_at=2)
    result, _ = drive(chunk, learner, bad, good, total=9)
    assert result.updates == 9
    assert len(good.records) == 9
    assert good.warnings == ["memory stopped taking records and was dropped: no space left on device"]


def test_a_failing_required_sink_ends_the_run_after_a_checkpoint(chunk: Chunk, learner: Algorithm) -> None:
    good, bad = Memory(), Memory(fail_at=5, required=True)
    saved: list[int] = []
    with SignalGuard() as guard:
        loop = Loop(chunk, Fanout([bad, good]), guard, lambda _, update: saved.append(update), 7, 8, 100)
        with pytest.raises(SinkError, match="memory cannot be written: no space left"):
            loop.run(init_state(learner, 7, 1), 0, 30)
    assert saved == [6]
    assert len(good.records) == 6


def test_reduction_of_each_kind() -> None:
    metrics = {
        "b": Mean(np.float32(3), np.float32(4)),
        "a": Mean(np.float32(0), np.float32(0)),
        "c": Max(np.float32(-2), np.float32(5)),
        "d": Sum(np.float32(0)),
    }
    rows = loops.layout(metrics)
    assert loops.reduce_row(rows, np.asarray(loops.pack(metrics))) == {"b": 0.75, "c": -2.0, "d": 0.0}
