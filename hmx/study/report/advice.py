"""What to do next with a study."""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Iterator
from statistics import median

from hmx.config.fields import FIELDS
from hmx.errors import counted
from hmx.render.quantities import percent
from hmx.stats.importance import MIN_TRIALS
from hmx.study.records import Parameter
from hmx.study.report.findings import StudyFindings
from hmx.study.report.options import place
from hmx.study.space import text_of
from hmx.study.state import Advice

EDGE = 0.1  # share of a range, at either end
_BEST = 0.1  # share of the trials whose values are looked at, and at least `_LEAST`
_LEAST = 3
_MANY_FAILED = 0.2  # share of the trials
_CHEAPER = 0.8  # of the CPU time of the best
_FACTOR = 10.0  # by which a logarithmic range grows


def advice(findings: StudyFindings) -> Iterator[Advice]:
    """Yield what to do next, the most urgent first."""
    study, now = shlex.quote(findings.folder), findings.standing
    if now.choice is None:
        yield now.next
    if now.state in ("new", "failed"):
        return
    failed = sum(bool(trial.failed) for trial in findings.trials)
    if failed >= _MANY_FAILED * len(findings.trials):
        yield Advice(
            f"{failed:,} of {counted(len(findings.trials), 'trial')} failed; see why", f"hmx study status {study}"
        )
    yield from _edges(findings, study)
    if now.choice is not None:
        yield from _ranking(findings, study)
        yield from _cheaper(findings)
        yield now.next


def _edges(findings: StudyFindings, study: str) -> Iterator[Advice]:
    """Yield the options that matter and whose best values lie at an end of the range."""
    top = findings.ranked[: max(_LEAST, round(_BEST * len(findings.ranked)))]
    matter = {one.key for one in findings.importance if one.judgement == "matters"}
    for parameter in findings.settings.space:
        places = [at for trial in top if (at := place(parameter, trial.values[parameter.key])) is not None]
        if parameter.kind == "choice" or parameter.key not in matter or len(places) < _LEAST:
            continue
        middle = median(places)
        wider = _wider(parameter, up=middle > 0.5) if min(middle, 1 - middle) < EDGE else ""
        if wider:
            end = "high" if middle > 0.5 else "low"
            text = f"the best values of {parameter.key} lie at the {end} end of its range; widen it"
            more = f"--trials {findings.settings.trials} --space {shlex.quote(f'{parameter.key}={wider}')}"
            yield Advice(text, f"hmx study add {study} {more}")


def _wider(parameter: Parameter, up: bool) -> str:
    """Return the range with more room at one end, as `--space` takes it; empty if the option allows none."""
    if parameter.low is None or parameter.high is None:
        return ""
    field = FIELDS.get(parameter.key)
    least, most, above = (field.ge, field.le, field.gt) if field is not None else (None, None, None)
    low, high, width = parameter.low, parameter.high, parameter.high - parameter.low
    if up:
        high = min(high * _FACTOR if parameter.log else high + width, math.inf if most is None else most)
    else:
        low = max(low / _FACTOR if parameter.log else low - width, -math.inf if least is None else least)
    if (above is not None and low <= above) or (low, high) == (parameter.low, parameter.high):
        return ""
    return text_of(dataclasses.replace(parameter, low=_rounded(parameter, low), high=_rounded(parameter, high)))


def _rounded(parameter: Parameter, end: float) -> float:
    return round(end) if parameter.kind == "int" else float(f"{end:.3g}")


def _ranking(findings: StudyFindings, study: str) -> Iterator[Advice]:
    """Yield how to learn more about the options, if it is unknown whether any of them matters."""
    if any(one.judgement in ("matters", "matters little") for one in findings.importance) or findings.is_list:
        return
    text = f"{counted(len(findings.ranked), 'trial')} are too few to tell which options matter; run more"
    trials = max(findings.settings.trials, MIN_TRIALS)
    yield Advice(text, f"hmx study add {study} --trials {trials}")


def _cheaper(findings: StudyFindings) -> Iterator[Advice]:
    """Yield a cheaper finalist that cannot be distinguished from the best one."""
    best = findings.finalists[0]
    alike = [one for one in findings.finalists if one.name in findings.indistinct]
    cheapest = min([best, *alike], key=lambda one: one.cpu_seconds or math.inf)
    if best.cpu_seconds and cheapest.cpu_seconds and cheapest.cpu_seconds < _CHEAPER * best.cpu_seconds:
        share = percent(cheapest.cpu_seconds / best.cpu_seconds)
        text = f"{cheapest.name} cannot be distinguished from {best.name} and takes {share} of its CPU time"
        yield Advice(f"{text}; consider it instead", f"hmx runs show {shlex.quote(str(cheapest.folder))}")
