from __future__ import annotations

import dataclasses
import json
import math
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from new_runs import plan, train

from hmx.config.schema import Config
from hmx.records import checkpoints as records
from hmx.records import meta as metas
from hmx.registry.load import load, load_stored
from hmx.reports.summaries import training

MakeConfig = Callable[..., Config]
pytestmark = pytest.mark.usefixtures("compiled_once")


def test_run_ends_with_its_table(make_config: MakeConfig, watcher: Any, lines: Any) -> None:
    sink = watcher()
    cfg = make_config(5, run__eval_episodes=20, run__evaluations=0, run__checkpoint_every=1, run__keep=2)
    result = train(cfg, sinks=[sink], command_line=["hmx", "train"])

    assert (result.state, result.signum, result.updates, result.total_updates) == ("finished", None, 5, 5)
    assert result.env_steps == 5 * 32
    assert result.steps_per_sec > 0
    assert result.warnings == ()
    assert result.resume_command.startswith("hmx resume ")

    found = lines(result.run)
    assert [record["update"] for record in found] == [1, 2, 3, 4, 5]
    assert [record["env_steps"] for record in found] == [32, 64, 96, 128, 160]
    assert found == sink.records
    for record in found:
        assert record["reward/goal"] + record["reward/step_cost"] == pytest.approx(
            record["train/mean_reward"], abs=1e-6
        )
        assert record["actions/left_frac"] + record["actions/right_frac"] == pytest.approx(1)
        assert ("train/mean_episode_return" in record) == (record["train/num_episodes"] > 0)

    assert load(file=result.run, environ={}, sets=[f"run.name={result.run.name}"]).config == cfg
    assert [p.name for p in records.complete(result.run / "checkpoints")] == ["2", "4", "5"]
    meta = metas.read(result.run / "meta.json")
    assert (meta.state, meta.update, meta.env_steps, meta.command) == ("finished", 5, 160, ("hmx", "train"))

    assert [row.policy for row in result.evaluation] == ["random", "sampled"]
    assert all(row.episodes == 20 and row.stage_mean is None and row.wins is None for row in result.evaluation)
    report = json.loads((result.run / "reports" / "evaluation.json").read_text())
    assert report["policies"] == json.loads(json.dumps(result.to_json()))["evaluation"]
    assert result.to_json()["schema"] == 1

    assert sink.phases == ["compiling", "training", *["saving", "training"] * 2, "saving", "evaluating"]
    assert sink.closed == ["finished"]
    assert sink.info.total_steps == 160


def test_seeds_are_trained_and_evaluated_side_by_side(make_config: MakeConfig, lines: Any) -> None:
    result = train(make_config(2, run__num_seeds=2, run__seed=5, run__eval_episodes=4))
    assert [(r["update"], r["seed"]) for r in lines(result.run)] == [(1, 5), (1, 6), (2, 5), (2, 6)]
    assert [(row.policy, row.seed) for row in result.evaluation] == [("random", None), ("sampled", 5), ("sampled", 6)]


def test_unnamed_runs_are_numbered(make_config: MakeConfig) -> None:
    names = [train(make_config(1, run__name="")).run for _ in range(2)]
    assert [path.name for path in names] == ["corridor-ppo-s0-001", "corridor-ppo-s0-002"]
    assert load_stored(names[0]).config.run.name == names[0].name


def test_run_stopped_by_a_signal_can_be_resumed(make_config: MakeConfig, watcher: Any) -> None:
    sink = watcher(stop_at=3)
    result = train(make_config(9, run__eval_episodes=10, run__evaluations=0), sinks=[sink])
    assert (result.state, result.signum, result.updates) == ("interrupted", signal.SIGTERM, 4)
    assert result.evaluation == ()
    assert [p.name for p in records.complete(result.run / "checkpoints")] == ["4"]
    assert metas.read(result.run / "meta.json").state == "interrupted"
    assert sink.phases == ["compiling", "training", "stopping", "saving"]
    assert sink.closed == ["interrupted"]


def test_failed_sink_causes_a_warning(make_config: MakeConfig, watcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    result = train(make_config(3, run__wandb="online"), sinks=[watcher(fail_at=2)])
    assert result.state == "finished"
    assert len(result.warnings) == 2
    assert any("wandb" in text for text in result.warnings)
    assert "the watcher failed and gets no more records: gone" in result.warnings


def test_dry_run_writes_nothing(make_config: MakeConfig, tmp_path: Path) -> None:
    planned = plan(make_config(5, run__name="", run__num_seeds=2))
    assert planned.sizes.num_updates == 5
    assert planned.run.name == "corridor-ppo-s0-001"
    assert not planned.exists
    kept = [part.bytes for part in planned.memory.parts if part.exact]
    assert sum(kept) == planned.state_bytes < planned.memory.total_bytes
    assert planned.checkpoint_bytes == planned.state_bytes
    assert json.loads(json.dumps(planned.to_json()))["files"]["metrics"].endswith("metrics.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_dry_run_reports_the_size_of_the_state(make_config: MakeConfig) -> None:
    cfg = make_config(1)
    planned = plan(cfg)
    run = train(cfg).run
    (path,) = records.complete(run / "checkpoints")
    sizes = {"float32": 4, "int32": 4, "uint32": 4, "bool": 1, "key<fry>": 8}
    saved = records.read_manifest(path).leaves
    assert planned.state_bytes == sum(math.prod(leaf.shape) * sizes[leaf.dtype] for leaf in saved)
    assert plan(cfg).exists


def test_interrupted_run_prints_the_resume_command(make_config: MakeConfig, watcher: Any) -> None:
    result = train(make_config(5, run__eval_episodes=0), sinks=[watcher(stop_at=2)])
    assert result.state == "interrupted"
    shown = str(training(result))
    assert 0 < shown.index(result.resume_command) < shown.index("hmx watch")
    assert "hmx resume" not in str(training(dataclasses.replace(result, state="finished")))
