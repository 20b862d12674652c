"""Structural rules of the package; each rule is also shown to find a planted violation."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator

import pytest
from parsed import ROOT, Modules, parsed, planted

from hmx.config.fields import FIELDS

MAX_ANY_SHARE = 0.08
HOMONYMS = {
    "advantage": "estimator of PPO; advantage of a gradient report",
    "batch_size": "transitions of Q-learning; agent steps of the batch equations",
    "chunk": "positions scored in parallel; parts of groups in a gradient report",
    "episodes": "to watch: of hmx watch and of its job, which the command line imports late",
    "kind": "of a network, a score or a series",
    "mixing": "how replay samples; how a report on scores assumes that it does",
    "num_agents": "of an environment; of the batch equations, with the defaults of Metta",
    "num_envs": "of a run; of a check or an adapter of an environment",
    "num_steps": "of a rollout; of a check of an environment",
    "parameter": "of a policy; of the policy of scores",
    "update_epochs": "of PPO; of the batch equations, with the defaults of Metta",
    "seconds": "of a benchmark; of waiting for the first message of a connection",
    "to": "the format of metrics, and that of a policy",
}
"""Names of options whose default stands in several places, since they mean different things."""
FREE_TEXT = {
    "run.init_from", "run.name", "run.root", "run.wandb_project", "run.sink", "env.id", "net.kind", "net.sha256",
    "algo.name", "algo.sha256", "ppo.ref",
}  # fmt: skip
GENERIC = {"name", "kind", "metric"}  # names of options that other things have too

COMMAND_NAMES = "|".join(path.stem.replace("_", "-") for path in ROOT.glob("hmx/cli/[a-z]*.py"))
COMMAND = re.compile(
    rf"(?:^|[\s`(])(?:hmx (?:{COMMAND_NAMES})|mv|cp|rm|mkdir -p"
    r"|--(?:checkpoint|config|env|from-buffer|html|init-from|name|output))(?: [^\s`;,.)]+)*[ =]$"
)
"""Text before a value in a command for the user to paste."""
HARMLESS = {
    "2 * steps": "a number",
    "METTA": "the name of a preset",
    "clean_run_name(name)": "letters, digits, dots, dashes and underscores",
    "config": "quoted where it is assigned",
    "found.intact[-1]": "a number",
    "given": "quoted where it is assigned",
    "more": "quoted where it is assigned",
    "name": "a checked name of a side; the argument of `hmx resume`, which is quoted",
    "option": "a constant or a number",
    "request.checkpoint": "a number",
    "paths.name": "a name that was given to a run, and so checked",
    "place": "quoted where it is assigned",
    "run": "quoted where it is assigned",
    "stem": "the name of a module",
    "study": "quoted where it is assigned",
    "trials": "a number",
}
"""Values in commands that need no quotes for the shell, and why."""


@pytest.fixture
def modules() -> Modules:
    return parsed()


def duplicate_classes(modules: Modules) -> list[str]:
    """Return public class names that are defined in more than one module."""
    places = defaultdict(list)
    for name, tree in modules.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(name)
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def mappings_of_any(modules: Modules) -> list[str]:
    """Return annotations `Mapping[str, Any]` and `dict[str, Any]` in reports and renderers."""
    found = []
    for name, tree in modules.items():
        if not name.startswith(("hmx/reports/", "hmx/render/")):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Subscript) and ast.unparse(node) in ("Mapping[str, Any]", "dict[str, Any]"):
                found.append(f"{name}:{node.lineno}")
    return found


def functions(modules: Modules) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield every function with its place."""
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield f"{name}:{node.lineno} {node.name}", node


def signature(function: ast.FunctionDef) -> list[ast.expr]:
    """Return the annotations of a function."""
    args = function.args
    every = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
    found = [arg.annotation for arg in every if arg is not None and arg.annotation is not None]
    return [*found, function.returns] if function.returns is not None else found


def with_any(modules: Modules) -> tuple[list[str], int]:
    """Return the functions whose signature contains `Any`, and the number of all functions."""
    total, found = 0, []
    for place, function in functions(modules):
        total += 1
        names = {n.id for a in signature(function) for n in ast.walk(a) if isinstance(n, ast.Name)}
        if "Any" in names:
            found.append(place)
    return found, total


