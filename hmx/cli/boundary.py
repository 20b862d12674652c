"""The error boundary of every command: a failure becomes one `error:`, one `hint:` and a documented exit code."""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
import shlex
import shutil
import signal
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.exceptions import TyperException

from hmx.cli.commands import COMMANDS, Commands
from hmx.config.extras import version
from hmx.config.textfile import printable, quoted
from hmx.errors import ExitCode, HmxError, Unavailable, nearest, one_line

# Hints for file errors that reach the boundary without a message of their own.
_DISK = {
    errno.EACCES: "choose a folder you may write to, or change its permissions",
    errno.EPERM: "choose a folder you may write to, or change its permissions",
    errno.EROFS: "choose a folder on a disk that is not read-only",
    errno.ENOSPC: "free some space, or choose a folder on another disk",
    errno.EDQUOT: "free some space, or choose a folder on another disk",
    errno.ENOTDIR: "a part of this path is a file; choose another folder",
    errno.ENAMETOOLONG: "choose a shorter name",
}
_OTHER_DISK = "check the disk and the open-file limit, then try again"

# What is not a command, and where it is.
_ELSEWHERE = {
    "docs": "docs/README.md lists all documents",
    "config": "docs/config.md explains every key; hmx train --dry-run --full shows their values",
    "list": "hmx runs list",
    "ls": "hmx runs list",
}

# Libraries with threads that cannot be stopped; while these run, an ordinary exit waits or crashes.
_THREADED = ("jax", "wandb")


def report(error: Exception, words: Sequence[str], debug: bool = False) -> int:
    """Report an error on stderr and return the exit code; with `--json`, as a JSON object on one line."""
    code, message, hint = _explained(error, words, debug)
    _report(message, hint, code, words)
    return code


def before_dashes(words: Sequence[str]) -> list[str]:
    """Return the words before `--`, among which the options are."""
    return list(itertools.takewhile(lambda word: word != "--", words))


def _report(message: str, hint: str, code: int, words: Sequence[str]) -> None:
    if not message:
        return
    if "--json" in before_dashes(words):
        body = {"error": message, "hint": pasteable(_findable(hint)), "exit_code": code}
        with contextlib.suppress(BrokenPipeError):
            sys.stderr.write(json.dumps(body) + "\n")
    else:
        say("error", message, hint)


def _explained(error: Exception, words: Sequence[str], debug: bool) -> tuple[int, str, str]:
    """Return the exit code, the message and the hint of an error; write its traceback if `debug`."""
    if isinstance(error, HmxError):
        usage = f"{_command(words)} --help lists the options" if error.exit_code == ExitCode.USAGE else ""
        message = error.message.removesuffix(f"; try {error.hint}") if error.hint else error.message
        if debug:
            sys.stderr.write(_traceback(error))
        return int(error.exit_code), message, error.hint or usage
    if isinstance(error, typer.Abort | EOFError):
        return int(ExitCode.UNEXPECTED), "cannot continue: the question was not answered", ""
    if isinstance(error, TyperException):
        return _usage(error, words)
    if isinstance(error, OSError) and error.errno and (error.filename or error.errno in _DISK) and not debug:
        # An error without a file name comes from a write to standard output.
        place = f"use {error.filename}" if error.filename else "write to standard output"
        silence()
        message = f"cannot {place}: {os.strerror(error.errno)}"
        return int(ExitCode.ARTEFACT), message, _DISK.get(error.errno, _OTHER_DISK)
    summary = one_line(f"{type(error).__name__}: {error}", 2000)
    if debug:
        sys.stderr.write(_traceback(error))
    hint = "" if debug else f"{_crash_report(error, words)}; --debug shows it here"
    return int(ExitCode.UNEXPECTED), f"unexpected {summary}", hint


def print_json(body: object) -> None:
    """Print a JSON value on one line of stdout, at once."""
    sys.stdout.write(json.dumps(body) + "\n")
    sys.stdout.flush()


def write_report(file: Path, content: str | bytes) -> None:
    """Write the content of a report to a file."""
    from hmx.config.files import words
    from hmx.records.atomic import write_bytes

    try:
        write_bytes(file, content.encode("utf-8") if isinstance(content, str) else content)
    except (OSError, ValueError) as problem:
        raise _unwritable(file, words(problem)) from None


def check_reports(*files: Path | None) -> None:
    """Refuse, before long work, files that `write_report` could not write (exit code 2)."""
    for file in files:
        try:
            if file is not None and (file.is_dir() or not file.parent.is_dir()):
                raise _unwritable(file, "it is a folder" if file.is_dir() else "the folder does not exist")
        except ValueError:
            raise _unwritable(file, "not a valid file name") from None


def _unwritable(file: Path | None, why: str) -> HmxError:
    hint = "name a file in an existing folder that you may write to"
    return HmxError(f"cannot write the report {quoted(str(file))}: {why}", hint)


