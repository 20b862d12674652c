"""A comparison as one page of HTML with its curves inside: no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from hmx.cli.compare_report import Block, Found, Grid, Heading, Line, blocks, duration, figure, title
from hmx.cli.console import short
from hmx.cli.render import svg
from hmx.cli.render.html import Drawing, document, figures
from hmx.config.textfile import printable

COLOURS = ("#1f77b4", "#d95f02", "#1b9e77", "#7570b3", "#e7298a", "#66a61e", "#a6761d", "#444444")
_DASHES = ("", "6 3", "2 2", "8 3 2 3")
_PLOT = svg.Frame(height=320.0, top=34.0)
_STYLE = """
p { margin: .3em 0; }
table { border-collapse: collapse; margin: .6em 0; font-size: 14px; } .scroll { overflow-x: auto; }
th, td { padding: .2em .9em .2em 0; text-align: left; vertical-align: top; } th { border-bottom: 1px solid #999; }
.right td + td, .right th + th { text-align: right; font-variant-numeric: tabular-nums; }
td.group { font-weight: 600; padding-top: .5em; } .good { font-weight: 600; } .faint { color: #666; }
.caution { color: #8a4b00; } .stop { color: #b2182b; font-weight: 600; }
"""


def page(found: Found) -> str:
    """The whole page, from what `hmx compare --json` prints."""
    return document(printable(title(found), ""), "".join(_parts(found)), _STYLE)


def _safe(text: str) -> str:
    return escape(printable(text, ""))


def _parts(found: Found) -> Iterator[str]:
    tasks = {f"task {task['name']}": task for task in found["tasks"]}
    for block in blocks(found):
        yield _block(block)
        if isinstance(block, Grid) and block.name in tasks:
            yield figures(drawings(tasks[block.name], found))
        elif isinstance(block, Grid) and block.name == "overall":
            yield figures([Drawing("Performance profile", profile(found), "Share of runs whose score is above.")])


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{_safe(block.text)}</h2>"
    if isinstance(block, Line):
        return f'<p class="{block.kind}">{_safe(block.text)}</p>'
    head = "".join(f"<th>{_safe(name)}</th>" for name in block.columns)
    rows = "".join(
        f'<tr><td class="group" colspan="{len(block.columns)}">{_safe(row[0])}</td></tr>'
        if len(row) == 1
        else f"<tr>{''.join(f'<td>{_safe(cell)}</td>' for cell in row)}</tr>"
        for row in block.rows
    )
    kind = ' class="right"' if block.right else ""
    return f'<div class="scroll"><table{kind}><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>'


def drawings(task: Found, found: Found) -> list[Drawing]:
    """Learning curves of an environment, over steps and over time where that is known."""
    metric = "train/mean_episode_return" if found["metric"] == "evaluation" else found["metric"]
    words = "Interquartile mean over seeds; the shade holds 95 %. Each side as far as all its seeds go."
    end = (
        f" The vertical line is at {task['end']:,} steps, up to which sides are compared." if task["limited_by"] else ""
    )
    thresholds = [threshold["value"] for threshold in task["sides"][0]["thresholds"]] if task["sides"] else []
    drawn = []
    for over, label, more in (("steps", "environment steps", end), ("time", "seconds of training", "")):
        series = {letter: curve[over] for letter, curve in task["curves"].items() if curve[over] is not None}
        if series:
            mark = task["end"] if over == "steps" and task["limited_by"] else None
            drawing = curves(series, _names(found), label, metric, mark, thresholds)
            drawn.append(Drawing(printable(f"{task['name']} over {over}", ""), drawing, words + more))
    return drawn


def _names(found: Found) -> dict[str, str]:
    return {
        s["letter"]: s["name"] if s["name"] == s["letter"] else f"{s['letter']} {s['name']}" for s in found["sides"]
    }


def _look(names: Mapping[str, str], letter: str) -> tuple[str, str]:
    """Colour and dashes of a side: those of its place, whichever sides are drawn."""
    place = list(names).index(letter)
    return COLOURS[place % len(COLOURS)], _DASHES[place // len(COLOURS) % len(_DASHES)]


def curves(
    series: Mapping[str, Mapping[str, Any]], names: Mapping[str, str], x_label: str, y_label: str,
    mark: float | None = None, levels: Sequence[float] = (),
) -> str:  # fmt: skip
    """Curves with their intervals shaded.

    Args:
        series: letter -> `x`, `centre`, `low`, `high`.
        names: letter -> what to call the side.
        x_label: under the horizontal axis.
        y_label: beside the vertical axis.
        mark: where to draw a vertical line.
        levels: thresholds, drawn as faint lines where they lie inside.
    """
    values = [v for s in series.values() for key in ("centre", "low", "high") for v in s[key] or () if v is not None]
    places = [v for s in series.values() for v in s["x"]]
    room = 0.04 * (max(values) - min(values)) or 0.5
    x = svg.linear(0.0, max(places), *_PLOT.across)
    y = svg.linear(min(values) - room, max(values) + room, *_PLOT.upward)
    show = short if x_label.startswith("environment") else (lambda value: figure(value))
    parts = _PLOT.axes(x_label, printable(y_label, ""), x, y, show, figure)
    for level in levels:
        if min(values) <= level <= max(values):
            parts.append(
                svg.line(
                    [(_PLOT.left, y.place(level)), (_PLOT.width - _PLOT.right, y.place(level))], svg.FAINT, 0.8, "2 4"
                )
            )
    if mark is not None and mark <= max(places):
        parts.append(
            svg.line([(x.place(mark), _PLOT.top), (x.place(mark), _PLOT.height - _PLOT.bottom)], svg.FAINT, 1, "4 4")
        )
    for letter, found in series.items():
        if found["low"] is not None:
            low = [(x.place(a), y.place(b)) for a, b in zip(found["x"], found["low"], strict=True)]
            high = [(x.place(a), y.place(b)) for a, b in zip(found["x"], found["high"], strict=True)]
            parts.append(svg.area([*low, *reversed(high)], _look(names, letter)[0]))
    for letter, found in series.items():
        colour, dash = _look(names, letter)
        line = [(x.place(a), y.place(b)) for a, b in zip(found["x"], found["centre"], strict=True)]
        parts.append(svg.line(line, colour, 2, dash))
        last = found["centre"][-1]
        at = figure(found["x"][-1]) if x_label.startswith("environment") else duration(found["x"][-1])
        parts.append(svg.dot(*line[-1], 3, colour, f"{names[letter]}: {figure(last)} at {at}"))
    parts += _legend(names, list(series))
    return _PLOT.whole(parts, f"{y_label} over {x_label}")


def _legend(names: Mapping[str, str], letters: Sequence[str]) -> list[str]:
    """Names from left to right, cut where they would run out of the drawing."""
    parts: list[str] = []
    x, room = _PLOT.left, (_PLOT.width - _PLOT.left - _PLOT.right) / max(len(letters), 1)
    most = max(int((room - 30) / 6.5), 1)
    for letter in letters:
        name = (
            names[letter] if len(names[letter]) <= most else (f"{names[letter][: most - 1]}…" if most > 3 else letter)
        )
        colour, dash = _look(names, letter)
        parts += [svg.line([(x, 14), (x + 16, 14)], colour, 3, dash), svg.words(x + 20, 18, name)]
        x += min(room, 36 + 6.5 * len(name))
    return parts


def profile(found: Found) -> str:
    """The share of runs above each score, side by side."""
    overall = found["overall"]
    names, taus = _names(found), overall["taus"]
    x = svg.linear(0.0, taus[-1], *_PLOT.across)
    y = svg.linear(0.0, 1.02, *_PLOT.upward)
    parts = _PLOT.axes("score", "share of runs above", x, y, figure, figure)
    for side in overall["sides"]:
        colour, dash = _look(names, side["letter"])
        steps = list(zip(taus, side["profile"], strict=True))
        parts.append(svg.line([(x.place(a), y.place(b)) for a, b in steps], colour, 2, dash))
    parts += _legend(names, [side["letter"] for side in overall["sides"]])
    return _PLOT.whole(parts, "performance profile")
