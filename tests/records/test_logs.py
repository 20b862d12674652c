"""Metrics of other programs: what they mean, and what is refused."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_runs import RETURN, flat, make_run

from hmx.errors import ExitCode, HmxError
from hmx.records.curves import ABSENT, MetricCurves
from hmx.records.logs import read_imported
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest


def monitor(path: Path, began: float, episodes: Sequence[tuple[float, int, float]]) -> Path:
    """A monitor file of SB3, of episodes (return, length, end)."""
    path.parent.mkdir(exist_ok=True, parents=True)
    rows = "".join(f"{total},{length},{end}\n" for total, length, end in episodes)
    path.write_text(f"#{json.dumps({'t_start': began, 'env_id': 'None'})}\nr,l,t\n{rows}")
    return path


def curves(found: MetricCurves) -> dict[str, dict[int, dict[str, float]]]:
    """Return the values of each run by steps."""
    return {
        agent.run: {
            steps: {name: column[row] for name, column in agent.columns.items() if column[row] != ABSENT}
            for row, steps in enumerate(agent.steps)
        }
        for agent in found.agents
    }


def test_monitor_files_of_a_folder_are_one_run_in_the_order_of_time(tmp_path: Path) -> None:
    monitor(tmp_path / "run" / "0.monitor.csv", 100.0, [(1.0, 10, 1.0), (3.0, 30, 5.0)])
    monitor(tmp_path / "run" / "1.monitor.csv", 101.0, [(2.0, 20, 1.0)])
    ((name, curve),) = curves(read_imported(tmp_path / "run")).items()
    assert name == "" and [(step, row[RETURN]) for step, row in curve.items()] == [(10, 1.0), (30, 2.0), (60, 3.0)]


def test_a_panel_export_has_a_curve_per_run(tmp_path: Path) -> None:
    file = tmp_path / "panel.csv"
    column = "rollout/ep_rew_mean"
    file.write_text(
        f'"Step","a - {column}","a - {column}__MIN","b - {column}"\n'
        '"10","1.5","0","NaN"\n"20","","","2.5"\nbad,1,1,1\n"30","3.5",'
    )
    found = read_imported(file)
    assert found.warnings == ("skipped 1 damaged line of its metrics: 4",)
    runs = curves(found)
    assert runs["a"] == {steps: {column: value, RETURN: value} for steps, value in ((10, 1.5), (30, 3.5))}
    assert math.isnan(runs["b"][10][RETURN]) and runs["b"][20][RETURN] == 2.5


def test_a_history_uses_the_step_of_the_program_not_that_of_the_log(tmp_path: Path) -> None:
    file = tmp_path / "history.csv"
    file.write_text(f"_step,global_step,{RETURN}\n0,100,1.0\n1,200,2.0\n")
    assert curves(read_imported(file)) == {"": {100: {"_step": 0.0, RETURN: 1.0}, 200: {"_step": 1.0, RETURN: 2.0}}}


def test_runs_of_sb3_are_compared_with_runs_of_hmx(tmp_path: Path) -> None:
    for seed in range(3):
        monitor(tmp_path / "sb3" / f"PPO_{seed}" / "monitor.csv", 0.0, [(0.1, 256, i) for i in range(10)])
    make_run(tmp_path / "ours", flat(0.8, 0.81, 0.82))
    sides = (f"ours={tmp_path / 'ours'}", f"sb3={tmp_path / 'sb3'}")
    findings = compare(CompareRequest(sides=sides, samples=200))
    (task,) = findings.tasks
    assert task.name == "corridor" and [len(side.seeds) for side in task.sides] == [3, 3]
    assert [round(side.mean or 0, 3) for side in task.sides] == [0.81, 0.1]
    assert task.pairs[0].shared == 0  # seeds of other programs have no numbers to pair by


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no column"),
        ("a,b\n1,2\n", "no column"),
        ("#{}\nr,l,t\n", "no t_start"),
        ("#" + "[" * 100_000, "no t_start"),
        (f"Step,x\n1,{'9' * 200_000}\n", "field larger than field limit"),
    ],
)
def test_other_files_are_refused_with_a_message(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(HmxError, match=said) as caught:
        read_imported(tmp_path / "other.csv")
    assert caught.value.exit_code == ExitCode.ARTEFACT
