"""The findings of `hmx grad-report`: a report per checkpoint, norms relative to another, verdict and warnings."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from hmx.algos.gradients.buckets import UNDEFINED, ZERO
from hmx.algos.gradients.measures import MIN_GROUPS, TOTAL, Cosines
from hmx.algos.gradients.results import BucketReport, GradReport
from hmx.config.textfile import read_text
from hmx.errors import ExitCode, HmxError, counted
from hmx.render.quantities import number, percent, signed
from hmx.reports.grad_report.request import GradReportRequest

SCHEMA = 2
_MAX_SAVED = 32 << 20  # bytes of a report in JSON: each of a hundred checkpoints has about 100 kB

Norms = Mapping[str, Mapping[str, float]]  # bucket -> component -> norm


@dataclass(frozen=True, kw_only=True)
class CheckpointReport(GradReport):
    """The report of one checkpoint."""

    update: int
    env_steps: int
    hash_before: str  # SHA-256 over all arrays of the state
    hash_after: str
    verdict: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class NormRatios:
    """Norms of the newest report divided by those of another one."""

    other: str
    norm_ratio: Mapping[str, Mapping[str, float | None]]  # bucket -> component -> ratio


@dataclass(frozen=True, kw_only=True)
class GradFindings:
    """The complete output of `hmx grad-report`."""

    schema: int = SCHEMA
    path: Path
    env: str
    seed: int  # of the probe
    request: GradReportRequest
    reports: tuple[CheckpointReport, ...]  # oldest first
    compare: NormRatios | None
    warnings: tuple[str, ...]


def norms(report: GradReport) -> Norms:
    """Return the norms of a report."""
    return {
        bucket.name: {name: component.norm for name, component in bucket.components.items()}
        for bucket in (*report.buckets, report.whole)
    }


def norm_ratios(one: Norms, other: Norms, name: str) -> NormRatios:
    """Divide the norms of one report by those of another, in buckets that both have."""
    ratios = {
        bucket: {c: norm / other[bucket][c] if other[bucket].get(c) else None for c, norm in row.items()}
        for bucket, row in one.items()
        if bucket in other
    }
    return NormRatios(other=name, norm_ratio=ratios)


def read_norms(path: Path) -> Norms:
    """Read the norms of the newest report from a file that `hmx grad-report --json` printed, of any schema."""
    hint = "give a run, a checkpoint, or a file that `hmx grad-report --json` printed"
    try:
        data = json.loads(read_text(path, _MAX_SAVED))
        if data["schema"] > SCHEMA:
            raise HmxError(f"{path} was written by a newer hmx", "upgrade hmx", ExitCode.ARTEFACT)
        report, is_first = data["reports"][-1], data["schema"] == 1
        rows = (*report["buckets"], report["all" if is_first else "whole"])
        return {
            str(row["name"]): _finite(
                row["norm"] if is_first else {name: part["norm"] for name, part in row["components"].items()}
            )
            for row in rows
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise HmxError(f"{path} is not a gradient report", hint, ExitCode.ARTEFACT) from None


def _finite(row: Mapping[str, float | None]) -> dict[str, float]:
    """Return the norms of one bucket in a file of unknown origin."""
    found = {str(name): float(norm) for name, norm in row.items() if norm is not None}
    if not found or not all(0.0 <= norm < math.inf for norm in found.values()):
        raise ValueError("norms are finite and not negative")
    return found


TRUNCATED_SHARE = 0.05  # of episodes longer than the probe, above which the ranking by their returns is doubtful
OFF_POLICY = 1e-3  # |ratio - 1| that rounding does not explain
OPPOSED = -0.1  # cosine

NAMES = {
    "task": "the policy loss",
    "entropy": "the entropy bonus",
    "kl": "the KL term",
    "value": "the value loss",
    "td": "the TD loss",
}
_ZERO_NOTES = {
    "task": "bucket zero has a task gradient because the baseline of the trainer is the critic, not the group",
    "td": "bucket zero has a gradient because returns that are all equal can still be predicted wrongly",
}
_WHY_UNDEFINED = {
    "consequence": "they have not been scored",
    "return": "the buffer does not hold the whole episode",
    "reward_std": "no two whole episodes in the buffer start from that observation",
}


def verdict(report: GradReport) -> str:
    """Return the result in a few sentences."""
    return " ".join(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in _verdict(report))


def _verdict(report: GradReport) -> Iterator[str]:
    whole, main = report.whole, next(iter(report.coefs))
    names = [name for name in report.coefs if whole.components[name].norm > 0.0]
    if not names:
        yield "the gradient is zero"
        return
    if len(report.coefs) > 1:
        yield from _components(report, names)
    noise = whole.components[main].noise
    unit = f"groups of {report.request.per_group} transitions" if report.replay else "groups"
    if noise.scale is not None:
        scale = f"noise equals signal at {number(noise.scale)} {unit}"
        yield f"in the gradient of {NAMES[main]}, {scale}; this report has {noise.groups}"
    elif main in names:
        yield f"the gradient of {NAMES[main]} cannot be told from noise with {noise.groups} {unit}"
    yield from _buckets(report)


def _components(report: GradReport, names: list[str]) -> Iterator[str]:
    parts = report.whole.components
    largest = max(names, key=lambda name: parts[name].share or 0.0)
    yield f"{NAMES[largest]} makes up {percent(parts[largest].share)} of the update"
    # The pair that costs most, which is not always the one with the lowest cosine.
    pull = {name: parts[name].norm for name in names}
    pair = _opposed(report.whole.cos, pull)
    if pair is not None:
        yield f"the gradients of {pair[0]} and {pair[1]} oppose each other (cosine {signed(pair[2])})"
    elif len(names) > 1:
        yield "no two components oppose each other"


def _buckets(report: GradReport) -> Iterator[str]:
    def share(bucket: BucketReport) -> float:
        return (bucket.share if bucket.draws is None else bucket.replayed_share) or 0.0

    if len(report.buckets) > 1 and any(share(bucket) for bucket in report.buckets):
        top = max(report.buckets, key=share)
        if top.draws is None:
            yield f"{_name(top.name)} has {percent(top.weight)} of the steps and {percent(share(top))} of the update"
        else:
            shares = f"{percent(top.draws)} of the draws and {percent(share(top))} of the update"
            yield f"{_name(top.name)} has {percent(top.weight)} of the transitions, {shares}"
    if len(report.coefs) == 1:
        main = next(iter(report.coefs))
        pull = {bucket.name: bucket.weight * bucket.components[main].norm for bucket in report.buckets}
        if pair := _opposed(report.cos[main], pull):
            yield f"{_name(pair[0])} and {_name(pair[1])} oppose each other (cosine {signed(pair[2])})"


def _name(bucket: str) -> str:
    return bucket.replace("_", " ")


def _opposed(cos: Cosines, pull: Mapping[str, float]) -> tuple[str, str, float] | None:
    """Return the pair whose opposition costs most, and its cosine; None if that is not below `OPPOSED`."""
    pairs = [(cosine * pull[a] * pull[b], a, b, cosine) for a, b in combinations(pull, 2) if (cosine := cos[a][b])]
    _, a, b, cosine = min(pairs, default=(0.0, "", "", 0.0))
    return (a, b, cosine) if cosine < OPPOSED else None


def warnings(report: GradReport) -> tuple[str, ...]:
    """Return the limits of the values."""
    return (*_special_buckets(report), *_about_groups(report), *_about_episodes(report))


def notes(report: GradReport) -> tuple[str, ...]:
    """Return notes that help to read the tables."""
    return tuple(_notes(report))


def _notes(report: GradReport) -> Iterator[str]:
    request, replay, main = report.request, report.replay, next(iter(report.coefs))
    if main == "task" and "kl" not in report.coefs:
        yield "no KL term: the run has no reference policy (ppo.ref), and --reference names none"
    if report.rank == "reward_std" and not request.crossfit:
        yield (
            "groups are ranked by the same returns that make their gradient, so norms can rise with the rank even if "
            "groups do not differ; --crossfit ranks by one half of each group and measures the other"
        )
    zero = [bucket for bucket in report.buckets if bucket.name == ZERO]
    if zero and replay is None and request.advantage == "trainer" and zero[0].components[main].norm > 0.0:
        yield _ZERO_NOTES[main]
    if request.crossfit:
        yield "cross-fitted norms use half of the episodes, which raises them: compare their slopes, not their levels"
    if replay is not None and not replay.prioritised:
        yield "replay draws all transitions equally often, so both shares are the same"
    elif replay is not None and report.consistency.td_rank is not None:
        yield (
            "the TD errors that replay uses, stored when a transition was last drawn, have a rank correlation of "
            f"{signed(report.consistency.td_rank)} with the current ones"
        )


def _special_buckets(report: GradReport) -> Iterator[str]:
    """Yield the share that could not be ranked, or was deliberately not ranked."""
    special = {bucket.name: bucket for bucket in report.buckets if bucket.name in (ZERO, UNDEFINED)}
    groups = {ZERO: "have returns without variance", UNDEFINED: "have no variance that could be computed"}
    stored = {
        ZERO: f"have a {report.rank} of zero",
        UNDEFINED: f"have no {report.rank}: {_WHY_UNDEFINED.get(report.rank, 'it is not known')}",
    }
    for name, bucket in special.items():
        if report.replay is None:
            yield f"{len(bucket.groups)} of {report.request.groups} groups {groups[name]}"
        else:
            yield f"{bucket.samples} of {report.whole.samples} transitions {stored[name]}"


def _about_groups(report: GradReport) -> Iterator[str]:
    ranked = [len(bucket.groups) for bucket in report.buckets if bucket.name not in (ZERO, UNDEFINED)]
    if len(ranked) < report.request.buckets:
        buckets = f"{counted(len(ranked), 'bucket')} instead of {report.request.buckets}"
        yield f"only {counted(sum(ranked), 'group')} can be ranked: {buckets}"
    if ranked and min(ranked) < MIN_GROUPS:
        yield (
            f"a bucket has {counted(min(ranked), 'group')}, too few for a noise scale, which needs {MIN_GROUPS}; "
            "16 are better (--groups)"
        )
    if report.episodes is not None and report.episodes.one_start:
        yield "all groups start from the same observation, so differences between buckets are random"


def _about_episodes(report: GradReport) -> Iterator[str]:
    checked, truncated = report.consistency, report.whole.truncated_frac or 0.0
    if truncated > TRUNCATED_SHARE:
        yield f"{percent(truncated, 1)} of the episodes are longer than the probe and are truncated (--max-length)"
    if (checked.ratio_error or 0.0) > OFF_POLICY:
        if checked.value_error is not None:
            yield (
                f"recomputed actions differ from those that were played: ratio error {number(checked.ratio_error)}, "
                f"value error {number(checked.value_error)}; rounding may have decided between equal values"
            )
        else:
            yield (
                f"recomputed log-probabilities differ: ratio error {number(checked.ratio_error)}, KL "
                f"{number(checked.approx_kl)}, {percent(checked.clip_frac, 1)} clipped; the norms are not those of the "
                "first gradient step"
            )
    if report.whole.components[TOTAL].norm == 0.0:
        yield "the gradient of the whole batch is zero"
