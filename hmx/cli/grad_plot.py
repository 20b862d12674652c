"""A gradient report as one page of HTML with its drawings inside: no script, nothing fetched."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from hmx.cli.console import short
from hmx.cli.grad_tables import Report, about, cosine, main, number, percent, shown_components
from hmx.cli.render import svg
from hmx.cli.render.html import Drawing, document, figures, paragraph, sentence

COLOURS = {
    "task": "#1f77b4",
    "td": "#1f77b4",
    "value": "#d95f02",
    "entropy": "#1b9e77",
    "kl": "#7570b3",
    "total": "#444444",
}
_PLOT = svg.Frame()

_WORDS = {"task": "Task", "td": "TD"}
_SLOPES = "One disc per bucket, the mean over its groups. Dashed: slopes 1 and 2 through the last bucket."
_HOLLOW = " Hollow: ranked by one half of each group, measured on the other."
_PLAYED = "Share of a bucket in the steps, and in the whole gradient by projection."
_REPLAYED = (
    "Share of a bucket in the stored transitions, in what replay draws, and by projection in the gradient: if all "
    "were drawn alike, and as replay draws and weighs them."
)


def page(found: Mapping[str, Any]) -> str:
    """The whole page, from what `hmx grad-report --json` prints."""
    reports = found["reports"]
    report = reports[-1]
    point = report["checkpoint"]
    title = f"Gradient report: {found['path']}, checkpoint {point['update']}"
    drawings = [*(_over_time(reports) if len(reports) > 1 else ()), *_drawings(report)]
    lines = [
        paragraph(sentence(report["finding"]), "finding"),
        paragraph(
            f"{found['env']}, agent {found['agent']}, {point['env_steps']:,} steps of training; {about(report)}, "
            f"seed {found['seed']}."
        ),
        *(paragraph(warning, "warning") for warning in report["warnings"]),
        *(paragraph(note) for note in report["notes"]),
    ]
    return document(title, "".join(lines) + figures(Drawing(*drawing) for drawing in drawings))


def _drawings(report: Report) -> Iterator[tuple[str, str, str]]:
    learns, several, spec = main(report), len(report["coefs"]) > 1, report["spec"]
    word = _WORDS[learns]
    yield "Norms by bucket", norms(report), "Weighted, mean over steps, before clipping. Whiskers hold 95 %."
    yield f"{word} norm against {_ranked_by(report)}", slopes(report), _SLOPES + ("" if spec["replay"] else _HOLLOW)
    if several:
        yield "Parts of the update", stacked(report), "Projections on each bucket's total gradient; they add up to 1."
        caption = "Cosines over the whole batch; blue opposes."
        yield "Angles between components", component_cosines(report), caption
    else:
        yield "Who makes the update", origins(report), _REPLAYED if spec["replay"] else _PLAYED
    yield f"Angles between buckets, {learns}", bucket_cosines(report), f"Cosines of the {learns} gradient."
    yield "Where in the network", layer_map(report), "Share of each component's squared norm, whole batch."


def _ranked_by(report: Report) -> str:
    """What the horizontal axis of `slopes` has."""
    by: str = report["spec"]["by"]
    return ("TD error" if by == "td" else by) if report["spec"]["replay"] else "return deviation"


def _components(report: Report) -> list[str]:
    return [name for name in COLOURS if name in shown_components(report) and report["all"]["norm"][name]]


def _rows(report: Report) -> list[Report]:
    return [*report["buckets"], report["all"]]


def _short(name: str) -> str:
    return name.removeprefix("bucket_")


def _legend(names: Sequence[str], hollow: str = "") -> list[str]:
    parts, x = [], _PLOT.left
    for name in names:
        parts += [svg.rect(x, 8, 10, 10, COLOURS[name]), svg.words(x + 14, 17, name)]
        x += 30 + 7 * len(name)
    return parts


def norms(report: Report) -> str:
    """Bars of every component in every bucket."""
    rows, names = _rows(report), _components(report)
    tops = [(row["interval"][c] or (0, row["norm"][c]))[1] for row in rows for c in names]
    y = svg.linear(0.0, max(tops, default=1.0) * 1.02, *_PLOT.upward)
    parts = [*_PLOT.axes("bucket", "gradient norm", y=y, show_y=number), *_legend(names)]
    slot = (_PLOT.width - _PLOT.left - _PLOT.right) / len(rows)
    each = slot * 0.8 / max(len(names), 1)
    for i, row in enumerate(rows):
        left = _PLOT.left + i * slot + slot * 0.1
        parts.append(svg.words(left + slot * 0.4, _PLOT.height - _PLOT.bottom + 16, _short(row["name"]), "middle"))
        for j, name in enumerate(names):
            x, value, around = left + j * each, row["norm"][name], row["interval"][name]
            top = y.place(value)
            hover = f"{row['name']} {name}: {number(value)}"
            parts.append(svg.rect(x, top, each * 0.9, y.place(0) - top, COLOURS[name], hover))
            if around:
                middle = x + each * 0.45
                parts.append(svg.line([(middle, y.place(around[0])), (middle, y.place(around[1]))], svg.INK, 1.2))
    return _PLOT.whole(parts, "gradient norms by bucket and component")


def slopes(report: Report) -> str:
    """Norm of what learns against the deviation of returns or what ranked transitions, both logarithmic."""
    points, learns = [], main(report)
    figure, by = "score" if report["spec"]["replay"] else "reward_std", _ranked_by(report)
    for row in report["buckets"]:
        deviation, norm = row[figure]["mean"], row["norm"][learns]
        if deviation and deviation > 0 and norm:
            points.append((row["name"], deviation, norm, (row["crossfit"] or {}).get(learns)))
    if not points:
        words = f"no bucket has both {'variance' if figure == 'reward_std' else f'{by} above 0'} and a gradient"
        return svg.nothing(words)
    values = [v for _, _, norm, crossed in points for v in (norm, crossed) if v]
    x = svg.logarithmic(min(p[1] for p in points) / 1.3, max(p[1] for p in points) * 1.3, *_PLOT.across)
    y = svg.logarithmic(min(values) / 1.5, max(values) * 1.5, *_PLOT.upward)
    x_label = "mean deviation of returns" if figure == "reward_std" else f"mean {by}"
    parts = _PLOT.axes(x_label, f"{learns} norm", x, y, number, number)
    _, last, top, _ = points[-1]
    for power in (1, 2):
        line = [(last * 10**e, top * 10 ** (e * power)) for e in (-0.01 * k for k in range(300))]
        inside = [(x.place(a), y.place(b)) for a, b in line]
        inside = [(a, b) for a, b in inside if a >= _PLOT.left and b <= _PLOT.height - _PLOT.bottom]
        parts.append(svg.line(inside, svg.FAINT, 1, "4 4"))
    for name, deviation, norm, crossed in points:
        place = x.place(deviation)
        parts.append(svg.dot(place, y.place(norm), 5, COLOURS[learns], f"{name}: {number(deviation)}, {number(norm)}"))
        parts.append(svg.words(place + 8, y.place(norm) - 6, _short(name)))
        if crossed:
            parts.append(svg.dot(place, y.place(crossed), 5, COLOURS[learns]))
            parts.append(svg.dot(place, y.place(crossed), 3.2, "#fff", f"{name}, cross-fitted: {number(crossed)}"))
    return _PLOT.whole(parts, f"{learns} norm against {by}")


def stacked(report: Report) -> str:
    """Shares of the components of each bucket's total, negative ones to the left of 0."""
    rows, names = _rows(report), [c for c in _components(report) if c != "total"]
    shares = [[row["component_share"][c] or 0.0 for c in names] for row in rows]
    low = min(0.0, *(sum(s for s in row if s < 0) for row in shares))
    high = max(1.0, *(sum(s for s in row if s > 0) for row in shares))
    height = _PLOT.top + _PLOT.bottom + 28 * len(rows)
    x = svg.linear(low, high, _PLOT.left + 30, _PLOT.width - _PLOT.right)
    parts = _legend(names)
    for tick in x.ticks:
        parts.append(svg.line([(x.place(tick), _PLOT.top), (x.place(tick), height - _PLOT.bottom)], svg.GRID))
        parts.append(svg.words(x.place(tick), height - _PLOT.bottom + 16, percent(tick), "middle"))
    for i, (row, values) in enumerate(zip(rows, shares, strict=True)):
        top = _PLOT.top + 28 * i + 4
        parts.append(svg.words(_PLOT.left + 22, top + 14, _short(row["name"]), "end"))
        ends = {True: 0.0, False: 0.0}
        for name, share in zip(names, values, strict=True):
            start, ends[share > 0] = ends[share > 0], ends[share > 0] + share
            left, right = sorted((x.place(start), x.place(start + share)))
            parts.append(
                svg.rect(left, top, right - left, 20, COLOURS[name], f"{row['name']} {name}: {percent(share)}")
            )
    parts.append(svg.line([(x.place(0), _PLOT.top), (x.place(0), height - _PLOT.bottom)]))
    return svg.figure(_PLOT.width, height, parts, "shares of the components in each bucket's update")


