"""Norms, shares, angles and noise of the gradients of buckets.

Everything follows from sums over steps, in float64. With `S_bc` the sum of a component's weighted gradients over a
bucket's `T_b` steps, `g_bc = S_bc / T_b` is the gradient the optimiser would get from a batch of that bucket alone,
since losses are means over steps. Weighted with `T_b / T` these add up to the gradient of the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from hmx.algos.gradients.buckets import ALL, Bucket, Floats, Host, split
from hmx.algos.gradients.per_group import Layer
from hmx.stats.intervals import Interval, t_quantile

TOTAL = "total"
MIN_GROUPS = 8  # for a noise scale: with fewer groups its estimate is negative too often to be useful

Cosines = Mapping[str, Mapping[str, float | None]]


class Sums(NamedTuple):
    """Unweighted losses and gradients, summed over the steps of each group."""

    losses: Host  # [G, C]
    grads: Host  # [G, C, P]
    steps: Floats  # [G]
    samples: Floats  # [G] episodes


@dataclass(frozen=True, kw_only=True)
class GradientNoise:
    """Gradient noise between groups (McCandlish et al. 2018, arXiv:1812.06162, appendix A.1), in units of groups.

    Values that cannot be estimated from the given groups are None, and `flag` gives the reason.
    """

    groups: int
    flag: str  # empty, or why scale and snr are None
    signal: float | None = None  # unbiased estimate of the squared norm of the true gradient, so it can be negative
    trace: float | None = None  # trace of the covariance between groups
    scale: float | None = None  # number of groups at which noise equals signal: trace / signal
    snr: float | None = None  # groups x signal / trace
    theta: float | None = None  # sqrt(trace / (groups x norm^2)): the relative error of the norm test


@dataclass(frozen=True, kw_only=True)
class Component:
    """One component (or the total) of one bucket; norms are of weighted gradients, except `raw`."""

    norm: float  # of the mean over steps
    error: float | None  # jackknife standard error of `norm` over groups; None for a single group
    interval: Interval | None  # 95 % confidence interval of `norm`, by Student's t
    raw: float | None  # norm with coefficient 1; None for the total
    sum_norm: float
    per_sample: float  # norm of the sum over steps, divided by the number of episodes
    loss: float  # weighted, mean over steps
    share: float | None  # of the bucket's total gradient; None if that is 0
    cos_all: float | None  # with the same component of the whole batch
    noise: GradientNoise
    layers: Mapping[str, float]  # norms; their squares add up to norm^2


@dataclass(frozen=True, kw_only=True)
class BucketGradients:
    """The gradients of one bucket."""

    name: str
    groups: tuple[int, ...]
    samples: int
    steps: int
    weight: float  # share of all steps
    share: float | None  # projection on the whole batch's total gradient, divided by its norm; these add up to 1
    components: Mapping[str, Component]  # by name, and the total
    cos: Cosines  # between two components


@dataclass(frozen=True, kw_only=True)
class Measures:
    """All buckets, the whole batch, and the cosines between buckets (`cos[component][bucket][bucket]`)."""

    buckets: tuple[BucketGradients, ...]
    whole: BucketGradients
    cos: Mapping[str, Cosines]


def measure(sums: Sums, buckets: Sequence[Bucket], coefs: Mapping[str, float], layers: Sequence[Layer]) -> Measures:
    """Measure every bucket and the whole batch.

    Everything is computed from inner products between components: of each group with itself and with its bucket, and of
    buckets with each other. `coefs` are the weights in the loss, in the order of `sums`.
    """
    whole = Bucket(ALL, tuple(range(len(sums.steps))))
    totals = {bucket.name: _unweighted(sums, bucket) for bucket in (*buckets, whole)}
    *parts, all_groups = (
        _measured(sums, bucket, coefs, layers, totals[bucket.name], totals[ALL]) for bucket in (*buckets, whole)
    )
    return Measures(buckets=tuple(parts), whole=all_groups, cos=_between(buckets, coefs, totals))


def _between(buckets: Sequence[Bucket], coefs: Mapping[str, float], totals: Mapping[str, Floats]) -> dict[str, Cosines]:
    weights = _weights(coefs)
    names = [bucket.name for bucket in buckets]
    inner = {(a, b): _diagonal(weights, totals[a] @ totals[b].T) for a in names for b in names}
    return {
        component: {a: {b: _cos(inner[a, b][c], inner[a, a][c], inner[b, b][c]) for b in names} for a in names}
        for c, component in enumerate((*coefs, TOTAL))
    }


def clip_scale(measures: Measures, max_grad_norm: float) -> float:
    """Return the factor by which training would clip the whole batch's gradient; the norms here are not clipped."""
    norm = measures.whole.components[TOTAL].norm
    return min(1.0, max_grad_norm / norm) if max_grad_norm and norm else 1.0


def noise_of(steps: Float[Floats, " n"], squares: Float[Floats, " n"], bucket_square: float) -> GradientNoise:
    """Estimate the noise of a bucket's mean gradient from the squared norms of the gradient sums of its groups."""
    n, total = len(steps), steps.sum()
    if n < 2 or not total:
        return GradientNoise(groups=n, flag="fewer than 2 groups")
    # groups scaled by n / T, so that their mean is the bucket's gradient
    mean_square = (squares * np.square(n / total)).mean()
    square = bucket_square / total**2
    signal = float((n * square - mean_square) / (n - 1))
    trace = float(max(mean_square - square, 0.0) * n / (n - 1))
    flag = f"fewer than {MIN_GROUPS} groups" if n < MIN_GROUPS else "" if signal > 0 else "no signal"
    return GradientNoise(
        signal=signal,
        trace=trace,
        scale=None if flag else trace / signal,
        snr=None if flag or not trace else n * signal / trace,
        theta=float(np.sqrt(trace / (n * square))) if square else None,
        groups=n,
        flag=flag,
    )


