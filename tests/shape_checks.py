"""Checks of argument types, array shapes and dtypes while tests run: `jaxtyping` annotations under `beartype`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

import jaxtyping
from beartype import BeartypeConf, beartype

PACKAGES = ["hmx.algos", "hmx.envs", "hmx.nets", "hmx.replay", "hmx.rl", "hmx.scoring"]
"""Packages whose functions are checked. Add one here when its array functions are annotated."""
RULES = "hmx.envs.hackmatrix.rules"
"""The package within them whose functions are not checked: they take NumPy arrays and tuples as well."""

_GENERIC_NAMED_TUPLES = re.compile(r"\b(TrainState|PpoState|DqnState|Algorithm)\b")  # beartype refuses them


_CONF = BeartypeConf(is_pep484_tower=True)  # an int is a float


_SHAPE = re.compile(r"\[.*[\"']")


def typechecker(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check a function by beartype, except for parameters whose type beartype does not support.

    Functions inside of functions are made thousands of times, which takes 1 ms with a check: only shapes are worth it.
    """
    annotations = getattr(function, "__annotations__", {})
    if "<locals>" in function.__qualname__ and not any(_SHAPE.search(str(hint)) for hint in annotations.values()):
        return function
    function.__annotations__ = {
        name: hint for name, hint in annotations.items() if not _GENERIC_NAMED_TUPLES.search(str(hint))
    }
    return beartype(conf=_CONF)(function)


class _Unchecked:
    """Find the modules of `RULES` before jaxtyping does."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if f"{name}.".startswith(f"{RULES}.") else None


def install() -> None:
    """Check all functions of `PACKAGES` that are imported from now on."""
    jaxtyping.install_import_hook(PACKAGES, "shape_checks.typechecker")
    sys.meta_path.insert(0, _Unchecked)
