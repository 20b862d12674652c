"""Hints work when they are followed: the command lines that `tools/behaviour.py` records as refused, and files."""

from __future__ import annotations

import importlib.util
import re
import shlex
import shutil
from collections.abc import Iterator
from difflib import SequenceMatcher
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hmx.cli.app import app

ROOT = Path(__file__).parents[2]
Words = list[str]
PLAN = {"train": ["--dry-run"], "resume": ["--dry-run"], "fork": ["--dry-run"], "evaluate": ["--episodes", "4"]}
"""Options that keep a followed command short."""

ENDLESS = ("hmx board", "hmx play", "hmx bench")
PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|\.\.\.")
EXAMPLES = ("for example", "--last 10% or", "--sweep", "hmx compare tiny runs/another")
"""Hints that show the form of an option, with values of no run in particular."""


QUICK = ("train-set", "resume", "compare", "compute-config", "runs")


def refusals() -> Iterator[Any]:
    """The recorded command lines of the part `refusals` that set no environment variable."""
    text = (ROOT / "tools/behaviour/commands.txt").read_text()
    for name, lines in re.findall(r"^\[refusals/(.+)\]\n((?:.+\n)+)", text, re.MULTILINE):
        marks = () if name in QUICK else pytest.mark.thorough
        yield from (pytest.param(line, marks=marks) for line in lines.splitlines() if not line.startswith("HMX_"))


