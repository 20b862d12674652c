"""Named configurations: TOML files of a few keys each, applied over the defaults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hmx.config import codec
from hmx.config.textfile import quoted
from hmx.errors import HmxError, nearest

DEFAULT = "default"
REPRODUCTIONS = ("brax", "consequence", "metta", "scs", "scs-doc")
"""Presets with the sizes of other implementations or documents, to compare with; all others are to start from."""

_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of all presets, `default` (the schema itself) first."""
    return (DEFAULT, *sorted(file.stem for file in _FOLDER.glob("*.toml")))


def text(name: str) -> str:
    """Read the file of a preset.

    Raises:
        HmxError: no such preset.
    """
    known = names()
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean --preset {near}?" if near else f"presets are {', '.join(known)}"
        given = quoted(name) or '""'
        raise HmxError(f"there is no preset {given}", hint)
    if name == DEFAULT:
        return "# The defaults: HackMatrix, about five minutes on a laptop.\n"
    return (_FOLDER / f"{name}.toml").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """Return the purpose of a preset: the comment at the start of its file."""
    return text(name).partition("\n")[0].removeprefix("#").strip()


def values(name: str) -> dict[str, Any]:
    """Read the values that a preset sets, by dotted key."""
    return codec.parse_toml(text(name), f"preset {name}")[0]