def imports(modules: Modules) -> dict[str, set[str]]:
    """Return the modules that each module imports, also inside functions and for types only."""
    names = {path.removesuffix(".py").removesuffix("/__init__").replace("/", "."): path for path in modules}
    found: dict[str, set[str]] = {path: set() for path in modules}
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module:
                targets = [name for alias in node.names if (name := f"{node.module}.{alias.name}") in names]
                found[path] |= {names[name] for name in targets or [node.module] if name in names}
            elif isinstance(node, ast.Import):
                found[path] |= {names[alias.name] for alias in node.names if alias.name in names}
    return found


def circles(modules: Modules) -> set[str]:
    """Return the modules that import themselves, directly or through others."""
    left = imports(modules)
    while free := {path for path, targets in left.items() if not targets & left.keys()}:
        left = {path: targets for path, targets in left.items() if path not in free}
    while free := left.keys() - {target for targets in left.values() for target in targets}:
        left = {path: targets for path, targets in left.items() if path not in free}
    return set(left)


def test_no_modules_import_each_other(modules: Modules) -> None:
    assert circles(modules) == set()


def test_a_circle_of_imports_is_found() -> None:
    two = planted("import hmx.b", "hmx/a.py") | planted("def f():\n  from hmx.a import g", "hmx/b.py")
    user = planted("from hmx import a", "hmx/c.py") | planted("", "hmx/d.py")
    assert circles(two | user) == {"hmx/a.py", "hmx/b.py"}


def test_public_class_names_are_unique(modules: Modules) -> None:
    assert duplicate_classes(modules) == []


def test_a_duplicate_class_name_is_found() -> None:
    twice = planted("class A: ...") | planted("class A: ...", "hmx/other.py")
    assert duplicate_classes(twice) == ["A: hmx/reports/planted.py, hmx/other.py"]


def test_reports_and_renderers_are_typed(modules: Modules) -> None:
    assert mappings_of_any(modules) == []


def test_an_untyped_mapping_is_found() -> None:
    assert mappings_of_any(planted("def f(x: Mapping[str, Any]) -> dict[str, Any]: ...")) != []
    assert mappings_of_any(planted("def f(x: Mapping[str, Any]): ...", "hmx/jobs/a.py")) == []


def test_share_of_signatures_with_any_is_limited(modules: Modules) -> None:
    found, total = with_any(modules)
    assert len(found) < MAX_ANY_SHARE * total, f"{len(found)} of {total}: " + "\n".join(found)


def test_any_in_a_signature_is_found() -> None:
    assert with_any(planted("def f(x: list[Any]) -> int: ...\ndef g(x: int) -> int: ..."))[0] != []


