"""From the configuration of a network to a record of pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, runtime_checkable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Bool

from hmx.config.references import imported, is_reference
from hmx.config.schema import NetConfig
from hmx.errors import HmxError
from hmx.nets.layers import HIDDEN, Hidden, Kind, RecurrentLayer, dense, initial_hidden, trunk
from hmx.registry.observations import is_image
from hmx.types import Array, Key

Params = Any
Carry = Any
Head = dict[str, Array]


@runtime_checkable
class ObsSpec(Protocol):
    """The properties of an environment that a network needs (`hmx.envs.protocol.EnvSpec` has them)."""

    @property
    def id(self) -> str:
        """Name of the environment."""

    @property
    def obs_shape(self) -> tuple[int, ...]:
        """Shape of one observation."""

    @property
    def obs_dtype(self) -> Any:
        """Its data type."""

    @property
    def num_actions(self) -> int:
        """Number of discrete actions."""

    @property
    def action_dim(self) -> int:
        """Numbers of a continuous action; 0 if actions are discrete."""

    @property
    def value_only(self) -> int:
        """Number of features at the end of an observation that only the value reads."""

    @property
    def policy_only(self) -> int:
        """Number of features at its start that the value does not read, if there are some that only it reads."""

    @property
    def decode(self) -> Callable[[Array], Array] | None:
        """Packed observation to float32 features, if it is packed."""

    @property
    def cells(self) -> Callable[[Array], tuple[Array, Array]] | None:
        """Observation to scalars and board cells, if there is a board to read cell by cell."""


OWN_NET = "hmx.own.network:own_net"
"""The function that builds a network of the user: `(NetConfig, ObsSpec, value_width) -> Net`."""


class NetOutput(NamedTuple):
    """Logits for `hmx.rl.policies`, and `value_raw [..., value_width]` before decoding.

    `logits` are `[..., num_actions]` before masking, or for continuous actions `[..., 2 action_dim]`: means and raw
    deviations.
    """

    logits: Array
    value_raw: Array


class Net(NamedTuple):
    """A network as pure functions, with an optional RNN carry.

    - `init(key) -> params`.
    - `apply(params, carry, obs [*B, *obs_shape], reset [*B]) -> (NetOutput [*B, ...], carry)` is one step. The carry
      is reset where `reset` holds, before it is used.
    - `unroll(params, carry, obs [T, *B, *obs_shape], reset [T, *B]) -> (NetOutput [T, *B, ...], carry)` is T steps;
      `carry` is the RNN carry before the first step; the returned one is that after the last.
    - `initial_carry(B)` is an empty RNN carry: arrays `[*B, units]`, or None for a feed-forward network.
    - `map_value_head(params, fn)` replaces the value head's `{"kernel", "bias"}` by `fn` of it.
    - `hidden(params, carry, obs, reset)` takes what `unroll` takes and returns the activations of each hidden layer,
      `[..., units]`; None for a network that does not tell.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Carry, Array, Array], tuple[NetOutput, Carry]]
    unroll: Callable[[Params, Carry, Array, Array], tuple[NetOutput, Carry]]
    initial_carry: Callable[[tuple[int, ...]], Carry]
    map_value_head: Callable[[Params, Callable[[Head], Head]], Params]
    hidden: Callable[[Params, Carry, Array, Array], list[Array]] | None = None


def net_kind(cfg: NetConfig, spec: ObsSpec) -> Kind:
    """Return the kind of network; `auto` is `cells` if the observation shows them, else `mlp`.

    A new run on images has `cnn` in its own configuration, so `auto` keeps its meaning for older runs.

    Raises:
        HmxError: the observation has no cells, or is not an image.
    """
    if cfg.kind == "auto":
        return "cells" if spec.cells is not None else "mlp"
    if cfg.kind == "cells" and spec.cells is None:
        raise HmxError(f"net.kind = cells reads a board cell by cell, but {spec.id} shows none", "use net.kind = mlp")
    if cfg.kind == "cnn" and not is_image(spec.obs_shape):
        message = f"net.kind = cnn reads images [height, width, channels], but {spec.id} shows {list(spec.obs_shape)}"
        raise HmxError(message, "use net.kind = mlp")
    kind: Kind = cfg.kind  # type: ignore[assignment]  # other names are refused before
    return kind


def features(kind: Kind, spec: ObsSpec, obs: Array, rows: int) -> Any:
    """Return the input of the first layer: `[rows, F]`, scalars and cells for `cells`, `[rows, H, W, C]` for `cnn`.

    Bytes of images are scaled to the range from 0 to 1 for `cnn`.

    Args:
        kind: kind of the network.
        spec: spec of the environment.
        obs: `[..., *obs_shape]`, `rows` observations in all.
        rows: how many.
    """
    flat = obs.reshape(rows, *spec.obs_shape)
    if kind == "cells" and spec.cells is not None:
        return spec.cells(flat)
    decoded = flat if spec.decode is None else spec.decode(flat)
    numbers = decoded.astype(jnp.float32)
    if kind != "cnn":
        return numbers.reshape(rows, -1)
    return numbers / 255.0 if decoded.dtype == jnp.uint8 else numbers


