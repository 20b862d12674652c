"""The gradient report of one train state of PPO."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.gradients import results
from hmx.algos.gradients.buckets import Bools, Ints, group_advantages
from hmx.algos.gradients.measures import Sums
from hmx.algos.gradients.per_group import GroupLosses, Tree, gather, make_group_gradients
from hmx.algos.gradients.probe import Probe, group_index, in_parts, make_prober, part_width, play
from hmx.algos.gradients.ranking import make_ranker
from hmx.algos.gradients.request import KlKind, ProbeRequest
from hmx.algos.gradients.stored import Stored
from hmx.algos.ppo.aspects import value_weight
from hmx.algos.ppo.components import PpoComponents, make_ppo_components
from hmx.algos.ppo.loss import policy_advantage, ppo_terms
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.ppo.update import fit_codec
from hmx.algos.ppo.variants import network_batch
from hmx.algos.sequences import Batch, take_sequences
from hmx.algos.types import Hypers, Params, TrainState
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.errors import HmxError
from hmx.rl.divergences import approx_kl, clip_frac, kl_estimate
from hmx.rl.value_codec import Stats
from hmx.types import Array, Key

COMPONENTS = ("task", "entropy", "kl", "value")
Rows = tuple[Array | Ints, Array | Bools]
"""The rows of the probe in one part of a group, `[R]`, and whether each is real, not padding."""


def make_ppo_reporter(cfg: Config, env: Env, request: ProbeRequest, stored: Stored | None) -> results.Reporter:
    """Build the reporter of PPO; see `hmx.algos.gradients.reporter`."""
    if request.replay:
        raise HmxError(
            f"cannot use --replay: {cfg.algo.name} has no replay buffer",
            "drop --replay; to start episodes in stored states, use --from-buffer FILE",
        )
    if cfg.ppo.obs_norm == "env":
        raise HmxError(
            "cannot report on a run with ppo.obs_norm = env: observations are normalised inside the trainer's steps",
            "train with ppo.obs_norm = network",
        )
    return _PpoReporter(make_ppo_components(cfg, env), request, stored)


class GroupBatch(NamedTuple):
    """The rows of one group; `batch.advantage` is fixed: normalised once over all groups."""

    batch: Batch
    reference: Array | None  # outputs of the reference policy, [H, R, width]; None for the policy itself


class Checks(NamedTuple):
    """Distance of the recomputed policy from the one that played: zero before an update, up to rounding."""

    ratio_error: Array  # largest |ratio - 1|
    approx_kl: Array
    clip_frac: Array


def components(kl: KlKind, has_reference: bool) -> tuple[str, ...]:
    """Return the components of the loss: without a reference there is no KL term, but `k1` has a gradient even then."""
    return tuple(name for name in COMPONENTS if name != "kl" or has_reference or kl == "k1")


def coefficients(names: Sequence[str], vf_coef: float, hypers: Mapping[str, float], kl_coef: float) -> dict[str, float]:
    """Return the weight of each of these components in the loss."""
    weights = {"task": 1.0, "entropy": float(hypers["ent_coef"]), "kl": kl_coef, "value": vf_coef}
    return {name: weights[name] for name in names}


def ppo_sums(parts: PpoComponents, kl: KlKind) -> Callable[[Params, GroupBatch, Stats, Hypers], tuple[Array, Checks]]:
    """Build `(params, group, value statistics, hypers) -> (losses summed over the group's steps [C], checks)`.

    The losses, from the same terms that training minimises, exclude their coefficients, so entropy is negative.

    A `kl` of `analytic` is the exact divergence; the others are estimates from the sampled actions, for comparison. The
    expected gradient of k1 is 0 for every reference, and that of k3 is that of KL(reference || policy).
    """

    def sums(params: Params, group: GroupBatch, stats: Stats, hypers: Hypers) -> tuple[Array, Checks]:
        batch = group.batch
        terms = ppo_terms(parts, params, stats, hypers, batch, batch.advantage)
        steps = {"task": terms.policy, "entropy": -terms.entropy, "value": terms.value}
        names = components(kl, group.reference is not None)
        if "kl" in names:
            reference = jax.lax.stop_gradient(terms.logits) if group.reference is None else group.reference
            if kl == "analytic":
                steps["kl"] = parts.head.kl(terms.logits, reference, batch.legal)
            else:
                log_prob_ref = parts.head.log_prob(reference, batch.legal, batch.action)
                steps["kl"] = kl_estimate(terms.log_prob, log_prob_ref, kl)
        losses = jnp.stack([jnp.where(batch.weight > 0, steps[name], 0.0).sum() for name in names])
        old, weight = batch.log_prob_old, batch.weight
        checks = Checks(
            (jnp.abs(jnp.expm1(terms.log_prob - old)) * weight).max(),
            approx_kl(terms.log_prob, old, weight),
            clip_frac(terms.log_prob, old, hypers["clip_eps"], weight),
        )
        return losses, jax.lax.stop_gradient(checks)

    return sums


def at_rows(sums: GroupLosses) -> GroupLosses:
    """Return the losses as a function `(params, rows of `picked`, the whole probe as a GroupBatch, *rest)`.

    The rows are selected inside the compiled program, since their number differs between reports.
    """

    def losses(params: Params, group: Rows, whole: GroupBatch, *rest: Tree) -> tuple[Array, Tree]:
        return sums(params, picked(whole, group), *rest)

    return losses


def picked(whole: GroupBatch, group: Rows) -> GroupBatch:
    """Return the rows of one group; those that are padding have weight 0."""
    rows, real = jnp.asarray(group[0]), group[1]
    batch = take_sequences(whole.batch, rows, whole.batch.sequence_weight[rows])
    reference = None if whole.reference is None else whole.reference[:, rows]
    return GroupBatch(batch._replace(weight=batch.weight * real[None]), reference)


class _PpoReporter(results.EpisodeReporter):
    """Report on train states of PPO."""

    def __init__(self, parts: PpoComponents, request: ProbeRequest, stored: Stored | None) -> None:
        super().__init__(parts.cfg.algo, request, stored)
        self.parts = parts
        # by whether the keys of steps are common
        self.probers = {common: make_prober(parts, request, common, stored) for common in (False, True)}
        self.gradients = make_group_gradients(at_rows(ppo_sums(parts, request.kl)))
        self.codec = jax.jit(partial(fit_codec, parts))
        self.ranker = make_ranker(parts, request.rank)

    def __call__(
        self, state: TrainState, hypers: Mapping[str, float], key: Key, reference: TrainState | None = None
    ) -> results.GradReport:
        cfg, request = self.parts.cfg, self.request
        chosen, kl_coef = state.learner.reference, hypers.get("ref_kl_coef", 0.0)
        if reference is not None:
            chosen, kl_coef = ReferencePolicy(reference.params, reference.actors.obs_stats), 0.0
        if request.kl_coef is not None:
            kl_coef = request.kl_coef
        results.check_gradient_memory(request, state.params, len(COMPONENTS))
        again = jax.random.clone(key)
        probe = play(self.probers[request.keys == "common"], self.parts, state, key, chosen)
        episodes = probe.episodes
        results.check_returns(episodes.returns)
        if request.keys == "both":
            common = play(self.probers[True], self.parts, state, again)
            episodes = episodes._replace(acted_std=common.episodes.reward_std)
        probe = probe._replace(batch=network_batch(cfg.ppo, state.actors.obs_stats, probe.batch))
        params, stats = self.codec(state, probe.batch)
        scheduled = {name: jnp.float32(value) for name, value in hypers.items()}
        sums_of = partial(self._sums, probe, params, stats, scheduled)
        sums, checks = sums_of(np.arange(request.per_group))
        return self.report(
            episodes,
            self.ranker(probe),
            sums,
            lambda members: sums_of(members)[0],
            coefficients(components(request.kl, chosen is not None), value_weight(cfg.ppo), hypers, kl_coef),
            params,
            results.Consistency(float(checks.ratio_error), float(checks.approx_kl), float(checks.clip_frac)),
        )

    def _sums(self, probe: Probe, params: Params, stats: Stats, hypers: Hypers, members: Ints) -> tuple[Sums, Checks]:
        """Compute the gradients of all groups, over some members of each."""
        request = self.request
        batch = probe.batch._replace(advantage=self._advantage(probe, members))
        group = np.where(np.isin(probe.member, members), probe.group, -1)
        # One width for whole and half groups, so that one program serves both.
        index, real, owner = in_parts(*group_index(batch, group, request.groups), part_width(batch, request.groups))
        whole = GroupBatch(batch, probe.reference)
        found = gather(self.gradients, params, (index, real), whole, stats, hypers, chunk=request.chunk, owner=owner)
        results.check_finite(found.grads)
        each = (np.asarray(batch.weight, np.float64).sum(0)[index] * real).sum(1)
        steps = np.bincount(owner, weights=each, minlength=request.groups).astype(np.float64)
        mean = partial(np.average, weights=np.maximum(each, 1e-9))
        checks = Checks(found.aux.ratio_error.max(), mean(found.aux.approx_kl), mean(found.aux.clip_frac))
        return Sums(found.losses, found.grads, steps, np.full(request.groups, float(len(members)))), checks

    def _advantage(self, probe: Probe, members: Ints) -> Array:
        """Return advantages `[H, N]`, normalised once over the whole probe, so that they do not depend on buckets."""
        kind = self.request.advantage
        if kind == "trainer":
            cfg = self.parts.cfg
            return policy_advantage(cfg.ppo, cfg.algo.gamma, probe.batch, jnp.ones_like(probe.batch.advantage))
        returns = probe.episodes.returns
        per_episode = np.zeros(returns.shape)
        per_episode[:, members] = group_advantages(returns[:, members], kind == "group-std")
        per_row = jnp.asarray(per_episode[probe.group, probe.member], jnp.float32)
        return jnp.broadcast_to(per_row[None], probe.batch.advantage.shape)
