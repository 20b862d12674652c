"""What a gradient report comes to, in words that follow from its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hmx.analysis.buckets import UNDEFINED, ZERO
from hmx.analysis.measures import TOTAL, Measures
from hmx.analysis.spec import GradReport, Replayed

CUT_SHARE = 0.05  # of episodes longer than the probe, above which their returns are not what the ranking means
OFF_POLICY = 1e-3  # |ratio - 1| that rounding does not explain
OPPOSED = -0.1  # cosine

_WORDS = {"task": "the policy loss", "entropy": "the entropy bonus", "kl": "the KL term", "value": "the value loss"}
_SHORT = {"td": "TD"}
_ZERO_NOTES = {
    "task": f"{ZERO} has a task gradient since the critic, not the group, is the baseline of the trainer's advantages",
    "td": f"{ZERO} has a gradient since returns that are all equal may still be predicted wrongly",
}
_WHY_UNDEFINED = {
    "consequence": "not having been scored",
    "return": "since the buffer does not hold the whole episode",
    "length": "since the buffer does not hold the whole episode",
    "reward_std": "since no two whole episodes in the buffer begin with that observation",
}


def finding(report: GradReport) -> str:
    """One sentence."""
    return "; ".join(_findings(report)) + "."


def _findings(report: GradReport) -> Iterator[str]:
    whole = report.measures.whole
    names = [name for name in report.coefs if whole.parts[name].norm > 0.0]
    if not names:
        yield "the gradient is zero"
        return
    if len(report.coefs) > 1:
        yield from _about_components(report, names)
    main = next(iter(report.coefs))
    word, noise = _SHORT.get(main, main), whole.parts[main].noise
    unit = f"groups of {report.spec.per_group} transitions" if report.replay else "groups"
    if noise.scale is not None:
        yield f"noise equals signal in the {word} gradient of {noise.scale:.3g} {unit}, and there are {noise.groups}"
    elif main in names:
        yield f"the {word} gradient cannot be told from noise by {noise.groups} {unit}"
    yield from _about_buckets(report)


def _about_components(report: GradReport, names: list[str]) -> Iterator[str]:
    whole = report.measures.whole
    largest = max(names, key=lambda name: whole.parts[name].share or 0.0)
    yield f"{_WORDS[largest]} is {whole.parts[largest].share or 0.0:.0%} of the update"
    # of all pairs the one that costs most, rather than two that hardly matter
    pairs = [
        ((whole.cos[a][b] or 0.0) * whole.parts[a].norm * whole.parts[b].norm, a, b) for a, b in combinations(names, 2)
    ]
    if pairs:
        _, a, b = min(pairs)
        cos = whole.cos[a][b] or 0.0
        yield f"{a} and {b} oppose, cosine {cos:+.2f}" if cos < OPPOSED else "no two components oppose"


def _about_buckets(report: GradReport) -> Iterator[str]:
    measures = report.measures if report.replay is None else report.replay.measures
    ranked = [b for b in measures.buckets if b.share is not None and len(measures.buckets) > 1]
    if not ranked:
        return
    top = max(ranked, key=lambda bucket: bucket.share or 0.0)
    share = f"{top.share or 0.0:.0%} of the update"
    if report.replay is None:
        yield f"{top.name} has {top.weight:.0%} of the steps and {share}"
    else:
        draws = report.replay.draws[top.name]
        yield f"{top.name} has {top.weight:.0%} of the transitions, {draws:.0%} of the draws and {share}"
    if len(report.coefs) == 1:
        yield from _opposed_buckets(report.measures, next(iter(report.coefs)))


def _opposed_buckets(measures: Measures, name: str) -> Iterator[str]:
    """Of all pairs the one that costs most."""
    pull = {b.name: b.weight * b.parts[name].norm for b in measures.buckets}
    pairs = [
        (cos * pull[a] * pull[b], cos, a, b) for a, b in combinations(pull, 2) if (cos := measures.cos[name][a][b])
    ]
    if pairs and (least := min(pairs))[1] < OPPOSED:
        yield f"{least[2]} and {least[3]} oppose, cosine {least[1]:+.2f}"


def warnings(report: GradReport) -> list[str]:
    """What to know before believing a figure."""
    return [*_about_groups(report), *_about_episodes(report)]


def notes(report: GradReport) -> list[str]:
    """How to read the table."""
    lines = []
    if report.spec.by == "reward_std" and report.crossfit is None:
        lines.append(
            "groups are ranked by the very returns that make their gradient, which lets norms rise with the rank "
            "where groups do not differ; --crossfit ranks by one half of a group and measures the other"
        )
    zero = [b for b in report.measures.buckets if b.name == ZERO]
    main = next(iter(report.coefs))
    if zero and report.replay is None and report.spec.advantage == "trainer" and zero[0].parts[main].norm > 0.0:
        lines.append(_ZERO_NOTES[main])
    if report.replay is not None:
        lines += _about_replay(report.replay)
    return lines


def _about_replay(replay: Replayed) -> Iterator[str]:
    if not replay.prioritised:
        yield "replay draws all transitions alike: draws are transitions, and both shares are the same"
    elif replay.td_rank is not None:
        yield (
            f"the TD errors that replay goes by, from when transitions were last drawn, agree with those of now at a "
            f"rank correlation of {replay.td_rank:+.2f}"
        )


def _about_groups(report: GradReport) -> Iterator[str]:
    spec, buckets = report.spec, report.measures.buckets
    counts = {bucket.name: len(bucket.groups) for bucket in buckets}
    yield from _about_special(report)
    ranked = [count for name, count in counts.items() if name not in (ZERO, UNDEFINED)]
    if len(ranked) < spec.buckets:
        yield f"{sum(ranked)} groups can be ranked: {len(ranked)} buckets instead of {spec.buckets}"
    small = [count for count in ranked if count < 8]
    if small:
        yield f"a bucket has {min(small)} groups: too few for a noise scale, which takes 8; 16 are better (--groups)"
    if report.one_start:
        yield "every group starts from the same observation: buckets differ by chance, not by where they start"


def _about_special(report: GradReport) -> Iterator[str]:
    """The buckets of what cannot be ranked, or was not to be."""
    spec, whole = report.spec, report.measures.whole
    special = {bucket.name: bucket for bucket in report.measures.buckets if bucket.name in (ZERO, UNDEFINED)}
    words = {ZERO: "have zero return variance", UNDEFINED: "have no variance that could be computed"}
    stored = {ZERO: f"have a {spec.by} of zero", UNDEFINED: f"have no {spec.by}, {_WHY_UNDEFINED.get(spec.by, '')}"}
    for name, bucket in special.items():
        if report.replay is None:
            yield f"{len(bucket.groups)} of {spec.groups} groups {words[name]}"
        else:
            yield f"{bucket.samples} of {whole.samples} transitions {stored[name]}"


def _about_episodes(report: GradReport) -> Iterator[str]:
    cut = float(report.cut.mean())
    if cut > CUT_SHARE:
        yield f"{cut:.1%} of the episodes are longer than the probe and counted as far as it saw them (--max-length)"
    if report.value_error is not None and (report.ratio_error or 0.0) > OFF_POLICY:
        yield (
            f"recomputed choices are not those that were played: ratio error {report.ratio_error:.2g}, values off by "
            f"{report.value_error:.2g}; equal values may have been told apart by rounding"
        )
    elif (report.ratio_error or 0.0) > OFF_POLICY:
        yield (
            f"recomputed log-probabilities are off: ratio error {report.ratio_error:.2g}, KL {report.approx_kl:.2g}, "
            f"{report.clip_frac:.1%} clipped; the norms are not those of an update's first step"
        )
    if report.measures.whole.parts[TOTAL].norm == 0.0:
        yield "the gradient of the whole batch is zero"
