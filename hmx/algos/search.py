"""Search: Gumbel MuZero planning (Danihelka et al. 2022, ICLR) with the environment itself as the model.

The policy proposes actions, the environment plays them, and the value function evaluates the positions where the search
stops. The search draws its own random numbers, so it does not know the outcome of a move; it samples each outcome once,
so it may mistake luck for skill. It does know the whole state, including parts hidden in an observation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp

from hmx.algos.types import Algorithm, Carry, Decision, TrainState
from hmx.config.learning import Sees
from hmx.config.schema import Config
from hmx.envs.belief import as_seen
from hmx.envs.protocol import Env, EnvSpec, EnvState, play, playable
from hmx.errors import HmxError
from hmx.rl import distributions
from hmx.rl.tree_search import Found, Judged, Simulated, search
from hmx.rl.value_codec import symlog
from hmx.types import Array, Key

MAX_CONSIDERED = 16  # actions that the root tries at most, the likeliest ones first
_TINY = 1e-30

SearchAct = Callable[[TrainState, EnvState, Carry, Array, Array, Array, Key], tuple[Decision, Carry]]


class _Position(NamedTuple):
    """A simulated position."""

    env_state: EnvState
    carry: Carry  # after the network has read the position


def check_search(spec: EnvSpec, num_simulations: int) -> None:
    """Raise an error unless the environment allows a search.

    Raises:
        HmxError: no simulations, several agents, or continuous actions.
    """
    if num_simulations < 1:
        raise HmxError(f"cannot search with {num_simulations} simulations", "--search 32")
    what = "continuous actions" if spec.action_dim else f"{spec.num_agents} agents" if spec.num_agents > 1 else ""
    if what:
        raise HmxError(
            f"cannot search in {spec.id}: it has {what}", "search needs one agent that chooses from a list of actions"
        )


def searched(env: Env, sees: Sees, num_simulations: int | None) -> Env:
    """Return the environment to play in with a search, whose states know what it may see; without a search, `env`.

    Raises:
        HmxError: a simulator that cannot be copied.
    """
    if num_simulations is None:
        return env
    env = playable(env, "a search")
    return as_seen(env) if sees == "player" else env


def act_alone(algorithm: Algorithm, greedy: bool) -> SearchAct:
    """Return the policy of an algorithm without search, in the form of a search."""

    def act(
        state: TrainState, env_state: EnvState, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key
    ) -> tuple[Decision, Carry]:
        return algorithm.act(state, carry, obs, legal, reset, key, greedy)

    return act


def make_act(algorithm: Algorithm, env: Env, cfg: Config, num_simulations: int | None, greedy: bool) -> SearchAct:
    """Return `make_search`, or `act_alone` if `num_simulations` is None."""
    if num_simulations is None:
        return act_alone(algorithm, greedy)
    return make_search(algorithm, env, cfg, num_simulations, greedy)


def make_search(
    algorithm: Algorithm, env: Env, cfg: Config, num_simulations: int, greedy: bool = False, training: bool = False
) -> SearchAct:
    """Return `(train state, env state, carry, obs, legal, reset, key) -> (Decision, carry)` that searches.

    The action is sampled approximately from the improved policy, `probs`; `value` comes from the search. An action's
    logit rises by `(gumbel.value_scale + visits) symlog(value)`, with the values of unvisited actions as in appendix D
    of Danihelka et al. They scale the values of a position to [0, 1] instead of taking symlog, which would scale noise
    between equal actions as much as a decision over life and death.

    Args:
        algorithm: its policy and values guide the search.
        env: the environment that is played.
        cfg: the configuration of the algorithm, for its discount.
        num_simulations: steps simulated per decision, at most one per new position.
        greedy: take the best action of the improved policy instead; may repeat itself for ever in a deterministic game.
        training: make `value` that of the network alone, since a search overestimates.

    Raises:
        HmxError: see `check_search`.
    """
    check_search(env.spec, num_simulations)
    gamma, scale = cfg.algo.gamma, algorithm.reward_scale

    def judge(state: TrainState, env_state: EnvState, carry: Carry, obs: Array, legal: Array, reset: Array) -> Judged:
        decision, carry = algorithm.act(state, carry, obs, legal, reset, jax.random.key(0), False)
        log_probs = jnp.where(
            legal[:, 0], jnp.log(jnp.maximum(decision.probs[:, 0], _TINY)), distributions.ILLEGAL
        )  # no value may outweigh this, while one may outweigh a small probability
        return Judged(log_probs, decision.value[:, 0], _Position(env_state, carry))

    def simulate(state: TrainState, key: Key, action: Array, at: _Position) -> Simulated:
        env_state, seen = play(env, at.env_state, action[:, None], jax.random.split(key, action.shape[0]))
        after = judge(state, env_state, at.carry, seen.obs, seen.legal, jnp.zeros_like(seen.terminated))
        beyond = jnp.where(seen.truncated, gamma * after.value, 0.0)  # as training bootstraps at the step limit
        reward = seen.reward[:, 0] * scale + beyond
        return Simulated(reward, jnp.where(seen.terminated | seen.truncated, 0.0, gamma), after)

    def act(
        state: TrainState, env_state: EnvState, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key
    ) -> tuple[Decision, Carry]:
        root = judge(state, env.root(env_state), carry, obs, legal, reset)
        found = search(
            key,
            root,
            legal[:, 0],
            partial(simulate, state),
            partial(_scale, cfg.gumbel.value_scale),
            num_simulations=num_simulations,
            max_considered=MAX_CONSIDERED,
            axes=_Position(env.spec.state_axis, 0),
            greedy=greedy,
        )
        return _decision(found, root.value if training else found.value), root.position.carry

    return act


def _scale(value_scale: float, values: Array, visits: Array) -> Array:
    return (value_scale + visits) * symlog(values)


def _decision(found: Found, value: Array) -> Decision:
    """Return the decision of a search, in an environment of one agent."""
    taken = jnp.take_along_axis(found.probs, found.action[:, None], axis=-1)
    return Decision(
        action=found.action[:, None].astype(jnp.int32),
        log_prob=jnp.log(jnp.maximum(taken, _TINY)),
        probs=found.probs[:, None],
        value=value[:, None],
    )
