"""The scorer: how much the choice of an action matters in a position, as a distance between two sets of returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, UInt

from hmx.config.learning import Aggregate, Metric
from hmx.envs.protocol import Env, EnvSpec, EnvState, folded
from hmx.scoring.options import Candidates, ScoreOptions, candidates, check_options, joint_probs
from hmx.scoring.rollouts import Continuation, repeated, rollouts

NUM_BINS = 16  # bins of `tv_bins` and `js_bins`, between the smallest and the largest return of a position

_TIE = 1e-6  # returns that differ by less, as a share of the largest, count as equal


class Positions(NamedTuple):
    """Environment states with the observations of their agents and the actions taken."""

    env_state: EnvState  # of S environments
    obs: Array  # [S, A, *obs_shape]
    legal: Bool[Array, "S A num_actions"]
    taken: Int[Array, "S A"]  # legal
    id: UInt[Array, " S"]  # names the position and determines its random numbers, in any order of the positions
    tried: Candidates | None = None  # actions to try; None: chosen by the options


class Outcomes(NamedTuple):
    """Results of trying K actions in S positions, N times each; see `Scores` for `tried`."""

    tried: Candidates
    returns: Float[Array, "S K N"]
    null: Float[Array, "S N"] | None  # of the action taken with other random numbers, if the options ask for it
    probs: Float[Array, "S K"] | None  # of the policy for these actions, if the options need them
    ended: Float[Array, " S"]  # share of rollouts whose episode ended within the horizon
    steps: Int[Array, "S _ N"]  # until the end of the episode, or the horizon; includes the null
    won: Bool[Array, "S K N"] | None = None  # None if the environment counts no wins


class Scores(NamedTuple):
    """Scores of S positions with K actions each, the first of them the one taken."""

    score: Float[Array, " S"]  # distance of the action taken from its alternatives; 0 without alternatives
    halves: Float[Array, "2 S"]  # the same from the first and from the second half of the rollouts
    bias: Float[Array, " S"]  # estimated part of an uncorrected score that comes from the noise of the rollouts
    spread: Float[Array, " S"]  # highest minus lowest mean return of all actions, including the one taken
    null: Float[Array, " S"] | None  # noise floor: distance of the action taken from itself, if the options ask for it
    action: Int[Array, "S K A"]
    valid: Bool[Array, "S K"]  # ignore other entries
    divergence: Float[Array, "S K"]  # from the action taken
    mean: Float[Array, "S K"]  # mean return
    sd: Float[Array, "S K"]  # standard deviation of the returns
    ended: Float[Array, " S"]  # share of rollouts whose episode ended within the horizon


def score(
    env: Env, policy: Continuation, params: Any, positions: Positions, key: Key[Array, ""], options: ScoreOptions
) -> Scores:
    """Compare the action taken with its alternatives by the returns that follow them: `play`, then `compare`.

    The scores of a position depend on the key and its `id`, not on the other positions (as far as the policy's
    arithmetic does not depend on its batch size).
    """
    return compare(play(env, policy, params, positions, key, options), options)


def make_scorer(
    env: Env, policy: Continuation, options: ScoreOptions
) -> Callable[[Any, Positions, Key[Array, ""]], Scores]:
    """Compile `score` for `(params, positions, key)`."""
    check_options(options, env.spec, policy.probs is not None, policy.value is not None)
    return jax.jit(lambda params, positions, key: score(env, policy, params, positions, key, options))


def play(
    env: Env,
    policy: Continuation,
    params: Any,
    positions: Positions,
    key: Key[Array, ""],
    options: ScoreOptions,
    horizon: int | Int[Array, ""] | None = None,
) -> Outcomes:
    """Try the action taken and its alternatives; `horizon` replaces that of the options and may be traced."""
    check_options(options, env.spec, policy.probs is not None, policy.value is not None)
    k_actions, k_rollouts = own_keys(key, positions.id)
    probs = policy.probs(params, positions.obs, positions.legal) if policy.probs and options.needs_probs else None
    tried = positions.tried
    if tried is None:
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
        won=None if played.won is None else played.won.reshape(returns.shape)[:, :actions],
    )


def compare(outcomes: Outcomes, options: ScoreOptions) -> Scores:
    """Compute scores from rollouts; only the options metric, aggregate and correction matter.

    The same rollouts can be compared in several ways.
    """
    tried, returns = outcomes.tried, outcomes.returns
    # Entries that are not valid repeat the action taken, perhaps with other random numbers, so they must not determine
    # the bins.
    returns = jnp.where(tried.valid[..., None], returns, returns[:, :1])
    weights = tried.valid.at[:, 0].set(False).astype(jnp.float32)
    if options.aggregate == "policy":
        assert outcomes.probs is not None
        weights = weights * outcomes.probs
    half = max(options.rollouts // 2, 1)

    def halves(x: Array) -> Array:
        return jnp.concatenate([x[..., :half], x[..., -half:]])

    half_null = None if outcomes.null is None else halves(outcomes.null)
    by_half = _compare(halves(returns), half_null, jnp.tile(weights, (2, 1)), options)
    found = _compare(returns, outcomes.null, weights, options)
    mean = returns.mean(-1)
    highest = jnp.where(tried.valid, mean, -jnp.inf).max(1)
    return Scores(
        score=found.score,
        halves=by_half.score.reshape(2, -1),
        bias=found.bias,
        spread=highest - jnp.where(tried.valid, mean, jnp.inf).min(1),
        null=found.null,
        action=tried.action,
        valid=tried.valid,
        divergence=jnp.where(tried.valid, found.divergence, 0.0),
        mean=mean,
        sd=returns.std(-1),
        ended=outcomes.ended,
    )


def own_keys(key: Key[Array, ""], ids: UInt[Array, " S"]) -> tuple[Key[Array, " S"], Key[Array, " S"]]:
    """Derive the keys of each position: for the choice of actions, and for the rollouts."""
    own = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, ids)
    return folded(own, 0), folded(own, 1)


def aggregated(
    divergences: Float[Array, "S K"], weights: Float[Array, "S K"], aggregate: Aggregate
) -> Float[Array, " S"]:
    """Aggregate distances over the alternatives; 0 where no weight is above 0."""
    if aggregate == "max":
        return jnp.where(weights > 0.0, divergences, 0.0).max(1)
    total = weights.sum(1)
    return jnp.where(weights > 0.0, weights * divergences, 0.0).sum(1) / jnp.where(total > 0.0, total, 1.0)


class _Compared(NamedTuple):
    score: Array  # [S]
    bias: Array  # [S]
    divergence: Array  # [S, K]
    null: Array | None  # [S]


def _compare(returns: Array, null: Array | None, weights: Array, options: ScoreOptions) -> _Compared:
    """Measure the distances of `[S, K, N]` returns from those of the action taken, with and without correction.

    Sampling noise adds to the distance approximately like independent errors: in squares. The Jensen-Shannon divergence
    is already a squared distance (Endres and Schindelin 2003).
    """
    actions = returns.shape[1]
    others = returns if null is None else jnp.concatenate([returns, null[:, None]], 1)
    distances = jax.vmap(lambda x: divergence(options.metric, x[0], x))(others)
    itself = None if null is None else distances[:, actions]
    distances = distances[:, :actions]
    if options.is_binned:
        assert itself is not None
        distances = corrected = jnp.maximum(distances - itself[:, None], 0.0)
    else:
        noise = jax.vmap(lambda x: noise_floor(options.metric, x[0], x))(returns)
        power = 1.0 if options.metric == "js" else 2.0
        rest = jnp.maximum(distances**power - noise**power, 0.0) ** (1.0 / power)
        corrected = jnp.where(noise > 0.0, jnp.minimum(rest, distances), distances)
    plain, lower = (aggregated(x, weights, options.aggregate) for x in (distances, corrected))
    if options.corrected:
        return _Compared(lower, plain - lower, corrected, itself)
    return _Compared(plain, plain - lower, distances, itself)


def q_gap(
    spec: EnvSpec,
    values: Float[Array, "S A num_actions"],
    positions: Positions,
    key: Key[Array, ""],
    options: ScoreOptions,
    probs: Float[Array, "S A num_actions"] | None = None,
) -> Float[Array, " S"]:
    """Compute the distance of the action taken from its alternatives by their values.

    Alternatives and aggregate are those of `score` with the same key. The value of a joint action is the sum over
    agents, as in value decomposition (Sunehag et al. 2018, arXiv:1706.05296).
    """
    check_options(options, spec, probs is not None, True)
    k_actions, _ = own_keys(key, positions.id)
    tried = candidates(options, spec, positions.taken, positions.legal, k_actions, probs)
    joint = jnp.take_along_axis(values, tried.action.transpose(0, 2, 1), axis=2).sum(1)
    gaps = jnp.where(tried.valid, jnp.abs(joint - joint[:, :1]), 0.0)
    weights = tried.valid.at[:, 0].set(False).astype(jnp.float32)
    if options.aggregate == "policy":
        assert probs is not None
        weights = weights * joint_probs(probs, tried.action)
    return aggregated(gaps, weights, options.aggregate)


def divergence(metric: Metric, taken: Float[Array, " N"], other: Float[Array, "K N"]) -> Float[Array, " K"]:
    """Compute the distance between the returns of the action taken and those of each other action; `js` in nats."""
    if metric == "w1":
        # The optimal transport of equally many samples on a line pairs them by rank (Villani 2003, section 2.2).
        return jnp.abs(jnp.sort(taken)[None] - jnp.sort(other, axis=-1)).mean(-1)
    if metric == "dmean":
        return jnp.abs(taken.mean() - other.mean(-1))
    is_tv = metric.startswith("tv")
    if metric.endswith("_bins"):
        low, high = jnp.minimum(taken.min(), other.min()), jnp.maximum(taken.max(), other.max())
        width = jnp.where(high > low, high - low, 1.0)
        place = jnp.arange(NUM_BINS)

        def histogram(x: Array) -> Array:
            at = jnp.minimum(jnp.floor((x - low) / width * NUM_BINS), NUM_BINS - 1)
            return (at[..., None] == place.reshape((1,) * x.ndim + (-1,))).mean(-2)

        return _of_masses(is_tv, histogram(taken)[None], histogram(other)).sum(-1)
    tolerance = _TIE * jnp.maximum(jnp.abs(taken).max(), jnp.abs(other).max())
    return jax.vmap(lambda x: _of_ties(is_tv, taken, x, tolerance))(other)


def noise_floor(metric: Metric, taken: Float[Array, " N"], other: Float[Array, "K N"]) -> Float[Array, " K"]:
    """Compute the distance caused by the randomness of N rollouts alone; 0 for a single rollout.

    Half of the rollouts swap their actions. The two mixtures then have the same distribution, for any outcome of the
    actions, and rollouts with common random numbers stay paired.
    """
    size = taken.shape[0]
    if size == 1:
        return jnp.zeros(other.shape[0])
    swap = jnp.arange(size) < size // 2
    first, second = jnp.where(swap, other, taken), jnp.where(swap, taken, other)
    return jax.vmap(lambda x, y: divergence(metric, x, y[None])[0])(first, second)


def _of_ties(is_tv: bool, x: Array, y: Array, tolerance: Array) -> Array:
    """Sum over the values that occur in x and y `[N]`; each sample contributes its share of its value."""
    pooled = jnp.concatenate([x, y])

    def count(sample: Array) -> Array:
        ordered = jnp.sort(sample)
        above = jnp.searchsorted(ordered, pooled + tolerance, side="right")
        return (above - jnp.searchsorted(ordered, pooled - tolerance, side="left")).astype(jnp.float32)

    in_x, in_y = count(x), count(y)
    size = x.shape[0]
    return (_of_masses(is_tv, in_x / size, in_y / size) / (in_x + in_y)).sum()


def _of_masses(is_tv: bool, p: Array, q: Array) -> Array:
    """Compute the contribution of each value with probabilities p and q."""
    if is_tv:
        return jnp.abs(p - q) / 2
    middle = jnp.where(p + q > 0.0, (p + q) / 2, 1.0)

    def part(mass: Array) -> Array:
        return jnp.where(mass > 0.0, mass * jnp.log(jnp.where(mass > 0.0, mass, 1.0) / middle), 0.0)

    return (part(p) + part(q)) / 2
