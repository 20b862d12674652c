"""The optimiser: clip by the global norm, Adam, and a step size that follows the run's progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import optax

from hmx.config.schema import AlgoConfig
from hmx.rl.schedules import make_schedule
from hmx.types import Array

Params = Any


class Optimiser(NamedTuple):
    """`init(params)`; `step(params, opt_state, grads, learning_rate)`; `learning_rate(update)`."""

    init: Callable[[Params], optax.OptState]
    step: Callable[[Params, optax.OptState, Params, Array], tuple[Params, optax.OptState]]
    learning_rate: Callable[[Array], Array]


def make_optimiser(cfg: AlgoConfig, num_updates: int) -> Optimiser:
    """Adam (Kingma & Ba 2015, arXiv:1412.6980) behind a clip of the global gradient norm.

    The step size is a function of the update alone, so that a resumed run needs no schedule state.

    Args:
        cfg: hyperparameters.
        num_updates: updates of the whole run; the schedule ends with the last one.
    """
    clip = optax.clip_by_global_norm(cfg.max_grad_norm) if cfg.max_grad_norm else optax.identity()
    transform = optax.chain(clip, optax.scale_by_adam(eps=cfg.adam_eps))
    schedule = make_schedule(cfg.lr_schedule, cfg.learning_rate, cfg.learning_rate * cfg.lr_end)

    def step(
        params: Params, opt_state: optax.OptState, grads: Params, learning_rate: Array
    ) -> tuple[Params, optax.OptState]:
        directions, opt_state = transform.update(grads, opt_state, params)
        changes = optax.tree.scale(-learning_rate, directions)
        return optax.apply_updates(params, changes), opt_state

    return Optimiser(transform.init, step, lambda update: schedule(update / num_updates))
