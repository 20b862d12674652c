"""Draw plots with matplotlib (extra `figures`), for papers: PDF, PNG and SVG files."""

from __future__ import annotations

import io
import math
import re
import shlex
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hmx.config.extras import install
from hmx.config.textfile import printable, quoted
from hmx.errors import HmxError
from hmx.render.blocks import Axis, Plot, Reference, Series
from hmx.render.quantities import FORMATS, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FORMAT_NAMES = (".pdf", ".png", ".svg")

_PALETTE = 8  # colours c0 to c7 of page.css
_DASHES = ("solid", "dashdot", "dotted")  # of the series beyond the palette
_SIZE, _LETTER = (3.4, 2.4), 8.0  # inches and points: as wide as a column of a paper, with letters that stay readable
_WIDE = 1.4  # times that size, for pictures of a page
_FULL = re.compile(r"\.0+(?=\D)")  # superfluous decimals, as in 2.00k
_MOST_NAMES, _LETTERS = 30, 60  # along an axis, and of names that stand side by side


def save(plots: Sequence[Plot], path: Path, columns: int = 1, wide: bool = False) -> None:
    """Draw plots in a file, in rows of `columns`, as wide as columns of a paper or, if `wide`, of a page.

    Raises:
        HmxError: see `check`.
        OSError: the file cannot be written.
    """
    path.write_bytes(image(plots, path, columns, wide))