def make_net(cfg: NetConfig, spec: ObsSpec, value_width: int = 1, value_gain: float = 1.0) -> Net:
    """Build the network `cfg` asks for.

    Args:
        cfg: architecture.
        spec: shape of observations and number of actions.
        value_width: outputs of the value head.
        value_gain: multiplies `net.gain_value`; 0 starts at zero.

    Raises:
        HmxError: a kind of network that does not read such observations.
    """
    if is_reference(cfg.kind):
        own: Net = imported(OWN_NET)(cfg, spec, value_width)
        return own
    kind = net_kind(cfg, spec)
    module = ActorCritic(cfg, spec, kind, value_width, value_gain)

    def initial_carry(batch: tuple[int, ...]) -> Carry:
        if cfg.rnn == "none":
            return None
        trunks = 1 if cfg.shared_torso else 2
        return tuple(initial_hidden(cfg.rnn, cfg.rnn_hidden, batch) for _ in range(trunks))

    def init(key: Key) -> Params:
        blank = jnp.zeros((1, *spec.obs_shape), spec.obs_dtype)
        return module.init(key, features(kind, spec, blank, 1), initial_carry((1,)), jnp.zeros((1, 1), bool))["params"]

    def run(params: Params, carry: Carry, obs: Array, reset: Array, **options: Any) -> Any:
        steps, *batch = obs.shape[: obs.ndim - len(spec.obs_shape)]
        rows = math.prod(batch)
        flat = jax.tree.map(lambda leaf: leaf.reshape(rows, *leaf.shape[len(batch) :]), carry)
        read = features(kind, spec, obs, steps * rows)
        return module.apply({"params": params}, read, flat, reset.reshape(steps, rows), **options)

    def unroll(params: Params, carry: Carry, obs: Array, reset: Array) -> tuple[NetOutput, Carry]:
        steps, *batch = obs.shape[: obs.ndim - len(spec.obs_shape)]
        (logits, value_raw), flat = run(params, carry, obs, reset)
        carry = jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), flat)
        return NetOutput(logits.reshape(steps, *batch, -1), value_raw.reshape(steps, *batch, -1)), carry

    def apply(params: Params, carry: Carry, obs: Array, reset: Array) -> tuple[NetOutput, Carry]:
        output, carry = unroll(params, carry, obs[None], reset[None])
        return NetOutput(*(leaf[0] for leaf in output)), carry

    def hidden(params: Params, carry: Carry, obs: Array, reset: Array) -> list[Array]:
        return jax.tree.leaves(run(params, carry, obs, reset, mutable=HIDDEN)[1])

    return Net(init, apply, unroll, initial_carry, map_value_head, hidden)


def map_value_head(params: Params, fn: Callable[[Head], Head]) -> Params:
    """Replace the value head by `fn` of it, if there is one."""
    return {**params, "value_head": fn(params["value_head"])} if "value_head" in params else params


class ActorCritic(nn.Module):
    """Features -> policy output `[T x N, num_actions or 2 action_dim]` and raw value `[T x N, value_width]`.

    Features are those of `hmx.nets.build.features` for T x N observations.
    """

    cfg: NetConfig
    spec: ObsSpec
    kind: Kind
    value_width: int
    value_gain: float  # times `net.gain_value`

    def _trunk(self, x: Any, hidden: Hidden, reset: Array, name: str, widths: tuple[int, ...]) -> tuple[Array, Hidden]:
        cfg, prefix = self.cfg, name.removesuffix("torso")
        out = trunk(cfg, self.kind, x, name, widths)
        if cfg.rnn == "none":
            return out, ()
        by_step = out.reshape(*reset.shape, out.shape[-1])
        shown, hidden = RecurrentLayer(cfg.rnn, cfg.rnn_hidden, name=f"{prefix}memory")(by_step, hidden, reset)
        return shown.reshape(-1, cfg.rnn_hidden), hidden

    def _policy_head(self, x: Array) -> Array:
        cfg, width = self.cfg, self.spec.action_dim or self.spec.num_actions
        said: Array = dense(width, cfg.gain_policy, "policy_head", cfg.init)(x)
        if not self.spec.action_dim:
            return said
        if cfg.std == "param":
            own = self.param("std_raw", nn.initializers.zeros_init(), (width,), said.dtype)
            raw = jnp.broadcast_to(own[None], said.shape)
        else:
            raw = dense(width, cfg.gain_policy, "std_head", cfg.init)(x)
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
        cfg, spec, before = self.cfg, self.spec, carry or ((), ())
        seen = x[..., : -spec.value_only] if spec.value_only else x
        policy, hidden = self._trunk(seen, before[0], reset, "torso", cfg.hidden)
        value, after = policy, [hidden]
        if not cfg.shared_torso:
            judged = x[..., spec.policy_only :] if spec.policy_only else x
            value, value_hidden = self._trunk(judged, before[1], reset, "value_torso", cfg.value_hidden or cfg.hidden)
            after.append(value_hidden)
        output = self._policy_head(policy)
        raw = dense(self.value_width, self.value_gain * cfg.gain_value, "value_head", cfg.init)(value)
        return (output, raw), tuple(after) if carry else None
