"""From a rollout to training rows, and from rows to minibatches.

A row is `H` consecutive steps of one agent. `H` is 1 where a network has no memory and samples are shuffled singly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.agents.collector import Rollout
from hmx.agents.sharding import spread
from hmx.config.schema import AlgoConfig
from hmx.rl.advantages import Advantages, bootstraps, gae, vtrace_gae
from hmx.rl.priorities import draw_rows, importance_weights, row_magnitude, row_probs
from hmx.rl.variants import variant_gae
from hmx.types import Array, Key, Max, Mean, Metrics, Sum


class Batch(NamedTuple):
    """`N` rows of `H` steps: leaves are `[H, N, ...]`, those of a whole row `[N, ...]`."""

    obs: Array
    legal: Array
    reset: Array
    action: Array
    log_prob_old: Array
    value_old: Array
    advantage: Array
    target: Array
    weight: Array  # float32: 1, or 0 for a step that is not trained on
    reward: Array
    bootstrap: Array  # value that follows the reward: 0 after a termination
    done: Array
    carry: Any  # [N, ...]: the memory before the row
    advantage_next: Array  # [N]: advantage of the step after the row
    row_weight: Array  # [N]: importance weight of the row
    # for advantages computed anew per minibatch, else ():
    terminated: Any = ()
    truncated: Any = ()
    obs_next: Any = ()  # that each step led to
    obs_last: Any = ()  # [N, ...]: after the row
    reset_last: Any = ()  # [N]: that one is the first of an episode


ROW_LEAVES = ("carry", "advantage_next", "row_weight", "obs_last", "reset_last")


def make_rows(rollout: Rollout, algo: AlgoConfig, horizon: int) -> Batch:
    """All rows of a rollout `[T, E, A]`: `T / horizon x E x A` of them, of consecutive parts of the rollout.

    Args:
        rollout: with its memory at every row's start, if there is one.
        algo: how advantages are made, and what becomes of a row's last step.
        horizon: steps of a row; divides T.
    """
    seen = rollout.transitions
    if algo.reward_scale != 1.0:
        seen = seen._replace(reward_tp1=seen.reward_tp1 * algo.reward_scale)
        rollout = rollout._replace(transitions=seen)
    shape = seen.reward_tp1.shape
    num_rows = math.prod(shape) // horizon

    def rows(leaf: Array) -> Array:
        """`[T, E, A, ...]` -> `[H, T / H x E x A, ...]`."""
        parts = leaf.reshape(shape[0] // horizon, horizon, *leaf.shape[1:])
        return jnp.moveaxis(parts, 1, 0).reshape(horizon, num_rows, *leaf.shape[3:])

    bootstrap = bootstraps(
        seen.value_t, rollout.value_last, seen.value_final_tp1, seen.terminated_tp1, seen.truncated_tp1
    )
    nothing = jnp.zeros((horizon, num_rows), jnp.float32)
    batch = Batch(
        obs=rows(seen.obs_t),
        legal=rows(seen.legal_t),
        reset=rows(jnp.broadcast_to(seen.reset_t[..., None], shape)),
        action=rows(seen.action_t),
        log_prob_old=rows(seen.log_prob_t),
        value_old=rows(seen.value_t),
        advantage=nothing,
        target=nothing,
        weight=rows(seen.alive_t).astype(jnp.float32),
        reward=rows(seen.reward_tp1),
        bootstrap=rows(bootstrap),
        done=rows(seen.terminated_tp1 | seen.truncated_tp1),
        carry=jax.tree.map(lambda leaf: leaf.reshape(num_rows, *leaf.shape[3:]), rollout.carry),
        advantage_next=nothing[0],
        row_weight=jnp.ones(num_rows, jnp.float32),
    )
    if algo.row_end != "bootstrap":
        advantages = row_advantages(batch, jnp.ones_like(nothing), algo)
        weight = batch.weight.at[-1].set(0.0) if algo.row_end == "mask" else batch.weight
        return batch._replace(advantage=advantages.advantage_t, target=advantages.target_t, weight=weight)
    whole = rollout_advantages(rollout, algo)
    first = whole.advantage_t[::horizon]  # of each row
    following = jnp.concatenate([first[1:], jnp.zeros_like(first[:1])])
    batch = batch._replace(
        advantage=rows(whole.advantage_t), target=rows(whole.target_t), advantage_next=following.reshape(num_rows)
    )
    if algo.advantage_when == "rollout" or isinstance(rollout.obs_last, tuple):
        return batch
    last = jnp.concatenate([seen.obs_t[horizon::horizon], rollout.obs_last[None]])
    reset_last = jnp.concatenate([seen.reset_t[horizon::horizon], rollout.reset_last[None]])
    return batch._replace(
        terminated=rows(seen.terminated_tp1),
        truncated=rows(seen.truncated_tp1),
        obs_next=jax.tree.map(rows, seen.final_obs_tp1),
        obs_last=last.reshape(num_rows, *last.shape[3:]),
        reset_last=jnp.broadcast_to(reset_last[..., None], last.shape[:3]).reshape(num_rows),
    )


def rollout_advantages(rollout: Rollout, algo: AlgoConfig) -> Advantages:
    """Advantages and targets `[T, E, A]` with the values that were said while playing."""
    seen = rollout.transitions
    ends = (seen.terminated_tp1, seen.truncated_tp1)
    plain = algo.advantage != "brax" and (algo.gae_axis, algo.episode_end) == ("time", "bootstrap")
    if plain and algo.value_forward == "shift":
        return gae(
            seen.reward_tp1, seen.value_t, rollout.value_last, seen.value_final_tp1, *ends, algo.gamma, algo.gae_lambda
        )
    value_tp1 = jnp.concatenate([seen.value_t[1:], rollout.value_last[None]])
    if algo.value_forward == "both" and algo.advantage_when == "rollout":
        value_tp1 = seen.value_final_tp1
    value_tp1 = jnp.where(seen.truncated_tp1, seen.value_final_tp1, value_tp1)
    reward, value, after, terminated, truncated = (
        leaf.reshape(leaf.shape[0], -1) for leaf in (seen.reward_tp1, seen.value_t, value_tp1, *ends)
    )
    found = variant_gae(reward, value, after, terminated, truncated, *variant(algo))
    return Advantages(*(leaf.reshape(seen.value_t.shape) for leaf in found))


def variant(algo: AlgoConfig) -> tuple[float, float, str, str, str]:
    """The last arguments of `variant_gae`."""
    form = "brax" if algo.advantage == "brax" else "gae"
    return algo.gamma, algo.gae_lambda, algo.episode_end, form, algo.gae_axis


def row_advantages(batch: Batch, ratio: Array, algo: AlgoConfig) -> Advantages:
    """The V-trace-clipped advantages of rows `[H, N]` under importance ratios `[H, N]`.

    Where `row_end` is not `bootstrap` the last step of each row has advantage 0, as in a buffer whose rewards arrive
    with the next observation and which therefore does not know what the last action brought about.
    """
    if algo.row_end != "bootstrap":
        ratio = ratio.at[-1].set(0.0)
    return vtrace_gae(
        ratio,
        batch.reward,
        batch.value_old,
        batch.bootstrap,
        batch.done,
        batch.advantage_next,
        algo.gamma,
        algo.gae_lambda,
        algo.vtrace_rho_clip,
        algo.vtrace_c_clip,
    )


class Plan(NamedTuple):
    """Which rows each gradient step sees, `[gradient steps, rows per minibatch]`, and their importance weights."""

    rows: Array
    row_weight: Array


def plan_minibatches(batch: Batch, algo: AlgoConfig, beta: Array | None, key: Key) -> tuple[Plan, Metrics]:
    """Who is in which minibatch of an update.

    Without priorities every epoch sees each row once, in a new order. With `prio_alpha` each minibatch is a draw of
    its own without replacement, in which rows of large advantages come more often (Schaul et al. 2016,
    arXiv:1511.05952, applied to the rows of a rollout), and importance weights with exponent `beta` correct for it.
    """
    num_rows = batch.row_weight.shape[0]
    steps = algo.update_epochs * algo.num_minibatches
    if not algo.prio_alpha or beta is None:
        k_epochs = jax.random.split(key, algo.update_epochs)
        order = jax.vmap(lambda k_epoch: jax.random.permutation(k_epoch, num_rows))(k_epochs)
        rows = order.reshape(steps, -1)
        return Plan(rows, jnp.ones(rows.shape, jnp.float32)), {}
    magnitude = row_magnitude(batch.advantage.T, batch.weight.T)
    probs, num_nonfinite = row_probs(magnitude, algo.prio_alpha)
    per_step = num_rows // algo.num_minibatches
    rows = jax.vmap(lambda k_step: draw_rows(k_step, probs, per_step))(jax.random.split(key, steps))
    weight = jax.vmap(
        lambda drawn: importance_weights(probs[drawn], num_rows, beta, algo.prio_weights, algo.prio_weight_clip)
    )(rows)
    seen = jnp.zeros(num_rows, jnp.float32).at[rows.reshape(-1)].set(1.0)
    return Plan(rows, weight), {
        "train/row_coverage": Mean.of(seen),
        "train/nonfinite_rows": Sum.of(num_nonfinite),
        "train/max_row_weight": Max.of(weight),
    }


def take_rows(batch: Batch, rows: Array, row_weight: Array) -> Batch:
    """The rows of one minibatch."""
    taken = {
        name: jax.tree.map(lambda leaf, axis=int(name not in ROW_LEAVES): leaf.take(rows, axis=axis), leaves)
        for name, leaves in batch._asdict().items()
    }
    return Batch(**{**taken, "row_weight": row_weight})


def spread_rows(batch: Batch) -> Batch:
    """Rows split over the devices, whichever environments they come from."""
    return Batch(**{name: spread(leaves, int(name not in ROW_LEAVES)) for name, leaves in batch._asdict().items()})
