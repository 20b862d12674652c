"""Each algorithm and environment answers for itself: little else knows it by name, and no knowledge flows upward."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from parsed import Modules, parsed, planted

from hmx.config.option import ALGORITHMS, ON_POLICY
from hmx.config.references import imported
from hmx.config.schema import ENTRIES, ENV_IDS
from hmx.registry.algorithms import built_in, find_algorithm

NAMES = {
    "hmx/config/option.py": "the names, as a type, and which algorithms read an option",
    "hmx/reports/compare/differences.py": "titles of the sections of the configuration",
}
"""Modules outside an algorithm's folder that may name it, and why."""

MUTABLE = {
    "hmx/registry/trust.py": "what this process may run: trusted files",
    "hmx/registry/user_code.py": "loaded modules, functions from Python",
}
"""Modules outside `cli` whose state changes while they are used, and why."""

GAMES = {
    "hmx/config/presets/__init__.py": "what the defaults are for",
    "hmx/config/schema.py": "the places of entries, the default environment, and help texts",
    "hmx/console/panel.py": "the stage in the panel of a run",
    "hmx/console/progress.py": "the stage in the lines of a run",
    "hmx/jobs/evaluate.py": "the stages of an evaluation, whose names are public",
    "hmx/jobs/evaluation.py": "the stages of an evaluation, whose names are public",
    "hmx/jobs/requests.py": "an example in a help text",
    "hmx/reports/compare/request.py": "an example in a help text",
    "hmx/reports/report/document.py": "the stages of a run",
    "hmx/reports/report/figures.py": "the stages of a run",
    "hmx/reports/review/job.py": "reviews of saved games, which are of one game",
    "hmx/reports/summaries.py": "the stages of an evaluation",
}
"""Modules outside environments that know a game, and what of it; remove a module when it no longer does."""

MOST_WHOLE_CONFIGURATIONS = 49
"""Functions that take a whole `Config`, without the answers of entries; lower it when there are fewer."""


@pytest.fixture
def modules() -> Modules:
    return parsed()


def naming(modules: Modules) -> set[str]:
    """Return the modules that contain the name of an algorithm as a text, apart from the algorithm's folder."""
    return {
        module
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and node.value in set(ALGORITHMS) - {"ppo"}
        if not module.startswith(f"hmx/algos/{node.value}/")
    }


def deciding(modules: Modules) -> set[str]:
    """Return the modules that compare `algo.name`, or look something up by it."""
    found = set()
    for module, tree in modules.items():
        for node in ast.walk(tree):
            parts: list[ast.expr] = []
            if isinstance(node, ast.Compare):
                parts = [node.left, *node.comparators]
            elif isinstance(node, ast.Subscript):
                parts = [node.slice]
            elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".get"):
                parts = node.args
            if any(ast.unparse(part).endswith("algo.name") for part in parts):
                found.add(module)
    return found


def comparing_environments(modules: Modules) -> set[str]:
    """Return the modules outside `envs` that compare something with the id of a built-in environment."""
    return {
        module
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Compare) and not module.startswith("hmx/envs/")
        if any(isinstance(part, ast.Constant) and part.value in ENV_IDS for part in (node.left, *node.comparators))
    }


GAME = re.compile(
    r"hackmatrix|undo_|siphon|stages_completed|(highest|undo)_stage|stage_(mean|median|max|counts)"
    r"|corridor|\bslip\b|recall_delay|smax|world_state",
    re.IGNORECASE,
)
"""Names of environments, their options and their metrics."""


def knowing_games(modules: Modules) -> set[str]:
    """Return the modules of rooms that serve all environments with a name or a text, but no docstring, of one game."""
    rooms = ("hmx/config/", "hmx/records/", "hmx/jobs/", "hmx/console/", "hmx/reports/")
    return {
        module
        for module, tree in modules.items()
        if module.startswith(rooms)
        for node in ast.walk(tree)
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        for part in ast.iter_child_nodes(node)
        if GAME.search(" ".join(str(getattr(part, name, "")) for name in ("value", "attr", "id", "arg", "module")))
    }


def answers_of_entries() -> set[tuple[str, str]]:
    """Return module and name of every function of an entry: a question about a whole configuration, or a maker."""
    entries = [*built_in(), find_algorithm("game.py:make"), *ENTRIES]
    answers = set()
    for value in (value for entry in entries for value in entry):
        if isinstance(value, str) and value.startswith("hmx.") and ":" in value:
            module, _, name = value.partition(":")
            answers.add((module, name))
        elif callable(value):
            answers.add((value.__module__, value.__name__))
    return {(f"{module.replace('.', '/')}.py", name) for module, name in answers}


def with_whole_configuration(modules: Modules) -> list[str]:
    """Return the functions with a parameter of type `Config`, apart from those of entries."""
    answers = answers_of_entries()
    return [
        f"{module}:{node.lineno} {node.name}"
        for module, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (module, node.name) not in answers
        if any(
            arg.annotation and ast.unparse(arg.annotation) == "Config"
            for arg in (*node.args.args, *node.args.kwonlyargs)
        )
    ]


CHANGES = {"append", "add", "update", "setdefault", "pop", "clear", "extend", "remove", "insert"}


