"""Print a document to a terminal or a text file, with tables that fit any width."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from hmx.config.textfile import printable
from hmx.render import blocks
from hmx.render.blocks import Cell, Column, Document, Plot, Row, Series, Table, Tone, as_cell
from hmx.render.quantities import FORMATS, bar, place_name, sparkline

STYLES: dict[Tone, str] = {
    "plain": "",
    "strong": "bold",
    "good": "green",
    "warning": "yellow",
    "bad": "bold red",
    "faint": "dim",
    "command": "",
}
_BAR = 16  # characters of a full bar
_GAP, _NARROW_GAP = 2, 1  # spaces between columns
_PROSE = 24  # minimum letters per line of text while other columns can be dropped instead
_LEAST = 12  # letters per line of text in the narrowest table
_ASCII = {
    "±": "+/-", "→": "->", "·": ".", "×": "x", "…": "...", "−": "-", "–": "-", "—": "-", "≤": "<=", "≥": ">=",
    "“": '"', "”": '"', "‘": "'", "’": "'",
}  # fmt: skip


def print_document(document: Document, console: Console | None = None) -> None:
    """Print a document in the width of a console (stdout), in ASCII if the console supports only that.

    Text that is not for a terminal has no spaces at the end of its lines.
    """
    console = console or Console(highlight=False)
    lines = list(_lines(document, console))
    with contextlib.nullcontext() if console.is_terminal else console.capture() as capture:
        for line in lines:
            console.print(line, soft_wrap=line.overflow == "ignore")
    if capture is None:
        return
    console.file.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def safe(text: str, ascii_only: bool) -> str:
    """Return text that cannot control a terminal, in ASCII if only that can be shown."""
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
    before: blocks.Block | None = None
    for block in document.blocks:
        if isinstance(block, (blocks.Animation, blocks.Aside)):
            continue
        together = isinstance(before, blocks.Heading) or type(before) is type(block) is blocks.Paragraph
        if not together and (before is not None or document.title):
            yield Text()
        yield from _block(block, console)
        before = block


def _block(block: blocks.Block, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    match block:
        case blocks.Heading():
            yield Text(safe(block.text, ascii_only), "bold cyan" if block.level == 1 else "bold")
        case blocks.Paragraph(tone="command"):
            yield Text(f"    {safe(block.text, ascii_only)}", no_wrap=True, overflow="ignore")
        case blocks.Paragraph():
            yield Text(safe(block.text, ascii_only), STYLES[block.tone])
        case blocks.Table():
            yield from _table(block, console)
        case blocks.Plot():
            yield from _table(plot_table(block, ascii_only), console)
        case blocks.Picture():
            for line in safe(block.text, ascii_only).splitlines():
                yield Text(line, no_wrap=True, overflow="crop")
        case blocks.Animation() | blocks.Aside():
            return


def _table(table: Table, console: Console) -> Iterator[Text]:
    ascii_only = console.options.ascii_only
    if table.title:
        yield Text(safe(table.title, ascii_only), "bold")
    if table.rows:
        yield from table_lines(table, console, lambda text: " ".join(safe(text, ascii_only).splitlines()))
    if table.note:
        yield Text(safe(table.note, ascii_only), "dim")


@dataclass(frozen=True)
class _Width:
    """Widths that a column can have."""

    full: int  # without any line break
    roomy: int  # with breaks in the header and in long text
    least: int  # with breaks after every few words
    text: int | None  # of the text before the bars, None in a column without bars


def table_lines(table: Table, console: Console, plain: Callable[[str], str]) -> Iterator[Text]:
    """Yield the lines of a table, without its title and note.

    Columns of the highest rank are dropped until the rest fits. A table whose other columns do not fit either becomes
    a list: the first cell of each row, and below it a line per column.
    """
    columns = [replace(c, name=plain(c.name)) for c in table.columns]
    rows = [
        replace(row, cells=tuple(replace(c, text=plain(c.text)) for c in map(as_cell, row.cells))) for row in table.rows
    ]
    body = [row for row in rows if not _is_heading(row, columns)]
    widths = [_width(column, [as_cell(row.cells[i]) for row in body]) for i, column in enumerate(columns)]
    fitted = _fit(columns, widths, console.width)
    if fitted is None:
        yield from _list(columns, rows, console)
        return
    kept, sizes, gap = fitted
    sides = [replace(columns[i], align="left") if widths[i].text is not None else columns[i] for i in kept]
    if any(columns[i].name for i in kept):
        heads = [Text(columns[i].name, "bold") for i in kept]
        yield from _line(sides, heads, sizes, gap, console, bottom=True)
        rule = "-" if console.options.ascii_only else "─"
        yield Text(rule * (sum(sizes) + gap * (len(sizes) - 1)), "dim")
    for row in rows:
        if _is_heading(row, columns):
            yield from Text(as_cell(row.cells[0]).text, "bold").wrap(console, console.width)
            continue
        cells = [_text(as_cell(row.cells[i]), columns[i], row.tone, widths[i].text, console) for i in kept]
        yield from _line(sides, cells, sizes, gap, console)


def _is_heading(row: Row, columns: Sequence[Column]) -> bool:
    return len(row.cells) == 1 and len(columns) > 1


def _fit(columns: Sequence[Column], widths: Sequence[_Width], room: int) -> tuple[list[int], list[int], int] | None:
    """Return the columns that are shown, their widths and the gap between them; None if nothing fits."""
    kept = list(range(len(columns)))
    while True:
        space = room - _GAP * (len(kept) - 1)
        if sum(widths[i].roomy for i in kept) <= space:
            return kept, _share([widths[i].roomy for i in kept], [widths[i].full for i in kept], space), _GAP
        highest = max((columns[i].rank for i in kept), default=0)
        if not highest:
            break
        kept.remove(max(i for i in kept if columns[i].rank == highest))
    for gap in (_GAP, _NARROW_GAP):
        space = room - gap * (len(kept) - 1)
        if sum(widths[i].least for i in kept) <= space:
            return kept, _share([widths[i].least for i in kept], [widths[i].full for i in kept], space), gap
    return None


def _share(sizes: list[int], wanted: list[int], space: int) -> list[int]:
    """Widen columns towards their full widths within a total space, those that need least first."""
    sizes, left = list(sizes), space - sum(sizes)
    order = sorted(range(len(sizes)), key=lambda i: wanted[i] - sizes[i])
    for place, i in enumerate(order):
        more = min(wanted[i] - sizes[i], left // (len(order) - place))
        sizes[i] += more
        left -= more
    return sizes


def _width(column: Column, cells: Sequence[Cell]) -> _Width:
    body = max((cell_len(cell.text) for cell in cells), default=0)
    bars = any(cell.bar is not None for cell in cells)
    head, word = cell_len(column.name), _longest_word([column.name])
    if bars:
        drawn = body + bool(body) + _BAR
        return _Width(max(drawn, head), max(drawn, word), max(drawn, word), body)
    if column.align == "right":
        return _Width(max(body, head), max(body, word), max(body, word), None)
    words = max(_longest_word([cell.text for cell in cells]), word)
    least = min(max(word, body), max(word, words, min(body, _LEAST)))
    return _Width(max(body, head), max(word, min(body, max(words, _PROSE))), least, None)


def _longest_word(texts: Sequence[str]) -> int:
    return max((cell_len(word) for text in texts for word in text.split()), default=0)


def _text(cell: Cell, column: Column, tone: Tone, width: int | None, console: Console) -> Text:
    """Return a cell with its bar; in a column with bars, all cells have the same width."""
    text = Text(cell.text, STYLES[cell.tone] or STYLES[tone])
    if width is None:
        return text
    text.align(column.align, width)
    drawn = bar(cell.bar, _BAR, console.options.ascii_only)
    return text.append(" " if width else "").append(f"{drawn}{' ' * (_BAR - len(drawn))}", "cyan")


def _line(
    columns: Sequence[Column], cells: Sequence[Text], sizes: Sequence[int], gap: int, console: Console,
    bottom: bool = False,
) -> Iterator[Text]:  # fmt: skip
    """Yield the lines of one row; text that is wider than its column is broken between words."""
    broken = [
        [cell] if cell.cell_len <= size else _wrapped(cell, size, console)
        for cell, size in zip(cells, sizes, strict=True)
    ]
    height = max(map(len, broken))
    for number in range(height):
        line = Text()
        for column, parts, size in zip(columns, broken, sizes, strict=True):
            at = number - (height - len(parts)) if bottom else number
            text = parts[at].copy() if 0 <= at < len(parts) else Text()
            if text.plain or column is not columns[-1]:
                text.align(column.align, size)
            if column is not columns[0]:
                line.append(" " * gap)
            line.append_text(text)
        line.rstrip()
        yield line


def _wrapped(text: Text, width: int, console: Console) -> list[Text]:
    lines = list(text.wrap(console, width, overflow="fold"))
    for line in lines:
        line.rstrip()
    return lines


def _list(columns: Sequence[Column], rows: Sequence[Row], console: Console) -> Iterator[Text]:
    """Yield rows as their first cell and a line per further column."""
    heads = [column.name for column in columns[1:]]
    most = max(console.width // 2 - 4, min(_longest_word(heads), console.width - 8), 1)
    names = min(max(map(cell_len, heads), default=0), most)
    room = max(console.width - names - (4 if names else 2), 1)
    for row in rows:
        first, *others = map(as_cell, row.cells)
        style = "bold" if _is_heading(row, columns) else STYLES[row.tone]
        yield from _wrapped(Text(first.text, style), console.width, console)
        for column, cell in zip(columns[1:], others, strict=False):
            drawn = bar(cell.bar, min(_BAR, room), console.options.ascii_only)
            text = Text(" ".join(part for part in (cell.text, drawn) if part), STYLES[cell.tone])
            sides = (Column("", "left"), Column("", "left"))
            cells = (Text(column.name, "dim"), text)
            for line in _line(sides, cells, (names, room), 2 if names else 0, console) if text else ():
                yield Text("  ").append_text(line)


_CURVE = 24  # characters of a sparkline


def plot_table(plot: Plot, ascii_only: bool = False) -> Table:
    """Return a plot as a table with the title of the plot, and its caption as the note.

    Bars become a row each. Lines, steps and dots become a row per series with a sparkline in the order of `x`, the
    last value and the range; guide lines (grey and dashed) are omitted.
    """
    bars = [series for series in plot.series if series.kind == "bars"]
    curves = [s for s in plot.series if s.kind != "bars" and not s.thin and not (s.colour < 0 and s.dashed)]
    note = plot.caption
    if bars:
        named = len({series.name for series in bars}) > 1
        columns = (Column(plot.x.label, "left"), Column("", "left"), Column(plot.y.label))
        return Table(columns if named else columns[::2], tuple(_bar_rows(plot, bars, named)), plot.title, note)
    rows = tuple(_curve_row(plot, series, ascii_only) for series in curves if _known(series))
    if rows and not plot.categories:
        ends = [x for series in curves for x, _ in _known(series)]
        show = FORMATS[plot.x.format]
        note = f"{plot.x.label}: {show(min(ends))} to {show(max(ends))}. {note}".rstrip()
    head = (Column("", "left"), Column("", "left"), Column("last"), Column("range", "left", 1))
    return Table(head, rows, plot.title, note)


def _known(series: Series) -> list[tuple[float, float]]:
    pairs = zip(series.x, series.y, strict=True)
    return sorted((x, y) for x, y in pairs if y is not None and math.isfinite(x) and math.isfinite(y))


def _curve_row(plot: Plot, series: Series, ascii_only: bool) -> Row:
    show, values = FORMATS[plot.y.format], [y for _, y in _known(series)]
    shown = f"{show(min(values))} to {show(max(values))}"
    return Row((series.name or plot.y.label, sparkline(values, _CURVE, ascii_only), show(values[-1]), shown))


def _bar_rows(plot: Plot, bars: list[Series], named: bool) -> Iterator[Row]:
    show = FORMATS[plot.y.format]
    most = max((abs(y) for series in bars for _, y in _known(series)), default=0.0) or 1.0
    values = sorted(
        ((x, order, y) for order, series in enumerate(bars) for x, y in zip(series.x, series.y, strict=True)),
        key=lambda value: value[:2],
    )
    before: float | None = None
    for x, order, y in values:
        name = place_name(plot, x) if x != before or not named else ""
        before = x
        known = y if y is not None and math.isfinite(y) else None
        text, share = ("-", 0.0) if known is None else (show(known), known / most)
        cells = (name, bars[order].name, Cell(text, value=y, bar=share))
        yield Row(cells if named else cells[::2])
