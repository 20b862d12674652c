"""Declare every option of a run once: its default, meaning, unit, range and choices (see `hmx.config.option`)."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from hmx.config.importing import imported
from hmx.config.option import ALGORITHMS, DQN, GUMBEL, MAX_SEED, ON_POLICY, OUTPUT_PANEL, PPO, RUN_PANEL, opt, section

Activation = Literal["relu", "tanh", "silu", "gelu"]
Init = Literal["orthogonal", "lecun_uniform"]
Std = Literal["softplus", "exp", "param"]
Rnn = Literal["none", "gru", "lstm"]
Dtype = Literal["float32", "bfloat16"]
GradClip = Literal["joint", "per_network", "elementwise"]
ValueTarget = Literal["identity", "symlog", "return_norm", "two_hot"]
OnNonFinite = Literal["stop", "skip"]
Schedule = Literal["constant", "linear", "cosine", "logarithmic", "exponential"]
Selection = Literal["stale", "uniform", "replay"]
ScoredActions = Literal["all", "single", "sampled", "topk"]
ContinuationKind = Literal["greedy", "softmax", "epsilon"]
Metric = Literal["w1", "dmean", "tv", "js", "tv_bins", "js_bins"]
Aggregate = Literal["mean", "max", "policy"]
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
        "auto", "architecture; auto is cells for packed HackMatrix observations, else mlp; train sets cnn for images",
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
class PpoConfig:
    """Proximal policy optimisation."""

    bptt_horizon: int = opt(
        0, "steps per training sequence; 0 for num_steps with a recurrent network and 1 without", "steps", ge=0
    )
    update_epochs: int = opt(4, "passes over each rollout", "epochs", ge=1)
    num_minibatches: int = opt(8, "gradient steps per pass", "minibatches", ge=1)
    obs_norm: Literal["none", "network", "env"] = opt(
        "none",
        "normalise observations by running statistics: not at all, at the network's input, or in the environment's "
        "step (which leaves the first observation of an episode raw)",
        shape="if_not_default",
    )
    obs_norm_update: Literal["after_sgd", "before_sgd"] = opt(
        "after_sgd",
        "when the network's statistics take in a rollout; before_sgd makes the first importance ratios differ from 1",
    )
    obs_norm_ddof: int = opt(
        0, "1 to divide the variance of observations by n - 1, 0 by n", ge=0, le=1, shape="if_not_default"
    )
    obs_norm_clip: float = opt(
        0.0, "absolute value at which normalised observations are clipped; 0 for no clipping", ge=0,
        shape="if_not_default",
    )  # fmt: skip
    reward_scale: float = opt(
        1.0, "factor on the rewards that the learner sees; reported returns are not scaled", gt=0,
        shape="if_not_default",
    )  # fmt: skip
    gae_lambda: float = opt(0.95, "lambda of generalised advantage estimation (GAE)", ge=0, le=1)
    advantage: Literal["gae", "vtrace", "brax"] = opt(
        "gae",
        "advantage estimator: GAE, GAE recomputed per minibatch with V-trace-clipped importance ratios, or Brax's, "
        "which lacks GAE's first lambda",
        applies=PPO,
    )
    advantage_when: Literal["rollout", "minibatch"] = opt(
        "rollout",
        "when advantages and value targets are computed: once per rollout, or per minibatch with new values",
        applies=PPO,
    )
    advantage_scale: Literal["reward", "symlog"] = opt(
        "reward",
        "unit of advantages: reward, or the change that they make to symlog(value), which measures gains relative to "
        "the return expected",
        applies=PPO,
    )
    gae_axis: Literal["time", "batch"] = opt(
        "time",
        "axis along which advantages are summed; batch reproduces a known bug: it sums unrelated sequences",
        applies=PPO,
    )
    episode_end: Literal["bootstrap", "mask", "terminal", "timeout_reward", "leak"] = opt(
        "bootstrap",
        "at a truncated step: bootstrap from the last observation, leave the step out, treat it as terminal, add "
        "gamma V(s_t) to its reward, or leak into the next episode (reproduces a known bug)",
        applies=PPO,
    )
    value_forward: Literal["shift", "both"] = opt(
        "shift", "values of next states: shifted by one step, or computed in a second forward pass", applies=PPO
    )
    vtrace_rho_clip: float = opt(
        1.0, "clip of the importance ratio of each temporal-difference error in vtrace", gt=0, applies=PPO
    )
    vtrace_c_clip: float = opt(1.0, "clip of the importance ratio of the trace in vtrace", gt=0, applies=PPO)
    row_end: Literal["bootstrap", "mask", "zero"] = opt(
        "bootstrap", "last step of a training sequence: bootstrapped, left out, or given advantage 0", applies=PPO
    )
    norm_adv: bool = opt(True, "normalise advantages per minibatch", applies=PPO)
    clip_eps: float = opt(0.2, "clip range of the importance ratio", gt=0, applies=PPO)
    clip_schedule: Schedule = opt("constant", "schedule of clip_eps", applies=PPO)
    clip_end: float = opt(1.0, "final clip_eps, as a share of the initial one", ge=0, applies=PPO)
    clip_vf_eps: float = opt(0.0, "clip range of the value, in value units; 0 for no clipping", ge=0, applies=PPO)
    clip_vf_schedule: Schedule = opt("constant", "schedule of clip_vf_eps", applies=PPO)
    clip_vf_end: float = opt(1.0, "final clip_vf_eps, as a share of the initial one", ge=0, applies=PPO)
    vf_coef: float = opt(0.5, "weight of the value loss", ge=0)
    vf_half: bool = opt(True, "use half the squared error as the value loss, not all of it")
    ent_coef: float = opt(0.01, "entropy bonus weight", ge=0)
    entropy: Literal["gaussian", "tanh_sample", "tanh_quadrature"] = opt(
        "tanh_sample",
        "entropy of continuous actions: before the tanh, after it from one sample, or after it by quadrature",
        applies=PPO,
    )
    ent_schedule: Schedule = opt("constant", "schedule of ent_coef")
    ent_end: float = opt(1.0, "final ent_coef, as a share of the initial one", ge=0)
    ref: str = opt(
        "", "run, checkpoint or installed agent (such as champion) that the policy is kept close to; empty for none",
        fixed=True,
    )  # fmt: skip
    ref_kl_coef: float = opt(
        0.0, "weight of the penalty KL(policy || reference), exact and in nats; 0 only measures it", ge=0
    )
    ref_kl_schedule: Schedule = opt("constant", "schedule of ref_kl_coef")
    ref_kl_end: float = opt(1.0, "final ref_kl_coef, as a share of the initial one", ge=0)
    prio_alpha: float = opt(
        0.0, "exponent of the advantage in the priority of a sequence; 0 for uniform shuffling", ge=0, le=1, applies=PPO
    )
    prio_beta0: float = opt(
        0.6, "initial exponent of the importance weights that correct for priorities", ge=0, le=1, applies=PPO
    )
    prio_probs: Literal["draw", "inclusion"] = opt(
        "draw",
        "probability in the importance weights: of a draw with replacement, as in the published equations, or of "
        "inclusion in the minibatch, which is unbiased since minibatches are drawn without replacement",
        applies=PPO,
    )
    prio_weights: Literal["max", "mean", "clip", "raw"] = opt(
        "max",
        "importance weights: divided by the largest of the minibatch, divided by their mean, clipped, or as they are; "
        "with max, and less so with mean, the size of a gradient step depends on num_minibatches",
        applies=PPO,
    )
    prio_weight_clip: float = opt(10.0, "highest importance weight if prio_weights = clip", gt=0, applies=PPO)
    value_target: ValueTarget = opt(
        "symlog",
        "transformation of the returns that the value head predicts; with symlog, values are below the mean return "
        "where wins are rare, with two_hot they are not",
        shape="always",
    )


@dataclass(frozen=True, kw_only=True)
class GumbelConfig:
    """Learning from search (Gumbel MuZero); minibatches, epochs, value targets and entropy are in `[ppo]`."""

    num_simulations: int = opt(8, "steps simulated per decision", "steps", ge=1, applies=GUMBEL)
    value_scale: float = opt(
        3.0,
        "how much values count against the policy in a search, also in hmx evaluate --search; 50 as published",
        gt=0,
    )
    unseen_value: float = opt(
        0.0,
        "weight of what the environment adds to the values of a search, since no observation shows it: in HackMatrix "
        "what the score adds to a win",
        ge=0,
    )
    sees: Literal["everything", "player"] = opt(
        "player",
        "what a search starts from, also in hmx evaluate --search: the true state, or one that agrees with what the "
        "player has seen in the episode",
        fixed=True,
    )


@dataclass(frozen=True, kw_only=True)
class DqnConfig:
    """Deep Q-learning; gamma, learning rate, gradient clipping and steps per update are in `[algo]`."""

    batch_size: int = opt(64, "transitions per gradient step", "transitions", ge=1)
    gradient_steps: int = opt(4, "gradient steps per update", "gradient steps", ge=1)
    learn_starts: int = opt(4096, "transitions in the buffer before the first gradient step", "transitions", ge=1)
    n_step: int = opt(1, "steps of reward before the target bootstraps, without off-policy correction", "steps", ge=1)
    double: bool = opt(True, "choose the bootstrap action with the online network (double Q-learning)")
    dueling: bool = opt(False, "compute state value and advantages in two streams (dueling network)", shape="always")
    loss: Literal["huber", "squared"] = opt("huber", "loss of a TD error")
    target_tau: float = opt(
        1.0, "share of the online network in each update of the target network", "share", gt=0, le=1
    )
    target_every: int = opt(250, "gradient steps between two updates of the target network", "gradient steps", ge=1)
    epsilon_start: float = opt(1.0, "initial probability of a random action", "probability", ge=0, le=1)
    epsilon_end: float = opt(0.05, "final probability of a random action", "probability", ge=0, le=1)
    epsilon_fraction: float = opt(0.5, "share of the run over which epsilon falls linearly", "share", ge=0, le=1)


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """The replay buffer of Q-learning and its sampling."""

    capacity: int = opt(
        65_536, "transitions kept, per seed; a multiple of env.num_envs", "transitions", ge=1, le=2**30, shape="always"
    )
    mixing: Literal["uniform", "td", "additive"] = opt(
        "td",
        "sampling of transitions: uniform, by TD error, or by the sum of TD error and consequence",
        shape="always",
        gone=("multiplicative",),
    )
    mu: float = opt(0.5, "share of transitions sampled by consequence if mixing = additive", "share", ge=0, le=1)
    alpha_td: float = opt(0.6, "exponent of the TD error; 0 for uniform sampling", ge=0)
    alpha_c: float = opt(0.6, "exponent of the consequence score, if mixing uses it", ge=0)
    eps_td: float = opt(0.01, "added to an absolute TD error, so that one of 0 is still sampled", "reward", gt=0)
    target_ess: float = opt(
        0.0, "effective sample size, as a share of the buffer, that both exponents are fitted to; 0 for no fitting",
        "share", ge=0, le=1,
    )  # fmt: skip
    is_beta: float = opt(0.4, "initial exponent of the importance weights", ge=0, le=1)
    is_beta_end: float = opt(1.0, "final exponent of the importance weights, reached linearly", ge=0, le=1)
    is_norm: Literal["max", "bound", "raw"] = opt(
        "max", "importance weights: divided by the largest of the batch, by the largest possible, or as they are"
    )
    replacement: bool = opt(True, "sample the transitions of a batch with replacement")
    survey_every: int = opt(128, "updates between two surveys of the whole buffer, for its metrics", "updates", ge=1)
    save: bool = opt(
        False, "save the final replay buffer in the reports folder, for hmx score-buffer", flag="--save-buffer",
        panel=RUN_PANEL,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Consequence scores: how much the action taken mattered in stored positions."""

    every: int = opt(0, "updates between two scoring passes; 0 for none", "updates", ge=0)
    transitions: int = opt(128, "transitions scored per pass, if coverage is 0", "transitions", ge=1)
    coverage: float = opt(0.0, "scores per transition over its life; sets the size of a pass, unless 0", ge=0)
    selection: Selection = opt(
        "stale", "which transitions are scored: unscored and then oldest scores first, random ones, or those replayed"
    )
    actions: ScoredActions = opt(
        "all", "alternatives to the action taken: all legal (joint) actions, those of one agent, random or likely ones"
    )
    num_actions: int = opt(8, "number of alternatives for sampled and topk", "actions", ge=1)
    rollouts: int = opt(4, "rollouts per action", "rollouts", ge=1)
    horizon: int = opt(20, "steps per rollout, including the compared action", "steps", ge=1)
    continuation: ContinuationKind = opt("greedy", "policy after the compared action")
    parameter: float = opt(0.1, "temperature of softmax, or probability of a random action of epsilon", ge=0)
    metric: Metric = opt(
        "w1",
        "distance between two sets of returns: Wasserstein-1, difference of means, total variation or Jensen-Shannon",
    )
    aggregate: Aggregate = opt("mean", "aggregate over the alternatives: mean, maximum, or mean weighted by the policy")
    bootstrap: bool = opt(True, "bootstrap truncated rollouts from the value function")
    crn: bool = opt(True, "use common random numbers for all actions of a position")
    chunk: int = opt(64, "positions scored in parallel", "positions", ge=1)


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
