"""What the gradients of groups say about buckets: norms, shares, angles and noise.

Everything follows from sums over steps, in float64. With `S_bc` the sum of a component's weighted gradients over a
bucket's `T_b` steps, `g_bc = S_bc / T_b` is what an optimiser would see if the batch were that bucket, since losses
are means over steps. Weighted with `T_b / T` these add up to the gradient of the whole batch.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hmx.analysis.buckets import ALL, Bucket, Floats, split
from hmx.analysis.gradients import Layer

TOTAL = "total"
MIN_GROUPS = 8  # for an estimate of the noise scale: below, it is negative too often to be of use


class Sums(NamedTuple):
    """Unweighted losses and gradients, summed over the steps of each group."""

    losses: np.ndarray[Any, Any]  # [G, C]
    grads: np.ndarray[Any, Any]  # [G, C, P]
    steps: Floats  # [G]
    samples: Floats  # [G] episodes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Noise:
    """How noisy a mean over groups is (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), the unit being a group.

    What cannot be told from the groups there are is None, and `flag` says why.
    """

    signal: float | None  # estimated square of the true gradient's norm; unbiased, so it may come out negative
    trace: float | None  # trace of the covariance between groups
    scale: float | None  # groups at which noise and signal are equal: trace / signal
    snr: float | None  # groups x signal / trace
    theta: float | None  # sqrt(trace / (groups x norm^2)): the relative error of the norm test
    groups: int
    flag: str  # empty, or why scale and snr are None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Part:
    """One component (or the total) of one bucket; norms are of weighted gradients unless they are called raw."""

    norm: float  # of the mean over steps
    error: float | None  # standard error of `norm`, by leaving out one group at a time; None for a single group
    raw: float | None  # norm with coefficient 1; None for the total
    sum_norm: float
    per_sample: float  # norm of the sum over steps, by episodes
    loss: float  # weighted, mean over steps
    share: float | None  # of the bucket's total gradient; None where that is 0
    cos_all: float | None  # with the same component of the whole batch
    noise: Noise
    layers: Mapping[str, float]  # norms; their squares add up to norm^2


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measured:
    """A bucket's gradients."""

    name: str
    groups: tuple[int, ...]
    samples: int
    steps: int
    weight: float  # its share of all steps
    share: float | None  # of the whole batch's total gradient, by projection; over buckets these add up to 1
    parts: Mapping[str, Part]  # component or total
    cos: Mapping[str, Mapping[str, float | None]]  # between two components


@dataclasses.dataclass(frozen=True, kw_only=True)
class Measures:
    """All buckets, the whole batch, and the angles between buckets (`cos[component][bucket][bucket]`)."""

    buckets: tuple[Measured, ...]
    whole: Measured
    cos: Mapping[str, Mapping[str, Mapping[str, float | None]]]


def measure(sums: Sums, buckets: Sequence[Bucket], coefs: Mapping[str, float], layers: Sequence[Layer]) -> Measures:
    """Measures every bucket and the whole batch.

    All of it follows from inner products between components: those of a group with itself and with its bucket, and
    those of buckets with each other.

    Args:
        sums: unweighted, per group.
        buckets: a partition of the groups.
        coefs: the weight of each component in the loss, in the order of `sums`.
        layers: where the modules lie in a flat gradient.
    """
    whole = Bucket(ALL, tuple(range(len(sums.steps))))
    totals = {bucket.name: _unweighted(sums, bucket) for bucket in (*buckets, whole)}
    count = len(coefs)
    own = np.zeros((len(sums.steps), count, count))
    with_bucket, with_whole = np.zeros_like(own), np.zeros_like(own)
    left = tuple(set(whole.groups).difference(*(bucket.groups for bucket in buckets)))
    for bucket in (*buckets, Bucket("", left)):
        # in one product, which costs little more than either alone
        both = np.concatenate([totals.get(bucket.name, totals[ALL]), totals[ALL]])
        for g in bucket.groups:
            grads = sums.grads[g].astype(np.float64)
            own[g], dots = grads @ grads.T, grads @ both.T
            with_bucket[g], with_whole[g] = dots[:, :count], dots[:, count:]
    measured = [
        _measured(sums, bucket, coefs, layers, totals[bucket.name], totals[ALL], own, dots)
        for bucket, dots in [*((bucket, with_bucket) for bucket in buckets), (whole, with_whole)]
    ]
    return Measures(buckets=tuple(measured[:-1]), whole=measured[-1], cos=_between(buckets, coefs, totals))


