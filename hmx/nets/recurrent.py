"""Recurrent layers: a GRU or an LSTM over time, reset where an episode begins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool, Float

from hmx.nets.layers import HIDDEN, orthogonal_gates
from hmx.types import Array, Key

Hidden = tuple[Array, ...]  # hidden state of one layer: arrays [N, units], the last of which is its output


class Weights(NamedTuple):
    """Weights of the recurrence itself."""

    kernel: Array  # [units, gates x units]
    bias: Array  # [units], of the GRU's candidate; unused by the LSTM


class RecurrentCell(NamedTuple):
    """A kind of recurrent layer: `step(weights, hidden, inputs [N, gates x units]) -> hidden`."""

    gates: int
    states: int  # arrays of a hidden state
    step: Callable[[Weights, Hidden, Array], Hidden]


def _gru(weights: Weights, hidden: Hidden, inputs: Array) -> Hidden:
    (h,) = hidden
    update_in, reset_in, candidate_in = jnp.split(inputs, 3, axis=-1)
    update_h, reset_h, candidate_h = jnp.split(h @ weights.kernel, 3, axis=-1)
    update, reset = jax.nn.sigmoid(update_in + update_h), jax.nn.sigmoid(reset_in + reset_h)
    candidate = jnp.tanh(candidate_in + reset * (candidate_h + weights.bias[None]))
    return ((1.0 - update) * candidate + update * h,)


def _lstm(weights: Weights, hidden: Hidden, inputs: Array) -> Hidden:
    cell, h = hidden
    write, forget, candidate, show = jnp.split(inputs + h @ weights.kernel, 4, axis=-1)
    cell = jax.nn.sigmoid(forget) * cell + jax.nn.sigmoid(write) * jnp.tanh(candidate)
    return cell, jax.nn.sigmoid(show) * jnp.tanh(cell)


CELLS = {"gru": RecurrentCell(3, 1, _gru), "lstm": RecurrentCell(4, 2, _lstm)}


def initial_hidden(kind: str, units: int, batch: tuple[int, ...]) -> Hidden:
    """Return the initial hidden state: zeros `[*batch, units]`."""
    return tuple(jnp.zeros((*batch, units), jnp.float32) for _ in range(CELLS[kind].states))


class RecurrentLayer(nn.Module):
    """A GRU (Cho et al. 2014, arXiv:1406.1078, in the form of cuDNN) or an LSTM (Hochreiter & Schmidhuber 1997).

    The recurrent weights of each gate start orthogonal; the forget gate of the LSTM starts open, with bias 1
    (Jozefowicz et al. 2015).
    """

    kind: str
    units: int

    @nn.compact
    def __call__(
        self, x: Float[Array, "T N F"], hidden: Hidden, reset: Bool[Array, "T N"]
    ) -> tuple[Float[Array, "T N units"], Hidden]:
        """Return the output at each step, and the hidden state after the last.

        Args:
            x: inputs `[T, N, F]`.
            hidden: before the first step, arrays `[N, units]`.
            reset: the hidden state is set to zero where it holds, before it is used.
        """
        cell, width = CELLS[self.kind], CELLS[self.kind].gates * self.units
        inputs = nn.Dense(width, bias_init=_input_bias(self.kind, self.units), name="input")(x)
        weights = Weights(
            self.param("kernel", orthogonal_gates(cell.gates), (self.units, width)),
            self.param("bias", nn.initializers.zeros_init(), (self.units,)) if self.kind == "gru" else jnp.zeros(()),
        )

        def step(hidden: Hidden, seen: tuple[Array, Array]) -> tuple[Hidden, Array]:
            inputs_t, reset_t = seen
            kept = tuple(jnp.where(reset_t[:, None], 0.0, leaf) for leaf in hidden)
            hidden = cell.step(weights, kept, inputs_t)
            return hidden, hidden[-1]

        if x.shape[0] == 1:
            hidden, shown = step(hidden, (inputs[0], reset[0]))
            shown = shown[None]
        else:
            hidden, shown = jax.lax.scan(step, hidden, (inputs, reset))
        self.sow(HIDDEN, "units", shown)
        return shown, hidden


def _input_bias(kind: str, units: int) -> nn.initializers.Initializer:
    def init(key: Key, shape: Sequence[int], dtype: Any = jnp.float32, out_sharding: Any = None) -> Array:
        del key, out_sharding
        bias = jnp.zeros(math.prod(shape), dtype)
        return bias.at[units : 2 * units].set(1.0) if kind == "lstm" else bias

    return init
