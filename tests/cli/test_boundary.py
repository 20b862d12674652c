"""Whatever goes wrong becomes one error, one hint and the documented exit code."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hmx.cli import boundary
from hmx.config.presets import REPRODUCTIONS
from hmx.errors import ExitCode, HmxError


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Makes `hmx evaluate` fail."""

    def job(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("hmx.jobs.evaluate.evaluate", job)


@pytest.mark.parametrize("code", [ExitCode.UNEXPECTED, ExitCode.USAGE, ExitCode.ARTEFACT, ExitCode.CHECK_FAILED])
def test_errors_of_the_user_carry_their_exit_code(hmx, monkeypatch, code):
    fail_with(monkeypatch, HmxError("the cat sat on it", "move the cat", code))
    result = hmx("evaluate", "x")
    assert result.exit_code == code
    assert result.stderr == "error: the cat sat on it\n\nhint: move the cat\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [(HmxError("the cat sat on it", "move the cat", ExitCode.ARTEFACT), 3), (HmxError("no"), 2), (RuntimeError("a"), 1),
     (OSError(errno.ENOSPC, "full", "runs/x"), 3), (None, 2)],
)  # fmt: skip
def test_errors_are_json_objects_with_json(hmx, monkeypatch, tmp_path, error, code):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    if error is not None:
        fail_with(monkeypatch, error)
    result = hmx("evaluate", "x", "--json") if error is not None else hmx("evaluate", "x", "--json", "--no-such")
    assert result.exit_code == code and result.stdout == "" and result.stderr.count("\n") == 1
    body = json.loads(result.stderr)
    assert list(body) == ["error", "hint", "exit_code"] and body["exit_code"] == code
    told = {3: ("the cat sat on it", "move the cat")} if isinstance(error, HmxError) else {}
    assert (body["error"], body["hint"]) == told.get(code, (body["error"], body["hint"])) and body["hint"]


def test_a_long_error_is_shown_by_its_first_and_last_lines(hmx, monkeypatch):
    text = "the first line\n" + "a line of a file\n" * 10**6 + "the last line"
    fail_with(monkeypatch, HmxError(text))
    shown = hmx("evaluate", "x").stderr
    assert shown.startswith("error: the first line\na line of a file\n") and "\nthe last line\n" in shown
    assert "characters left out" in shown and len(shown) < 11_000
    fail_with(monkeypatch, RuntimeError(text))
    assert len(hmx("evaluate", "x").stderr) < 3000


def test_an_error_without_a_hint_names_the_help_of_its_command_if_the_usage_is_wrong(hmx, monkeypatch):
    fail_with(monkeypatch, HmxError("no"))
    assert hmx("evaluate", "x").stderr == "error: no\n\nhint: hmx evaluate --help lists the options\n"
    fail_with(monkeypatch, HmxError("no", exit_code=ExitCode.ARTEFACT))
    assert hmx("evaluate", "x").stderr == "error: no\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [("runs export --to csv", "hmx runs export"), ("--debug train evaluate", "hmx train"), ("-x", "hmx")],
)
def test_the_command_of_a_command_line_is_found(words, name):
    assert boundary._command(words.split()) == name


