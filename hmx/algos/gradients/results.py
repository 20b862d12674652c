"""The results of a gradient report, and the steps that reports of all algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import jax
import numpy as np

from hmx.algos.gradients.buckets import Floats, Host, Ints, split
from hmx.algos.gradients.measures import BucketGradients, Cosines, Sums, clip_scale, crossfit, measure
from hmx.algos.gradients.per_group import layers
from hmx.algos.gradients.probe import ProbeEpisodes
from hmx.algos.gradients.ranking import Figure, score
from hmx.algos.gradients.request import NO_KL, ProbeRequest, RankBy
from hmx.algos.gradients.stored import Stored
from hmx.algos.types import Params, TrainState
from hmx.config.schema import AlgoConfig
from hmx.errors import ExitCode, HmxError
from hmx.types import Key

MAX_BYTES = 8 << 30  # of the gradients of all groups, which are held in host memory


class Consistency(NamedTuple):
    """Recomputed values against those stored while playing; None if an algorithm does not have them."""

    ratio_error: float | None = None  # largest |ratio - 1| of probabilities
    approx_kl: float | None = None
    clip_frac: float | None = None
    value_error: float | None = None  # largest difference of greedy action values
    td_rank: float | None = None  # rank correlation of stored and recomputed |TD error|


class ReplaySample(NamedTuple):
    """Stored transitions, and how replay samples and weights them.

    A transition that is drawn with probability p and weighted by `(N p)^-beta` contributes `(N p)^(1 - beta)` of its
    gradient to the mean of a batch. Dividing the weights of a batch by the largest scales all of this equally.
    """

    beta: float
    prioritised: bool  # whether some transitions are more likely to be drawn than others
    slots: tuple[tuple[int, ...], ...]  # of each group's transitions


class Summary(NamedTuple):
    """Mean, minimum and maximum of the known values; None without any."""

    mean: float | None = None
    min: float | None = None
    max: float | None = None


UNKNOWN = Summary()


@dataclass(frozen=True, kw_only=True)
class BucketReport(BucketGradients):
    """A bucket with its episodes or its stored transitions; fields that do not apply are None."""

    score: Summary  # what its groups are ranked by
    reward_std: Summary = UNKNOWN
    return_mean: float | None = None
    truncated_frac: float | None = None
    acted_std: float | None = None
    crossfit: Mapping[str, float] | None = None  # component -> norm over half of the episodes
    td_error: float | None = None  # mean |TD error| of stored transitions by the current networks
    draws: float | None = None  # share of the samples of replay, among the transitions of this report
    replayed_share: float | None = None  # share of the update as replay draws and weights transitions
    replayed_norm: float | None = None


@dataclass(frozen=True, kw_only=True)
class GradReport:
    """The report of one train state; arrays are on the host, with a row per group."""

    request: ProbeRequest = field(metadata={"json": False})
    algo: str
    source: Literal["starts", "buffer", "replay"]  # fresh or stored start states, or stored transitions
    rank: RankBy
    coefs: Mapping[str, float]  # component -> weight in the loss
    clip_scale: float  # factor by which training would clip the gradient of the whole batch
    consistency: Consistency
    buckets: tuple[BucketReport, ...]
    whole: BucketReport
    cos: Mapping[str, Cosines]  # between buckets
    score: Floats  # [G]: what the groups are ranked by
    stored: int | None  # transitions in the buffer that the groups are from
    epsilon: float | None = None  # exploration of Q-learning's episodes
    episodes: ProbeEpisodes | None = None
    replay: ReplaySample | None = None


@runtime_checkable
class Reporter(Protocol):
    """Report on a train state of one agent, which is only read.

    `hypers` are the scheduled values of the next update. `reference` is a state whose policy takes the place of the
    reference policy of the run in the KL component; only PPO has it.
    """

    def __call__(
        self, state: TrainState, hypers: Mapping[str, float], key: Key, reference: TrainState | None = None
    ) -> GradReport:
        """Report on `state`."""
        ...


class EpisodeReporter:
    """A reporter that ranks groups of episodes and measures the gradients of their buckets."""

    def __init__(self, algo: AlgoConfig, request: ProbeRequest, stored: Stored | None) -> None:
        self.algo, self.request, self.stored = algo, request, stored

    def report(
        self,
        episodes: ProbeEpisodes,
        figure: Figure | None,
        sums: Sums,
        half_sums: Callable[[Ints], Sums],
        coefs: Mapping[str, float],
        params: Params,
        consistency: Consistency,
    ) -> GradReport:
        """Rank the groups by `figure`, None by the standard deviation of their returns, and measure the buckets.

        `half_sums` are the gradients of all groups for the given members of each.
        """
        request = self.request
        members, half = np.arange(request.per_group), request.per_group // 2
        ranks = score(figure, episodes.returns, members)
        measures = measure(sums, split(ranks, request.buckets, request.own_zero), coefs, layers(params))
        crossed: Mapping[str, Mapping[str, float]] = {}
        if request.crossfit:
            turns = (members[:half], members[half:])
            scores = np.stack([score(figure, episodes.returns, turn) for turn in turns])
            crossed = crossfit([half_sums(turn) for turn in turns], scores, request.buckets, coefs, request.own_zero)

        def bucket(found: BucketGradients) -> BucketReport:
            ids, acted = list(found.groups), episodes.acted_std
            return BucketReport(
                **vars(found),
                score=summary(ranks[ids]),
                reward_std=summary(episodes.reward_std[ids]),
                return_mean=float(episodes.returns[ids].mean()),
                truncated_frac=float(episodes.truncated[ids].mean()),
                acted_std=None if acted is None else float(acted[ids].mean()),
                crossfit=crossed.get(found.name),
            )

        return GradReport(
            request=request,
            algo=self.algo.name,
            source="starts" if self.stored is None else "buffer",
            rank=request.rank,
            coefs=coefs,
            clip_scale=clip_scale(measures, self.algo.max_grad_norm),
            consistency=consistency,
            buckets=tuple(map(bucket, measures.buckets)),
            whole=bucket(measures.whole),
            cos=measures.cos,
            score=ranks,
            stored=None if self.stored is None else self.stored.size,
            episodes=episodes,
        )


def summary(values: Floats) -> Summary:
    """Return the mean, minimum and maximum of the known values."""
    known = values[np.isfinite(values)]
    return Summary(float(known.mean()), float(known.min()), float(known.max())) if len(known) else UNKNOWN


def check_gradient_memory(request: ProbeRequest, params: Params, components: int) -> None:
    """Refuse more groups than fit into memory with their gradients (exit code 2)."""
    each = components * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    if each * request.groups > MAX_BYTES:
        fits = MAX_BYTES // each
        what = f"the gradients of {request.groups} groups would take {each * request.groups / 2**30:.1f} GiB"
        raise HmxError(what, f"--groups {fits}" if fits else "the network is too large for a gradient report")


def check_returns(returns: Floats) -> None:
    """Refuse returns that are not finite (exit code 4)."""
    bad = int((~np.isfinite(returns)).sum())
    if bad:
        what = f"{bad} of {returns.size} episodes have a return that is not finite"
        raise HmxError(what, "the environment's rewards must be finite numbers", ExitCode.CHECK_FAILED)


def check_no_reference(reference: TrainState | None) -> None:
    """Refuse a reference policy, which Q-learning does not have (exit code 2)."""
    if reference is not None:
        raise HmxError(f"cannot use --reference: Q-learning {NO_KL}", "drop --reference")


def check_finite(grads: Host) -> None:
    """Refuse gradients that are not finite (exit code 4)."""
    if not np.isfinite(grads).all():
        hint = "the parameters may not be finite: try an earlier checkpoint with --checkpoint"
        raise HmxError("the gradient of this checkpoint is not finite", hint, ExitCode.CHECK_FAILED)
