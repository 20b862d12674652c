"""Draw the plots of a document as SVG, in colours that the style sheet of the page defines."""

from __future__ import annotations

import itertools
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from hmx.config.textfile import printable
from hmx.render import svg
from hmx.render.blocks import Axis, Plot, Series
from hmx.render.quantities import FORMATS, duration, number, percent, place_name, short

PALETTE = 8  # colours --c0 to --c7 of the style sheet

_WIDTH, _HEIGHT = 460.0, 290.0
_LETTER = 6.6  # pixels per letter, at most
_TOP, _RIGHT, _BOTTOM = 14.0, 16.0, 44.0
_INK, _GRID, _FAINT, _PAGE = "var(--ink)", "var(--grid)", "var(--faint)", "var(--page)"
_WIDEST_BAR = 56.0
_OUTSIDE = 5.0  # pixels around the axes in which marks remain visible
_LONGEST_CATEGORY = 18
_SLANTED = 20.0  # pixels between slanted names
_ROOM = 0.04  # share of the range of the data left free at each end of an axis

_LINES = ("line", "steps", "area")  # areas are stacked in the interactive plot only

Point = tuple[float, float]


@dataclass(frozen=True)
class _Area:
    """The part of a drawing between its axes."""

    plot: Plot
    left: float
    bottom: float
    x: svg.Scale
    y: svg.Scale

    @property
    def right(self) -> float:
        return _WIDTH - _RIGHT

    def base(self) -> float:
        """Return the base of bars."""
        return self.bottom if self.plot.y.scale == "log" else self.y.place(0.0)


def colour(series: Series) -> str:
    """Return the colour of a series."""
    return _FAINT if series.colour < 0 else f"var(--c{series.colour % PALETTE})"


def has_values(plot: Plot) -> bool:
    """Return whether a plot has values to draw."""
    return any(True for series in plot.series for _ in _shown(plot, series))


def drawing(plot: Plot) -> str:
    """Return a plot that has values as an SVG element."""
    area = _layout(plot)
    label = f"{plot.title}: {plot.y.label} over {plot.x.label}; {', '.join(names(plot))}"
    marks = "".join(_marks(area))
    left, top = area.left - _OUTSIDE, _TOP - _OUTSIDE
    width, height = area.right - area.left + 2 * _OUTSIDE, area.bottom - _TOP + 2 * _OUTSIDE
    box = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
    inner = (
        f'<svg x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" viewBox="{box}" '
        f'overflow="hidden">{marks}</svg>'
    )
    parts = [*_axes(area), inner, *_references(area), *_tags(area)]
    return svg.figure(_WIDTH, _HEIGHT, parts, printable(label, ""))


def names(plot: Plot) -> list[str]:
    """Return the names of the series in order, each once."""
    return list(dict.fromkeys(series.name for series in plot.series if series.name))


def swatch(series: Series) -> str:
    """Return a small drawing of the style of a series, for a legend."""
    if series.kind == "bars":
        mark = svg.rect(4, 1, 10, 10, colour(series))
    elif series.kind == "dots":
        mark = _dot(9, 6, colour(series), series.dashed)
    else:
        mark = svg.line([(0, 6), (18, 6)], colour(series), 2.5, _dash(series))
    return f'<svg width="18" height="12" aria-hidden="true">{mark}</svg>'


def _usable(value: float | None, axis: Axis) -> TypeGuard[float]:
    return value is not None and math.isfinite(value) and (axis.scale == "linear" or value > 0)


def _shown(plot: Plot, series: Series) -> Iterator[tuple[int, float, float]]:
    """Yield index, x and y of the values that can be drawn."""
    for i, (x, y) in enumerate(zip(series.x, series.y, strict=True)):
        if _usable(x, plot.x) and _usable(y, plot.y):
            yield i, x, y


def _layout(plot: Plot) -> _Area:
    bottom = _HEIGHT - _BOTTOM
    if plot.categories and _slanted(plot, 64.0):
        bottom -= 0.6 * _LETTER * min(max(map(len, plot.categories)), _LONGEST_CATEGORY)
    y = _scale(plot.y, _vertical(plot), bottom, _TOP)
    widest = max((len(text) for text in _tick_texts(y.ticks, plot.y)), default=1)
    left = 30.0 + _LETTER * widest
    x = _scale(plot.x, _horizontal(plot), left, _WIDTH - _RIGHT)
    return _Area(plot, left, bottom, x, y)