def crossfit(
    halves: Sequence[Sums], scores: Float[Floats, "2 G"], num_buckets: int, coefs: Mapping[str, float], own_zero: bool
) -> dict[str, dict[str, float]]:
    """Return norms per bucket and component where one half of each group ranks it and the other half is measured.

    Ranking by the rewards of the gradient makes buckets differ even if groups do not. Each half ranks
    once, and both norms are averaged. They are norms over half of the episodes, so they contain more noise. `scores`
    `[2, G]` are those of each half.
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
    """Return the matrix `[C + 1, C]` from unweighted components to weighted ones and their total."""
    values = np.array(list(coefs.values()), np.float64)
    return np.concatenate([np.diag(values), values[None]])


def _unweighted(sums: Sums, bucket: Bucket) -> Floats:
    is_whole = len(bucket.groups) == len(sums.steps)
    total: Floats = (sums.grads if is_whole else sums.grads[list(bucket.groups)]).sum(0, dtype=np.float64)
    return total


def _measured(
    sums: Sums, bucket: Bucket, coefs: Mapping[str, float], layers: Sequence[Layer], total: Floats, whole: Floats
) -> BucketGradients:
    """Measure one bucket; `total` and `whole` are unweighted gradient sums `[C, P]` of it and of the whole batch."""
    ids, names, weights = list(bucket.groups), (*coefs, TOTAL), _weights(coefs)
    steps, samples = sums.steps[ids], int(sums.samples[ids].sum())
    count = max(float(steps.sum()), 1.0)
    inner = weights @ (total @ total.T) @ weights.T
    across, outer = weights @ (total @ whole.T) @ weights.T, weights @ (whole @ whole.T) @ weights.T
    each = (sums.grads[g].astype(np.float64) for g in ids)
    products = np.array([(grads @ grads.T, grads @ total.T) for grads in each])  # with itself, and with the bucket
    squares, dots = _diagonal(weights, products[:, 0]), _diagonal(weights, products[:, 1])
    norms = _root(np.diagonal(inner))
    losses = weights @ sums.losses[ids].sum(0, dtype=np.float64) / count
    raw = np.sqrt(np.square(total).sum(-1)) / count
    by_layer = {layer.name: _layer_norms(weights, total, layer) / count for layer in layers}

    def component(c: int, name: str) -> Component:
        norm = float(norms[c]) / count
        error = _jackknife(steps, squares[:, c], dots[:, c], norms[c] ** 2)
        half = None if error is None else t_quantile(0.975, len(ids) - 1) * error
        return Component(
            norm=norm,
            error=error,
            interval=None if half is None else Interval(max(norm - half, 0.0), norm + half),
            raw=None if name == TOTAL else float(raw[c]),
            sum_norm=float(norms[c]),
            per_sample=float(norms[c]) / max(samples, 1),
            loss=float(losses[c]),
            share=_ratio(inner[c, -1], inner[-1, -1]),
            cos_all=_cos(across[c, c], inner[c, c], outer[c, c]),
            noise=noise_of(steps, squares[:, c], norms[c] ** 2),
            layers={layer: float(found[c]) for layer, found in by_layer.items()},
        )

    return BucketGradients(
        name=bucket.name,
        groups=bucket.groups,
        samples=samples,
        steps=int(steps.sum()),
        weight=float(steps.sum() / max(sums.steps.sum(), 1.0)),
        # the sums already contain the weights of the buckets
        share=_ratio(across[-1, -1], outer[-1, -1]),
        components={name: component(c, name) for c, name in enumerate(names)},
        cos={
            a: {b: _cos(inner[i, j], inner[i, i], inner[j, j]) for j, b in enumerate(names) if b != a}
            for i, a in enumerate(names)
        },
    )


def _jackknife(steps: Floats, squares: Floats, dots: Floats, bucket_square: float) -> float | None:
    """Return the jackknife standard error of a norm (Efron & Tibshirani 1993, chapter 11).

    Without group i the squared norm is `|S - S_i|^2 = |S|^2 - 2 <S_i, S> + |S_i|^2`. The error measures how much the
    norm would vary with other groups, not how much of it is noise; for that see `GradientNoise`.
    """
    n = len(steps)
    left = steps.sum() - steps
    if n < 2 or not left.all():
        return None
    without = np.sqrt(np.maximum(bucket_square - 2.0 * dots + squares, 0.0)) / left
    return float(np.sqrt((n - 1) / n * np.square(without - without.mean()).sum()))


def _diagonal(weights: Floats, products: Floats) -> Floats:
    """Return squared norms of weighted components and their total, `[..., C + 1]`, from products `[..., C, C]`."""
    found: Floats = np.einsum("kc,...cd,kd->...k", weights, products, weights)
    return found


def _layer_norms(weights: Floats, total: Floats, layer: Layer) -> Floats:
    parts = [_diagonal(weights, total[:, a:b] @ total[:, a:b].T) for a, b in layer.parts]
    return _root(np.sum(parts, axis=0))


def _root(squares: Floats) -> Floats:
    """Return the root of sums of squares that rounding may have left just below 0."""
    found: Floats = np.sqrt(np.maximum(squares, 0.0))
    return found


def _ratio(a: float, b: float) -> float | None:
    return float(a / b) if b > 0 else None


def _cos(product: float, square: float, other: float) -> float | None:
    return float(product / np.sqrt(square * other)) if square > 0 and other > 0 else None