def _between(
    buckets: Sequence[Bucket], coefs: Mapping[str, float], totals: Mapping[str, Floats]
) -> dict[str, dict[str, dict[str, float | None]]]:
    weights = _weights(coefs)
    names = [bucket.name for bucket in buckets]
    inner = {(a, b): _diagonal(weights, totals[a] @ totals[b].T) for a in names for b in names}
    return {
        component: {a: {b: _cos(inner[a, b][c], inner[a, a][c], inner[b, b][c]) for b in names} for a in names}
        for c, component in enumerate((*coefs, TOTAL))
    }


def clip_scale(measures: Measures, max_grad_norm: float) -> float:
    """What training would multiply the whole batch's gradient by; all norms here are from before that."""
    norm = measures.whole.parts[TOTAL].norm
    return min(1.0, max_grad_norm / norm) if max_grad_norm and norm else 1.0


def noise_of(steps: Floats, squares: Floats, bucket_square: float) -> Noise:
    """The noise of a bucket's mean gradient.

    Args:
        steps: of each group, `[n]`.
        squares: squared norm of each group's gradient sum, `[n]`.
        bucket_square: squared norm of the bucket's gradient sum.
    """
    n, total = len(steps), steps.sum()
    if n < 2 or not total:
        return Noise(signal=None, trace=None, scale=None, snr=None, theta=None, groups=n, flag="fewer than 2 groups")
    # groups scaled by n / T, so that their mean is the bucket's gradient
    mean_square = (squares * np.square(n / total)).mean()
    square = bucket_square / total**2
    signal = float((n * square - mean_square) / (n - 1))
    trace = float(max(mean_square - square, 0.0) * n / (n - 1))
    flag = f"fewer than {MIN_GROUPS} groups" if n < MIN_GROUPS else "" if signal > 0 else "no signal"
    return Noise(
        signal=signal,
        trace=trace,
        scale=None if flag else trace / signal,
        snr=None if flag or not trace else n * signal / trace,
        theta=float(np.sqrt(trace / (n * square))) if square else None,
        groups=n,
        flag=flag,
    )


def crossfit(
    halves: Sequence[Sums], scores: Floats, num_buckets: int, coefs: Mapping[str, float], own_zero: bool
) -> dict[str, dict[str, float]]:
    """Norms per bucket and component where groups are ranked by one half of their members and measured on the other.

    Ranking by the very rewards that make the gradient lets buckets differ where groups do not. Each half is ranked
    by once, and the norms of both turns are averaged.

    Args:
        halves: the sums of either half.
        scores: `[2, G]`, of either half.
        num_buckets: as for `split`.
        coefs: as for `measure`.
        own_zero: as for `split`.
    """
    found: dict[str, list[Floats]] = {}
    for turn, sums in enumerate(halves):
        for bucket in split(scores[1 - turn], num_buckets, own_zero):
            steps = sums.steps[list(bucket.groups)].sum()
            total = _unweighted(sums, bucket)
            norms = _root(_diagonal(_weights(coefs), total @ total.T)) / max(steps, 1.0)
            found.setdefault(bucket.name, []).append(norms)
    names = (*coefs, TOTAL)
    return {
        bucket: dict(zip(names, map(float, np.mean(norms, axis=0)), strict=True)) for bucket, norms in found.items()
    }


def _weights(coefs: Mapping[str, float]) -> Floats:
    """`[C + 1, C]`: from unweighted components to weighted ones and their total."""
    values = np.array(list(coefs.values()), np.float64)
    return np.concatenate([np.diag(values), values[None]])


def _unweighted(sums: Sums, bucket: Bucket) -> Floats:
    is_whole = len(bucket.groups) == len(sums.steps)
    total: Floats = (sums.grads if is_whole else sums.grads[list(bucket.groups)]).sum(0, dtype=np.float64)
    return total