def origins(report: Report) -> str:
    """Bars of each bucket's share in the steps and in the update; of stored transitions also as replay has them."""
    kinds: list[tuple[str, str, Callable[[Report], float | None]]] = [
        ("transitions" if report["spec"]["replay"] else "steps", "#9a9a9a", lambda row: row["weight"]),
        ("update", COLOURS["td"], lambda row: row["share"]),
    ]
    if report["spec"]["replay"]:
        kinds.insert(1, ("draws", "#e6ab02", lambda row: row["replay"]["draws"]))
        kinds.append(("update, replayed", COLOURS["value"], lambda row: row["replay"]["share"]))
    rows = [[pick(row) or 0.0 for _, _, pick in kinds] for row in report["buckets"]]
    values = [value for row in rows for value in row]
    y = svg.linear(min(0.0, *values), max(values, default=1.0) * 1.02, *_PLOT.upward)
    parts, x = _PLOT.axes("bucket", "share", y=y, show_y=percent), _PLOT.left
    for name, colour, _ in kinds:
        parts += [svg.rect(x, 8, 10, 10, colour), svg.words(x + 14, 17, name)]
        x += 30 + 7 * len(name)
    slot = (_PLOT.width - _PLOT.left - _PLOT.right) / max(len(rows), 1)
    each = slot * 0.8 / len(kinds)
    for i, (row, shares) in enumerate(zip(report["buckets"], rows, strict=True)):
        left = _PLOT.left + (i + 0.1) * slot
        parts.append(svg.words(left + slot * 0.4, _PLOT.height - _PLOT.bottom + 16, _short(row["name"]), "middle"))
        for j, ((name, colour, _), share) in enumerate(zip(kinds, shares, strict=True)):
            top, bottom = sorted((y.place(share), y.place(0)))
            hover = f"{row['name']}, {name}: {percent(share)}"
            parts.append(svg.rect(left + j * each, top, each * 0.9, bottom - top, colour, hover))
    return _PLOT.whole(parts, "shares of the buckets")


