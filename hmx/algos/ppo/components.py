"""The static data of PPO's functions, and the part of the training state that only PPO has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from hmx.algos.collector import Rollout
from hmx.algos.optim import Optimiser, make_optimiser
from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.search import SearchAct
from hmx.algos.sequences import Batch
from hmx.algos.types import TrainState
from hmx.config.schema import Config
from hmx.envs.protocol import Env
from hmx.nets import Net, make_net
from hmx.registry.derive import horizon
from hmx.rl import policies
from hmx.rl.policies import PolicyHead
from hmx.rl.value_codec import Stats, ValueCodec, make_codec
from hmx.types import Array, Metrics


class PpoLearner(NamedTuple):
    """The part of the training state that only PPO has."""

    value_stats: Stats  # of the value codec
    own: Any = None  # what the hooks of `PpoComponents` keep from one update to the next
    reference: ReferencePolicy | None = None  # of `ppo.ref`; kept in a file of the run, not in its checkpoints


PpoState = TrainState[PpoLearner]


class PpoComponents(NamedTuple):
    """The common data of PPO's functions; static.

    An algorithm that extends PPO replaces some components and calls `make_ppo_algorithm`. `plan`, `rollout`, `loss` and
    `own` are hooks, None in PPO:

    - `plan` chooses the actions of rollouts, in place of the policy.
    - `rollout(parts, state, rollout)` returns what is learned from a rollout, in place of `make_batch`: the batch, the
      new `state.learner.own`, and metrics.
    - `loss` stands in for `ppo_loss`, with its arguments and results. With `ppo.ref` it adds
      `hmx.algos.ppo.reference.reference_penalty` and its metric.
    - `own()` returns the first `state.learner.own`, a pytree of arrays.
    """

    cfg: Config
    horizon: int  # steps of a training sequence
    env: Env
    net: Net
    codec: ValueCodec
    optimiser: Optimiser
    head: PolicyHead = policies.CATEGORICAL
    plan: SearchAct | None = None
    rollout: Callable[[PpoComponents, PpoState, Rollout], tuple[Batch, Any, Metrics]] | None = None
    loss: Callable[..., tuple[Array, Metrics]] | None = None
    own: Callable[[], Any] | None = None
    random_loss: bool = False  # the loss draws random numbers from its key
    final_obs: bool = False  # `rollout` gets `transitions.final_obs_tp1`: the observation after each step


def make_ppo_components(cfg: Config, env: Env) -> PpoComponents:
    """Build network, policy head, value codec and optimiser."""
    codec = make_codec(cfg.ppo.value_target)
    return PpoComponents(
        cfg=cfg,
        horizon=horizon(cfg.net, cfg.ppo, cfg.algo.num_steps),
        env=env,
        net=make_net(cfg.net, env.spec, codec.width, codec.head_gain),
        codec=codec,
        optimiser=make_optimiser(cfg.algo),
        head=make_head(cfg, env.spec.action_dim, env.spec.action_parts),
        random_loss=env.spec.action_dim > 0,
    )


def make_head(cfg: Config, action_dim: int, parts: tuple[int, ...] = ()) -> PolicyHead:
    """Return the distribution over actions: masked categorical, one per part, or tanh-normal if continuous."""
    if parts:
        return policies.multi_categorical(parts)
    if not action_dim:
        return policies.CATEGORICAL
    return policies.tanh_gaussian(action_dim, cfg.net.std, cfg.net.std_min, cfg.ppo.entropy)
