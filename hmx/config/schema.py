"""Declare every option of a run once: its default, meaning, unit, range and choices (see `hmx.config.option`).

`hmx.config.learning` has the sections that only some algorithms read.
"""

import re
from dataclasses import dataclass
from typing import Any, Literal

from hmx.config.learning import DqnConfig, GumbelConfig, PpoConfig, ReplayConfig, Schedule, ScoreConfig
from hmx.config.option import ALGORITHMS, DQN, MAX_SEED, ON_POLICY, OUTPUT_PANEL, RUN_PANEL, opt, section
from hmx.config.references import imported

Activation = Literal["relu", "tanh", "silu", "gelu"]
Init = Literal["orthogonal", "lecun_uniform"]
Std = Literal["softplus", "exp", "param"]
Rnn = Literal["none", "gru", "lstm"]
Dtype = Literal["float32", "bfloat16"]
GradClip = Literal["joint", "per_network", "elementwise"]
OnNonFinite = Literal["stop", "skip"]
NET_KINDS = ("auto", "mlp", "cells", "cnn")
OwnOptions = tuple[tuple[str, bool | int | float | str], ...]

ENTRIES: tuple[Any, ...] = (
    *imported("hmx.envs.hackmatrix.entry:ENTRIES"),
    *imported("hmx.envs.small.entries:ENTRIES"),
    *imported("hmx.envs.suites.entries:ENTRIES"),
)
"""The entry of each environment of hmx, a `hmx.registry.entry.EnvEntry`."""

ENV_IDS: tuple[str, ...] = tuple(entry.id for entry in ENTRIES if "/" not in entry.id)
_LIMITS = {re.split("[-/]", entry.id)[0]: entry.limit for entry in ENTRIES if entry.limit}


Open: Any = object  # base of classes to which `declaring` adds fields, so that a type checker accepts them


def declaring(kind: Any) -> Any:
    """Add to a class the options that entries of environments declare for it, and that only these environments read."""
    for entry in ENTRIES:
        for name, (hint, option) in entry.options.get(kind.__name__, {}).items():
            kind.__annotations__[name] = hint
            setattr(kind, name, option)
    return kind


