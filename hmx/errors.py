"""Errors of the user: a message, a hint, and an exit code."""

from __future__ import annotations

import enum


class ExitCode(enum.IntEnum):
    """Process exit codes, the same for every command."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    ARTEFACT = 3
    CHECK_FAILED = 4
    SIGINT = 130
    SIGTERM = 143


class HmxError(Exception):
    """A failure the user can do something about.

    Args:
        message: what is wrong, one sentence or one line per problem.
        hint: the value or command that fixes it.
        exit_code: what the process ends with.
    """

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode = ExitCode.USAGE) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code
