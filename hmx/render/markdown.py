"""Render a document as GitHub Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from hmx.config.textfile import printable
from hmx.render import blocks
from hmx.render.quantities import bar
from hmx.render.terminal import plot_table

_BAR = 12
_EMPHASISED = ("strong", "good", "warning", "bad")


def markdown(document: blocks.Document) -> str:
    """Return a document as Markdown text."""
    parts = [f"# {_safe(document.title)}"] if document.title else []
    parts += ["\n".join(_block(block)) for block in document.blocks]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: blocks.Block) -> Iterator[str]:
    match block:
        case blocks.Heading():
            yield f"{'#' * (block.level + 1)} {_safe(block.text)}"
        case blocks.Paragraph(tone="command"):
            yield f"    {printable(block.text)}"
        case blocks.Paragraph():
            yield _emphasised(_start(_safe(block.text)), block.tone)
        case blocks.Table():
            yield from _table(block)
        case blocks.Plot():
            yield from _table(plot_table(block))
        case blocks.Picture():
            text = printable(block.text, "\n")
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 3)
            yield f"{fence}text\n{text}\n{fence}"
        case blocks.Animation() | blocks.Aside():
            return


def _table(table: blocks.Table) -> Iterator[str]:
    if table.title:
        yield f"**{_safe(table.title)}**"
        yield ""
    if table.rows:
        yield _line([_safe(column.name) for column in table.columns])
        yield _line(["---:" if column.align == "right" else "---" for column in table.columns])
        for row in table.rows:
            yield _line(_cells(row, table.columns))
    if table.note:
        yield ""
        yield _start(_safe(table.note))


def _cells(row: blocks.Row, columns: Sequence[blocks.Column]) -> list[str]:
    cells = [blocks.as_cell(cell) for cell in row.cells]
    if len(cells) == 1 and len(columns) > 1:
        return [_emphasised(_safe(cells[0].text), "strong"), *[""] * (len(columns) - 1)]
    return [_cell(cell, row) for cell in cells]


def _cell(cell: blocks.Cell, row: blocks.Row) -> str:
    text = _emphasised(_safe(cell.text), cell.tone if cell.tone != "plain" else row.tone)
    return " ".join(part for part in (text, bar(cell.bar, _BAR)) if part)


def _emphasised(text: str, tone: str) -> str:
    return f"**{text}**" if text and tone in _EMPHASISED else text


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _safe(text: str) -> str:
    """Return text on one line that Markdown shows as it is."""
    return re.sub(r"([\\`*_\[\]<>|#~&$])", r"\\\1", printable(" ".join(text.split()), ""))


def _start(text: str) -> str:
    """Return text that does not start a list or a rule at the beginning of a line."""
    return re.sub(r"^(\d+(?=[.)]\s)|(?=[-+=](?:\s|[-=]*$)))", r"\1\\", text)
