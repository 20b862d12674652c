"""Errors of the user (a message, a hint, and an exit code), and functions that write messages."""

from __future__ import annotations

import contextlib
import enum
import warnings
from collections.abc import Iterable
from pathlib import Path


class ExitCode(enum.IntEnum):
    """Process exit codes, the same for every command."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    ARTEFACT = 3
    CHECK_FAILED = 4
    NOT_CHECKED = 5
    SIGHUP = 129
    SIGINT = 130
    SIGTERM = 143


class HmxError(Exception):
    """A failure that the user can fix.

    Args:
        message: what is wrong, one sentence or one line per problem.
        hint: the value or command that fixes it.
        exit_code: exit code of the process.
    """

    def __init__(self, message: str, hint: str = "", exit_code: ExitCode = ExitCode.USAGE) -> None:
        message = shortened(message)  # a part may come from a file, or from user code
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_code = exit_code


class Unavailable(UserWarning):
    """A warning of an estimate or a cache that failed, or of a setting of an earlier version that is ignored."""


class optional(contextlib.AbstractContextManager[None]):
    """Turn an error of the block into a warning, and continue after the block.

    It surrounds estimates and caches, which no run needs, and which call functions that JAX does not promise. An
    `HmxError` is raised as it is.

    Args:
        doing: what the block does, as in "estimate the memory of an update".
    """

    def __init__(self, doing: str) -> None:
        self._doing = doing

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> bool:
        if not isinstance(error, Exception) or isinstance(error, HmxError):
            return False
        text = f"cannot {self._doing}; continuing without it: {type(error).__name__}: {one_line(error)}"
        warnings.warn(text, Unavailable, stacklevel=2)
        return True


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` most likely stands for, or None.

    Names are also near if they share initials (`lr` and `learning_rate`), a part (`minibatch` and `num_minibatches`)
    or, for dotted names, the part after the dot.
    """
    from difflib import get_close_matches  # slow to import

    names = list(dict.fromkeys(known))
    wanted = name.strip().lower().replace("-", "_")
    if not wanted:
        return None
    lowered = {n.lower().replace("-", "_"): n for n in reversed(names)}
    if wanted in lowered:
        return lowered[wanted]
    last = wanted.rpartition(".")[2]
    if "." in next(iter(lowered), ""):
        same_last = [n for low, n in lowered.items() if low.rpartition(".")[2] == last]
        if same_last:
            section = get_close_matches(wanted, [n.lower() for n in same_last], n=1, cutoff=0.0)
            return next(n for n in same_last if n.lower() == section[0])
    for low, original in lowered.items():
        initials = "".join(word[0] for word in low.rpartition(".")[2].split("_") if word)
        if initials == last and len(last) > 1:
            return original
    if close := get_close_matches(wanted, lowered, n=1, cutoff=0.72):
        return lowered[close[0]]
    tails = {low.rpartition(".")[2]: original for low, original in lowered.items()}
    if close := get_close_matches(last, tails, n=1, cutoff=0.6):
        return tails[close[0]]
    if len(last) > 2:
        return next((original for tail, original in tails.items() if last in tail), None)
    return None


def nearest_file(path: Path) -> Path | None:
    """Return the file beside a missing one, of the same type, whose name is nearest to its name; None without one."""
    others = {other.stem: other for other in sorted(path.parent.glob(f"*{path.suffix}"))}
    near = nearest(path.stem, others)
    return others[near] if near else None


def counted(count: int, thing: str) -> str:
    """Return a count with its noun, in the plural unless it is 1: "1 file", "2,000 files"."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def one_line(error: object, length: int = 300) -> str:
    """Return the message of an error on one line of at most `length` characters; its class if it has none."""
    return " ".join(str(error).split())[:length] or type(error).__name__


def shortened(text: str, longest: int = 10_000) -> str:
    """Return a text, or its first and last lines if it has more than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    first, last = text[:half].rpartition("\n")[0] or text[:half], text[-half:].partition("\n")[2] or text[-half:]
    return f"{first}\n  ... {counted(len(text) - len(first) - len(last), 'character')} left out ...\n{last}"
