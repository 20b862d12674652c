from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import contents
from new_runs import train
from small_hackmatrix import SMALL_HACKMATRIX

from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.resume import resume
from hmx.records import checkpoints as records
from hmx.records import meta as metas
from hmx.records.layout import find_run
from hmx.registry.load import load
from hmx.runs.checkpoint import to_host
from hmx.runs.memory import run_memory
from hmx.runs.restoring import restore
from hmx.runs.session import open_session

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


def saved(run: Path) -> dict[str, np.ndarray[Any, Any]]:
    session = open_session(load(file=run, environ={}).config)
    return to_host(restore(session, find_run(run)).state)


def assert_same_bits(a: Path, b: Path) -> None:
    x, y = saved(a), saved(b)
    assert list(x) == list(y)
    assert {"key", "update", "actors/reset", "actors/agent_done"} <= set(x)
    assert any(name.startswith("params") for name in x)
    assert any(name.startswith("opt_state") for name in x)
    assert any(name.startswith("actors/env_state") for name in x)
    different = [name for name in x if x[name].dtype != y[name].dtype or x[name].tobytes() != y[name].tobytes()]
    assert different == []


@pytest.mark.parametrize("seeds", [1, 2])
def test_interrupted_run_resumes_to_the_bits_of_an_uninterrupted_one(
    seeds: int, make_config: MakeConfig, watcher: Any, deterministic: Any
) -> None:
    whole = train(make_config(8, run__name="whole", run__num_seeds=seeds)).run
    first = train(make_config(8, run__name="parts", run__num_seeds=seeds), sinks=[watcher(stop_at=4)])
    assert (first.state, first.updates) == ("interrupted", 4)
    second = resume(first.run)
    assert (second.state, second.first_update, second.updates) == ("finished", 4, 8)
    assert_same_bits(whole, second.run)
    assert deterministic(whole) == deterministic(second.run)
    assert len(deterministic(whole)) == 8 * seeds


@pytest.mark.slow
def test_hackmatrix_resumes_to_the_same_bits(make_config: MakeConfig, watcher: Any, deterministic: Any) -> None:
    """Games under way, with their snapshots, later starts, and the breakdown of the reward included."""
    values = {"env__id": "hackmatrix"} | {key.replace(".", "__"): value for key, value in SMALL_HACKMATRIX.items()}
    whole = train(make_config(run__name="whole", **values)).run
    parts = train(make_config(run__name="parts", **values), sinks=[watcher(stop_at=2)]).run
    resume(parts)
    assert_same_bits(whole, parts)
    lines = deterministic(whole)
    assert lines == deterministic(parts)
    assert len(lines) == 4
    assert {"reward/kills", "actions/move_frac", "stats/deaths", "starts/wins"} <= set(lines[0])
    assert [line["train/start_share"] for line in lines] == [0.5, 0.375, 0.25, 0.125]
    assert lines[3]["starts/num_episodes"] > 0 and 0 < lines[3]["starts/share"] < 1
    # as test_memory.py asks of other programs; this one takes longer to compile than all of them
    estimate = run_memory(open_session(load(file=whole, environ={}).config)).total_bytes
    assert 0.75 < estimate / metas.read(whole / "meta.json").memory_bytes < 1.15


def test_run_stopped_while_compiling_resumes_with_its_first_update(
    make_config: MakeConfig, watcher: Any, deterministic: Any
) -> None:
    whole = train(make_config(3, run__name="whole")).run
    first = train(make_config(3, run__name="parts"), sinks=[watcher(stop_in="compiling")])
    assert (first.state, first.updates, first.steps_per_sec) == ("interrupted", 0, 0.0)
    assert resume(first.run).first_update == 0
    assert_same_bits(whole, first.run)
    assert deterministic(whole) == deterministic(first.run)


def test_a_finished_run_can_be_extended_to_the_same_bits(make_config: MakeConfig, deterministic: Any) -> None:
    values = {"algo__lr_schedule": "constant"}
    whole = train(make_config(6, run__name="whole", **values)).run
    # three updates in chunks of two: the last chunk of the first part is a short one
    parts = train(make_config(3, run__name="parts", **values)).run
    with pytest.raises(HmxError, match="is finished: 96 steps, 3 updates") as caught:
        resume(parts)
    assert caught.value.exit_code == ExitCode.USAGE
    assert "--steps 192" in caught.value.hint

    result = resume(parts, changes={"run.total_steps": "192"}, command_line=["hmx", "resume"])
    assert result.updates == 6
    assert result.warnings == ()
    assert_same_bits(whole, parts)
    assert deterministic(whole) == deterministic(parts)
    assert load(file=parts, environ={}).config.run.total_steps == 192
    (entry,) = metas.read(parts / "meta.json").resumes
    assert (entry.update, entry.command, entry.changes) == (3, ("hmx", "resume"), {"run.total_steps": [96, 192]})


@pytest.mark.parametrize("steps", ["1", "64"])  # less than an update, and less than the run has
def test_fewer_steps_than_a_run_has_trained_are_refused(make_config: MakeConfig, watcher: Any, steps: str) -> None:
    run = train(make_config(6), sinks=[watcher(stop_at=3)]).run
    with pytest.raises(HmxError, match=f"to {steps} steps?: it has trained 128") as caught:
        resume(run, changes={"run.total_steps": steps})
    name = f"hmx resume {run}"
    hint = f"to continue to its own 192 steps: {name}; to extend it: {name} --steps 256"
    assert (caught.value.hint, caught.value.exit_code) == (hint, ExitCode.USAGE)
    assert resume(run, changes={"run.total_steps": "128"}).state == "finished"  # as much as it has
    with pytest.raises(HmxError) as caught:
        resume(run, changes={"run.total_steps": "32"})
    assert caught.value.hint == f"to extend it: {name} --steps 256"


