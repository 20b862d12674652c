"""Warnings about a run that cannot learn: during training, after a resumption, and afterwards."""

import pytest
from new_runs import train

from hmx.jobs.resume import resume
from hmx.reports.doctor.job import HealthSink, doctor

pytestmark = pytest.mark.usefixtures("compiled_once")


def frozen(warnings):
    return [text for text in warnings if "(frozen-policy; hmx doctor r explains it)" in text]


def test_run_that_does_not_learn_warns_once_over_resumptions(make_config, watcher):
    stopping = watcher(stop_at=8)
    begun = train(make_config(updates=12, algo__learning_rate=0.0), sinks=[HealthSink(), stopping])
    assert begun.state == "interrupted" and len(frozen(begun.warnings)) == 1
    assert frozen(stopping.warnings) == frozen(begun.warnings)
    ended = resume(begun.run, sinks=[HealthSink()])
    assert ended.state == "finished" and frozen(ended.warnings) == []
    found = {finding.rule: finding for finding in doctor(begun.run).findings}
    assert (found["frozen-policy"].since, found["frozen-policy"].until) == (0, None)


def test_run_that_learns_does_not_warn(make_config):
    result = train(make_config(updates=12), sinks=[HealthSink()])
    assert frozen(result.warnings) == []
    assert "frozen-policy" not in [finding.rule for finding in doctor(result.run).findings]
