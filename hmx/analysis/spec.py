"""What is asked of a gradient report, and what it found."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from hmx.agents.types import Params
from hmx.analysis.buckets import Floats
from hmx.analysis.components import KL_KINDS
from hmx.analysis.measures import Measures, Sums, crossfit
from hmx.analysis.ranking import BY, Figure, score
from hmx.errors import ExitCode, HmxError

ADVANTAGES = ("trainer", "group", "group-std")
BY_STORED = (*BY, "priority", "age")
KEYS = ("independent", "common", "both")
MAX_EPISODES = 1 << 20
MAX_BYTES = 8 << 30  # of the gradients of all groups, which are held in host memory

_NO_KL = "Q-learning has no policy that KL could be measured from"
_EPISODES = "leave it out, or leave out --replay to play episodes"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What is asked of a report."""

    groups: int = 64  # start states
    per_group: int = 8  # episodes from each
    buckets: int = 4
    by: str = "reward_std"  # what ranks the groups: one of `BY`, or with `replay` one of `BY_STORED`
    replay: bool = False  # stored transitions instead of episodes: a group is `per_group` of them
    advantage: str = "trainer"  # the trainer's own, or returns against those of the group: one of `ADVANTAGES`
    keys: str = "independent"  # of the transitions within a group, or common ones, or a probe of either: `KEYS`
    max_length: int = 0  # steps of an episode at most, rounded up; 0 takes the environment's limit
    rank_zeros: bool = False  # rank groups of equal returns with the others, instead of a bucket of their own
    crossfit: bool = False
    kl: str = "analytic"  # one of `components.KL_KINDS`
    kl_coef: float = 0.0
    chunk: int = 8  # parts of groups whose gradients are computed at once


@dataclasses.dataclass(frozen=True, kw_only=True)
class Replayed:
    """What replay makes of stored transitions.

    A transition that is drawn with probability p and weighed by `(N p)^-beta` contributes `(N p)^(1 - beta)` of its
    gradient to the mean of a batch. Batches whose weights are divided by the largest scale all of that alike.
    """

    measures: Measures  # with these weights
    beta: float
    prioritised: bool  # whether some are likelier to be drawn than others
    draws: Mapping[str, float]  # bucket -> share of the draws, among the transitions of this report
    slots: tuple[tuple[int, ...], ...]  # of each group's transitions
    td_rank: float | None  # rank correlation of stored and recomputed |TD error|
    td_error: Floats  # [G]: mean |TD error| by the networks of now


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradReport:
    """What a report found; arrays are on the host, one row per group."""

    spec: Spec
    coefs: Mapping[str, float]
    measures: Measures
    clip_scale: float  # what training would multiply the gradient of the whole batch by
    returns: Floats  # [G, K]
    lengths: Floats  # [G, K]
    cut: np.ndarray[Any, Any]  # [G, K] bool: longer than the probe
    reward_std: Floats  # [G]; of stored transitions there are no returns, and these and those are NaN
    rv_action: Floats | None  # [G]: the same under common transition keys, so what actions alone decide
    score: Floats  # [G]: what the groups were ranked by
    one_start: bool
    ratio_error: float | None  # largest |ratio - 1| of recomputed against stored log-probabilities
    crossfit: Mapping[str, Mapping[str, float]] | None  # bucket -> component -> norm
    approx_kl: float | None = None  # of PPO
    clip_frac: float | None = None  # of PPO
    value_error: float | None = None  # of Q-learning: largest difference of recomputed and stored greedy values
    algo: str = "ppo"
    epsilon: float | None = None  # with which Q-learning's probe played
    stored: int | None = None  # transitions in the buffer that the groups are from
    replay: Replayed | None = None  # where the groups are of stored transitions


Reporter = Callable[..., GradReport]


