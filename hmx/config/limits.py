"""The range each number may lie in, as data."""

from __future__ import annotations

from typing import Any, NamedTuple


class Limit(NamedTuple):
    """An interval; `above` leaves its lower end out."""

    low: float
    high: float | None = None
    above: bool = False

    def holds(self, value: Any) -> bool:
        """Whether the value lies inside."""
        over = value > self.low if self.above else value >= self.low
        return bool(over and (self.high is None or value <= self.high))

    @property
    def words(self) -> str:
        """As in "must be ..."."""
        if self.high is not None:
            return f"{'above' if self.above else 'from'} {self.low} to {self.high}"
        return f"above {self.low}" if self.above else f"{self.low} or more"

    def near(self, value: Any) -> Any:
        """A value inside, the nearest end where that is inside."""
        if self.high is not None and value > self.high:
            return type(value)(self.high)
        return type(value)(1 if self.above else self.low)


_COUNT = Limit(1)
_NOT_NEGATIVE = Limit(0)
_SHARE = Limit(0, 1)
_POSITIVE = Limit(0, above=True)

LIMITS: dict[str, Limit] = {
    "run.seed": Limit(0, 2**31 - 1),
    "run.num_seeds": _COUNT,
    "run.total_steps": _COUNT,
    "run.updates_per_chunk": _COUNT,
    "run.checkpoint_every": _COUNT,
    "run.keep": _COUNT,
    "run.keep_best": _NOT_NEGATIVE,
    "run.eval_episodes": Limit(0, 10_000_000),
    "env.num_envs": _COUNT,
    "env.num_agents": _COUNT,
    "env.max_steps": _NOT_NEGATIVE,
    "env.undo_depth": _COUNT,
    "env.slip": _SHARE,
    "env.recall_delay": _COUNT,
    "net.hidden": _COUNT,
    "net.cell_features": _COUNT,
    "net.rnn_hidden": _COUNT,
    "algo.num_steps": _COUNT,
    "algo.bptt_horizon": _NOT_NEGATIVE,
    "algo.update_epochs": _COUNT,
    "algo.num_minibatches": _COUNT,
    "algo.learning_rate": _NOT_NEGATIVE,
    "algo.lr_end": _NOT_NEGATIVE,
    "algo.lr_warmup": _SHARE,
    "algo.adam_eps": _POSITIVE,
    "algo.max_grad_norm": _NOT_NEGATIVE,
    "algo.gamma": _SHARE,
    "algo.gae_lambda": _SHARE,
    "algo.vtrace_rho_clip": _POSITIVE,
    "algo.vtrace_c_clip": _POSITIVE,
    "algo.clip_eps": _POSITIVE,
    "algo.clip_end": _NOT_NEGATIVE,
    "algo.clip_vf_eps": _NOT_NEGATIVE,
    "algo.clip_vf_end": _NOT_NEGATIVE,
    "algo.vf_coef": _NOT_NEGATIVE,
    "algo.ent_coef": _NOT_NEGATIVE,
    "algo.ent_end": _NOT_NEGATIVE,
    "algo.schedule_rate": _POSITIVE,
    "algo.prio_alpha": _SHARE,
    "algo.prio_beta0": _SHARE,
    "algo.prio_weight_clip": _POSITIVE,
    "dqn.batch_size": _COUNT,
    "dqn.gradient_steps": _COUNT,
    "dqn.learn_starts": _COUNT,
    "dqn.n_step": _COUNT,
    "dqn.target_tau": Limit(0, 1, above=True),
    "dqn.target_every": _COUNT,
    "dqn.epsilon_start": _SHARE,
    "dqn.epsilon_end": _SHARE,
    "dqn.epsilon_fraction": _SHARE,
    "replay.capacity": Limit(1, 2**30),
    "replay.mu": _SHARE,
    "replay.alpha_td": _NOT_NEGATIVE,
    "replay.alpha_c": _NOT_NEGATIVE,
    "replay.target_ess": _SHARE,
    "replay.is_beta": _SHARE,
    "replay.is_beta_end": _SHARE,
    "replay.survey_every": _COUNT,
    "score.every": _NOT_NEGATIVE,
    "score.transitions": _COUNT,
    "score.coverage": _NOT_NEGATIVE,
    "score.num_actions": _COUNT,
    "score.rollouts": _COUNT,
    "score.horizon": _COUNT,
    "score.parameter": _NOT_NEGATIVE,
    "score.chunk": _COUNT,
}
"""Every number of the schema but the reward weights, which may be anything finite.

The limit of a tuple is that of each element.
"""
