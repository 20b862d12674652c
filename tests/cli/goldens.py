"""Drawings for a terminal, and the files that hold what they have to look like."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from rich.console import Console

GOLDEN = Path(__file__).parent / "golden"


def rendered(what: Any, width: int) -> str:
    """What a console of that width makes of it, without blanks at the ends of lines."""
    console = Console(file=io.StringIO(), width=width, height=60, highlight=False, legacy_windows=False)
    console.print(what)
    return "".join(line.rstrip() + "\n" for line in console.file.getvalue().splitlines())


def as_committed(text: str, name: str, width: int) -> None:
    """The drawing is that of the file, nothing of it was cut, and it fits; RENEW_GOLDEN=1 accepts a change."""
    golden = GOLDEN / name
    if os.environ.get("RENEW_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text(), golden
    assert "…" not in text
    assert max(len(line) for line in text.splitlines()) <= width
