"""Parts for algorithms and networks of your own; examples/a2c.py uses most of them."""

from hmx.algos.collector import Policy, Rollout, collect, start
from hmx.algos.optim import make_optimiser
from hmx.algos.ppo.update import make_head
from hmx.nets import make_net, make_q_net
from hmx.rl.advantages import gae, normalise
from hmx.types import Max, Mean, Sum, Transition

__all__ = [
    "Max",
    "Mean",
    "Policy",
    "Rollout",
    "Sum",
    "Transition",
    "collect",
    "gae",
    "make_head",
    "make_net",
    "make_optimiser",
    "make_q_net",
    "normalise",
    "start",
]