def say(kind: str, message: str, hint: str = "") -> None:
    """Write `kind: message` to stderr, and a hint below an empty line; control characters are escaped."""
    from rich.console import Console
    from rich.text import Text

    style = {"error": "bold red", "warning": "yellow"}.get(kind, "")
    console = Console(stderr=True, highlight=False)
    with contextlib.suppress(BrokenPipeError):
        # Wrapped in a terminal, whole lines elsewhere. A hint is a command to copy: never wrapped.
        console.print(
            Text.assemble((f"{kind}: ", style), pasteable(printable(message))), soft_wrap=not console.is_terminal
        )
        if hint:
            console.print()
            hint = pasteable(_findable(printable(hint)))
            console.print(Text.assemble(("hint: ", "bold cyan"), hint), soft_wrap=True)


@contextlib.contextmanager
def failed_estimates_said() -> Iterator[None]:
    """Write warnings of estimates and caches that failed, each once, as `say` does; Python shows all others."""
    module: Any = warnings
    show, said = warnings.showwarning, set[str]()

    def shown(message: Warning | str, category: type[Warning], *more: Any) -> None:
        if not issubclass(category, Unavailable):
            show(message, category, *more)
        elif str(message) not in said:
            said.add(str(message))
            say("warning", str(message))

    module.showwarning = shown
    try:
        yield
    finally:
        module.showwarning = show


def pasteable(text: str) -> str:
    """Return a text whose commands can be pasted, with the path of this program if `hmx` is not on the PATH."""
    program = sys.argv[0]
    if os.path.basename(program) != "hmx" or shutil.which("hmx"):
        return text
    near = os.path.relpath(program)
    path = near if len(near) < len(program) and not near.startswith("..") else program
    return re.sub(rf"(?<![\w./-])hmx (?=(--help|{'|'.join(COMMANDS)})\b)", lambda _: f"{shlex.quote(path)} ", text)


def _findable(text: str) -> str:
    """Return a text that names documents by the path where they are installed, unless they are in this folder."""
    places = [Path(__file__).parents[2], Path(sysconfig.get_path("data"), "share", "doc", "hmx")]

    def path(name: re.Match[str]) -> str:
        found = (place / name[0] for place in (Path(), *places))
        return str(next((file for file in found if file.exists()), name[0]))

    return re.sub(r"(?<![\w./-])docs/[\w/-]+\.(?:md|json)", path, text)


def _command(words: Sequence[str]) -> str:
    """Return the command that a command line names, without options and arguments."""
    path = ["hmx"]
    commands: Mapping[str, Any] = Commands()
    for word in words:
        if word in commands:
            path.append(word)
            commands = getattr(commands[word], "commands", {})
    return " ".join(path)


def _usage(error: TyperException, words: Sequence[str]) -> tuple[int, str, str]:
    ctx: Any = getattr(error, "ctx", None)
    # An option without its value is found before its command has a context.
    path = ctx.command_path if ctx is not None else _command(words)
    if type(error).__name__ == "NoArgsIsHelpError":
        # With panels the help has been printed already, and the message is empty.
        sys.stderr.write(error.format_message().lstrip())
        return int(ExitCode.USAGE), "", ""
    option = getattr(error, "option_name", None)
    message, hint = error.format_message().rstrip("."), f"run {path} --help"
    if type(error).__name__ == "NoSuchOption" and ctx is not None:
        names = [name for param in ctx.command.get_params(ctx) for name in param.opts if name.startswith("--")]
        close = nearest(str(option).lstrip("-"), [name.lstrip("-") for name in names])
        message = f"no such option: {option}"
        every = f"{path} --help lists all options"
        hint = f"did you mean --{close}? {every}" if close else every
    elif message.startswith("No such command") and ctx is not None:
        word = message.split("'")[1]
        close = nearest(word, list(ctx.command.commands))
        message = f"no such command: {word}"
        hint = f"did you mean {path} {close}?" if close else f"{path} --help lists all commands"
        hint = _ELSEWHERE.get(word, hint) if path == "hmx" else hint
    return int(ExitCode.USAGE), message[:1].lower() + message[1:], hint


def interrupted(error: BaseException) -> int:
    """Report an interruption and return its exit code; end the process if libraries have threads."""
    signum = int(getattr(error, "signum", signal.SIGINT))
    _report("interrupted", str(getattr(error, "hint", "")), 128 + signum, sys.argv[1:])
    if any(library in sys.modules for library in _THREADED):
        _flush()
        os._exit(128 + signum)
    return 128 + signum


def end_at_once(code: int) -> None:
    """End a process in which JAX would wait at exit: for a compilation, or for a cluster not left in order."""
    jax = sys.modules.get("jax")
    if jax is None:
        return
    from hmx.runs.signals import is_working

    if is_working() or jax.distributed.is_initialized():
        _flush()
        os._exit(code)


def _crash_report(error: Exception, words: Sequence[str]) -> str:
    import platform
    import tempfile

    system = f"hmx {version()}, Python {platform.python_version()}, {platform.platform()}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="hmx-crash-", suffix=".txt", delete=False) as file:
            file.write(f"{system}\ncommand: hmx {shlex.join(words)}\n\n{_traceback(error)}")
    except OSError as failure:
        return f"no crash report could be written ({failure.strerror})"
    return f"the crash report is {file.name}"


def _traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except BrokenPipeError:
            silence()
        except (OSError, ValueError):
            pass


def silence() -> None:
    """Discard the buffer of stdout, so that the interpreter does not fail to flush it at exit."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
