"""Gradient reports during training: their metrics, and that nothing else changes."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from new_runs import train

from hmx.config import fields
from hmx.config.schema import Config, RunConfig
from hmx.errors import ExitCode, HmxError
from hmx.jobs import grad_training
from hmx.jobs.changed import changed
from hmx.jobs.grad_training import make_reports, request_of
from hmx.jobs.resume import resume
from hmx.records.metrics_table import METRICS
from hmx.registry.load import Loaded, load
from hmx.reports.grad_report.job import grad_report
from hmx.reports.grad_report.request import GradReportRequest
from hmx.runs.restoring import Run
from hmx.runs.session import open_session, open_task

PER_BUCKET = {
    "task", "entropy", "loss/policy", "loss/entropy", "loss/total", "reward_std_mean",
    *(f"{per}/{part}" for per in ("per_sample", "per_token") for part in ("task", "entropy")),
}  # fmt: skip
"""The metrics of the gradient specification, without those of the KL term, which this loss does not have."""

Lines = Callable[[Path], list[dict[str, Any]]]
pytestmark = pytest.mark.usefixtures("compiled_once")


def config(root: Path, **run: Any) -> Config:
    """Two agents, six updates in chunks of two; 5 is the end of no chunk."""
    changes = {
        "run.name": "r", "run.root": str(root), "run.seed": 3, "run.num_seeds": 2, "run.total_steps": 6 * 32,
        "run.updates_per_chunk": 2, "run.eval_episodes": 0, "run.checkpoint_every": 1, "run.grad_report_groups": 4,
        "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 20, "net.kind": "mlp", "net.hidden": (8,),
        "algo.num_steps": 8, "ppo.update_epochs": 1, "ppo.num_minibatches": 2, "ppo.ent_schedule": "linear",
        "ppo.ent_end": 0.0,
    }  # fmt: skip
    return fields.replace(Config(), changes | {f"run.{name}": value for name, value in run.items()})


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(config(tmp_path_factory.mktemp("plain"))).run


@pytest.fixture(scope="module")
def reporting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    result = train(config(tmp_path_factory.mktemp("reporting"), grad_report_every=3))
    assert result.warnings == ()
    return result.run


def without_report(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    new = ("grad_norm/", "actor/", "train/grad_report_seconds")
    return [{name: value for name, value in record.items() if not name.startswith(new)} for record in records]


def reported(records: list[dict[str, Any]]) -> dict[tuple[int, int], dict[str, float]]:
    """The metrics of the reports, by update and seed."""
    found = {
        (record["update"], record["seed"]): {k: v for k, v in record.items() if k.startswith("grad_norm/")}
        for record in records
    }
    return {place: values for place, values in found.items() if values}


def arrays(run: Path) -> dict[str, bytes]:
    """What the checkpoints hold, without what depends on the clock or on the configuration."""
    from hmx.runs import checkpoint

    session = open_session(load(file=run, environ={}).config)
    states = {p.name: checkpoint.restore(p, session.abstract) for p in (run / "checkpoints").iterdir()}
    return {
        f"{update}/{name}": np.asarray(leaf).tobytes()
        for update, state in states.items()
        for name, leaf in checkpoint.to_host(state).items()
    }


def test_run_with_reports_equals_run_without(plain: Path, reporting: Path, deterministic: Lines) -> None:
    """Parameters, optimiser, keys and environments in every checkpoint, and every other number, to the last bit."""
    one, other = arrays(plain), arrays(reporting)
    assert sorted({name.partition("/")[0] for name in one}) == ["2", "4", "6"]
    assert one == other
    records = deterministic(reporting)
    assert without_report(records) == deterministic(plain)
    assert list(reported(records)) == [(3, 3), (3, 4), (6, 3), (6, 4)]


def test_metrics_of_a_report_are_those_of_the_metrics_table(reporting: Path, lines: Lines) -> None:
    records = [record for record in lines(reporting) if record["update"] == 3]
    for record in records:
        names = {name for name in record if name.startswith("grad_norm/")}
        assert "train/grad_report_seconds" in record
        buckets = {name.split("/")[1] for name in names} - {"clip_scale"}
        assert {"all", "bucket_1"} <= buckets
        for bucket in buckets:
            assert {f"grad_norm/{bucket}/{name}" for name in PER_BUCKET} <= names
        rows = {re.sub("/layer/.*", "/layer/<layer>", name) for name in names}
        known = {
            name.replace("<bucket>", bucket).replace("<part>", part)
            for name in METRICS
            for bucket in buckets
            for part in ("task", "entropy", "kl", "value", "total")
        }
        assert rows <= known, rows - known


def test_ordinary_updates_log_the_parts_of_their_gradient_where_a_report_is_due(reporting: Path, lines: Lines) -> None:
    """The names are those of the gradient specification; without a reference policy there is no KL term."""
    for record in lines(reporting):
        found = {name: value for name, value in record.items() if name.startswith("actor/")}
        if record["update"] % 3:
            assert found == {}
            continue
        assert found.keys() == {"actor/grad_norm/task", "actor/grad_norm/entropy", "actor/loss/entropy"}
        assert found["actor/loss/entropy"] == pytest.approx(
            -record["train/ent_coef"] * record["train/entropy"], rel=1e-5
        )
        assert found["actor/grad_norm/task"] > 0.0


def test_number_of_buckets_is_an_option(make_config: Any, lines: Lines) -> None:
    cfg = make_config(2, run__grad_report_every=2, run__grad_report_groups=32, run__grad_report_buckets=6)
    names = {name.split("/")[1] for name in lines(train(cfg).run)[-1] if name.startswith("grad_norm/")}
    assert names - {"all", "clip_scale", "bucket_zero"} == {f"bucket_{i}" for i in range(1, 7)}
    request = request_of(dataclasses.replace(RunConfig(), grad_report_buckets=6))
    assert request.buckets == 6 and request_of(RunConfig()).buckets == 4
    too_many = make_config(2, run__grad_report_groups=4, run__grad_report_buckets=5)
    with pytest.raises(HmxError, match="4 start states cannot fill 5 buckets") as caught:
        open_session(too_many)
    assert caught.value.exit_code == ExitCode.USAGE


def test_report_equals_the_report_of_the_previous_checkpoint(reporting: Path, lines: Lines) -> None:
    """The report before update 3 equals that of the command on checkpoint 2."""
    found = reported(lines(reporting))
    for agent in (0, 1):
        asked = dataclasses.asdict(request_of(config(reporting).run))
        report = grad_report(reporting, GradReportRequest(**asked, checkpoint=2, agent=agent)).reports[0]
        assert grad_training.metrics(report) == found[3, 3 + agent]
        parts = report.whole.components
        metrics = {k.removeprefix("grad_norm/all/"): v for k, v in found[3, 3 + agent].items()}
        assert metrics["task"] == parts["task"].norm > 0.0
        assert metrics["loss/entropy"] == parts["entropy"].loss < 0.0
        assert metrics["per_sample/value"] == parts["value"].per_sample
        assert metrics["sample_count"] == 16.0 and metrics["sample_pct"] == 100.0
        assert not any("kl" in name.split("/") for name in metrics)  # absent, not 0
    assert found[3, 3] != found[3, 4]


def test_resumed_run_reports_the_same(reporting: Path, tmp_path: Path, deterministic: Lines, watcher: Any) -> None:
    """Stopped where the report of update 6 cuts a chunk, and resumed from there."""
    again = train(config(tmp_path, grad_report_every=3), sinks=[watcher(stop_at=5)])
    assert (again.state, again.updates) == ("interrupted", 5)
    resume(again.run)
    assert deterministic(again.run) == deterministic(reporting)
    assert arrays(again.run).items() >= {k: v for k, v in arrays(reporting).items() if k.startswith("6/")}.items()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (HmxError("7 of 16 episodes have a return that is not finite", "", ExitCode.CHECK_FAILED), "not finite"),
        (MemoryError(), "not enough memory while measuring the gradient"),
        (RuntimeError("a bug"), "a bug"),
    ],
)
def test_error_in_a_report_loses_only_the_report(
    error: Exception, words: str, make_config: Any, monkeypatch: pytest.MonkeyPatch, deterministic: Lines
) -> None:
    def fails(*given: Any) -> Any:
        raise error

    monkeypatch.setattr(grad_training, "make_reporter", lambda *given: fails)
    result = train(make_config(4, run__grad_report_every=2))
    assert result.state == "finished"
    assert [warning for warning in result.warnings if words in warning] == list(result.warnings)
    assert len(result.warnings) == 1
    records = deterministic(result.run)
    assert [record["update"] for record in records] == [1, 2, 3, 4]
    assert reported(records) == {}


def test_second_report_compiles_nothing(make_config: Any, caplog: pytest.LogCaptureFixture) -> None:
    """For another state, whose episodes are of other lengths."""
    session = open_session(make_config(4, run__grad_report_every=1, run__grad_report_groups=4))
    (reports,) = make_reports(session)
    state = jax.jit(session.algorithm.init)(jax.random.key(0))
    right = {**state.params["policy_head"], "bias": np.float32([0.0, 0.5])}
    bolder = state._replace(params={**state.params, "policy_head": right})
    with jax.log_compiles():
        first = reports.measure(state, 1)[0]
        assert any(text.startswith("Compiling") for text in caplog.messages)
        caplog.clear()
        second = reports.measure(bolder, 1)[0]
    assert second["grad_norm/all/token_count"] != first["grad_norm/all/token_count"]
    assert [text for text in caplog.messages if text.startswith("Compiling")] == []


def test_resume_can_enable_reports(make_config: Any) -> None:
    cfg = make_config(4)
    run = Run(Loaded(cfg), Path("r"), None)
    on = changed(run, {"run.grad_report_every": "50"}).config
    assert on == fields.replace(cfg, {"run.grad_report_every": 50})
    assert make_reports(open_session(cfg)) == ()
    for key, value in (("run.grad_report_every", "-1"), ("run.grad_report_groups", "3")):
        with pytest.raises(HmxError, match=key):
            open_task(changed(run, {key: value}))


def test_reports_during_training_have_their_documented_size() -> None:
    request = request_of(dataclasses.replace(RunConfig(), grad_report_groups=48))
    assert (request.groups, request.per_group, request.buckets, request.max_length) == (48, 4, 4, 256)
