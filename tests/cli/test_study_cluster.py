"""`hmx study work --slurm` and `--kubernetes`: print, write and submit the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

Invoke = Callable[..., Result]


@pytest.fixture
def study(hmx: Invoke, tmp_path: Path) -> Path:
    """A study without any trial."""
    made = hmx("study", "new", "lr", "--preset", "tiny", "--space", "algo.learning_rate=1e-3..1e-2")
    assert made.exit_code == 0, made.output
    return tmp_path / "studies" / "lr"


def test_dry_run_prints_the_file_and_writes_nothing(study: Path, hmx: Invoke) -> None:
    shown = hmx("study", "work", "lr", "--slurm", "2", "--dry-run", "--submit")
    assert shown.stdout.startswith("#!/bin/bash\n")
    assert f"study work {study} &\n" in shown.stdout
    assert not (study / "cluster").exists()


def test_file_is_written_and_the_command_that_submits_it_is_shown(study: Path, hmx: Invoke) -> None:
    options = ["--kubernetes", "2", "--image", "i", "--claim", "c", "--other-versions", "--json"]
    body = json.loads(hmx("study", "work", "lr", *options).stdout)
    file = study / "cluster" / "kubernetes.json"
    assert file.read_text() == body["text"]
    assert '"--other-versions"\n' in body["text"]
    assert body["command"] == ["kubectl", "create", "-f", str(file)]
    shown = hmx("study", "work", "lr", "--slurm", "2")
    assert f"submit with: sbatch {study}/cluster/slurm.sh" in shown.stderr
    assert not list(study.glob("trials/*"))  # nothing was trained


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dry-run"], "--dry-run requires --slurm or --kubernetes"),
        (["--slurm", "0"], "--slurm 0: must be 1 or more"),
        (["--slurm", "2", "--submit"], "sbatch is not installed here"),
    ],
)
def test_options_that_cannot_work_are_refused(
    options: list[str], message: str, study: Path, hmx: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(study))
    refused = hmx("study", "work", "lr", *options)
    assert (refused.exit_code, message in refused.stderr) == (2, True), refused.output
