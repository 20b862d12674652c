"""What is compared when a position is scored, and how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hmx.config.schema import ScoreConfig
from hmx.env.protocol import EnvSpec
from hmx.errors import HmxError

TeamReward = Literal["mean", "sum"]

MOST_JOINT_ACTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class ScoreOptions(ScoreConfig):
    """How the consequence of an action is measured: the options of `[score]`, and what comes from elsewhere."""

    gamma: float  # discount per step of the learner
    team_reward: TeamReward  # how the learner combines the rewards of several agents
    null: bool = False  # also try the action taken with other random numbers: its distance from itself
    corrected: bool = False  # subtract the noise floor from scores

    @property
    def is_binned(self) -> bool:
        """Whether distances are between histograms, which always have the distance of the null subtracted."""
        return self.metric.endswith("_bins")

    @property
    def needs_null(self) -> bool:
        """Whether the action taken is also tried with other random numbers."""
        return self.null or self.is_binned

    @property
    def needs_probs(self) -> bool:
        """Whether scores depend on the probabilities of the policy."""
        return self.actions == "topk" or self.aggregate == "policy"


def check_options(options: ScoreOptions, spec: EnvSpec, has_probs: bool, has_value: bool) -> None:
    """Refuse options that cannot work with an environment or policy (exit code 2)."""
    if options.needs_probs and not has_probs:
        name = "score.actions = topk" if options.actions == "topk" else "score.aggregate = policy"
        raise HmxError(
            f"cannot score with {name}: it needs probabilities of actions, and a greedy policy has none",
            "use a softmax or epsilon continuation, or other actions and another aggregate",
        )
    if options.bootstrap and not has_value:
        raise HmxError("cannot bootstrap rollouts: the policy has no value function", "set score.bootstrap = false")
    joint = spec.num_actions**spec.num_agents
    if options.actions == "all" and joint > MOST_JOINT_ACTIONS:
        raise HmxError(
            f"cannot try all actions: {spec.num_agents} agents have {joint:,} joint actions",
            "use score.actions = single, sampled or topk",
        )


def num_candidates(options: ScoreOptions, spec: EnvSpec) -> int:
    """Return how many actions are tried per position, including the one taken."""
    if options.actions == "all":
        return int(spec.num_actions**spec.num_agents)
    if options.actions == "single":
        return 1 + spec.num_agents * (spec.num_actions - 1)
    if options.actions == "sampled" and spec.num_agents == 1:
        return 1 + min(options.num_actions, spec.num_actions - 1)
    return 1 + min(options.num_actions, int(spec.num_actions**spec.num_agents) - 1)


def live_environments(options: ScoreOptions, spec: EnvSpec) -> int:
    """Return how many environments one position takes."""
    return (num_candidates(options, spec) + options.needs_null) * options.rollouts


def env_steps(options: ScoreOptions, spec: EnvSpec, num_positions: int) -> int:
    """Return the highest number of environment steps that scoring takes."""
    return num_positions * live_environments(options, spec) * options.horizon
