"""The optimiser: clip by the global norm, then Adam."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from hmx.config.schema import AlgoConfig
from hmx.types import Array

Params = Any


class Optimiser(NamedTuple):
    """`init(params)` and `step(params, opt_state, grads, learning_rate)`."""

    init: Callable[[Params], optax.OptState]
    step: Callable[[Params, optax.OptState, Params, Array], tuple[Params, optax.OptState]]


def make_optimiser(cfg: AlgoConfig) -> Optimiser:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980) behind a clip of the global gradient norm.

    The step size is an argument, so the optimiser's state knows nothing of the schedule.
    """
    clip = optax.clip_by_global_norm(cfg.max_grad_norm) if cfg.max_grad_norm else optax.identity()
    transform = optax.chain(clip, optax.scale_by_adam(eps=cfg.adam_eps))

    def step(
        params: Params, opt_state: optax.OptState, grads: Params, learning_rate: Array
    ) -> tuple[Params, optax.OptState]:
        directions, opt_state = transform.update(grads, opt_state, params)
        changes = optax.tree.scale(-learning_rate, directions)
        return optax.apply_updates(params, changes), opt_state

    return Optimiser(transform.init, step)
