from __future__ import annotations

import math
import signal
import threading

import jax
import numpy as np
import pytest
from driving import FAULTS, Disk, Memory, Refusal, bits, drive, faulty, refuse, same, two_agents, without_clock

from hmx.algos.types import Algorithm
from hmx.errors import HmxError
from hmx.runs import loop as loops
from hmx.runs.chunk import Chunk
from hmx.runs.loop import Loop, init_state
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Sink, SinkGroup
from hmx.types import Mean


def test_full_and_partial_chunks_share_one_trace(chunk: Chunk, learner: Algorithm) -> None:
    result, disk = drive(chunk, learner, total=8)
    assert chunk.traces == 1
    assert result.updates == 8
    assert disk.saved == disk.noted == [6, 8]
    assert int(result.state.update) == 8
    assert result.steps == 64


def test_the_first_checkpoint_is_written_after_a_time(
    chunk: Chunk, learner: Algorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed run resumes from it, however long its chunks take."""
    monkeypatch.setattr(loops, "FIRST_CHECKPOINT", 0.0)
    result, disk = drive(chunk, learner, total=8)
    assert disk.saved == [1, 6, 8]
    _, disk = drive(chunk, learner, total=12, state=result.state, first=8)
    assert 9 not in disk.saved


def test_the_state_is_donated(chunk: Chunk, learner: Algorithm) -> None:
    state = init_state(learner, 7, 1)
    kernel = state.params["torso"]["kernel"]
    hypers = {name: np.full(3, value, np.float32) for name, value in learner.hypers(0).items()}
    chunk.call(state, hypers, np.int32(1))
    assert kernel.is_deleted()


def test_updates_do_not_depend_on_chunks(chunk: Chunk, learner: Algorithm) -> None:
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


def test_every_update_has_one_record_of_its_available_metrics(chunk: Chunk, learner: Algorithm) -> None:
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
        assert record["train/steps_per_cpu_sec"] > 0
        assert record["seed"] == 7


def test_first_update_is_reported_before_the_rest_of_its_chunk(chunk: Chunk, learner: Algorithm) -> None:
    class Flushes(Memory):
        def flush(self) -> None:
            seen.append(len(self.records))

    seen: list[int] = []
    _, disk = drive(chunk, learner, Flushes(), total=8)
    assert chunk.length == 3 and seen == [1, 3, 6, 8]
    assert disk.saved == [6, 8], "chunks end where they would"


def test_seeds_trained_together_equal_seeds_trained_alone(
    chunk: Chunk, chunk_of_two: Chunk, learner: Algorithm
) -> None:
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


def test_resumed_run_does_not_rewrite_its_first_checkpoint(chunk: Chunk, learner: Algorithm) -> None:
    with SignalGuard() as guard:
        signal.raise_signal(signal.SIGTERM)
        disk = Disk()
        loop = Loop(chunk, learner.hypers, SinkGroup([]), guard, disk.saver(), refuse, 7, 8, 2)
        loop.run(init_state(learner, 7, 1), 5, 9)
        assert disk.saved == []
        loop.run(init_state(learner, 7, 1), 0, 9)
        assert disk.saved == [0]


@pytest.mark.parametrize("full_at", [(), (6,)])
def test_a_failing_required_sink_ends_the_run_after_a_checkpoint(
    full_at: tuple[int, ...], chunk: Chunk, learner: Algorithm
) -> None:
    good, bad, disk = Memory(), Memory(fail_at=5, required=True), Disk(full_at)
    with pytest.raises(HmxError, match="cannot write memory: no space left"):
        drive(chunk, learner, bad, good, total=30, every=100, disk=disk)
    assert disk.saved == ([] if full_at else [6])
    assert len(good.records) == 6


def test_checkpoints_have_the_mean_return_since_the_previous_one(chunk: Chunk, learner: Algorithm) -> None:
    # episodes end in even updates, and their return is the number of the update
    _, disk = drive(chunk, learner, total=13, every=1)
    assert disk.saved == [3, 6, 9, 12, 13]
    assert disk.scores == [2.0, 5.0, 8.0, 11.0, None]


def test_training_continues_while_a_checkpoint_is_written(chunk: Chunk, learner: Algorithm) -> None:
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


def test_write_that_fails_once_is_retried(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    result, disk = drive(chunk, learner, memory, total=12, every=1, disk=Disk(full_at=(6,)))
    assert result.updates == 12
    assert disk.saved == disk.noted == [3, 9, 12]
    assert memory.warnings == ["checkpoint 6 cannot be written; trying again"]


def test_a_write_that_fails_twice_ends_the_run(chunk: Chunk, learner: Algorithm) -> None:
    disk = Disk(full_at=(6, 9))
    with pytest.raises(HmxError, match="checkpoint 9 cannot be written"):
        drive(chunk, learner, total=30, every=1, disk=disk)
    assert disk.saved == [3]


def test_last_write_is_awaited_and_its_failure_reported(chunk: Chunk, learner: Algorithm) -> None:
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
def test_non_finite_update_is_not_applied(fault: str, name: str, chunk: Chunk, learner: Algorithm) -> None:
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


def test_one_non_finite_seed_stops_all(chunk_of_two: Chunk, learner: Algorithm) -> None:
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


def test_update_of_one_seed_can_be_skipped(skipping: Chunk, learner: Algorithm) -> None:
    clean, memory = Memory(), Memory()
    without, _ = drive(skipping, learner, clean, total=6, state=two_agents(learner), skips=True)
    hypers = faulty(learner, (2, 5), "gradient", agent=1)
    result, disk = drive(skipping, learner, memory, total=6, state=two_agents(learner), hypers=hypers, skips=True)
    assert result.updates == 6
    skipped = [(r["update"], r["seed"]) for r in memory.records if r["train/skipped_updates"]]
    assert skipped == [(2, 8), (5, 8)]
    assert memory.warnings == ["update 2: train/total_loss is not finite; such updates are skipped"]
    # the other seed has noticed nothing; this one lives on, in the same environments
    assert same(loops.seed_state(result.state, 0, 2), loops.seed_state(without.state, 0, 2))
    mine, other = loops.seed_state(result.state, 1, 2), loops.seed_state(without.state, 1, 2)
    assert same(bits([mine.env, mine.keys, mine.update]), bits([other.env, other.keys, other.update]))
    assert np.isfinite(mine.params["torso"]["kernel"]).all()
    assert int(mine.opt[0].count) == 4
    assert disk.saved == [6]


def test_failed_checkpoint_before_a_refused_update_is_survived(chunk: Chunk, learner: Algorithm) -> None:
    memory = Memory()
    with pytest.raises(Refusal):
        drive(chunk, learner, memory, total=9, disk=Disk(full_at=(1,)), hypers=faulty(learner, (2,), "loss"))
    assert memory.warnings == ["checkpoint 1 cannot be written"]