def _horizontal(plot: Plot) -> Point:
    if plot.categories:
        return -0.5, len(plot.categories) - 0.5
    values = [x for series in plot.series for _, x, _ in _shown(plot, series)]
    values += [ref.at for ref in plot.references if ref.axis == "x" and _usable(ref.at, plot.x)]
    apart = any(series.kind in ("bars", "dots") for series in plot.series)
    return _ends(plot.x, values, _ROOM if apart else 0.0)


def _vertical(plot: Plot) -> Point:
    values = [y for series in plot.series for _, _, y in _shown(plot, series)]
    for series in plot.series:
        values += [value for value in (*series.low, *series.high) if _usable(value, plot.y)]
    values += [ref.at for ref in plot.references if ref.axis == "y" and _usable(ref.at, plot.y)]
    bars = [end for _, _, start, height, _ in _bars(plot) for end in (start, start + height)]
    return _ends(plot.y, values + [end for end in bars if _usable(end, plot.y)], _ROOM, bool(bars))


def _ends(axis: Axis, values: Sequence[float], room: float, from_zero: bool = False) -> Point:
    """Return both ends of an axis, with some room around the data if the axis has no ends."""
    low, high = min(values, default=1.0), max(values, default=1.0)
    if axis.scale == "log":
        margin = (high / low) ** room if high > low else 1.5
        low, high = low / margin, high * margin
    else:
        span = (high - low) or abs(high) or 1.0
        margin = span * (room if high > low else 0.5)
        low, high = low - (0.0 if from_zero and low == 0 else margin), high + margin
    return axis.low if _usable(axis.low, axis) else low, axis.high if _usable(axis.high, axis) else high


def _scale(axis: Axis, ends: Point, start: float, end: float) -> svg.Scale:
    if axis.scale == "log":
        return svg.logarithmic(*ends, start, end)
    return svg.linear(*ends, start, end, seconds=axis.format == "duration")


def _tick_texts(ticks: Sequence[float], axis: Axis) -> list[str]:
    """Return the labels of ticks, with enough decimals to distinguish them."""
    if axis.format == "duration":
        return [duration(tick).replace(".0 ", " ") for tick in ticks]
    if axis.scale == "log":
        return [FORMATS[axis.format](tick) for tick in ticks]
    unit = 100.0 if axis.format == "percent" else 1.0
    decimals = next((d for d in range(7) if all(math.isclose(round(t * unit, d), t * unit) for t in ticks)), 7)
    if axis.format == "percent":
        return [percent(tick, decimals) for tick in ticks]
    if axis.format == "count" and not decimals:
        return [re.sub(r"\.0+(?=[kMG])|(?<=\.[1-9])0(?=[kMG])", "", short(tick)) for tick in ticks]
    if decimals > 6 or max(map(abs, ticks), default=0.0) >= 1e6:
        return [number(tick) for tick in ticks]
    return [f"{tick:,.{decimals}f}" for tick in ticks]


def _axes(area: _Area) -> Iterator[str]:
    plot = area.plot
    for tick, text in zip(area.y.ticks, _tick_texts(area.y.ticks, plot.y), strict=True):
        yield svg.line([(area.left, area.y.place(tick)), (area.right, area.y.place(tick))], _GRID)
        yield svg.words(area.left - 6, area.y.place(tick) + 4, text, "end", colour=_INK)
    if plot.categories:
        yield from _category_names(area)
    else:
        for tick, text in zip(area.x.ticks, _tick_texts(area.x.ticks, plot.x), strict=True):
            place = min(area.x.place(tick), _WIDTH - _LETTER * len(text) / 2)  # the text ends inside the drawing
            yield svg.words(place, area.bottom + 16, text, "middle", colour=_INK)
    yield svg.line([(area.left, _TOP), (area.left, area.bottom), (area.right, area.bottom)], _FAINT)
    if any(series.kind == "bars" for series in plot.series) and area.base() < area.bottom - 0.5:
        yield svg.line([(area.left, area.base()), (area.right, area.base())], _FAINT)
    middle = (area.left + area.right) / 2
    yield svg.words(middle, _HEIGHT - 8, printable(plot.x.label, ""), "middle", 12, _FAINT)
    yield svg.words(12, (_TOP + area.bottom) / 2, printable(plot.y.label, ""), "middle", 12, _FAINT, -90)


def _slanted(plot: Plot, left: float) -> bool:
    """Return whether the names of categories are too long to stand side by side."""
    slot = (_WIDTH - _RIGHT - left) / len(plot.categories)
    return max(map(len, plot.categories)) * _LETTER > slot - 4


