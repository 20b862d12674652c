"""A policy whose parameters are its logits, and batches written by hand."""

import jax.numpy as jnp
import numpy as np

from hmx.agents.ppo import Parts
from hmx.agents.rows import Batch
from hmx.config.schema import AlgoConfig
from hmx.nets import Net, NetOutput
from hmx.rl.value_codec import make_codec

ALGO = AlgoConfig(norm_adv=False)


def _unroll(params, carry, obs, reset):
    shape = obs.shape[:2]
    logits = jnp.broadcast_to(params["policy_head"]["z"][None, None], (*shape, 2))
    return NetOutput(logits, jnp.broadcast_to(params["value_head"]["v"][None, None], (*shape, 1))), carry


def parts_of(algo=ALGO, net=None):
    """Parts of PPO that only its loss needs."""
    net = net or Net(init=None, apply=None, unroll=_unroll, initial_carry=lambda batch: (), map_value_head=None)
    return Parts(algo, 1, 1, env=None, net=net, codec=make_codec("identity"), optimiser=None)


def softmax(z=(0.0, 0.0), v=0.0):
    """Logits of two actions, and a value."""
    return {"policy_head": {"z": jnp.asarray(z)}, "value_head": {"v": jnp.asarray([v])}}


def rows(action, advantage, log_prob_old, target=0.0, value_old=0.0, weight=1.0, num_actions=2, obs=None):
    """One step per row: `[1, N]`."""
    n = len(action)

    def line(values):
        return jnp.broadcast_to(jnp.asarray(values, jnp.asarray(0.0).dtype), (n,))[None]

    nothing = line(0.0)
    return Batch(
        obs=jnp.zeros((1, n, 1)) if obs is None else jnp.asarray(obs)[None],
        legal=jnp.ones((1, n, num_actions), bool),
        reset=jnp.ones((1, n), bool),
        action=jnp.asarray(action)[None],
        log_prob_old=line(log_prob_old),
        value_old=line(value_old),
        advantage=line(advantage),
        target=line(target),
        weight=line(weight),
        reward=nothing,
        bootstrap=nothing,
        done=jnp.ones((1, n), bool),
        carry=(),
        advantage_next=nothing[0],
        row_weight=jnp.ones(n, nothing.dtype),
    )


def log_half():
    """Log-probability of either of two equal actions."""
    return float(np.log(0.5))