@pytest.fixture(scope="module")
def recorder() -> ModuleType:
    """`tools/behaviour.py` as a module."""
    spec = importlib.util.spec_from_file_location("behaviour", ROOT / "tools/behaviour.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def template(recorder: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the recorded command lines run."""
    folder: Path = tmp_path_factory.mktemp("template")
    recorder.fill(folder, ROOT)
    return folder


@pytest.fixture
def quick_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans without the memory of an update, as for programs that are too large to trace."""
    monkeypatch.setattr("hmx.runs.memory._update_bytes", lambda session: None)


def run(words: Words) -> Result:
    return CliRunner().invoke(app, words, prog_name="hmx")


def followed(words: Words, stderr: str) -> list[Words]:
    """The command lines that the hint of a refusal leads to, one for each alternative that is a command or option."""
    error, _, hint = stderr.rpartition("\nhint: ")
    hint = re.sub(r" \([^)]*\)", "", hint.strip())
    if hint.startswith(EXAMPLES) or PLACEHOLDER.search(hint):
        return []
    found = (_followed(words, error, part) for part in re.split(r"; or |; |, or ", hint))
    return [line for line in found if line]


def _followed(words: Words, error: str, part: str) -> Words:
    part = part.rpartition(": ")[2] if ": " in part and "hmx" not in part.partition(": ")[0] else part
    if guess := re.match(r"did you mean (.+?)\?", part):
        part = guess[1]
        if wrong := re.search(r"no such option: (\S+)", error):
            return [part if word == wrong[1] else word for word in words]
        if not part.startswith(("hmx ", "--")):
            nearest = max(words[1:] or words, key=lambda word: SequenceMatcher(None, word, part).ratio())
            return [part if word == nearest else word for word in words]
    if command := re.match(r"(?:run |add )?(hmx [^;]+?)(?: lists all.*| scores that run)?$", part):
        return shlex.split(command[1])[1:]
    if left_out := re.match(r"(?:leave (?:out )?|drop )(--\S+)", part):
        at = words.index(left_out[1])
        until = at + 1 + (len(words) > at + 1 and not words[at + 1].startswith("--"))
        return words[:at] + words[until:]
    if wrong := re.search(r"error: (\S+) = .*: unknown ", error):
        words = [f"{part.split()[-1]}" if word.startswith(f"{wrong[1]}=") else word for word in words]
    if option := re.match(r"(?:add )?(--[^;]+?)(?: removes.*| replaces it.*)?$", part):
        return with_options(words, shlex.split(option[1]))
    return []


def with_options(words: Words, options: Words) -> Words:
    """The words with options set: a new value replaces the one that was given."""
    words = list(words)
    at = [k for k, word in enumerate(options) if word.startswith("--")]
    for start, end in zip(at, [*at[1:], len(options)], strict=True):
        name, *values = options[start:end]
        given = [k for k, word in enumerate(words) if word == name]
        if name == "--set":
            given = [k for k in given if words[k + 1].partition("=")[0] == values[0].partition("=")[0]]
        if given:
            words[given[0] : given[0] + 1 + len(values)] = [name, *values]
        else:
            words += [name, *values]
    return words


@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize("line", list(refusals()))
def test_a_hint_works_when_it_is_followed(line, template, tmp_path, monkeypatch):
    words = shlex.split(line)
    for number in range(10):
        folder = tmp_path / str(number)
        shutil.copytree(template, folder)
        monkeypatch.chdir(folder)
        refusal = run(words)
        assert refusal.exit_code in (2, 3), refusal.stderr
        ways = [way for way in followed(words, refusal.stderr) if not " ".join(["hmx", *way]).startswith(ENDLESS)]
        if number >= len(ways):
            break
        done = run([*ways[number], *(PLAN.get(ways[number][0], []) if "--help" not in ways[number] else [])])
        installed = "not installed" not in done.stderr
        assert done.exit_code == 0 or not installed, (refusal.stderr, ways[number], done.stderr)


@pytest.mark.usefixtures("quick_plans")
@pytest.mark.parametrize(
    ("section", "written", "right"),
    [
        ("algo", 'learning_rate = "3e-4"', "learning_rate = 0.0003"),
        ("algo", 'learning_rate = "2.5e-4"', "learning_rate = 0.00025"),
        ("algo", 'learning_rate = " 1_0.5e-5 "', "learning_rate = 0.000105"),
        ("algo", 'learning_rate = "3e-4 per step"', "learning_rate = 0.0005"),  # the default
        ("algo", 'learning_rate = "inf"', "learning_rate = 0.0005"),
        ("algo", 'gamma = "99%"', "gamma = 0.99"),  # the default
        ("env", 'num_envs = "16 "', "num_envs = 16"),
        ("env", 'num_envs = "1e3"', "num_envs = 1000"),
        ("env", 'num_envs = "1_000"', "num_envs = 1000"),
        ("env", 'num_envs = "0x10"', "num_envs = 512"),  # the default
        ("env", "num_envs = -0.7", "num_envs = 512"),
        ("ppo", 'norm_adv = "false"', "norm_adv = false"),
        ("ppo", "norm_adv = 0", "norm_adv = false"),
        ("net", 'hidden = "64,32"', "hidden = [64, 32]"),
        ("net", "hidden = 64", "hidden = [64]"),
        ("net", 'activation = "tahn"', 'activation = "tanh"'),
        ("run", "name = 5", 'name = "5"'),
        ("run", 'devices = "all"', "devices = 0"),
    ],
)
def test_the_hint_about_a_file_is_the_value_that_was_meant(hmx, tmp_path, section, written, right):
    (tmp_path / "my.toml").write_text(f"[{section}]\n{written}\n")
    command = ["compute-config", "--config", "my.toml", "--env", "corridor"]
    refusal = hmx(*command)
    name, value = right.split(" = ")
    assert refusal.exit_code == 2
    assert refusal.stderr.rstrip().endswith(f"hint: in my.toml:2, section [{section}], set {name} to {value}")
    (tmp_path / "my.toml").write_text(f"[{section}]\n{right}\n")
    assert f"{section}.{name}" not in hmx(*command).stderr


@pytest.mark.parametrize("name", ["run.toml", "meta.json", "metrics.jsonl"])
def test_export_does_not_replace_a_file_that_the_run_needs(hmx, trained, name):
    place = trained / "corridor" / name
    before = place.read_bytes()
    for more in ([], ["--force"]):
        refusal = hmx("runs", "export", str(trained / "corridor"), "--output", str(place), *more)
        assert refusal.exit_code == 2 and "--force" not in refusal.stderr.replace(str(place), "")
        assert place.read_bytes() == before