def _measured(
    sums: Sums,
    bucket: Bucket,
    coefs: Mapping[str, float],
    layers: Sequence[Layer],
    total: Floats,
    whole: Floats,
    own: Floats,
    dots: Floats,
) -> Measured:
    """One bucket.

    Args:
        sums: unweighted, per group.
        bucket: which groups.
        coefs: as for `measure`.
        layers: as for `measure`.
        total: unweighted gradient sums of the bucket, `[C, P]`.
        whole: those of the whole batch.
        own: inner products between the components of each group, `[G, C, C]`.
        dots: those of each group with its bucket.
    """
    ids, names, weights = list(bucket.groups), (*coefs, TOTAL), _weights(coefs)
    steps, samples = sums.steps[ids], int(sums.samples[ids].sum())
    count = max(float(steps.sum()), 1.0)
    inner = weights @ (total @ total.T) @ weights.T
    across, outer = weights @ (total @ whole.T) @ weights.T, weights @ (whole @ whole.T) @ weights.T
    squares, dots = _diagonal(weights, own[ids]), _diagonal(weights, dots[ids])
    norms = _root(np.diagonal(inner))
    losses = weights @ sums.losses[ids].sum(0, dtype=np.float64) / count
    raw = np.sqrt(np.square(total).sum(-1)) / count
    by_layer = {layer.name: _layer_norms(weights, total, layer) / count for layer in layers}

    def part(c: int, name: str) -> Part:
        return Part(
            norm=float(norms[c]) / count,
            error=_jackknife(steps, squares[:, c], dots[:, c], norms[c] ** 2),
            raw=None if name == TOTAL else float(raw[c]),
            sum_norm=float(norms[c]),
            per_sample=float(norms[c]) / max(samples, 1),
            loss=float(losses[c]),
            share=_ratio(inner[c, -1], inner[-1, -1]),
            cos_all=_cos(across[c, c], inner[c, c], outer[c, c]),
            noise=noise_of(steps, squares[:, c], norms[c] ** 2),
            layers={layer: float(found[c]) for layer, found in by_layer.items()},
        )

    return Measured(
        name=bucket.name,
        groups=bucket.groups,
        samples=samples,
        steps=int(steps.sum()),
        weight=float(steps.sum() / max(sums.steps.sum(), 1.0)),
        # the sums carry the weights of the buckets already
        share=_ratio(across[-1, -1], outer[-1, -1]),
        parts={name: part(c, name) for c, name in enumerate(names)},
        cos=_between_components(names, inner),
    )


def _between_components(names: Sequence[str], inner: Floats) -> dict[str, dict[str, float | None]]:
    return {
        a: {b: _cos(inner[i, j], inner[i, i], inner[j, j]) for j, b in enumerate(names) if b != a}
        for i, a in enumerate(names)
    }


def _jackknife(steps: Floats, squares: Floats, dots: Floats, bucket_square: float) -> float | None:
    """The jackknife's standard error of a norm (Efron & Tibshirani 1993, chapter 11).

    Leaving out group i leaves `|S - S_i|^2 = |S|^2 - 2 <S_i, S> + |S_i|^2`. It says how much the norm would vary with
    other groups, not how much of it is noise: for that see `Noise`.
    """
    n = len(steps)
    left = steps.sum() - steps
    if n < 2 or not left.all():
        return None
    without = np.sqrt(np.maximum(bucket_square - 2.0 * dots + squares, 0.0)) / left
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))


def _diagonal(weights: Floats, products: Floats) -> Floats:
    """Weighted components and their total: from inner products `[..., C, C]` to `[..., C + 1]`."""
    found: Floats = np.einsum("kc,...cd,kd->...k", weights, products, weights)
    return found


def _layer_norms(weights: Floats, total: Floats, layer: Layer) -> Floats:
    return _root(sum(_diagonal(weights, total[:, a:b] @ total[:, a:b].T) for a, b in layer.parts))


def _root(squares: Any) -> Floats:
    """The root of sums of squares that rounding may have left just below 0."""
    found: Floats = np.sqrt(np.maximum(squares, 0.0))
    return found


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b > 0 else None


def _cos(product: float, square: float, other: float) -> float | None:
    return float(product / np.sqrt(square * other)) if square > 0 and other > 0 else None
