"""Groups of episodes from one start state, and the buckets that groups are ranked into.

Everything here is small and is computed on the host in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.integer[Any]]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]
Host = np.ndarray[Any, np.dtype[Any]]

ALL = "all"
ZERO = "bucket_zero"
UNDEFINED = "bucket_undefined"

_ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Bucket(NamedTuple):
    """A name and the indices of groups, in the order of their rank."""

    name: str
    groups: tuple[int, ...]


def reward_std(returns: Float[Floats, "G K"]) -> Float[Floats, " G"]:
    """Return the sample standard deviation of each group's returns, equal where only rounding differs."""
    return merge_equal(*sample_std(returns))


def sample_std(returns: Float[Floats, "G K"]) -> tuple[Float[Floats, " G"], Float[Floats, " G"]]:
    """Return the sample standard deviation of each group's returns, and its rounding error.

    Rewards are float32, so returns are only known up to their rounding. The standard deviation is exactly 0 if all
    returns of a group are equal up to rounding, and NaN for fewer than two returns. A return of NaN does not count.
    """
    known = np.isfinite(returns)
    count = known.sum(1)
    mean = np.where(known, returns, 0.0).sum(1) / np.maximum(count, 1)
    squares = np.where(known, np.square(returns - mean[:, None]), 0.0).sum(1)
    high, low = np.where(known, returns, -np.inf).max(1), np.where(known, returns, np.inf).min(1)
    rounding = _ROUNDING * np.maximum(np.abs(high), np.abs(low))
    std = np.where(high - low > rounding, np.sqrt(squares / np.maximum(count - 1, 1)), 0.0)
    return np.where(count < 2, np.nan, std), rounding


def merge_equal(values: Float[Floats, " n"], rounding: Float[Floats, " n"]) -> Float[Floats, " n"]:
    """Return the values, with values that differ from a lower one only by rounding replaced by it; NaN and 0 stay.

    Each value is compared with the lowest of its run of equal values, since small differences add up along a chain.
    """
    ids = np.flatnonzero(values > 0)
    merged, lowest, error = values.copy(), -np.inf, 0.0
    for i in ids[np.argsort(values[ids], kind="stable")]:
        if values[i] - lowest > max(error, rounding[i]):
            lowest, error = values[i], rounding[i]
        merged[i] = lowest
    return merged


def group_advantages(returns: Float[Floats, "G K"], scaled: bool) -> Float[Floats, "G K"]:
    """Return the advantage of each episode over its group, `[G, K]`.

    It is the return minus the group mean, as in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783), or that divided by
    `reward_std`, as in GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2, without its epsilon). It is exactly 0
    in a group whose returns are all equal, and in one with fewer than two.
    """
    known = np.isfinite(returns)
    std = reward_std(returns)
    mean = np.where(known, returns, 0.0).sum(1) / np.maximum(known.sum(1), 1)
    counts = known & (np.nan_to_num(std) > 0)[:, None]
    centred = np.where(counts, returns - mean[:, None], 0.0)
    return centred / np.where(counts, std[:, None], 1.0) if scaled else centred


def split(score: Float[Floats, " G"], num_buckets: int, own_zero: bool = True) -> tuple[Bucket, ...]:
    """Rank groups by their score, lowest first, and split them into buckets.

    Of n ranked groups each of B buckets gets `n // B`, and the last one also the remainder; B is reduced to n if there
    are fewer groups. Groups with equal scores stay in their original order. A group whose score is NaN goes to
    `bucket_undefined`, and with `own_zero` one that scores 0 to `bucket_zero`, which comes first.
    """
    ids = np.arange(len(score))
    undefined = np.isnan(score)
    zero = (score == 0.0) & own_zero
    ranked = ids[~undefined & ~zero]
    ranked = ranked[np.argsort(score[ranked], kind="stable")]
    num_buckets = min(num_buckets, len(ranked))
    per_bucket = len(ranked) // max(num_buckets, 1)
    edges = [per_bucket * i for i in range(num_buckets)] + [len(ranked)]
    buckets = [(f"bucket_{i + 1}", ranked[edges[i] : edges[i + 1]]) for i in range(num_buckets)]
    named = [(ZERO, ids[zero]), *buckets, (UNDEFINED, ids[undefined])]
    return tuple(Bucket(name, tuple(int(g) for g in groups)) for name, groups in named if len(groups))
