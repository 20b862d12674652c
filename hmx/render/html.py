"""Render a document as one HTML page that fetches nothing: light and dark, readable on a phone, printable.

Plots are drawn and animations played by `page.js` and uPlot, which the page contains; without scripts it shows a table
of each plot, and the first picture of each animation.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from html import escape
from importlib.resources import files

from hmx.config.textfile import printable
from hmx.records.plain import JsonValue, plain
from hmx.render import blocks, svg
from hmx.render.terminal import plot_table

_PROSE = 40  # characters of a cell that is wide even on a phone
NO_REQUESTS = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"


def page(document: blocks.Document, live: bool = False) -> str:
    """Return a document as the text of an HTML file.

    Args:
        document: its content.
        live: the page fetches newer content from its server, see `live.js`; otherwise it makes no
            requests.
    """
    title, body = safe(document.title), _body(document.blocks)
    interactive = '<script type="application/json">' in body
    style = (_asset("vendor/uPlot.min.css") if interactive else "") + _asset("page.css")
    script = f"<script>{_asset('vendor/uPlot.iife.min.js')}\n{_asset('page.js')}</script>" if interactive else ""
    script += f"<script>{_asset('live.js')}</script>" if live else ""
    policy = NO_REQUESTS + "; connect-src 'self'" if live else NO_REQUESTS
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{style}</style></head>\n"
        f"<body><main{' data-live' if live else ''}><h1>{title}</h1>\n{body}\n</main>{script}</body></html>\n"
    )


@cache
def _asset(name: str) -> str:
    return files("hmx.render").joinpath(name).read_text(encoding="utf-8")


def _data(value: JsonValue) -> str:
    """Return data for the script of the page, escaped so that they cannot end the element."""
    text = json.dumps(value, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="application/json">{text}</script>'


def safe(text: str) -> str:
    """Return text to put between tags or quotes."""
    return escape(printable(text, ""))


def _body(given: Sequence[blocks.Block]) -> str:
    """Return blocks in order; neighbouring plots and pictures stand side by side."""
    parts: list[str] = []
    for drawn, group in itertools.groupby(given, _is_drawn):
        texts = [_block(block) for block in group]
        parts.append(f'<div class="plots">{"".join(texts)}</div>' if drawn else "\n".join(texts))
    return "\n".join(parts)


def _is_drawn(block: blocks.Block) -> bool:
    return isinstance(block, (blocks.Plot, blocks.Picture))


def _block(block: blocks.Block) -> str:
    match block:
        case blocks.Heading():
            return f"<h{block.level + 1}>{safe(block.text)}</h{block.level + 1}>"
        case blocks.Paragraph(tone="command"):
            return f"<pre>{safe(block.text)}</pre>"
        case blocks.Paragraph():
            return f"<p{_class(block.tone)}>{safe(block.text)}</p>"
        case blocks.Table():
            return _table(block)
        case blocks.Plot():
            return _plot(block)
        case blocks.Picture():
            return _picture(block)
        case blocks.Animation():
            return _animation(block)
        case blocks.Aside():
            return _aside(block)


def _class(*names: str) -> str:
    kept = " ".join(name for name in names if name not in ("", "plain"))
    return f' class="{kept}"' if kept else ""


def _table(table: blocks.Table) -> str:
    head = ""
    if any(column.name for column in table.columns):
        names = "".join(f"<th{side(column)}>{safe(column.name)}</th>" for column in table.columns)
        head = f"<thead><tr>{names}</tr></thead>"
    title = f"<caption>{safe(table.title)}</caption>" if table.title else ""
    rows = "".join(_row(row, table.columns) for row in table.rows)
    note = f'<p class="note">{safe(table.note)}</p>' if table.note else ""
    return f'<div class="scroll"><table>{title}{head}<tbody>{rows}</tbody></table></div>{note}'


def side(column: blocks.Column) -> str:
    """Return the classes of the head of a column."""
    return _class("right" if column.align == "right" else "", _rank(column))


def _rank(column: blocks.Column) -> str:
    """Return the class of columns that a phone leaves out."""
    return "spare" if column.rank > 1 else ""


def _row(row: blocks.Row, columns: Sequence[blocks.Column]) -> str:
    if len(row.cells) == 1 and len(columns) > 1:
        cell = blocks.as_cell(row.cells[0])
        return f'<tr><th class="group" colspan="{len(columns)}">{safe(cell.text)}</th></tr>'
    cells = "".join(table_cell(blocks.as_cell(cell), column) for cell, column in zip(row.cells, columns, strict=True))
    return f"<tr{_class(row.tone)}>{cells}</tr>"


def table_cell(cell: blocks.Cell, column: blocks.Column, address: str = "") -> str:
    """Return a cell of a table; its text links to `address`."""
    shade = style = ""
    if cell.shade is not None:
        red, strength = cell.shade > 0, min(abs(cell.shade), 1.0)
        style = f' style="background: rgba({"214, 69, 65" if red else "66, 133, 244"}, {0.65 * strength:.2f})"'
        shade = "shaded"
    bar = ""
    if cell.bar is not None:
        width = 6.0 * min(max(cell.bar, 0.0), 1.0)
        bar = f'<span class="space"><span class="bar" style="width: {width:.2f}em"></span></span>'
    prose = column.rank and len(cell.text) > _PROSE
    names = _class("right" if column.align == "right" else "prose" if prose else "", _rank(column), cell.tone, shade)
    text = f'<a href="{escape(address)}">{safe(cell.text)}</a>' if address else safe(cell.text)
    return f"<td{names}{style}>{text}{bar}</td>"


def _plot(plot: blocks.Plot) -> str:
    caption = f"<p>{safe(plot.caption)}</p>" if plot.caption else ""
    chart = _chart(plot)
    drawn = _data(chart) + _table(replace(plot_table(plot), title="", note="")) if chart["series"] else ""
    heading = f"<figcaption><h3>{safe(plot.title)}</h3>{caption}</figcaption>"
    return f"<figure{_class('plot' if drawn else '', 'wide' if plot.wide else '')}>{heading}{drawn}</figure>"


def _chart(plot: blocks.Plot) -> dict[str, JsonValue]:
    """Return a plot as the script reads it: series that share their places refer to one grid, ordered by place."""
    grids: dict[tuple[tuple[float, ...], tuple[float, ...]], int] = {}
    lines: list[JsonValue] = []
    for series, order in _layers(plot):
        x, x2 = (tuple(values[i] for i in order) if values else () for values in (series.x, series.x2))
        y = _rounded([series.y[i] for i in order])
        if y.count(None) == len(y):
            continue
        bands = (("low", series.low), ("high", series.high))
        ends = {name: _rounded([values[i] for i in order]) for name, values in bands if values}
        texts = (("labels", series.labels), ("tags", series.tags))
        lines.append({
            "name": printable(series.name, ""), "kind": series.kind, "colour": series.colour, "dashed": series.dashed,
            "thin": series.thin, "grid": grids.setdefault((x, x2), len(grids)), "y": y,
            **{name: [printable(values[i], "") for i in order] for name, values in texts if values},
            **(ends if len(ends) == 2 else {}),
        })  # fmt: skip
    return {
        **{name: _labelled(axis) for name, axis in (("x", plot.x), ("y", plot.y), ("x2", plot.x2)) if axis},
        **({"categories": [printable(name, "") for name in plot.categories]} if plot.categories else {}),
        "grouped": plot.grouped,
        "grids": [{"x": list(x), "x2": _rounded(x2)} for x, x2 in grids],
        "series": lines,
        "references": [_labelled(reference) for reference in plot.references],
    }


def _layers(plot: blocks.Plot) -> Iterator[tuple[blocks.Series, list[int]]]:
    """Yield each series with its values in the order of their places; dots above each other are in several layers.

    The script keeps one value per place and series.
    """
    for series in plot.series:
        order = [i for i in sorted(range(len(series.x)), key=series.x.__getitem__) if math.isfinite(series.x[i])]
        order = [i for i in order if series.x[i] > 0 or plot.x.scale == "linear"]
        if series.kind != "dots":
            yield series, order
            continue
        above = [list(group) for _, group in itertools.groupby(order, series.x.__getitem__)]
        for layer in itertools.zip_longest(*above):
            yield series, [i for i in layer if i is not None]


def _labelled(part: blocks.Axis | blocks.Reference) -> JsonValue:
    return plain(asdict(replace(part, label=printable(part.label, ""))))


def _rounded(values: Sequence[float | None]) -> list[JsonValue]:
    """Return values with five digits; null for values that cannot be drawn."""
    return [float(f"{v:.5g}") if v is not None and math.isfinite(v) else None for v in values]


def _animation(animation: blocks.Animation) -> str:
    """Return the first picture, with all of them as data: each distinct shape is written once."""
    shapes: dict[str, int] = {}

    def frame(found: blocks.AnimationFrame) -> JsonValue:
        drawn = [shapes.setdefault(shape, len(shapes)) for shape in _parts(found.picture)]
        facts = [[printable(name, ""), printable(value, "")] for name, value in found.facts]
        bars = [[printable(name, ""), round(share, 3)] for name, share in found.bars]
        return plain({"shapes": drawn, "facts": facts, "bars": bars})

    frames = [frame(found) for found in animation.frames]
    first = animation.frames[0].picture
    sizes = [_size(found.picture) for found in animation.frames]
    size = max(width for width, _ in sizes), max(height for _, height in sizes)
    drawn = svg.figure(*size, list(_parts(first)), printable(f"{animation.title}: {first.alt}", ""))
    caption = f"<p>{safe(animation.caption)}</p>" if animation.caption else ""
    data = _data({"shapes": list(shapes), "frames": frames})
    return (
        f'<figure class="player"><figcaption><h3>{safe(animation.title)}</h3>{caption}</figcaption>'
        f'<div class="stage">{drawn}<div class="beside"></div></div>{data}</figure>'
    )


def _picture(picture: blocks.Picture) -> str:
    if not picture.shapes:
        text = escape(printable(picture.text, "\n"))
        return f'<figure class="picture"><pre role="img" aria-label="{safe(picture.alt)}">{text}</pre></figure>'
    drawn = svg.figure(picture.width, picture.height, list(shapes_svg(picture.shapes)), printable(picture.alt, ""))
    return f'<figure class="picture">{drawn}</figure>'


def _size(picture: blocks.Picture) -> tuple[float, float]:
    lines = picture.text.splitlines() or [""]
    return (picture.width, picture.height) if picture.shapes else (8.0 * max(map(len, lines)), 16.0 * len(lines))


def _parts(picture: blocks.Picture) -> Iterator[str]:
    """Yield the elements of a drawing, or the lines of its text if it has no shapes."""
    yield from shapes_svg(picture.shapes)
    for i, line in enumerate(() if picture.shapes else picture.text.splitlines()):
        text = svg.words(0, 12 + 16 * i, printable(line, ""), size=13, colour="var(--ink)")
        yield text.replace("<text ", '<text xml:space="preserve" font-family="monospace" ', 1)


def shapes_svg(shapes: Iterable[blocks.Shape]) -> Iterator[str]:
    """Yield the SVG of each shape."""
    for shape in shapes:
        fill, text = safe(shape.fill), printable(shape.text, "")
        if shape.kind == "rect":
            yield svg.rect(shape.x, shape.y, shape.width, shape.height, fill, text)
        elif shape.kind == "circle":
            yield svg.dot(shape.x, shape.y, shape.width / 2, fill, text)
        else:
            size = shape.height or 12.0
            yield svg.words(shape.x, shape.y + 0.35 * size, text, "middle", round(size), fill, mono=shape.mono)


def _aside(aside: blocks.Aside) -> str:
    """Return pictures next to their text, or blocks below each other, perhaps behind a disclosure."""
    if not aside.beside:
        body = _body(aside.blocks)
    else:
        parts = []
        for drawn, group in itertools.groupby(aside.blocks, _is_drawn):
            text = _body(list(group))
            parts.append(text if drawn else f'<div class="text">{text}</div>')
        body = f'<div class="aside">{"".join(parts)}</div>'
    return f"<details><summary>{safe(aside.summary)}</summary>{body}</details>" if aside.summary else body
