"""Updates whose environments the host steps: simulators in worker processes.

The policy acts in a compiled program per step, and everything after the rollout is one program: the book-keeping that
`hmx.algos.collector` does in every step, then the same learning as for environments in JAX.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.algos.collector import Policy, Rollout, advance, hold_first_episodes
from hmx.algos.metrics import over_time
from hmx.algos.types import Carry, Decision, HostedUpdate, Hypers, RolloutState, TrainState
from hmx.envs.protocol import EnvSpec
from hmx.types import Array, Key, Metrics, Timestep, Transition

Learn = Callable[[Any, Key, RolloutState, Rollout, Metrics, Hypers], tuple[Any, Metrics]]


class HostedRollout(NamedTuple):
    """What the host saw in `T` steps of `E` environments with one agent."""

    transitions: Transition  # [T, E, ...]; without `alive_t`
    action_t: Array  # [T, E, A, ...], as the simulators took it
    obs_last: Array  # [E, A, *obs_shape]: after the last step
    legal_last: Array  # [E, A, num_actions]
    carry: Carry  # [S, E, A, ...]: before each of S sequences
    carry_last: Carry  # [E, A, ...]


def hosted_update(
    spec: EnvSpec,
    policy_of: Callable[[Any], Policy],
    keys: Callable[[Any], tuple[Key, Key]],
    learn_from: Learn,
    horizon: int,
) -> HostedUpdate:
    """Divide an update into the parts that the host calls.

    Args:
        spec: spec of the environment.
        policy_of: policy and value function of a state.
        keys: keys of the rollout and of learning, for the next update of a state.
        learn_from: the update after its rollout: `(state, key, actors, rollout, metrics, hypers)`.
        horizon: steps of a training sequence.
    """

    def decide(
        acting: TrainState, carry: Carry, obs: Array, legal: Array, reset: Array, step: Array
    ) -> tuple[Decision, Carry]:
        k_rollout, _ = keys(acting)
        decision, carry = policy_of(acting).act(carry, obs, legal, reset, jax.random.fold_in(k_rollout, step))
        return decision._replace(probs=None), carry  # type: ignore[arg-type]  # not fetched, so not computed

    def value(acting: TrainState, carry: Carry, obs: Array) -> Array:
        return policy_of(acting).value(carry, obs, jnp.zeros(obs.shape[:1], bool))

    def learn(state: TrainState, seen: HostedRollout, hypers: Hypers) -> tuple[TrainState, Metrics]:
        _, k_learn = keys(state)
        actors, metrics = _advance_all(spec, state.actors, seen)
        value_last = policy_of(state).value(actors.carry, actors.obs, actors.reset)
        alive = jnp.ones_like(seen.transitions.reward_tp1, bool)
        rollout = Rollout(seen.transitions._replace(alive_t=alive), seen.carry, value_last, actors.obs, actors.reset)
        after, learned_metrics = learn_from(state, k_learn, actors, rollout, metrics, hypers)
        return after, learned_metrics

    return HostedUpdate(_acting, decide, value, learn, horizon)


def _acting(state: TrainState) -> TrainState:
    """Drop the parts of a state that the policy does not read; a call with fewer arrays is faster."""
    unread: dict[str, Any] = dict.fromkeys(
        ("env_state", "obs", "legal", "episode", "carry", "reset", "agent_done", "starts", "first", "reference_carry")
    )
    learner = state.learner._replace(reference=None)
    return state._replace(opt_state=None, actors=state.actors._replace(**unread), learner=learner)


def _advance_all(spec: EnvSpec, before: RolloutState, seen: HostedRollout) -> tuple[RolloutState, Metrics]:
    """Return the actors after a rollout, and its metrics, as the collector does step by step."""

    def one(actors: RolloutState, step: tuple[Array, Array, Array, Array]) -> tuple[RolloutState, Metrics]:
        action, reward, terminated, truncated = step
        shown = actors.obs, actors.legal, actors.obs, actors.legal  # replaced by the last ones below
        terms = {name: reward.sum(-1) for name in spec.reward_terms}
        ends = terminated[:, 0], truncated[:, 0], terminated
        return advance(spec, actors, action, Timestep(*shown, reward, *ends, terms, {}))

    all_t = seen.transitions
    steps = seen.action_t, all_t.reward_tp1, all_t.terminated_tp1, all_t.truncated_tp1
    actors, metrics = jax.lax.scan(one, before, steps)
    actors, metrics = hold_first_episodes(actors, over_time(metrics))
    return actors._replace(obs=seen.obs_last, legal=seen.legal_last, carry=seen.carry_last), metrics
