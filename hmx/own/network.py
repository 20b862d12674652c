"""Networks of users behind the interface `Net`."""

from __future__ import annotations

import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp

from hmx.config.schema import NetConfig
from hmx.errors import HmxError
from hmx.nets.build import Net, NetOutput, ObsSpec, Params, map_value_head
from hmx.registry.user_code import build, check_unchanged, explaining, file_of
from hmx.types import Array, Key

Carry = Any


def own_net(cfg: NetConfig, spec: ObsSpec, value_width: int) -> Net:
    """Build the network of the user that `net.kind` names, by `make(cfg, spec, value_width)`.

    `make` may also take `options`, see `hmx.registry.own_options`. It returns a `Net`, or a flax module that maps
    observations `[N, *obs_shape]` (float32; packed ones decoded) to `(logits [N, num_actions], value_raw
    [N, value_width])`, or to action values `[N, num_actions]` if `value_width` is 0. Logits of continuous actions are
    `[N, 2 action_dim]`, see `NetOutput`.

    Raises:
        HmxError: it cannot be loaded, or its output has other shapes.
    """
    check_unchanged(cfg.kind, "net.kind", cfg.sha256)
    made, what = build(cfg.kind, "net.kind", cfg, spec, value_width, my=cfg.my), f"cannot use network {cfg.kind}"
    if isinstance(made, Net):
        return made
    if not isinstance(made, nn.Module):
        raise HmxError(f"{what}: make returned {type(made).__name__}", "return a flax.linen.Module or an hmx.Net")

    def read(obs: Array, batch: tuple[int, ...]) -> Array:
        flat = obs.reshape(math.prod(batch), *spec.obs_shape)
        return (flat if spec.decode is None else spec.decode(flat)).astype(jnp.float32)

    def init(key: Key) -> Params:
        return made.init(key, read(jnp.zeros((1, *spec.obs_shape), spec.obs_dtype), (1,)))["params"]

    def apply(params: Params, carry: Carry, obs: Array, reset: Array) -> tuple[NetOutput, Carry]:
        batch = obs.shape[: obs.ndim - len(spec.obs_shape)]
        out: Any = made.apply({"params": params}, read(obs, batch))
        outputs = out if value_width else (out, jnp.zeros((math.prod(batch), 0)))
        return NetOutput(*(leaf.reshape(*batch, leaf.shape[-1]) for leaf in outputs)), carry

    def shapes() -> tuple[tuple[int, ...], ...]:
        params, obs = init(jax.random.key(0)), jnp.zeros((2, *spec.obs_shape), spec.obs_dtype)
        return tuple(leaf.shape for leaf in jax.tree.leaves(made.apply({"params": params}, read(obs, (2,)))))

    wanted: tuple[tuple[int, ...], ...] = ((2, spec.num_actions or 2 * spec.action_dim),)
    wanted += ((2, value_width),) if value_width else ()
    found: list[Any] = []
    with explaining(file_of(made), what):
        jax.eval_shape(lambda: found.append(shapes()))
    if found[0] != wanted:
        shown = [", ".join(f"[N, {', '.join(map(str, shape[1:]))}]" for shape in each) for each in (found[0], wanted)]
        raise HmxError(
            f"{what}: it returns {shown[0]} instead of {shown[1]}", "return logits and value_raw, in this order"
        )
    return Net(init, apply, apply, lambda batch: None, map_value_head)
