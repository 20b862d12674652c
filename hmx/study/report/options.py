"""The options of a study: where a value lies in its range, and how much each option matters."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import numpy as np

from hmx.records.plain import JsonValue
from hmx.stats.importance import MIN_TRIALS, Factor, Importance, importances
from hmx.study.records import Parameter
from hmx.study.report.findings import Judgement, OptionImportance, TrialFacts

LITTLE = 0.1  # share below which an option matters little
_SIGNIFICANT = 0.05


def importance(space: Sequence[Parameter], given: Sequence[TrialFacts], higher: bool) -> list[OptionImportance]:
    """Return the importance of each option, the largest share first.

    A trial that reached a higher rung counts as better than all that stopped before; a result without an objective,
    as of a run that diverged, is the worst of its rung. Trials without a result are left out.
    """
    trials = [trial for trial in given if trial.rungs]
    standings = [trial.standing(higher) for trial in trials]
    places = {standing: float(place) for place, standing in enumerate(sorted(set(standings)))}
    factors = [_factor([trial.values[one.key] for trial in trials]) for one in space]
    judged = importances(factors, np.array([places[standing] for standing in standings]))
    found = [_option(one.key, share, len(trials)) for one, share in zip(space, judged, strict=True)]
    return sorted(found, key=lambda one: -1.0 if one.share is None else one.share.value, reverse=True)


def number_of(value: JsonValue) -> float | None:
    """Return a value that is a number; None for any other."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def place(parameter: Parameter, value: JsonValue) -> float | None:
    """Return where a value lies: 0 at the low end of a range or the first choice, 1 at the other end.

    None for a value outside the choices; a value of an earlier, wider range may lie outside 0 to 1.
    """
    number = number_of(value)
    if parameter.kind == "choice":
        known = value in parameter.choices
        return parameter.choices.index(value) / max(len(parameter.choices) - 1, 1) if known else None
    if number is None or parameter.low is None or parameter.high is None or (parameter.log and number <= 0):
        return None
    scale = math.log if parameter.log else float
    low, high = scale(parameter.low), scale(parameter.high)
    return (scale(number) - low) / (high - low)


def _factor(values: Sequence[JsonValue]) -> Factor:
    numbers = [number_of(value) for value in values]
    if None not in numbers:
        return Factor(np.array(numbers, np.float64), ordered=True)
    texts = [json.dumps(value) for value in values]
    levels = {text: float(level) for level, text in enumerate(dict.fromkeys(texts))}
    return Factor(np.array([levels[text] for text in texts]), ordered=False)


def _option(key: str, found: Importance | None, trials: int) -> OptionImportance:
    judgement: Judgement = "cannot tell" if trials >= MIN_TRIALS else "too few trials"
    if found is None:
        return OptionImportance(key=key, share=None, p_value=None, judgement=judgement)
    if found.p_value <= _SIGNIFICANT:
        judgement = "matters"
    elif found.share.high is not None and found.share.high < LITTLE:
        judgement = "matters little"
    return OptionImportance(key=key, share=found.share, p_value=found.p_value, judgement=judgement)
