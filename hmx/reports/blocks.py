"""The document model of reports: a job builds blocks, and each renderer draws every kind of block.

Blocks hold text and plain numbers. They know nothing of terminals, Markdown or HTML.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Tone = Literal["plain", "strong", "good", "warning", "bad", "faint"]
NumberFormat = Literal["number", "percent", "count", "duration"]


@dataclass(frozen=True)
class Heading:
    """The title of a section; level 1 is the largest."""

    text: str
    level: Literal[1, 2] = 1


@dataclass(frozen=True)
class Paragraph:
    """One or more sentences."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Args:
        name: header text; a table whose columns all lack a name is drawn without a header.
        align: `right` for figures, `left` for text.
        rank: 0 is always shown; in a narrow terminal, columns of the highest rank are left out first.
        unit: unit of the values, if any.
    """

    name: str
    align: Literal["left", "right"] = "right"
    rank: int = 0
    unit: str = ""

    @property
    def heading(self) -> str:
        """Return the header text, with the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


@dataclass(frozen=True)
class Cell:
    """A cell with more than text.

    Args:
        text: what is shown.
        value: the exact value, for CSV; None takes the text.
        tone: emphasis.
        bar: share of 1 that is drawn as a bar after the text.
        shade: -1 to 1, a background from blue to red in HTML.
        detail: longer text shown on hover in HTML.
    """

    text: str
    value: float | int | str | bool | None = None
    tone: Tone = "plain"
    bar: float | None = None
    shade: float | None = None
    detail: str = ""


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
    """Named values of a plot; None in `y` breaks a line.

    Args:
        name: legend text; series of one name share an entry.
        x: positions; for `bars` in a plot with `categories`, indices of categories.
        y: heights, as many as `x`.
        kind: how the values are drawn. Bars that share an `x` are stacked in the order of the series, unless the plot
            is `grouped`. A step holds its value until the next `x`. Areas are stacked in the HTML page: positive
            values upwards from 0, negative ones downwards.
        low: lower ends of a band (lines, steps) or of error bars (dots, bars), as many as `x`.
        high: upper ends.
        colour: index into the palette, so that one side keeps its colour over a page; -1 is grey, for guide lines.
        dashed: a dashed line; hollow dots.
        labels: hover text per value; empty shows the numbers.
        tags: short text drawn beside each value; empty draws none.
        x2: positions on the second horizontal axis of the plot, as many as `x`; empty if there is none.
        thin: a thin line that belongs to the series of the same name, such as one seed of a mean.
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float | None, ...]
    kind: Literal["line", "steps", "dots", "bars", "area"] = "line"
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    colour: int = 0
    dashed: bool = False
    labels: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    x2: tuple[float, ...] = ()
    thin: bool = False


@dataclass(frozen=True)
class Reference:
    """A straight line across a plot, such as a threshold, with its label; "diagonal" joins the corners."""

    axis: Literal["x", "y", "diagonal"]
    at: float = 0.0
    label: str = ""


@dataclass(frozen=True)
class Plot:
    """A figure with one pair of axes.

    Args:
        title: heading of the figure.
        x: horizontal axis.
        y: vertical axis.
        series: what is drawn; none leaves `caption` alone, which then says why.
        caption: what the figure shows and how to read it.
        references: reference lines.
        categories: names along the x axis instead of numbers.
        grouped: whether bars that share an `x` stand side by side instead of on top of each other.
        x2: second horizontal axis, to which the reader of an HTML page may switch; references are given on the first.
    """

    title: str
    x: Axis
    y: Axis
    series: tuple[Series, ...]
    caption: str = ""
    references: tuple[Reference, ...] = ()
    categories: tuple[str, ...] = ()
    grouped: bool = False
    x2: Axis | None = None


@dataclass(frozen=True)
class Shape:
    """A shape in pixels.

    Args:
        kind: what is drawn.
        x: left edge of a rectangle, else the centre.
        y: upper edge of a rectangle, else the centre.
        width: width of a rectangle, diameter of a circle.
        height: height of a rectangle, size of a text (12 if 0).
        fill: colour, as #rrggbb.
        text: content of a text; hover text of the other kinds.
    """

    kind: Literal["rect", "circle", "text"]
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    fill: str = "#000000"
    text: str = ""


@dataclass(frozen=True)
class Picture:
    """A drawing of a state: shapes where they can be drawn, else `text`, which may have several lines."""

    alt: str
    text: str
    width: float = 0.0
    height: float = 0.0
    shapes: tuple[Shape, ...] = ()


@dataclass(frozen=True)
class AnimationFrame:
    """A picture of an animation with what belongs to it.

    Args:
        picture: the drawing.
        facts: names and values below it.
        bars: names and shares of 1, drawn as bars.
    """

    picture: Picture
    facts: tuple[tuple[str, str], ...] = ()
    bars: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Animation:
    """Pictures that play one after another in the HTML page; other formats leave them out."""

    title: str
    frames: tuple[AnimationFrame, ...]
    caption: str = ""


@dataclass(frozen=True)
class Aside:
    """Blocks that only the HTML page shows: what a terminal has no room for.

    Args:
        blocks: what is shown.
        summary: text of a disclosure that hides the blocks until it is opened; empty for none.
        beside: whether pictures stand beside the text; otherwise all blocks follow one another.
    """

    blocks: tuple[Heading | Paragraph | Table | Plot | Picture | Animation, ...]
    summary: str = ""
    beside: bool = True


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