def _category_names(area: _Area) -> Iterator[str]:
    plot = area.plot
    slanted = _slanted(plot, area.left)
    every = math.ceil((_SLANTED if slanted else 1) * len(plot.categories) / (area.right - area.left))
    for i, name in list(enumerate(plot.categories))[::every]:
        text = printable(name, "")
        text = text if len(text) <= _LONGEST_CATEGORY else f"{text[: _LONGEST_CATEGORY - 1]}…"
        place = area.x.place(i)
        if slanted:
            yield svg.words(place + 4, area.bottom + 13, text, "end", colour=_INK, turn=-38)
        else:
            yield svg.words(place, area.bottom + 16, text, "middle", colour=_INK)


def _references(area: _Area) -> Iterator[str]:
    taken: list[tuple[float, float, float]] = []  # both ends and the height of each label
    for ref in sorted(area.plot.references, key=lambda ref: -ref.at):
        if ref.axis == "diagonal":
            ends = [(area.left, area.bottom), (area.right, _TOP)]
        elif not _usable(ref.at, area.plot.x if ref.axis == "x" else area.plot.y):
            continue
        elif ref.axis == "x":
            ends = [(area.x.place(ref.at), _TOP), (area.x.place(ref.at), area.bottom)]
        else:
            ends = [(area.left, area.y.place(ref.at)), (area.right, area.y.place(ref.at))]
        if not all(area.left - 1 <= x <= area.right + 1 and _TOP - 1 <= y <= area.bottom + 1 for x, y in ends):
            continue
        yield svg.line(ends, _FAINT, 1, "5 4")
        if ref.label:
            # A threshold is labelled below its right end, where curves that passed it are above.
            x, y = ends[0] if ref.axis == "x" else ends[1]
            rightward = x < (area.left + area.right) / 2
            x, y = (x + 5 if rightward else x - 5), min(y + 11, area.bottom - 4)
            start = x - (0 if rightward else _LETTER * len(ref.label))
            end = start + _LETTER * len(ref.label)
            while any(start < right and left < end and abs(y - height) < 12 for left, right, height in taken):
                y += 1
            taken.append((start, end, y))
            yield _halo(x, y, ref.label, "start" if rightward else "end", _FAINT)


def _halo(x: float, y: float, text: str, anchor: str, ink: str) -> str:
    """Return text that can be read across lines."""
    words = svg.words(x, y, printable(text, ""), anchor, colour=ink)
    return words.replace("<text ", f'<text stroke="{_PAGE}" stroke-width="3" paint-order="stroke" ', 1)


def _tags(area: _Area) -> Iterator[str]:
    for series in area.plot.series:
        for i, x, y in _shown(area.plot, series):
            if i < len(series.tags) and series.tags[i]:
                place, height = area.x.place(x), max(area.y.place(y) - 7, 10)
                late = place + 8 + _LETTER * len(series.tags[i]) > _WIDTH
                yield _halo(place + (-7 if late else 7), height, series.tags[i], "end" if late else "start", _INK)


def _marks(area: _Area) -> Iterator[str]:
    """Yield bars, then bands, then lines and dots, so that thinner marks stay visible."""
    plot = area.plot
    yield from _bar_marks(area)
    for series in plot.series:
        if series.kind in _LINES:
            yield from _band(area, series)
    for series in plot.series:
        # Thin lines of other plots are drawn by the script of the page only.
        if series.kind in _LINES and (not series.thin or plot.categories):
            yield from _line(area, series)
    for series in plot.series:
        if series.kind == "dots":
            for i, x, y in _shown(plot, series):
                yield from _error_bar(area, series, i, area.x.place(x))
                title = _hover(plot, series, i)
                yield _dot(area.x.place(x), area.y.place(y), colour(series), series.dashed, title)


def _bars(plot: Plot) -> Iterator[tuple[Series, int, float, float, int]]:
    """Yield series, index, start, height and place in its group of every bar."""
    ends: defaultdict[tuple[float, bool], float] = defaultdict(float)
    bars = [series for series in plot.series if series.kind == "bars"]
    places = {name: place for place, name in enumerate(dict.fromkeys(series.name for series in bars))}
    for series in bars:
        for i, x, y in _shown(plot, series):
            start = 0.0 if plot.grouped else ends[x, y < 0]
            ends[x, y < 0] = start + y
            yield series, i, start, y, places[series.name] if plot.grouped else 0


