"""What a gradient report comes to, in words that follow from its numbers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from hmx.analysis.buckets import UNDEFINED, ZERO
from hmx.analysis.measures import TOTAL
from hmx.analysis.report import GradReport

CUT_SHARE = 0.05  # of episodes longer than the probe, above which their returns are not what the ranking means
OFF_POLICY = 1e-3  # |ratio - 1| that rounding does not explain
OPPOSED = -0.1  # cosine

_WORDS = {"task": "the policy loss", "entropy": "the entropy bonus", "kl": "the KL term", "value": "the value loss"}


def finding(report: GradReport) -> str:
    """One sentence."""
    return "; ".join(_findings(report)) + "."


def _findings(report: GradReport) -> Iterator[str]:
    whole = report.measures.whole
    names = [name for name in report.coefs if whole.parts[name].norm > 0.0]
    if not names:
        yield "the gradient is zero"
        return
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
    noise = whole.parts["task"].noise
    if noise.scale is not None:
        yield f"noise equals signal in the task gradient of {noise.scale:.3g} groups, and there are {noise.groups}"
    elif "task" in names:
        yield f"the task gradient cannot be told from noise by {noise.groups} groups"
    ranked = [b for b in report.measures.buckets if b.share is not None and len(report.measures.buckets) > 1]
    if ranked:
        top = max(ranked, key=lambda bucket: bucket.share or 0.0)
        yield f"{top.name} has {top.weight:.0%} of the steps and {top.share or 0.0:.0%} of the update"


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
    if zero and report.spec.advantage == "trainer" and zero[0].parts["task"].norm > 0.0:
        lines.append(
            f"{ZERO} has a task gradient since the critic, not the group, is the baseline of the trainer's advantages"
        )
    return lines


def _about_groups(report: GradReport) -> Iterator[str]:
    spec, buckets = report.spec, report.measures.buckets
    counts = {bucket.name: len(bucket.groups) for bucket in buckets}
    if counts.get(ZERO):
        yield f"{counts[ZERO]} of {spec.groups} groups have zero return variance"
    if counts.get(UNDEFINED):
        yield f"{counts[UNDEFINED]} of {spec.groups} groups have no variance that could be computed"
    ranked = [count for name, count in counts.items() if name not in (ZERO, UNDEFINED)]
    if len(ranked) < spec.buckets:
        yield f"{sum(ranked)} groups can be ranked: {len(ranked)} buckets instead of {spec.buckets}"
    small = [count for count in ranked if count < 8]
    if small:
        yield f"a bucket has {min(small)} groups: too few for a noise scale, which takes 8; 16 are better (--groups)"
    if report.one_start:
        yield "every group starts from the same observation: buckets differ by chance, not by where they start"


def _about_episodes(report: GradReport) -> Iterator[str]:
    cut = float(report.cut.mean())
    if cut > CUT_SHARE:
        yield f"{cut:.1%} of the episodes are longer than the probe and counted as far as it saw them (--max-length)"
    if report.ratio_error > OFF_POLICY:
        yield (
            f"recomputed log-probabilities are off: ratio error {report.ratio_error:.2g}, KL {report.approx_kl:.2g}, "
            f"{report.clip_frac:.1%} clipped; the norms are not those of an update's first step"
        )
    if report.measures.whole.parts[TOTAL].norm == 0.0:
        yield "the gradient of the whole batch is zero"
