"""The first sentence about two sides, for the page, the terminal and `hmx study report`."""

from __future__ import annotations

from hmx.render.numbers import probability, signed_estimate
from hmx.render.quantities import number, percent
from hmx.reports.compare.findings import Pair


def conclusion(pair: Pair) -> str:
    """Return a sentence with both ends, the size of the difference and the faster side, and then the verdict."""
    verdict = f"{pair.verdict.text[:1].upper()}{pair.verdict.text[1:]}."
    if pair.verdict.outcome == "no verdict" or len(pair.ends) < 2:
        return f"{pair.verdict.text}."
    digits = next((n for n in range(3, 9) if number(pair.ends[0], n) != number(pair.ends[1], n)), 0)
    first, second = (number(end, digits or 3) for end in pair.ends)
    text = f"{pair.a} ends at {first} and {pair.b} at {second}" if digits else f"{pair.a} and {pair.b} end at {first}"
    if digits and pair.range is not None and pair.share is not None:
        share = abs(pair.share)
        size = "less than 0.1%" if share < 0.0005 else percent(share, int(share < 0.095))
        text += f", a difference of {size} of the range {pair.range.source}"
    return f"{text[:1].upper()}{text[1:]}{_sooner(pair)}. {verdict}"


def evidence(pair: Pair, word: str) -> str:
    """Return a sentence with the numbers of a verdict; empty without intervals, as with a single seed of a side."""
    if pair.improvement is None or pair.improvement.low is None or pair.verdict.outcome == "no verdict":
        return ""
    view = pair.turned() if pair.verdict.better == pair.b else pair
    difference = f"difference of IQMs {signed_estimate(view.difference)}"
    return f" P({view.a} {word}) = {probability(view.improvement)}, {difference}, p = {number(view.p_value, 2)}."


def _sooner(pair: Pair) -> str:
    if not pair.times:
        return ""
    level = number(pair.times[0].value)
    if not pair.sooner:
        return f", and neither is shown to reach {level} sooner"
    early, late = (pair.turned() if pair.sooner == pair.b else pair).times
    if early.steps is None or late.steps is None:
        seeds = f"in {early.reached} of {early.of} seeds against {late.reached} of {late.of}"
        return f", and {pair.sooner} reaches {level} sooner, {seeds}"
    return f", and {pair.sooner} reaches {level} sooner, after {early.steps:,.0f} steps against {late.steps:,.0f}"
