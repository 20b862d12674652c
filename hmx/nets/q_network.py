"""The network of action values: a trunk, and one head or two."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Float

from hmx.config.references import imported, is_reference
from hmx.config.schema import NetConfig
from hmx.nets.build import OWN_NET, Net, ObsSpec, Params, features, net_kind
from hmx.nets.layers import HIDDEN, Kind, dense, trunk
from hmx.types import Array, Key

_HEAD_GAIN = 0.01  # values start near 0, so that the first targets are rewards


class QNet(NamedTuple):
    """`init(key) -> params` and `values(params, obs [*B, *obs_shape]) -> [*B, num_actions]`, before masking.

    `hidden(params, obs)` returns the activations of each hidden layer, `[..., units]`; None if the network does not
    return them.
    """

    init: Callable[[Key], Params]
    values: Callable[[Params, Array], Array]
    hidden: Callable[[Params, Array], list[Array]] | None = None


class QNetwork(nn.Module):
    """Features (see `hmx.nets.build.features`) -> action values `[N, num_actions]`.

    Dueling (Wang et al. 2016, arXiv:1511.06581, eq. 9): state value + advantage - mean advantage over all actions.
    """

    cfg: NetConfig
    kind: Kind
    num_actions: int
    dueling: bool

    @nn.compact
    def __call__(self, x: Any) -> Float[Array, "N actions"]:
        """Run the trunk and its heads."""
        out = trunk(self.cfg, self.kind, x, "torso", self.cfg.hidden)
        heads: Array = dense(self.num_actions, _HEAD_GAIN, "q_head")(out)
        if not self.dueling:
            return heads
        value: Array = dense(1, _HEAD_GAIN, "value_head")(out)
        return value + heads - heads.mean(-1, keepdims=True)


def make_q_net(cfg: NetConfig, spec: ObsSpec, dueling: bool) -> QNet:
    """Build the network of action values that `cfg` asks for.

    Args:
        cfg: architecture; recurrent layers and separate torsos are not used.
        spec: shape of observations and number of actions.
        dueling: state value and advantages as two heads.

    Raises:
        HmxError: a kind of network that does not read such observations.
    """
    if is_reference(cfg.kind):
        net: Net = imported(OWN_NET)(cfg, spec, 0)
        return QNet(net.init, lambda params, obs: net.apply(params, None, obs, jnp.zeros(()))[0].logits)
    kind = net_kind(cfg, spec)
    module = QNetwork(cfg, kind, spec.num_actions, dueling)

    def init(key: Key) -> Params:
        blank = jnp.zeros((1, *spec.obs_shape), spec.obs_dtype)
        return module.init(key, features(kind, spec, blank, 1))["params"]

    def run(params: Params, obs: Array, **options: Any) -> Any:
        rows = math.prod(obs.shape[: obs.ndim - len(spec.obs_shape)])
        return module.apply({"params": params}, features(kind, spec, obs, rows), **options)

    def values(params: Params, obs: Array) -> Array:
        batch = obs.shape[: obs.ndim - len(spec.obs_shape)]
        return jnp.asarray(run(params, obs)).reshape(*batch, spec.num_actions)

    def hidden(params: Params, obs: Array) -> list[Array]:
        return jax.tree.leaves(run(params, obs, mutable=HIDDEN)[1])

    return QNet(init, values, hidden)
