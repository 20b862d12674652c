"""The probe of Q-learning: several episodes from each of several start states, as a replay buffer of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.collector import Actors, play_step
from hmx.agents.dqn import decide
from hmx.agents.q_learning import Parts
from hmx.agents.types import Decision, Params
from hmx.analysis.buckets import Floats
from hmx.analysis.probe import AT_ONCE, Prober, grouped, make_begin, rollouts, steps_at_most
from hmx.analysis.stored import Stored
from hmx.replay import Experience, ReplayState, experience
from hmx.replay.offline import history
from hmx.types import Array, Key

Host = np.ndarray[Any, Any]


class Player(NamedTuple):
    """Who plays: the policy that fills the buffer at that moment of the run."""

    params: Params
    epsilon: Array


class Steps(NamedTuple):
    """What is kept of a step, `[T, E, ...]`."""

    reset_t: Array
    items: Experience
    log_prob_t: Array  # [T, E, A]
    value_t: Array  # [T, E, A]: of the best legal action


class Recording(NamedTuple):
    """Steps by the name that `rollouts` looks for."""

    transitions: Steps


class QProbe(NamedTuple):
    """`G` groups of `K` episodes; slot `t E + e` is step t of environment e, and environment e is in group `e // K`."""

    history: ReplayState  # all that was played
    log_prob: Array  # [T E, A]: of the action taken, when it was taken
    value: Array  # [T E, A]: of the best action then
    counts: Host  # [T, E] bool: of the first episode
    returns: Floats  # [G, K]: undiscounted, summed over agents
    lengths: Floats  # [G, K]
    cut: Host  # [G, K] bool: the probe ended before the episode did
    one_start: bool


def make_q_prober(
    parts: Parts, *, num_groups: int, per_group: int, limit: int, common: bool, stored: Stored | None
) -> Prober:
    """Compiles nothing yet; arguments as of `make_prober`."""
    env = parts.env
    together = grouped(env, per_group, common)
    limit = steps_at_most(env, limit)
    num_steps = min(limit, AT_ONCE)

    def go_on(player: Player, actors: Actors, key: Key) -> tuple[Actors, Recording]:
        def act(carry: Any, obs: Array, legal: Array, reset: Array, k_act: Key) -> tuple[Decision, Any]:
            return decide(parts, player.params, player.epsilon, carry, obs, legal, k_act), carry

        def step(actors: Actors, number: Array) -> tuple[Actors, Steps]:
            after, (decision, timestep, _) = play_step(together, act, actors, jax.random.fold_in(key, number))
            items = experience(actors.obs, actors.legal, actors.agent_done, decision.action, timestep)
            return after, Steps(actors.reset, items, decision.log_prob, decision.value)

        actors, steps = jax.lax.scan(step, actors, jnp.arange(num_steps))
        return actors, Recording(steps)

    begin = make_begin(together, num_groups, per_group, (), stored)
    return Prober(begin, jax.jit(go_on), None, num_steps, limit, (), num_groups, per_group)


def play_q(prober: Prober, player: Player, key: Key) -> QProbe:
    """Plays until every environment has ended its first episode, or the limit of the probe is reached.

    Args:
        prober: of `make_q_prober`.
        player: only read.
        key: of this probe alone.
    """
    seen, ended = rollouts(prober, player, key)
    steps = _joined(seen)
    shape = (prober.num_groups, prober.per_group)
    num_envs = shape[0] * shape[1]
    first = np.cumsum(np.asarray(steps.reset_t), axis=0) <= 1
    reward = np.where(first, np.asarray(steps.items.reward_tp1, np.float64), 0.0)
    begins = np.asarray(steps.items.obs_t[0]).reshape(*shape, -1)[:, 0]
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), steps)
    return QProbe(
        history=history(flat.items, jnp.arange(len(first) * num_envs, dtype=jnp.uint32)),
        log_prob=flat.log_prob_t,
        value=flat.value_t,
        counts=first,
        returns=reward.sum(0).reshape(shape),
        lengths=first.sum(0).astype(np.float64).reshape(shape),
        cut=~ended.reshape(shape),
        one_start=shape[0] > 1 and bool((begins == begins[:1]).all()),
    )


@jax.jit
def _joined(seen: list[Recording]) -> Steps:
    joined: Steps = jax.tree.map(lambda *parts: jnp.concatenate(parts), *(part.transitions for part in seen))
    return joined
