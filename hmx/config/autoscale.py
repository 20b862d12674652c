"""The scaling rule for large batches: equal minibatches near 8,192 steps, fewer epochs, a smaller step size."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hmx.config.derive import horizon
from hmx.config.divisors import nearest_ratio
from hmx.config.fields import get, replace
from hmx.config.schema import Config

MINIBATCH = 8192
MIN_EPOCHS = 2


def auto_scale(cfg: Config, origins: Mapping[str, str] | None = None) -> tuple[Config, list[str]]:
    """Fits minibatches, epochs and step size to the batch.

    A batch whose minibatches hold more than 8,192 steps gets more of them: the number that divides its rows and
    comes closest to 8,192 (and is closer than what was there). With f the growth of that number, epochs become
    max(2, epochs // f), and the step size falls by as much as gradient steps per update rise. Nothing ever rises
    but the number of minibatches; small batches stay as they are.

    Args:
        cfg: as given. Values that make no sense on their own leave it unchanged; `derive.problems` names them.
        origins: where each value came from; only those of the defaults and of presets are changed.

    Returns:
        The scaled configuration, and one line `key: old -> new, why` for each change.
    """
    algo = cfg.algo
    if min(cfg.env.num_envs, cfg.env.num_agents, algo.num_steps, algo.num_minibatches, algo.update_epochs) < 1:
        return cfg, []
    batch, length = cfg.env.num_envs * cfg.env.num_agents * algo.num_steps, horizon(cfg)
    if length < 1 or algo.num_steps % length:
        return cfg, []
    if not _ours(origins, "algo.num_minibatches") or batch <= MINIBATCH * algo.num_minibatches:
        return cfg, []
    minibatches = nearest_ratio(batch // length, batch / MINIBATCH)
    if minibatches <= algo.num_minibatches:
        return cfg, []
    epochs = min(algo.update_epochs, max(MIN_EPOCHS, algo.update_epochs // (minibatches // algo.num_minibatches)))
    if not _ours(origins, "algo.update_epochs"):
        epochs = algo.update_epochs
    growth = minibatches * epochs / (algo.num_minibatches * algo.update_epochs)
    rate = algo.learning_rate / growth if growth > 1 and _ours(origins, "algo.learning_rate") else algo.learning_rate
    reasons: dict[str, tuple[Any, str]] = {
        "algo.num_minibatches": (minibatches, f"{batch:,} steps in minibatches of {batch // minibatches:,}"),
        "algo.update_epochs": (epochs, f"fewer passes for more minibatches, at least {MIN_EPOCHS}"),
        "algo.learning_rate": (rate, f"{growth:g} times as many gradient steps per update"),
    }
    changed = {key: value for key, (value, _) in reasons.items() if value != get(cfg, key)}
    lines = [f"{key}: {get(cfg, key)} -> {value}, {reasons[key][1]}" for key, value in changed.items()]
    return replace(cfg, changed), lines


def _ours(origins: Mapping[str, str] | None, key: str) -> bool:
    origin = (origins or {}).get(key, "default")
    return origin == "default" or origin.startswith("preset ")
