"""Bad input: one clear error and hint, the documented exit code, no traceback, nothing overwritten or left behind."""

from __future__ import annotations

import json
import shutil

import pytest
import typer
from bad_input_rows import COMMANDS, FILES
from folders import contents
from refusals import refused

from hmx.cli.app import app
from hmx.errors import ExitCode

FINE = {"player": {"row": 0, "col": 0}}


def label(words: list[str]) -> str:
    """A row as the name of a test: printable, and not as long as its input."""
    return ascii(" ".join(words))[1:-1][:60]


@pytest.mark.parametrize(("words", "code", "parts"), COMMANDS, ids=[label(words) for words, _, _ in COMMANDS])
def test_every_row_of_the_table_is_refused_with_its_code_and_message(hmx, tmp_path, request, words, code, parts):
    if any("{run}" in word for word in words):
        run = str(request.getfixturevalue("trained") / "corridor")
        words = [word.replace("{run}", run) for word in words]
    result = hmx(*words)
    shows_sizes = words[0] == "compute-config" and ("E_" in "".join(parts) or "env." in "".join(parts))
    refused(result, code, *parts, printed=shows_sizes)
    assert len(result.stderr) < 3000
    assert result.stderr.replace("\n", "").isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("content", "parts"), FILES.values(), ids=FILES)
def test_every_bad_configuration_file_is_refused_with_a_message(hmx, tmp_path, content, parts):
    (tmp_path / "mine.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    result = hmx("train", "--config", "mine.toml")
    refused(result, ExitCode.USAGE, *parts)
    assert len(result.stderr) < 3000
    assert result.stderr.replace("\n", "").isprintable()
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"]


def test_table_is_large_and_covers_every_command():
    assert len(COMMANDS) + len(FILES) >= 150
    known = {name for name in typer.main.get_command(app).commands}
    assert known == {words[0] for words, _, _ in COMMANDS} & known


def test_dry_run_refuses_the_same_input(hmx, tmp_path):
    refused(hmx("train", "--dry-run", "--set", "algo.gama=0.9"), ExitCode.USAGE, "algo.gamma")
    assert list(tmp_path.iterdir()) == []


def test_all_problems_are_reported_together_with_their_origins(hmx, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('[env]\nnum_envs = -3\n[algo]\nactivatoin = "relu"\n')
    monkeypatch.setenv("HMX_ALGO_GAMMA", "1.5")
    result = hmx("train", "--config", "mine.toml", "--set", "ppo.clip_eps=-1", "--lr", "-1")
    refused(
        result, ExitCode.USAGE, "mine.toml:2", "mine.toml:4", "HMX_ALGO_GAMMA", "--set", "--lr", "algo.gamma", "1.5"
    )
    assert not (tmp_path / "runs").exists()


def test_existing_run_is_unchanged(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    before = contents(tmp_path)
    result = hmx("train", "--preset", "tiny", "--name", "corridor")
    refused(result, ExitCode.USAGE, "runs/corridor", "hmx resume corridor", "--force")
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "command", ["resume", "evaluate", "watch", "doctor", "grad-report", "runs verify", "runs sync"]
)
def test_missing_run_is_refused(hmx, tmp_path, trained, command):
    words = [*command.split(), "corridro"]
    refused(hmx(*words), ExitCode.ARTEFACT, "there is no run corridro")
    shutil.copytree(trained, tmp_path / "runs")
    refused(hmx(*words), ExitCode.ARTEFACT, "did you mean corridor?")


def test_run_without_checkpoints_is_refused(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "corridor" / "checkpoints")
    for command in ("resume", "evaluate"):
        refused(hmx(command, "corridor"), ExitCode.ARTEFACT, "checkpoint")


def test_a_finished_run_is_not_resumed_but_can_be_extended(hmx, trained):
    run = str(trained / "corridor")
    refused(hmx("resume", run), ExitCode.USAGE, "finished", "--steps 8192")


@pytest.mark.parametrize(
    ("position", "parts"),
    [
        ({"player": {"row": 6, "col": 0}}, ["player.row", "6", "from 0 to 5"]),
        ({**FINE, "enemies": [{"type": "virsu", "row": 1, "col": 1, "hp": 1}]}, ["virsu", "did you mean 'virus'?"]),
        ({**FINE, "enemies": [{"type": "virus", "row": 1, "col": 1, "hp": 3}]}, ["enemies[0].hp", "3", "from 1 to 2"]),
        ({**FINE, "ownedPrograms": [4]}, ["ownedPrograms", "4"]),
        ({**FINE, "enmies": []}, ["enmies", "did you mean 'enemies'?"]),
        ({}, ["player.row is missing"]),
        ([1, 2], ["holds no position"]),
    ],
)
def test_impossible_scenario_is_refused(hmx, tmp_path, position, parts):
    (tmp_path / "scenario.json").write_text(json.dumps(position))
    refused(hmx("watch", "--random", "--scenario", "scenario.json"), ExitCode.USAGE, *parts)


def test_invalid_scenario_files_are_refused(hmx, tmp_path):
    (tmp_path / "half.json").write_text('{"player": ')
    refused(hmx("watch", "--random", "--scenario", "half.json"), ExitCode.USAGE, "half.json", "line 1")
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\xff")
    refused(hmx("watch", "--random", "--scenario", "picture.json"), ExitCode.USAGE, "picture.json", "UTF-8")


def test_errors_are_complete_in_a_terminal_of_40_columns(shell):
    done = shell("-m", "hmx", "train", "--env", "hackmatirx", COLUMNS="40")
    assert done.returncode == ExitCode.USAGE
    assert "hint: --env hackmatrix" in done.stderr.splitlines()
