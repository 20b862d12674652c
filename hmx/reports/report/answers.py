"""The first questions of a reader about a run, each answered in one or two sentences."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from hmx.config.textfile import quoted
from hmx.jobs.evaluation import RANDOM, PolicyStats
from hmx.records.curves import RETURN
from hmx.records.paths import RunPaths
from hmx.render.blocks import Tone
from hmx.render.quantities import number, short
from hmx.reports.doctor.monitor import Finding
from hmx.reports.doctor.rule import Severity
from hmx.reports.report.findings import RunFacts, SeedCurves
from hmx.reports.report.read import mean_curve
from hmx.reports.summaries import composition, earned
from hmx.stats.intervals import Floats, Interval, mean_interval
from hmx.stats.smoothing import smoothed

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


@dataclass(frozen=True)
class Course:
    """The return over training, averaged over agents and smoothed."""

    steps: Floats
    values: Floats
    end: float  # mean of the last tenth
    noise: float  # standard deviation of what smoothing removed

    @property
    def gain(self) -> float:
        """The change from the start to the end."""
        return self.end - float(self.values[0])

    @property
    def changed(self) -> bool:
        """Whether the change is more than noise."""
        return abs(self.gain) > max(_NOISE * self.noise, 1e-6 * float(np.abs(self.values).max()))

    def reached(self, share: float) -> float:
        """Return the steps at which a share of the gain was first reached."""
        goal = self.values[0] + share * self.gain
        there = np.flatnonzero(self.values >= goal if self.gain > 0 else self.values <= goal)
        return float(self.steps[there[0]])


def course(seeds: Sequence[SeedCurves]) -> Course | None:
    """Return the course of the return; None for too few points."""
    curve = mean_curve(seeds, RETURN)
    if curve is None or len(curve.mean) < _FEWEST:
        return None
    steps, raw = np.array(curve.env_steps), np.array(curve.mean, np.float64)
    values = smoothed(steps, raw)
    late = raw[steps >= (1 - _END) * steps[-1]]
    return Course(steps, values, float(late.mean()), float(np.std(raw - values)))


def answers(run: RunFacts) -> tuple[Answer, ...]:
    """Answer what a reader asks first."""
    trained = [row for row in run.evaluation if row.policy != RANDOM]
    random = next((row for row in run.evaluation if row.policy == RANDOM), None)
    trend = course(run.curves)
    asked = (
        _learned(run, trained, random, trend),
        _certainty(run, trained, random),
        Answer("What is the return made of?", _made_of(run, trained, random)),
        Answer("What changed, and when?", _capital("; ".join(_changes(run, trend)))),
        _problems(run),
        Answer("What next?", _capital("; ".join(_next(run)))),
    )
    return tuple(answer for answer in asked if answer.text)


def _learned(run: RunFacts, trained: Sequence[PolicyStats], random: PolicyStats | None, trend: Course | None) -> Answer:
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
    if trend is None:
        return Answer(LEARNED, "Unknown: there is no evaluation, and the curve has too few points.", "warning")
    first, last = number(float(trend.values[0])), number(trend.end)
    ends_at = f"the mean return of the training episodes went from {first} to {last}; there is no evaluation."
    if not trend.changed:
        return Answer(LEARNED, f"Not shown: {ends_at}", "warning")
    return Answer(
        LEARNED, f"Yes: {ends_at}" if trend.gain > 0 else f"No: {ends_at}", "good" if trend.gain > 0 else "bad"
    )


def _mean_return(rows: Sequence[PolicyStats]) -> tuple[float, float, float]:
    """Return the mean of the agents between the ends of its interval: over seeds, or over episodes of one agent."""
    means = [row.return_mean for row in rows]
    mean = sum(means) / len(means)
    ends = mean_interval(means) if len(rows) > 1 else rows[0].return_interval
    return (mean, mean, mean) if ends is None else (ends.low, mean, ends.high)


def _certainty(run: RunFacts, trained: Sequence[PolicyStats], random: PolicyStats | None) -> Answer:
    question, seeds = "How sure is that?", len(run.curves)
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
    terms_of = _last_terms(run.curves)
    length = _last(run.curves, "train/mean_episode_length")
    if len(terms_of) < 2 or length is None:
        return ""
    per_episode = {name: value * length for name, value in terms_of.items()}
    return f"At the end of the training about {composition(per_episode)} per episode."


def _last_terms(seeds: Sequence[SeedCurves]) -> dict[str, float]:
    names = sorted({name for seed in seeds for name in seed.values if name.startswith("reward/")})
    values = {name.partition("/")[2]: _last(seeds, name) for name in names}
    return {name: value for name, value in values.items() if value is not None}


def _last(seeds: Sequence[SeedCurves], metric: str, end: float = _END) -> float | None:
    """Return the mean of a metric at the end of the training, over agents."""
    curve = mean_curve(seeds, metric)
    if curve is None:
        return None
    late = [
        value
        for x, value in zip(curve.env_steps, curve.mean, strict=True)
        if x >= (1 - end) * curve.env_steps[-1] and value is not None
    ]
    return math.fsum(late) / len(late) if late else None


def _changes(run: RunFacts, trend: Course | None) -> Iterator[str]:
    if trend is None:
        yield "too few points of the curve to tell" if run.curves else ""
    elif not trend.changed:
        yield f"the return stayed near {number(float(trend.values.mean()))}"
    else:
        direction = "gain" if trend.gain > 0 else "loss"
        half, most = short(trend.reached(0.5)), short(trend.reached(1 - 2 * _LEVEL))
        yield f"half of the {direction} by step {half}, 90% by step {most}"
        best = int(trend.values.argmax())
        lost = float(trend.values[best]) - trend.end
        if lost > max(0.2 * abs(trend.gain), _NOISE * trend.noise):
            yield f"the best was {number(float(trend.values[best]))} at step {short(float(trend.steps[best]))}"
    for mark in run.resumes:
        changes = ", ".join(f"{key} {before} -> {after}" for key, (before, after) in mark.changes.items())
        yield f"{mark.what} at step {short(mark.env_steps)}" + (f" with {quoted(changes, _LONGEST)}" if changes else "")


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
    if health is None:
        return Answer(WRONG, "Unknown: the rules of hmx doctor were not checked.", "warning")
    notes = "".join(f" {found.title}." for found in _findings(run, "note"))
    tone: Tone = "warning" if not health.updates else "plain" if notes else "good"
    return Answer(WRONG, health.verdict + notes, tone)


def _findings(run: RunFacts, severity: Severity) -> Sequence[Finding]:
    return [] if run.health is None else [found for found in run.health.findings if found.severity == severity]


def _next(run: RunFacts) -> Iterator[str]:
    """Yield what to do, the most useful first."""
    name = RunPaths(run.path.parent, run.path.name).argument
    if run.state in ("failed", "crashed", "interrupted"):
        yield f"continue it: hmx resume {name}"
    yield from (_lower(found.remedy).rstrip(".") for found in _findings(run, "warning")[:1])
    if run.total_steps and any(found.rule == "still-rising" for found in _findings(run, "note")):
        yield f"train longer: hmx resume {name} --set run.total_steps={2 * run.total_steps}"
    if run.state == "finished" and not run.evaluation:
        yield f"compare it with random play: hmx evaluate {name} --policy random --policy sampled"
    if len(run.curves) == 1 and run.state == "finished":
        config = shlex.quote(str(run.path / "run.toml"))
        more = f"--seed {(run.curves[0].seed or 0) + 1}, a run per seed" if run.simulated else "--seeds 3"
        yield f"more seeds: hmx train --config {config} {more}"
    yield f"watch it: hmx watch {name}"


def _interval(value: float, low: float, high: float) -> str:
    return f"{number(value)} (all equal)" if low == high else f"{number(value)} [{number(low)}, {number(high)}]"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
