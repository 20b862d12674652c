"""Groups of episodes from one start, and the buckets they fall into.

All of it is small and lives on the host, in float64.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

ALL = "all"
ZERO = "bucket_zero"
UNDEFINED = "bucket_undefined"

_ROUNDING = 4 * float(np.finfo(np.float32).eps)


class Bucket(NamedTuple):
    """Some of the groups, by their index, in the order of their rank."""

    name: str
    groups: tuple[int, ...]


def reward_std(returns: Floats) -> Floats:
    """Standard deviation of each group's returns with `n - 1` in the denominator, `[G]`.

    It is exactly 0 where all returns of a group are equal up to the rounding of float32 rewards: a rounded mean would
    make something of nothing. It is NaN for a group with fewer than two returns.

    Args:
        returns: `[G, K]`; NaN for an episode that does not count.
    """
    known = np.isfinite(returns)
    count = known.sum(1)
    some = np.maximum(count, 1)
    mean = np.where(known, returns, 0.0).sum(1) / some
    squares = np.where(known, np.square(returns - mean[:, None]), 0.0).sum(1)
    high, low = np.where(known, returns, -np.inf).max(1), np.where(known, returns, np.inf).min(1)
    flat = ~(high - low > _ROUNDING * np.maximum(np.abs(high), np.abs(low)))
    std = np.where(flat, 0.0, np.sqrt(squares / np.maximum(count - 1, 1)))
    return np.where(count < 2, np.nan, std)


def group_advantages(returns: Floats, scaled: bool) -> Floats:
    """What each episode is worth against the others of its group, `[G, K]`.

    The return less the group's mean, as in Dr. GRPO (Liu et al. 2025, arXiv:2503.20783), or that divided by
    `reward_std`, as in GRPO (Shao et al. 2024, arXiv:2402.03300, section 4.1.2, without its epsilon). Exactly 0 in a
    group whose returns are all equal, and in one with fewer than two.
    """
    known = np.isfinite(returns)
    std = reward_std(returns)
    mean = np.where(known, returns, 0.0).sum(1) / np.maximum(known.sum(1), 1)
    counts = known & (np.nan_to_num(std) > 0)[:, None]
    centred = np.where(counts, returns - mean[:, None], 0.0)
    return centred / np.where(counts, std[:, None], 1.0) if scaled else centred


def split(score: Floats, num_buckets: int, own_zero: bool = True) -> tuple[Bucket, ...]:
    """Buckets of groups by the rank of their score, lowest first.

    Of n ranked groups every bucket gets `n // B`, and the last one what remains besides; `B` is no more than n.
    Equal scores keep the order of the groups.

    Args:
        score: `[G]`; a group whose score is NaN goes to `bucket_undefined`.
        num_buckets: `B`, for `bucket_1` to `bucket_B`.
        own_zero: whether groups of score 0 go to `bucket_zero`, which comes first, instead of being ranked.
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
