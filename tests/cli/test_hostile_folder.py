"""Every command in a folder of hostile files: none of them runs unless the user has named or trusted it.

Files there have the names of Python's own modules and of packages, are found as an installed package would be, and are
named by run folders, a configuration and a study. Commands come from the command line itself, so new ones are tested.
"""

from __future__ import annotations

import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from command_tree import leaves
from typer.testing import CliRunner, Result

import hmx
from hmx.cli.app import app
from hmx.config import codec
from hmx.config.fields import replace
from hmx.errors import ExitCode
from hmx.records import atomic
from hmx.records import meta as metas
from hmx.records.paths import RunPaths
from hmx.registry import trust, user_code
from hmx.registry.load import load_stored

COMMANDS = dict(leaves())
RAN = "ran.txt"
MARK = f"""
import os
with open({{place!r}} + "/{RAN}", "a") as file:
    file.write(__name__ + " ")
"""
# An environment, a network and an algorithm in one; and an id of Gymnasium.
PAYLOAD = """
import jax.numpy as jnp
ACTIONS = 2
def reset(key):
    return jnp.zeros(()), jnp.zeros(2)
def step(state, action, key):
    return state + 1, jnp.zeros(2), 1.0, state >= 4
"""
WALK = """
import numpy as np
from helper import LENGTH

class Box:
    low, high, shape, dtype = np.full(2, -20.0), np.full(2, 20.0), (2,), np.dtype(np.float32)

class Discrete:
    n = 2

class Walk:
    observation_space, action_space = Box(), Discrete()
    def reset(self, *, seed=None, options=None):
        self.time = 0
        return np.zeros(2, np.float32), {}
    def step(self, action):
        self.time += 1
        return np.full(2, self.time, np.float32), float(action), self.time >= LENGTH, False, {}

class Late(Walk):
    def reset(self, *, seed=None, options=None):
        import late
        return super().reset(seed=seed)

def make():
    return Walk()
"""
PACKAGES = ("numpy", "jax", "jaxlib", "typer", "rich", "gymnasium", "hmx", "sitecustomize", "usercustomize", "wandb")
FOREIGN = {
    "file": {"env.id": "./payload.py"},
    "module": {"env.id": "payload:make"},
    "gymnasium": {"env.id": "gymnasium/payload:Walk-v0"},
    "submodule": {"env.id": "gymnasium/package.payload:Walk-v0"},
    "network": {"net.kind": "payload:make"},
    "algorithm": {"algo.name": "payload:make"},
}
"""What a foreign run or configuration names."""

ARGUMENTS = {
    "run": "runs/{}",
    "runs": "runs/{}",
    "path": "runs/{}",
    "source": "runs/{}",
    "study": "studies/{}",
    "gate": "gates/{}",
}
"""What an argument of a command is given."""

OTHERS = {
    "hmx compare": ["runs/{}", "runs/{}"],
    "hmx runs rename": ["copies/{}", "renamed"],
    "hmx runs rm": ["copies/{}"],
    "hmx runs push": ["runs/{}", "me/agent", "--to", "published-{}"],
    "hmx runs pull": ["me/agent", "runs/file"],  # a folder that exists: refused before the network is used
    "hmx study new": ["new", "--space", "algo.gamma=0.9|0.99"],
    "hmx gate new": ["new-{}"],
    "hmx gate adopt": ["gates/{}", "1"],
    "hmx gate try": ["gates/{}"],
    "hmx new-env": ["fresh"],
    "hmx presets": [],
    "hmx envs": [],
    "hmx check-env": ["corridor", "--steps", "64", "--no-speed"],
    "hmx play": ["--scenario", "nosuch"],
    "hmx board": ["--port", "0", "--root", "nosuch"],  # with a folder it serves until Ctrl-C
}
"""Commands whose arguments are of other kinds."""

REFUSING = {
    "train", "resume", "fork", "study work", "evaluate", "watch", "bench", "review", "grad-report", "score-buffer",
    "export", "gate new", "gate try",
}  # fmt: skip
"""Commands that build what a run, a configuration or a study names. All others only read the files."""

