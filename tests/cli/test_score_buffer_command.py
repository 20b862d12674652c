"""`hmx score-buffer` from the outside: every format, files, interruption, and refusals."""

from __future__ import annotations

import csv
import io
import json
import shutil

import numpy as np
import pytest

from hmx.errors import ExitCode

pytestmark = pytest.mark.usefixtures("compiled_once")
SMALL = ("--collect", "32", "--positions", "12", "--rollouts", "2")


def test_command_writes_every_format_and_scores_what_it_collected(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("score-buffer", "corridor", *SMALL, "--json", "--html", "s.html", "--md", "s.md", "--csv", "s.csv",
                 "--write-back")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    printed = json.loads(result.stdout)
    assert result.stdout.count("\n") == 1 and printed["schema"] == 3 and "columns" not in printed
    out = tmp_path / "runs" / "corridor" / "reports" / "scores"
    assert sorted(p.name for p in out.iterdir()) == ["buffer.npz", "report.json", "scores.npz"]
    assert '<figure class="plot' in (tmp_path / "s.html").read_text()
    assert all("@" in position["state"]["text"] for position in printed["top"])  # as the environment shows them
    assert printed["finding"].split(".")[0] in (tmp_path / "s.md").read_text()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "s.csv").read_text())))
    with np.load(out / "scores.npz") as columns, np.load(out / "buffer.npz") as buffer:
        assert columns["score"].shape == (12,) and (columns["score"] >= 0).all()
        np.testing.assert_allclose([float(row["score"]) for row in rows], columns["score"])
        np.testing.assert_array_equal(buffer["consequence_scores"][columns["index"]], columns["score"])
        assert buffer["scored"].sum() == 12
    assert hmx("runs", "verify", "corridor").exit_code == 0
    again = ("score-buffer", str(out / "buffer.npz"), "--checkpoint", "corridor", "--rollouts", "2", "--out", "o")
    result = hmx(*again, "--select", "stale", "--positions", "20")
    assert result.exit_code == 0, result.stderr
    assert "20 positions of 32" in " ".join(result.stdout.split()) and "37.5% of the buffer before" in result.stdout
    result = hmx(*again, "--select", "all")
    assert result.exit_code == ExitCode.USAGE and "o: it contains scores for other options" in result.stderr
    result = hmx(*again, "--select", "all", "--force", "--strict", "--metric", "tv", "--no-crn")
    assert result.exit_code == ExitCode.CHECK_FAILED and "the scores do not pass" in result.stderr
    assert "null" in result.stderr and "32 positions of 32" in " ".join(result.stdout.split())


def test_dry_run_plays_and_writes_nothing(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    result = hmx("score-buffer", "corridor", *SMALL, "--horizon", "9", "--dry-run", "--json")
    plan = json.loads(result.stdout)
    assert plan["env_steps"] == 12 * 3 * 2 * 9 and plan["positions"] == 12 and plan["size"] == 32
    result = hmx("score-buffer", "corridor", *SMALL, "--dry-run")
    assert "12 of 32" in result.stdout and "steps at most" in result.stdout
    reports = sorted(path.name for path in (tmp_path / "runs" / "corridor" / "reports").iterdir())
    assert reports == ["evaluation.json", "report.html"]
