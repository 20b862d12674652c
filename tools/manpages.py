"""Generate man pages from the command tree."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

from hmx.cli.app import app
from hmx.cli.commands import COMMAND_GROUPS, Command
from hmx.config.extras import version
from hmx.errors import ExitCode

EXIT_STATUS = {
    ExitCode.OK: "Success.",
    ExitCode.UNEXPECTED: "An unexpected error; the message names a crash report.",
    ExitCode.USAGE: "A wrong option, or a configuration that cannot run.",
    ExitCode.ARTEFACT: "A run, checkpoint or other file is missing, damaged, incompatible or cannot be written.",
    ExitCode.CHECK_FAILED: "A check that the command line asks for failed.",
    ExitCode.NOT_CHECKED: "A check that the command line asks for cannot be made, for example on another processor.",
    ExitCode.SIGHUP: "The terminal or its connection was closed; a training saves a checkpoint first.",
    ExitCode.SIGINT: "Interrupted by Ctrl-C; a training saves a checkpoint first.",
    ExitCode.SIGTERM: "Ended by SIGTERM; a training saves a checkpoint first.",
}
ENVIRONMENT = {
    "HMX_SECTION_KEY": "A configuration key, such as HMX_ALGO_GAMMA=0.995; options override it.",
    "HMX_CACHE_DIR": "Folder of compiled programs.",
    "HMX_LOWERED": "0 traces every program; 1, which commands set, uses those that lie lowered in that folder.",
    "NO_COLOR": "Print no colours.",
    "FORCE_COLOR": "Print colours even if the output is not a terminal.",
}
FILES = {
    "runs/NAME/": "The folder of a run.",
    "runs/NAME/run.toml": "Its configuration, which hmx train --config accepts.",
    "runs/NAME/meta.json": "Its versions, devices, command lines and state.",
    "runs/NAME/metrics.jsonl": "Its metrics, one line per update and seed.",
    "runs/NAME/checkpoints/": "Its checkpoints, each named after its update.",
    "runs/NAME/reports/": "Its evaluations and other reports.",
    "~/.cache/hmx/jax/": "Compiled programs, unless HMX_CACHE_DIR names another folder; safe to delete.",
}


def pages(changelog: Path) -> dict[str, str]:
    """Return the roff source of each page: `hmx`, and one page per command."""
    root: Any = typer.main.get_command(app)
    date = release_date(changelog.read_text(encoding="utf-8"))
    ctx = root.make_context("hmx", ["--help"], resilient_parsing=True)
    names = ["hmx", *(f"hmx-{name}" for name in root.commands)]
    result = {"hmx": _page("hmx", root, ctx, date, names)}
    for name, command, sub in members(root, ctx):
        result[f"hmx-{name}"] = _page(f"hmx-{name}", command, sub, date, names)
    return result


def release_date(changelog: str) -> str:
    """Return the date of the newest release: pages must not change with the clock."""
    found = re.search(r"^## \[\d[^]]*\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if found is None:
        raise ValueError("the changelog has no release with a date")
    return found.group(1)


def roff(text: str) -> str:
    """Write a text so that roff prints it unchanged, in short lines."""
    text = textwrap.fill(text, 70, break_on_hyphens=False, break_long_words=False)
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def options(command: Any, ctx: Any) -> Iterator[tuple[str, str]]:
    """Yield the spelling and the help of every visible option and argument."""
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            yield record[0].strip(), record[1].replace("  [", " [").strip()


def members(command: Any, ctx: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, command and context of each command of a group."""
    for word, sub in getattr(command, "commands", {}).items():
        yield word, sub, sub.make_context(word, [], parent=ctx, resilient_parsing=True)


def usage(command: Any, ctx: Any) -> str:
    """Return the usage after a command's name."""
    return " ".join(command.collect_usage_pieces(ctx)).replace("{", "").replace("}", "")


def description(command: Any) -> list[str]:
    """Return the paragraphs of a command's help, without its examples."""
    return command.description if isinstance(command, Command) else command.help.strip().split("\n\n")


def examples(command: Any) -> list[str]:
    """Return the examples of a command, or of the commands of a group."""
    if isinstance(command, Command):
        return command.examples
    return [example for sub in command.commands.values() for example in examples(sub)]


def _page(name: str, command: Any, ctx: Any, date: str, names: list[str]) -> str:
    first, *rest = description(command)
    lines = [
        f'.TH {roff(name.upper())} 1 "{date}" "hmx {version()}" "hmx manual"',
        ".SH NAME",
        roff(f"{name} - {first.rstrip('.')}"),
        ".SH SYNOPSIS",
        f".B {roff(name.replace('-', ' ', 1))}",
        roff(usage(command, ctx)),
        ".SH DESCRIPTION",
        *_paragraphs(rest or [first]),
    ]
    if name == "hmx":
        lines.append(".SH COMMANDS")
        for group, words in COMMAND_GROUPS.items():
            lines.append(f".SS {roff(group)}")
            for word in words:
                lines += [".TP", f".BR {roff('hmx-' + word)} (1)", roff(description(command.commands[word])[0])]
    lines += [".SH OPTIONS", *_options(command, ctx)]
    if name != "hmx":
        for word, sub, sub_ctx in members(command, ctx):
            full = f"{name} {word}".replace("-", " ", 1)
            lines += [f".SH {word.upper()}", f".B {roff(full)}", roff(usage(sub, sub_ctx)), ".PP"]
            lines += [*_paragraphs(description(sub)), *_options(sub, sub_ctx)]
    status = {str(int(code)): text for code, text in EXIT_STATUS.items()}
    for heading, rows in (("EXIT STATUS", status), ("ENVIRONMENT", ENVIRONMENT), ("FILES", FILES)):
        lines += [f".SH {heading}", *_entries(rows.items())]
    lines += [".SH EXAMPLES", ".nf", *(example.replace("-", "\\-") for example in examples(command)), ".fi"]
    others = [other for other in names if other != name]
    lines += [".SH SEE ALSO", *(f".BR {roff(other)} (1){',' if other != others[-1] else ''}" for other in others)]
    return "\n".join(lines) + "\n"


def _options(command: Any, ctx: Any) -> Iterator[str]:
    return _entries(options(command, ctx))


def _entries(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    for head, text in rows:
        yield from (".TP", f".B {roff(head)}", roff(text))


def _paragraphs(paragraphs: list[str]) -> Iterator[str]:
    for number, text in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield roff(text)
