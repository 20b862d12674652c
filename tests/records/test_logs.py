"""Metrics of other programs: what they mean, and what is refused."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_runs import RETURN, flat, make_run

from hmx.errors import ExitCode, HmxError
from hmx.records import logs
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


def of_columns(number: int) -> str:
    return f"Step,{','.join(f'r{column} - loss' for column in range(number))}\n1,{','.join('1' * number)}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (of_columns(logs.MAX_COLUMNS), "it has more than 10,000 columns"),
        ("Step,a - loss\n" + "1" * (logs.MAX_LINE + 5), "a line has 4,194,304 characters or more"),
        ("Step,a - loss\n" + "x,1\n" * (logs.MAX_DAMAGED + 2), "more than 10,000 damaged lines"),
        ('#{"t_start": 1}\nr,l,t\n' + "x,1,1\n" * (logs.MAX_DAMAGED + 2), "more than 10,000 damaged lines"),
    ],
)
def test_a_file_without_bounds_is_refused(text: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "panel.csv"
    file.write_text(text)
    with pytest.raises(HmxError, match=f"cannot read {file}: {said}") as caught:
        read_imported(file)
    assert caught.value.exit_code == ExitCode.ARTEFACT


@pytest.mark.parametrize("text", [of_columns(50), '#{"t_start": 1}\nr,l,t\n' + "1,1,1\n" * 30])
def test_a_file_of_more_values_than_fit_in_memory_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "MAX_VALUES", 40)
    file = tmp_path / "panel.csv"
    file.write_text(text + (of_columns(50).partition("\n")[2] if text.startswith("Step") else ""))
    with pytest.raises(HmxError, match="it has more than 40 values"):
        read_imported(file)


@pytest.mark.parametrize("name", ["panel.csv", "0.monitor.csv"])
def test_a_sparse_file_is_not_read(name: str, tmp_path: Path) -> None:
    with (tmp_path / name).open("wb") as file:
        file.truncate(20 << 30)
    found = read_imported(tmp_path / name)
    assert found.agents == ()
    assert "21,474,836,480 bytes, more than the maximum of 268,435,456" in found.warnings[0]


@pytest.mark.parametrize("name", ["panel.csv", "0.monitor.csv", "events.out.tfevents.1"])
def test_a_pipe_is_not_read(name: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / name)
    assert read_imported(tmp_path / name).warnings == ("cannot read its metrics: not a regular file",)
