"""What Tab offers: asked as the shells ask, and typed into real shells."""

from __future__ import annotations

import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_tree import leaves
from typer.completion import completion_init
from typer.testing import CliRunner

from hmx.cli.app import app
from hmx.config import presets
from hmx.config.fields import FIELDS

COMPLETIONS = Path(__file__).parents[2] / "completions"


def offered(line: str) -> list[str]:
    """Return the completions of a line in bash, with the cursor at its end."""
    words = line.split(" ")
    asked = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    completion_init()
    done = CliRunner().invoke(app, prog_name="hmx", env={"_HMX_COMPLETE": "complete_bash", **asked})
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("hmx c", ["compare", "check-env", "compute-config"]),
        ("hmx runs ", ["list", "show", "tail", "rename", "rm", "export", "verify", "sync", "push", "pull"]),
        ("hmx tr", ["train"]),
        ("hmx train --env frozen", ["frozenlake", "frozenlake-slippery"]),
        ("hmx train --preset q", ["quick"]),
        ("hmx train --wandb off", ["offline"]),
        ("hmx train --dry", ["--dry-run"]),
        ("hmx fork x --na", ["--name"]),
        ("hmx train --set algo.lr_", ["algo.lr_schedule=", "algo.lr_end=", "algo.lr_warmup="]),
        ("hmx train --set algo.lr_schedule=c", ["algo.lr_schedule=constant", "algo.lr_schedule=cosine"]),
        ("hmx train --set net.shared_torso=", ["net.shared_torso=true", "net.shared_torso=false"]),
        ("hmx train --set algo.gamma=", ["algo.gamma=0.99"]),
        ("hmx evaluate x --policy g", ["greedy"]),
        ("hmx compare met", ["metta"]),
        ("hmx compare x y --metric train/mean_episode_r", ["train/mean_episode_return"]),
        ("hmx compare x y --metric evaluat", ["evaluation"]),
        ("hmx score-buffer x --metric t", ["tv", "tv_bins"]),
        ("hmx score-buffer x --aggregate m", ["mean", "max"]),
        ("hmx score-buffer x --actions s", ["single", "sampled"]),
    ],
)
def test_tab_completes_commands_and_options(line, answer):
    assert offered(line) == answer


