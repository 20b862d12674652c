"""The flax modules that networks are made of."""

from __future__ import annotations

import math
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from hmx.types import Array

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}

PLAYER, PROGRAMS, SIDE, CHANNELS = 10, 23, 6, 42
HACKMATRIX_FEATURES = PLAYER + PROGRAMS + SIDE * SIDE * CHANNELS


def dense(width: int, gain: float, name: str) -> nn.Dense:
    """A linear layer with orthogonal weights (Saxe et al. 2014, arXiv:1312.6120) and zero bias."""
    init = nn.initializers.orthogonal(gain) if gain else nn.initializers.zeros_init()
    return nn.Dense(width, kernel_init=init, name=name)


class Torso(nn.Module):
    """Hidden layers `[N, F] -> [N, hidden[-1]]`."""

    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Apply each layer: linear, optional layer norm, non-linearity."""
        for i, width in enumerate(self.hidden):
            x = dense(width, math.sqrt(2.0), f"dense_{i}")(x)
            if self.layer_norm:
                x = nn.LayerNorm(name=f"norm_{i}")(x)
            x = ACTIVATIONS[self.activation](x)
        return x


class Cells(nn.Module):
    """HackMatrix features `[N, 1545]` -> `[N, 33 + 36 x cell_features]`: one small layer shared by all cells.

    The player's cell is not marked in the grid, so its own weight row is added there: the same as one more
    one-hot channel, without building it.
    """

    cell_features: int
    activation: str

    @nn.compact
    def __call__(self, x: Array) -> Array:
        """Project every cell, and put the player and program features next to the result."""
        scalars, grid = x[:, : PLAYER + PROGRAMS], x[:, PLAYER + PROGRAMS :]
        row_col = jnp.round(x[:, :2] * (SIDE - 1)).astype(jnp.int32)
        here = jnp.arange(SIDE * SIDE)[None] == (row_col[:, :1] * SIDE + row_col[:, 1:])
        cells = dense(self.cell_features, math.sqrt(2.0), "cell")(grid.reshape(-1, CHANNELS))
        mark = self.param("player_mark", nn.initializers.normal(1.0), (self.cell_features,))
        cells = cells.reshape(-1, SIDE * SIDE, self.cell_features) + jnp.where(here[..., None], mark[None, None], 0.0)
        cells = ACTIVATIONS[self.activation](cells)
        return jnp.concatenate([scalars, cells.reshape(x.shape[0], -1)], axis=-1)


class ActorCritic(nn.Module):
    """Features `[N, F]` -> policy logits `[N, num_actions]` and raw value `[N, value_width]`."""

    num_actions: int
    value_width: int
    value_gain: float
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool
    shared_torso: bool
    cell_features: int  # 0: flat features

    def _trunk(self, x: Array, name: str) -> Array:
        if self.cell_features:
            x = Cells(self.cell_features, self.activation, name=f"{name}_cells")(x)
        return Torso(self.hidden, self.activation, self.layer_norm, name=name)(x)

    @nn.compact
    def __call__(self, x: Array) -> tuple[Array, Array]:
        """Run the torso or torsos and both heads."""
        policy = self._trunk(x, "torso")
        value = policy if self.shared_torso else self._trunk(x, "value_torso")
        logits = dense(self.num_actions, 0.01, "policy_head")(policy)
        return logits, dense(self.value_width, self.value_gain, "value_head")(value)
