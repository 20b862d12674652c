"""The shape of every refusal."""

from __future__ import annotations

from typing import Any


def refused(result: Any, code: int, *parts: str, printed: bool = False) -> None:
    """Check that an error and its hint contain all parts; `printed` is whether JSON is printed too."""
    assert result.exit_code == code, result.output
    # At the limit of recursion pytest's own hook fails too (Python 3.13), and says so without a line of its own.
    shown = result.stderr.replace("Exception ignored in sys.unraisablehook", "")
    progress = ("starting: ", "starting ...", "compiling ")
    lines = [line for line in shown.splitlines() if not line.startswith(progress)]
    error, _, hint = "\n".join(lines).rpartition("\n\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert "Traceback" not in result.stderr and "crash" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert bool(result.stdout) == printed
