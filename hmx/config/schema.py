"""Every option of a run, said once: its default, its meaning, its unit.

Help texts, documentation, completion and error messages are derived from these fields.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


def opt(default: Any, doc: str, unit: str = "", choices: tuple[Any, ...] = ()) -> Any:
    """A dataclass field with one line of documentation, a unit and, where closed, its choices."""
    return dataclasses.field(default=default, metadata={"doc": doc, "unit": unit, "choices": choices})


SCHEDULES: tuple[str, ...] = ("constant", "linear", "cosine", "logarithmic", "exponential")


@dataclass(frozen=True, kw_only=True)
class RewardWeights:
    """The reward terms of HackMatrix: the fields are the names, the values are the worth.

    Each weight multiplies an integer count that the rules emit (`hmx.game.Events`), or a
    quantity derived from such counts; a weight of 0 switches the term off.
    """

    step_penalty: float = opt(-0.01, "per valid action, free programs included", "per step")
    stage_completion: float = opt(1.0, "times 1, 2, 4, 8, 16, 32, 64, 100 for completing stage 1 to 8", "per stage")
    score_gain: float = opt(0.5, "per point of score", "per point")
    kills: float = opt(0.3, "per enemy or transmission destroyed, scheduled ones excluded", "per kill")
    data_siphon: float = opt(1.0, "per data siphon picked up by walking", "per siphon")
    distance_shaping: float = opt(0.05, "per cell of the shortest path to the exit that was won", "per cell")
    victory: float = opt(1.0, "times 500 + 100 x score, on completing stage 8", "per win")
    death_penalty: float = opt(-0.5, "times the stage rewards collected so far, on death", "per death")
    siphon_death_penalty: float = opt(-10.0, "on death next to an enemy that a siphon brought", "per death")
    resource_gain: float = opt(0.05, "per credit and energy won or spent, net", "per unit")
    resource_holding: float = opt(0.01, "per credit and energy held when a stage is completed", "per unit")
    damage_penalty: float = opt(-1.0, "per hit point lost, net over the step", "per hp")
    hp_recovery: float = opt(1.0, "per hit point won, net over the step", "per hp")
    siphon_quality: float = opt(
        -0.025, "per credit and energy that a better siphon position would have given", "per unit"
    )
    program_waste: float = opt(-0.3, "for using RESET with 2 hit points", "per use")


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Where a run lies, how long it is and what it writes."""

    name: str = opt("", "name of the run folder; empty makes one from environment, algorithm and seed")
    root: str = opt("runs", "folder that holds the run folders")
    seed: int = opt(0, "seed of every random stream")
    num_seeds: int = opt(1, "independent agents trained side by side in one program", "agents")
    devices: int = opt(1, "devices that the environments are spread over; 0 takes all there are", "devices")
    total_steps: int = opt(4_194_304, "environment steps to train for, per seed", "steps")
    budget: str = opt(
        "exact",
        "how total_steps becomes updates: the fewest that reach it, or as in Brax the fewest in each of budget_epochs "
        "equal parts",
        choices=("exact", "brax"),
    )
    budget_epochs: int = opt(90, "parts of the budget where run.budget = brax: evaluations x resets between them")
    updates_per_chunk: int = opt(4, "updates compiled into one call; the host acts between chunks", "updates")
    checkpoint_every: int = opt(10, "chunks between two checkpoints; the last chunk always saves", "chunks")
    keep: int = opt(3, "newest checkpoints kept", "checkpoints")
    keep_best: int = opt(1, "checkpoints of the highest mean episode return kept besides", "checkpoints")
    on_nonfinite: str = opt(
        "stop",
        "what a loss, gradient, parameter or reward that is not finite does: stop before the update that brought it, "
        "or skip its gradient steps",
        choices=("stop", "skip"),
    )
    eval_episodes: int = opt(1000, "episodes of the evaluation that ends a run; 0 skips it", "episodes")
    grad_report_every: int = opt(
        0,
        "updates between two gradient reports, each measured before the update it is recorded with; 0 for none",
        "updates",
    )
    grad_report_groups: int = opt(32, "start states of such a report, with 4 episodes from each", "start states")
    wandb: str = opt("disabled", "send metrics to Weights & Biases", choices=("disabled", "offline", "online"))
    wandb_project: str = opt("hackmatrix", "project the metrics are sent to")


