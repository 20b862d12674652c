from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

from hmx.agents.types import Algorithm
from hmx.errors import ExitCode, HmxError
from hmx.runs import loop as loops
from hmx.runs.chunk import Chunk, compile_chunk
from hmx.runs.loop import Loop, LoopResult, Refused, Reports, init_state
from hmx.runs.saving import Saver
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Fanout, Record, Sink, SinkError
from hmx.types import Mean

FAULTS = ("none", "reward", "loss", "gradient", "parameter")  # as the learner counts them
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


class Disk:
    """Stands in for the disk: remembers what was saved, and can be full at chosen updates."""

    def __init__(self, full_at: tuple[int, ...] = (), hold: Callable[[], Any] = lambda: None) -> None:
        self.saved: list[int] = []
        self.scores: list[float | None] = []
        self.noted: list[int] = []
        self.states: dict[int, Any] = {}
        self.full_at, self.hold = full_at, hold

    def saver(self) -> Saver:
        return Saver(self.prepare, self.noted.append)

    def prepare(self, state: Any, update: int, score: float | None) -> Callable[[], None]:
        copy = bits(state)

        def write() -> None:
            self.hold()
            if update in self.full_at:
                raise HmxError(f"checkpoint {update} cannot be written", "", ExitCode.ARTEFACT)
            self.saved.append(update)
            self.scores.append(score)
            self.states[update] = copy

        return write


class Refusal(HmxError):
    def __init__(self, state: Any, refused: Refused) -> None:
        super().__init__("refused", "", ExitCode.CHECK_FAILED)
        self.state, self.refused = bits(state), refused


def refuse(state: Any, refused: Refused) -> Any:
    raise Refusal(state, refused)


@pytest.fixture(scope="session")
def chunk(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 1), length=3)


@pytest.fixture(scope="session")
def chunk_of_two(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 2), length=3, num_seeds=2)


@pytest.fixture(scope="session")
def skipping(learner: Algorithm) -> Chunk:
    return compile_chunk(learner, loops.abstract_state(learner, 0, 2), length=3, num_seeds=2, on_nonfinite="skip")


def drive(
    chunk: Chunk,
    learner: Algorithm,
    *sinks: Sink,
    total: int,
    state: Any = None,
    first: int = 0,
    every: int = 2,
    disk: Disk | None = None,
    hypers: Any = None,
    skips: bool = False,
    reports: Reports | None = None,
) -> tuple[LoopResult, Disk]:
    disk = disk or Disk()
    state = init_state(learner, 7, chunk.num_seeds) if state is None else state
    with SignalGuard() as guard:
        loop = Loop(
            chunk=chunk,
            hypers=hypers or learner.hypers,
            fanout=Fanout(sinks),
            guard=guard,
            saver=disk.saver(),
            refuse=refuse,
            seed=7,
            steps_per_update=8,
            checkpoint_every=every,
            skips=skips,
            reports=reports,
        )
        return loop.run(state, first, total), disk


def faulty(learner: Algorithm, updates: tuple[int, ...], fault: str, agent: int = -1) -> Callable[[int], Any]:
    """Hyperparameters that make updates (counted from 1) go wrong."""

    def hypers(update: int) -> dict[str, float]:
        bad = {"fault": float(FAULTS.index(fault)), "fault_agent": float(agent)} if update + 1 in updates else {}
        return {**learner.hypers(update), **bad}

    return hypers


def two_agents(learner: Algorithm) -> Any:
    return init_state(learner, 7, 2)._replace(agent=jax.numpy.arange(2, dtype="int32"))


def bits(state: Any) -> list[np.ndarray[Any, Any]]:
    plain = jax.tree.map(
        lambda x: jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x, state
    )
    return [np.array(leaf) for leaf in jax.tree.leaves(plain)]


def same(a: Any, b: Any) -> bool:
    x, y = (t if isinstance(t, list) else bits(t) for t in (a, b))
    return all(p.dtype == q.dtype and p.tobytes() == q.tobytes() for p, q in zip(x, y, strict=True))


def without_clock(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if k not in CLOCK} for record in records]


def test_one_trace_serves_full_chunks_and_the_rest(chunk: Chunk, learner: Algorithm) -> None:
    result, disk = drive(chunk, learner, total=8)
    assert chunk.traces == 1
    assert result.updates == 8
    assert disk.saved == disk.noted == [6, 8]
    assert int(result.state.update) == 8
    assert result.steps == 64


def test_the_state_is_donated(chunk: Chunk, learner: Algorithm) -> None:
    state = init_state(learner, 7, 1)
    kernel = state.params["torso"]["kernel"]
    hypers = {name: np.full(3, value, np.float32) for name, value in learner.hypers(0).items()}
    chunk.call(state, hypers, np.int32(1))
    assert kernel.is_deleted()


def test_updates_give_the_same_bits_in_any_chunks(chunk: Chunk, learner: Algorithm) -> None:
    whole, parts = Memory(), Memory()
    a, _ = drive(chunk, learner, whole, total=7)
    b, _ = drive(chunk, learner, parts, total=2)
    b, _ = drive(chunk, learner, parts, total=7, state=b.state, first=2)
    assert same(a.state, b.state)
    assert without_clock(whole.records) == without_clock(parts.records)


