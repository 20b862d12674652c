"""The gradient report of one train state of Q-learning: the TD loss of episodes played for the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.collector import play_step
from hmx.algos.dqn import gradient_terms as q_terms
from hmx.algos.dqn.learning import DqnComponents
from hmx.algos.dqn.replay_gradients import ReplayReporter
from hmx.algos.dqn.update import DqnState, decide, make_dqn_components
from hmx.algos.gradients import results
from hmx.algos.gradients.buckets import Bools, Host, Ints
from hmx.algos.gradients.measures import Sums
from hmx.algos.gradients.probe import (
    AT_ONCE,
    ProbeEpisodes,
    Prober,
    episodes_of,
    grouped,
    make_begin,
    play_rollouts,
    steps_at_most,
    third,
)
from hmx.algos.gradients.ranking import Figure, of_episodes
from hmx.algos.gradients.request import ProbeRequest, check_q
from hmx.algos.gradients.stored import Stored
from hmx.algos.types import Carry, Decision, Params, RolloutState
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.replay import Experience, ReplayState, experience
from hmx.replay.offline import history
from hmx.types import Array, Key


class Player(NamedTuple):
    """The policy that fills the buffer at this point of the run."""

    params: Params
    epsilon: Array


class Steps(NamedTuple):
    """The stored part of each step, `[T, E, ...]`."""

    reset_t: Array
    items: Experience
    log_prob_t: Array  # [T, E, A]
    value_t: Array  # [T, E, A]: of the best legal action


class Recording(NamedTuple):
    """Steps under the name that `play_rollouts` expects."""

    transitions: Steps


class QProbe(NamedTuple):
    """`G` groups of `K` episodes; slot `t E + e` is step t of environment e, and environment e is in group `e // K`."""

    history: ReplayState  # all steps
    log_prob: Array  # [T E, A]: of the action, when it was taken
    value: Array  # [T E, A]: of the best action at that time
    counts: Bools  # [T, E]: whether the step is part of the first episode
    episodes: ProbeEpisodes


def make_q_prober(parts: DqnComponents, request: ProbeRequest, common: bool, stored: Stored | None) -> Prober:
    """Build the parts of a probe as `make_prober` does."""
    together = grouped(parts.env, request.per_group, common)
    limit = steps_at_most(parts.env, request.max_length)
    num_steps = min(limit, AT_ONCE)

    def play(player: Player, actors: RolloutState, key: Key) -> tuple[RolloutState, Recording]:
        def act(carry: Carry, obs: Array, legal: Array, reset: Array, k_act: Key) -> tuple[Decision, Carry]:
            return decide(parts, player.params, player.epsilon, obs, legal, k_act), carry

        def step(actors: RolloutState, number: Array) -> tuple[RolloutState, Steps]:
            after, (decision, timestep, _) = play_step(together, act, actors, jax.random.fold_in(key, number))
            items = experience(actors.obs, actors.legal, actors.agent_done, decision.action, timestep)
            return after, Steps(actors.reset, items, decision.log_prob, decision.value)

        actors, steps = jax.lax.scan(step, actors, jnp.arange(num_steps))
        return actors, Recording(steps)

    begin = make_begin(together, request, (), stored)
    return Prober(begin, jax.jit(play), None, num_steps, limit, (), request.groups, request.per_group)


def play_q(prober: Prober, player: Player, key: Key) -> QProbe:
    """Play until every environment has ended its first episode, or the limit of the probe is reached."""
    rollouts, ended = play_rollouts(prober, player, key)
    steps = _joined(rollouts)
    first = np.cumsum(np.asarray(steps.reset_t), axis=0) <= 1
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps)
    return QProbe(
        history=history(flat.items, jnp.arange(first.size, dtype=jnp.uint32)),
        log_prob=flat.log_prob_t,
        value=flat.value_t,
        counts=first,
        episodes=episodes_of(prober, steps.reset_t, steps.items.reward_tp1, steps.items.obs_t[0], ended),
    )


@jax.jit
def _joined(seen: list[Recording]) -> Steps:
    joined: Steps = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(part.transitions for part in seen))
    return joined


def make_q_reporter(cfg: Config, env: Env, request: ProbeRequest, stored: Stored | None) -> results.Reporter:
    """Build the reporter of episodes, or of stored transitions; see `hmx.algos.gradients.reporter`."""
    check_q(request)
    components = make_dqn_components(cfg, env)
    if request.replay:
        return ReplayReporter(components, request, stored)
    return QReporter(components, request, stored)


class QReporter(results.EpisodeReporter):
    """Report as `make_reporter` says on train states of Q-learning, with episodes of the run's current policy.

    It explores as in the next update, so its episodes are those that would enter the buffer.
    """

    def __init__(self, components: DqnComponents, request: ProbeRequest, stored: Stored | None) -> None:
        super().__init__(components.cfg.algo, request, stored)
        self.parts = parts = q_terms.with_num_envs(components, request.groups * request.per_group)
        # by whether the keys of steps are common
        self.probers = {common: make_q_prober(parts, request, common, stored) for common in (False, True)}
        self.functions = q_terms.make_td_functions(parts, False, request.chunk)
        self.recheck = jax.jit(partial(_recheck, parts))

    def __call__(
        self, state: DqnState, hypers: Mapping[str, float], key: Key, reference: Params | None = None
    ) -> results.GradReport:
        """Report on `state`."""
        request = self.request
        results.check_no_reference(reference)
        results.check_gradient_memory(request, state.params, len(q_terms.COEFS))
        player = Player(state.params, jnp.float32(hypers["epsilon"]))
        again = jax.random.clone(key)
        probe = play_q(self.probers[request.keys == "common"], player, key)
        episodes = probe.episodes
        results.check_returns(episodes.returns)
        if request.keys == "both":
            common = play_q(self.probers[True], player, again)
            episodes = episodes._replace(acted_std=common.episodes.reward_std)
        slots = np.flatnonzero(probe.counts)
        target_params = state.learner.target_params
        found = q_terms.td_targets_of(self.functions, state.params, target_params, probe.history, slots)
        target = np.zeros(probe.counts.size, np.float32)
        target[slots] = found.target
        sums_of = partial(self._sums, probe, state.params, target)
        played = (probe.history.items, probe.log_prob, probe.value)
        ratio_error, value_error = q_terms.in_blocks(partial(self.recheck, player, played), slots)
        report = self.report(
            episodes,
            self._figure(probe, found, slots),
            sums_of(np.arange(request.per_group)),
            sums_of,
            q_terms.COEFS,
            state.params,
            results.Consistency(ratio_error=float(ratio_error.max()), value_error=float(value_error.max())),
        )
        return replace(report, epsilon=float(player.epsilon))

    def _sums(self, probe: QProbe, params: Params, target: Host, members: Ints) -> Sums:
        """Compute the gradients of all groups, over some members of each; `target` is by slot, `[T E]`."""
        request = self.request
        env = np.arange(probe.counts.shape[1])
        group, member = env // request.per_group, env % request.per_group
        chosen = probe.counts & np.isin(member, members)
        groups = [np.flatnonzero((chosen & (group == g)).reshape(-1)) for g in range(request.groups)]
        # One width for whole and half groups, so that one program serves both.
        width = third(int(probe.counts.sum()), request.groups)
        items, ones = probe.history.items, np.ones_like(target)
        found = q_terms.group_gradients(self.functions, params, items, groups, target, ones, width)
        steps = np.array([len(slots) for slots in groups], np.float64)
        return Sums(found.losses, found.grads, steps, np.full(request.groups, float(len(members))))

    def _figure(self, probe: QProbe, found: q_terms.TdTargets, slots: Ints) -> Figure | None:
        """Return the values that rank the groups; None for `reward_std`."""
        by, shape = self.request.rank, probe.episodes.returns.shape
        if by == "td":
            total = np.zeros(probe.counts.size)
            total[slots] = np.abs(found.td_error)
            count = probe.counts.sum(0).reshape(shape).astype(np.float64)
            return Figure(total.reshape(probe.counts.shape).sum(0).reshape(shape) / np.maximum(count, 1.0), count)
        return of_episodes(by, probe.episodes)


def _recheck(
    parts: DqnComponents, player: Player, played: tuple[Experience, Array, Array], index: Array
) -> tuple[Array, Array]:
    """Return `|ratio - 1|` of recomputed probabilities and the difference of recomputed values, `[n]`."""
    items, log_prob, value = jax.tree.map(lambda leaf: leaf[index], played)
    again = decide(parts, player.params, player.epsilon, items.obs_t, items.legal_t, jax.random.key(0))
    taken = jnp.take_along_axis(again.probs, items.action_t[..., None], axis=-1)[..., 0]
    ratio = jnp.where(items.alive_t, jnp.abs(taken / jnp.exp(log_prob) - 1.0), 0.0)
    return ratio.max(-1), jnp.where(items.alive_t, jnp.abs(again.value - value), 0.0).max(-1)
