"""The policy that continues after the compared action, and rollouts of actions from stored positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from hmx.config.learning import ContinuationKind
from hmx.envs.protocol import Env, EnvState, folded, take
from hmx.rl import distributions
from hmx.scoring.options import ScoreOptions
from hmx.types import Timestep


class Continuation(NamedTuple):
    """A policy as scoring uses it. Rows are independent of each other, so each has its own key.

    - `act(params, obs [B, A, ...], legal [B, A, num_actions], keys [B]) -> action [B, A]`.
    - `probs(params, obs, legal) -> [B, A, num_actions]`, 0 where illegal; None if the policy has none.
    - `value(params, obs, legal) -> [B]`, of the team; None if the policy has none.
    """

    act: Callable[[Any, Array, Array, Array], Array]
    probs: Callable[[Any, Array, Array], Array] | None = None
    value: Callable[[Any, Array, Array], Array] | None = None


def make_continuation(
    preferences: Callable[[Any, Array], Array],
    kind: ContinuationKind,
    parameter: float,
    value: Callable[[Any, Array, Array], Array] | None = None,
) -> Continuation:
    """Make a policy from `preferences`, action values or logits: `(params, obs [B, A, ...]) -> [B, A, num_actions]`.

    `greedy` takes the legal action with the highest preference, `softmax` samples from preferences divided by
    `parameter`, and `epsilon` is greedy, but each agent acts at random with probability `parameter`.
    """

    def probs(params: Any, obs: Array, legal: Array) -> Array:
        values = preferences(params, obs)
        if kind == "softmax":
            return distributions.probs(values / parameter, legal)
        return distributions.epsilon_probs(values, legal, parameter)

    def act(params: Any, obs: Array, legal: Array, keys: Array) -> Array:
        values = preferences(params, obs)
        if kind == "softmax":
            return jax.vmap(distributions.sample)(keys, values / parameter, legal)
        if kind == "greedy":
            return distributions.mode(values, legal)
        return jax.vmap(distributions.epsilon_greedy, in_axes=(0, 0, 0, None))(keys, values, legal, parameter)

    # A greedy policy gives alternatives probability 0: with its weights every score would be 0.
    return Continuation(act, None if kind == "greedy" else probs, value)


_REDRAW = 2**31  # the stream of hidden parts, beyond those of steps
_WINS = "wins_sum"  # what an environment reports at a victory


class Returns(NamedTuple):
    """Results of B rollouts."""

    total: Float[Array, " B"]  # discounted rewards, plus the value of truncated rollouts if bootstrapped
    ended: Bool[Array, " B"]  # the episode ended within the horizon
    steps: Int[Array, " B"]  # until the end of the episode, or the horizon
    won: Bool[Array, " B"] | None = None  # within the horizon; None if the environment counts no wins


class _Play(NamedTuple):
    env_state: EnvState
    action: Array  # [B, A]: the next action
    step: Array  # int32: steps played
    steps: Array  # int32 [B]: steps before the episode ended
    total: Array
    discount: Array  # of the next reward
    ended: Array
    terminated: Array
    last: tuple[Array, Array] | None  # the observation to bootstrap from, and its legal actions
    won: Array | None  # bool [B]


def rollouts(
    env: Env,
    policy: Continuation,
    params: Any,
    env_state: EnvState,
    action: Int[Array, "B A"],
    keys: Key[Array, " B"],
    options: ScoreOptions,
    horizon: int | Int[Array, ""],
) -> Returns:
    """Play one action and then the policy, until every episode has ended or the horizon is reached.

    Environments reset themselves; rewards of the next episode do not count. With `options.redrawn`, parts of the states
    that the player cannot see are drawn again first, equally for equal keys.
    """
    if options.redrawn and env.spec.redrawn is not None:
        env_state = env.spec.redrawn(env_state, folded(keys, jnp.uint32(_REDRAW)))

    def play(now: _Play) -> _Play:
        env_state, timestep = env.step(now.env_state, now.action, folded(keys, 2 * now.step))
        chosen = policy.act(params, timestep.obs, timestep.legal, folded(keys, 2 * now.step + 1))
        return _advanced(now, env_state, timestep, chosen, options)

    start = _start(env, env_state, action, keys, options)
    end = jax.lax.while_loop(lambda now: (now.step < horizon) & ~now.ended.all(), play, start)
    total = end.total
    if end.last is not None:
        assert policy.value is not None
        value = policy.value(params, *end.last)
        total = total + jnp.where(end.terminated, 0.0, end.discount * value)
    return Returns(total, end.ended, end.steps, end.won)


def _start(env: Env, env_state: EnvState, action: Array, keys: Array, options: ScoreOptions) -> _Play:
    zero, no = jnp.zeros(keys.shape, jnp.float32), jnp.zeros(keys.shape, bool)
    last = None
    shown: Timestep = jax.eval_shape(env.step, env_state, action, keys)[1]
    won = no if _WINS in shown.info else None
    if options.bootstrap:
        last = jnp.zeros(shown.obs.shape, shown.obs.dtype), jnp.zeros(shown.legal.shape, bool)
    return _Play(
        env_state, action, jnp.int32(0), jnp.zeros_like(no, jnp.int32), zero, jnp.ones_like(zero), no, no, last, won
    )


def _advanced(now: _Play, env_state: EnvState, timestep: Timestep, chosen: Array, options: ScoreOptions) -> _Play:
    reward = timestep.reward.mean(-1) if options.team_reward == "mean" else timestep.reward.sum(-1)
    going = ~now.ended
    won = None if now.won is None else now.won | (going & (timestep.info[_WINS] > 0))
    last = None
    if now.last is not None:
        last = _where(going, timestep.final_obs, now.last[0]), _where(going, timestep.final_legal, now.last[1])
    return _Play(
        env_state,
        chosen,
        now.step + 1,
        now.steps + going,
        total=now.total + jnp.where(going, now.discount * reward, 0.0),
        discount=jnp.where(going, now.discount * options.gamma, now.discount),
        ended=now.ended | timestep.terminated | timestep.truncated,
        terminated=now.terminated | (going & timestep.terminated),
        last=last,
        won=won,
    )


def repeated(env: Env, env_state: EnvState, times: int) -> EnvState:
    """Repeat each state `times` times in a row."""
    leaf = jax.tree.leaves(env_state)[0]
    return take(env.spec, env_state, jnp.repeat(jnp.arange(leaf.shape[env.spec.state_axis]), times))


def _where(condition: Array, then: Array, other: Array) -> Array:
    return jnp.where(condition.reshape(condition.shape + (1,) * (then.ndim - 1)), then, other)