def test_the_chunk_equals_plain_updates_each_with_its_own_hyperparameters(chunk: Chunk, learner: Algorithm) -> None:
    state = init_state(learner, 7, 1)
    step = jax.jit(learner.update)
    for update in range(3):
        state, metrics = step(state, learner.hypers(update))
    memory = Memory()
    result, _ = drive(chunk, learner, memory, total=3)
    np.testing.assert_allclose(result.state.params["torso"]["kernel"], state.params["torso"]["kernel"], rtol=1e-6)
    loss = metrics["train/total_loss"]
    assert isinstance(loss, Mean)
    assert memory.records[2]["train/total_loss"] == pytest.approx(float(loss.total) / 6, rel=1e-5)
    assert [record["train/rate"] for record in memory.records] == [0.1, 0.05, 0.1 / 3], "as the host has them"


def test_one_record_per_update_with_what_has_data(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    drive(chunk, learner, memory, total=4)
    assert [r["update"] for r in memory.records] == [1, 2, 3, 4]
    assert [r["env_steps"] for r in memory.records] == [8, 16, 24, 32]
    assert [r.get("train/mean_episode_return") for r in memory.records] == [None, 2.0, None, 4.0]
    assert [r["programs/push"] for r in memory.records] == [1.0, 2.0, 3.0, 4.0]
    for record in memory.records:
        assert "stats/never" not in record
        assert "train/skipped_updates" not in record
        assert record["train/steps_per_sec"] > 0
        assert record["seed"] == 7


def test_seeds_run_side_by_side_as_they_would_alone(chunk: Chunk, chunk_of_two: Chunk, learner: Algorithm) -> None:
    both, alone = Memory(), Memory()
    result, _ = drive(chunk_of_two, learner, both, total=4)
    drive(chunk, learner, alone, total=4)
    assert [(r["update"], r["seed"]) for r in both.records] == [(u, s) for u in (1, 2, 3, 4) for s in (7, 8)]
    mine = [r["train/total_loss"] for r in both.records if r["seed"] == 7]
    assert mine == pytest.approx([r["train/total_loss"] for r in alone.records], rel=1e-4)
    assert both.records[0]["train/total_loss"] != both.records[1]["train/total_loss"]
    assert result.steps == 4 * 8 * 2
    assert chunk_of_two.traces == 1
    assert int(loops.seed_state(result.state, 1, 2).update) == 4


def test_a_signal_ends_the_loop_after_its_chunk(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory(stop_at=2)
    result, disk = drive(chunk, learner, memory, total=30)
    assert (result.updates, result.signum, disk.saved) == (3, signal.SIGINT, [3])
    assert memory.phases == ["training", "saving"]


def test_what_a_resumed_run_begins_with_is_not_written_again(chunk: Chunk, learner: Algorithm) -> None:
    with SignalGuard() as guard:
        signal.raise_signal(signal.SIGTERM)
        disk = Disk()
        loop = Loop(chunk, learner.hypers, Fanout([]), guard, disk.saver(), refuse, 7, 8, 2)
        loop.run(init_state(learner, 7, 1), 5, 9)
        assert disk.saved == []
        loop.run(init_state(learner, 7, 1), 0, 9)
        assert disk.saved == [0]


def test_a_failing_optional_sink_is_dropped_with_one_warning(chunk: Chunk, learner: Algorithm) -> None:
    good, bad = Memory(), Memory(fail_at=2)
    result, _ = drive(chunk, learner, bad, good, total=9)
    assert result.updates == 9
    assert len(good.records) == 9
    assert good.warnings == ["memory stopped taking records and was dropped: no space left on device"]


@pytest.mark.parametrize("full_at", [(), (6,)])
def test_a_failing_required_sink_ends_the_run_after_a_checkpoint(
    full_at: tuple[int, ...], chunk: Chunk, learner: Algorithm
) -> None:
    good, bad, disk = Memory(), Memory(fail_at=5, required=True), Disk(full_at)
    with pytest.raises(SinkError, match="memory cannot be written: no space left"):
        drive(chunk, learner, bad, good, total=30, every=100, disk=disk)
    assert disk.saved == ([] if full_at else [6])
    assert len(good.records) == 6


def test_checkpoints_know_the_mean_return_since_the_one_before(chunk: Chunk, learner: Algorithm) -> None:
    # episodes end in even updates, and their return is the number of the update
    _, disk = drive(chunk, learner, total=13, every=1)
    assert disk.saved == [3, 6, 9, 12, 13]
    assert disk.scores == [2.0, 5.0, 8.0, 11.0, None]


def test_training_goes_on_while_a_checkpoint_is_written(chunk: Chunk, learner: Algorithm) -> None:
    memory, seen = Memory(), []
    three_more = threading.Event()

    def hold() -> None:
        three_more.wait()
        seen.append(len(memory.records))

    class Release(Sink):
        def flush(self) -> None:
            if len(memory.records) >= 9:
                three_more.set()

    _, disk = drive(chunk, learner, memory, Release(), total=12, every=2, disk=Disk(hold=hold))
    assert seen[0] >= 9, "the first checkpoint, of update 6, waited for update 9"
    assert disk.saved == [6, 12]


def test_a_write_that_fails_once_is_tried_again(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    result, disk = drive(chunk, learner, memory, total=12, every=1, disk=Disk(full_at=(6,)))
    assert result.updates == 12
    assert disk.saved == disk.noted == [3, 9, 12]
    assert memory.warnings == ["checkpoint 6 cannot be written; trying once more"]


def test_a_write_that_fails_twice_ends_the_run(chunk: Chunk, learner: Algorithm) -> None:
    disk = Disk(full_at=(6, 9))
    with pytest.raises(HmxError, match="checkpoint 9 cannot be written"):
        drive(chunk, learner, total=30, every=1, disk=disk)
    assert disk.saved == [3]


def test_the_last_write_is_waited_for_and_its_failure_told(chunk: Chunk, learner: Algorithm) -> None:
    with pytest.raises(HmxError, match="checkpoint 3 cannot be written"):
        drive(chunk, learner, total=3, disk=Disk(full_at=(3,)))


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("reward", "train/mean_reward"),
        ("loss", "train/total_loss"),
        ("gradient", "train/total_loss"),
        ("parameter", "params/half"),
    ],
)
def test_an_update_that_is_not_finite_is_not_applied(fault: str, name: str, chunk: Chunk, learner: Algorithm) -> None:
    good, memory, disk = Memory(), Memory(), Disk()
    before, _ = drive(chunk, learner, good, total=4)
    with pytest.raises(Refusal) as caught:
        drive(chunk, learner, memory, total=9, disk=disk, hypers=faulty(learner, (5,), fault))
    refused = caught.value.refused
    assert (refused.update, refused.names[0]) == (5, name)
    assert same(caught.value.state, before.state)
    assert disk.saved == [4]
    assert same(disk.states[4], before.state)
    assert without_clock(memory.records) == without_clock(good.records), "the records of the good updates are kept"
    assert [record["update"] for record in refused.records] == [5]
    assert refused.hypers["fault"] == FAULTS.index(fault)


def test_one_seed_that_is_not_finite_stops_all(chunk_of_two: Chunk, learner: Algorithm) -> None:
    before, _ = drive(chunk_of_two, learner, total=1, state=two_agents(learner))
    memory = Memory()
    with pytest.raises(Refusal) as caught:
        hypers = faulty(learner, (2,), "loss", agent=1)
        drive(chunk_of_two, learner, memory, total=9, state=two_agents(learner), hypers=hypers)
    assert same(caught.value.state, before.state)
    assert caught.value.refused.names == ("train/total_loss",)
    losses = [record["train/total_loss"] for record in caught.value.refused.records]
    assert math.isfinite(losses[0])
    assert math.isnan(losses[1])
    assert [record["update"] for record in memory.records] == [1, 1]


def test_what_a_seed_learned_can_be_skipped(skipping: Chunk, learner: Algorithm) -> None:
    clean, memory = Memory(), Memory()
    without, _ = drive(skipping, learner, clean, total=6, state=two_agents(learner), skips=True)
    hypers = faulty(learner, (2, 5), "gradient", agent=1)
    result, disk = drive(skipping, learner, memory, total=6, state=two_agents(learner), hypers=hypers, skips=True)
    assert result.updates == 6
    skipped = [(r["update"], r["seed"]) for r in memory.records if r["train/skipped_updates"]]
    assert skipped == [(2, 8), (5, 8)]
    assert memory.warnings == ["update 2: train/total_loss is not finite; what such an update would teach is left out"]
    # the other seed has noticed nothing; this one lives on, in the same environments
    assert same(loops.seed_state(result.state, 0, 2), loops.seed_state(without.state, 0, 2))
    mine, other = loops.seed_state(result.state, 1, 2), loops.seed_state(without.state, 1, 2)
    assert same(bits([mine.env, mine.keys, mine.update]), bits([other.env, other.keys, other.update]))
    assert np.isfinite(mine.params["torso"]["kernel"]).all()
    assert int(mine.opt[0].count) == 4
    assert disk.saved == [6]


def test_the_checkpoint_before_a_refused_update_may_fail(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    with pytest.raises(Refusal):
        drive(chunk, learner, memory, total=9, disk=Disk(full_at=(1,)), hypers=faulty(learner, (2,), "loss"))
    assert memory.warnings == ["checkpoint 1 cannot be written"]


class Measuring:
    """Reports that note what they see, and may fail or meet a signal."""

    def __init__(self, every: int, meet: Callable[[int], None] = lambda update: None) -> None:
        self.seen: list[tuple[int, list[np.ndarray[Any, Any]]]] = []
        self.meet, self.reports = meet, Reports(every, self.measure)

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


def test_a_report_that_fails_is_left_out(chunk: Chunk, learner: Algorithm) -> None:
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
