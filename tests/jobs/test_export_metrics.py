"""Metrics as CSV; event files need an extra and are tested with it."""

from __future__ import annotations

import csv
import json
import os
import shutil
import sys
from pathlib import Path

import pytest
from made_runs import RETURN, make_run

from hmx.errors import ExitCode, HmxError
from hmx.jobs.export_metrics import STDOUT, export_metrics
from hmx.jobs.requests import ExportRequest
from hmx.records.logs import read_imported

NAN = float("nan")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "r", {0: [1.0, None, 3.0], 1: [-1.0, NAN, -3.0]})


def test_csv_has_a_row_per_record_and_keeps_the_names(run: Path) -> None:
    done = export_metrics(run, ExportRequest())
    rows = list(csv.DictReader(done.output.read_text().splitlines()))
    assert done.output == run / "reports" / "metrics.csv" and done.records == len(rows) == 6
    assert tuple(rows[0]) == done.columns and done.columns[:3] == ("update", "env_steps", "seed")
    assert [(row["update"], row["seed"], row[RETURN]) for row in rows] == [
        ("1", "0", "1.0"), ("1", "1", "-1.0"), ("2", "0", ""), ("2", "1", "nan"), ("3", "0", "3.0"), ("3", "1", "-3.0"),
    ]  # fmt: skip
    written = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [float(row["train/entropy"]) for row in rows] == [line["train/entropy"] for line in written]


@pytest.mark.parametrize(
    ("names", "first", "renamed"),
    [
        ("sb3", ["time/iterations", "time/total_timesteps", "seed"], ["rollout/ep_rew_mean", "train/entropy"]),
        ("cleanrl", ["update", "global_step", "seed"], ["charts/episodic_return", "losses/entropy"]),
    ],
)
def test_names_of_other_libraries_are_used_where_they_mean_the_same(
    run: Path, tmp_path: Path, names: str, first: list[str], renamed: list[str]
) -> None:
    plain, place = export_metrics(run, ExportRequest()), tmp_path / "progress.csv"
    done = export_metrics(run, ExportRequest(names=names, output=place))
    assert list(done.columns[:3]) == first and set(renamed) <= set(done.columns)
    ours, theirs = (list(csv.reader(one.output.read_text().splitlines())) for one in (plain, done))
    assert ours[1:] == theirs[1:], "only names differ"
    assert [columns for columns in zip(ours[0], theirs[0], strict=True) if RETURN in columns] == [(RETURN, renamed[0])]


def test_hmx_reads_the_files_of_other_libraries_that_it_writes(tmp_path: Path) -> None:
    single = make_run(tmp_path / "one", {0: [1.0, 2.0, 3.0]})
    for names in ("hmx", "sb3", "cleanrl"):
        done = export_metrics(single, ExportRequest(names=names, output=tmp_path / f"{names}.csv"))
        (agent,) = read_imported(done.output).agents
        assert (list(agent.steps), list(agent.column(RETURN))) == ([256, 512, 768], [1.0, 2.0, 3.0])


def test_export_does_not_write_through_a_link_of_the_run(run: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "events.out.tfevents.1").write_text("precious")
    shutil.rmtree(run / "reports")
    for name, kind in (("reports", "csv"), ("tensorboard", "tensorboard")):
        (run / name).symlink_to(tmp_path / "outside")
        with pytest.raises(HmxError, match=f"cannot write in .*{name}: a link instead of a folder"):
            export_metrics(run, ExportRequest(to=kind, force=True))
    assert os.listdir(tmp_path / "outside") == ["events.out.tfevents.1"]


def test_existing_output_is_replaced_only_with_force(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = run / "mine.csv"
    place.write_text("mine")
    with pytest.raises(HmxError, match="it already exists") as caught:
        export_metrics(run, ExportRequest(output=place))
    assert caught.value.exit_code == ExitCode.USAGE and place.read_text() == "mine"
    export_metrics(run, ExportRequest(force=True, output=place))
    export_metrics(run, ExportRequest(output=STDOUT))
    assert capsys.readouterr().out == place.read_text() != "mine"
    assert sorted(path.name for path in run.iterdir() if "mine" in path.name) == ["mine.csv"]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"update": 4, "env_steps": 9, "seed": 0, "train/x": "high"}\n', "no usable train/x"),
        ('{"update": 4, "env_steps": 1.5, "seed": 0}\n', "no usable env_steps"),
        ('{"update": 4, "seed": 0}\n', "no usable env_steps"),
        (f'{{"update": 4, "env_steps": 9, "train/x": 1{"0" * 400}}}\n', "no usable train/x"),
        ("oops\n{}\n", "not a JSON object"),
    ],
)
def test_damaged_line_is_one_error_and_writes_no_file(run: Path, line: str, said: str) -> None:
    with (run / "metrics.jsonl").open("a") as file:
        file.write(line)
    with pytest.raises(HmxError, match=said) as caught:
        export_metrics(run, ExportRequest())
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert list((run / "reports").iterdir()) == []


def test_a_run_without_records_is_refused(tmp_path: Path) -> None:
    empty = make_run(tmp_path / "empty", {})
    with pytest.raises(HmxError, match="it has no records yet"):
        export_metrics(empty, ExportRequest())
    (empty / "metrics.jsonl").unlink()
    with pytest.raises(HmxError, match="there is no metrics file"):
        export_metrics(empty, ExportRequest())


def test_a_missing_package_gives_the_command_that_installs_it(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(HmxError, match="needs a package that is not installed: tensorboard") as caught:
        export_metrics(run, ExportRequest(to="tensorboard"))
    assert "[tensorboard]" in caught.value.hint
    assert not (run / "tensorboard").exists() and list((run / "reports").iterdir()) == []
