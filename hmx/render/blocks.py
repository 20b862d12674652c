"""The document model of reports: a job builds blocks, and each renderer draws every kind of block.

Blocks hold text and plain numbers. They do not depend on terminals, Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Tone = Literal["plain", "strong", "good", "warning", "bad", "faint", "command"]
NumberFormat = Literal["number", "percent", "count", "duration"]


@dataclass(frozen=True)
class Heading:
    """The title of a section; level 1 is the largest."""

    text: str
    level: Literal[1, 2] = 1


@dataclass(frozen=True)
class Paragraph:
    """One or more sentences; with the tone `command`, a command to copy, which is never wrapped."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Column:
    """A column of a table; a table whose columns all lack a name is drawn without a header."""

    name: str
    align: Literal["left", "right"] = "right"  # figures are right, text is left
    rank: int = 0  # 0 is always shown; a narrow terminal drops columns of the highest rank first


@dataclass(frozen=True)
class Cell:
    """A cell with more than text."""

    text: str
    value: float | int | str | bool | None = None  # the exact value, for CSV; None takes the text
    tone: Tone = "plain"
    bar: float | None = None  # share of 1 that is drawn as a bar after the text
    shade: float | None = None  # -1 to 1, a background from blue to red in HTML


@dataclass(frozen=True)
class Row:
    """Cells in the order of the columns; a `Row` with a single cell is a heading within the table."""

    cells: tuple[Cell | str, ...]
    tone: Tone = "plain"


@dataclass(frozen=True)
class Table:
    """Columns and rows, with an optional title above and a note below."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis; ends that are None follow from the data."""

    label: str
    scale: Literal["linear", "log"] = "linear"
    format: NumberFormat = "number"
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Series:
    """Named values of a plot, as many `y` as `x`.

    Bars that share an `x` are stacked in the order of the series, unless the plot is `grouped`. A step holds its value
    until the next `x`. Areas are stacked in the HTML page: positive values upwards from 0, negative ones downwards.
    """

    name: str  # in the legend; series of one name share an entry
    x: tuple[float, ...]  # for `bars` in a plot with `categories`, indices of categories
    y: tuple[float | None, ...]  # None breaks a line
    kind: Literal["line", "steps", "dots", "bars", "area"] = "line"
    low: tuple[float | None, ...] = ()  # lower ends of a band (lines, steps) or of error bars (dots, bars)
    high: tuple[float | None, ...] = ()
    colour: int = 0  # index into the palette, which a side keeps over a page; -1 is grey, for guide lines
    dashed: bool = False  # a dashed line; hollow dots
    labels: tuple[str, ...] = ()  # hover text per value; empty shows the numbers
    tags: tuple[str, ...] = ()  # short text drawn next to each value
    x2: tuple[float, ...] = ()  # positions on the second horizontal axis of the plot; empty if there is none
    thin: bool = False  # a thin line that belongs to the series of the same name, such as one seed of a mean


@dataclass(frozen=True)
class Reference:
    """A straight line across a plot, such as a threshold, with its label; "diagonal" joins the corners."""

    axis: Literal["x", "y", "diagonal"]
    at: float = 0.0
    label: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure with one pair of axes."""

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]  # if empty, only `caption` is shown, with the reason
    caption: str = ""  # what the figure shows and how to read it
    references: tuple[Reference, ...] = ()
    categories: tuple[str, ...] = ()  # names along the x axis instead of numbers
    grouped: bool = False  # whether bars that share an `x` stand side by side instead of on top of each other
    wide: bool = False  # whether the plot takes the whole width of a page
    x2: Axis | None = None  # to which the reader of an HTML page may switch; references are given on the first axis


@dataclass(frozen=True)
class Shape:
    """A shape in pixels; `x` and `y` are the upper left corner of a rectangle, otherwise the centre."""

    kind: Literal["rect", "circle", "text"]
    x: float
    y: float
    width: float = 0.0  # of a rectangle; diameter of a circle
    height: float = 0.0  # of a rectangle; size of a text (12 if 0)
    fill: str = "#000000"
    text: str = ""  # content of a text; hover text of the other kinds
    mono: bool = False  # whether a text has letters of one width


@dataclass(frozen=True)
class Picture:
    """A drawing of a state: shapes if they can be drawn, otherwise `text`, which may have several lines."""

    alt: str
    text: str
    width: float = 0.0
    height: float = 0.0
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class AnimationFrame:
    """A picture of an animation with its values."""

    picture: Picture
    facts: tuple[tuple[str, str], ...] = ()  # names and values below it
    bars: tuple[tuple[str, float], ...] = ()  # names and shares of 1


@dataclass(frozen=True)
class Animation:
    """Pictures that play one after another in the HTML page; other formats omit them."""

    title: str
    frames: tuple[AnimationFrame, ...]
    caption: str = ""


@dataclass(frozen=True)
class Aside:
    """Blocks that only the HTML page shows, since a terminal has no room for them."""

    blocks: tuple[Heading | Paragraph | Table | Plot | Picture | Animation, ...]
    summary: str = ""  # text of a disclosure that hides the blocks until it is opened; empty for none
    beside: bool = True  # whether pictures stand beside the text; otherwise all blocks follow one another


Block = Heading | Paragraph | Table | Plot | Picture | Animation | Aside


@dataclass(frozen=True)
class Document:
    """A report, in reading order; the verdict comes first."""

    title: str
    blocks: tuple[Block, ...]


def as_cell(cell: Cell | str) -> Cell:
    """Return a cell of a row as a `Cell`."""
    return cell if isinstance(cell, Cell) else Cell(cell)


def exact_table(names: Iterable[str], rows: Iterable[Iterable[float | int | str | bool | None]]) -> Table:
    """Build a table of exact values, for CSV; None is an empty cell."""
    cells = (tuple(Cell("" if value is None else str(value), value) for value in row) for row in rows)
    return Table(tuple(map(Column, names)), tuple(map(Row, cells)))


def facts(pairs: tuple[tuple[str, str], ...]) -> Table:
    """Build a table of names and values without a header."""
    columns = (Column("", "left"), Column("", "left"))
    return Table(columns, tuple(Row((Cell(name, tone="faint"), value)) for name, value in pairs))


def opening(document: Document) -> Document:
    """Return the part of a document before its first heading."""
    until = next((i for i, block in enumerate(document.blocks) if isinstance(block, Heading)), len(document.blocks))
    return replace(document, blocks=document.blocks[:until])
