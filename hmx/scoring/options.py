"""What is compared when a position is scored, and how."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.env.protocol import EnvSpec
from hmx.errors import HmxError

ACTIONS = ("all", "single", "sampled", "topk")
METRICS = ("w1", "dmean", "tv", "js", "tv_bins", "js_bins")
AGGREGATES = ("mean", "max", "policy")
TEAM_REWARDS = ("mean", "sum")
CONTINUATIONS = ("greedy", "softmax", "epsilon")

MOST_JOINT_ACTIONS = 4096


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the consequence of an action is measured.

    Attributes:
        actions: what is compared with the action taken: `all` legal (joint) actions; `single`, those in which one agent
            does something else; `sampled`, a number of random legal ones; `topk`, the likeliest under the policy.
        num_actions: how many, for `sampled` and `topk`.
        rollouts: continuations per action.
        horizon: steps of each, the compared action included.
        gamma: discount per step; the learner's.
        crn: the actions of a position meet the same random numbers (common random numbers), so that actions that lead
            to the same are scored exactly 0.
        bootstrap: episodes that are cut, by the horizon or by the step limit, go on in value.
        metric: distance of two sets of returns: `w1`, Wasserstein-1, in units of reward; `dmean`, of their means;
            `tv` and `js`, total variation and Jensen-Shannon divergence (nats) of the values that occur, for returns
            that often tie; `tv_bins` and `js_bins`, of histograms, less what the action taken shows against itself
            under other random numbers.
        aggregate: over the alternatives: `mean`, `max`, or weighted by how likely the `policy` is to choose them.
        team_reward: the reward of several agents: their `mean` or `sum`; the learner's.
        null: also try the action taken under other random numbers, and report how far it is from itself.
        num_bins: bins of `tv_bins` and `js_bins`, between the smallest and the largest return of a position.
    """

    actions: str = "all"
    num_actions: int = 8
    rollouts: int = 16
    horizon: int = 20
    gamma: float = 0.99
    crn: bool = True
    bootstrap: bool = False
    metric: str = "w1"
    aggregate: str = "mean"
    team_reward: str = "mean"
    null: bool = False
    num_bins: int = 16

    @property
    def is_corrected(self) -> bool:
        """Whether what the action taken shows against itself is subtracted."""
        return self.metric.endswith("_bins")

    @property
    def needs_null(self) -> bool:
        """Whether the action taken is tried under other random numbers too."""
        return self.null or self.is_corrected

    @property
    def needs_probs(self) -> bool:
        """Whether the policy's probabilities enter."""
        return self.actions == "topk" or self.aggregate == "policy"


def check(options: Options, spec: EnvSpec, has_probs: bool, has_value: bool) -> None:
    """Refuse what cannot work.

    Raises:
        HmxError: an option is out of its range, or needs what the policy does not give; the message names it.
    """
    ranges = [
        ("actions", options.actions in ACTIONS, f"one of {', '.join(ACTIONS)}"),
        ("num_actions", options.num_actions >= 1, "1 or more"),
        ("rollouts", options.rollouts >= 1, "1 or more"),
        ("horizon", options.horizon >= 1, "1 or more"),
        ("gamma", 0.0 <= options.gamma <= 1.0, "from 0 to 1"),
        ("metric", options.metric in METRICS, f"one of {', '.join(METRICS)}"),
        ("aggregate", options.aggregate in AGGREGATES, f"one of {', '.join(AGGREGATES)}"),
        ("team_reward", options.team_reward in TEAM_REWARDS, f"one of {', '.join(TEAM_REWARDS)}"),
        ("num_bins", options.num_bins >= 2, "2 or more"),
    ]
    for name, holds, wanted in ranges:
        if not holds:
            raise HmxError(f"scoring: {name} = {getattr(options, name)!r} cannot work", f"{name} is {wanted}")
    if options.needs_probs and not has_probs:
        name = "actions = topk" if options.actions == "topk" else "aggregate = policy"
        raise HmxError(
            f"scoring: {name} needs the policy's probabilities, and this policy has none",
            "take a continuation that is sampled (softmax or epsilon), or aggregate = mean and actions = single",
        )
    if options.bootstrap and not has_value:
        raise HmxError("scoring: bootstrap needs a value function", "give one, or set bootstrap = false")
    joint = spec.num_actions**spec.num_agents
    if options.actions == "all" and joint > MOST_JOINT_ACTIONS:
        raise HmxError(
            f"scoring: {spec.num_agents} agents have {joint:,} joint actions, too many to try all",
            "take actions = single, sampled or topk",
        )


def num_candidates(options: Options, spec: EnvSpec) -> int:
    """How many actions are tried per position, the one taken included."""
    if options.actions == "all":
        return int(spec.num_actions**spec.num_agents)
    if options.actions == "single":
        return 1 + spec.num_agents * (spec.num_actions - 1)
    if options.actions == "sampled" and spec.num_agents == 1:
        return 1 + min(options.num_actions, spec.num_actions - 1)
    return 1 + min(options.num_actions, int(spec.num_actions**spec.num_agents) - 1)


def env_steps(options: Options, spec: EnvSpec, num_positions: int) -> int:
    """The most environment steps that scoring takes: actions x rollouts x horizon for each position."""
    tried = num_candidates(options, spec) + options.needs_null
    return num_positions * tried * options.rollouts * options.horizon