MORE = {
    "hmx resume": ["--steps", "8192"],
    "hmx fork": ["--name", "fork", "--steps", "8192"],
    "hmx runs rm": ["--yes"],
    "hmx gate try": ["--lr", "0.5"],
    "hmx watch": ["--save", "episode.svg"],
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    """The folder, with one foreign run, configuration and study for each entry of `FOREIGN`."""
    place = tmp_path_factory.mktemp("hostile")
    mark = MARK.format(place=str(place))
    for name in {*sys.stdlib_module_names, *PACKAGES} - {"__main__"}:
        (place / f"{name}.py").write_text(mark)
        if name in ("json", "collections", "numpy", "hmx"):  # a package comes before a module of its name
            (place / name).mkdir()
            (place / name / "__init__.py").write_text(mark)
    for folder in ("package", "jax_plugins"):
        (place / folder).mkdir()
        (place / folder / "__init__.py").write_text(mark)
    for file in ("payload.py", "package/payload.py", "jax_plugins/evil.py"):
        (place / file).write_text(mark + PAYLOAD)
    (place / "helper.py").write_text(mark + "LENGTH = 7\n")
    (place / "walk.py").write_text(WALK)
    info = place / "evil-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: evil\nVersion: 1.0\n")
    groups = ("hmx.environments", "hmx.algorithms", "hmx.sinks", "gymnasium.envs", "jax_plugins")
    (info / "entry_points.txt").write_text("".join(f"[{group}]\nevil = payload:make\n" for group in groups))
    for name, changes in FOREIGN.items():
        _make_foreign(place, trained / "corridor", name, changes)
    shutil.copytree(place / "runs", place / "copies")
    return place


