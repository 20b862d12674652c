"""The policy and value network: trunks, their memories, and two heads."""

from __future__ import annotations

from typing import Any

import flax.linen as nn

from hmx.nets.layers import Cells, Torso, dense
from hmx.nets.memory import Hidden, Memory
from hmx.types import Array


class ActorCritic(nn.Module):
    """Features -> policy logits `[T x N, num_actions]` and raw value `[T x N, value_width]`.

    Features are `[T x N, F]`, or the scalars and cells that `Cells` takes if `cell_features` is not 0.
    """

    num_actions: int
    value_width: int
    value_gain: float
    hidden: tuple[int, ...]
    activation: str
    layer_norm: bool
    shared_torso: bool
    cell_features: int  # 0: flat features
    rnn: str
    rnn_hidden: int

    def _trunk(self, x: Any, hidden: Hidden, reset: Array, name: str) -> tuple[Array, Hidden]:
        prefix = name.removesuffix("torso")
        if self.cell_features:
            x = Cells(self.cell_features, self.activation, name=f"{name}_cells")(x)
        out: Array = Torso(self.hidden, self.activation, self.layer_norm, name=name)(x)
        if self.rnn == "none":
            return out, ()
        by_step = out.reshape(*reset.shape, out.shape[-1])
        shown, hidden = Memory(self.rnn, self.rnn_hidden, name=f"{prefix}memory")(by_step, hidden, reset)
        return shown.reshape(-1, self.rnn_hidden), hidden

    @nn.compact
    def __call__(
        self, x: Any, carry: tuple[Hidden, ...], reset: Array
    ) -> tuple[tuple[Array, Array], tuple[Hidden, ...]]:
        """Run the trunk or trunks and both heads.

        Args:
            x: features of T steps of N rows, step by step.
            carry: the memory of each trunk before the first step, arrays `[N, units]`; `()` without memory.
            reset: `[T, N]` bool; memories are emptied where it holds, before they are used.
        """
        before = carry or ((), ())
        policy, hidden = self._trunk(x, before[0], reset, "torso")
        value, after = policy, [hidden]
        if not self.shared_torso:
            value, value_hidden = self._trunk(x, before[1], reset, "value_torso")
            after.append(value_hidden)
        logits = dense(self.num_actions, 0.01, "policy_head")(policy)
        return (logits, dense(self.value_width, self.value_gain, "value_head")(value)), tuple(after) if carry else ()
