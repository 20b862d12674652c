"""References to code: `./file.py`, `./file.py:function`, `package.module:function` or `gymnasium/package.module:Id`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any, NamedTuple

FUNCTION = "make"
"""The function that a reference names by default."""

GYMNASIUM = "gymnasium/"
"""Before an id of Gymnasium, which may start with a module that registers it."""


class CodeReference(NamedTuple):
    """A reference in its two parts."""

    target: str  # path of a file, or dotted name of a module
    function: str


def is_reference(text: str) -> bool:
    """Return whether a value names user code, and not something that hmx or a package provides."""
    target, colon, _ = text.rpartition(":")
    return text.endswith(".py") or (bool(colon) and (target.endswith(".py") or "/" not in target))


def names_code(text: str) -> bool:
    """Return whether a value names something to import: user code, or a module before an id of Gymnasium."""
    return is_reference(text) or (text.startswith(GYMNASIUM) and ":" in text)


def parse(text: str) -> CodeReference:
    """Split a reference into target and function, or into the module and the rest of an id of Gymnasium."""
    if names_code(text) and not is_reference(text):
        module, _, name = text.removeprefix(GYMNASIUM).rpartition(":")
        return CodeReference(module, name)
    target, _, function = text.rpartition(":") if ":" in text else (text, "", "")
    return CodeReference(target, function or FUNCTION)


def name_of(text: str) -> str:
    """Return a short name for a reference, such as `net` for `./net.py:make`; anything else as it is."""
    if not is_reference(text):
        return text
    target, function = parse(text)
    stem = Path(target).stem if target.endswith(".py") else target.rpartition(".")[2]
    return stem if function == FUNCTION else f"{stem}-{function}"


def imported(place: str) -> Any:
    """Import the function that an entry names as `module:attribute`, when it is needed: entries import no JAX."""
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)  # noqa: TID251 - only places that entries of hmx name
