"""The plots of a run page: metrics that belong together, and the curves of every group."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted
from hmx.jobs.evaluation import RANDOM
from hmx.records.curves import EVALUATED, EVALUATED_HIGH, EVALUATED_LOW, MEASURED_BEFORE, UNTRAINED
from hmx.records.metrics_table import METRICS
from hmx.render.blocks import Axis, NumberFormat, Plot, Reference, Series
from hmx.render.quantities import number
from hmx.reports.curves import Curve, per_episode
from hmx.reports.report.findings import ConfigGroup, RunFacts, RunFindings

STEPS, MINUTES = Axis("environment steps per seed", format="count"), Axis("minutes of training")
THIN = 10  # agents that are drawn as thin lines, at most
_PARTS = ("task", "entropy", "value", "td", "total")
_LAYERS = 7  # of a stacked plot; the smaller ones are added up


@dataclass(frozen=True)
class PlotPlan:
    """A plot of one metric, or of several: the later ones are dashed."""

    title: str
    metrics: tuple[str, ...]
    format: NumberFormat = "number"


RETURN = PlotPlan("Return", ("train/mean_episode_return",))
PROGRESS = (
    PlotPlan("Share of games won", ("stats/wins",), "percent"),
    PlotPlan("Stages completed per episode", ("stats/stages_completed",)),
    PlotPlan("Episode length", ("train/mean_episode_length",)),
)
OPTIMISATION = (
    PlotPlan("Entropy and its maximum", ("train/entropy", "train/max_entropy")),
    PlotPlan("Entropy of the search", ("train/search_entropy",)),
    PlotPlan("KL divergence from the search", ("train/search_kl",)),
    PlotPlan("KL divergence", ("train/approx_kl",)),
    PlotPlan("Clip fraction", ("train/clip_frac",), "percent"),
    PlotPlan("Explained variance", ("train/explained_variance",)),
    PlotPlan("Policy loss", ("train/policy_loss",)),
    PlotPlan("Value loss", ("train/value_loss",)),
    PlotPlan("Total loss", ("train/total_loss",)),
    PlotPlan("Gradient norm", ("train/grad_norm",)),
    PlotPlan("Standard deviation of actions", ("train/std",)),
    PlotPlan("TD error", ("train/td_error",)),
    PlotPlan("Value of the actions taken", ("train/q_value",)),
    PlotPlan("Largest first ratio error", ("train/first_ratio_error",)),
)
SCHEDULES = tuple(
    PlotPlan(title, (f"train/{name}",))
    for title, name in (
        ("Learning rate", "learning_rate"), ("Clip range", "clip_eps"), ("Clip range of the value", "clip_vf_eps"),
        ("Entropy weight", "ent_coef"), ("Priority exponent", "prio_beta"), ("Exploration", "epsilon"),
        ("Importance exponent", "is_beta"),
    )
)  # fmt: skip
SPEED = (PlotPlan("Speed", ("train/steps_per_sec", "train/steps_per_cpu_sec"), "count"),)
STACKS = {
    "reward/": ("What the return is made of", "Each reward term per step, times the mean length of an episode. Terms "
                "above 0 and below 0 are stacked apart."),
    "actions/": ("Actions", "Shares of the kinds of actions; they sum to 1."),
    "programs/": ("Programs used", "Uses per episode."),
}  # fmt: skip
_LENGTH = "train/mean_episode_length"
_EVALUATED = (
    "Evaluated: the agent until then in whole games that all count. In grey, games that ended in training: all "
    "begin together, so their mean swings where length and return go together."
)
_TAIL = 0.05  # share of the values at each end that does not decide the range of an axis
_WIDE = 4.0  # times that range: an axis that outliers would make wider leaves them out


def plots(findings: RunFindings, plans: Iterable[PlotPlan]) -> Iterator[Plot]:
    """Yield the plots whose metrics are reported; metrics that never change are shown only for learning."""
    for plan in plans:
        reported = [name for name in plan.metrics if any(name in group.curves for group in findings.groups)]
        fixed = [constant(findings, name) for name in reported]
        if any(value is None or (value and plan in (RETURN, *PROGRESS)) for value in fixed):
            yield _plot(findings, plan, reported)


def best_known(findings: RunFindings) -> Iterator[Plot]:
    """Yield the return in a wide plot, what it is made of, and how far episodes get."""
    yield _return(findings)
    yield from stacks(findings, "reward/")
    yield from plots(findings, PROGRESS)


def _return(findings: RunFindings) -> Plot:
    """Return the plot of the return, with random play and the agents of the evaluations.

    Lines of evaluations take the place of those of training games, which are drawn in grey.
    """
    reported = [name for name in RETURN.metrics if any(name in group.curves for group in findings.groups)]
    plot = _plot(findings, RETURN, reported or RETURN.metrics)
    caption = plot.caption if reported else "No return yet: not every game has ended once."
    lines, training = tuple(_during(findings)), plot.series
    if lines:
        several = len(findings.groups) + len(findings.parents) > 1
        grey = {group.name if several else "" for group in findings.groups if EVALUATED in group.curves}
        training = tuple(
            replace(one, name="training games", colour=-1, low=(), high=()) if one.name in grey else one
            for one in training
            if not (one.thin and one.name in grey)
        )
        caption = f"{_EVALUATED} {caption}"
    return replace(plot, series=(*training, *lines, *_evaluated(findings)), caption=caption, wide=True)


def _during(findings: RunFindings) -> Iterator[Series]:
    """Yield the evaluations of each group while it trained; for one agent with the intervals over episodes."""
    for colour, group in enumerate(findings.groups):
        if (curve := group.curves.get(EVALUATED)) is None:
            continue
        ends = [group.curves[name].values for name in (EVALUATED_LOW, EVALUATED_HIGH) if name in group.curves]
        if group.seeds == 1 and [len(end) for end in ends] == [len(curve.values)] * 2:
            curve = replace(curve, low=ends[0], high=ends[1])
        name = f"evaluated, {group.name}" if len(findings.groups) > 1 else "evaluated"
        yield _series(curve.since(group.branch), name, colour)


def learning_curve(findings: RunFindings) -> Plot:
    """Return the return over training for a paper: without title and marks, and with a name for each line.

    Raises:
        HmxError: no run has a return yet (exit code 3).
    """
    plot, metric = _return(findings), RETURN.metrics[0]
    if not any(metric in group.curves for group in findings.groups):
        names = ", ".join(quoted(run.name) for run in findings.runs)
        hint = f"continue until every environment has ended an episode: hmx resume {shlex.quote(findings.runs[0].name)}"
        raise HmxError(f"cannot draw the return of {names}: none is known yet", f"{hint} --steps N", ExitCode.ARTEFACT)
    seeds = findings.groups[0].seeds
    name = f"mean of {seeds} seeds" if seeds > 1 else "training"
    several = len(findings.groups) > 1  # the colours then say whose trained agents the dots are
    series = (replace(line, name="" if several and line.kind == "dots" else line.name or name) for line in plot.series)
    return replace(plot, title="", y=Axis("return per episode"), series=tuple(series), references=())


def _evaluated(findings: RunFindings) -> Iterator[Series]:
    """Yield random play as a line, and trained agents as dots at the end of training, with their intervals.

    Evaluations at the end count the default reward weights, so runs that were trained with others have no dots. Until
    the end, random play is that of the evaluations during training.
    """
    several = len(findings.groups) > 1
    drawn: set[float] = set()
    for colour, group in enumerate(findings.groups):
        for run in (run for run in findings.runs if run.name in group.runs):
            rescaled = any(setting.changed and setting.key.startswith("reward.") for setting in run.settings)
            rows, end, minutes = () if rescaled else run.evaluation, float(run.env_steps), run.minutes or 0.0
            levels = [row.return_mean for row in rows if row.policy == RANDOM]
            if not levels and UNTRAINED in group.curves:
                levels = group.curves[UNTRAINED].values[-1:].tolist()
            for level in dict.fromkeys(level for level in levels if level not in drawn):
                drawn.add(level)
                yield Series("random play", (0.0, end), (level,) * 2, colour=-1, dashed=True, x2=(0.0, minutes))
            for row in rows:
                if row.policy != RANDOM:
                    low, high = row.return_interval or (None, None)
                    name = f"trained agent, {group.name}" if several else "trained agent"
                    yield Series(name, (end,), (row.return_mean,), "dots", (low,), (high,), colour, x2=(minutes,))


def constant(findings: RunFindings, metric: str) -> float | None:
    """Return the value of a metric that is the same in every group and at all times; None for any other."""
    values = {value for group in findings.groups if metric in group.curves for value in group.curves[metric].values}
    (value,) = values if len(values) == 1 else (None,)
    return value


def stacks(findings: RunFindings, prefix: str) -> Iterator[Plot]:
    """Yield one stacked plot per group of all metrics with a prefix."""
    title, caption = STACKS[prefix]
    for group in findings.groups:
        named = f"{title}: {group.name}" if len(findings.groups) > 1 else title
        if found := {
            name: curve for name, curve in group.curves.items() if name.startswith(prefix) and curve.values.any()
        }:
            y = Axis("share", format="percent", low=0.0, high=1.0) if prefix == "actions/" else Axis("per episode")
            if prefix == "reward/":
                found = _per_episode(found, group.curves.get(_LENGTH))
            found = {name: curve.within().smooth() for name, curve in found.items()}
            yield Plot(named, STEPS, y, tuple(_layers(found)), _explained(caption, found), _marks(findings), x2=MINUTES)


def _per_episode(terms: Mapping[str, Curve], length: Curve | None) -> dict[str, Curve]:
    """Return reward terms per episode, from where the length of episodes is known; per step if it never is."""
    if length is None:
        return dict(terms)
    known = {name: curve.part(curve.steps >= length.steps[0]) for name, curve in terms.items()}
    return {
        name: replace(curve, values=curve.values * np.interp(curve.steps, length.steps, length.values))
        for name, curve in known.items()
    }


def others(findings: RunFindings) -> Iterator[Plot]:
    """Yield a plot of every metric that no other plot shows and that changes, those of own algorithms first."""
    shown = {name for plan in (RETURN, *PROGRESS, *OPTIMISATION, *SCHEDULES, *SPEED) for name in plan.metrics}
    found = {name for group in findings.groups for name in group.curves} - shown
    own = sorted(name for name in found - METRICS.keys() if not name.startswith((*STACKS, "grad_norm/")))
    names = [name for name in METRICS if name in found and not name.startswith((*STACKS, MEASURED_BEFORE))]
    yield from plots(findings, [PlotPlan(name, (name,)) for name in (*own, *names)])


def gradients(findings: RunFindings) -> Iterator[Plot]:
    """Yield the gradient reports that were recorded during training."""
    for group in findings.groups:
        shares = {n: c for n, c in group.curves.items() if _part(n)[1:] == ("share",) and _part(n)[0] != "all"}
        norms = {n: c for n, c in group.curves.items() if _part(n) in [("all", part) for part in _PARTS]}
        apart = f": {group.name}" if len(findings.groups) > 1 else ""
        if shares:
            caption = "Share of each bucket of start states in the gradient, by projection; the shares sum to 1. "
            caption += "Buckets are ordered by the standard deviation of returns."
            y = Axis("share", format="percent")
            series = tuple(_layers(shares))
            yield Plot(f"Origin of the gradient{apart}", STEPS, y, series, caption, _marks(findings), x2=MINUTES)
        if norms:
            lines = tuple(_series(c, name.rpartition("/")[2], i) for i, (name, c) in enumerate(norms.items()))
            caption = "Norm of the mean gradient of each part of the loss, before clipping."
            yield Plot(f"Gradient by part of the loss{apart}", STEPS, Axis("norm"), lines, caption, _marks(findings),
                       x2=MINUTES)  # fmt: skip


def _part(metric: str) -> tuple[str, ...]:
    """Return the parts of the name of a metric of a gradient report; nothing for other metrics."""
    group, _, rest = metric.partition("/")
    return tuple(rest.split("/")) if group == "grad_norm" else ()


def _plot(findings: RunFindings, plan: PlotPlan, metrics: Sequence[str]) -> Plot:
    infos = [METRICS[metric] for metric in metrics if metric in METRICS]
    robust = plan not in (RETURN, *PROGRESS)
    low, high, outliers = _range(findings, metrics) if robust else (-math.inf, math.inf, 0)
    series: list[Series] = []
    groups = (*findings.groups, *findings.parents)
    for colour, group in enumerate(groups):
        for place, metric in enumerate(metrics):
            if metric not in group.curves:
                continue
            own = metric.partition("/")[2] if len(metrics) > 1 else ""
            name = ", ".join(part for part in (group.name if len(groups) > 1 else "", own) if part)
            if place == 0:
                series += _thin(findings.runs, group, metric, name, colour)
            curve = group.curves[metric].since(group.branch)
            if plan not in SCHEDULES:
                curve = curve.within(low, high).smooth()
            series.append(_series(curve, name, colour, dashed=place > 0 or group in findings.parents))
    caption = " ".join(f"{info.help[:1].upper()}{info.help[1:]}." for info in infos)
    if outliers:
        caption = f"{caption} {counted(outliers, 'outlier')} beyond the axis.".lstrip()
    unit = next((info.unit for info in infos), "") or plan.title.lower()
    ends = (end if math.isfinite(end) else None for end in (low, high))
    y = Axis(unit + " per episode" * per_episode(metrics[0]), "linear", plan.format, *ends)
    return Plot(plan.title, STEPS, y, tuple(series), caption, _marks(findings), x2=MINUTES)


def _range(findings: RunFindings, metrics: Sequence[str]) -> tuple[float, float, int]:
    """Return both ends of an axis and the number of outliers beyond them; infinity for an end without outliers."""
    curves = [agent.curve(name).within() for run in findings.runs for agent in run.agents for name in metrics]
    values = np.sort(np.concatenate([curve.values for curve in curves])) if curves else np.array([])
    if not len(values):
        return -math.inf, math.inf, 0
    edge = int(_TAIL * len(values))
    bottom, top = values[edge], values[-1 - edge]
    reach = _WIDE * (top - bottom) or math.inf
    kept = values[(values >= bottom - reach) & (values <= top + reach)]
    low = float(kept[0]) if kept[0] > values[0] else -math.inf
    high = float(kept[-1]) if kept[-1] < values[-1] else math.inf
    return low, high, len(values) - len(kept)


def _series(curve: Curve, name: str, colour: int, dashed: bool = False) -> Series:
    line = replace(curve.series(name, colour=colour), dashed=dashed, x2=_minutes(curve))
    return replace(line, low=(), high=()) if dashed else line


def _minutes(curve: Curve) -> tuple[float, ...]:
    return tuple(np.nan_to_num(curve.time / 60).tolist())


def _thin(runs: Sequence[RunFacts], group: ConfigGroup, metric: str, name: str, colour: int) -> Iterator[Series]:
    """Yield the values of each agent as a thin line, unless there are too many agents."""
    agents = [agent for run in runs if run.name in group.runs for agent in run.agents]
    if len(agents) <= THIN:
        for agent in agents:
            if metric in agent.columns:
                yield replace(_series(agent.curve(metric).since(group.branch), name, colour), thin=True)


def _layers(curves: Mapping[str, Curve]) -> Iterator[Series]:
    """Yield the largest curves as areas; the smaller ones are added up, those above and those below 0."""
    order = sorted(curves, key=lambda name: -float(np.abs(curves[name].values).mean()))
    whole = order if len(order) <= _LAYERS + 1 else order[:_LAYERS]
    for colour, name in enumerate(whole):
        label = name.partition("/")[2].removesuffix("_frac").removesuffix("/share")
        yield from _areas(label, [curves[name]], colour)
    if rest := [curves[name] for name in order if name not in whole]:
        longest = max(rest, key=lambda curve: len(curve.steps))
        same = [curve for curve in rest if np.array_equal(curve.steps, longest.steps)]
        yield from _areas(f"{len(same)} smaller", same, -1)


def _areas(name: str, curves: Sequence[Curve], colour: int) -> Iterator[Series]:
    """Yield the sum of the values above 0 and that of the values below 0 of curves with the same steps."""
    first = curves[0]
    values = np.stack([curve.values for curve in curves])
    for sums in (np.maximum(values, 0.0).sum(0), np.minimum(values, 0.0).sum(0)):
        if sums.any():
            x, y = tuple(first.steps.tolist()), tuple(sums.tolist())
            yield Series(name, x, y, "area", colour=colour, x2=_minutes(first))


def _explained(caption: str, names: Iterable[str]) -> str:
    terms = [
        f"{name.partition('/')[2]}: {METRICS[name].help}"
        for name in names
        if name.startswith("reward/") and name in METRICS
    ]
    return " ".join([caption, *(f"{term}." for term in terms)]) if len(terms) <= _LAYERS else caption


def _marks(findings: RunFindings) -> tuple[Reference, ...]:
    """Return the steps at which runs were resumed or forked."""
    several = len(findings.runs) > 1
    found = {
        mark.env_steps: f"{run.name} {mark.what}" if several else mark.what
        for run in findings.runs
        for mark in run.resumes
        if mark.env_steps
    }
    return tuple(Reference("x", float(at), text) for at, text in found.items())


def fixed_values(findings: RunFindings) -> str:
    """Return the scheduled values that never change, as text."""
    names = {plan.metrics[0]: plan.title.lower() for plan in SCHEDULES}
    found = {title: constant(findings, metric) for metric, title in names.items()}
    return ", ".join(f"{title} {number(value)}" for title, value in found.items() if value is not None)
