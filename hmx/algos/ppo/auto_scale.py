"""Fit minibatches, epochs and learning rate of PPO to a large batch (`ppo.auto_scale`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hmx.config.divisors import nearest_ratio
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.registry.derive import horizon

MINIBATCH = 8192
MIN_EPOCHS = 2


def auto_scale(cfg: Config, origins: Mapping[str, str] = MappingProxyType({})) -> tuple[Config, list[str]]:
    """Fit minibatches, epochs and learning rate to the batch if `ppo.auto_scale` asks for it.

    If minibatches have more than 8,192 steps, their number grows to the divisor of the sequences that brings them
    closest to 8,192 steps. If it grows by a factor f, epochs become max(2, epochs // f), and the learning rate is
    divided by the growth of gradient steps per update. Small batches stay as they are.

    Args:
        cfg: as given. Invalid values leave it unchanged; checks find them.
        origins: where each value came from; only values of defaults and presets are changed.

    Returns:
        The scaled configuration, and one line `key: old -> new, why` for each change.
    """
    algo, ppo = cfg.algo, cfg.ppo
    if not ppo.auto_scale:
        return cfg, []
    if min(cfg.env.num_envs, cfg.env.num_agents, algo.num_steps, ppo.num_minibatches, ppo.update_epochs) < 1:
        return cfg, []
    batch = cfg.env.num_envs * cfg.env.num_agents * algo.num_steps
    length = horizon(cfg.net, ppo, algo.num_steps)
    if length < 1 or algo.num_steps % length:
        return cfg, []
    if not _ours(origins, "ppo.num_minibatches") or batch <= MINIBATCH * ppo.num_minibatches:
        return cfg, []
    minibatches = nearest_ratio(batch // length, batch / MINIBATCH)
    if minibatches <= ppo.num_minibatches:
        return cfg, []
    epochs = min(ppo.update_epochs, max(MIN_EPOCHS, ppo.update_epochs // (minibatches // ppo.num_minibatches)))
    if not _ours(origins, "ppo.update_epochs"):
        epochs = ppo.update_epochs
    growth = minibatches * epochs / (ppo.num_minibatches * ppo.update_epochs)
    rate = algo.learning_rate / growth if growth > 1 and _ours(origins, "algo.learning_rate") else algo.learning_rate
    sizes = f"minibatches of {batch // minibatches:,} of {batch:,} steps"
    changes: list[tuple[str, Any, Any, str]] = [
        ("ppo.num_minibatches", ppo.num_minibatches, minibatches, sizes),
        ("ppo.update_epochs", ppo.update_epochs, epochs, f"fewer epochs for more minibatches, at least {MIN_EPOCHS}"),
        ("algo.learning_rate", algo.learning_rate, rate, f"{growth:g} times as many gradient steps per update"),
    ]
    changes = [change for change in changes if change[1] != change[2]]
    lines = [f"{key}: {old} -> {new}, {why}" for key, old, new, why in changes]
    return replace(cfg, {key: new for key, _, new, _ in changes}), lines


def _ours(origins: Mapping[str, str], key: str) -> bool:
    origin = origins.get(key, "default")
    return origin == "default" or origin.startswith("preset ")
