"""A comparison for eyes in a terminal, as Markdown, and as a table for other programs."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hmx.cli.compare_report import EFFECT, Block, Found, Grid, Heading, Line, blocks, title
from hmx.config.textfile import printable

_STYLES = {"plain": "", "good": "bold", "caution": "yellow", "stop": "bold red", "faint": "dim"}
_ASCII = {"±": "+/-", "→": ">", "·": "."}


def render(found: Found, ascii_only: bool = False) -> RenderableType:
    """The whole report for a terminal."""
    parts: list[RenderableType] = []
    for block in blocks(found):
        if isinstance(block, Heading):
            parts += [Text(""), Text(_safe(block.text, ascii_only), "bold cyan")]
        elif isinstance(block, Line):
            parts.append(Text(_safe(block.text, ascii_only), _STYLES[block.kind]))
        else:
            parts.append(_listing(block, ascii_only) if block.prose else _Tables(block, ascii_only))
    return Group(*parts[1:])


def _safe(text: str, ascii_only: bool) -> str:
    text = printable(text)
    for sign, plain in _ASCII.items() if ascii_only else ():
        text = text.replace(sign, plain)
    return text


class _Tables:
    """A table; where its sides do not fit beside each other, several with as many of them as do."""

    def __init__(self, grid: Grid, ascii_only: bool) -> None:
        self._grid, self._ascii = grid, ascii_only

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table or several."""
        found: list[Table] = []
        for count in range(len(self._grid.columns) - 1 if self._grid.sides else 0, 0, -1):
            found = [_table(part, self._ascii) for part in _parts(self._grid, count)]
            wide = options.update(width=10_000)
            if max(Measurement.get(console, wide, table).maximum for table in found) <= options.max_width:
                break
        yield from found or [_table(self._grid, self._ascii)]


def _parts(grid: Grid, count: int) -> Iterator[Grid]:
    """The table with `count` columns at a time, each with the first."""
    for start in range(1, len(grid.columns), count):
        kept = [0, *range(start, min(start + count, len(grid.columns)))]
        rows = tuple(row if len(row) == 1 else tuple(row[i] for i in kept) for row in grid.rows)
        yield dataclasses.replace(grid, columns=tuple(grid.columns[i] for i in kept), rows=rows)


def _table(grid: Grid, ascii_only: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(grid.columns):
        right = grid.right and number > 0
        table.add_column(
            _safe(name, ascii_only), justify="right" if right else "left", overflow="fold", no_wrap=number == 0
        )
    for row in grid.rows:
        if len(row) == 1:
            table.add_row(Text(_safe(row[0], ascii_only), "bold"))
        else:
            table.add_row(*(Text(_safe(cell, ascii_only)) for cell in row))
    return table


def _listing(grid: Grid, ascii_only: bool) -> Table:
    """A table with sentences as pairs of lines, which fit a terminal of any width."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("", Text(_safe(" | ".join(grid.columns[1:-1]), ascii_only), "bold"))
    for row in grid.rows:
        if len(row) == 1:
            table.add_row(Text(_safe(row[0], ascii_only), "bold"))
            continue
        if row[0] == EFFECT:
            for words in _effects(grid.columns[1:-1], row):
                table.add_row("", Text(_safe(words, ascii_only)))
            continue
        table.add_row(Text(_safe(f"  {row[0]}", ascii_only)), Text(_safe(" | ".join(row[1:-1]), ascii_only)))
        if row[-1]:
            table.add_row("", Text(_safe(row[-1], ascii_only), "dim"))
    return table


def _effects(letters: Sequence[str], row: Sequence[str]) -> Iterator[str]:
    """What each side comes to, those that come to the same together."""
    for effect in dict.fromkeys(row[1:-1]):
        who = ", ".join(letter for letter, words in zip(letters, row[1:-1], strict=True) if words == effect)
        yield f"{who}: {effect}"
    if row[-1]:
        yield row[-1]


def markdown(found: Found) -> str:
    """The whole report as Markdown."""
    out = [f"# {_cell(title(found))}", ""]
    for block in blocks(found):
        out += [*_markdown(block), ""]
    return "\n".join(out).rstrip() + "\n"


def _markdown(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"## {_cell(block.text)}"
    elif isinstance(block, Line):
        text = _cell(block.text)
        yield f"**{text}**" if block.kind in ("good", "stop", "caution") else text
    else:
        yield _row(block.columns)
        yield _row(["---" if i == 0 or not block.right else "---:" for i in range(len(block.columns))])
        for row in block.rows:
            cells = [f"**{_cell(row[0])}**", *[""] * (len(block.columns) - 1)] if len(row) == 1 else map(_cell, row)
            yield f"| {' | '.join(cells)} |"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    """Text that Markdown shows as it is."""
    text = printable(text, "")
    for sign in "\\`*[]<>|#":
        text = text.replace(sign, f"\\{sign}")
    return text


COLUMNS = ("task", "side", "other", "figure", "value", "low", "high")


def table(found: Found) -> str:
    """Every figure as a row of comma-separated values; what is not known is empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(_rows(found))
    return out.getvalue()


def _rows(found: Found) -> Iterator[list[Any]]:
    for task in found["tasks"]:
        for side in task["sides"]:
            where = (task["name"], side["letter"], "")
            for place, value in zip(side["seeds"], side["finals"], strict=True):
                number = "" if place["seed"] is None else place["seed"]
                yield [
                    task["name"],
                    side["letter"],
                    f"{place['run']} seed {number}".strip(),
                    "final",
                    value,
                    None,
                    None,
                ]
            yield [*where, "mean", side["mean"], None, None]
            yield [*where, "std", side["std"], None, None]
            for name in ("iqm", "area", "evaluated"):
                yield [*where, name, *_ends(side[name])]
            for threshold in side["thresholds"]:
                for name in ("steps", "seconds"):
                    yield [*where, f"{name} to {threshold['value']:g}", threshold[name], None, None]
        yield from _of_pairs(task["name"], task["pairs"])
    for side in found["overall"]["sides"]:
        for name in ("iqm", "median", "mean", "gap"):
            yield ["all", side["letter"], "", name, *_ends(side[name])]
        for tau, share in zip(found["overall"]["taus"], side["profile"], strict=True):
            yield ["all", side["letter"], "", f"share above {tau:g}", share, None, None]
    yield from _of_pairs("all", found["overall"]["pairs"])
    for row in found["speed"]:
        for name in ("steps_per_sec", "updates_per_sec", "seconds", "startup", "memory"):
            yield [row["task"], row["letter"], "", name, row[name], None, None]
    for task, metrics in found["diagnostics"]["tasks"].items():
        for metric, sides in metrics.items():
            for letter, values in sides.items():
                for share, value in zip(found["diagnostics"]["at"], values, strict=True):
                    yield [task, letter, "", f"{metric} at {share:.0%}", value, None, None]


def _of_pairs(task: str, pairs: Sequence[Found]) -> Iterator[list[Any]]:
    for pair in pairs:
        for name in ("improvement", "difference", "paired"):
            yield [task, pair["a"], pair["b"], name, *_ends(pair[name])]
        yield [task, pair["a"], pair["b"], "chance", pair["chance"], None, None]


def _ends(found: Mapping[str, Any] | None) -> list[Any]:
    return [None, None, None] if found is None else [found["value"], found["low"], found["high"]]
