"""Help, version and Tab: quick, stable, and fit for any terminal."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from command_tree import leaves

import hmx.cli.boundary
from hmx.cli.app import _summary, app
from hmx.cli.commands import COMMAND_GROUPS, COMMANDS

PATHS = ("runs", *(name.removeprefix("hmx ") for name, _ in leaves()))
HEAVY = {"jax", "jaxlib", "flax", "optax", "orbax", "wandb", "numpy"}
METTA = ("--preset", "metta")
TYPES = re.compile(r"<[a-z]|x[<>]=")


@pytest.mark.parametrize(
    ("words", "environ"),
    [
        (["--help"], {}),
        (["--version"], {}),
        ([], {"_HMX_COMPLETE": "complete_bash", "COMP_WORDS": "hmx train --set algo.", "COMP_CWORD": "3"}),
        ([], {"_HMX_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "hmx evaluate "}),
        (["train", "--set", "algo.gama=1"], {}),
        (["compute-config", *METTA, "--num-agents", "24", "--sps", "1e5", "--gpu-mem", "1MB"], {}),
    ],
)
def test_help_and_sizes_import_nothing_heavy(loaded, words, environ):
    names = loaded(*words, **environ)
    assert {"hmx", "typer"} <= names  # the list itself is there
    assert not names & HEAVY


@pytest.mark.parametrize("line", ["hmx ", "hmx tr"])
def test_tab_for_a_command_imports_no_command(loaded, line):
    """Commands that show progress or tables import rich."""
    words = line.split(" ")
    names = loaded(_HMX_COMPLETE="complete_bash", COMP_WORDS="\n".join(words), COMP_CWORD=str(len(words) - 1))
    assert "typer" in names and "rich" not in names


@pytest.mark.parametrize("arguments", [("list", "--root", "{runs}"), ("verify", "{runs}/corridor")])
def test_runs_are_listed_and_verified_without_heavy_imports(loaded, trained, arguments):
    assert not loaded("runs", *(part.format(runs=trained) for part in arguments)) & HEAVY


def test_the_guard_against_heavy_imports_can_fail(loaded):
    assert loaded("--version", first="import numpy") & HEAVY


PAGES = """
import json, sys
from typer.testing import CliRunner
from hmx.cli.app import app
pages = {words: CliRunner().invoke(app, [*words.split(), "--help"], prog_name="hmx").stdout for words in sys.argv[1:]}
print(json.dumps([pages, sorted(sys.modules)]))
"""


@pytest.mark.parametrize("columns", [44, 80])
def test_help_fits_the_terminal_loads_nothing_heavy_and_lists_each_command_once(shell, columns):
    """The width is looked at when the program starts: a process for each, which shows the help of every command."""
    pages, modules = json.loads(shell("-c", PAGES, "", *PATHS, COLUMNS=str(columns)).stdout)
    assert not HEAVY.intersection(modules)
    assert set(pages) == {"", *PATHS}
    for command, page in pages.items():
        # An example stays on one line, so that it can be pasted.
        widest = max(len(line.rstrip()) for line in page.splitlines() if not line.startswith("    hmx "))
        assert 30 < widest <= columns, command
        assert "…" not in page, f"{command}: something was cut"
        assert not TYPES.search(page), f"{command}: help shows a type or a range"
    places = [re.search(rf"(?m)^(╭─ )?{title}( ─|:$)", pages[""]).start() for title in COMMAND_GROUPS]
    assert places == sorted(places)
    for (title, names), start, end in zip(COMMAND_GROUPS.items(), places, [*places[1:], None], strict=True):
        listed = re.findall(r"(?m)^[│ ] ([a-z][a-z-]+) {2}", pages[""][start:end])
        assert listed == list(names), title


def test_every_command_has_examples_that_it_accepts():
    commands = dict(leaves())
    assert len(commands) > 10
    for name, command in commands.items():
        assert command.examples, f"{name} has no example"
        for example in command.examples:
            assert example.startswith(name) and len(example) <= 76, f"{name}: wrapped in a terminal of 80 columns"
            command.make_context(name, shlex.split(example.removeprefix(name)))  # raises if it does not parse


def test_an_example_with_a_wrong_option_is_refused():
    (command,) = (command for name, command in leaves() if name == "hmx watch")
    with pytest.raises(Exception, match="No such option: --greed"):
        command.make_context("watch", ["--greed"])


def test_the_five_first_commands_come_first():
    assert list(COMMAND_GROUPS) == ["First steps", "Train", "Look", "Analyse", "Manage"]
    assert len(COMMAND_GROUPS["First steps"]) == 5 and COMMANDS[:5] == COMMAND_GROUPS["First steps"]
    assert len(set(COMMANDS)) == len(COMMANDS)


def test_the_version_is_that_of_the_project(hmx):
    source = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    version = re.search(r'^version = "(.+)"$', source, re.MULTILINE)[1]
    assert hmx("--version").stdout == f"hmx {version}\n"
    assert hmx_version_without_installation() == version


def hmx_version_without_installation() -> str:
    """What a source tree says that was never installed."""
    code = (
        "import sys, importlib.metadata as m; m.version = lambda n: (_ for _ in ()).throw(m.PackageNotFoundError(n));"
    )
    code += "import hmx; print(hmx.__version__)"
    root = Path(hmx.cli.boundary.__file__).parents[2]
    return subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True).stdout.strip()


def test_no_arguments_show_the_help(hmx):
    result = hmx()
    assert result.exit_code == 2
    assert "First steps" in result.output
    assert "error:" not in result.output


@pytest.mark.parametrize("words", ["train --help", "compute-config --preset metta --sweep num_agents=1,2"])
def test_a_closed_pipe_ends_a_command_quietly(environ, tmp_path, words):
    reader = "import sys; sys.stdin.close()"
    line = f'"{sys.executable}" -m hmx {words} | "{sys.executable}" -c "{reader}"'
    done = subprocess.run(["bash", "-c", line], env=environ(), cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr == ""


@pytest.mark.parametrize(("words", "imported"), [(["--help"], set()), (["runs", "list"], {"runs"})])
def test_a_command_imports_no_other_command(tmp_path, words, imported):
    code = (
        f"import sys; from hmx.cli.app import app; app({words}, standalone_mode=False);"
        "from hmx.cli.commands import COMMANDS;"
        "modules = [name.replace('-', '_') for name in COMMANDS];"
        "print([name for name in modules if f'hmx.cli.{name}' in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert set(ast.literal_eval(done.stdout.splitlines()[-1])) == imported


def test_the_list_of_commands_has_the_first_sentence_of_each_help():
    group = typer.main.get_command(app)
    for name, command in group.commands.items():
        assert _summary(name).split("\n\n")[0] == inspect.cleandoc(command.help).split("\n\n")[0]


@pytest.mark.parametrize("words", [("report",), ("runs", "rename"), ("presets",), ("compare",)])
def test_help_names_arguments_without_types_of_python(hmx, words):
    assert not re.search(r"<\w+>", hmx(*words, "--help").output)


@pytest.mark.parametrize(
    ("words", "usage"),
    [(["runs", "rm"], "{RUN}..."), (["report"], "{RUN}..."), (["compare"], "[SIDE]..."), (["review"], "{GAME}\n")],
)
def test_a_usage_line_says_which_arguments_may_be_repeated(hmx, words, usage):
    lines = hmx(*words, "--help").stdout.splitlines()
    line = next(line for line in lines if "Usage:" in line)
    assert usage in f"{line.rstrip()}\n"