@dataclass(frozen=True, kw_only=True)
class EnvConfig:
    """Which environment, and how many side by side."""

    id: str = opt("hackmatrix", "environment to train on")
    num_envs: int = opt(512, "environments stepped side by side, per seed", "environments")
    num_agents: int = opt(
        1, "agents in each environment, with shared parameters; rendezvous takes any number; smax has its own"
    )
    max_steps: int = opt(
        1000,
        "steps after which an episode is truncated; 0 never; at most 200 for pendulum, 500 for cartpole, 100 for smax",
        "steps",
    )
    action_repeat: int = opt(1, "steps of the environment that one action lasts, unless the episode ends", "steps")
    reset_on_done: str = opt(
        "fresh",
        "where training goes on after an episode: a fresh start, the environment's first start again, or one drawn per "
        "rollout",
        choices=("fresh", "first", "rollout_cache"),
    )
    full_reset_every: int = opt(0, "updates after which every environment begins anew; 0 never", "updates")
    obs: str = opt(
        "packed",
        "observation of HackMatrix: packed words that the network decodes, or 1,545 floats",
        choices=("packed", "flat"),
    )
    undo_depth: int = opt(4, "turn-end snapshots that UNDO can go back to", "snapshots")
    loopholes: bool = opt(True, "keep the reference game's exploitable behaviour (docs/adr/0003-rules.md)")
    world_state: bool = opt(
        False, "the value network, apart from the policy's, also sees where every unit of a battle of SMAX stands"
    )
    slip: float = opt(0.1, "probability that the corridor moves against the action", "probability")
    recall_delay: int = opt(8, "steps between the cue of recall and the moment it is asked for", "steps")


@dataclass(frozen=True, kw_only=True)
class NetConfig:
    """The policy and value network."""

    kind: str = opt(
        "auto",
        "architecture; auto takes cells for the packed HackMatrix board, else mlp",
        choices=("auto", "mlp", "cells"),
    )
    hidden: tuple[int, ...] = opt((256, 256), "width of each hidden layer of the torso", "units")
    value_hidden: tuple[int, ...] = opt((), "those of the value's own torso; empty takes net.hidden", "units")
    cell_features: int = opt(16, "features per board cell of the cells network", "units")
    activation: str = opt("relu", "non-linearity", choices=("relu", "tanh", "silu", "gelu"))
    shared_torso: bool = opt(True, "policy and value share all layers but their heads")
    layer_norm: bool = opt(False, "normalise every hidden layer")
    norm_order: str = opt(
        "pre", "where layer_norm normalises: before or after the non-linearity", choices=("pre", "post")
    )
    init: str = opt(
        "orthogonal",
        "initial weights of linear layers, times a gain; lecun_uniform has variance 1 / inputs",
        choices=("orthogonal", "lecun_uniform"),
    )
    gain_hidden: float = opt(1.4142135623730951, "gain of hidden layers")
    gain_policy: float = opt(0.01, "gain of the policy head")
    gain_value: float = opt(1.0, "gain of the value head; that of a two_hot head is 0 whatever this says")
    std: str = opt(
        "softplus",
        "deviation of continuous actions: softplus or exp of what the network says, or exp of a number of its own",
        choices=("softplus", "exp", "param"),
    )
    std_min: float = opt(0.001, "added to every deviation")
    rnn: str = opt("none", "memory between torso and heads", choices=("none", "gru", "lstm"))
    rnn_hidden: int = opt(128, "units of the memory", "units")