def changing(modules: Modules) -> set[str]:
    """Return the modules outside `cli` with a function that changes a name of the module or an attribute of a class."""
    found = set()
    for module, tree in modules.items():
        if module.startswith("hmx/cli/"):
            continue
        names = _global_names(tree)
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                foreign = names - _local_names(function)
                if any(_changes(node, foreign) for node in ast.walk(function)):
                    found.add(module)
    return found


def _global_names(tree: ast.Module) -> set[str]:
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    return names | {name for node in tree.body for name in _assigned(node)}


def _local_names(function: ast.FunctionDef) -> set[str]:
    args = function.args
    given = {arg.arg for arg in (*args.posonlyargs, *args.args, *args.kwonlyargs)}
    return given | {name for node in ast.walk(function) for name in _assigned(node)}


def _assigned(node: ast.AST) -> Iterator[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (target.id for target in targets if isinstance(target, ast.Name))


def _changes(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.Global):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
        return isinstance(node.func.value, ast.Name) and node.func.value.id in names
    targets = node.targets if isinstance(node, ast.Assign | ast.Delete) else []
    every = [part for target in targets for part in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return any(
        isinstance(part, ast.Subscript | ast.Attribute) and isinstance(part.value, ast.Name) and part.value.id in names
        for part in every
    )


def test_algorithms_are_named_only_in_their_folders_and_the_schema(modules: Modules) -> None:
    assert naming(modules) == NAMES.keys()


def test_a_name_elsewhere_is_found() -> None:
    assert naming(planted("if cfg.algo.name == 'dqn': ...")) == {"hmx/reports/planted.py"}
    assert naming(planted("name = 'dqn'", "hmx/algos/dqn/entry.py")) == set()


def test_algorithm_is_asked_and_not_compared(modules: Modules) -> None:
    assert deciding(modules) == set()


@pytest.mark.parametrize(
    "source", ["cfg.algo.name in NAMES", "TABLE[cfg.algo.name]", "TABLE.get(run.cfg.algo.name, 1)"]
)
def test_a_decision_by_name_is_found(source: str) -> None:
    assert deciding(planted(source)) == {"hmx/reports/planted.py"}


def test_environment_is_asked_and_not_compared(modules: Modules) -> None:
    assert comparing_environments(modules) == set()


@pytest.mark.parametrize("source", ["cfg.env.id == 'hackmatrix'", "'corridor' != spec.id"])
def test_a_compared_environment_is_found(source: str) -> None:
    assert comparing_environments(planted(source)) == {"hmx/reports/planted.py"}
    assert comparing_environments(planted(source, "hmx/envs/hackmatrix/planted.py")) == set()


def test_rooms_that_serve_all_environments_know_no_game(modules: Modules) -> None:
    assert knowing_games(modules) == GAMES.keys()


@pytest.mark.parametrize("source", ["wins = row.undo_stages", "play(slip=0.1)", "'stats/highest_stage' in means"])
def test_a_fact_of_a_game_is_found(source: str) -> None:
    assert knowing_games(planted(source)) == {"hmx/reports/planted.py"}
    assert knowing_games(planted(source, "hmx/envs/small/planted.py")) == set()
    assert knowing_games(planted(f'"""Say: {source}."""')) == set()


def test_few_functions_take_the_whole_configuration(modules: Modules) -> None:
    assert len(with_whole_configuration(modules)) == MOST_WHOLE_CONFIGURATIONS


def test_a_whole_configuration_is_found() -> None:
    assert with_whole_configuration(planted("def f(x: int, *, cfg: Config): ...")) == ["hmx/reports/planted.py:1 f"]
    assert with_whole_configuration(planted("def advice(cfg: Config): ...")) == ["hmx/reports/planted.py:1 advice"]


def test_answers_of_entries_may_take_the_whole_configuration() -> None:
    for module, name in (("hmx/algos/dqn/entry.py", "advice"), ("hmx/algos/ppo/update.py", "make_ppo")):
        assert with_whole_configuration(planted(f"def {name}(cfg: Config): ...", module)) == []


def test_modules_keep_no_state(modules: Modules) -> None:
    assert changing(modules) == MUTABLE.keys()


@pytest.mark.parametrize(
    "source",
    [
        "_known = {}\ndef learn(name):\n  _known[name] = 1",
        "_known: list[str] = []\ndef learn(name):\n  _known.append(name)",
        "_last = 0\ndef learn(name):\n  global _last\n  _last = name",
        "class Trust:\n  all = False\ndef trust():\n  Trust.all = True",
    ],
)
def test_state_of_a_module_is_found(source: str) -> None:
    assert changing(planted(source)) == {"hmx/reports/planted.py"}


def test_a_local_name_is_not_state_of_a_module() -> None:
    assert changing(planted("rows = ()\ndef f(x):\n  rows = []\n  rows.append(x)\n  return rows")) == set()


def test_on_policy_algorithms_are_those_whose_entries_have_no_replay() -> None:
    assert {entry.name for entry in built_in() if not entry.replays} == set(ON_POLICY)


@pytest.mark.parametrize("entry", built_in(), ids=ALGORITHMS)
def test_every_function_that_an_entry_names_exists(entry) -> None:
    for place in filter(None, (entry.make, entry.policy_outputs, entry.reporter)):
        assert callable(imported(place))