def test_every_key_of_the_configuration_is_offered():
    assert offered("hmx train --set ") == [f"{key}=" for key in FIELDS]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Make a folder with two runs, as far as completion looks at them."""
    for name, updates in (("corridor", ("4", "32", "64.damaged")), ("lake", ("8",))):
        for update in updates:
            (tmp_path / "runs" / name / "checkpoints" / update).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.toml").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("hmx resume ", ["corridor", "lake"]),
        ("hmx evaluate cor", ["corridor"]),
        ("hmx watch l", ["lake"]),
        ("hmx evaluate corridor --checkpoint ", ["32", "4"]),
        ("hmx fork corridor --at ", ["32", "4"]),
        ("hmx watch --greedy runs/corridor --checkpoint 3", ["32"]),
        ("hmx grad-report lake --checkpoint ", ["8"]),
        ("hmx grad-report corridor --reference ", ["32", "4"]),
        ("hmx grad-report corridor --compare ", ["corridor", "lake"]),
        ("hmx evaluate nothing --checkpoint ", []),
        ("hmx evaluate --checkpoint ", []),
        ("hmx score-buffer lake --checkpoint ", ["corridor", "lake"]),
    ],
)
def test_runs_and_their_checkpoints_are_offered(runs, monkeypatch, line, answer):
    monkeypatch.chdir(runs)
    assert offered(line) == answer


FREE = {
    "N", "X", "I", "N|all", "N,...", "TEXT", "STEPS", "SECONDS", "SHARE", "SIZE", "PART", "EXPR", "FILE", "FOLDER",
    "PATTERN", "PORT", "HOST:PORT", "[ENV=]X,...", "ENV=LOW:HIGH",
}  # fmt: skip


def test_every_option_with_a_closed_choice_offers_its_values(runs, monkeypatch):
    monkeypatch.chdir(runs)
    (runs / "studies" / "lr").mkdir(parents=True, exist_ok=True)
    (runs / "studies" / "lr" / "study.1.toml").touch()
    (runs / "gates" / "lr").mkdir(parents=True, exist_ok=True)
    (runs / "gates" / "lr" / "gate.json").touch()
    silent = set()
    for name, command in leaves():
        ctx = command.make_context(name, ["corridor"], resilient_parsing=True)
        for param in command.params:
            has_value = not param.hidden and not getattr(param, "is_flag", False)
            if has_value and not param.shell_complete(ctx, ""):
                silent.add((name, param.opts[0], param.metavar))
    free_texts = {
        ("hmx train", "--name"), ("hmx fork", "--name"), ("hmx runs rename", "name"), ("hmx runs sync", "--project"),
        ("hmx new-env", "name"), ("hmx train", "--sink"), ("hmx resume", "--sink"), ("hmx fork", "--sink"),
        ("hmx study new", "--sink"), ("hmx gate new", "--sink"), ("hmx gate try", "--sink"), ("hmx gate new", "gate"),
        ("hmx gate new", "command"), ("hmx gate try", "command"), ("hmx gate adopt", "attempt"),
        ("hmx runs push", "repo"), ("hmx runs push", "--license"), ("hmx runs pull", "repo"),
        ("hmx runs pull", "--revision"),
        ("hmx study new", "study"), ("hmx study work", "--time"), ("hmx study work", "--memory"),
        ("hmx study work", "--image"), ("hmx study work", "--claim"),
    }  # fmt: skip
    assert {row[:2] for row in silent if row[2] not in FREE} == free_texts


@pytest.mark.parametrize("kind", ["complete_fish", "complete_zsh"])
def test_a_description_is_one_line(shell, kind):
    """In fish every line is a candidate; a long description must not be wrapped, whatever the width of the terminal."""
    asked = {"_TYPER_COMPLETE_ARGS": "hmx train --preset ", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    lines = shell("-m", "hmx", _HMX_COMPLETE=kind, COLUMNS="40", **asked).stdout.splitlines()
    assert max(map(len, lines)) > 100 and len(lines) == len(presets.names())


SETUP = {
    "bash": (["--norc", "-i"], f"source {COMPLETIONS}/hmx.bash"),
    "zsh": (["-f", "-i"], f"fpath=({COMPLETIONS} $fpath); autoload -Uz compinit; compinit -D -u"),
}


@pytest.mark.parametrize("name", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("keys", "shown"),
    [
        ("hmx train --preset qu\t", ["--preset quick "]),
        ("hmx train --preset s\t\t", ["scs-doc", "sound"]),
        ("bin/hmx evaluate corridor --checkpoint 3\t", ["--checkpoint 32 "]),
        ("hmx train --set algo.lr_w\t1", ["--set algo.lr_warmup=1"]),
        ("hmx train --set algo.lr_schedule=cos\t", ["algo.lr_schedule=cosine "]),
    ],
)
def test_tab_works_in_an_interactive_shell(runs, environ, name, keys, shown):
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    words, setup = SETUP[name]
    seen = typed([name, *words], setup, keys, shown, cwd=runs, env=on_path(runs, environ))
    assert all(text in seen for text in shown), seen


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("hmx train --preset s", ["scs", "scs-doc", "smax", "smax-vdn", "sound"]),
        ("bin/hmx evaluate corridor --checkpoint ", ["4", "32"]),
        ("hmx train --set algo.lr_w", ["algo.lr_warmup="]),
        ("hmx train --config ru", ["runs/"]),
    ],
)
def test_tab_works_in_fish(runs, environ, line, values):
    code = f"source {COMPLETIONS}/hmx.fish; complete -C '{line}'"
    env = on_path(runs, environ)
    done = subprocess.run(["fish", "--no-config", "-c", code], cwd=runs, env=env, capture_output=True, text=True)
    assert sorted(row.partition("\t")[0] for row in done.stdout.splitlines()) == sorted(values) and done.stderr == ""


def on_path(folder: Path, environ) -> dict[str, str]:
    """Put a program `hmx` on the PATH, and return the environment."""
    program = folder / "bin" / "hmx"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m hmx "$@"\n')
    program.chmod(0o755)
    return environ(PATH=f"{program.parent}:{os.environ['PATH']}", TERM="dumb", HOME=str(folder))


def typed(command: list[str], setup: str, keys: str, shown: list[str], **more) -> str:
    """Type into a shell on a terminal of its own; return what the terminal shows once it shows all of `shown`."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(command, stdin=end, stdout=end, stderr=end, start_new_session=True, **more)
    os.close(end)
    seen = ""
    try:
        # The quotes keep the echo of the first line apart from its output.
        for text, wanted in ((f"PS1='> '; {setup}; echo rea''dy\n", ["ready"]), (keys, shown)):
            os.write(terminal, text.encode())
            seen, deadline = "", time.monotonic() + 30
            while not all(part in seen for part in wanted) and time.monotonic() < deadline:
                if select.select([terminal], [], [], 0.2)[0]:
                    seen += os.read(terminal, 65536).decode(errors="replace")
    finally:
        process.kill()
        process.wait()
        os.close(terminal)
    return seen


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("bash", "complete -o default -F _hmx_completion hmx"),
        ("zsh", "#compdef hmx"),
        ("fish", "complete --command hmx"),
    ],
)
def test_script_is_that_of_the_named_shell(hmx, name, line):
    shown = hmx("--show-completion", name)
    assert shown.exit_code == 0 and line in shown.stdout


INSTALLED = {
    "bash": (".bash_completions/hmx.sh", "hmx.bash", ".bashrc"),
    "zsh": (".zfunc/_hmx", "_hmx", ".zshrc"),
    "fish": (".config/fish/completions/hmx.fish", "hmx.fish", None),
}


@pytest.mark.parametrize("name", INSTALLED)
def test_the_installed_script_is_the_one_in_completions(runs, environ, name):
    place, source, rc = INSTALLED[name]
    env = on_path(runs, environ)

    def printed(option: str) -> str:
        return subprocess.run(["hmx", option, name], env=env, capture_output=True, text=True, check=True).stdout

    for _ in range(2):  # a second time changes nothing
        assert f"{name} completion installed in {runs / place}" in printed("--install-completion")
        assert (runs / place).read_text() == (COMPLETIONS / source).read_text()
        assert rc is None or (runs / rc).read_text().count("bash_completions" if name == "bash" else ".zfunc") == 1
    assert printed("--show-completion") == (COMPLETIONS / source).read_text()
    if name == "bash":  # the values behind an equals sign, which Typer's script does not complete
        keys, seen = "hmx train --set algo.lr_schedule=cos\t", ["algo.lr_schedule=cosine "]
        typed_there = typed(["bash", "--norc", "-i"], "source ~/.bashrc", keys, seen, cwd=runs, env=env)
        assert seen[0] in typed_there


def test_other_shells_are_refused(hmx):
    refused = hmx("--install-completion", "tcsh")
    assert refused.exit_code == 2 and refused.stderr.startswith(
        "error: cannot complete in tcsh: expected bash, zsh, fish"
    )
