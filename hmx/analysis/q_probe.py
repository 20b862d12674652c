"""The probe of Q-learning: several episodes from each of several start states, as a replay buffer of their own."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.collector import play_step
from hmx.agents.dqn import decide
from hmx.agents.q_learning import DqnComponents
from hmx.agents.types import Carry, Decision, Params, RolloutState
from hmx.analysis.buckets import Bools
from hmx.analysis.probe import (
    AT_ONCE,
    ProbeEpisodes,
    Prober,
    episodes_of,
    grouped,
    make_begin,
    play_rollouts,
    steps_at_most,
)
from hmx.analysis.stored import Stored
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


def make_q_prober(
    parts: DqnComponents, *, num_groups: int, per_group: int, limit: int, common: bool, stored: Stored | None
) -> Prober:
    """Build the parts of a probe as `make_prober` does."""
    env = parts.env
    together = grouped(env, per_group, common)
    limit = steps_at_most(env, limit)
    num_steps = min(limit, AT_ONCE)

    def play(player: Player, actors: RolloutState, key: Key) -> tuple[RolloutState, Recording]:
        def act(carry: Carry, obs: Array, legal: Array, reset: Array, k_act: Key) -> tuple[Decision, Carry]:
            return decide(parts, player.params, player.epsilon, carry, obs, legal, k_act), carry

        def step(actors: RolloutState, number: Array) -> tuple[RolloutState, Steps]:
            after, (decision, timestep, _) = play_step(together, act, actors, jax.random.fold_in(key, number))
            items = experience(actors.obs, actors.legal, actors.agent_done, decision.action, timestep)
            return after, Steps(actors.reset, items, decision.log_prob, decision.value)

        actors, steps = jax.lax.scan(step, actors, jnp.arange(num_steps))
        return actors, Recording(steps)

    begin = make_begin(together, num_groups, per_group, (), stored)
    return Prober(begin, jax.jit(play), None, num_steps, limit, (), num_groups, per_group)


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