def option_names(modules: Modules) -> set[str]:
    """Return the names that a class declares with `opt`."""
    classes = (node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return {f.target.id for kind in classes for f in kind.body if isinstance(f, ast.AnnAssign) and is_option(f.value)}


def is_option(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) == "opt"


def defaults(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield name and default of every field of a class and every parameter of a function, such as a command."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for field in node.body:
                if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.value is not None:
                    yield field.target.id, field.value.args[0] if is_option(field.value) else field.value
        elif isinstance(node, ast.FunctionDef):
            args = node.args
            with_default = args.args[len(args.args) - len(args.defaults) :]
            yield from zip([a.arg for a in with_default], args.defaults, strict=True)
            keywords = zip(args.kwonlyargs, args.kw_defaults, strict=True)
            yield from ((arg.arg, value) for arg, value in keywords if value is not None)


def defaults_twice(modules: Modules, homonyms: set[str]) -> dict[str, list[str]]:
    """Return the options whose default is written in several places, other than as a value that means "absent".

    `hmx.rl` and the rules of HackMatrix are left out: they know no configuration, so their functions have defaults of
    their own.
    """
    names, places = option_names(modules), defaultdict(list)
    for module, tree in modules.items():
        for name, value in () if module.startswith(("hmx/rl/", "hmx/envs/hackmatrix/rules/")) else defaults(tree):
            constant = isinstance(value, ast.Constant) and value.value
            if name in names - homonyms and (constant or (isinstance(value, ast.Tuple) and value.elts)):
                places[name].append(f"{module}:{value.lineno}")
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def open_choices(modules: Modules) -> list[str]:
    """Return parameters and fields of type `str` that take one of a few values.

    A parameter is found if it is compared with several words, or has the name of an option with choices.
    """
    named = {field.name for field in FIELDS.values() if field.choices} - GENERIC
    found = []
    for module, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                typed = [a for a in (*node.args.args, *node.args.kwonlyargs) if a.annotation is not None]
                strings = [a.arg for a in typed if ast.unparse(a.annotation) == "str"]
                found += [f"{module} {node.name} {a}" for a in strings if a in named or len(compared(node, a)) > 1]
            elif isinstance(node, ast.ClassDef):
                fields = [f for f in node.body if isinstance(f, ast.AnnAssign) and ast.unparse(f.annotation) == "str"]
                found += [f"{module} {node.name}.{f.target.id}" for f in fields if f.target.id in named]
    return found


def compared(function: ast.FunctionDef, name: str) -> set[str]:
    """Return the words that a parameter is compared with, or that index a literal mapping with it."""
    words: set[str] = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Compare) and ast.unparse(node.left) == name:
            constants = [c.value for part in node.comparators for c in ast.walk(part) if isinstance(c, ast.Constant)]
            words |= {word for word in constants if isinstance(word, str) and re.fullmatch("[a-z][a-z_]+", word)}
        elif isinstance(node, ast.Subscript) and isinstance(node.value, ast.Dict) and ast.unparse(node.slice) == name:
            words |= {str(ast.literal_eval(key)) for key in node.value.keys if key is not None}
    return words


def test_every_option_has_one_default(modules: Modules) -> None:
    assert defaults_twice(modules, set(HOMONYMS)) == {}
    assert HOMONYMS.keys() <= defaults_twice(modules, set()).keys(), "an exception is not needed any more"


@pytest.mark.parametrize(
    "second",
    ["class B:\n  mu: float = 0.5", "class B:\n  mu = 0\n  mu: float = opt(0.7, 'share')", "def f(*, mu=0.5): ..."],
)
def test_a_second_default_is_found(second: str) -> None:
    declared = planted("class A:\n  mu: float = opt(0.5, 'share')", "hmx/config/schema.py")
    assert list(defaults_twice(declared | planted(second), set())) == ["mu"]
    assert defaults_twice(declared | planted(second, "hmx/rl/planted.py"), set()) == {}
    assert defaults_twice(declared | planted("def f(mu: float = A.mu, nu=0.5, *, other=None): ..."), set()) == {}


def test_closed_choices_are_literal(modules: Modules) -> None:
    assert open_choices(modules) == []
    assert {key for key, field in FIELDS.items() if field.kind == "str" and not field.choices} == FREE_TEXT


@pytest.mark.parametrize(
    "source",
    [
        "def f(mode: str):\n  return 1 if mode == 'fast' else 2 if mode == 'slow' else 3",
        "def f(mode: str):\n  return mode in ('fast', 'slow')",
        "def f(mode: str):\n  return {'fast': 1, 'slow': 2}[mode]",
        "def f(*, activation: str): ...",
        "class A:\n  rnn: str = 'none'",
    ],
)
def test_an_open_choice_is_found(source: str) -> None:
    assert len(open_choices(planted(source))) == 1
    assert open_choices(planted(source.replace(": str", ": Literal['fast', 'slow']"))) == []


def unquoted(modules: Modules) -> dict[str, list[str]]:
    """Return the values in commands for the user to paste that are not quoted for the shell, with their places."""
    found = defaultdict(list)
    for module, tree in modules.items():
        for node in ast.walk(tree):
            text = ""
            for part in node.values if isinstance(node, ast.JoinedStr) else ():
                if isinstance(part, ast.FormattedValue):
                    value = ast.unparse(part.value)
                    if (
                        COMMAND.search(text)
                        and not value.endswith(".argument")
                        and not value.startswith("shlex.quote(")
                    ):
                        found[value].append(f"{module}:{node.lineno}")
                    text += "X"
                else:
                    text += ast.literal_eval(part)
    return found


def test_commands_to_paste_are_quoted_for_the_shell(modules: Modules) -> None:
    found = unquoted(modules)
    assert {value: places for value, places in found.items() if value not in HARMLESS} == {}
    assert HARMLESS.keys() <= found.keys(), "an exception is not needed any more"


@pytest.mark.parametrize(
    "text", ["hmx resume {folder} continues", "mv {folder} x", "see: hmx watch RUN --checkpoint {at}"]
)
def test_an_unquoted_command_is_found(text: str) -> None:
    assert len(unquoted(planted(f'f"{text}"'))) == 1
    assert unquoted(planted(f'f"{text}"'.replace("{", "{shlex.quote(").replace("}", ")}"))) == {}
    assert unquoted(planted('f"cannot read {path}"')) == {}
