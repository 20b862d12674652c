"""Declare the options that only some algorithms read, as `hmx.config.schema` does those of every run."""

from dataclasses import dataclass
from typing import Literal

from hmx.config.option import GUMBEL, PPO, RUN_PANEL, opt

Schedule = Literal["constant", "linear", "cosine", "logarithmic", "exponential"]
Selection = Literal["stale", "uniform", "replay"]
ScoredActions = Literal["all", "single", "sampled", "topk"]
ContinuationKind = Literal["greedy", "softmax", "epsilon"]
Metric = Literal["w1", "dmean", "tv", "js", "tv_bins", "js_bins"]
Aggregate = Literal["mean", "max", "policy"]
Sees = Literal["everything", "player"]


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
    value_target: Literal["identity", "symlog", "return_norm", "two_hot"] = opt(
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
    sees: Sees = opt(
        "player",
        "what a search starts from, also in hmx evaluate --search: the true state, or one that agrees with what the "
        "player has seen in the episode",
        fixed=True,
    )
    symmetries: bool = opt(
        False,
        "transform each step by a random symmetry before learning from it, in environments that have symmetries, such "
        "as the eight of a board",
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
