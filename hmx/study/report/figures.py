"""The plots of a study's report."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from statistics import median

from hmx.errors import counted
from hmx.render.blocks import Axis, NumberFormat, Plot, Reference, Series
from hmx.render.quantities import FORMATS
from hmx.reports.compare import document as comparisons
from hmx.study.records import Parameter
from hmx.study.report.findings import StudyFindings, TrialFacts, share_text
from hmx.study.report.numbers import objective_name, short_names
from hmx.study.report.options import number_of, place
from hmx.study.summaries import value_text

_COLOURED = 5  # best trials that parallel coordinates colour
_LINES = 200  # other trials that they show
_WIDE = 20.0  # ratio of CPU times from which their axis is logarithmic
_FAR = 4.0  # distances from the median to the best trial; worse trials lie outside a plot
_JITTER = 0.3  # width of the dots above the name of a choice
_GOLDEN = (math.sqrt(5) - 1) / 2  # multiples of it spread evenly
_FRONT, _CONFIRMED = 3, 4  # colours
_RUNGS = (0, 1, 2, 5, 6, 7)  # of the last rung and those before it


def curves(findings: StudyFindings) -> Iterator[Plot]:
    """Yield the learning curves of the finalists of a search."""
    compared = findings.comparison
    if compared is None or findings.is_list:
        return
    for task in compared.tasks:
        plot = comparisons.curves(task, "steps", compared)
        if plot is not None:
            where = ", on fresh seeds" if findings.confirmed else ""
            references = plot.references if findings.settings.objective.threshold is not None else ()
            yield replace(plot, title=f"Learning curves of the best{where}", references=references)


def results(findings: StudyFindings) -> Plot:
    """Draw the result of each trial in the order of the trials, and the best one so far."""
    last = [(t.trial, t.objective) for t in findings.trials if len(t.rungs) == len(findings.settings.rungs)]
    known = [(float(trial), value) for trial, value in last if value is not None]
    better = max if findings.settings.objective.higher_is_better else min
    best = tuple(accumulate((value for _, value in known), better))
    line = Series("leading so far", tuple(at for at, _ in known), best, "steps", colour=-1)
    confirmed = [(float(one.trial), one.confirmed.value) for one in findings.finalists if one.confirmed]
    fresh = Series(
        "on fresh seeds", tuple(at for at, _ in confirmed), tuple(value for _, value in confirmed), "dots",
        colour=_CONFIRMED, dashed=True,
    )  # fmt: skip
    series = (line, *_by_rung(findings, lambda trial: float(trial.trial)), *([fresh] if confirmed else []))
    return _plot(findings, "Results over trials", Axis("trial", format="count"), series)


def costs(findings: StudyFindings) -> Plot | None:
    """Draw the results against the CPU time of their training; None if no time is known."""
    front = [(t.cpu_seconds, t.objective) for t in findings.trials if t.front and t.cpu_seconds]
    front.sort()
    if not front:
        return None
    seconds = [trial.cpu_seconds for trial in findings.trials if trial.cpu_seconds]
    wide = max(seconds) > _WIDE * min(seconds)
    line = Series("best for its CPU time", tuple(x for x, _ in front), tuple(y for _, y in front), "steps",
                  colour=_FRONT)  # fmt: skip
    x = Axis("CPU time of the trial", "log" if wide else "linear", "duration")
    series = (line, *_by_rung(findings, lambda trial: trial.cpu_seconds))
    note = "The line joins the trials that are better than every cheaper one (Pareto front)."
    return _plot(findings, "Results against CPU time", x, series, note)


def option(findings: StudyFindings, parameter: Parameter) -> Plot:
    """Draw the results against the values of one option."""
    judged = next(one for one in findings.importance if one.key == parameter.key)
    note = judged.judgement if judged.share is None else f"explains {share_text(judged.share)}: {judged.judgement}"
    title = short_names(one.key for one in findings.settings.space)[parameter.key]
    names = tuple(value_text(choice) for choice in parameter.choices)

    def at(trial: TrialFacts) -> float | None:
        value = trial.values[parameter.key]
        return _above(names, value_text(value), trial.trial) if names else number_of(value)

    x = Axis(parameter.key, "log" if parameter.log else "linear")
    return _plot(findings, title, x, tuple(_by_rung(findings, at)), f"{note[:1].upper()}{note[1:]}.", names)


def _above(names: Sequence[str], name: str, trial: int) -> float | None:
    """Return a place above the name of a choice, beside those of other trials."""
    return names.index(name) + _JITTER * (trial * _GOLDEN % 1 - 0.5) if name in names else None


def parallel(findings: StudyFindings) -> Plot:
    """Draw every trial as a line across its values, with its rank last; the best trials are coloured."""
    ranked = findings.ranked
    best, others = ranked[:_COLOURED], ranked[_COLOURED:]
    others = others[:: max(1, math.ceil(len(others) / _LINES))]
    heights = {trial.trial: 1 - rank / max(len(ranked) - 1, 1) for rank, trial in enumerate(ranked)}
    at = tuple(float(i) for i in range(len(findings.settings.space) + 1))

    def line(trial: TrialFacts, name: str, colour: int) -> Series:
        values = (place(one, trial.values[one.key]) for one in findings.settings.space)
        return Series(name, at, (*values, heights[trial.trial]), colour=colour)

    lines = [replace(line(trial, "other trials", -1), thin=True) for trial in others]
    lines += [line(trial, f"trial {trial.trial}", colour) for colour, trial in enumerate(best)]
    names = short_names(one.key for one in findings.settings.space)
    shown = "" if len(others) + len(best) == len(ranked) else f" {len(others)} of the others are drawn, evenly spaced."
    return Plot(
        title="Configurations",
        x=Axis(""),
        y=Axis("place in the range", format="percent", low=-0.04, high=1.04),
        series=(*lines, *_ends(findings.settings.space)),
        caption=f"A line per trial; the best {len(best)} are coloured. The last axis is the rank of the result.{shown}",
        references=tuple(Reference("x", place) for place in at),
        categories=(*names.values(), "rank"),
    )


def _ends(space: Sequence[Parameter]) -> Iterator[Series]:
    """Yield the values at the places of each axis."""
    for at, one in enumerate(space):
        values = one.choices if one.kind == "choice" else (one.low, one.high)
        places = tuple(place(one, value) for value in values)
        tags = tuple(value_text(value) for value in values)
        yield Series("", (float(at),) * len(values), places, "dots", colour=-1, tags=tags)


def _by_rung(findings: StudyFindings, at: Callable[[TrialFacts], float | None]) -> Iterator[Series]:
    """Yield the trials at the highest rung that they reached, the last rung first."""
    show = FORMATS[_objective_axis(findings).format]
    last = len(findings.settings.rungs) - 1
    for rung in range(last, -1, -1):
        known = [
            (x, trial, value) for trial in findings.trials
            if len(trial.rungs) == rung + 1 and (x := at(trial)) is not None and (value := trial.objective) is not None
        ]  # fmt: skip
        name = "whole run" if rung == last else f"stopped at {findings.settings.rungs[rung]:.0%}"
        if not known:
            continue
        labels = tuple(f"trial {trial.trial}: {show(value)}, {name}" for _, trial, value in known)
        yield Series(name, tuple(x for x, _, _ in known), tuple(value for _, _, value in known), "dots",
                     colour=_RUNGS[min(last - rung, 5)], labels=labels)  # fmt: skip


def _plot(
    findings: StudyFindings, title: str, x: Axis, series: tuple[Series, ...], note: str = "",
    categories: tuple[str, ...] = (),
) -> Plot:  # fmt: skip
    """Return a plot of objectives that leaves out results far worse than the median."""
    values = [trial.objective for trial in findings.trials if trial.objective is not None]
    higher = findings.settings.objective.higher_is_better
    middle, best = median(values), (max if higher else min)(values)
    limit = middle - _FAR * (best - middle)
    outside = sum((value < limit) if higher else (value > limit) for value in values) if best != middle else 0
    y = _objective_axis(findings, limit if outside else None)
    if outside:
        verb = "is" if outside == 1 else "are"
        note += f" {counted(outside, 'trial')} far {'below' if higher else 'above'} {verb} not shown."
    return Plot(title, x, y, series, note.strip(), categories=categories)


def _objective_axis(findings: StudyFindings, limit: float | None = None) -> Axis:
    formats: dict[str, NumberFormat] = {"steps_to": "count", "cpu_seconds_to": "duration"}
    objective = findings.settings.objective
    axis = Axis(objective_name(objective), format=formats.get(objective.measure, "number"))
    return replace(axis, low=limit) if objective.higher_is_better else replace(axis, high=limit)
