"""The parts of the gradient in ordinary updates, as metrics of the updates before which there is a gradient report."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from hmx.algos.types import Params
from hmx.types import Array, Mean, Metrics

REPORTED = "reported"
"""The switch in the hyperparameters of such an update."""


def gradient_parts(losses: Callable[[Params], dict[str, Array]], params: Params, reported: Array) -> Metrics:
    """Return the gradient norms of the terms of a loss, and the terms themselves, for one minibatch.

    Norms are before clipping, and of weighted terms. The names are those of the original trainer: per minibatch one
    backward pass per term, and the mean over all minibatches of an update. Nothing is computed unless `reported` holds.
    """
    names = list(jax.eval_shape(losses, params))

    def measure() -> tuple[list[Array], list[Array]]:
        values, pull = jax.vjp(losses, params)
        zeros = jax.tree.map(jnp.zeros_like, values)
        grads = [pull({**zeros, name: jnp.ones_like(values[name])})[0] for name in names]
        return [values[name] for name in names], [optax.tree.norm(grad) for grad in grads]

    nothing = [jnp.float32(0.0) for _ in names]
    values, norms = jax.lax.cond(reported, measure, lambda: (nothing, nothing))
    metrics: Metrics = {
        f"actor/grad_norm/{name}": Mean.of(norm, reported) for name, norm in zip(names, norms, strict=True)
    }
    more = {f"actor/loss/{name}": Mean.of(value, reported) for name, value in zip(names, values, strict=True)}
    del more["actor/loss/task"]  # it is `train/policy_loss`
    return metrics | more
