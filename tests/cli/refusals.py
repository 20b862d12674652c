"""What every refusal looks like."""

from __future__ import annotations

from typing import Any


def refused(result: Any, code: int, *parts: str, printed: bool = False) -> None:
    """The error says all of this, in the shape that every error has; only an answer in JSON is printed as well."""
    assert result.exit_code == code, result.output
    error, _, hint = result.stderr.rpartition("\n\n")
    assert error.startswith("error: ") and hint.startswith("hint: ")
    assert "Traceback" not in result.stderr and "crash" not in result.stderr
    for part in parts:
        assert part in result.stderr
    assert bool(result.stdout) == printed
