"""Man pages from the command tree."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer

from hmx.cli.app import app
from hmx.cli.version import version
from hmx.errors import ExitCode

EXIT_STATUS = {
    ExitCode.OK: "Done.",
    ExitCode.UNEXPECTED: "Something unexpected; the message names a crash report.",
    ExitCode.USAGE: "A wrong option, or a configuration that cannot run.",
    ExitCode.ARTEFACT: "A run, checkpoint or other file is missing, damaged, incompatible or cannot be written.",
    ExitCode.CHECK_FAILED: "A check that was asked for failed.",
    ExitCode.SIGINT: "Interrupted by Ctrl-C, after a checkpoint where there was something to save.",
    ExitCode.SIGTERM: "Ended by SIGTERM, likewise.",
}


def pages(changelog: Path) -> dict[str, str]:
    """Name -> roff source, `hmx` and one page per command."""
    root: Any = typer.main.get_command(app)
    date = release_date(changelog.read_text(encoding="utf-8"))
    ctx = root.make_context("hmx", ["--help"], resilient_parsing=True)
    result = {"hmx": _page("hmx", root, ctx, date, commands=root.commands)}
    for name, command, sub in members(root, ctx):
        result[f"hmx-{name}"] = _page(f"hmx-{name}", command, sub, date, commands={})
    return result


def release_date(changelog: str) -> str:
    """The date of the newest release: pages must not change with the clock."""
    found = re.search(r"^## \[\d[^]]*\] - (\d{4}-\d\d-\d\d)$", changelog, re.MULTILINE)
    if found is None:
        raise ValueError("the changelog has no release with a date")
    return found.group(1)


def roff(text: str) -> str:
    """Text that roff prints as it is, in short lines."""
    text = textwrap.fill(text, 70, break_on_hyphens=False, break_long_words=False)
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def options(command: Any, ctx: Any) -> Iterator[tuple[str, str]]:
    """Every visible option and argument: how it is written, and its help."""
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx)
        if record is not None:
            name = re.sub(r"\s*<[^>]*>$", "", record[0]).strip()
            yield name, re.sub(r"\s*\[(required|default: [^]]*)\]$", "", record[1]).strip()


def _page(name: str, command: Any, ctx: Any, date: str, commands: dict[str, Any]) -> str:
    help_text = (command.help or "").strip()
    first, _, rest = help_text.partition("\n\n")
    lines = [
        f'.TH {roff(name.upper())} 1 "{date}" "hmx {version()}" "hmx manual"',
        ".SH NAME",
        f"{roff(name)} \\- {roff(first.rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {roff(name.replace('-', ' '))}",
        roff(_synopsis(command, ctx)),
        ".SH DESCRIPTION",
        *_paragraphs(rest or first),
    ]
    if commands:
        lines.append(".SH COMMANDS")
        for word, sub in commands.items():
            lines += [".TP", f".BR {roff('hmx-' + word)} (1)", roff(sub.help.partition("\n\n")[0])]
    lines += [".SH OPTIONS", *_options(command, ctx)]
    if not commands:
        for word, sub, sub_ctx in members(command, ctx):
            lines += [
                f".SH {word.upper()}",
                f".B {roff(f'{name} {word}'.replace('-', ' '))}",
                roff(_synopsis(sub, sub_ctx)),
            ]
            lines += [".PP", *_paragraphs(sub.help.strip()), *_options(sub, sub_ctx)]
    lines.append(".SH EXIT STATUS")
    for code, text in EXIT_STATUS.items():
        lines += [".TP", f".B {int(code)}", roff(text)]
    lines += _ending(name, commands)
    return "\n".join(lines) + "\n"


def members(command: Any, ctx: Any) -> Iterator[tuple[str, Any, Any]]:
    """The commands of a group, each with its context; none for a command that is no group."""
    for word, sub in getattr(command, "commands", {}).items():
        yield word, sub, sub.make_context(word, [], parent=ctx, resilient_parsing=True)


def _options(command: Any, ctx: Any) -> Iterator[str]:
    for spelling, text in options(command, ctx):
        yield from (".TP", f".B {roff(spelling)}", roff(text))


def _ending(name: str, commands: dict[str, Any]) -> list[str]:
    lines = [
        ".SH ENVIRONMENT",
        ".TP",
        ".B HMX_SECTION_KEY",
        roff("Sets a key of the configuration, as HMX_ALGO_GAMMA=0.995; options win over it, files lose."),
        ".TP",
        ".B HMX_CACHE_DIR",
        roff("Folder of compiled programs; hmx/jax in the user's cache folder by default."),
        ".TP",
        '.BR NO_COLOR , " FORCE_COLOR"',
        "No colours, or colours even where the output is not a terminal.",
        ".SH SEE ALSO",
    ]
    others = [f"hmx-{word}" for word in commands] if commands else ["hmx"]
    lines += [f".BR {roff(other)} (1){',' if other != others[-1] else ''}" for other in others]
    return lines


def _synopsis(command: Any, ctx: Any) -> str:
    return " ".join(command.collect_usage_pieces(ctx)).replace("{", "").replace("}", "")


def _paragraphs(text: str) -> Iterator[str]:
    for number, block in enumerate(text.split("\n\n")):
        if number:
            yield ".PP"
        yield roff(block)
