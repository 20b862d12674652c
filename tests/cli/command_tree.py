"""The commands of hmx, for tests that look at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from hmx.cli.app import app


def leaves(command: Any = None, name: str = "hmx") -> Iterator[tuple[str, Any]]:
    """Yield the name and the command of everything that can be run."""
    command = command or typer.main.get_command(app)
    if not hasattr(command, "commands"):
        yield name, command
    for word, sub in getattr(command, "commands", {}).items():
        yield from leaves(sub, f"{name} {word}")
