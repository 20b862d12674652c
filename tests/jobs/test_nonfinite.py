"""Numbers that are none, from the training command to the folder that is kept for a diagnosis."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from new_runs import train

from hmx.algos.build import make_algorithm
from hmx.algos.types import Algorithm
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import ExitCode, HmxError
from hmx.jobs.resume import resume
from hmx.records import checkpoints as records
from hmx.records import meta as metas
from hmx.runs import checkpoint
from hmx.types import Mean

MakeConfig = Callable[..., Config]


class Fault:
    """Spoils what the update of a number (from 1) brings, in one place."""

    def __init__(self) -> None:
        self.update, self.place = 0, ""

    def make(self, cfg: Config, env: Env) -> Algorithm:
        algorithm = make_algorithm(cfg, env)
        return algorithm._replace(update=self.spoil(algorithm)) if self.update else algorithm

    def spoil(self, algorithm: Algorithm) -> Callable[..., Any]:
        def update(state: Any, hypers: Any) -> Any:
            new, metrics = algorithm.update(state, hypers)
            bad = jnp.where(new.update == self.update, jnp.nan, 0.0)
            if self.place == "params":
                return new._replace(params=jax.tree.map(lambda leaf: leaf + bad, new.params)), metrics
            spoilt = metrics[self.place]
            return new, {**metrics, self.place: Mean(spoilt.total + bad, spoilt.count)}

        return update


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fault]:
    fault = Fault()
    monkeypatch.setattr("hmx.runs.session.make_algorithm", fault.make)
    yield fault


def arrays(path: Path) -> set[str]:
    """Digests of the arrays of a checkpoint, whose files have names at random."""
    return {file.sha256 for file in records.read_manifest(path).files if file.path.startswith("arrays/d/")}


@pytest.mark.parametrize(
    ("seeds", "place"), [(1, "reward/goal"), pytest.param(2, "params", marks=pytest.mark.thorough)]
)
def test_run_stops_before_a_non_finite_update_and_can_resume(
    seeds: int, place: str, fault: Fault, make_config: MakeConfig, deterministic: Any, watcher: Any
) -> None:
    whole = train(make_config(6, run__name="whole", run__num_seeds=seeds)).run
    fault.update, fault.place = 4, place
    cfg = make_config(6, run__num_seeds=seeds, run__keep=1, run__keep_best=0)
    sink = watcher()
    with pytest.raises(HmxError) as caught:
        train(cfg, sinks=[sink])
    assert caught.value.exit_code == ExitCode.CHECK_FAILED
    run = Path(cfg.run.root) / "r"
    kept = run / "diagnosis" / "3"
    name = place if "/" in place else "params/"
    assert str(kept) in caught.value.message
    if place == "reward/goal":
        assert caught.value.message.startswith("update 4: the reward term goal of corridor is not finite; ")
        assert caught.value.hint.startswith("hmx check-env corridor finds the first such step")
        assert "learning_rate" not in caught.value.hint
    else:
        assert caught.value.message.startswith(f"update 4: {name}")
        assert "--on-nonfinite skip" in caught.value.hint
    assert sink.closed == ["failed"]
    meta = metas.read(run / "meta.json")
    assert (meta.state, meta.update, meta.message) == ("failed", 3, caught.value.message)
    assert [p.name for p in records.complete(run / "checkpoints")] == ["3"]
    assert [record["update"] for record in deterministic(run)] == [u for u in (1, 2, 3) for _ in range(seeds)]

    assert records.faults(kept) == []
    refused = json.loads((kept / "refused.json").read_text())
    assert refused["update"] == 4
    assert refused["not_finite"][0].startswith(name)
    assert [record["seed"] for record in refused["records"]] == list(range(seeds))
    with np.load(kept / "experience.npz", allow_pickle=False) as batch:
        shapes = {key: batch[key].shape for key in batch.files}
        assert np.isfinite(batch["reward"]).all()
    samples = cfg.env.num_envs * cfg.algo.num_steps
    assert np.prod(shapes["action"]) == seeds * samples
    assert {"obs", "reward", "advantage", "target"} <= set(shapes)

    # without what spoilt it the run goes on as if nothing had been, and what was kept stays
    fault.update = 0
    assert resume(run).updates == 6
    assert deterministic(run) == deterministic(whole)
    assert arrays(run / "checkpoints" / "6") == arrays(whole / "checkpoints" / "6") != set()
    assert records.faults(kept) == []


def test_resumed_run_can_skip_the_update(fault: Fault, make_config: MakeConfig, lines: Any) -> None:
    fault.update, fault.place = 3, "train/policy_loss"
    cfg = make_config(5)
    with pytest.raises(HmxError, match="update 3: train/policy_loss is not finite; the update was not applied"):
        train(cfg)
    run = Path(cfg.run.root) / "r"
    result = resume(run, changes={"run.on_nonfinite": "skip"})
    assert (result.state, result.updates) == ("finished", 5)
    (warning,) = result.warnings
    assert warning.startswith("update 3: train/policy_loss is not finite")
    found = lines(run)
    assert [r["update"] for r in found] == [1, 2, 3, 4, 5]
    assert [r.get("train/skipped_updates") for r in found] == [None, None, 1.0, 0.0, 0.0]
    assert found[2]["train/policy_loss"] is None
    assert found[2]["nonfinite"] == 1
    (entry,) = metas.read(run / "meta.json").resumes
    assert entry.changes == {"run.on_nonfinite": ["stop", "skip"]}


def test_state_is_kept_if_the_batch_cannot_be_written(
    fault: Fault, make_config: MakeConfig, watcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(*given: Any) -> Any:
        raise MemoryError

    def make(cfg: Config, env: Env) -> Algorithm:
        return fault.make(cfg, env)._replace(experience=too_large)

    fault.update, fault.place = 1, "train/value_loss"
    monkeypatch.setattr("hmx.runs.session.make_algorithm", make)
    cfg, sink = make_config(5), watcher()
    with pytest.raises(HmxError, match="update 1: train/value_loss"):
        train(cfg, sinks=[sink])
    run = Path(cfg.run.root) / "r"
    assert records.faults(run / "diagnosis" / "0") == []
    assert not (run / "diagnosis" / "0" / "experience.npz").exists()
    assert sink.warnings == ["cannot write experience.npz: not enough memory while recomputing the batch"]


def test_full_disk_does_not_hide_the_cause(
    fault: Fault, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    fault.update, fault.place = 2, "train/value_loss"
    monkeypatch.setattr(checkpoint, "_write_arrays", full)
    with pytest.raises(HmxError, match=r"update 2: .* cannot write checkpoint .*: No space left") as caught:
        train(make_config(5))
    assert caught.value.exit_code == ExitCode.CHECK_FAILED
