"""Runs that a finding of `hmx doctor` ends, or takes back to their last healthy checkpoint."""

from __future__ import annotations

import shutil

import pytest
from new_runs import train

from hmx.algos.ppo import update as ppo
from hmx.config import fields
from hmx.errors import HmxError
from hmx.jobs.healthy import check_alone, failure, last_healthy
from hmx.jobs.resume import resume
from hmx.jobs.rollback import rolled_back
from hmx.records import meta as metas
from hmx.records.checkpoints import listing
from hmx.records.jsonl import MetricsWriter
from hmx.records.paths import RunPaths
from hmx.reports.doctor.job import HealthSink
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest
from hmx.runs.cluster.group import Group

pytestmark = pytest.mark.usefixtures("compiled_once")

DEAD = {"updates": 40, "algo__learning_rate": 0.0}
"""A run whose policy never changes: `frozen-policy` warns after 6 updates, and ends it after twice as many."""


def watched(run, **changes):
    return resume(run, changes=changes, sinks=[HealthSink()])


def test_dead_run_stops_after_a_checkpoint_with_the_finding(make_config, deterministic):
    stopped = train(make_config(**DEAD, run__on_finding="stop"), sinks=[HealthSink()])
    assert (stopped.state, stopped.updates, stopped.signum) == ("interrupted", 12, None)
    assert stopped.finding is not None
    assert (stopped.finding.rule, stopped.finding.since) == ("frozen-policy", 0)
    assert (stopped.run / "checkpoints" / "12").is_dir()
    meta = metas.read(stopped.run / "meta.json")
    assert meta.state == "interrupted"
    assert meta.message == (
        "r was stopped after update 12: The policy does not change: KL per update at most 0 (frozen-policy)"
    )
    warned = train(make_config(**DEAD, run__name="warned"), sinks=[HealthSink()])
    assert (warned.state, warned.finding) == ("finished", None)
    assert deterministic(warned.run)[:12] == deterministic(stopped.run)


@pytest.mark.parametrize(("length", "interrupted", "end"), [(2, 8, 12), (11, 11, 22)])
def test_resumed_run_stops_at_the_update_of_one_that_was_never_interrupted(
    make_config, watcher, length, interrupted, end
):
    cfg = make_config(**DEAD, run__on_finding="stop", run__updates_per_chunk=length)
    begun = train(cfg, sinks=[HealthSink(), watcher(stop_at=7)])
    assert (begun.updates, begun.finding) == (interrupted, None)
    ended = watched(begun.run)
    assert ended.updates == end and ended.finding is not None
    whole = train(fields.replace(cfg, {"run.name": "whole"}), sinks=[HealthSink()])
    assert (whole.updates, whole.finding) == (end, ended.finding)


def test_stopped_run_stops_again_unless_it_is_resumed_with_warn(make_config):
    stopped = train(make_config(**DEAD, run__on_finding="stop"), sinks=[HealthSink()])
    again = watched(stopped.run)
    assert (again.first_update, again.updates, again.finding) == (12, 12, stopped.finding)
    ended = watched(stopped.run, **{"run.on_finding": "warn"})
    assert (ended.state, ended.updates, ended.finding) == ("finished", 40, None)
    assert metas.read(ended.run / "meta.json").message == ""


FROZEN = {
    "updates": 60, "run__on_finding": "rollback", "run__checkpoint_every": 2, "algo__learning_rate": 0.01,
    "algo__lr_schedule": "constant",
}  # fmt: skip
"""A run whose policy changes until update 20; `frozen-policy` finds it from update 28 on."""


@pytest.fixture
def frozen(monkeypatch):
    """Plant a learning rate of 0 from update 21 on, in the run itself and perhaps in its branches."""
    scheduled = ppo.scheduled

    def plant(always=False):
        def spoilt(cfg, update):
            present = update >= 20 and (always or "rollback" not in cfg.run.name)
            return {**scheduled(cfg, update), **({"learning_rate": 0.0} if present else {})}

        monkeypatch.setattr(ppo, "scheduled", spoilt)

    return plant


def followed(result):
    return rolled_back(result, lambda: [HealthSink()])


def test_rollback_continues_from_the_last_healthy_checkpoint_with_one_change(make_config, frozen, deterministic):
    frozen()
    cfg = make_config(**FROZEN)
    ended = train(cfg, sinks=[HealthSink()])
    assert (ended.updates, ended.finding.rule, ended.finding.since) == (40, "frozen-policy", 27 * 32)
    result = followed(ended)
    assert (result.state, result.updates, result.finding) == ("finished", 60, None)
    assert result.branches == (ended.run, result.run) and result.run.name == "r-rollback-1"
    entry = metas.read(result.run / "meta.json").resumes[-1]
    assert entry.update == ended.finding.healthy <= 20 and entry.parent["name"] == "r"
    rate = cfg.algo.learning_rate
    assert entry.changes == {"algo.learning_rate": [rate, rate / 2]}
    assert entry.notes == (f"rollback from update 40 to {entry.update} after: {ended.finding.text}",)
    assert entry.notes[0] in result.warnings
    records = deterministic(result.run)
    assert records[: entry.update] == deterministic(ended.run)[: entry.update]
    refused = followed(ended).finding.refused
    assert refused == f"its branch exists, and hmx resume {result.run} continues it"
    # a process that was killed before the rollback: the resumed run ends at once, and goes back as well
    shutil.rmtree(result.run)
    again = followed(watched(ended.run))
    assert again.branches == result.branches and deterministic(again.run) == records


