"""The gradient report of one train state of PPO: probe, buckets, gradients, measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import Parts, as_read, fit_codec, make_parts, policy_advantage, policy_of
from hmx.agents.types import Params, TrainState
from hmx.analysis.buckets import group_advantages, reward_std, split
from hmx.analysis.components import COMPONENTS, Checks, Group, coefficients, live, ppo_sums
from hmx.analysis.gradients import gather, layers, make_group_gradients
from hmx.analysis.measures import Sums, clip_scale, measure
from hmx.analysis.probe import Probe, Prober, group_index, in_parts, make_prober, one_group, part_width, play, take
from hmx.analysis.q_replay import make_replay_reporter
from hmx.analysis.q_report import make_q_reporter
from hmx.analysis.ranking import Ranker, make_ranker, score
from hmx.analysis.spec import (
    GradReport,
    Reporter,
    Spec,
    check,
    check_finite,
    check_memory,
    check_rewards,
    crossfitted,
    own_zero,
)
from hmx.analysis.stored import Stored
from hmx.config.schema import Config
from hmx.config.switches import value_weight
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.types import Array, Key


class _Kit(NamedTuple):
    """What one report after another is made with."""

    parts: Parts
    spec: Spec
    probers: dict[bool, Prober]  # by: whether transition keys are common
    gradients: dict[bool, Callable[..., Any]]  # by: whether there is a reference
    codec: Callable[..., Any]
    ranker: Ranker
    stored: Stored | None


class _Batch(NamedTuple):
    """A probe with what its gradients are taken of."""

    probe: Probe
    params: Params
    rest: tuple[Any, ...]  # value statistics and hyperparameters
    gradients: Callable[..., Any]


def make_reporter(cfg: Config, env: Env, spec: Spec, stored: Stored | None = None) -> Reporter:
    """A function `(state, hypers, key, reference=None) -> GradReport` that keeps its compiled programs.

    The state is of one agent and only read; `hypers` are the scheduled values of the update that comes; `reference`
    are the parameters of the policy that the KL component measures from, by default the policy itself, and only for
    PPO.

    Args:
        cfg: of the run.
        env: its environment.
        spec: what to measure.
        stored: a saved buffer whose states episodes start from, or with `spec.replay` whose transitions are
            measured; None starts afresh, or takes the buffer of the state.

    Raises:
        HmxError: the request makes no sense (exit code 2).
    """
    check(spec)
    if cfg.algo.name == "dqn":
        return (make_replay_reporter if spec.replay else make_q_reporter)(cfg, env, spec, stored)
    if spec.replay:
        raise HmxError(
            f"{cfg.algo.name} learns from what it has just played and replays nothing",
            "leave out --replay; --from-buffer FILE starts episodes in stored states",
        )
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
        stored=stored,
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
        stored=stored,
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
    check_memory(spec, state.params, len(COMPONENTS))
    again = jax.random.clone(key)
    probe = play(kit.probers[spec.keys == "common"], state, key, parts.algo, parts.horizon, reference)
    check_rewards(probe.returns)
    both = spec.keys == "both"
    other = play(kit.probers[True], state, again, parts.algo, parts.horizon) if both else None
    probe = probe._replace(batch=as_read(parts.algo, state.obs_stats, probe.batch))
    params, stats = kit.codec(state, probe.batch)
    rest = (stats, {name: jnp.float32(value) for name, value in hypers.items()})
    figure = kit.ranker.figure(probe, state, key) if kit.ranker.figure else None
    batch = _Batch(probe, params, rest, kit.gradients[reference is not None])
    members = np.arange(spec.per_group)
    sums, checks = _sums(kit, batch, members)
    coefs = coefficients(value_weight(parts.algo), hypers, spec.kl_coef)
    ranks = score(figure, probe.returns, members)
    measures = measure(sums, split(ranks, spec.buckets, own_zero(spec)), coefs, layers(params))
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
        stored=None if kit.stored is None else kit.stored.size,
        crossfit=crossfitted(spec, figure, probe.returns, lambda half: _sums(kit, batch, half)[0], coefs)
        if spec.crossfit
        else None,
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
    check_finite(found.grads)
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
