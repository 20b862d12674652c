"""The shape of every refusal."""

from __future__ import annotations

import json
from typing import Any


def refused(result: Any, code: int, *parts: str, printed: bool = False) -> None:
    """Check that an error and its hint, as text or with --json as an object, contain all parts.

    `printed` is whether JSON is printed too.
    """
    assert result.exit_code == code, result.output
    # At the limit of recursion pytest's own hook fails too (Python 3.13), and says so without a line of its own.
    shown = result.stderr.replace("Exception ignored in sys.unraisablehook", "")
    progress = ("starting: ", "starting ...", "compiling ")
    lines = [line for line in shown.splitlines() if not line.startswith(progress)]
    if lines[-1].startswith("{"):
        told = json.loads(lines[-1])
        assert list(told) == ["error", "hint", "exit_code"] and told["exit_code"] == code
        lines = [*lines[:-1], f"error: {told['error']}\n\nhint: {told['hint']}"]
    text = "\n".join(lines)
    error, _, hint = text.rpartition("\n\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert "Traceback" not in result.stderr and "crash" not in result.stderr
    for part in parts:
        assert part in text
    assert bool(result.stdout) == printed
