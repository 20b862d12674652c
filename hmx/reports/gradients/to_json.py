"""A gradient report as plain values with stable keys, and two of them side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from hmx.analysis.buckets import UNDEFINED, ZERO
from hmx.analysis.measures import TOTAL, Measured, Part
from hmx.analysis.spec import GradReport
from hmx.records.jsonl import finite
from hmx.stats.intervals import Interval, t_quantile

_LEVEL = 0.975  # of the t distribution, for an interval of 95 %
_LOSS_NAMES = {"task": "policy"}


def interval(part: Part) -> Interval | None:
    """The 95 % interval of a norm; None where there is a single group."""
    if part.error is None:
        return None
    half = t_quantile(_LEVEL, part.noise.groups - 1) * part.error
    return Interval(max(part.norm - half, 0.0), part.norm + half)


def to_json(report: GradReport) -> dict[str, Any]:
    """One report; what is not finite or not known is None."""
    measures = report.measures
    ranked = [b for b in measures.buckets if b.name not in (ZERO, UNDEFINED)]
    names = {group: bucket.name for bucket in measures.buckets for group in bucket.groups}
    body = {
        "spec": dataclasses.asdict(report.spec) | {"buckets_effective": len(ranked)},
        "coefs": dict(report.coefs),
        "clip_scale": report.clip_scale,
        "one_start": report.one_start,
        "algo": report.algo,
        "source": {"kind": kind(report), "transitions": report.stored, "epsilon": report.epsilon},
        "consistency": {
            "ratio_error": report.ratio_error,
            "approx_kl": report.approx_kl,
            "clip_frac": report.clip_frac,
            "value_error": report.value_error,
            "td_rank": None if report.replay is None else report.replay.td_rank,
        },
        "is_beta": None if report.replay is None else report.replay.beta,
        "buckets": [_bucket(report, bucket) for bucket in measures.buckets],
        "all": _bucket(report, measures.whole),
        "cos": {name: {a: dict(row) for a, row in rows.items()} for name, rows in measures.cos.items()},
        "groups": [
            {
                "id": g,
                "bucket": names[g],
                "score": report.score[g],
                "reward_std": report.reward_std[g],
                "rv_action": None if report.rv_action is None else report.rv_action[g],
                "returns": list(report.returns[g]),
                "lengths": list(report.lengths[g]),
                "truncated": int(report.cut[g].sum()),
                "slots": None if report.replay is None else list(report.replay.slots[g]),
            }
            for g in range(len(report.score))
        ],
    }
    plain: dict[str, Any] = finite(body)
    return plain


def kind(report: GradReport) -> str:
    """What the groups are: episodes from fresh `starts` or from states of a `buffer`, or transitions: `replay`."""
    return "replay" if report.replay is not None else "starts" if report.stored is None else "buffer"


def _range(values: Any) -> dict[str, float | None]:
    """Mean, lowest and highest of what is known."""
    known = values[np.isfinite(values)]
    reduces = (("mean", np.mean), ("min", np.min), ("max", np.max))
    return {how: float(reduce(known)) if len(known) else None for how, reduce in reduces}


def _replayed(report: GradReport, bucket: Measured) -> dict[str, Any] | None:
    """A bucket as replay draws and weighs it."""
    replay = report.replay
    if replay is None:
        return None
    measures = replay.measures
    found = next(other for other in (*measures.buckets, measures.whole) if other.name == bucket.name)
    ids = list(bucket.groups)
    counts = [len(replay.slots[g]) for g in ids]
    return {
        "draws": replay.draws.get(bucket.name, 1.0),
        "share": found.share,
        "norm": {name: part.norm for name, part in found.parts.items()},
        "td_error": float(np.average(replay.td_error[ids], weights=counts)),
    }


def _bucket(report: GradReport, bucket: Measured) -> dict[str, Any]:
    ids, parts = list(bucket.groups), bucket.parts
    crossed = None if report.crossfit is None else report.crossfit.get(bucket.name)
    raw = {name: part.raw for name, part in parts.items() if name != TOTAL}
    return {
        "name": bucket.name,
        "group_ids": ids,
        "n_groups": len(ids),
        "n_samples": bucket.samples,
        "n_tokens": bucket.steps,
        "weight": bucket.weight,
        "share": bucket.share,
        "score": _range(report.score[ids]),
        "reward_std": _range(report.reward_std[ids]),
        "rv_action": None if report.rv_action is None else float(report.rv_action[ids].mean()),
        "return_mean": float(report.returns[ids].mean()),
        "truncated_frac": None if report.replay is not None else float(report.cut[ids].mean()),
        "norm": {name: part.norm for name, part in parts.items()},
        "interval": {name: interval(part) for name, part in parts.items()},
        "raw": raw,
        "sum_norm": {name: part.sum_norm for name, part in parts.items()},
        "per_sample": {name: part.per_sample for name, part in parts.items()},
        "per_token": {name: part.norm for name, part in parts.items()},
        "loss": {_LOSS_NAMES.get(name, name): part.loss for name, part in parts.items()},
        "component_share": {name: part.share for name, part in parts.items() if name != TOTAL},
        "cos_all": {name: part.cos_all for name, part in parts.items()},
        "cos": {name: dict(row) for name, row in bucket.cos.items()},
        "gns": {name: dataclasses.asdict(part.noise) for name, part in parts.items()},
        "layers": {layer: {name: part.layers[layer] for name, part in parts.items()} for layer in parts[TOTAL].layers},
        "crossfit": crossed,
        "replay": _replayed(report, bucket),
    }


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Bucket -> component -> norm of the first report by that of the second, for buckets that both have."""
    rows = {bucket["name"]: bucket for bucket in (*other["buckets"], other["all"])}
    return {
        bucket["name"]: {
            name: norm / rows[bucket["name"]]["norm"][name] if rows[bucket["name"]]["norm"].get(name) else None
            for name, norm in bucket["norm"].items()
        }
        for bucket in (*one["buckets"], one["all"])
        if bucket["name"] in rows
    }