@dataclass(frozen=True, kw_only=True)
class AlgoConfig:
    """The learning algorithm."""

    name: str = opt(
        "ppo",
        "algorithm: proximal policy optimisation, or Q-learning with replay (docs/q-learning.md)",
        choices=("ppo", "dqn"),
    )
    num_steps: int = opt(64, "steps per environment and update", "steps")
    bptt_horizon: int = opt(
        0, "steps of one agent in a training row; 0 takes num_steps with a memory, and 1 without", "steps"
    )
    update_epochs: int = opt(4, "passes over each rollout", "epochs")
    num_minibatches: int = opt(8, "gradient steps per pass", "minibatches")
    learning_rate: float = opt(5e-4, "step size of Adam at the start")
    lr_schedule: str = opt("linear", "how the step size changes over the run", choices=SCHEDULES)
    lr_end: float = opt(0.0, "step size at the end, as a share of the start")
    lr_warmup: float = opt(0.0, "share of the run over which the step size first rises from 0", "share")
    adam_eps: float = opt(1e-5, "epsilon of Adam")
    max_grad_norm: float = opt(0.5, "norm the gradient is clipped to; 0 never clips")
    grad_clip: str = opt(
        "joint",
        "what max_grad_norm limits: the norm of the whole gradient, that of policy and value each, or every element",
        choices=("joint", "per_network", "elementwise"),
    )
    obs_norm: str = opt(
        "none",
        "normalise observations by running statistics: not at all, where the network reads them, or in the "
        "environment's step as it is taken (the first observation of an episode then stays raw)",
        choices=("none", "network", "env"),
    )
    obs_norm_update: str = opt(
        "after_sgd",
        "when statistics of the network take in a rollout; before_sgd makes the first importance ratios differ from 1",
        choices=("after_sgd", "before_sgd"),
    )
    obs_norm_ddof: int = opt(0, "subtracted from the number of observations that the variance divides by")
    obs_norm_clip: float = opt(0.0, "size a normalised observation is clipped to; 0 never clips")
    reward_scale: float = opt(1.0, "multiplies rewards for the learner; reported returns stay as they are")
    gamma: float = opt(0.99, "discount per step")
    gae_lambda: float = opt(0.95, "lambda of generalised advantage estimation")
    advantage: str = opt(
        "gae",
        "advantage of the policy loss: GAE, GAE anew per minibatch with V-trace-clipped importance ratios, or Brax's, "
        "which lacks GAE's first lambda",
        choices=("gae", "vtrace", "brax"),
    )
    advantage_when: str = opt(
        "rollout",
        "when advantages and targets are computed: once per rollout, or per minibatch with the values of the moment",
        choices=("rollout", "minibatch"),
    )
    gae_axis: str = opt(
        "time",
        "axis that advantages are summed along; batch sums over unrelated rows, a known bug, to reproduce it",
        choices=("time", "batch"),
    )
    episode_end: str = opt(
        "bootstrap",
        "a step at which an episode is cut: bootstrap from its true last observation, leave the step out, take it for "
        "a termination, add gamma V(s_t) to the reward of one, or let the sum run on into the next episode, a known "
        "bug, to reproduce it",
        choices=("bootstrap", "mask", "terminal", "timeout_reward", "leak"),
    )
    value_forward: str = opt(
        "shift",
        "values of next states: those of the next step, or all evaluated apart",
        choices=("shift", "both"),
    )
    vtrace_rho_clip: float = opt(1.0, "clip of the ratio that weighs each temporal-difference error of vtrace")
    vtrace_c_clip: float = opt(1.0, "clip of the ratio that lets the trace of vtrace run on")
    row_end: str = opt(
        "bootstrap",
        "last step of a training row: trained on with a bootstrap value, left out, or given advantage 0",
        choices=("bootstrap", "mask", "zero"),
    )
    norm_adv: bool = opt(True, "normalise advantages per minibatch")
    clip_eps: float = opt(0.2, "clip range of the importance ratio")
    clip_schedule: str = opt("constant", "how clip_eps changes over the run", choices=SCHEDULES)
    clip_end: float = opt(1.0, "clip_eps at the end, as a share of the start")
    clip_vf_eps: float = opt(0.0, "clip range of the value, in value units; 0 never clips")
    clip_vf_schedule: str = opt("constant", "how clip_vf_eps changes over the run", choices=SCHEDULES)
    clip_vf_end: float = opt(1.0, "clip_vf_eps at the end, as a share of the start")
    vf_coef: float = opt(0.5, "weight of the value loss")
    vf_half: bool = opt(True, "the value loss is half the squared error; without, vf_coef weighs the whole of it")
    ent_coef: float = opt(0.01, "weight of the entropy bonus")
    entropy: str = opt(
        "tanh_sample",
        "entropy of continuous actions: before the squash, after it from one sample, or after it by quadrature",
        choices=("gaussian", "tanh_sample", "tanh_quadrature"),
    )
    ent_schedule: str = opt("constant", "how ent_coef changes over the run", choices=SCHEDULES)
    ent_end: float = opt(1.0, "ent_coef at the end, as a share of the start")
    schedule_rate: float = opt(0.1, "decay rate of logarithmic and exponential schedules")
    prio_alpha: float = opt(0.0, "how strongly large advantages draw a row into minibatches; 0 shuffles all alike")
    prio_beta0: float = opt(0.6, "share of that bias corrected by importance weights at the start")
    prio_weights: str = opt(
        "max",
        "importance weights divided by the largest of the minibatch, clipped, or as they are",
        choices=("max", "clip", "raw"),
    )
    prio_weight_clip: float = opt(10.0, "highest importance weight where prio_weights = clip")
    value_target: str = opt(
        "symlog", "what the value head predicts", choices=("identity", "symlog", "return_norm", "two_hot")
    )
    auto_scale: bool = opt(False, "fit minibatches, epochs and step size to a large batch, and print what changed")


