"""Errors of the Python API name arguments and calls, and these work when they are followed."""

from __future__ import annotations

import ast
import inspect
import pickle
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import hmx
from hmx.api.hints import _CALLS, _FLAGGED, _GATE, _SEARCH, in_python

pytestmark = pytest.mark.usefixtures("compiled_once")
TINY = {
    "env.id": "corridor", "env.num_envs": 4, "env.max_steps": 8, "algo.num_steps": 8, "net.hidden": [8],
    "ppo.num_minibatches": 1, "run.total_steps": 256, "run.eval_episodes": 0, "run.name": "first",
}  # fmt: skip
BASE = {**TINY, "run.name": "", "run.total_steps": 576}  # two updates in the first of three rungs
GAMMA = {"algo.gamma": [0.9, 0.99]}
Call = tuple[str, tuple[Any, ...], dict[str, Any]]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run and one new study."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        hmx.train(TINY, progress=False)
        hmx.new_study("lr", GAMMA, BASE, search={"confirm": 0})
    return folder


REFUSED: list[Call] = [
    ("load_config", ({"env.id": "corrido"},), {}),
    ("load_config", ({"algo.lerning_rate": 0.1},), {}),
    ("load_config", ({"env.num_envs": -1},), {}),
    ("load_config", (), {"preset": "quik"}),
    ("make_env", ("corrido",), {}),
    ("train", (TINY,), {}),
    ("train", ({**BASE, "run.devices": 99},), {}),
    ("resume", ("first",), {}),
    ("resume", ("first", {"net.hidden": [4]}), {}),
    ("fork", ("first", {"run.total_steps": 512}), {"name": "first"}),
    ("fork", ("first", {"net.hidden": [4]}), {}),
    ("evaluate", ("first",), {"episodes": 0}),
    ("evaluate", ("first",), {"policies": ["search"], "episodes": 2}),
    ("compare", ("first", "first"), {"metric": "train/mean_episode_retur"}),
    ("new_gate", ("g", BASE), {"options": {"max_seeds": 3}}),
    ("new_study", ("a", {}, BASE), {}),
    ("new_study", ("b", GAMMA, BASE), {"search": {"trials": 5}}),
    ("new_study", ("c", {"algo.gamma": "0.9..0.99"}, BASE), {"search": {"sampler": "grid"}}),
    ("new_study", ("d", GAMMA, {**BASE, "run.eval_episodes": 4}), {"search": {"metric": "evaluation", "rungs": 3}}),
    ("new_study", ("e", GAMMA, BASE), {"search": {"metric": "evaluation"}}),
    ("new_study", ("f", GAMMA, BASE), {"search": {"measure": "steps_to"}}),
    ("new_study", ("g", GAMMA, BASE), {"search": {"metric": "train/entropy"}}),
    ("new_study", ("h", GAMMA, BASE), {"search": {"metric": "train/mean_episode_retur"}}),
    ("new_study", ("lr", GAMMA, BASE), {}),
    ("extend_study", ("lr",), {}),
    ("extend_study", ("lr",), {"trials": 3}),
    ("best_config", ("lr",), {}),
    ("run_study", ("l",), {}),
]  # fmt: skip


def ways(call: Call, hint: str) -> list[Callable[[], object]]:
    """What a hint leads to: calls, or the refused call with other arguments."""
    found: list[Callable[[], object]] = []
    for part in re.split(r"; or |; |, or | or (?=\w+=|')", hint):
        if calls := [
            called for called in re.findall(r"hmx\.\w+\(.*?\)(?=$|,| [a-z]| \()", part) if not _placeholder(called)
        ]:
            found.append(lambda calls=calls: [eval(called, {"hmx": hmx}) for called in calls])
        elif "leave " not in part and (given := _arguments(part)) and not _placeholder(part):
            found.append(lambda given=given: _again(call, *given))
    return found


def _placeholder(text: str) -> bool:
    return re.search(r"\b[A-Z]{3,}\b|A\|B", text) is not None


