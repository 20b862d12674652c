"""Structural rules of the package; each rule is also shown to find a planted violation."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Modules = dict[str, ast.Module]
MAX_ANY_SHARE = 0.08


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Every module of the package, parsed."""
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text()) for path in sorted(ROOT.glob("hmx/**/*.py"))}


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
        if not name.startswith(("hmx/reports/", "hmx/cli/render/")):
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


def planted(source: str, name: str = "hmx/reports/planted.py") -> Modules:
    """Return a package of one module."""
    return {name: ast.parse(source)}


def test_no_public_class_name_stands_twice(modules: Modules) -> None:
    assert duplicate_classes(modules) == []


def test_a_duplicate_class_name_is_found() -> None:
    twice = planted("class A: ...") | planted("class A: ...", "hmx/other.py")
    assert duplicate_classes(twice) == ["A: hmx/reports/planted.py, hmx/other.py"]


def test_reports_and_renderers_are_typed(modules: Modules) -> None:
    assert mappings_of_any(modules) == []


def test_an_untyped_mapping_is_found() -> None:
    assert mappings_of_any(planted("def f(x: Mapping[str, Any]) -> dict[str, Any]: ...")) != []
    assert mappings_of_any(planted("def f(x: Mapping[str, Any]): ...", "hmx/jobs/a.py")) == []


def test_few_signatures_contain_any(modules: Modules) -> None:
    found, total = with_any(modules)
    assert len(found) < MAX_ANY_SHARE * total, f"{len(found)} of {total}: " + "\n".join(found)


def test_any_in_a_signature_is_found() -> None:
    assert with_any(planted("def f(x: list[Any]) -> int: ...\ndef g(x: int) -> int: ..."))[0] != []
