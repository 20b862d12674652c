"""Gradient reports: the report of one train state of PPO, and the choice of reporter for every algorithm."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import PpoComponents, fit_codec, make_components, policy_advantage, policy_of
from hmx.agents.ppo_variants import network_batch
from hmx.agents.types import Hypers, Params, TrainState
from hmx.analysis import results
from hmx.analysis.buckets import Bools, Ints, group_advantages
from hmx.analysis.components import COMPONENTS, Checks, GroupBatch, coefficients, live, ppo_sums
from hmx.analysis.gradients import GroupGrads, GroupLosses, Tree, gather, make_group_gradients
from hmx.analysis.measures import Sums
from hmx.analysis.probe import Probe, Prober, group_index, in_parts, make_prober, one_group, part_width, play, take
from hmx.analysis.q_replay import make_replay_reporter
from hmx.analysis.q_report import make_q_reporter
from hmx.analysis.ranking import Ranker, make_ranker
from hmx.analysis.request import ProbeRequest, check
from hmx.analysis.stored import Stored
from hmx.config.derive import value_weight
from hmx.config.option import REPORTED
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.rl.value_codec import Stats
from hmx.types import Array, Key


class _Compiled(NamedTuple):
    """The functions that every report of a reporter uses."""

    parts: PpoComponents
    request: ProbeRequest
    probers: dict[bool, Prober]  # by: whether the keys of steps are common
    gradients: dict[bool, GroupGrads]  # by: whether there is a reference
    codec: Callable[..., tuple[Params, Stats]]
    ranker: Ranker
    stored: Stored | None


class _Inputs(NamedTuple):
    """A probe, and the other inputs of its gradients."""

    probe: Probe
    params: Params
    stats: Stats
    hypers: Hypers
    gradients: GroupGrads


def make_reporter(cfg: Config, env: Env, request: ProbeRequest, stored: Stored | None = None) -> results.Reporter:
    """Build a reporter, which keeps its compiled programs.

    The states of `stored` are the start states, or with `request.replay` its transitions are measured; None resets the
    environment, or takes the buffer of the train state.

    Raises:
        HmxError: the request does not fit the run (exit code 2).
    """
    check(request)
    if cfg.algo.name not in REPORTED:
        hint = f"gradient reports know the losses of {' and '.join(REPORTED)}"
        raise HmxError(f"cannot report on algorithm {cfg.algo.name}: its loss is not known to hmx", hint)
    if cfg.algo.name == "dqn":
        return (make_replay_reporter if request.replay else make_q_reporter)(cfg, env, request, stored)
    if request.replay:
        raise HmxError(
            f"cannot use --replay: {cfg.algo.name} has no replay buffer",
            "drop --replay; --from-buffer FILE starts episodes in stored states",
        )
    if cfg.ppo.obs_norm == "env":
        raise HmxError(
            "cannot report on a run with ppo.obs_norm = env: observations are normalised inside the trainer's steps",
            "train with ppo.obs_norm = network",
        )
    parts = make_components(cfg, env)
    prober = partial(
        make_prober,
        env,
        partial(policy_of, parts),
        parts.net,
        num_groups=request.groups,
        per_group=request.per_group,
        horizon=parts.horizon,
        limit=request.max_length,
        stored=stored,
    )
    probers = {common: prober(common=common) for common in (False, True)}
    compiled = _Compiled(
        parts,
        request,
        probers=probers,
        gradients={
            has_reference: make_group_gradients(at_rows(ppo_sums(parts, request.kl)), live(request.kl, has_reference))
            for has_reference in (False, True)
        },
        codec=jax.jit(partial(fit_codec, parts)),
        ranker=make_ranker(parts, probers[request.keys == "common"], request.rank),
        stored=stored,
    )
    return partial(_report, compiled)


class GroupRows(NamedTuple):
    """The rows of the probe that a part of a group consists of."""

    rows: Array | Ints  # [R]
    real: Array | Bools  # [R]: False for padding


def at_rows(sums: GroupLosses) -> GroupLosses:
    """Return the losses as a function `(params, GroupRows, the whole probe as a GroupBatch, *rest)`.

    The rows are picked inside of the compiled program, since their number differs from report to report.
    """

    def losses(params: Params, group: GroupRows, whole: GroupBatch, *rest: Tree) -> tuple[Array, Tree]:
        batch = one_group(whole.batch, group.rows, group.real)
        reference = None if whole.reference is None else take(whole.reference, group.rows[None])[0]
        return sums(params, GroupBatch(batch, reference), *rest)

    return losses


def _report(
    compiled: _Compiled, state: TrainState, hypers: Mapping[str, float], key: Key, reference: Params | None = None
) -> results.GradReport:
    parts, request = compiled.parts, compiled.request
    if reference is not None and parts.cfg.ppo.obs_norm != "none":
        raise HmxError(
            "cannot use --reference with ppo.obs_norm: the observation statistics of the reference are not known",
            "drop --reference, or compare policies trained with ppo.obs_norm = none",
        )
    results.check_gradient_memory(request, state.params, len(COMPONENTS))
    again = jax.random.clone(key)
    probe = play(compiled.probers[request.keys == "common"], state, key, parts.cfg, parts.horizon, reference)
    episodes = probe.episodes
    results.check_returns(episodes.returns)
    if request.keys == "both":
        common = play(compiled.probers[True], state, again, parts.cfg, parts.horizon)
        episodes = episodes._replace(acted_std=common.episodes.reward_std)
    probe = probe._replace(batch=network_batch(parts.cfg.ppo, state.actors.obs_stats, probe.batch))
    params, stats = compiled.codec(state, probe.batch)
    scheduled = {name: jnp.float32(value) for name, value in hypers.items()}
    inputs = _Inputs(probe, params, stats, scheduled, compiled.gradients[reference is not None])
    figure = compiled.ranker(probe, state, key)
    sums, checks = _sums(compiled, inputs, np.arange(request.per_group))
    return results.report_on_episodes(
        request,
        parts.cfg,
        episodes,
        figure,
        sums,
        lambda members: _sums(compiled, inputs, members)[0],
        coefficients(value_weight(parts.cfg.ppo), hypers, request.kl_coef),
        params,
        results.Consistency(float(checks.ratio_error), float(checks.approx_kl), float(checks.clip_frac)),
        compiled.stored,
    )


def _sums(compiled: _Compiled, inputs: _Inputs, members: Ints) -> tuple[Sums, Checks]:
    """Compute the gradients of all groups, over some members of each."""
    request, probe = compiled.request, inputs.probe
    batch = probe.batch._replace(advantage=_advantage(compiled, probe, members))
    group = np.where(np.isin(probe.member, members), probe.group, -1)
    # One width for whole and half groups, so that one program serves both.
    index, real, owner = in_parts(*group_index(batch, group, request.groups), part_width(batch, request.groups))
    rest = (GroupBatch(batch, probe.reference), inputs.stats, inputs.hypers)
    found = gather(inputs.gradients, inputs.params, GroupRows(index, real), *rest, chunk=request.chunk, owner=owner)
    results.check_finite(found.grads)
    each = (np.asarray(batch.weight, np.float64).sum(0)[index] * real).sum(1)
    steps = np.bincount(owner, weights=each, minlength=request.groups).astype(np.float64)
    mean = partial(np.average, weights=np.maximum(each, 1e-9))
    checks = Checks(found.aux.ratio_error.max(), mean(found.aux.approx_kl), mean(found.aux.clip_frac))
    return Sums(found.losses, found.grads, steps, np.full(request.groups, float(len(members)))), checks


def _advantage(compiled: _Compiled, probe: Probe, members: Ints) -> Array:
    """Return advantages `[H, N]`, normalised once over the whole probe, so that they do not depend on buckets."""
    kind = compiled.request.advantage
    if kind == "trainer":
        return policy_advantage(compiled.parts.cfg, probe.batch, jnp.ones_like(probe.batch.advantage))
    returns = probe.episodes.returns
    per_episode = np.zeros(returns.shape)
    per_episode[:, members] = group_advantages(returns[:, members], kind == "group-std")
    per_row = jnp.asarray(per_episode[probe.group, probe.member], jnp.float32)
    return jnp.broadcast_to(per_row[None], probe.batch.advantage.shape)