def check(path: Path) -> None:
    """Check that plots can be drawn in a file of that name.

    Raises:
        HmxError: the name ends in none of `FORMAT_NAMES`, or matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMAT_NAMES:
        raise HmxError(
            f"cannot draw {quoted(str(path))}: expected a name that ends in {', '.join(FORMAT_NAMES)}",
            shlex.quote(str(path.with_suffix(".pdf"))) if path.name.strip("-") else "curve.pdf",
        )
    if find_spec("matplotlib") is None:
        raise HmxError(f"cannot draw {quoted(str(path))}: it needs matplotlib", install("figures"))


def image(plots: Sequence[Plot], path: Path, columns: int = 1, wide: bool = False) -> bytes:
    """Return the content of the file that `save` writes; equal plots are equal files."""
    check(path)
    import matplotlib as mpl
    from matplotlib.figure import Figure

    kind, scale, rows = path.suffix.lower()[1:], _WIDE if wide else 1.0, -(-len(plots) // columns)
    content, undated = io.BytesIO(), {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    # Type 42 embeds the letters of a PDF as text, which journals ask for.
    with mpl.rc_context({"font.size": _LETTER * scale, "pdf.fonttype": 42, "svg.hashsalt": "hmx"}):
        figure = Figure((_SIZE[0] * columns * scale, _SIZE[1] * rows * scale), layout="constrained")
        for i, plot in enumerate(plots):
            draw(plot, figure.add_subplot(rows, columns, i + 1))
        figure.savefig(content, format=kind, dpi=300, metadata=undated.get(kind))
    return content.getvalue()


def draw(plot: Plot, axes: Axes) -> None:
    """Draw a plot on the axes of a figure."""
    axes.set_title(_text(plot.title), fontsize="medium")
    bottoms: defaultdict[tuple[float, bool], float] = defaultdict(float)
    groups = list(dict.fromkeys(series.name for series in plot.series if series.kind == "bars"))
    for series in plot.series:
        if series.kind == "bars":
            count = len(groups) if plot.grouped else 1
            _bars(series, axes, bottoms, groups.index(series.name) if plot.grouped else 0, count)
        elif series.kind == "area":
            _area(series, axes, bottoms)
        elif series.kind == "dots":
            _dots(series, axes)
        else:
            _line(series, axes)
    for reference in plot.references:
        _reference(reference, axes)
    _scale(plot.x, axes, "x")
    _scale(plot.y, axes, "y")
    if plot.categories:
        _categories(plot, axes)
    _legend(axes)


def _reference(reference: Reference, axes: Axes) -> None:
    label = f" {_text(reference.label)} "
    if reference.axis == "diagonal":
        line = axes.plot([0, 1], [0, 1], transform=axes.transAxes)[0]
    elif reference.axis == "x":
        line = axes.axvline(reference.at)
        axes.annotate(label, (reference.at, 0.97), xycoords=axes.get_xaxis_transform(), fontsize=7, va="top")
    else:
        line = axes.axhline(reference.at)
        place = (0.98, reference.at)
        axes.annotate(label, place, xycoords=axes.get_yaxis_transform(), fontsize=7, va="top", ha="right")
    line.set(color=_colours()["faint"], linestyle="dashed", linewidth=0.8)


def _categories(plot: Plot, axes: Axes) -> None:
    names = [_text(name) for name in plot.categories]
    every = -(-len(names) // _MOST_NAMES)
    axes.set_xticks(range(0, len(names), every), names[::every])
    for label in axes.get_xticklabels() if sum(map(len, names)) > _LETTERS else ():
        label.set(rotation=40, ha="right", fontsize=7)


def _scale(axis: Axis, axes: Axes, name: str) -> None:
    show = FORMATS[axis.format]
    getattr(axes, f"set_{name}scale")(axis.scale)
    getattr(axes, f"set_{name}label")(_text(axis.label))
    ticks = getattr(axes, f"{name}axis")
    ticks.set_major_formatter(
        lambda value, _: _FULL.sub("", short(value)) if axis.format == "count" and value >= 1000 else show(value)
    )
    ticks.set_minor_formatter("")
    getattr(axes, f"set_{name}lim")(axis.low, axis.high)
    axes.grid(visible=True, color=_colours()["grid"], linewidth=0.6)
    axes.set_axisbelow(True)


def _legend(axes: Axes) -> None:
    handles, labels = axes.get_legend_handles_labels()
    named = dict(zip(reversed(labels), reversed(handles), strict=True))
    names = [name for name in dict.fromkeys(labels) if name]
    if len(names) > 1:
        axes.legend([named[name] for name in names], names, fontsize="small", edgecolor="none")


@cache
def _colours() -> dict[str, str]:
    """Return the colours of a page on a light ground, by name."""
    style = files("hmx.render").joinpath("page.css").read_text(encoding="utf-8")
    return dict(re.findall(r"--(\w+): (#\w+)", style.partition("}")[0]))


def _colour(series: Series) -> str:
    return _colours()["faint" if series.colour < 0 else f"c{series.colour % _PALETTE}"]


def _text(text: str) -> str:
    """Return text of one line without control characters; a dollar sign does not start a formula."""
    return printable(text, "").replace("$", r"\$")


def _line(series: Series, axes: Axes) -> None:
    colour = _colour(series)
    y = [math.nan if value is None else value for value in series.y]
    dashes = "dashed" if series.dashed else _DASHES[max(series.colour, 0) // _PALETTE % len(_DASHES)]
    width, opacity = (0.7, 0.4) if series.thin else (1.6 if series.colour >= 0 else 0.8, 1.0)
    drawing = "steps-post" if series.kind == "steps" else "default"
    (line,) = axes.plot(series.x, y, color=colour, linestyle=dashes, linewidth=width, alpha=opacity)
    line.set(label="" if series.thin else _text(series.name), drawstyle=drawing)  # a legend shows the thick line
    if series.low and series.high:
        low, high = ([math.nan if v is None else v for v in ends] for ends in (series.low, series.high))
        step: Literal["post"] | None = "post" if series.kind == "steps" else None
        axes.fill_between(series.x, low, high, step=step, color=colour, alpha=0.15, linewidth=0)


def _known(series: Series) -> list[int]:
    """Return the places of the values that can be drawn."""
    return [i for i, value in enumerate(series.y) if value is not None and math.isfinite(value)]


def _errors(series: Series, known: Sequence[int]) -> list[list[float]] | None:
    """Return the distances to both ends of the intervals, which matplotlib draws as error bars."""
    if not series.low or not series.high:
        return None
    ends = [(series.low[i], series.y[i] or 0.0, series.high[i]) for i in known]
    return [
        [math.nan if low is None else max(y - low, 0.0) for low, y, _ in ends],
        [math.nan if high is None else max(high - y, 0.0) for _, y, high in ends],
    ]


def _dots(series: Series, axes: Axes) -> None:
    known, colour = _known(series), _colour(series)
    x, y = [series.x[i] for i in known], [series.y[i] or 0.0 for i in known]
    axes.errorbar(
        x, y, _errors(series, known), fmt="o", markersize=4, color=colour, label=_text(series.name), ecolor="black",
        elinewidth=0.8, markerfacecolor="white" if series.dashed else colour,
    )  # fmt: skip
    for i in known if series.tags else ():
        axes.annotate(_text(series.tags[i]), (series.x[i], series.y[i]), (4, 3), textcoords="offset points", fontsize=7)


def _bars(series: Series, axes: Axes, bottoms: defaultdict[tuple[float, bool], float], place: int, count: int) -> None:
    known = _known(series)
    gaps = [after - before for before, after in zip(sorted(set(series.x)), sorted(set(series.x))[1:], strict=False)]
    width = 0.8 * min(gaps, default=1.0) / count
    heights = [series.y[i] or 0.0 for i in known]
    keys = [(series.x[i], height < 0) for i, height in zip(known, heights, strict=True)]
    starts = [0.0 if count > 1 else bottoms[key] for key in keys]
    for key, height in zip(keys, heights, strict=True):
        bottoms[key] += height
    middles = [series.x[i] + (place - (count - 1) / 2) * width for i in known]
    bars = axes.bar(middles, heights, width, starts, yerr=_errors(series, known), error_kw={"elinewidth": 0.8})
    for bar in bars:
        bar.set_color(_colour(series))
    bars.set_label(_text(series.name))


def _area(series: Series, axes: Axes, bottoms: defaultdict[tuple[float, bool], float]) -> None:
    starts, ends = [], []
    for x, y in zip(series.x, series.y, strict=True):
        height = y or 0.0
        starts.append(bottoms[x, height < 0])
        ends.append(starts[-1] + height)
        bottoms[x, height < 0] = ends[-1]
    axes.fill_between(series.x, starts, ends, alpha=0.7, linewidth=0, color=_colour(series), label=_text(series.name))