def component_cosines(report: Report) -> str:
    """Cosines between the components of the whole batch."""
    names, cos = _components(report), report["all"]["cos"]
    cells = [[1.0 if a == b else cos[a][b] for b in names] for a in names]
    return heat_map(names, names, cells, svg.diverging, cosine, "cosines between components")


def bucket_cosines(report: Report) -> str:
    """Cosines of the gradient of what learns between buckets."""
    names = [row["name"] for row in report["buckets"]]
    cells = [[report["cos"][main(report)][a][b] for b in names] for a in names]
    short = [_short(name) for name in names]
    return heat_map(short, short, cells, svg.diverging, cosine, "cosines between buckets")


def layer_map(report: Report) -> str:
    """How each component's squared norm is spread over the modules of the network."""
    names, layers = _components(report), report["all"]["layers"]
    totals = {c: report["all"]["norm"][c] ** 2 for c in names}
    cells = [[row[c] ** 2 / totals[c] for c in names] for row in layers.values()]
    return heat_map(list(layers), names, cells, svg.rising, percent, "squared norms by module and component")


def heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    cells: Sequence[Sequence[float | None]],
    colour: Callable[[float], str],
    show: Callable[[float | None], str],
    label: str,
) -> str:
    """Coloured cells with their numbers."""
    left = 20.0 + 7.0 * max((len(name) for name in rows), default=0)
    wide, tall = min(72.0, (_PLOT.width - left - _PLOT.right) / max(len(columns), 1)), 28.0
    parts = []
    for j, name in enumerate(columns):
        parts.append(svg.words(left + (j + 0.5) * wide, 18, name, "middle"))
    for i, (name, row) in enumerate(zip(rows, cells, strict=True)):
        top = _PLOT.top + i * tall
        parts.append(svg.words(left - 8, top + tall / 2 + 4, name, "end"))
        for j, value in enumerate(row):
            fill = "#f2f2f2" if value is None else colour(value)
            parts.append(svg.rect(left + j * wide, top, wide - 2, tall - 2, fill))
            ink = "#fff" if value is not None and abs(value) > 0.6 else svg.INK
            parts.append(svg.words(left + (j + 0.5) * wide - 1, top + tall / 2 + 4, show(value), "middle", colour=ink))
    return svg.figure(_PLOT.width, _PLOT.top + tall * len(rows) + 10, parts, label)


