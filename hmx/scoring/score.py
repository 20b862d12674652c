"""The scorer: how much it matters what is done in a position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.env.protocol import Env, EnvState
from hmx.scoring.candidates import Candidates, candidates, joint_probs
from hmx.scoring.continuation import Policy
from hmx.scoring.divergences import divergence
from hmx.scoring.options import Options, check
from hmx.scoring.rollouts import repeated, rollouts
from hmx.types import Array, Key


class Positions(NamedTuple):
    """Where something was done: environment states with what their agents saw, and the action taken."""

    env_state: EnvState  # of S environments
    obs: Array  # [S, A, *obs_shape]
    legal: Array  # [S, A, num_actions]
    taken: Array  # int32 [S, A], legal
    id: Array  # uint32 [S]: which position this is, whatever the order; all randomness follows from it


class Outcomes(NamedTuple):
    """What followed K actions in S positions, each tried N times; see `Scores` for `tried`."""

    tried: Candidates
    returns: Array  # [S, K, N]
    null: Array | None  # [S, N]: of the action taken under other random numbers, if the options ask for it
    probs: Array | None  # [S, K]: how likely the policy was to choose the actions, if the options need it
    ended: Array  # [S]: share of rollouts whose episode was over within the horizon
    steps: Array  # int32 [S, K', N]: until the episode was over, or the horizon; K' includes the null


class Scores(NamedTuple):
    """Of S positions with K actions each, the first of them the one taken."""

    score: Array  # [S]: distance of the action taken from its alternatives; 0 where it has none
    halves: Array  # [2, S]: the same from the first and from the second half of the rollouts
    spread: Array  # [S]: between the highest and the lowest mean return of all actions, the one taken included
    null: Array | None  # [S]: distance of the action taken from itself, if the options ask for it
    action: Array  # int32 [S, K, A]
    valid: Array  # bool [S, K]: what is not is to be ignored
    divergence: Array  # [S, K]: from the action taken
    mean: Array  # [S, K]: mean return
    sd: Array  # [S, K]: standard deviation of the returns
    ended: Array  # [S]: share of rollouts whose episode was over within the horizon


def score(
    env: Env,
    policy: Policy,
    params: Any,
    positions: Positions,
    key: Key,
    options: Options,
    horizon: int | Array | None = None,
) -> Scores:
    """Compare the action taken with its alternatives by the returns that follow them: `play`, then `compare`.

    A position's scores depend on the key and its `id`, not on which others are scored with it (as far as the policy's
    arithmetic does not depend on the size of its batch).

    Args:
        env: the environment, which resets itself.
        policy: how play goes on.
        params: of the policy.
        positions: what to score.
        key: spent here.
        options: what is compared, and how.
        horizon: steps of each rollout, if not those of the options; may be traced.

    Raises:
        HmxError: the options cannot work with this environment or policy.
    """
    return compare(play(env, policy, params, positions, key, options, horizon), options)


def make_scorer(env: Env, policy: Policy, options: Options) -> Callable[[Any, Positions, Key], Scores]:
    """`score` compiled, for `(params, positions, key)`; compiled anew for another number of positions.

    Raises:
        HmxError: the options cannot work with this environment or policy.
    """
    check(options, env.spec, policy.probs is not None, policy.value is not None)
    return jax.jit(lambda params, positions, key: score(env, policy, params, positions, key, options))


def play(
    env: Env,
    policy: Policy,
    params: Any,
    positions: Positions,
    key: Key,
    options: Options,
    horizon: int | Array | None = None,
) -> Outcomes:
    """Try the action taken and its alternatives; arguments as of `score`.

    Raises:
        HmxError: the options cannot work with this environment or policy.
    """
    check(options, env.spec, policy.probs is not None, policy.value is not None)
    k_actions, k_rollouts = own_keys(key, positions.id)
    probs = policy.probs(params, positions.obs, positions.legal) if policy.probs and options.needs_probs else None
    tried = candidates(options, env.spec, positions.taken, positions.legal, k_actions, probs)
    num, actions, agents = tried.action.shape
    action, rollout = tried.action, jnp.arange(options.rollouts)
    streams = jnp.broadcast_to(rollout[None], (actions, options.rollouts))
    if not options.crn:
        streams = streams + options.rollouts * jnp.arange(actions)[:, None]
    if options.needs_null:
        action = jnp.concatenate([action, positions.taken[:, None]], 1)
        streams = jnp.concatenate([streams, options.rollouts * actions + rollout[None]])
    fold = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    played = rollouts(
        env,
        policy,
        params,
        repeated(env, positions.env_state, streams.size),
        jnp.repeat(action, options.rollouts, axis=1).reshape(num * streams.size, agents),
        jax.vmap(fold, in_axes=(0, None))(k_rollouts, streams.reshape(-1)).reshape(-1),
        options,
        options.horizon if horizon is None else horizon,
    )
    returns = played.total.reshape(num, -1, options.rollouts)
    return Outcomes(
        tried,
        returns[:, :actions],
        null=returns[:, actions] if options.needs_null else None,
        probs=None if probs is None else joint_probs(probs, tried.action),
        ended=played.ended.reshape(num, -1).mean(1),
        steps=played.steps.reshape(returns.shape),
    )


def compare(outcomes: Outcomes, options: Options) -> Scores:
    """Scores from what was played: of the options, metric, aggregate and bins matter.

    So the same rollouts can be compared in several ways.
    """
    tried, returns = outcomes.tried, outcomes.returns
    # what is not valid repeats the action taken, perhaps under other random numbers: it must not set the bins
    returns = jnp.where(tried.valid[..., None], returns, returns[:, :1])
    weights = tried.valid.at[:, 0].set(False).astype(jnp.float32)
    if options.aggregate == "policy":
        assert outcomes.probs is not None
        weights = weights * outcomes.probs
    half = max(options.rollouts // 2, 1)

    def halves(x: Array) -> Array:
        return jnp.concatenate([x[..., :half], x[..., -half:]])

    half_null = None if outcomes.null is None else halves(outcomes.null)
    by_half = _distances(halves(returns), half_null, options)[0]
    distances, null = _distances(returns, outcomes.null, options)
    mean = returns.mean(-1)
    highest = jnp.where(tried.valid, mean, -jnp.inf).max(1)
    return Scores(
        score=aggregated(distances, weights, options.aggregate),
        halves=aggregated(by_half, jnp.tile(weights, (2, 1)), options.aggregate).reshape(2, -1),
        spread=highest - jnp.where(tried.valid, mean, jnp.inf).min(1),
        null=null,
        action=tried.action,
        valid=tried.valid,
        divergence=jnp.where(tried.valid, distances, 0.0),
        mean=mean,
        sd=returns.std(-1),
        ended=outcomes.ended,
    )


def own_keys(key: Key, ids: Array) -> tuple[Key, Key]:
    """The keys of each position, `[S]`: for the choice of actions, and for the rollouts."""
    own = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, ids)
    stream = jax.vmap(jax.random.fold_in, in_axes=(0, None))
    return stream(own, 0), stream(own, 1)


def aggregated(divergences: Array, weights: Array, aggregate: str) -> Array:
    """One number per position, `[S]`, from `[S, K]` distances; 0 where no weight is above 0.

    Args:
        divergences: of each action from the one taken.
        weights: `[S, K]`, 0 for what does not count, the action taken included.
        aggregate: `max`, or else the mean with these weights.
    """
    if aggregate == "max":
        return jnp.where(weights > 0.0, divergences, 0.0).max(1)
    total = weights.sum(1)
    return jnp.where(weights > 0.0, weights * divergences, 0.0).sum(1) / jnp.where(total > 0.0, total, 1.0)


def _distances(returns: Array, null: Array | None, options: Options) -> tuple[Array, Array | None]:
    """Distances `[S, K]` from the action taken, corrected if the metric says so; and that of the null `[S]`."""
    actions = returns.shape[1]
    others = returns if null is None else jnp.concatenate([returns, null[:, None]], 1)
    distances = jax.vmap(lambda x: divergence(options.metric, x[0], x, options.num_bins))(others)
    if null is None:
        return distances, None
    itself = distances[:, actions]
    if options.is_corrected:
        distances = jnp.maximum(distances - itself[:, None], 0.0)
    return distances[:, :actions], itself
