"""Named starting points: TOML files of a few keys each, laid over the defaults."""

from __future__ import annotations

from typing import Any

from hmx.config import codec
from hmx.config.names import nearest
from hmx.config.textfile import quoted
from hmx.errors import HmxError

DEFAULT = "default"


def names() -> tuple[str, ...]:
    """Every preset, `default` (the schema itself) first."""
    from importlib.resources import files  # slow to import, and only needed with a preset

    found = sorted(f.name.removesuffix(".toml") for f in files(__name__).iterdir() if f.name.endswith(".toml"))
    return (DEFAULT, *found)


def text(name: str) -> str:
    """The file of a preset.

    Raises:
        HmxError: no such preset.
    """
    from importlib.resources import files

    known = names()
    if name not in known:
        near = nearest(name, known)
        hint = f"did you mean --preset {near}?" if near else f"presets are {', '.join(known)}"
        given = quoted(name) or '""'
        raise HmxError(f"there is no preset {given}", hint)
    if name == DEFAULT:
        return "# The defaults: HackMatrix, about five minutes on a laptop.\n"
    return (files(__name__) / f"{name}.toml").read_text(encoding="utf-8")


def summary(name: str) -> str:
    """What a preset is for: the comment its file begins with."""
    return text(name).partition("\n")[0].removeprefix("#").strip()


def values(name: str) -> dict[str, Any]:
    """The values a preset sets, by dotted key.

    Raises:
        HmxError: no such preset.
    """
    return codec.parse_toml(text(name), f"preset {name}").values
