"""The comparison as a document, the verdict first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import attrgetter

from hmx.errors import ExitCode, HmxError
from hmx.records.curves import RETURN
from hmx.records.metrics_table import METRICS
from hmx.render.blocks import (
    Aside,
    Axis,
    Block,
    Column,
    Document,
    Heading,
    Paragraph,
    Plot,
    Reference,
    Row,
    Series,
    Table,
    Tone,
)
from hmx.render.numbers import Number, Shown, numbers, shown, signed_estimate, table_of, texts
from hmx.render.quantities import UNKNOWN, number, percent
from hmx.reports.compare import losses
from hmx.reports.compare.findings import (
    OVER,
    Aggregates,
    CompareFindings,
    Diagnostic,
    DifferenceGroup,
    Outcome,
    Pair,
    SideFacts,
    SideScores,
    Speed,
    TaskFindings,
)
from hmx.reports.compare.numbers import OVERALL_PAIR, PAIR, SIDE, SPEED, THRESHOLD
from hmx.reports.compare.request import EVALUATION
from hmx.reports.compare.sentence import conclusion, evidence
from hmx.reports.curves import Over

ALL_PAIRS = 12  # maximum sides for which every pair is shown; with more sides, each is compared with the first
_DETAILED = 3  # pairs whose verdict comes with its numbers
_TONES: Mapping[Outcome, Tone] = {"better": "good", "weak evidence": "warning", "no verdict": "bad"}
_COLOURS = 8
_NARROW = 0.1  # scores: a performance profile that falls within less shows nothing
_SAME = "the same: nothing in these runs depends on the difference"
_RATED = "Impact and confidence as a published comparison of Brax and SCS rates them (docs/ppo.md)."


def document(findings: CompareFindings) -> Document:
    """Build the report."""
    blocks = [
        *_verdict(findings), *_notices(findings), *_sides(findings), *_config(findings),
        *(block for task in findings.tasks for block in _task(task, findings)), *_overall(findings),
        *_speed(findings), *_diagnostics(findings),
        *(losses.blocks(findings.losses, findings.sides) if findings.losses else ()),
    ]  # fmt: skip
    return Document(f"Comparison of {', '.join(side.label for side in findings.sides)}", tuple(blocks))


def _left(name: str, rank: int = 0) -> Column:
    return Column(name, "left", rank)


def _by_side(
    findings: CompareFindings, rows: Iterable[SideFacts | SideScores | Aggregates | Speed], columns: Sequence[Shown],
    note: str = "",
) -> Table:  # fmt: skip
    """Build a table with a row per side."""
    return table_of(rows, [texts("side", lambda row: findings.label(row.letter)), *columns], note=note)


def metric_name(name: str) -> str:
    """Return a metric as a reader would call it, with its unit."""
    if name in (RETURN, EVALUATION):
        return "episode return" if name == RETURN else "return in the evaluation at the end of each run"
    info = METRICS.get(name)
    return name.rpartition("/")[2].replace("_", " ") + (f" ({info.unit})" if info is not None and info.unit else "")


def _verdict(findings: CompareFindings) -> Iterator[Block]:
    yield Heading("Verdict")
    if not findings.tasks:
        yield Paragraph("There are no records, so only the configurations are compared.")
    several = len(findings.tasks) > 1
    if several and findings.overall.sides:
        yield from _verdicts(f"over {len(findings.overall.tasks)} tasks", findings.overall.pairs, findings)
    elif several:
        yield Paragraph(f"Over all tasks: {findings.overall.why}.")
    for task in findings.tasks:
        yield from _verdicts(task.name if several else "", task.pairs, findings)
        if not task.pairs:
            yield Paragraph(f"Only {findings.label(task.sides[0].letter)} has records on {task.name}.")


def _verdicts(where: str, pairs: Sequence[Pair], findings: CompareFindings) -> Iterator[Block]:
    shown = _shown(pairs, findings)
    for pair in shown:
        text = f"{findings.label(pair.a)} vs {findings.label(pair.b)}{where and f', {where}'}: {conclusion(pair)}"
        if len(shown) <= _DETAILED:
            text += evidence(pair, findings.word)
        if pair.faster and pair.area_difference and findings.direction != "none":
            view = pair.turned() if pair.faster == pair.b else pair
            gain = signed_estimate(view.area_difference)
            text += f" {view.a} learns faster: its area under the curve differs by {gain}."
        yield Paragraph(text, _TONES.get(pair.verdict.outcome, "plain"))


def _shown(pairs: Sequence[Pair], findings: CompareFindings) -> Sequence[Pair]:
    return pairs if len(findings.sides) <= ALL_PAIRS or not pairs else [p for p in pairs if p.a == pairs[0].a]


def _notices(findings: CompareFindings) -> Iterator[Block]:
    tones: Mapping[str, Tone] = {"block": "bad", "caution": "warning", "note": "faint"}
    said = [pair.verdict.text for task in findings.tasks for pair in task.pairs]
    for notice in findings.notices:
        if notice.level == "block" and any(notice.text in text for text in said):
            continue
        name = "no verdict" if notice.level == "block" else notice.level
        yield Paragraph(f"{name}: {notice.text}", tones[notice.level])
    if not findings.notices and findings.tasks:
        yield Paragraph("Nothing found that speaks against comparing these runs.", "faint")


def _sides(findings: CompareFindings) -> Iterator[Block]:
    yield Heading("Sides")
    others: dict[str, Callable[[SideFacts], str]] = {
        "environment": lambda side: ", ".join(side.tasks),
        "preset": lambda side: _unique(member.preset for member in side.members),
        "state": lambda side: _unique(member.state for member in side.members),
        "evaluated": _evaluated,
        "device": lambda side: ", ".join(side.device),
        "git": lambda side: ", ".join(side.git),
        "jax": lambda side: ", ".join(side.jax),
    }
    common = {name: {show(side) for side in findings.sides} for name, show in others.items()}
    differing = {name: show for name, show in others.items() if len(common[name]) > 1}
    note = "; ".join(f"{name} {', '.join(texts)}" for name, texts in common.items() if len(texts) == 1 and any(texts))
    note = note and f"Same for all: {note}."
    named = {"path": _path, "seeds": _seeds, "steps": _steps, **differing}
    columns = [
        texts(name, partial(_known, show), max(place - 2, 0))  # the first three are always shown
        for place, (name, show) in enumerate(named.items())
    ]
    yield _by_side(findings, findings.sides, columns, note)


def _known(show: Callable[[SideFacts], str], side: SideFacts) -> str:
    return show(side) or UNKNOWN


def _path(side: SideFacts) -> str:
    first = side.members[0]
    path = f"preset {first.path}" if first.kind == "preset" else first.path
    return path if len(side.members) == 1 else f"{path} and {len(side.members) - 1} more"


def _seeds(side: SideFacts) -> str:
    numbers = [seed for member in side.members for seed in member.seeds]
    named = sorted({seed for seed in numbers if seed is not None})
    if not numbers:
        return ""
    if len(named) > 3 and named[-1] - named[0] == len(named) - 1:
        return f"{side.seeds} ({named[0]} to {named[-1]})"
    more = ", ..." if len(named) > 6 else ""
    return f"{side.seeds}" + (f" ({', '.join(map(str, named[:6]))}{more})" if named else "")


def _steps(side: SideFacts) -> str:
    ran = {member.steps for member in side.members if member.kind in ("run", "metrics")}
    asked = {member.asked_steps for member in side.members if member.asked_steps}
    if not ran or ran == asked:
        return _span(ran or asked)
    return _span(ran) + (f" of {_span(asked)}" if asked else "")


def _span(values: Iterable[int | None]) -> str:
    known = sorted(value for value in values if value is not None)
    return f"{known[0]:,}" + (f" to {known[-1]:,}" if len(known) > 1 else "") if known else ""


def _unique(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(text for text in texts if text))


def _evaluated(side: SideFacts) -> str:
    counts = _span({member.evaluated_episodes for member in side.members})
    policies = _unique(member.evaluated_policy or "" for member in side.members)
    return f"{counts} episodes, {policies}" if counts else ""


def _config(findings: CompareFindings) -> Iterator[Block]:
    known = [side for side in findings.sides if any(m.asked_steps or m.kind != "metrics" for m in side.members)]
    if len(known) < 2:
        return
    yield Heading("Configuration differences")
    if not findings.config:
        yield Paragraph("None, apart from names and seeds.")
        return
    rated = [group for group in findings.config if group.impact]
    if rated:
        columns = [texts("documented difference", lambda group: f"{group.row} {group.title}")]
        columns += [texts(name, attrgetter(name)) for name in ("impact", "confidence")]
        yield table_of(rated, columns, note=_RATED)
    letters = [_left(side.letter) for side in findings.sides]
    rows = tuple(row for group in findings.config for row in _config_rows(group))
    yield Table((_left("key"), *letters, _left("meaning", 1)), rows)


def _config_rows(group: DifferenceGroup) -> Iterator[Row]:
    yield Row((f"{group.row} {group.title}".strip() + (", with a known bug" if group.bug else ""),))
    for row in group.differences:
        # The effect of a documented row explains more than the purpose of its keys.
        doc = "" if group.row else row.doc
        yield Row((f"  {row.key}", *(value or UNKNOWN for value in row.values), doc))
    if group.row:
        same = len({effect for effect in group.effects if effect}) == 1
        yield Row(("  effect", *(effect or UNKNOWN for effect in group.effects), _SAME if same else ""), "faint")


def _task(task: TaskFindings, findings: CompareFindings) -> Iterator[Block]:
    yield Heading(task.name)
    text = f"{metric_name(findings.metric)} up to {task.end:,} steps"
    text += f", where {task.limited_by} ends" if task.limited_by else ""
    text += "" if findings.metric == EVALUATION else f"; final is the mean of the last {task.window:,.0f} steps"
    yield Paragraph(f"{text[:1].upper()}{text[1:]}.")
    sides = task.sides
    plots = [plot for over in OVER if (plot := curves(task, over, findings)) is not None]
    if len(findings.tasks) == 1 and findings.overall.sides:
        plots += _profile(findings)
    if plots:
        yield Aside(tuple(plots))
    evaluated = findings.metric != EVALUATION and any(side.evaluated for side in sides)
    columns = shown(SIDE, "seeds", "iqm", "std", "auc", *(["evaluated"] if evaluated else []))
    few = " With 4 seeds those of an IQM cover about 87 %." if any(len(side.values) == 4 for side in sides) else ""
    note = f"Brackets are 95 % intervals over seeds.{few}"
    yield _by_side(findings, sides, columns, note)
    if sides[0].thresholds:
        heads = (_left("threshold"), *(head for head, _ in shown(THRESHOLD)))
        rows = (row for i in range(len(sides[0].thresholds)) for row in _threshold(i, sides, findings))
        note = "Times depend on the load of the machine: compare them only for runs on an idle machine."
        yield Table(heads, tuple(rows), note=note)
    yield from _pairs(task.pairs, PAIR, findings)


def _threshold(i: int, sides: Sequence[SideScores], findings: CompareFindings) -> Iterator[Row]:
    yield Row((f"{sides[0].thresholds[i].value:g}",))
    for side in sides:
        yield Row((f"  {findings.label(side.letter)}", *(one.text(side.thresholds[i]) for one in THRESHOLD)))


def _pairs(pairs: Sequence[Pair], declared: Sequence[Number], findings: CompareFindings) -> Iterator[Block]:
    if not pairs:
        return
    absent = [name for name in ("paired", "area_difference") if not any(getattr(pair, name) for pair in pairs)]
    (wins, show), *others = shown(one for one in declared if one.name not in absent)
    wins = replace(wins, name=f"P(first {findings.word})")
    columns = [texts("pair", lambda pair: f"{pair.a} vs {pair.b}"), (wins, show), *others]
    yield table_of(_shown(pairs, findings), columns)


def _styled(findings: CompareFindings, letter: str, line: Series) -> Series:
    """Return a line of a side, with the same name and style in all plots."""
    place = [side.letter for side in findings.sides].index(letter)
    return replace(line, name=findings.label(letter), colour=place, dashed=place >= _COLOURS)


def curves(task: TaskFindings, over: Over, findings: CompareFindings) -> Plot | None:
    """Return the learning curves of the sides on one task; None without any."""
    bands = {side.letter: band for side in task.sides if (band := side.curves[over]) is not None}
    if not bands:
        return None
    starts = {side.letter: side.fork.env_steps for side in findings.sides if side.fork and over == "steps"}
    bands = {letter: band.since(starts[letter]) if letter in starts else band for letter, band in bands.items()}
    series = (_styled(findings, letter, band.series("", over)) for letter, band in bands.items())
    thresholds = (Reference("y", row.value, f"{row.value:g}") for row in task.sides[0].thresholds)
    forks = (Reference("x", float(at), f"{letter} branches off") for letter, at in starts.items() if letter in bands)
    end = [Reference("x", task.end, "compared up to here")] if over == "steps" and task.limited_by else []
    if over == "steps":
        x = Axis("environment steps", format="count", low=0.0)
    else:
        x = Axis("training time", format="duration", low=0.0)
    return Plot(
        title=f"{task.name} over {over}",
        x=x,
        y=Axis(metric_name(RETURN if findings.metric == EVALUATION else findings.metric)),
        series=tuple(series),
        caption="Interquartile mean over seeds with its 95 % interval, not smoothed; each side up to the end of its "
        "shortest seed.",
        references=(*thresholds, *end, *forks),
    )


def learning_curves(findings: CompareFindings) -> list[Plot]:
    """Return the curves of each task for a paper, with random play and without thresholds.

    Raises:
        HmxError: no side has the metric (exit code 3).
    """
    plots = []
    for task in findings.tasks:
        if (plot := curves(task, "steps", findings)) is not None:
            ends = (0.0, max(line.x[-1] for line in plot.series))
            level = [] if task.random is None else [(task.random,) * 2]
            random = (Series("random play", ends, y, colour=-1, dashed=True) for y in level)
            marks = tuple(mark for mark in plot.references if mark.axis == "x")
            title = task.name if len(findings.tasks) > 1 else ""
            plots.append(replace(plot, title=title, series=(*plot.series, *random), references=marks))
    if not plots:
        message = f"cannot draw {metric_name(findings.metric)}: no side has values"
        raise HmxError(message, "name runs that have trained until an episode ended", ExitCode.ARTEFACT)
    return plots


def _overall(findings: CompareFindings) -> Iterator[Block]:
    overall = findings.overall
    if len(findings.tasks) < 2:
        return
    yield Heading("Over all tasks")
    if not overall.sides:
        yield Paragraph(f"Not aggregated: {overall.why}.")
        return
    scales = (Row((name, number(r.low, 4), number(r.high, 4), r.source)) for name, r in overall.ranges.items())
    yield Table((_left("task"), Column("0 is"), Column("1 is"), _left("scale", 1)), tuple(scales))
    yield _by_side(findings, overall.sides, shown(numbers(Aggregates)))
    yield from _pairs(overall.pairs, OVERALL_PAIR, findings)
    yield Aside(tuple(_profile(findings)))


def _profile(findings: CompareFindings) -> list[Plot]:
    """Return the performance profile, from where it falls below 1 to where it reaches 0; none if that is one step."""
    overall = findings.overall
    falling = [
        tau
        for side in overall.sides
        for tau, share in zip(overall.taus, side.profile, strict=True)
        if 0 < share < 1
    ]  # fmt: skip
    if not falling or max(falling) - min(falling) < _NARROW:
        return []
    low, high = max(min(falling) - _NARROW, 0.0), max(falling) + _NARROW
    shown = [i for i, tau in enumerate(overall.taus) if low <= tau <= high]
    taus = tuple(overall.taus[i] for i in shown)
    lines = (
        _styled(findings, side.letter, Series("", taus, tuple(side.profile[i] for i in shown), "steps"))
        for side in overall.sides
    )
    caption = "Share of runs whose score is above each value. Score 1 is the best seed of all sides; score 0 is random "
    caption += "play if runs were evaluated, otherwise the worst seed. --range sets other values."
    return [
        Plot(
            title="Performance profile",
            x=Axis("score"),
            y=Axis("runs above the score", format="percent", low=0.0, high=1.0),
            series=tuple(lines),
            caption=caption,
        )
    ]


def _speed(findings: CompareFindings) -> Iterator[Block]:
    if not findings.speed:
        return
    yield Heading("Speed and memory")
    columns = shown(SPEED)
    if len({row.task for row in findings.speed}) > 1:
        columns.insert(0, (Column("task"), attrgetter("task")))
    if len({row.device for row in findings.speed}) > 1:
        columns.append((Column("device", rank=3), attrgetter("device")))
    note = (
        "Steps of all seeds of a run, without compilation, saving and evaluation. The time to the first update "
        "includes compilation unless cached. Memory is that of the compiled program."
    )
    yield _by_side(findings, findings.speed, columns, note)


def _diagnostics(findings: CompareFindings) -> Iterator[Block]:
    if findings.diagnostics:
        yield Heading("Diagnostics at matched steps")
        rows = (row for diagnostic in findings.diagnostics for row in _diagnostic(diagnostic, findings))
        columns = (_left("metric"), *(Column(percent(share)) for share in findings.diagnostics[0].moments))
        yield Table(columns, tuple(rows), note="Means over seeds, at shares of the compared steps.")
    yield from (Paragraph(warning, "warning") for warning in findings.warnings)


def _diagnostic(diagnostic: Diagnostic, findings: CompareFindings) -> Iterator[Row]:
    task = f" on {diagnostic.task}" if len(findings.tasks) > 1 else ""
    yield Row((f"{diagnostic.metric.rpartition('/')[2]}{task}",))
    for letter, means in diagnostic.values.items():
        yield Row((f"  {findings.label(letter)}", *(number(mean) for mean in means)))
