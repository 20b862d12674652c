"""From the configuration of a network to a pair of pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax.numpy as jnp

from hmx.config.schema import NetConfig
from hmx.errors import HmxError
from hmx.nets.layers import ActorCritic
from hmx.types import Array, Key

Params = Any
Head = dict[str, Array]


class ObsSpec(Protocol):
    """What a network needs to know of an environment (`hmx.env.protocol.EnvSpec` has it)."""

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
    def decode(self) -> Callable[[Array], Array] | None:
        """Packed observation to float32 features, if it is packed."""

    @property
    def cells(self) -> Callable[[Array], tuple[Array, Array]] | None:
        """Observation to scalars and board cells, if there is a board to read cell by cell."""


class NetOutput(NamedTuple):
    """`logits [..., num_actions]` before masking, and `value_raw [..., value_width]` before decoding."""

    logits: Array
    value_raw: Array


class Net(NamedTuple):
    """A network: `init(key) -> params`, `apply(params, obs [..., *obs_shape]) -> NetOutput`.

    `map_value_head(params, fn)` replaces the value head's `{"kernel", "bias"}` by `fn` of it.
    """

    init: Callable[[Key], Params]
    apply: Callable[[Params, Array], NetOutput]
    map_value_head: Callable[[Params, Callable[[Head], Head]], Params]


def make_net(cfg: NetConfig, spec: ObsSpec, value_width: int = 1, value_gain: float = 1.0) -> Net:
    """Build the network `cfg` asks for.

    Args:
        cfg: architecture.
        spec: shape of observations and number of actions.
        value_width: outputs of the value head.
        value_gain: gain of its orthogonal initialisation; 0 starts at zero.

    Raises:
        HmxError: `cells` on an observation that has none.
    """
    kind = cfg.kind if cfg.kind != "auto" else ("mlp" if spec.cells is None else "cells")
    if kind == "cells" and spec.cells is None:
        raise HmxError(f"net.kind = cells reads a board cell by cell, but {spec.id} shows none", "use net.kind = mlp")
    module = ActorCritic(
        num_actions=spec.num_actions,
        value_width=value_width,
        value_gain=value_gain,
        hidden=tuple(cfg.hidden),
        activation=cfg.activation,
        layer_norm=cfg.layer_norm,
        shared_torso=cfg.shared_torso,
        cell_features=cfg.cell_features if kind == "cells" else 0,
    )

    def features(obs: Array, rows: int) -> Any:
        flat = obs.reshape(rows, *spec.obs_shape)
        if kind == "cells" and spec.cells is not None:
            return spec.cells(flat)
        decoded = flat if spec.decode is None else spec.decode(flat)
        return decoded.reshape(rows, -1).astype(jnp.float32)

    def init(key: Key) -> Params:
        blank = jnp.zeros((1, *spec.obs_shape), spec.obs_dtype)
        return module.init(key, features(blank, 1))["params"]

    def apply(params: Params, obs: Array) -> NetOutput:
        batch = obs.shape[: obs.ndim - len(spec.obs_shape)]
        output: Any = module.apply({"params": params}, features(obs, math.prod(batch)))
        logits, value_raw = output
        return NetOutput(logits.reshape(*batch, -1), value_raw.reshape(*batch, -1))

    return Net(init, apply, _map_value_head)


def _map_value_head(params: Params, fn: Callable[[Head], Head]) -> Params:
    return {**params, "value_head": fn(params["value_head"])}