@dataclass(frozen=True, kw_only=True)
class DqnConfig:
    """Deep Q-learning; gamma, step size, gradient clip and steps per update are those of `[algo]`."""

    batch_size: int = opt(64, "transitions per gradient step", "transitions")
    gradient_steps: int = opt(4, "gradient steps per update", "gradient steps")
    learn_starts: int = opt(4096, "transitions in the buffer before the first gradient step", "transitions")
    n_step: int = opt(1, "steps of reward before the target bootstraps, not corrected for exploration", "steps")
    double: bool = opt(True, "the network in training chooses the action whose target value counts")
    dueling: bool = opt(False, "state value and advantages as two streams of the network")
    loss: str = opt("huber", "loss of a TD error", choices=("huber", "squared"))
    target_tau: float = opt(1.0, "share of the network that a write to the target network takes over", "share")
    target_every: int = opt(250, "gradient steps between two writes to the target network", "gradient steps")
    epsilon_start: float = opt(1.0, "probability of a random action at the start", "probability")
    epsilon_end: float = opt(0.05, "probability of a random action at the end", "probability")
    epsilon_fraction: float = opt(
        0.5, "share of the run over which that probability falls, in a straight line", "share"
    )


@dataclass(frozen=True, kw_only=True)
class ReplayConfig:
    """The buffer that Q-learning learns from, and what draws a transition from it."""

    capacity: int = opt(65_536, "transitions kept, per seed; a multiple of env.num_envs", "transitions")
    mixing: str = opt(
        "td",
        "what draws a transition: nothing (uniform), its TD error, or that and its consequence, mixed or multiplied",
        choices=("uniform", "td", "additive", "multiplicative"),
    )
    mu: float = opt(0.5, "share of draws by consequence where mixing = additive", "share")
    alpha_td: float = opt(0.6, "exponent of the TD error; 0 makes all transitions alike")
    alpha_c: float = opt(0.6, "exponent of the consequence score, where mixing uses it")
    target_ess: float = opt(
        0.0,
        "effective sample size, as a share of the buffer, that both exponents are scaled to; 0 leaves them",
        "share",
    )
    is_beta: float = opt(0.4, "exponent of the importance weights at the start")
    is_beta_end: float = opt(1.0, "exponent of the importance weights at the end; linear in between")
    is_norm: str = opt(
        "max",
        "importance weights divided by the largest of the batch, by the largest that is possible, or as they are",
        choices=("max", "bound", "raw"),
    )
    survey_every: int = opt(
        128, "updates between two looks at the whole buffer, for its metrics and target_ess", "updates"
    )
    save: bool = opt(False, "write the buffer that a run ends with to a file in its reports, for hmx score-buffer")


