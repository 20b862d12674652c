"""The rim of every command: whatever goes wrong becomes one `error:`, one `hint:` and a documented exit code."""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException

from hmx.config.textfile import printable, quoted
from hmx.errors import ExitCode, HmxError

# What a user can do something about although nobody foresaw the place it happened in.
_DISK = {
    errno.EACCES: "choose a folder you may write to, or change its permissions",
    errno.EPERM: "choose a folder you may write to, or change its permissions",
    errno.EROFS: "choose a folder on a disk that is not read-only",
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.ENOTDIR: "a part of this path is a file; choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}

# Threads that `hmx.runs` starts and that may not be able to end.
_WORKERS = ("hmx-work", "hmx-save", "hmx-wandb")


class Boundary(TyperGroup):
    """The root command, which lets no traceback out.

    `--debug` may stand anywhere before `--`; it prints the traceback that is otherwise kept in a crash report.
    """

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Parses and runs, then ends the process (or returns, for a caller that wants the result)."""
        given = list(sys.argv[1:] if args is None else args)
        words, debug = _take_debug(given)

        def run() -> Any:
            return super(Boundary, self).main(words, prog_name, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return run()
        code: Any
        try:
            code = run()
            _flush()
        except Exception as error:
            code = report(error, given, debug)
        code = int(code) if isinstance(code, int) else 0
        _end_apart(code)
        sys.exit(code)

    def invoke(self, ctx: Any) -> Any:
        """Runs the command; an interruption keeps the signal that caused it, and a closed pipe is no failure."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            _silence()
            raise typer.Exit(int(ExitCode.OK)) from None
        except KeyboardInterrupt as error:
            raise typer.Exit(_interrupted(error)) from error


def report(error: Exception, words: Sequence[str], debug: bool = False) -> int:
    """Tells the user what went wrong on stderr and returns the exit code."""
    if isinstance(error, HmxError):
        say("error", error.message, error.hint)
        if debug:
            _traceback(error)
        return int(error.exit_code)
    if isinstance(error, typer.Abort | EOFError):
        say("error", "stopped before an answer was given")
        return int(ExitCode.UNEXPECTED)
    if isinstance(error, TyperException):
        return _usage(error, words)
    if isinstance(error, OSError) and error.errno in _DISK and not debug:
        place = f" {error.filename}" if error.filename else ""
        say("error", f"cannot use{place}: {os.strerror(error.errno)}", _DISK[error.errno])
        return int(ExitCode.ARTEFACT)
    summary = " ".join(f"{type(error).__name__}: {error}".split())
    if debug:
        _traceback(error)
        say("error", f"unexpected {summary}")
    else:
        say("error", f"unexpected {summary}", f"{_crash_report(error, words)}; --debug shows it here")
    return int(ExitCode.UNEXPECTED)


def print_json(body: object) -> None:
    """One JSON value on one line of stdout."""
    sys.stdout.write(json.dumps(body) + "\n")


def write_report(file: Path, text: str) -> None:
    """Writes what a command was asked to leave in a file.

    Raises:
        HmxError: it cannot be written (exit code 2).
    """
    from hmx.records.artefact import words
    from hmx.records.atomic import write_text

    try:
        write_text(file, text)
    except (OSError, ValueError) as problem:
        raise _unwritable(file, words(problem)) from None


def check_reports(*files: Path | None) -> None:
    """Refuses, before long work, files that `write_report` could not write after it.

    Raises:
        HmxError: one is a folder, or lies in a folder that is not there (exit code 2).
    """
    for file in files:
        try:
            if file is not None and (file.is_dir() or not file.parent.is_dir()):
                raise _unwritable(file, "it is a folder" if file.is_dir() else "there is no such folder")
        except ValueError:
            raise _unwritable(file, "that is no file name") from None


def _unwritable(file: Path | None, why: str) -> HmxError:
    message = f"cannot write the report {quoted(str(file))}: {why}"
    return HmxError(message, "name a file in a folder that is there and can be written")


def say(kind: str, message: str, hint: str = "") -> None:
    """Writes `kind: message`, and a hint under an empty line, to stderr; what a file says cannot steer the terminal."""
    from rich.console import Console
    from rich.text import Text

    style = {"error": "bold red", "warning": "yellow"}.get(kind, "")
    console = Console(stderr=True, highlight=False)
    with contextlib.suppress(BrokenPipeError):
        # A terminal gets whole words; a file gets whole lines. A hint is a command to copy: it is never cut.
        console.print(Text.assemble((f"{kind}: ", style), printable(message)), soft_wrap=not console.is_terminal)
        if hint:
            console.print()
            console.print(Text.assemble(("hint: ", "bold cyan"), printable(hint)), soft_wrap=True)


def nearest(word: str, names: Sequence[str]) -> str | None:
    """The name that `word` was most likely meant to be."""
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return close[0] if close else None


def _usage(error: TyperException, words: Sequence[str]) -> int:
    ctx: Any = getattr(error, "ctx", None)
    # An option without its value is found before its command has a context.
    path = ctx.command_path if ctx is not None else " ".join(["hmx", *[w for w in words if w.isalpha()][:1]])
    if type(error).__name__ == "NoArgsIsHelpError":
        # With panels the help has been printed already, and the message is empty.
        sys.stderr.write(error.format_message().lstrip())
        return int(ExitCode.USAGE)
    option = getattr(error, "option_name", None)
    message, hint = error.format_message().rstrip("."), f"{path} --help"
    if type(error).__name__ == "NoSuchOption" and ctx is not None:
        names = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
        close = nearest(str(option), names)
        message = f"no such option: {option}"
        hint = f"did you mean {close}? All options: {path} --help" if close else f"all options: {path} --help"
    elif message.startswith("No such command") and ctx is not None:
        word = message.split("'")[1]
        close = nearest(word, list(ctx.command.commands))
        message = f"no such command: {word}"
        hint = f"did you mean {path} {close}?" if close else f"all commands: {path} --help"
    say("error", message[:1].lower() + message[1:], hint)
    return int(ExitCode.USAGE)


def _take_debug(words: list[str]) -> tuple[list[str], bool]:
    end = words.index("--") if "--" in words else len(words)
    kept = [word for word in words[:end] if word != "--debug"]
    return kept + words[end:], len(kept) != end


def _interrupted(error: BaseException) -> int:
    signum = int(getattr(error, "signum", signal.SIGINT))
    say("error", "interrupted", str(getattr(error, "hint", "")))
    if any(thread.daemon and thread.name in _WORKERS for thread in threading.enumerate()):
        # Compiled code, a write or a network is still busy in another thread, and nobody may wait for it.
        _flush()
        os._exit(128 + signum)
    return 128 + signum


def _end_apart(code: int) -> None:
    """Ends a process of several that has not left the others in order: JAX would wait for them at its end."""
    jax = sys.modules.get("jax")
    if jax is not None and jax.distributed.is_initialized():
        _flush()
        os._exit(code)


def _crash_report(error: Exception, words: Sequence[str]) -> str:
    import platform
    import shlex
    import tempfile

    from hmx.cli.version import version

    lines = [
        f"hmx {version()}, Python {platform.python_version()}, {platform.platform()}",
        f"command: hmx {shlex.join(words)}",
        "",
        *_lines(error),
    ]
    try:
        with tempfile.NamedTemporaryFile("w", prefix="hmx-crash-", suffix=".txt", delete=False) as file:
            file.write("\n".join(lines) + "\n")
    except OSError as failure:
        return f"no crash report could be written ({failure.strerror})"
    return f"the crash report is {file.name}"


def _lines(error: Exception) -> Iterator[str]:
    import traceback

    for block in traceback.format_exception(error):
        yield from block.rstrip().split("\n")


def _traceback(error: Exception) -> None:
    sys.stderr.write("\n".join(_lines(error)) + "\n")


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            _silence()
        except (OSError, ValueError):
            pass


def _silence() -> None:
    """Sends what is still buffered nowhere, so that the interpreter has nothing to complain about when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