def check(spec: Spec) -> None:
    """Refuses what cannot be measured.

    Raises:
        HmxError: with exit code 2.
    """
    if spec.groups < 1:
        raise HmxError(f"cannot probe {spec.groups} start states", "--groups 64")
    if spec.buckets < 1:
        raise HmxError(f"cannot make {spec.buckets} buckets", "--buckets 4")
    if spec.per_group < 2:
        hint = "--per-group 8"
        raise HmxError(f"a group of {spec.per_group} has no variance; it takes at least 2 episodes", hint)
    if spec.buckets > spec.groups:
        hint = f"--groups {16 * spec.buckets} gives each bucket 16; or --buckets {max(spec.groups // 16, 1)}"
        raise HmxError(f"{spec.groups} groups cannot fill {spec.buckets} buckets", hint)
    if spec.groups * spec.per_group > MAX_EPISODES:
        hint = f"{MAX_EPISODES:,} at most: --groups 64 --per-group 8"
        raise HmxError(f"cannot play {spec.groups} x {spec.per_group} episodes side by side", hint)
    if spec.max_length < 0:
        raise HmxError(f"episodes cannot be cut at {spec.max_length} steps", "--max-length 256; 0 for no limit")
    if not 0.0 <= spec.kl_coef < math.inf:
        raise HmxError(f"KL cannot weigh {spec.kl_coef}", "--kl-coef 0.1")
    if spec.crossfit and spec.per_group < 4:
        raise HmxError(f"--crossfit halves the groups, and half of {spec.per_group} has no variance", "--per-group 8")
    if spec.replay:
        _check_replay(spec)
    choices = {
        "by": (spec.by, BY_STORED if spec.replay else BY),
        "advantage": (spec.advantage, ADVANTAGES),
        "keys": (spec.keys, KEYS),
        "kl": (spec.kl, KL_KINDS),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise HmxError(f"unknown --{name} {value}", f"known: {', '.join(known)}")


def _check_replay(spec: Spec) -> None:
    """Refuses what stored transitions do not have."""
    usual = Spec()
    if spec.crossfit:
        raise HmxError("--crossfit ranks by other episodes of a group, and a stored transition has none", _EPISODES)
    for name in ("keys", "max_length"):
        if getattr(spec, name) != getattr(usual, name):
            option = f"--{name.replace('_', '-')}"
            raise HmxError(f"{option} is about episodes, and with --replay nothing is played", _EPISODES)


def check_q(spec: Spec) -> None:
    """Refuses what Q-learning does not have.

    Raises:
        HmxError: with exit code 2.
    """
    if spec.advantage != "trainer":
        raise HmxError("Q-learning has no advantages: it learns from TD errors", "leave out --advantage")
    if spec.kl != "analytic" or spec.kl_coef:
        raise HmxError(_NO_KL, "leave out --kl and --kl-coef")


def no_reference(reference: Any) -> None:
    """Refuses a policy that Q-learning was to be measured from.

    Raises:
        HmxError: with exit code 2.
    """
    if reference is not None:
        raise HmxError(_NO_KL, "leave out --reference")


def check_memory(spec: Spec, params: Params, components: int) -> None:
    """Refuses more groups than memory can hold gradients of.

    Raises:
        HmxError: with exit code 2.
    """
    each = components * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    if each * spec.groups > MAX_BYTES:
        fits = MAX_BYTES // each
        what = f"the gradients of {spec.groups} groups would take {each * spec.groups / 2**30:.1f} GiB"
        raise HmxError(what, f"--groups {fits}" if fits else "the network is too large for a report")


def check_rewards(returns: Floats) -> None:
    """Refuses returns that are not finite.

    Raises:
        HmxError: with exit code 4.
    """
    bad = int((~np.isfinite(returns)).sum())
    if bad:
        what = f"{bad} of {returns.size} episodes have a return that is not finite"
        raise HmxError(what, "the environment's rewards must be finite numbers", ExitCode.CHECK_FAILED)


def check_finite(grads: np.ndarray[Any, Any]) -> None:
    """Refuses gradients that are not finite.

    Raises:
        HmxError: with exit code 4.
    """
    if not np.isfinite(grads).all():
        hint = "its parameters may not be finite: try an earlier checkpoint with --checkpoint"
        raise HmxError("the gradient of this checkpoint is not finite", hint, ExitCode.CHECK_FAILED)


def own_zero(spec: Spec) -> bool:
    """Whether groups that score 0 have a bucket of their own."""
    return spec.by == "reward_std" and not spec.rank_zeros


def crossfitted(
    spec: Spec,
    figure: Figure | None,
    returns: Floats,
    sums: Callable[[np.ndarray[Any, Any]], Sums],
    coefs: Mapping[str, float],
) -> dict[str, dict[str, float]]:
    """Norms where one half of the episodes of each group ranks it and the other is measured; see `crossfit`.

    Args:
        spec: of the report.
        figure: what groups are ranked by; see `score`.
        returns: `[G, K]`.
        sums: the gradients of all groups, of some members of each.
        coefs: weights of the components.
    """
    members, half = np.arange(spec.per_group), spec.per_group // 2
    turns = (members[:half], members[half:])
    scores = np.stack([score(figure, returns, turn) for turn in turns])
    return crossfit([sums(turn) for turn in turns], scores, spec.buckets, coefs, own_zero(spec))
