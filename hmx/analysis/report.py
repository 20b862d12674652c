"""The gradient report of one train state: probe, buckets, gradients, measures."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import Parts, as_read, fit_codec, make_parts, policy_advantage, policy_of
from hmx.agents.types import Params, TrainState
from hmx.analysis.buckets import Floats, group_advantages, reward_std, split
from hmx.analysis.components import COMPONENTS, KL_KINDS, Checks, Group, coefficients, live, ppo_sums
from hmx.analysis.gradients import gather, layers, make_group_gradients
from hmx.analysis.measures import Measures, Sums, clip_scale, crossfit, measure
from hmx.analysis.probe import Probe, Prober, group_index, in_parts, make_prober, one_group, part_width, play, take
from hmx.analysis.ranking import BY, Figure, Ranker, make_ranker, score
from hmx.config.schema import Config
from hmx.config.switches import value_weight
from hmx.env.protocol import Env
from hmx.errors import ExitCode, HmxError
from hmx.types import Array, Key

ADVANTAGES = ("trainer", "group", "group-std")
KEYS = ("independent", "common", "both")
MAX_EPISODES = 1 << 20
MAX_BYTES = 8 << 30  # of the gradients of all groups, which are held in host memory


@dataclasses.dataclass(frozen=True, kw_only=True)
class Spec:
    """What is asked of a report."""

    groups: int = 64  # start states
    per_group: int = 8  # episodes from each
    buckets: int = 4
    by: str = "reward_std"  # what ranks the groups: one of `BY`
    advantage: str = "trainer"  # the trainer's own, or returns against those of the group: one of `ADVANTAGES`
    keys: str = "independent"  # of the transitions within a group, or common ones, or a probe of either: `KEYS`
    max_length: int = 0  # steps of an episode at most, rounded up; 0 takes the environment's limit
    rank_zeros: bool = False  # rank groups of equal returns with the others, instead of a bucket of their own
    crossfit: bool = False
    kl: str = "analytic"  # one of `components.KL_KINDS`
    kl_coef: float = 0.0
    chunk: int = 8  # parts of groups whose gradients are computed at once


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
    reward_std: Floats  # [G]
    rv_action: Floats | None  # [G]: the same under common transition keys, so what actions alone decide
    score: Floats  # [G]: what the groups were ranked by
    one_start: bool
    ratio_error: float  # largest |ratio - 1| of recomputed against stored log-probabilities
    approx_kl: float
    clip_frac: float
    crossfit: Mapping[str, Mapping[str, float]] | None  # bucket -> component -> norm


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
    choices = {
        "by": (spec.by, BY),
        "advantage": (spec.advantage, ADVANTAGES),
        "keys": (spec.keys, KEYS),
        "kl": (spec.kl, KL_KINDS),
    }
    for name, (value, known) in choices.items():
        if value not in known:
            raise HmxError(f"unknown --{name} {value}", f"known: {', '.join(known)}")


class _Kit(NamedTuple):
    """What one report after another is made with."""

    parts: Parts
    spec: Spec
    probers: dict[bool, Prober]  # by: whether transition keys are common
    gradients: dict[bool, Callable[..., Any]]  # by: whether there is a reference
    codec: Callable[..., Any]
    ranker: Ranker


class _Batch(NamedTuple):
    """A probe with what its gradients are taken of."""

    probe: Probe
    params: Params
    rest: tuple[Any, ...]  # value statistics and hyperparameters
    gradients: Callable[..., Any]
    figure: Figure | None


def make_reporter(cfg: Config, env: Env, spec: Spec) -> Reporter:
    """A function `(state, hypers, key, reference=None) -> GradReport` that keeps its compiled programs.

    The state is of one agent and only read; `hypers` are the scheduled values of the update that comes; `reference`
    are the parameters of the policy that the KL component measures from, by default the policy itself.

    Raises:
        HmxError: the request makes no sense (exit code 2).
    """
    check(spec)
    if cfg.algo.name != "ppo":
        raise HmxError(f"gradient reports know the loss of ppo, and this is {cfg.algo.name}", "give a run of ppo")
    if cfg.algo.obs_norm == "env":
        raise HmxError(
            "a report plays without the trainer's steps, in which algo.obs_norm = env normalises",
            "train with algo.obs_norm = network to have reports",
        )
    parts = make_parts(cfg, env)
    prober = partial(
        make_prober,
        env,
        partial(policy_of, parts),
        parts.net,
        num_groups=spec.groups,
        per_group=spec.per_group,
        horizon=parts.horizon,
        limit=spec.max_length,
    )
    probers = {common: prober(common=common) for common in (False, True)}
    kit = _Kit(
        parts,
        spec,
        probers=probers,
        gradients={
            there: make_group_gradients(at_place(ppo_sums(parts, spec.kl)), live(spec.kl, there))
            for there in (False, True)
        },
        codec=jax.jit(partial(fit_codec, parts)),
        ranker=make_ranker(parts, probers[spec.keys == "common"], spec.by),
    )
    return partial(_report, kit)


class Place(NamedTuple):
    """Where a part of a group lies in the probe."""

    rows: Array  # [R] int: which
    real: Array  # [R] bool: whether each is one, or fills up


def at_place(sums: Callable[..., Any]) -> Callable[..., Any]:
    """The losses of the rows in one place: `(params, place, all rows, *rest)`.

    The rows are picked inside of the compiled program, since the number of places differs from report to report.
    """

    def placed(params: Params, place: Place, whole: Group, *rest: Any) -> Any:
        batch = one_group(whole.batch, place.rows, place.real)
        reference = None if whole.reference is None else take(whole.reference, place.rows[None])[0]
        return sums(params, Group(batch, reference), *rest)

    return placed


def _report(
    kit: _Kit, state: TrainState, hypers: Mapping[str, float], key: Key, reference: Params | None = None
) -> GradReport:
    parts, spec = kit.parts, kit.spec
    if reference is not None and parts.algo.obs_norm != "none":
        raise HmxError(
            "the reference reads observations by statistics of its own, which a report does not know",
            "leave out --reference, or compare policies trained with algo.obs_norm = none",
        )
    _check_memory(spec, state.params)
    again = jax.random.clone(key)
    probe = play(kit.probers[spec.keys == "common"], state, key, parts.algo, parts.horizon, reference)
    _check_rewards(probe)
    both = spec.keys == "both"
    other = play(kit.probers[True], state, again, parts.algo, parts.horizon) if both else None
    probe = probe._replace(batch=as_read(parts.algo, state.obs_stats, probe.batch))
    params, stats = kit.codec(state, probe.batch)
    rest = (stats, {name: jnp.float32(value) for name, value in hypers.items()})
    figure = kit.ranker.figure(probe, state, key) if kit.ranker.figure else None
    batch = _Batch(probe, params, rest, kit.gradients[reference is not None], figure)
    members = np.arange(spec.per_group)
    sums, checks = _sums(kit, batch, members)
    coefs = coefficients(value_weight(parts.algo), hypers, spec.kl_coef)
    ranks = score(figure, probe.returns, members)
    measures = measure(sums, split(ranks, spec.buckets, _own_zero(spec)), coefs, layers(params))
    return GradReport(
        spec=spec,
        coefs=coefs,
        measures=measures,
        clip_scale=clip_scale(measures, parts.algo.max_grad_norm),
        returns=probe.returns,
        lengths=probe.lengths,
        cut=probe.cut,
        reward_std=reward_std(probe.returns),
        rv_action=None if other is None else reward_std(other.returns),
        score=ranks,
        one_start=probe.one_start,
        ratio_error=float(checks.ratio_error),
        approx_kl=float(checks.approx_kl),
        clip_frac=float(checks.clip_frac),
        crossfit=_crossfit(kit, batch, coefs) if spec.crossfit else None,
    )


def _sums(kit: _Kit, batch: _Batch, members: np.ndarray[Any, Any]) -> tuple[Sums, Checks]:
    """The gradients of all groups, of some members of each."""
    spec, probe = kit.spec, batch.probe
    frozen = probe.batch._replace(advantage=_frozen_advantage(kit, probe, members))
    group = np.where(np.isin(probe.member, members), probe.group, -1)
    # one width for whole and half groups, so that one program does for both
    index, real, owner = in_parts(*group_index(frozen, group, spec.groups), part_width(frozen, spec.groups))
    whole = Group(frozen, probe.reference)
    found = gather(batch.gradients, batch.params, Place(index, real), whole, *batch.rest, chunk=spec.chunk, owner=owner)
    if not np.isfinite(found.grads).all():
        hint = "its parameters may not be finite: try an earlier checkpoint with --checkpoint"
        raise HmxError("the gradient of this checkpoint is not finite", hint, ExitCode.CHECK_FAILED)
    each = (np.asarray(frozen.weight, np.float64).sum(0)[index] * real).sum(1)
    steps = np.bincount(owner, weights=each, minlength=spec.groups).astype(np.float64)
    mean = partial(np.average, weights=np.maximum(each, 1e-9))
    checks = Checks(found.more.ratio_error.max(), mean(found.more.approx_kl), mean(found.more.clip_frac))
    return Sums(found.losses, found.grads, steps, np.full(spec.groups, float(len(members)))), checks


def _frozen_advantage(kit: _Kit, probe: Probe, members: np.ndarray[Any, Any]) -> Array:
    """Advantages `[H, N]`, normalised once over the whole probe, whatever bucket a row will be in."""
    if kit.spec.advantage == "trainer":
        return policy_advantage(kit.parts.algo, probe.batch, jnp.ones_like(probe.batch.advantage))
    per_episode = np.zeros(probe.returns.shape)
    per_episode[:, members] = group_advantages(probe.returns[:, members], kit.spec.advantage == "group-std")
    per_row = jnp.asarray(per_episode[probe.group, probe.member], jnp.float32)
    return jnp.broadcast_to(per_row[None], probe.batch.advantage.shape)


def _crossfit(kit: _Kit, batch: _Batch, coefs: Mapping[str, float]) -> dict[str, dict[str, float]]:
    members, half = np.arange(kit.spec.per_group), kit.spec.per_group // 2
    turns = (members[:half], members[half:])
    halves = [_sums(kit, batch, turn)[0] for turn in turns]
    scores = np.stack([score(batch.figure, batch.probe.returns, turn) for turn in turns])
    return crossfit(halves, scores, kit.spec.buckets, coefs, _own_zero(kit.spec))


def _own_zero(spec: Spec) -> bool:
    return spec.by == "reward_std" and not spec.rank_zeros


def _check_rewards(probe: Probe) -> None:
    bad = int((~np.isfinite(probe.returns)).sum())
    if bad:
        what = f"{bad} of {probe.returns.size} episodes have a return that is not finite"
        raise HmxError(what, "the environment's rewards must be finite numbers", ExitCode.CHECK_FAILED)


def _check_memory(spec: Spec, params: Params) -> None:
    each = len(COMPONENTS) * sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(params))
    if each * spec.groups > MAX_BYTES:
        fits = MAX_BYTES // each
        what = f"the gradients of {spec.groups} groups would take {each * spec.groups / 2**30:.1f} GiB"
        raise HmxError(what, f"--groups {fits}" if fits else "the network is too large for a report")
