"""A report on consequence scores as one page of HTML with its drawings inside: no script, nothing fetched."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from hmx.cli.grad_tables import number, percent
from hmx.cli.render import svg
from hmx.cli.render.html import Drawing, document, figures, paragraph, sentence
from hmx.cli.score_tables import agreement, head
from hmx.stats.ranks import ranks

Report = Mapping[str, Any]  # what `hmx score-buffer --json` prints

_PLOT = svg.Frame(top=16.0)
_BLUE, _ORANGE, _GREEN = "#1f77b4", "#d95f02", "#1b9e77"
_CELL = 24.0
_FIELD, _NEAREST = 280.0, 8.0  # of a battle: pixels, and the least part of its map that is shown
_LAKE = {"H": "#23415f", "G": "#1b9e77", "S": "#dbe9f4", "F": "#eef5fa"}
_MOST_BARS, _ROOMY = 8, 80.0
_STYLE = """
.position { display: flex; flex-wrap: wrap; gap: 24px; border-top: 1px solid #ddd; padding: 16px 0; }
.position > div { min-width: 0; max-width: 100%; } .position > div + div { flex: 1 1 420px; }
.board { background: #1d1f21; color: #d5d8d6; padding: 10px; border-radius: 4px; overflow-x: auto; margin: 0;
  font: 13px/1.2 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
table { border-collapse: collapse; } td { padding: 1px 12px 1px 0; } td.figure { text-align: right; }
"""


def page(found: Report) -> str:
    """The whole page."""
    title = f"Consequence scores: {found['path']}"
    lines = [
        paragraph(sentence(found["finding"]), "finding"),
        paragraph(head(found)),
        *(paragraph(warning, "warning") for warning in found["warnings"]),
        *(
            paragraph(f"Gate {gate['name']} not passed: {gate['what']}.", "failed")
            for gate in found["gates"]
            if gate["passed"] is False
        ),
    ]
    positions = "".join(_position(place, row) for place, row in enumerate(found["top"], 1))
    if positions:
        positions = f"<h2>The most consequential positions</h2>{positions}"
    return document(title, "".join(lines) + figures(Drawing(*each) for each in _drawings(found)) + positions, _STYLE)


def _drawings(found: Report) -> Iterator[tuple[str, str, str]]:
    yield "How scores are spread", histogram(found), "Bins of equal ratio, three to a decade; 0 has a bar of its own."
    yield (
        "Scores by rank",
        by_rank(found),
        f"From the largest; a tenth of the positions has {percent(found['scores']['top_tenth_share'])} of the sum.",
    )
    yield "Against TD errors", against(found, 1, "rank of |TD error|", _ORANGE), f"Ranks; {agreement(found['td'])}."
    kind = found["proxy"]["kind"]
    yield f"Against the {kind}", against(found, 2, f"rank of {kind}", _GREEN), f"Ranks; {agreement(found['proxy'])}."


def histogram(found: Report) -> str:
    """Bars over bins of equal ratio."""
    counted = found["scores"]["histogram"]
    rows = [(0.0, 0.0, counted["zero"]), *((row["low"], row["high"], row["count"]) for row in counted["bins"])]
    y = svg.linear(0.0, max(count for *_, count in rows) or 1, *_PLOT.upward)
    parts = _PLOT.axes("score", "positions", y=y, show_y=number)
    slot = (_PLOT.width - _PLOT.left - _PLOT.right) / len(rows)
    every = -(-len(rows) // _MOST_BARS)
    for i, (low, high, count) in enumerate(rows):
        left, top = _PLOT.left + i * slot, y.place(count)
        name = "0" if high == 0.0 else f"{number(low)} to {number(high)}"
        parts.append(
            svg.rect(left + 1, top, slot - 2, y.place(0) - top, svg.FAINT if i == 0 else _BLUE, f"{name}: {count}")
        )
        if i == 0:
            parts.append(svg.words(left + slot / 2, _PLOT.height - _PLOT.bottom + 16, "0", "middle"))
        elif (i - 1) % every == 0 and (i > 1 or slot > _ROOMY):  # the first stands close to the 0
            parts.append(svg.words(left, _PLOT.height - _PLOT.bottom + 16, number(low), "middle"))
    return _PLOT.whole(parts, "histogram of scores")


def by_rank(found: Report) -> str:
    """Scores from the largest to the smallest that is not 0, on a logarithmic scale."""
    values = sorted((point[0] for point in found["points"] if point[0] > 0.0), reverse=True)
    if not values:
        return svg.nothing("no score is above 0")
    x = svg.linear(0.0, 1.0, *_PLOT.across)
    y = svg.logarithmic(values[-1], values[0], *_PLOT.upward)
    parts = _PLOT.axes("share of the positions", "score", x, y, percent, number)
    places = [(x.place((i + 0.5) / len(found["points"])), y.place(value)) for i, value in enumerate(values)]
    parts.append(svg.line(places, _BLUE, 1.5))
    parts += [svg.dot(a, b, 2, _BLUE) for a, b in places]
    return _PLOT.whole(parts, "scores by rank")


def against(found: Report, column: int, label: str, colour: str) -> str:
    """Ranks of the scores against those of something else."""
    points = found["points"]
    others, scores = ([rank - 0.5 for rank in ranks([p[i] for p in points])] for i in (column, 0))
    if len(set(others)) < 2 or len(set(scores)) < 2:
        return svg.nothing("all values are equal")
    x = svg.linear(0.0, len(points), *_PLOT.across)
    y = svg.linear(0.0, len(points), *_PLOT.upward)
    parts = _PLOT.axes(label, "rank of score")
    parts.append(svg.line([(x.place(0), y.place(0)), (x.place(len(points)), y.place(len(points)))], svg.GRID, 1, "4 4"))
    parts += [
        svg.dot(x.place(a), y.place(b), 2.5, colour, f"score {number(p[0])}, {label[8:]} {number(p[column])}")
        for a, b, p in zip(others, scores, points, strict=True)
    ]
    return _PLOT.whole(parts, f"ranks of scores against {label[8:]}")


def _position(place: int, row: Report) -> str:
    gap = f"{'+' if row['gap'] > 0 else ''}{number(row['gap'])}"
    often = f", met {row['times']} times" if row["times"] > 1 else ""
    lines = (
        f"<h3>{place}. score {number(row['score'])}, slot {row['index']}{often}</h3>"
        f"<p>Taken: <b>{escape(row['taken'])}</b>. Best alternative: <b>{escape(row['best'])}</b>, {gap} in mean "
        f"return. |TD error| {number(row['td_error'])}.</p>{_returns(row['actions'])}"
    )
    return f'<div class="position"><div>{_board(row)}</div><div>{lines}</div></div>'


def _returns(tried: Sequence[Report]) -> str:
    """A line per action, from the highest mean return."""
    rows = "".join(
        f"<tr><td>{'<b>' if a['taken'] else ''}{escape(a['action'])}{'</b>' if a['taken'] else ''}</td>"
        f'<td class="figure">{number(a["mean"])}</td><td class="figure">± {number(a["sd"])}</td></tr>'
        for a in tried
    )
    return f"<table><tr><td>action</td><td>mean return</td><td>deviation</td></tr>{rows}</table>"


def _board(row: Report) -> str:
    if "position" in row:
        return hackmatrix(row["position"])
    if "map" in row:
        return lake(row["map"])
    if "battle" in row:
        return battle(row["battle"])
    agents = "\n".join(" ".join(number(x) for x in agent) for agent in row["observation"])
    return f'<pre class="board">{escape(agents)}</pre>'


def lake(rows: Sequence[str]) -> str:
    """A map of cells, the agent's marked."""
    parts = []
    for i, line in enumerate(rows):
        for j, letter in enumerate(line):
            left, top = j * _CELL, i * _CELL
            parts.append(svg.rect(left, top, _CELL - 1, _CELL - 1, _LAKE.get(letter, _LAKE["F"]), letter))
            if letter == "@":
                parts.append(svg.dot(left + _CELL / 2, top + _CELL / 2, _CELL / 3, _ORANGE, "the agent"))
            elif letter in "SGH":
                ink = "#fff" if letter in "GH" else svg.INK
                parts.append(svg.words(left + _CELL / 2, top + _CELL / 2 + 4, letter, "middle", colour=ink))
    return svg.figure(_CELL * len(rows[0]), _CELL * len(rows), parts, "the lake and the agent on it")


def battle(units: Sequence[Report]) -> str:
    """The units of a battle from above, north up, each with its number and its health; as near as all can be seen."""
    xs, ys = [unit["x"] for unit in units], [unit["y"] for unit in units]
    wide = max(max(xs) - min(xs), max(ys) - min(ys), _NEAREST) * 1.2
    left, low = (max(xs) + min(xs) - wide) / 2, (max(ys) + min(ys) - wide) / 2
    parts = [svg.rect(0, 0, _FIELD, _FIELD, "#f4f2ea")]
    for unit in units:
        x, y = (unit["x"] - left) / wide * _FIELD, (1 - (unit["y"] - low) / wide) * _FIELD
        colour = _BLUE if unit["side"] == "ally" else _ORANGE
        hover = f"{unit['side']} {unit['number']}, {unit['kind']}, health {number(unit['health'])}"
        parts += [
            svg.dot(x, y, 8, colour, hover),
            svg.words(x, y + 4, str(unit["number"]), "middle", colour="#fff"),
            svg.words(x, y + 19, number(unit["health"]), "middle", size=9, colour=svg.FAINT),
        ]
    return svg.figure(_FIELD, _FIELD, parts, "allies in blue, enemies in orange")


def hackmatrix(position: Mapping[str, Any]) -> str:
    """The board as `hmx watch` draws it."""
    from rich.console import Console
    from rich.terminal_theme import MONOKAI

    from hmx.cli.board import draw_board, figures
    from hmx.jobs.frames import Frame

    console = Console(
        record=True, file=io.StringIO(), width=60, force_terminal=True, color_system="truecolor", legacy_windows=False
    )
    console.print(draw_board(position, 7, lines=True, footer=True, reveal=True))
    for line in figures(Frame(step=0, episode=0, position=position, legal=()), tall=True, ascii_only=False):
        console.print(line)
    return console.export_html(theme=MONOKAI, inline_styles=True, code_format='<pre class="board">{code}</pre>')
