"""A policy whose parameters are its logits, and batches written by hand."""

import jax.numpy as jnp
import numpy as np

from hmx.algos.ppo.components import PpoComponents
from hmx.algos.sequences import Batch
from hmx.config.learning import PpoConfig
from hmx.config.schema import Config
from hmx.nets import Net, NetOutput
from hmx.rl.value_codec import make_codec

CFG = Config(ppo=PpoConfig(norm_adv=False))


def _unroll(params, carry, obs, reset):
    shape = obs.shape[:2]
    logits = jnp.broadcast_to(params["policy_head"]["z"][None, None], (*shape, 2))
    return NetOutput(logits, jnp.broadcast_to(params["value_head"]["v"][None, None], (*shape, 1))), carry


def parts_of(cfg=CFG, net=None):
    """Parts of PPO that only its loss needs."""
    net = net or Net(init=None, apply=None, unroll=_unroll, initial_carry=lambda batch: (), map_value_head=None)
    return PpoComponents(cfg, 1, env=None, net=net, codec=make_codec("identity"), optimiser=None)


def softmax(z=(0.0, 0.0), v=0.0):
    """Logits of two actions, and a value."""
    return {"policy_head": {"z": jnp.asarray(z)}, "value_head": {"v": jnp.asarray([v])}}


def rows(action, advantage, log_prob_old, target=0.0, value_old=0.0, weight=1.0, num_actions=2, obs=None):
    """One step per row: `[1, N]`."""
    n, dtype = len(action), jnp.result_type(float)  # made by numpy: each operation of JAX would be compiled

    def line(values):
        return jnp.asarray(np.broadcast_to(np.asarray(values, dtype), (1, n)))

    nothing = line(0.0)
    return Batch(
        obs=jnp.asarray(np.zeros((1, n, 1), dtype) if obs is None else np.asarray(obs)[None]),
        legal=jnp.asarray(np.ones((1, n, num_actions), bool)),
        reset=jnp.asarray(np.ones((1, n), bool)),
        action=jnp.asarray(np.asarray(action)[None]),
        log_prob_old=line(log_prob_old),
        value_old=line(value_old),
        advantage=line(advantage),
        target=line(target),
        weight=line(weight),
        reward=nothing,
        bootstrap=nothing,
        done=jnp.asarray(np.ones((1, n), bool)),
        carry=(),
        advantage_next=jnp.asarray(np.zeros(n, dtype)),
        sequence_weight=jnp.asarray(np.ones(n, dtype)),
    )


def log_half():
    """Log-probability of either of two equal actions."""
    return float(np.log(0.5))
