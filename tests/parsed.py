"""The package as syntax trees, parsed once, for the rules of its structure."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
Modules = dict[str, ast.Module]
parse = cache(ast.parse)


@cache
def parsed() -> Modules:
    """Return every module of the package by its path."""
    return {str(path.relative_to(ROOT)): parse(path.read_text()) for path in sorted(ROOT.glob("hmx/**/*.py"))}


def planted(source: str, name: str = "hmx/reports/planted.py") -> Modules:
    """Return a package of one module."""
    return {name: parse(source)}
