"""The first questions of a reader about a run, each answered in one or two sentences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from hmx.config.textfile import quoted
from hmx.jobs.evaluation import RANDOM, PolicyStats
from hmx.records.curves import EVALUATED, EVALUATED_LOW, RETURN, UNTRAINED
from hmx.records.paths import RunPaths
from hmx.render.blocks import Tone
from hmx.render.quantities import number, short
from hmx.reports.curves import AgentMetrics, Curve, mean_curve
from hmx.reports.doctor.monitor import Finding
from hmx.reports.doctor.rule import Severity
from hmx.reports.report.findings import RunFacts
from hmx.reports.summaries import composition, earned
from hmx.stats.intervals import Interval, mean_interval

LEARNED, WRONG = "Did it learn?", "Is anything wrong?"

_FEWEST = 8  # points of a curve whose changes are described
_END = 0.1  # share of the training that counts as its end
_LEVEL = 0.05  # share of the gain within which a return counts as steady
_NOISE = 2.0  # standard deviations of the noise that a change must exceed
_LONGEST = 300  # characters of a text from a file


class Answer(NamedTuple):
    """A question and its answer."""

    question: str
    text: str
    tone: Tone = "plain"


def trend(agents: Sequence[AgentMetrics]) -> Curve | None:
    """Return the mean return over agents; None for too few points."""
    curve = mean_curve(agents, RETURN)
    return curve if curve is not None and len(curve.values) >= _FEWEST else None


def _late(curve: Curve) -> float:
    """Return the mean of the last tenth."""
    values = curve.since((1 - _END) * curve.steps[-1]).values
    return math.fsum(values) / len(values)


def _noise(curve: Curve) -> float:
    """Return the standard deviation of what smoothing removes."""
    return float(np.std(curve.values - curve.smooth().values))


def gain(curve: Curve) -> float:
    """Return the change from the smoothed start to the end."""
    return _late(curve) - float(curve.smooth().values[0])


def changed(curve: Curve) -> bool:
    """Return whether the change is more than noise."""
    return abs(gain(curve)) > max(_NOISE * _noise(curve), 1e-6 * float(np.abs(curve.smooth().values).max()))


def reached(curve: Curve, share: float) -> float:
    """Return the steps at which a share of the gain was first reached."""
    values, change = curve.smooth().values, gain(curve)
    goal = values[0] + share * change
    return float(curve.steps[np.flatnonzero(values >= goal if change > 0 else values <= goal)[0]])


def answers(run: RunFacts) -> tuple[Answer, ...]:
    """Answer what a reader asks first."""
    trained = [row for row in run.evaluation if row.policy != RANDOM]
    random = next((row for row in run.evaluation if row.policy == RANDOM), None)
    curve = trend(run.agents)
    asked = (
        _learned(trained, random, curve) if trained else _so_far(run.agents) or _learned(trained, random, curve),
        _certainty(run, trained, random),
        Answer("What is the return made of?", _made_of(run, trained, random)),
        Answer("What changed, and when?", _capital("; ".join(_changes(run, curve)))),
        _problems(run),
        Answer("What next?", _capital("; ".join(_next(run)))),
    )
    return tuple(answer for answer in asked if answer.text)


def _learned(trained: Sequence[PolicyStats], random: PolicyStats | None, curve: Curve | None) -> Answer:
    if trained:
        low, mean, high = _mean_return(trained)
        text = f"return of the trained agent {_interval(mean, low, high)}"
        if random is None:
            return Answer(LEARNED, f"{_capital(text)}.")
        ends = random.return_interval or Interval(random.return_mean, random.return_mean)
        text += f", random play {_interval(random.return_mean, *ends)}"
        if low > ends.high:
            return Answer(LEARNED, f"Yes: {text}.", "good")
        if high < ends.low:
            return Answer(LEARNED, f"No, it is worse than random play: {text}.", "bad")
        return Answer(LEARNED, f"Not shown: {text}, and these intervals overlap.", "warning")
    if curve is None:
        return Answer(LEARNED, "Unknown: there is no evaluation, and the curve has too few points.", "warning")
    first, last = number(float(curve.smooth().values[0])), number(_late(curve))
    ends_at = f"the mean return of the training episodes went from {first} to {last}; there is no evaluation."
    if not changed(curve):
        return Answer(LEARNED, f"Not shown: {ends_at}", "warning")
    return Answer(LEARNED, f"Yes: {ends_at}", "good") if gain(curve) > 0 else Answer(LEARNED, f"No: {ends_at}", "bad")


def _so_far(agents: Sequence[AgentMetrics]) -> Answer | None:
    """Compare the newest evaluation during training with random play; None without one."""
    level, untrained, least = (mean_curve(agents, name) for name in (EVALUATED, UNTRAINED, EVALUATED_LOW))
    if level is None or untrained is None or least is None:
        return None
    random = float(untrained.values[-1])
    text = f"{number(float(level.values[-1]))} in the evaluation at step {short(float(level.steps[-1]))}"
    text += f", random play {number(random)}"
    shown = float(least.values[-1]) > random
    return Answer(LEARNED, f"{'Yes, so far' if shown else 'Not shown yet'}: {text}.", "good" if shown else "warning")


def _mean_return(rows: Sequence[PolicyStats]) -> tuple[float, float, float]:
    """Return the mean of the agents between the ends of its interval: over seeds, or over episodes of one agent."""
    means = [row.return_mean for row in rows]
    mean = sum(means) / len(means)
    ends = mean_interval(means) if len(rows) > 1 else rows[0].return_interval
    return (mean, mean, mean) if ends is None else (ends.low, mean, ends.high)


def _certainty(run: RunFacts, trained: Sequence[PolicyStats], random: PolicyStats | None) -> Answer:
    question, seeds = "How sure is that?", len(run.agents)
    if seeds > 1:
        text = f"{seeds} seeds; intervals are Student's t over seeds"
        if trained and random is not None:
            better = sum(row.return_mean > random.return_mean for row in trained)
            text += f"; {better} of {len(trained)} agents are better than random play"
        return Answer(question, f"{text}.", "plain" if seeds > 2 else "warning")
    text = "One seed: the interval is over the episodes of this agent. Another seed may learn more or less."
    return Answer(question, text, "warning") if seeds else Answer(question, "")


def _made_of(run: RunFacts, trained: Sequence[PolicyStats], random: PolicyStats | None) -> str:
    """Say what an episode is paid for, in the evaluation or else at the end of the training."""
    if terms := earned(trained):
        text = f"Trained agent: {next(iter(terms.values()))}"
        untrained = earned([random] if random is not None else [])
        return text + (f"; random play: {untrained[RANDOM]}." if untrained else ".")
    terms_of = _last_terms(run.agents)
    length = _last(run.agents, "train/mean_episode_length")
    if len(terms_of) < 2 or length is None:
        return ""
    per_episode = {name: value * length for name, value in terms_of.items()}
    return f"At the end of the training about {composition(per_episode)} per episode."


def _last_terms(agents: Sequence[AgentMetrics]) -> dict[str, float]:
    names = sorted({name for agent in agents for name in agent.columns if name.startswith("reward/")})
    values = {name.partition("/")[2]: _last(agents, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _last(agents: Sequence[AgentMetrics], metric: str) -> float | None:
    """Return the mean of a metric at the end of the training, over agents."""
    curve = mean_curve(agents, metric)
    return None if curve is None else _late(curve)


def _changes(run: RunFacts, curve: Curve | None) -> Iterator[str]:
    if curve is None:
        yield "too few points of the curve to tell" if run.agents else ""
    elif not changed(curve):
        yield f"the return stayed near {number(float(curve.smooth().values.mean()))}"
    else:
        direction = "gain" if gain(curve) > 0 else "loss"
        half, most = short(reached(curve, 0.5)), short(reached(curve, 1 - 2 * _LEVEL))
        yield f"half of the {direction} by step {half}, 90% by step {most}"
        values = curve.smooth().values
        best = int(values.argmax())
        if float(values[best]) - _late(curve) > max(0.2 * abs(gain(curve)), _NOISE * _noise(curve)):
            yield f"the best was {number(float(values[best]))} at step {short(float(curve.steps[best]))}"
    for mark in run.resumes:
        changes = ", ".join(f"{key} {before} -> {after}" for key, (before, after) in mark.changes.items())
        with_changes = f" with {quoted(changes, _LONGEST)}" if changes else ""
        why = f" ({quoted(mark.rollback, _LONGEST)})" if mark.rollback else ""
        yield f"{mark.what} at step {short(mark.env_steps)}{with_changes}{why}"


def _problems(run: RunFacts) -> Answer:
    texts = [quoted(run.meta.message, _LONGEST)] if run.meta is not None and run.meta.message else []
    texts += [f"try: {quoted(run.meta.hint, _LONGEST)}"] if run.meta is not None and run.meta.hint else []
    if run.state in ("failed", "crashed"):
        texts.insert(0, f"the run {run.state}")
    health = run.health
    texts += [f"{_lower(found.title)} ({found.rule})" for found in _findings(run, "warning")]
    texts += [quoted(text, _LONGEST) for text in run.warnings]
    if texts:
        return Answer(WRONG, f"{_capital('; '.join(texts))}.", "bad")
    if run.state == "running" and not run.records:
        return Answer(WRONG, "It has no records yet.", "faint")
    if health is None:
        return Answer(WRONG, "Unknown: the rules of hmx doctor were not checked.", "warning")
    notes = "".join(f" {found.title}." for found in _findings(run, "note"))
    tone: Tone = "warning" if not health.updates else "plain" if notes else "good"
    return Answer(WRONG, health.verdict + notes, tone)


def _findings(run: RunFacts, severity: Severity) -> Sequence[Finding]:
    return [] if run.health is None else [found for found in run.health.findings if found.severity == severity]


def _next(run: RunFacts) -> Iterator[str]:
    """Yield what to do, the most useful first."""
    paths = RunPaths(run.path.parent, run.path.name)
    name = paths.argument
    if run.state in ("failed", "crashed", "interrupted"):
        yield f"continue it: hmx resume {name}" if run.restorable else paths.start_over
    yield from (_lower(found.remedy).rstrip(".") for found in _findings(run, "warning")[:1])
    if run.total_steps and any(found.rule == "still-rising" for found in _findings(run, "note")):
        yield f"train longer: hmx resume {name} --set run.total_steps={2 * run.total_steps}"
    if run.state == "finished" and not run.evaluation:
        yield f"compare it with random play: hmx evaluate {name} --policy random --policy sampled"
    if len(run.agents) == 1 and run.state == "finished":
        config = shlex.quote(str(run.path / "run.toml"))
        more = f"--seed {(run.agents[0].number or 0) + 1}, a run per seed" if run.simulated else "--seeds 3"
        yield f"more seeds: hmx train --config {config} {more}"
    if run.restorable:
        yield f"watch it: hmx watch {name}"


def _interval(value: float, low: float, high: float) -> str:
    return f"{number(value)} (all equal)" if low == high else f"{number(value)} [{number(low)}, {number(high)}]"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