def _over_time(reports: Sequence[Report]) -> Iterator[tuple[str, str, str]]:
    names = [c for c in COLOURS if any(c in _components(report) for report in reports)]

    def series(pick: Callable[[Report], float | None]) -> list[tuple[float, float]]:
        found = [(report["checkpoint"]["env_steps"], pick(report)) for report in reports]
        return [(steps, value) for steps, value in found if value is not None]

    drawn = {c: series(lambda report, c=c: report["all"]["norm"][c]) for c in names}  # type: ignore[misc]
    buffers = reports[-1]["source"]["kind"] == "replay"
    same = (
        "each checkpoint with the buffer named above, or its own" if buffers else "all checkpoints meet the same starts"
    )
    yield "Norms over training", curves(drawn, "gradient norm"), f"Whole batch; {same}."
    if len(reports[-1]["coefs"]) > 1:
        parts = [c for c in names if c != "total"]
        drawn = {c: series(lambda report, c=c: report["all"]["component_share"][c]) for c in parts}  # type: ignore[misc]
        yield "Parts of the update over training", curves(drawn, "share"), "Projections on the total gradient."
        drawn = {"task": series(lambda report: report["all"]["cos"]["task"]["value"])}
        caption = "Cosine of their gradients; below 0 they oppose."
        yield "Task against value over training", curves(drawn, "cosine"), caption
    if reports[-1]["spec"]["replay"]:
        drawn = {"total": series(lambda report: report["all"]["replay"]["td_error"])}
        yield "TD error over training", curves(drawn, "mean TD error"), "Of the transitions, by the networks of then."
        return
    drawn = {"total": series(lambda report: report["all"]["reward_std"]["mean"])}
    yield "Deviation of returns over training", curves(drawn, "mean deviation"), "Of the episodes of a group."


def curves(series: Mapping[str, Sequence[tuple[float, float]]], label: str) -> str:
    """Lines against steps."""
    points = list(itertools.chain(*series.values()))
    if not points:
        return svg.nothing("not known at any checkpoint")
    x = svg.linear(min(p[0] for p in points), max(p[0] for p in points), *_PLOT.across)
    low, high = min(0.0, *(p[1] for p in points)), max(0.0, *(p[1] for p in points))
    y = svg.linear(low, high * 1.05 if high > 0 else 0.05, *_PLOT.upward)
    parts = [
        *_PLOT.axes("environment steps", label, x, y, short, number),
        *(_legend(list(series)) if len(series) > 1 else []),
    ]
    for name, found in series.items():
        places = [(x.place(a), y.place(b)) for a, b in found]
        parts.append(svg.line(places, COLOURS[name], 2))
        parts += [
            svg.dot(a, b, 3, COLOURS[name], f"{name}: {number(v)}")
            for (a, b), (_, v) in zip(places, found, strict=True)
        ]
    return _PLOT.whole(parts, f"{label} over training")
