"""Metrics of a rollout: accumulators of every step, merged over time."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import jax.numpy as jnp
from jaxtyping import Bool

from hmx.algos.types import Episode, FirstEpisodes
from hmx.envs.protocol import EnvSpec
from hmx.types import Array, Max, Mean, Metric, Metrics, Sum, Timestep

KINDS: dict[str, type[Mean] | type[Max] | type[Sum]] = {"mean": Mean, "max": Max, "sum": Sum}
EPISODE = "episode"


def info_name(key: str) -> tuple[str, str]:
    """Return name and kind of a key in `Timestep.info`: `wins_sum` is (`wins`, `sum`).

    Kinds are `mean`, `max`, `sum`, and `episode`, a mean over the episodes that end with the step; a key without one
    has an empty kind and keeps its name.
    """
    name, _, kind = key.rpartition("_")
    return (name, kind) if kind in (*KINDS, EPISODE) else (key, "")


def step_metrics(
    spec: EnvSpec, action_t: Array, timestep: Timestep, episode: Episode, first: FirstEpisodes | None = None
) -> Metrics:
    """Compute the metrics of one step of `E` environments; `episode` includes that step.

    Episodes that began in a later stage count only in the group `starts`. While first episodes are held back, no second
    episode counts.
    """
    done = timestep.terminated | timestep.truncated
    counted = None if episode.later is None else ~episode.later
    metrics: Metrics = {f"reward/{name}": Mean.of(timestep.terms[name], counted) for name in spec.reward_terms}
    for name, low, high in spec.action_groups:
        metrics[f"actions/{name}_frac"] = Mean.of((action_t >= low) & (action_t < high), counted)
    for key, value in timestep.info.items():
        name, kind = info_name(key)
        if kind in KINDS:
            metrics[_grouped(name)] = KINDS[kind].of(value, counted)
    metrics["train/mean_reward"] = Mean.of(timestep.reward.sum(-1), counted)
    ended = done if counted is None else done & counted
    if first is not None:
        ended &= first.running | ~first.holding
    metrics |= episode_metrics(timestep, episode, ended)
    if episode.later is not None:
        metrics |= _of_episodes("starts", episode, done & episode.later)
        metrics["starts/share"] = Mean.of(episode.later)
        if "wins_sum" in timestep.info:
            metrics["starts/wins"] = Sum.of(timestep.info["wins_sum"], episode.later)
    return metrics


def episode_metrics(timestep: Timestep, episode: Episode, ended: Bool[Array, " E"]) -> Metrics:
    """Compute the means over the episodes that end with a step, where `ended` holds; `episode` includes that step."""
    metrics: Metrics = {}
    for key, value in timestep.info.items():
        name, kind = info_name(key)
        if kind == EPISODE:
            metrics[_grouped(name)] = Mean.of(value, ended)
    return metrics | _of_episodes("train", episode, ended)


def _grouped(name: str) -> str:
    return name if "/" in name else f"stats/{name}"


def _of_episodes(group: str, episode: Episode, ended: Bool[Array, " E"]) -> Metrics:
    return {
        f"{group}/mean_episode_return": Mean.of(episode.total, ended),
        f"{group}/mean_episode_length": Mean.of(episode.length, ended),
        f"{group}/num_episodes": Sum.of(ended),
    }


DORMANT_SAMPLE = 256
"""Observations on which dormant units are counted."""


def dormant_units(hidden: Sequence[Array]) -> Metrics:
    """Compute the share of dormant units over all hidden layers; no metric without a layer.

    A unit is dormant if its mean absolute activation is at most 0.025 times the mean over its layer (Sokar et al. 2023,
    arXiv:2302.12902, definition 3.1).

    Args:
        hidden: activations of each layer, `[..., units]`.
    """
    sizes = [jnp.abs(layer).reshape(-1, layer.shape[-1]).mean(0) for layer in hidden]
    dormant = [size <= 0.025 * size.mean() for size in sizes]
    return {"train/dormant_units": Mean.of(jnp.concatenate(dormant))} if dormant else {}


def value_loss_fall(value_loss: Metric, epochs: int) -> Metrics:
    """Compute the fall of the value loss from the first epoch to the last, as a share of the first.

    Args:
        value_loss: value loss of each gradient step, `[epochs x minibatches]`; every epoch uses the same samples.
        epochs: no metric if there is only one.
    """
    if epochs == 1 or not isinstance(value_loss, Mean):
        return {}
    by_epoch = value_loss.total.reshape(epochs, -1).mean(-1)
    first, last = by_epoch[0], by_epoch[-1]
    return {"train/value_loss_fall": Mean.of((first - last) / jnp.maximum(first, 1e-30), where=first > 0.0)}


def add(one: Metric, other: Metric) -> Metric:
    """Merge two metrics of the same kind."""
    return _merge(jax.tree.map(lambda *leaves: jnp.stack(leaves), one, other))


def over_time(metrics: Metrics) -> Metrics:
    """Merge metrics stacked along a leading axis into one window."""
    return {name: _merge(metric) for name, metric in metrics.items()}


def _merge(metric: Metric) -> Metric:
    if isinstance(metric, Mean):
        return Mean(metric.total.sum(0), metric.count.sum(0))
    if isinstance(metric, Max):
        known = jnp.where(metric.count > 0, metric.value, -jnp.inf)
        return Max(known.max(0), metric.count.sum(0))
    return Sum(metric.total.sum(0))
