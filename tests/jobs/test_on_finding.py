"""Runs that a finding of `hmx doctor` ends, or takes back to their last healthy checkpoint."""

from __future__ import annotations

import pytest
from new_runs import train

from hmx.errors import HmxError
from hmx.jobs.healthy import check_alone, last_healthy
from hmx.jobs.resume import resume
from hmx.records import meta as metas
from hmx.records.jsonl import MetricsWriter
from hmx.records.paths import RunPaths
from hmx.reports.doctor.job import HealthSink
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


def test_resumed_run_stops_at_the_update_of_one_that_was_never_interrupted(make_config, watcher):
    cfg = make_config(**DEAD, run__on_finding="stop", run__checkpoint_every=2)
    begun = train(cfg, sinks=[HealthSink(), watcher(stop_at=7)])
    assert (begun.updates, begun.finding) == (8, None)
    ended = watched(begun.run)
    assert ended.updates == 12 and ended.finding is not None


def test_stopped_run_stops_again_unless_it_is_resumed_with_warn(make_config):
    stopped = train(make_config(**DEAD, run__on_finding="stop"), sinks=[HealthSink()])
    again = watched(stopped.run)
    assert (again.first_update, again.updates, again.finding) == (12, 12, stopped.finding)
    ended = watched(stopped.run, **{"run.on_finding": "warn"})
    assert (ended.state, ended.updates, ended.finding) == ("finished", 40, None)
    assert metas.read(ended.run / "meta.json").message == ""


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
