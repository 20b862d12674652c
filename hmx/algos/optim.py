"""The optimiser: clip, then Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from hmx.config.schema import AlgoConfig, GradClip
from hmx.types import Array

Params = Any


class Optimiser(NamedTuple):
    """`init(params)` and `step(params, opt_state, grads, learning_rate)`."""

    init: Callable[[Params], optax.OptState]
    step: Callable[[Params, optax.OptState, Params, Array], tuple[Params, optax.OptState]]


def make_optimiser(cfg: AlgoConfig) -> Optimiser:
    """Build Adam (Kingma & Ba 2015, arXiv:1412.6980) behind gradient clipping.

    The learning rate is an argument, so that the state of the optimiser does not depend on the schedule.
    """
    transform = optax.chain(clip(cfg.grad_clip, cfg.max_grad_norm), optax.scale_by_adam(eps=cfg.adam_eps))

    def step(
        params: Params, opt_state: optax.OptState, grads: Params, learning_rate: Array
    ) -> tuple[Params, optax.OptState]:
        directions, opt_state = transform.update(grads, opt_state, params)
        changes = optax.tree.scale(-learning_rate, directions)
        return optax.apply_updates(params, changes), opt_state

    return Optimiser(transform.init, step)


def clip(kind: GradClip, limit: float) -> optax.GradientTransformation:
    """Build the gradient clipping.

    Args:
        kind: `joint`: the norm over all parameters (Brax, PureJaxRL); `per_network`: that of the value's parameters
            and that of the others, each alone (Stoix); `elementwise`: every element (what rejax calls a norm).
        limit: the largest norm or size; 0 never clips.
    """
    if not limit:
        return optax.identity()
    if kind == "elementwise":
        return optax.clip(limit)
    by_norm = optax.clip_by_global_norm(limit)
    if kind == "joint":
        return by_norm

    def each(grads: Params, state: optax.OptState, params: Params = None) -> tuple[Params, optax.OptState]:
        clipped: dict[str, Any] = {}
        for of_value in (False, True):
            part = {name: leaf for name, leaf in grads.items() if name.startswith("value_") == of_value}
            clipped |= by_norm.update(part, state)[0]
        return {name: clipped[name] for name in grads}, state

    return optax.GradientTransformation(by_norm.init, each)