def test_unexpected_error_is_one_line_and_a_crash_report(hmx, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fail_with(monkeypatch, RuntimeError("two\nlines"))
    result = hmx("evaluate", "my run")
    assert result.exit_code == ExitCode.UNEXPECTED
    assert result.stderr.startswith("error: unexpected RuntimeError: two lines\n")
    assert "Traceback" not in result.stderr
    report = Path(re.search(r"crash report is (\S+);", result.stderr)[1])
    text = report.read_text()
    assert "Traceback" in text and "command: hmx evaluate 'my run'" in text


def test_unwritable_crash_report_does_not_cause_a_second_error(hmx, monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    fail_with(monkeypatch, RuntimeError("boom"))
    result = hmx("evaluate", "x")
    assert result.exit_code == ExitCode.UNEXPECTED
    assert "no crash report could be written" in result.stderr


@pytest.mark.parametrize("words", [("--debug", "evaluate", "x"), ("evaluate", "x", "--debug")])
def test_debug_shows_the_traceback_at_any_position(hmx, monkeypatch, words):
    fail_with(monkeypatch, RuntimeError("boom"))
    result = hmx(*words)
    assert result.exit_code == ExitCode.UNEXPECTED
    assert "Traceback" in result.stderr and "crash report" not in result.stderr


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_disk_error_is_reported_without_traceback(hmx, monkeypatch, number):
    fail_with(monkeypatch, OSError(number, "text of the system", "runs/x"))
    result = hmx("evaluate", "x")
    assert result.exit_code == ExitCode.ARTEFACT
    assert "runs/x" in result.stderr and "hint: " in result.stderr and "crash" not in result.stderr


@pytest.mark.parametrize(
    ("redirection", "code", "message"),
    [(">/dev/full", ExitCode.ARTEFACT, "cannot write to standard output: No space left on device"), (">&-", 0, "")],
)
def test_full_or_closed_stdout_is_reported_without_traceback(environ, tmp_path, redirection, code, message):
    words = f'"$0" -m hmx presets {redirection}'
    done = subprocess.run(
        ["sh", "-c", words, sys.executable], cwd=tmp_path, env=environ(), capture_output=True, text=True
    )
    assert done.returncode == code and message in done.stderr and "Traceback" not in done.stderr
    assert bool(done.stderr) == bool(code)


@pytest.mark.parametrize(
    ("name", "own", "used"),
    [
        ("OPENBLAS_NUM_THREADS", None, "1"),
        ("OPENBLAS_NUM_THREADS", "3", "3"),
        ("TF_CPP_MIN_LOG_LEVEL", None, "3"),
        ("TF_CPP_MIN_LOG_LEVEL", "0", "0"),
    ],
)
def test_libraries_find_their_settings_unless_the_user_has_others(environ, name, own, used):
    """NumPy loads OpenBLAS and JAX loads XLA, which read the variables then."""
    asked = f"import os, sys, hmx.__main__; print(os.environ['{name}'], 'numpy' in sys.modules)"
    env = {key: value for key, value in environ().items() if key != name} | ({} if own is None else {name: own})
    done = subprocess.run([sys.executable, "-c", asked], env=env, capture_output=True, text=True)
    assert done.stdout.split() == [used, "False"]


@pytest.mark.parametrize(("library", "at_once"), [("hmx", True), ("nothing_of_this_name", False)])
def test_ctrl_c_exits_with_130_at_once_despite_library_threads(hmx, monkeypatch, library, at_once):
    """A compilation cannot be stopped, only left: an ordinary exit would end in a segmentation fault."""
    left: list[int] = []
    monkeypatch.setattr("os._exit", left.append)
    monkeypatch.setattr(boundary, "_THREADED", (library,))
    fail_with(monkeypatch, KeyboardInterrupt())
    result = hmx("evaluate", "x")
    assert result.exit_code == ExitCode.SIGINT
    assert result.stderr == "error: interrupted\n"
    assert left == [ExitCode.SIGINT] * at_once


def test_closed_pipe_is_quiet(hmx, monkeypatch):
    monkeypatch.setattr("hmx.cli.boundary.silence", lambda: None)  # it would close the output of the tests
    fail_with(monkeypatch, BrokenPipeError(errno.EPIPE, "Broken pipe"))
    result = hmx("evaluate", "x")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ("train --lr -1", "hint: --lr 0.0005\n"),
        ("train --steps 1e3x", "hint: --steps 4194304\n"),
        ("train --env ./afile", "hint: --env ./afile.py\n"),
        ("train --env corridr", "hint: --env corridor\n"),
        ("compare a b --level 0.9", "hint: hmx compare --help lists all options\n"),
        ("config algo.gamma", "explains every key; hmx train --dry-run --full shows their values\n"),
        ("list", "hint: hmx runs list\n"),
    ],
)
def test_a_hint_is_given_once_and_is_useful(hmx: Any, words: str, hint: str) -> None:
    result = hmx(*words.split())
    assert result.stderr.endswith(hint) and "; try " not in result.stderr and len(result.stderr) < 250


def test_help_of_a_command_and_settings_of_a_preset_are_shown(hmx: Any) -> None:
    assert hmx("help", "runs", "list").stdout == hmx("runs", "list", "--help").stdout != ""
    assert 'id = "corridor"' in hmx("presets", "tiny").stdout
    listed = json.loads(hmx("presets", "--json").stdout)["presets"]
    kinds = {one["name"]: one["reproduction"] for one in listed}
    assert kinds["brax"] and not kinds["gumbel"] and set(REPRODUCTIONS) < set(kinds)
    start, reproduce = hmx("presets").stdout.split("To reproduce other implementations")
    assert "gumbel " in start and "brax " in reproduce and "brax " not in start
    values = json.loads(hmx("presets", "tiny", "--json").stdout)["values"]
    assert values["env.id"] == "corridor" and values["algo.num_steps"] == 16


@pytest.mark.filterwarnings("always::hmx.errors.Unavailable")
def test_a_run_whose_memory_cannot_be_estimated_is_planned_and_trained(hmx: Any, monkeypatch: Any) -> None:
    def gone(*given: Any) -> Any:
        raise AttributeError("no such part of JAX")

    for place in ("hmx.runs.chunk.peak_bytes", "jax.stages.Compiled.memory_analysis"):
        monkeypatch.setattr(place, gone)
    estimate = "warning: cannot estimate the memory of an update; continuing without it: AttributeError: no such part"
    words = ("train", "--preset", "tiny", "--steps", "256", "--set", "run.eval_episodes=0")
    planned = hmx(*words, "--dry-run", "--json")
    assert planned.exit_code == 0, planned.output
    assert json.loads(planned.stdout)["memory"] is None
    assert planned.stderr.count(estimate) == 1
    trained = hmx(*words, "--name", "first")
    assert trained.exit_code == 0, trained.output
    shown = " ".join(trained.stderr.split())
    assert shown.count(estimate) == 1 and shown.count("cannot read the memory of a compiled program") == 1