@dataclass(frozen=True, kw_only=True)
@declaring
class RewardWeights(Open):  # type: ignore[misc]
    """Weights of the reward terms that environments declare, such as HackMatrix in `hmx/envs/hackmatrix/entry.py`.

    A weight of 0 switches a term off.
    """


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Name, length, outputs and devices of a run."""

    name: str = opt(
        "", "name of the run folder; empty for a name made from environment, algorithm and seed", flag="--name",
        metavar="NAME", panel=RUN_PANEL, fixed=True,
    )  # fmt: skip
    root: str = opt("runs", "folder that contains the run folders", fixed=True)
    seed: int = opt(0, "random seed", ge=0, le=MAX_SEED, flag="--seed", panel=RUN_PANEL, fixed=True)
    num_seeds: int = opt(
        1, "number of independent agents (seeds) to train in parallel", "agents", ge=1, flag="--seeds",
        panel=RUN_PANEL, shape="always",
    )  # fmt: skip
    devices: int = opt(
        1, "number of devices to shard the environments over", "devices", ge=0, flag="--devices", metavar="N|all",
        panel=RUN_PANEL, words={"all": 0},
    )  # fmt: skip
    total_steps: int = opt(
        4_194_304, "environment steps to train for, per seed", "steps", ge=1, flag="--steps", panel=RUN_PANEL
    )
    init_from: str = opt(
        "", "run or checkpoint whose network to start from; empty for random weights", flag="--init-from",
        metavar="RUN", panel=RUN_PANEL, fixed=True,
    )  # fmt: skip
    budget: Literal["exact", "brax"] = opt(
        "exact", "how total_steps is rounded up to whole updates: once, or as in Brax in each of budget_epochs parts"
    )
    budget_epochs: int = opt(90, "parts of the budget if run.budget = brax: evaluations x resets between them", ge=1)
    updates_per_chunk: int = opt(4, "updates per compiled call; the host logs and saves between calls", "updates", ge=1)
    checkpoint_every: int = opt(
        10,
        "chunks between two checkpoints; another one after 30 s of training, and one at the end",
        "chunks",
        ge=1,
    )
    keep: int = opt(3, "number of latest checkpoints to keep", "checkpoints", ge=1)
    keep_best: int = opt(
        1, "number of checkpoints with the highest mean episode return to keep as well", "checkpoints", ge=0
    )
    keep_middle_mb: int = opt(
        256, "disk space for checkpoints at 10, 25 and 50 % of the run, kept for hmx fork; 0 for none",
        "MB", ge=0,
    )  # fmt: skip
    on_nonfinite: OnNonFinite = opt(
        "stop",
        "what to do about a loss, gradient, parameter or reward that is not finite: stop before that update, or skip "
        "its gradient steps",
        flag="--on-nonfinite",
        panel=RUN_PANEL,
    )
    on_finding: Literal["warn", "stop", "rollback"] = opt(
        "warn",
        "what to do about a finding of hmx doctor that knows a dead or diverging run and lasts: warn, stop after a "
        "checkpoint, or continue from the last healthy checkpoint as a new run with one changed setting",
        flag="--on-finding",
        panel=RUN_PANEL,
    )
    max_rollbacks: int = opt(2, "most rollbacks of a run, one after another; it then stops", "rollbacks", ge=1)
    eval_episodes: int = opt(
        1000, "episodes of the final evaluation; 0 to skip it", "episodes", ge=0, le=10_000_000,
        flag="--eval-episodes", panel=RUN_PANEL,
    )  # fmt: skip
    evaluations: int = opt(
        10, "small evaluations at equal distances while the run trains, the first one before it; 0 for none, as with "
        "run.eval_episodes = 0 and for simulators in worker processes", "evaluations", ge=0, le=1000,
    )  # fmt: skip
    grad_report_every: int = opt(
        0, "updates between two gradient reports, each measured before its update; 0 for none", "updates", ge=0,
        flag="--grad-report-every", panel=RUN_PANEL,
    )  # fmt: skip
    grad_report_groups: int = opt(
        32, "start states of such a report, with 4 episodes from each", "start states", ge=4, le=4096
    )
    grad_report_buckets: int = opt(
        4, "buckets that the start states of such a report are ranked into, by the standard deviation of their returns",
        "buckets", ge=1,
    )  # fmt: skip
    wandb: Literal["disabled", "offline", "online"] = opt(
        "disabled", "log metrics to Weights & Biases", flag="--wandb", metavar="MODE", panel=OUTPUT_PANEL
    )
    wandb_project: str = opt("hmx", "Weights & Biases project")
    tensorboard: bool = opt(
        False, "write TensorBoard event files to the folder tensorboard of the run", flag="--tensorboard",
        panel=OUTPUT_PANEL,
    )  # fmt: skip
    sink: str = opt(
        "", "send metrics to sinks that installed packages add, such as trackio; several with commas", flag="--sink",
        metavar="NAME", panel=OUTPUT_PANEL,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
@declaring
class EnvConfig(Open):  # type: ignore[misc]
    """The environment, and how many copies to step in parallel."""

    id: str = opt(
        "hackmatrix", "environment to train on; see hmx envs", flag="--env", metavar="ID", known=ENV_IDS, shape="always"
    )
    num_envs: int = opt(
        512, "environments to step in parallel, per seed", "environments", ge=1, flag="--num-envs", shape="always"
    )
    num_agents: int = opt(
        1, "agents per environment, with shared parameters; rendezvous takes any number, smax sets its own", ge=1,
        shape="from_schema_2",
    )  # fmt: skip
    max_steps: int = opt(
        1000,
        "steps after which an episode is truncated; 0 for never; at most "
        + ", ".join(f"{limit} in {name}" for name, limit in _LIMITS.items()),
        "steps",
        ge=0,
    )
    action_repeat: int = opt(
        1, "environment steps per action, fewer if the episode ends", "steps", ge=1, shape="if_not_default"
    )
    reset_on_done: Literal["fresh", "first", "rollout_cache"] = opt(
        "fresh",
        "initial state of the next training episode: a new one, the first one again, or one drawn once per rollout",
        applies=ON_POLICY,
        shape="if_not_default",
    )
    full_reset_every: int = opt(
        0, "updates after which all environments are reset; 0 for never", "updates", ge=0, applies=ON_POLICY
    )
    num_workers: int = opt(0, "worker processes that step a simulator; 0 for about one per core", "processes", ge=0)
    envs_per_worker: int = opt(
        0, "simulators in each worker; 0 for env.num_envs / env.num_workers", "environments", ge=0
    )
    async_factor: int = opt(
        0,
        "groups of simulators: while one steps, the policy acts for another; 0 for 2, or 1 if env.num_envs is odd",
        "groups",
        ge=0,
    )
    worker_timeout: float = opt(
        300.0, "time after which a worker that does not answer counts as hung; 0 for never", "seconds", ge=0
    )
    my: OwnOptions = ()  # of the user's code, also in [net] and [algo]: see `hmx.registry.own_options`
    sha256: str = ""  # of the file of such an environment; hmx sets it when a run starts


@dataclass(frozen=True, kw_only=True)
@declaring
class StartsConfig(Open):  # type: ignore[misc]
    """Training episodes that begin in a later stage, with separate metrics."""


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """The policy and value network."""

    kind: str = opt(
        "auto", "architecture; auto is cells for HackMatrix (not env.obs = flat), else mlp; train sets cnn for images",
        flag="--net", metavar="NAME", known=NET_KINDS, shape="always",
    )  # fmt: skip
    sha256: str = opt("", "SHA-256 of your own file that net.kind names; written by hmx train")
    my: OwnOptions = ()
    hidden: tuple[int, ...] = opt((256, 256), "width of each hidden layer of the torso", "units", ge=1, shape="always")
    value_hidden: tuple[int, ...] = opt(
        (), "width of each hidden layer of a separate value torso; empty for net.hidden", "units", ge=1,
        applies=ON_POLICY, shape="if_not_default",
    )  # fmt: skip
    cell_features: int = opt(16, "features per board cell in the cells network", "units", ge=1, shape="always")
    activation: Activation = opt("relu", "activation function", shape="always")
    compute_dtype: Dtype = opt(
        "float32", "number type in which hidden layers compute; parameters, recurrent layer and heads are float32",
        shape="if_not_default",
    )  # fmt: skip
    shared_torso: bool = opt(
        True, "share all layers but the heads between policy and value", applies=ON_POLICY, shape="always"
    )
    layer_norm: bool = opt(False, "normalise the output of every hidden layer", shape="always")
    norm_order: Literal["pre", "post"] = opt(
        "pre", "layer norm before or after the activation function", shape="if_not_default"
    )
    init: Init = opt(
        "orthogonal", "initial weights of linear layers, times a gain; lecun_uniform has variance 1 / inputs"
    )
    gain_hidden: float = opt(1.4142135623730951, "initial gain of hidden layers", ge=0)
    gain_policy: float = opt(0.01, "initial gain of the policy head", ge=0, applies=ON_POLICY)
    gain_value: float = opt(1.0, "initial gain of the value head; always 0 for a two_hot head", ge=0, applies=ON_POLICY)
    std: Std = opt(
        "softplus",
        "standard deviation of continuous actions: softplus or exp of a network output, or exp of a free parameter",
        applies=ON_POLICY,
        shape="if_not_default",
    )
    std_min: float = opt(0.001, "added to every standard deviation", ge=0, applies=ON_POLICY, shape="if_not_default")
    rnn: Rnn = opt("none", "recurrent layer between torso and heads", applies=ON_POLICY, shape="from_schema_2")
    rnn_hidden: int = opt(128, "units of the recurrent layer", "units", ge=1, applies=ON_POLICY, shape="from_schema_2")


@dataclass(frozen=True, kw_only=True)
class AlgoConfig:
    """Options that PPO and Q-learning share."""

    name: str = opt(
        "ppo", "algorithm; gumbel learns from search, dqn is Q-learning with replay", flag="--algo", metavar="NAME",
        known=ALGORITHMS, shape="always",
    )  # fmt: skip
    sha256: str = opt("", "SHA-256 of your own file that algo.name names; written by hmx train")
    my: OwnOptions = ()
    num_steps: int = opt(64, "steps per environment and update", "steps", ge=1, fixed=True)
    learning_rate: float = opt(5e-4, "initial learning rate of Adam", ge=0, flag="--lr")
    lr_schedule: Schedule = opt("linear", "schedule of the learning rate")
    lr_end: float = opt(0.0, "final learning rate, as a share of the initial one", ge=0)
    lr_warmup: float = opt(0.0, "share of the run over which the learning rate first rises from 0", "share", ge=0, le=1)
    adam_eps: float = opt(1e-5, "epsilon of Adam", gt=0)
    max_grad_norm: float = opt(0.5, "norm at which gradients are clipped; 0 for no clipping", ge=0)
    grad_clip: GradClip = opt(
        "joint",
        "what max_grad_norm limits: the global norm, the norms of policy and value separately, or each element",
    )
    gamma: float = opt(0.99, "discount per step", ge=0, le=1)
    schedule_rate: float = opt(0.1, "decay rate of logarithmic and exponential schedules", gt=0)


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    run: RunConfig = section(RunConfig)
    env: EnvConfig = section(EnvConfig)
    reward: RewardWeights = section(RewardWeights)
    starts: StartsConfig = section(StartsConfig, applies=ON_POLICY)
    net: NetConfig = section(NetConfig)
    algo: AlgoConfig = section(AlgoConfig)
    ppo: PpoConfig = section(PpoConfig, applies=ON_POLICY)
    gumbel: GumbelConfig = section(GumbelConfig)
    dqn: DqnConfig = section(DqnConfig, applies=DQN)
    replay: ReplayConfig = section(ReplayConfig, applies=DQN)
    score: ScoreConfig = section(ScoreConfig, applies=DQN)
