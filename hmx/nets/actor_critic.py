"""The policy and value network: trunks, recurrent layers and heads."""

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Bool

from hmx.config.schema import Activation, Init, Rnn, Std
from hmx.nets.layers import Cells, Norm, Torso, dense
from hmx.nets.recurrent import Hidden, RecurrentLayer
from hmx.types import Array


class ActorCritic(nn.Module):
    """Features -> policy output `[T x N, num_actions or 2 action_dim]` and raw value `[T x N, value_width]`.

    Features are `[T x N, F]`, or the scalars and cells that `Cells` takes if `cell_features` is not 0.
    """

    num_actions: int
    action_dim: int  # 0: discrete actions
    value_width: int
    hidden: tuple[int, ...]
    value_hidden: tuple[int, ...]  # of the value's own trunk
    activation: Activation
    norm: Norm
    weights: Init
    gains: tuple[float, float, float]  # hidden layers, policy head, value head
    std: Std
    shared_torso: bool
    cell_features: int  # 0: flat features
    value_only: int  # the last features, which the policy does not read
    rnn: Rnn
    rnn_hidden: int

    def _trunk(self, x: Any, hidden: Hidden, reset: Array, name: str, widths: tuple[int, ...]) -> tuple[Array, Hidden]:
        prefix = name.removesuffix("torso")
        if self.cell_features:
            x = Cells(self.cell_features, self.activation, self.weights, self.gains[0], name=f"{name}_cells")(x)
        out: Array = Torso(widths, self.activation, self.norm, self.weights, self.gains[0], name=name)(x)
        if self.rnn == "none":
            return out, ()
        by_step = out.reshape(*reset.shape, out.shape[-1])
        shown, hidden = RecurrentLayer(self.rnn, self.rnn_hidden, name=f"{prefix}memory")(by_step, hidden, reset)
        return shown.reshape(-1, self.rnn_hidden), hidden

    def _policy_head(self, x: Array) -> Array:
        width = self.action_dim or self.num_actions
        said: Array = dense(width, self.gains[1], "policy_head", self.weights)(x)
        if not self.action_dim:
            return said
        if self.std == "param":
            own = self.param("std_raw", nn.initializers.zeros_init(), (width,), said.dtype)
            raw = jnp.broadcast_to(own[None], said.shape)
        else:
            raw = dense(width, self.gains[1], "std_head", self.weights)(x)
        return jnp.concatenate([said, raw], axis=-1)

    @nn.compact
    def __call__(
        self, x: Any, carry: tuple[Hidden, ...] | None, reset: Bool[Array, "T N"]
    ) -> tuple[tuple[Array, Array], tuple[Hidden, ...] | None]:
        """Run the trunk or trunks and the heads.

        Args:
            x: features of T steps of N rows, step by step.
            carry: the RNN carry of each trunk before the first step, arrays `[N, units]`; None without one.
            reset: `[T, N]` bool; the carry is reset where it holds, before it is used.
        """
        before = carry or ((), ())
        seen = x[..., : -self.value_only] if self.value_only else x
        policy, hidden = self._trunk(seen, before[0], reset, "torso", self.hidden)
        value, after = policy, [hidden]
        if not self.shared_torso:
            value, value_hidden = self._trunk(x, before[1], reset, "value_torso", self.value_hidden)
            after.append(value_hidden)
        output = self._policy_head(policy)
        raw = dense(self.value_width, self.gains[2], "value_head", self.weights)(value)
        return (output, raw), tuple(after) if carry else None