def test_healthy_checkpoint_is_older_than_the_window_of_the_rule(make_config, frozen, monkeypatch):
    frozen()
    monkeypatch.setattr("hmx.jobs.healthy.last_healthy", lambda paths, before: before)
    ended = train(make_config(**FROZEN), sinks=[HealthSink()])
    assert ended.finding.healthy == 20  # the 8 updates after it have evidence together


def test_page_of_a_branch_says_why_and_draws_the_run_that_it_left(make_config, frozen):
    frozen()
    result = followed(train(make_config(**FROZEN), sinks=[HealthSink()]))
    findings = run_report(ReportRequest(runs=(result.run,)))
    (mark,) = findings.runs[0].resumes
    assert mark.rollback.startswith("rollback from update 40 to ") and "(frozen-policy)" in mark.rollback
    assert [group.name for group in findings.parents] == ["r"]


@pytest.mark.parametrize(("value", "count"), [("stop", 1), ("rollback", 2)])
def test_rollback_keeps_the_best_checkpoint(make_config, value, count):
    keep = {"run__keep": 1, "run__keep_best": 0, "run__keep_middle_mb": 0, "run__on_finding": value}
    result = train(make_config(**{**FROZEN, **keep, "updates": 20}))
    assert len(listing(result.run / "checkpoints")) == count


def test_rollbacks_end_at_their_limit(make_config, frozen):
    frozen(always=True)
    cfg = make_config(**FROZEN, run__max_rollbacks=1)
    result = followed(train(cfg, sinks=[HealthSink()]))
    assert [path.name for path in result.branches] == ["r", "r-rollback-1"]
    assert (result.state, result.finding.refused) == ("interrupted", "run.max_rollbacks = 1 is reached")


def test_run_without_a_healthy_checkpoint_stops(make_config):
    result = followed(train(make_config(**{**FROZEN, "algo__learning_rate": 0.0}), sinks=[HealthSink()]))
    assert (result.state, result.branches) == ("interrupted", ())
    assert result.finding.refused == "no checkpoint from before it is kept"
    error = failure(RunPaths(result.run.parent, "r"), result.finding, result.updates)
    assert error.exit_code == 4 and "no rollback: no checkpoint from before it is kept" in error.message


def test_rollback_into_a_run_that_exists_is_refused(make_config, frozen):
    frozen()
    ended = train(make_config(**FROZEN), sinks=[HealthSink()])
    (ended.run.parent / "r-rollback-1").mkdir()
    result = followed(ended)
    assert result.run == ended.run and result.finding.refused.endswith("r-rollback-1 already exists")


def test_several_agents_are_not_rolled_back(make_config):
    with pytest.raises(HmxError, match="a rollback is of a single agent"):
        train(make_config(run__on_finding="rollback", run__num_seeds=2))


@pytest.mark.parametrize("value", ["warn", "stop", "rollback"])
def test_run_without_findings_does_not_depend_on_the_option(make_config, deterministic, value):
    plain = train(make_config(updates=20, run__name="plain"))
    other = train(make_config(updates=20, run__on_finding=value), sinks=[HealthSink()])
    assert other.finding is None and deterministic(other.run) == deterministic(plain.run)


def returns_at(paths, values):
    """Write records with these mean returns from update 1 on, and empty checkpoints at every tenth."""
    writer = MetricsWriter(paths.metrics)
    for update, value in enumerate(values, 1):
        writer.write({"update": update, "env_steps": update, "seed": 0, "train/mean_episode_return": value})
    writer.flush()
    writer.close()


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """A run with checkpoints at every tenth update up to 100."""
    paths = RunPaths(tmp_path, "r")
    paths.checkpoints.mkdir(parents=True)
    found = [paths.checkpoints / str(update) for update in range(10, 101, 10)]
    monkeypatch.setattr("hmx.records.checkpoints.complete", lambda folder: found)
    return paths


@pytest.mark.parametrize(
    ("values", "before", "healthy"),
    [
        ([*range(100)], 100, 100),  # still improves
        ([*range(60), *[0] * 40], 80, 50),  # collapsed at the checkpoint of 60, long before the rule found it
        ([*range(62), *[0] * 38], 80, 50),  # collapsed soon after the checkpoint of 60
        ([*range(100)], 45, 40),
        ([*range(100)], 5, None),
        ([], 45, 40),  # no episode has ended
    ],
)
def test_last_healthy_checkpoint_has_high_returns_before_and_after(kept, values, before, healthy):
    returns_at(kept, values)
    assert last_healthy(kept, before) == healthy


def test_several_processes_are_refused(make_config):
    check_alone(make_config().run, Group(count=2))
    check_alone(make_config(run__on_finding="stop").run, Group())
    with pytest.raises(HmxError, match=r"run\.on_finding = stop needs a single process"):
        check_alone(make_config(run__on_finding="stop").run, Group(count=2))