def test_the_hint_that_extends_a_run_is_longer_than_its_own_length(make_config: MakeConfig, watcher: Any) -> None:
    run = train(make_config(12), sinks=[watcher(stop_at=3)]).run
    with pytest.raises(HmxError, match="it has trained 128") as caught:
        resume(run, changes={"run.total_steps": "1"})
    assert caught.value.hint.endswith(f"to extend it: hmx resume {run} --steps 512")  # 256 is less than its own 384


def test_a_run_killed_before_its_evaluation_is_evaluated(make_config: MakeConfig) -> None:
    run = train(make_config(2, run__eval_episodes=3)).run
    meta, before = metas.read(run / "meta.json"), contents(run / "checkpoints")
    for path in (run / "reports").iterdir():
        path.unlink()
    metas.write(run / "meta.json", dataclasses.replace(meta, state="running"))
    result = resume(run)
    assert (result.state, result.first_update, result.updates) == ("finished", 2, 2)
    assert [row.episodes for row in result.evaluation] == [3, 3]
    assert (run / "reports" / "evaluation.json").is_file()
    assert metas.read(run / "meta.json").state == "finished"
    assert contents(run / "checkpoints") == before
    with pytest.raises(HmxError, match="is finished"):
        resume(run)


def test_extending_a_run_reports_stretched_schedules(make_config: MakeConfig) -> None:
    run = train(make_config(2)).run
    result = resume(run, changes={"run.total_steps": 128})
    assert result.warnings == ("the linear learning_rate schedule now spans 128 steps",)


def test_records_after_the_checkpoint_are_rewritten(make_config: MakeConfig, watcher: Any, deterministic: Any) -> None:
    run = train(make_config(8), sinks=[watcher(stop_at=2)]).run
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"update":3,"seed":0,"train/x":9}\n{"update":4,"se')
    result = resume(run)
    assert [r["update"] for r in deterministic(run)] == list(range(1, 9))
    assert all("train/x" not in r for r in deterministic(run))
    assert result.warnings == ()


def test_missing_records_are_reported(make_config: MakeConfig, watcher: Any, lines: Any) -> None:
    run = train(make_config(6), sinks=[watcher(stop_at=4)]).run
    kept = (run / "metrics.jsonl").read_text().splitlines()[:2]
    (run / "metrics.jsonl").write_text("\n".join(kept) + "\n")
    result = resume(run)
    assert result.warnings == (f"{run / 'metrics.jsonl'} lacks updates 3 to 4",)
    assert [r["update"] for r in lines(run)] == [1, 2, 5, 6]


def test_resume_falls_back_from_a_damaged_checkpoint(make_config: MakeConfig, watcher: Any, deterministic: Any) -> None:
    whole = train(make_config(8, run__name="whole")).run
    run = train(make_config(8, run__checkpoint_every=1), sinks=[watcher(stop_at=6)]).run
    assert [p.name for p in records.complete(run / "checkpoints")] == ["2", "4", "6"]
    victim = max((run / "checkpoints" / "6" / "arrays").rglob("*"), key=lambda p: p.stat().st_size * p.is_file())
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(bytes(data))

    result = resume(run)
    assert result.first_update == 4
    assert len(result.warnings) == 1
    assert "checkpoint 6 is damaged" in result.warnings[0]
    assert "checkpoint 4 is used instead" in result.warnings[0]
    assert (run / "checkpoints" / "6.damaged").is_dir()
    assert [p.name for p in records.complete(run / "checkpoints")] == ["2", "4", "6", "8"]
    assert_same_bits(whole, run)
    assert deterministic(whole) == deterministic(run)


def test_resume_refuses_changes_that_the_state_depends_on(make_config: MakeConfig) -> None:
    run = train(make_config(1)).run
    before = contents(run)
    changes = {"env.num_envs": 8, "net.hidden": "16", "algo.num_steps": 4, "run.seed": 3, "run.total_steps": 640}
    with pytest.raises(HmxError) as caught:
        resume(run, changes=changes)
    assert caught.value.exit_code == ExitCode.USAGE
    for line in ("env.num_envs: 4 cannot become 8", "net.hidden: 8 cannot become 16", "algo.num_steps", "run.seed"):
        assert line in caught.value.message
    assert "run.total_steps" not in caught.value.message
    assert contents(run) == before


def test_resume_writes_to_new_sinks(make_config: MakeConfig, watcher: Any) -> None:
    run = train(make_config(4), sinks=[watcher(stop_at=2)]).run
    sink = watcher()
    resume(run, changes={"run.updates_per_chunk": 1}, sinks=[sink])
    assert [r["update"] for r in sink.records] == [3, 4]
    assert sink.info.first_update == 2
    assert sink.info.created == metas.read(run / "meta.json").created


def test_the_newest_and_the_best_checkpoint_are_kept(make_config: MakeConfig, lines: Any) -> None:
    run = train(make_config(10, run__checkpoint_every=1, run__keep=1, run__keep_best=1, run__keep_middle_mb=0)).run
    kept = records.listing(run / "checkpoints")
    scores = [records.read_manifest(path).score for path in kept]
    assert kept[-1].name == "10"
    assert len(kept) <= 2
    assert scores[0] == max(score for score in scores if score is not None)
    returns = [r.get("train/mean_episode_return") for r in lines(run)]
    pairs = [[r for r in returns[i : i + 2] if r is not None] for i in range(0, 10, 2)]
    assert scores[0] == pytest.approx(max(sum(pair) / len(pair) for pair in pairs if pair))
