"""The gradient report of one train state of Q-learning: episodes played for it, and the TD loss they would make."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.dqn import TrainState, decide, make_parts
from hmx.agents.q_learning import Parts
from hmx.analysis.buckets import reward_std, split
from hmx.analysis.gradients import layers
from hmx.analysis.measures import Sums, clip_scale, measure
from hmx.analysis.probe import Prober, third
from hmx.analysis.q_probe import Player, QProbe, make_q_prober, play_q
from hmx.analysis.q_terms import COEFS, Judged, Networks, Terms, at, group_gradients, in_blocks, judged, make_terms
from hmx.analysis.ranking import Figure, check_rank, consequence, even, score
from hmx.analysis.spec import (
    GradReport,
    Reporter,
    Spec,
    check_memory,
    check_q,
    check_rewards,
    crossfitted,
    no_reference,
    own_zero,
)
from hmx.analysis.stored import Stored
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.rl import distributions
from hmx.types import Array, Key

Host = np.ndarray[Any, Any]


class _Kit(NamedTuple):
    """What one report after another is made with."""

    parts: Parts
    spec: Spec
    probers: dict[bool, Prober]  # by: whether transition keys are common
    terms: Terms
    recheck: Callable[..., tuple[Array, Array]]
    consequence: Callable[..., Figure] | None
    stored: Stored | None


class _Batch(NamedTuple):
    """A probe with what its gradients are taken of; arrays are by slot, `[T E]`."""

    probe: QProbe
    networks: Networks
    target: Host


def make_q_reporter(cfg: Config, env: Env, spec: Spec, stored: Stored | None = None) -> Reporter:
    """A reporter as of `make_reporter`, for episodes that the run's policy of that moment plays.

    It explores as the update that comes would: what it plays is what would enter the buffer.

    Raises:
        HmxError: the request makes no sense (exit code 2).
    """
    check_q(spec)
    parts = make_parts(cfg, env)
    check_rank(spec.by, env.spec, has_memory=False)
    parts = at(parts, spec.groups * spec.per_group)
    prober = partial(
        make_q_prober, parts, num_groups=spec.groups, per_group=spec.per_group, limit=spec.max_length, stored=stored
    )
    probers = {common: prober(common=common) for common in (False, True)}

    def act(player: Player, obs: Array, legal: Array, keys: Key) -> Array:
        values = parts.net.values(player.params, obs)
        return jax.vmap(partial(distributions.epsilon_greedy, epsilon=player.epsilon))(keys, values, legal)

    chosen = probers[spec.keys == "common"]
    by_consequence = consequence(env, act, chosen, cfg.algo.gamma) if spec.by == "consequence" else None
    return partial(
        _report,
        _Kit(parts, spec, probers, make_terms(parts, False), jax.jit(partial(_recheck, parts)), by_consequence, stored),
    )


def _recheck(parts: Parts, player: Player, probe: tuple[Any, Array, Array], index: Array) -> tuple[Array, Array]:
    """How far recomputed probabilities and values are from those that played: `|ratio - 1|` and a difference, `[n]`."""
    items, log_prob, value = jax.tree.map(lambda leaf: leaf[index], probe)
    again = decide(parts, player.params, player.epsilon, (), items.obs_t, items.legal_t, jax.random.key(0))
    taken = jnp.take_along_axis(again.probs, items.action_t[..., None], axis=-1)[..., 0]
    ratio = jnp.where(items.alive_t, jnp.abs(taken / jnp.exp(log_prob) - 1.0), 0.0)
    return ratio.max(-1), jnp.where(items.alive_t, jnp.abs(again.value - value), 0.0).max(-1)


def _report(kit: _Kit, state: TrainState, hypers: Mapping[str, float], key: Key, reference: Any = None) -> GradReport:
    spec, algo = kit.spec, kit.parts.cfg.algo
    no_reference(reference)
    check_memory(spec, state.params, len(COEFS))
    player = Player(state.params, jnp.float32(hypers["epsilon"]))
    again = jax.random.clone(key)
    probe = play_q(kit.probers[spec.keys == "common"], player, key)
    check_rewards(probe.returns)
    other = play_q(kit.probers[True], player, again) if spec.keys == "both" else None
    slots = np.flatnonzero(probe.counts)
    networks = Networks(state.params, state.target_params)
    found = judged(kit.terms, networks, probe.history, slots)
    target = np.zeros(probe.counts.size, np.float32)
    target[slots] = found.target
    figure = _figure(kit, probe, player, found, slots, again)
    batch = _Batch(probe, networks, target)
    members = np.arange(spec.per_group)
    ranks = score(figure, probe.returns, members)
    measures = measure(
        _sums(kit, batch, members), split(ranks, spec.buckets, own_zero(spec)), COEFS, layers(state.params)
    )
    played = (probe.history.items, probe.log_prob, probe.value)
    ratio_error, value_error = in_blocks(partial(kit.recheck, player, played), slots)
    return GradReport(
        spec=spec,
        algo=algo.name,
        coefs=COEFS,
        measures=measures,
        clip_scale=clip_scale(measures, algo.max_grad_norm),
        returns=probe.returns,
        lengths=probe.lengths,
        cut=probe.cut,
        reward_std=reward_std(probe.returns),
        rv_action=None if other is None else reward_std(other.returns),
        score=ranks,
        one_start=probe.one_start,
        ratio_error=float(ratio_error.max()),
        value_error=float(value_error.max()),
        epsilon=float(player.epsilon),
        stored=None if kit.stored is None else kit.stored.size,
        crossfit=crossfitted(spec, figure, probe.returns, partial(_sums, kit, batch), COEFS) if spec.crossfit else None,
    )


def _sums(kit: _Kit, batch: _Batch, members: Host) -> Sums:
    """The gradients of all groups, of some members of each."""
    spec, probe = kit.spec, batch.probe
    env = np.arange(probe.counts.shape[1])
    group, member = env // spec.per_group, env % spec.per_group
    chosen = probe.counts & np.isin(member, members)
    groups = [np.flatnonzero((chosen & (group == g)).reshape(-1)) for g in range(spec.groups)]
    # one width for whole and half groups, so that one program does for both
    width = third(int(probe.counts.sum()), spec.groups)
    found = group_gradients(
        kit.terms,
        batch.networks.params,
        probe.history.items,
        groups,
        batch.target,
        np.ones_like(batch.target),
        spec.chunk,
        width,
    )
    steps = np.array([len(slots) for slots in groups], np.float64)
    return Sums(found.losses, found.grads, steps, np.full(spec.groups, float(len(members))))


def _figure(kit: _Kit, probe: QProbe, player: Player, found: Judged, slots: Host, key: Key) -> Figure | None:
    """What the groups are ranked by; None for the deviation of their returns."""
    shape, env_spec = probe.returns.shape, kit.parts.env.spec
    if kit.consequence is not None:
        items = jax.tree.map(lambda leaf: leaf[: probe.returns.size], probe.history.items)
        return kit.consequence(player, key, items.obs_t, items.legal_t, items.action_t)
    if kit.spec.by == "td":
        total = np.zeros(probe.counts.size)
        total[slots] = np.abs(found.td_error)
        count = probe.counts.sum(0).reshape(shape).astype(np.float64)
        return Figure(total.reshape(probe.counts.shape).sum(0).reshape(shape) / np.maximum(count, 1.0), count)
    if kit.spec.by == "level":
        assert env_spec.level is not None
        level = np.asarray(env_spec.level(probe.history.items.obs_t), np.float64).max(-1)
        seen = np.where(probe.counts, level.reshape(probe.counts.shape), -np.inf)
        return even(seen.max(0).reshape(shape))
    of_episodes = {"return": probe.returns, "length": probe.lengths}
    return even(of_episodes[kit.spec.by]) if kit.spec.by in of_episodes else None