def _make_foreign(place: Path, run: Path, name: str, changes: dict[str, str]) -> None:
    text = codec.to_toml(replace(load_stored(run).config, changes))
    (place / f"{name}.toml").write_text(text)
    paths = RunPaths(place / "runs", name)
    shutil.copytree(run, paths.folder)
    atomic.write_text(paths.config, text)
    meta = metas.read(paths.meta)
    metas.write(paths.meta, dataclasses.replace(meta, config_sha256=metas.sha256(text)))
    study = place / "studies" / name
    words = ["study", "new", str(study), "--config", str(run), "--steps", "4096", "--space", "algo.gamma=0.9|0.99"]
    assert CliRunner().invoke(app, words, prog_name="hmx").exit_code == 0
    base = load_stored(study / "configs" / "base.toml").config
    (study / "configs" / "base.toml").write_text(codec.to_toml(replace(base, changes)))
    gate = place / "gates" / name
    assert CliRunner().invoke(app, ["gate", "new", str(gate), "--config", str(run)], prog_name="hmx").exit_code == 0
    (gate / "attempts" / "0000" / "config.toml").write_text(codec.to_toml(replace(base, changes)))


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The command lines of the processes that are started."""
    lines: list[list[str]] = []
    start = subprocess.Popen.__init__

    def noting(self: Any, args: Any, *more: Any, **options: Any) -> None:
        lines.append([args] if isinstance(args, str) else [*args])
        start(self, args, *more, **options)

    monkeypatch.setattr(subprocess.Popen, "__init__", noting)
    return lines


@pytest.fixture
def run(place: Path, started: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Result]]:
    """Runs `hmx WORDS` in the folder, as a new process that trusts nothing; checks the processes that this starts."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("XDG_STATE_HOME", str(place / "state"))
    monkeypatch.setattr(trust, "_allowed", [])
    monkeypatch.setattr(user_code, "_modules", {})
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for module in ("payload", "package", "package.payload", "helper"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    assert not {"", os.curdir, str(place)} & {*sys.path}
    yield lambda *words: CliRunner().invoke(app, list(words), prog_name="hmx")
    assert all({"-P", "-I"} & {*line} for line in started if line[0] == sys.executable)
    shutil.rmtree(place / "state", ignore_errors=True)


def ran(place: Path) -> set[str]:
    """The modules that have run since the last call."""
    with open(place / RAN, "a+") as file:
        file.seek(0)
        names = file.read().split()
        file.truncate(0)
    return {*names}


def lines_of(name: str, foreign: str) -> Iterator[list[str]]:
    """Yield command lines of a command that read the foreign files of that name."""
    command, words = COMMANDS[name], name.split()[1:]
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    options = {option for param in command.params for option in param.opts}
    given = OTHERS.get(name, [ARGUMENTS.get(str(param.name), "") for param in arguments])
    assert "" not in given, f"what is {name} given? Add its argument to ARGUMENTS, or the command to OTHERS"
    more = [word.format(foreign) for word in (*given, *MORE.get(name, ()))]
    config = ["--config", f"{foreign}.toml"] if "--config" in options else []
    if name == "hmx compute-config" or not config:
        yield [*words, *more]
    if config:
        yield [*words, *(more if name in ("hmx study new", "hmx gate new") else []), *config]


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_runs_what_only_a_folder_names(run, place, name):
    for words in dict.fromkeys(tuple(words) for foreign in FOREIGN for words in lines_of(name, foreign)):
        result = run(*words)
        assert ran(place) == set(), words
        assert result.exit_code != ExitCode.UNEXPECTED, (words, result.stderr)
        if name.removeprefix("hmx ") in REFUSING:
            assert result.exit_code == ExitCode.USAGE, (words, result.stderr)
            assert "you have not trusted its code" in result.stderr and "--trust-env" in result.stderr, words


@pytest.mark.parametrize("foreign", [name for name in FOREIGN if name != "submodule"])
def test_trusted_code_runs(run, place, foreign):
    """The command above would have shown it."""
    result = run("evaluate", f"runs/{foreign}", "--trust-env", "--episodes", "2")
    assert ran(place) or (foreign == "gymnasium" and "gymnasium" in result.stderr and not find_spec("gymnasium"))


SIMULATED = {
    "train": ["--dry-run"],
    "watch": ["--random", "--save", "episode.svg"],
    "compute-config": [],
    "envs": [],
    "check-env": ["--no-speed", "--steps", "50"],
    "bench": [],
}
"""Commands that start workers for a simulator that the user names."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.thorough] if name == "bench" else []) for name in SIMULATED]
)
def test_workers_run_only_what_the_user_names(run, place, started, name):
    option = [] if COMMANDS[f"hmx {name}"].params[0].param_type_name == "argument" else ["--env"]
    result = run(name, *option, "./walk.py", *SIMULATED[name])
    assert result.exit_code == 0, result.stderr
    assert any("boot.py" in word for line in started for word in line)
    assert ran(place) == {"helper"}


def test_no_process_that_hmx_starts_has_the_folder_on_its_path():
    """Also none of those that the tests above do not reach, and no command that a hint gives."""
    files = Path(hmx.__file__).parent.rglob("*.py")
    found = [match[1] for file in files for match in re.finditer(r"sys\.executable\S*\s+\W?(\S\w+)", file.read_text())]
    assert len(found) >= 5 and {*found} <= {"-P", "-I"}, found


def test_every_command_that_takes_an_environment_is_among_them():
    taking = {name for name, command in COMMANDS.items() for param in command.params if "--env" in param.opts}
    of_a_run = {
        "hmx resume",
        "hmx fork",
        "hmx study new",
        "hmx gate new",
        "hmx gate try",
    }  # which build it as `train` does
    assert taking - of_a_run == {f"hmx {name}" for name in SIMULATED} - {"hmx envs", "hmx check-env"}


@pytest.fixture
def plain(tmp_path: Path, place: Path, trained: Path) -> Path:
    """A folder like `place`, with names that Python does not import before the program begins."""
    mark = MARK.format(place=str(tmp_path))
    for name in ("payload", "difflib", "jax", "numpy", "gymnasium", "tomllib"):
        (tmp_path / f"{name}.py").write_text(mark)
    shutil.copytree(place / "evil-1.0.dist-info", tmp_path / "evil-1.0.dist-info")
    _make_foreign(tmp_path, trained / "corridor", "gymnasium", FOREIGN["gymnasium"])
    _make_foreign(tmp_path, trained / "corridor", "evil", {"algo.name": "evil"})
    return tmp_path


def test_a_process_in_the_folder_runs_nothing_of_it(plain, environ):
    command = [sys.executable, "-m", "hmx", "evaluate", "runs/gymnasium"]
    done = subprocess.run(command, cwd=plain, env=environ(), capture_output=True, text=True)
    assert done.returncode == ExitCode.USAGE and "you have not trusted its code" in done.stderr
    assert ran(plain) == set()


NOTEBOOK = """
import jax, numpy, difflib, tomllib, sys
sys.path.insert(0, "")
import hmx
for run in ("gymnasium", "evil"):
    try:
        hmx.evaluate(f"runs/{run}")
    except hmx.HmxError as error:
        print(error)
"""


def test_a_notebook_in_the_folder_does_not_run_what_a_run_names(plain, environ):
    done = subprocess.run(
        [sys.executable, "-P", "-c", NOTEBOOK], cwd=plain, env=environ(), capture_output=True, text=True
    )
    assert done.stdout.count("payload.py: a run or a file names or imports it, but you have not trusted") == 2, done
    assert ran(plain) == set()


def test_workers_of_a_program_in_the_folder_run_only_its_own_modules(tmp_path, environ):
    """Python puts the folder of a program first on its path; `types` and the others are loaded before."""
    mark = MARK.format(place=str(tmp_path))
    for name in ("types", "enum", "functools", "collections", "re", "helper", "late"):
        (tmp_path / f"{name}.py").write_text(f"{mark}LENGTH = 7\n")
    (tmp_path / "walk.py").write_text(WALK)
    first = "import re, inspect, sys; sys.path.insert(0, ''); "
    command = [sys.executable, "-P", "-c", first + "import hmx; print(hmx.check_env('walk:Late', steps=20).passed)"]
    done = subprocess.run(command, cwd=tmp_path, env=environ(), capture_output=True, text=True)
    assert done.stdout == "True\n", done.stderr
    assert ran(tmp_path) == {"helper", "late"}