def _arguments(part: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The keyword arguments and the entries of the mapping that a part of a hint names."""
    for start in re.finditer(r"\b\w+=|'", part):
        for end in range(len(part), start.end(), -1):
            text = part[start.start() : end]
            for source in (f"({{}}, dict({text}))", f"({{{text}}}, {{}})"):
                try:
                    entries, keywords = eval(source)  # the text of a hint, with literals only
                except (SyntaxError, NameError, TypeError, ValueError):
                    continue
                if isinstance(entries, dict):
                    return keywords, entries
    return None


def _again(call: Call, keywords: dict[str, Any], entries: dict[str, Any]) -> object:
    name, args, given = call
    function = getattr(hmx, name)
    bound = inspect.signature(function).bind(*args, **given)
    for key, value in keywords.items():
        old = bound.arguments.get(key)
        bound.arguments[key] = {**old, **value} if isinstance(old, dict) and key == "search" else value
    mapping = next(
        (key for key in ("settings", "changes", "values") if key in inspect.signature(function).parameters), ""
    )
    if entries:
        settings = {key: value for key, value in bound.arguments.get(mapping, {}).items() if key not in _misspelt}
        bound.arguments[mapping] = {**settings, **entries}
        if name == "make_env":
            bound.arguments["env"] = entries.get("env.id", bound.arguments["env"])
    return function(*bound.args, **bound.kwargs)


_misspelt = ("algo.lerning_rate",)


@pytest.mark.parametrize("call", REFUSED, ids=lambda call: f"{call[0]}-{list(call[2]) or len(call[1])}")
def test_a_hint_works_when_it_is_followed_in_python(
    call: Call, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, args, given = call
    monkeypatch.setattr("hmx.api.runs._own_sinks", lambda progress: [])
    for number in range(5):
        shutil.copytree(home, tmp_path / str(number))
        monkeypatch.chdir(tmp_path / str(number))
        with pytest.raises(hmx.HmxError) as refused:
            getattr(hmx, name)(*args, **given)
        error = refused.value
        assert str(error) == error.message
        assert not re.search(r"(?<![\w=-])--[a-z]", f"{error.message} {error.hint}"), (error.message, error.hint)
        followed = ways(call, error.hint)
        assert followed or re.search(r"did you mean|docs/|checkpoints|A\|B", error.hint), (error.message, error.hint)
        if number >= len(followed):
            break
        followed[number]()


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        (
            hmx.resume,
            "hmx resume runs/a --steps 8192 continues it",
            "hmx.resume('runs/a', changes={'run.total_steps': 8192}) continues it",
        ),
        (
            hmx.best_config,
            "confirm it: hmx study add lr --confirm 10 && hmx study work lr",
            "confirm it: hmx.extend_study('lr', confirm=10), then hmx.run_study('lr')",
        ),
        (
            hmx.evaluate,
            "hmx evaluate RUN, or hmx evaluate --policy random",
            "hmx.evaluate(RUN), or hmx.evaluate(policies=['random'])",
        ),
        (
            hmx.load_agent,
            "read it, then add --trust-env; hmx remembers it",
            "read it, then add trust=True; hmx remembers it",
        ),
        (
            hmx.train,
            "use another name: --name a-2; or delete it: --force",
            "use another name: 'run.name': 'a-2'; or delete it: force=True",
        ),
        (hmx.fork, "use another name: --name a-2", "use another name: name='a-2'"),
        (
            hmx.resume,
            "run.total_steps = -5 (--steps): must be at least 1",
            "run.total_steps = -5 (changes): must be at least 1",
        ),
        (
            hmx.new_study,
            "leave out --trials, or use --sampler random",
            "leave out 'trials', or use search={'sampler': 'random'}",
        ),
        (
            hmx.train,
            "hmx check-env corridor looks for it; hmx fork first --at 8 goes back",
            "hmx.check_env('corridor') looks for it; hmx.fork('first', at=8) goes back",
        ),
        (
            hmx.resume,
            "read it: --accept-env-change --trust-env",
            "read it: --accept-env-change --trust-env (command line)",
        ),
        (
            hmx.new_gate,
            "--max-seeds 9, or a larger --error, or a value with --set",
            "options={'max_seeds': 9}, or a larger 'error', or a value with set",
        ),
        (
            hmx.gate,
            "continue it: hmx gate try g; or end it: hmx gate try g --abandon",
            "continue it: hmx.gate('g'); or end it: hmx.gate('g', abandon=True)",
        ),
        (hmx.load_agent, "hmx runs show a --json", "hmx runs show a --json"),
        (
            hmx.train,
            "XLA_FLAGS=--xla_force_host_platform_device_count=4",
            "XLA_FLAGS=--xla_force_host_platform_device_count=4",
        ),
    ],
)
def test_options_become_arguments_and_commands_become_calls(
    function: Callable[..., object], text: str, expected: str
) -> None:
    """What has no counterpart in Python stays a command."""
    assert in_python(text, function) == expected


TYPED = {flag: field for flag, field in {**_FLAGGED, **_SEARCH, **_GATE}.items() if field.kind != "bool"}
FOLLOWED = re.compile(
    rf"(?<![\w=-])({'|'.join(TYPED)}|hmx (?:{'|'.join(_CALLS.keys() - {'train'})}))(?![\w-]) ([a-z]+)(?![\w=./-])"
)
VALUES = {
    **{flag: field.values for flag, field in TYPED.items()},
    "--devices": {"all"}, "--metric": {"evaluation"}, "--eval-episodes": {"games"},
}  # fmt: skip
"""Words that are values, and one of help texts, which are never translated."""


def texts(source: str) -> Iterator[str]:
    """The texts of a module; {} stands for what is filled in."""
    tree = ast.parse(source)
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.value


def prose(text: str) -> list[str]:
    """The options and commands of a text before a word that is not their value."""
    return [name for name, word in FOLLOWED.findall(text) if word not in VALUES.get(name, ())]


def test_an_option_or_command_in_a_message_has_its_value_after_it_or_a_sign() -> None:
    """Otherwise the next word of the sentence would become the value in Python."""
    assert prose("leave --trials out; hmx study new makes one") == ["--trials", "hmx study new"]
    assert not prose("use --sampler random to search; hmx study new NAME makes one; --trials: too many")
    root = Path(hmx.__file__).parent
    files = [file for file in root.rglob("*.py") if file.relative_to(root).parts[0] not in ("cli", "console")]
    found = {f"{file.name}: {text}" for file in files for text in texts(file.read_text()) if prose(text)}
    assert not found


@pytest.mark.parametrize("name", ["train", "evaluate", "compare", "load_agent", "run_study", "load_config"])
def test_a_function_of_the_api_can_be_sent_to_another_process(name: str) -> None:
    assert pickle.loads(pickle.dumps(getattr(hmx, name))) is getattr(hmx, name)
