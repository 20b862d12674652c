"""What a score report comes to: gates that its numbers must pass, and one sentence that follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

LEAST_RELIABILITY = 0.5
MOST_NULL = 0.25  # of the median score
MOST_TIED = 0.95

_AGREE, _DIFFER = 0.7, 0.3  # rank correlations above and below which something is said to agree, or not


class Gate(NamedTuple):
    """A number that must be on one side of a limit; `passed` is None where it is not known."""

    name: str
    value: float | None
    limit: float
    passed: bool | None
    what: str  # what it means to fail


def gates(report: Mapping[str, Any]) -> list[Gate]:
    """The gates of `--strict`."""
    scores, noise, coverage = report["scores"], report["noise"], report["coverage"]
    reliability, median, null = noise["reliability"], scores["quantiles"]["p50"], noise["null"]
    share = null / median if median > 0.0 else (0.0 if null == 0.0 else None)
    return [
        Gate(
            "reliability", reliability, LEAST_RELIABILITY,
            None if reliability is None else reliability >= LEAST_RELIABILITY,
            "two halves of the rollouts rank the positions differently",
        ),
        Gate(
            "null", share, MOST_NULL, share is not None and share <= MOST_NULL,
            "the action taken is nearly as far from itself as from its alternatives",
        ),
        Gate(
            "ties", scores["tied_share"], MOST_TIED, scores["tied_share"] <= MOST_TIED,
            "nearly all scores tie, and so rank nothing",
        ),
        Gate(
            "coverage", coverage["after"], coverage["target"], coverage["after"] >= coverage["target"],
            "fewer transitions have a score than wanted",
        ),
    ]  # fmt: skip


def finding(report: Mapping[str, Any]) -> str:
    """One sentence."""
    return "; ".join(_findings(report)) + "."


def _findings(report: Mapping[str, Any]) -> Iterator[str]:
    scores = report["scores"]
    if scores["quantiles"]["p100"] == 0.0:
        yield "nothing that was tried in these positions makes any difference"
        return
    zero = f", and {scores['zero_share']:.0%} make no difference at all" if scores["zero_share"] else ""
    yield f"a tenth of the positions has {scores['top_tenth_share']:.0%} of all consequence{zero}"
    yield _agreement("TD errors rank", report["td"])
    yield _agreement(f"the {report['proxy']['kind']}, which needs no rollouts, ranks", report["proxy"])
    noise = report["noise"]
    if noise["reliability"] is not None:
        sure = "can" if noise["reliability"] >= LEAST_RELIABILITY else "cannot"
        yield f"the ranking {sure} be trusted (reliability {noise['reliability']:.2f})"
    median = scores["quantiles"]["p50"]
    if noise["null"] > MOST_NULL * median:
        yield (
            f"under other random numbers the action taken is {noise['null']:.2g} from itself, the median score is "
            f"{median:.2g}"
        )
    cut = report["rollouts"]["cut_share"]
    if cut > 0.05:
        yield f"{cut:.0%} of the rollouts were cut by the horizon"


def _agreement(who: str, found: Mapping[str, Any]) -> str:
    value = found["spearman"]
    if value is None:
        return f"{who} them not at all, as all are equal"
    how = "likewise" if value >= _AGREE else "otherwise" if value <= _DIFFER else "only somewhat alike"
    return f"{who} them {how} (Spearman {value:+.2f})"


def warnings(report: Mapping[str, Any]) -> list[str]:
    """What to know before believing a figure."""
    found = []
    noise, rollouts = report["noise"], report["rollouts"]
    if noise["reliability"] is None and report["options"]["rollouts"] < 2:
        found.append("one rollout per action says nothing about noise: take at least 2")
    if rollouts["cut_share"] > 0.05 and not report["options"]["bootstrap"]:
        found.append(
            f"{rollouts['cut_share']:.0%} of the rollouts were cut by the horizon, and what would have followed "
            "counts as nothing (--bootstrap, or a longer --horizon)"
        )
    if report["options"]["metric"] in ("tv", "js") and report["scores"]["tied_share"] > MOST_TIED:
        found.append(f"{report['options']['metric']} saturates where returns rarely tie: w1 does not")
    return found