def _bar_marks(area: _Area) -> Iterator[str]:
    plot, found = area.plot, list(_bars(area.plot))
    centres = sorted({area.x.place(series.x[i]) for series, i, *_ in found})
    gap = min((b - a for a, b in itertools.pairwise(centres)), default=_WIDEST_BAR * 1.25)
    if plot.categories:
        gap = min(gap, (area.right - area.left) / len(plot.categories))
    count = max((place for *_, place in found), default=0) + 1
    width = min(0.8 * gap / count, _WIDEST_BAR)
    for series, i, start, height, place in found:
        middle = area.x.place(series.x[i]) + (place - (count - 1) / 2) * width
        low = area.y.place(start) if start else area.base()
        top, bottom = sorted((area.y.place(start + height), low))
        title = _hover(plot, series, i)
        inset = 0.5 if width > 4 else 0.0
        left = middle - width / 2 + inset
        yield svg.rect(left, top, width - 2 * inset, max(bottom - top, 0.5), colour(series), title)
        yield from _error_bar(area, series, i, middle)


def _error_bar(area: _Area, series: Series, i: int, middle: float) -> Iterator[str]:
    low, high = (values[i] if i < len(values) else None for values in (series.low, series.high))
    if _usable(low, area.plot.y) and _usable(high, area.plot.y):
        bottom, top = area.y.place(low), area.y.place(high)
        yield svg.line([(middle, bottom), (middle, top)], _INK, 1.2)
        for end in (bottom, top):
            yield svg.line([(middle - 3, end), (middle + 3, end)], _INK, 1.2)


def _segments(plot: Plot, series: Series) -> Iterator[list[tuple[float, float]]]:
    """Yield the unbroken parts of a line."""
    places = enumerate(_shown(plot, series))
    for _, part in itertools.groupby(places, lambda place: place[0] - place[1][0]):
        yield [(x, y) for _, (_, x, y) in part]


def _path(area: _Area, series: Series, values: Iterable[tuple[float, float]]) -> list[Point]:
    """Return the corners of a line in pixels."""
    points = [(area.x.place(x), area.y.place(y)) for x, y in values]
    if series.kind != "steps":
        return points
    corners = [((bx, ay), (bx, by)) for (_, ay), (bx, by) in itertools.pairwise(points)]
    return points[:1] + [corner for pair in corners for corner in pair]


def _band(area: _Area, series: Series) -> Iterator[str]:
    if not series.low or not series.high:
        return
    known = [
        h if _usable(v, area.plot.y) and _usable(h, area.plot.y) else None
        for v, h in zip(series.low, series.high, strict=True)
    ]
    lower = replace(series, y=tuple(v if h is not None else None for v, h in zip(series.low, known, strict=True)))
    upper = replace(series, y=tuple(known))
    for below, above in zip(_segments(area.plot, lower), _segments(area.plot, upper), strict=True):
        low, high = _path(area, series, below), _path(area, series, above)
        yield svg.area([*low, *reversed(high)], colour(series), 0.13)
        edges = "".join(svg.line(edge, colour(series), 0.7) for edge in (low, high))
        yield f'<g stroke-opacity="0.45">{edges}</g>'


def _line(area: _Area, series: Series) -> Iterator[str]:
    for values in _segments(area.plot, series):
        path = _path(area, series, values)
        if len(path) == 1:
            yield _dot(*path[0], colour(series), False)
        elif series.thin:
            yield f'<g stroke-opacity="0.35">{svg.line(path, colour(series), 1, _dash(series))}</g>'
        else:
            yield svg.line(path, colour(series), 2 if series.colour >= 0 else 1, _dash(series))


def _dash(series: Series) -> str:
    """Return the dashes of a line; they distinguish series beyond the palette."""
    return "6 4" if series.dashed else ("", "8 3 2 3", "2 2")[max(series.colour, 0) // PALETTE % 3]


def _dot(x: float, y: float, ink: str, hollow: bool, title: str = "") -> str:
    if not hollow:
        return svg.dot(x, y, 3.2, ink, title)
    return svg.dot(x, y, 3.4, _PAGE, title).replace("<circle ", f'<circle stroke="{ink}" stroke-width="1.8" ', 1)


def _hover(plot: Plot, series: Series, i: int) -> str:
    """Return the text that a pointer on a value shows."""
    if i < len(series.labels):
        return printable(series.labels[i], "")
    show, at = FORMATS[plot.y.format], series.x[i]
    value, low, high = (values[i] if i < len(values) else None for values in (series.y, series.low, series.high))
    text = show(value) if value is not None else "-"
    if low is not None and high is not None:
        text += f" [{show(low)}, {show(high)}]"
    where = place_name(plot, at) if plot.categories else f"{plot.x.label} {place_name(plot, at)}"
    head = f"{series.name}: " if series.name else ""
    return printable(f"{head}{text} at {where}", "")