@dataclass(frozen=True, kw_only=True)
class ScoreConfig:
    """Consequence: how much the action taken mattered in stored positions."""

    every: int = opt(0, "updates between two scoring passes; 0 never scores", "updates")
    kind: str = opt(
        "rollouts", "what a score compares: returns of playing on, or action values", choices=("rollouts", "qgap")
    )
    transitions: int = opt(128, "transitions scored per pass, where coverage is 0", "transitions")
    coverage: float = opt(0.0, "scores per transition over its life that a pass is sized for; 0 takes transitions")
    selection: str = opt(
        "stale",
        "which are scored: those without score and then the oldest scores, any, or those that replay draws",
        choices=("stale", "uniform", "replay"),
    )
    actions: str = opt(
        "all",
        "what the action taken is compared with: all legal (joint) actions, those of one agent, random or likely ones",
        choices=("all", "single", "sampled", "topk"),
    )
    num_actions: int = opt(8, "how many, for sampled and topk", "actions")
    rollouts: int = opt(4, "continuations per action", "rollouts")
    horizon: int = opt(20, "steps of each, the compared action included", "steps")
    continuation: str = opt(
        "greedy", "how play goes on after the compared action", choices=("greedy", "softmax", "epsilon")
    )
    parameter: float = opt(0.1, "temperature of softmax, or probability of a random action of epsilon")
    metric: str = opt(
        "w1",
        "distance of two sets of returns: Wasserstein-1, of the means, total variation or Jensen-Shannon",
        choices=("w1", "dmean", "tv", "js", "tv_bins", "js_bins"),
    )
    aggregate: str = opt(
        "mean", "over the alternatives: mean, largest, or weighted by the policy", choices=("mean", "max", "policy")
    )
    bootstrap: bool = opt(True, "rollouts that are cut go on in value")
    crn: bool = opt(True, "all actions of a position meet the same random numbers")
    chunk: int = opt(64, "positions scored side by side", "positions")


@dataclass(frozen=True, kw_only=True)
class Config:
    """A whole run."""

    run: RunConfig = dataclasses.field(default_factory=RunConfig)
    env: EnvConfig = dataclasses.field(default_factory=EnvConfig)
    reward: RewardWeights = dataclasses.field(default_factory=RewardWeights)
    net: NetConfig = dataclasses.field(default_factory=NetConfig)
    algo: AlgoConfig = dataclasses.field(default_factory=AlgoConfig)
    dqn: DqnConfig = dataclasses.field(default_factory=DqnConfig)
    replay: ReplayConfig = dataclasses.field(default_factory=ReplayConfig)
    score: ScoreConfig = dataclasses.field(default_factory=ScoreConfig)


REWARD_TERMS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(RewardWeights))

ENV_IDS: tuple[str, ...] = (
    "hackmatrix", "counting", "corridor", "frozenlake", "frozenlake-slippery", "recall", "rendezvous",
    "pendulum", "cartpole", "cartpole-discrete",
)  # fmt: skip
