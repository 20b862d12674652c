"""A fork on a page and in a comparison is a branch of the run that it continues."""

from __future__ import annotations

import shutil

import pytest
from made_runs import STEPS, make_run

from hmx.records.meta import Resume
from hmx.reports.compare.document import document as comparison
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest
from hmx.reports.report import figures
from hmx.reports.report.document import document
from hmx.reports.report.job import run_report
from hmx.reports.report.request import ReportRequest

FORK = 4  # update
SHARED = [0.1, 0.2, 0.3, 0.4]


@pytest.fixture
def runs(tmp_path):
    """A run, and its fork with another learning rate after update 4."""
    parent = make_run(tmp_path / "parent", {0: [*SHARED, 0.5, 0.6, 0.7, 0.8]}, run_id="aaaa")
    entry = Resume(
        at="2026-01-01T01:00:00+00:00",
        update=FORK,
        command=("hmx", "fork"),
        changes={"algo.learning_rate": [3e-3, 1e-3]},
        parent={"name": "parent", "run_id": "aaaa"},
    )
    rate = {"algo.learning_rate": 1e-3}
    return parent, make_run(
        tmp_path / "child", {0: [*SHARED, 0.3, 0.2, 0.1, 0.0]}, changes=rate, resumes=[entry], run_id="bbbb"
    )


def report(*folders):
    return run_report(ReportRequest(runs=tuple(map(str, folders)), num_episodes=0))


def returns(findings):
    """The lines of the return that are not thin: name -> (first step, dashed)."""
    (plot,) = figures.plots(findings, [figures.RETURN])
    assert plot.references[0].at == FORK * STEPS
    return {line.name: (line.x[0], line.dashed) for line in plot.series if not line.thin}


def test_the_page_of_a_fork_says_what_changed_when_and_draws_the_other_run_from_there(runs):
    parent, child = runs
    findings = report(child)
    assert returns(findings) == {"child": (STEPS, False), "parent": (FORK * STEPS, True)}
    text = str(document(findings))
    assert "forked from parent at step 1.02k with algo.learning_rate 0.003 -> 0.001" in text

    parent.rename(parent.with_name("renamed"))
    assert returns(report(child))["renamed"] == (FORK * STEPS, True)
    shutil.rmtree(parent.with_name("renamed"))
    assert returns(report(child)) == {"": (STEPS, False)}


def test_a_page_of_both_runs_draws_one_curve_with_a_branch(runs):
    assert returns(report(*runs)) == {
        "learning_rate 0.003": (STEPS, False),
        "learning_rate 0.001": (FORK * STEPS, False),
    }


def test_compare_draws_a_branch_and_says_what_is_shared(runs):
    findings = compare(CompareRequest(sides=tuple(map(str, runs))))
    a, b = findings.sides
    assert a.fork is None and (b.fork.letter, b.fork.env_steps) == ("A", FORK * STEPS)
    texts = [notice.text for notice in findings.notices]
    assert f"{runs[1]} was forked from parent at update 4 with changes: algo.learning_rate" in texts
    assert "B branches off A at 1,024 steps; before that they are equal" in texts
    plot = next(block for aside in comparison(findings).blocks for block in getattr(aside, "blocks", ()))
    first, second = plot.series
    assert first.x[0] < FORK * STEPS <= second.x[0]
    assert plot.references[-1].label == "B branches off"


def test_runs_that_only_claim_another_name_are_not_drawn_as_branches(runs, tmp_path):
    parent, child = runs
    shutil.rmtree(parent)
    other = make_run(tmp_path / "parent", {0: [0.0] * 8}, run_id="cccc")
    assert returns(report(child)) == {"": (STEPS, False)}
    assert [side.fork for side in compare(CompareRequest(sides=(str(other), str(child)))).sides] == [None, None]
