"""Bad input: one clear error and hint, the documented exit code, no traceback, nothing overwritten or left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hmx.errors import ExitCode

FINE = {"player": {"row": 0, "col": 0}}


def refused(result: Any, code: int, *parts: str) -> None:
    """The error says all of this, in the shape that every error has."""
    assert result.exit_code == code, result.output
    error, _, hint = result.stderr.rpartition("\n\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert "Traceback" not in result.stderr and "crash" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--env", "hackmatirx"], ["env.id", "hackmatirx", "--env", "hackmatrix"]),
        (["--set", "algo.gama=0.9"], ["algo.gama", "did you mean algo.gamma"]),
        (["--set", "agent.gamma=0.9"], ["unknown section", "algo.gamma"]),
        (["--set", "gamma"], ["section.key=value", "algo.gamma"]),
        (["--preset", "qick"], ["there is no preset qick", "--preset quick"]),
        (["--set", "algo.num_minibatches=7"], ["algo.num_minibatches", "7", "try"]),
        (["--num-envs", "-4"], ["env.num_envs", "-4", "--num-envs"]),
        (["--steps", "-1"], ["run.total_steps", "-1", "--steps"]),
        (["--seeds", "0"], ["run.num_seeds", "0", "--seeds"]),
        (["--eval-episodes", "-5"], ["run.eval_episodes", "-5", "--eval-episodes"]),
        (["--lr", "fast"], ["algo.learning_rate", "fast", "--lr"]),
        (["--lr", "nan"], ["algo.learning_rate", "nan"]),
        (["--name", "../escape"], ["run.name", "../escape"]),
        (["--wandb", "sometimes"], ["run.wandb", "disabled, offline, online"]),
        (["--config", "missing.toml"], ["there is no configuration file missing.toml"]),
    ],
)
def test_a_configuration_that_cannot_run(hmx, tmp_path, words, parts):
    refused(hmx("train", *words), ExitCode.USAGE, *parts)
    refused(hmx("train", *words, "--dry-run"), ExitCode.USAGE, *parts)
    assert list(tmp_path.iterdir()) == []


def test_all_problems_are_told_at_once_with_their_origins(hmx, tmp_path, monkeypatch):
    (tmp_path / "mine.toml").write_text('[env]\nnum_envs = -3\n[algo]\nactivatoin = "relu"\n')
    monkeypatch.setenv("HMX_ALGO_GAMMA", "1.5")
    result = hmx("train", "--config", "mine.toml", "--set", "algo.clip_eps=-1", "--lr", "-1")
    refused(
        result, ExitCode.USAGE, "mine.toml:2", "mine.toml:4", "HMX_ALGO_GAMMA", "--set", "--lr", "algo.gamma", "1.5"
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("[algo]\ngama = 0.9\n", ["algo.gama", "typo.toml:2", "algo.gamma"]),
        ("[algo\ngamma = 0.9\n", ["typo.toml", "line 1"]),
        ('[algo]\ngamma = "high"\n', ["algo.gamma", "high", "typo.toml:2"]),
    ],
)
def test_a_config_file_with_a_typo(hmx, tmp_path, text, parts):
    (tmp_path / "typo.toml").write_text(text)
    refused(hmx("train", "--config", "typo.toml"), ExitCode.USAGE, *parts)
    assert [path.name for path in tmp_path.iterdir()] == ["typo.toml"]


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_run_that_exists_is_left_alone(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    before = contents(tmp_path)
    result = hmx("train", "--preset", "tiny", "--name", "corridor")
    refused(result, ExitCode.USAGE, "runs/corridor", "hmx resume corridor", "--force")
    assert contents(tmp_path) == before


def test_a_folder_that_is_no_run_is_not_replaced_even_by_force(hmx, tmp_path):
    (tmp_path / "runs" / "mine").mkdir(parents=True)
    (tmp_path / "runs" / "mine" / "thesis.tex").write_text("years of work")
    before = contents(tmp_path)
    refused(hmx("train", "--preset", "tiny", "--name", "mine", "--force"), ExitCode.USAGE, "runs/mine")
    assert contents(tmp_path) == before


def test_a_place_that_cannot_be_written(hmx, tmp_path):
    (tmp_path / "runs").write_text("a file where the folder should be")
    refused(hmx("train", "--preset", "tiny", "--name", "x"), ExitCode.USAGE, "runs/x")
    assert (tmp_path / "runs").read_text() == "a file where the folder should be"


@pytest.mark.parametrize("command", ["resume", "evaluate", "watch"])
def test_a_run_that_does_not_exist(hmx, tmp_path, trained, command):
    refused(hmx(command, "corridro"), ExitCode.ARTEFACT, "corridro")
    shutil.copytree(trained, tmp_path / "runs")
    refused(hmx(command, "corridro"), ExitCode.ARTEFACT, "did you mean corridor?")


def test_a_run_without_checkpoints(hmx, tmp_path, trained):
    shutil.copytree(trained, tmp_path / "runs")
    shutil.rmtree(tmp_path / "runs" / "corridor" / "checkpoints")
    for command in ("resume", "evaluate"):
        refused(hmx(command, "corridor"), ExitCode.ARTEFACT, "checkpoint")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--episodes", "0"], ["0 episodes"]),
        (["--episodes", "-3"], ["-3 episodes"]),
        (["--policy", "lucky"], ["lucky", "random, sampled, greedy"]),
    ],
)
def test_an_evaluation_that_makes_no_sense(hmx, trained, words, parts):
    refused(hmx("evaluate", str(trained / "corridor"), *words), ExitCode.USAGE, *parts)


def test_a_finished_run_is_not_resumed_but_can_be_extended(hmx, trained):
    run = str(trained / "corridor")
    refused(hmx("resume", run), ExitCode.USAGE, "finished", "--steps 8192")


@pytest.mark.parametrize(
    ("position", "parts"),
    [
        ({"player": {"row": 6, "col": 0}}, ["player.row", "6", "from 0 to 5"]),
        ({"player": {"row": 0, "col": -1}}, ["player.col", "-1"]),
        ({**FINE, "enemies": [{"type": "virsu", "row": 1, "col": 1, "hp": 1}]}, ["virsu", "did you mean 'virus'?"]),
        ({**FINE, "enemies": [{"type": "virus", "row": 1, "col": 9, "hp": 1}]}, ["enemies[0].col", "9"]),
        ({**FINE, "enemies": [{"type": "virus", "row": 1, "col": 1, "hp": 3}]}, ["enemies[0].hp", "3", "from 1 to 2"]),
        ({"player": {"row": 0, "col": 0, "dataSiphons": -1}}, ["player.dataSiphons", "-1"]),
        ({**FINE, "stage": 9}, ["stage", "9", "from 1 to 8"]),
        ({**FINE, "ownedPrograms": [4]}, ["ownedPrograms", "4"]),
        ({**FINE, "enmies": []}, ["enmies", "did you mean 'enemies'?"]),
        ({}, ["player.row is missing"]),
        ([1, 2], ["holds no position"]),
    ],
)
def test_a_scenario_that_is_not_possible(hmx, tmp_path, position, parts):
    (tmp_path / "scenario.json").write_text(json.dumps(position))
    refused(hmx("watch", "--random", "--scenario", "scenario.json"), ExitCode.USAGE, *parts)


def test_scenario_files_that_are_none(hmx, tmp_path):
    (tmp_path / "half.json").write_text('{"player": ')
    refused(hmx("watch", "--random", "--scenario", "half.json"), ExitCode.USAGE, "half.json", "line 1")
    (tmp_path / "picture.json").write_bytes(b"\x89PNG\xff")
    refused(hmx("watch", "--random", "--scenario", "picture.json"), ExitCode.USAGE, "picture.json", "UTF-8")
    refused(hmx("watch", "--random", "--scenario", "gone.json"), ExitCode.ARTEFACT, "gone.json")
    refused(hmx("watch", "--random", "--scenario", "."), ExitCode.ARTEFACT, "cannot read")


def test_what_cannot_be_watched(hmx, trained):
    refused(hmx("watch"), ExitCode.USAGE, "no run to watch", "--random")
    refused(hmx("watch", str(trained / "corridor")), ExitCode.USAGE, "corridor", "hmx evaluate")


def test_playing_needs_a_terminal(hmx):
    refused(hmx("play"), ExitCode.USAGE, "standard input is not a terminal")


def test_errors_are_whole_in_a_terminal_of_40_columns(shell):
    done = shell("-m", "hmx", "train", "--env", "hackmatirx", COLUMNS="40")
    assert done.returncode == ExitCode.USAGE
    assert "hint: --env hackmatrix" in done.stderr.splitlines()
