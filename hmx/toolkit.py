"""Parts for algorithms and networks of your own; examples/a2c.py and examples/rnd.py use most of them."""

from hmx.algos.collector import Policy, Rollout, collect, start
from hmx.algos.optim import make_optimiser
from hmx.algos.ppo.components import PpoComponents, make_head, make_ppo_components
from hmx.algos.ppo.loss import ppo_loss
from hmx.algos.ppo.reference import reference_penalty
from hmx.algos.ppo.update import make_batch, make_ppo_algorithm
from hmx.algos.sequences import as_sequences
from hmx.nets import make_net, make_q_net
from hmx.rl import normaliser
from hmx.rl.advantages import gae, normalise
from hmx.rl.normaliser import RunningStats
from hmx.rl.weighted import mean as weighted_mean
from hmx.types import Max, Mean, Sum, Transition

__all__ = [
    "Max",
    "Mean",
    "Policy",
    "PpoComponents",
    "Rollout",
    "RunningStats",
    "Sum",
    "Transition",
    "as_sequences",
    "collect",
    "gae",
    "make_batch",
    "make_head",
    "make_net",
    "make_optimiser",
    "make_ppo_algorithm",
    "make_ppo_components",
    "make_q_net",
    "normalise",
    "normaliser",
    "ppo_loss",
    "reference_penalty",
    "start",
    "weighted_mean",
]
