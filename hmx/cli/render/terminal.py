"""Print a document to a terminal or a text file."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from hmx.cli.render.tables import STYLES, plot_table, table_lines
from hmx.config.textfile import printable
from hmx.reports.blocks import Animation, Aside, Block, Document, Heading, Paragraph, Picture, Plot, Table

_ASCII = {
    "±": "+/-", "→": "->", "·": ".", "×": "x", "…": "...", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=",
    "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip


def print_document(document: Document, console: Console | None = None) -> None:
    """Print a document in the width of a console (stdout), with ASCII alone where the console has nothing else.

    Text that is not for a terminal has no spaces at the end of its lines.
    """
    console = console or Console(highlight=False)
    lines = list(_lines(document, console))
    if console.is_terminal:
        for line in lines:
            console.print(line)
        return
    with console.capture() as capture:
        for line in lines:
            console.print(line)
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def safe(text: str, ascii_only: bool) -> str:
    """Return text that does not steer a terminal, in ASCII where only that can be shown."""
    text = printable(text)
    if ascii_only and not text.isascii():
        for sign, plain in _ASCII.items():
            text = text.replace(sign, plain)
        text = text.encode("ascii", "replace").decode("ascii")
    return text


def _lines(document: Document, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    if document.title:
        yield Text(safe(document.title, ascii_only), "bold")
    before: Block | None = None
    for block in document.blocks:
        if isinstance(block, (Animation, Aside)):
            continue
        apart = not (isinstance(before, Heading) or (isinstance(before, Paragraph) and isinstance(block, Paragraph)))
        if apart and (before is not None or document.title):
            yield Text()
        yield from _block(block, console)
        before = block


def _block(block: Block, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    match block:
        case Heading():
            yield Text(safe(block.text, ascii_only), "bold cyan" if block.level == 1 else "bold")
        case Paragraph():
            yield Text(safe(block.text, ascii_only), STYLES[block.tone])
        case Table():
            yield from _table(block, console)
        case Plot():
            yield from _table(plot_table(block, ascii_only), console)
        case Picture():
            for line in safe(block.text, ascii_only).splitlines():
                yield Text(line, no_wrap=True, overflow="crop")
        case Animation() | Aside():
            return


def _table(table: Table, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    if table.title:
        yield Text(safe(table.title, ascii_only), "bold")
    if table.rows:
        yield from table_lines(table, console, lambda text: " ".join(safe(text, ascii_only).splitlines()))
    if table.note:
        yield Text(safe(table.note, ascii_only), "dim")
