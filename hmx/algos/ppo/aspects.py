"""What a configuration means in each aspect in which implementations of PPO silently differ; no JAX."""

from __future__ import annotations

import math

from hmx.algos.ppo.checks import BUGS
from hmx.config.fields import get
from hmx.config.learning import PpoConfig
from hmx.config.schema import AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import counted
from hmx.registry.algorithms import Aspect
from hmx.registry.derive import derive
from hmx.registry.sizes import Sizes


def aspects(cfg: Config, sizes: Sizes | None) -> tuple[Aspect, ...]:
    """Describe a configuration without problems in every aspect, in the order of their numbers."""
    algo, ppo, net = cfg.algo, cfg.ppo, cfg.net
    sizes_of_run = derive(cfg)
    length = sizes_of_run.horizon
    discrete = sizes is not None and not sizes.action_dim
    meanings = {
        "1.1": _advantage(ppo, algo.gamma, length),
        "1.2": _episode_end(ppo),
        "1.3": _value_loss(ppo, algo, net.shared_torso),
        "1.4": _std(net, discrete),
        "1.5": _entropy(ppo, discrete),
        "1.6": _init(net),
        "1.7": _layer_norm(net),
        "1.8": _grad_clip(algo),
        "1.9": f"{_resets(cfg.env, cfg.starts.share)}; {_budget(cfg.run, sizes_of_run.total_env_steps)}",
        "2.1": _value_forward(ppo, length),
        "2.2": _devices(cfg.run.devices),
        "2.3": "Flax Linen; no effect at run time",
        "2.4": _obs_norm(ppo),
    }
    described = []
    for number, (title, impact, confidence, keys) in ASPECTS.items():
        values = {key: get(cfg, key) for key in keys}
        bug = any(values.get(key) == value for key, (value, _) in BUGS.items())
        described.append(Aspect(number, title, values, meanings[number], bug, impact, confidence))
    return tuple(described)


def value_weight(ppo: PpoConfig) -> float:
    """Return the weight of the value loss, which is half the mean squared error (or the cross-entropy of two_hot)."""
    return ppo.vf_coef if ppo.vf_half else 2.0 * ppo.vf_coef


def _advantage(ppo: PpoConfig, gamma: float, length: int) -> str:
    form = {
        "gae": "GAE",
        "vtrace": "GAE with V-trace-clipped ratios",
        "brax": "Brax's advantage, delta + gamma GAE of the next step: GAE without its first lambda",
    }[ppo.advantage]
    recomputed = ppo.advantage == "vtrace" or ppo.advantage_when == "minibatch"
    when = "recomputed per minibatch" if recomputed else "once per rollout"
    axis = "time" if ppo.gae_axis == "time" else "the batch (known bug: unrelated sequences are summed)"
    row = f"; sequences of {length:,} steps" if ppo.advantage_when == "minibatch" else ""
    unit = ", as a change of symlog(value)" if ppo.advantage_scale == "symlog" else ""
    return f"{form}, along {axis}, {when}{row}{unit}; lambda {ppo.gae_lambda:g}, gamma {gamma:g}"


def _episode_end(ppo: PpoConfig) -> str:
    return {
        "bootstrap": "a truncated step bootstraps from its last observation",
        "mask": "a truncated step has advantage 0 and its own value as target; the step before bootstraps from it",
        "terminal": "truncation counts as termination: values ignore what the time limit cut off",
        "timeout_reward": "truncation counts as termination, with gamma V(s_t) added to the reward",
        "leak": "the advantage of a truncated episode leaks into the next one (known bug)",
    }[ppo.episode_end]


def _value_loss(ppo: PpoConfig, algo: AlgoConfig, shared_torso: bool) -> str:
    loss = "cross-entropy" if ppo.value_target == "two_hot" else "mean squared error"
    factor = value_weight(ppo) * (1.0 if ppo.value_target == "two_hot" else 0.5)
    clip = f"clipped at {ppo.clip_vf_eps:g}" if ppo.clip_vf_eps else "not clipped"
    clips = algo.max_grad_norm and algo.grad_clip == "joint"
    note = "" if shared_torso or clips else "; Adam cancels the factor: separate networks, no joint clip"
    return f"{factor:g} x {loss} of {ppo.value_target} targets, {clip}; rewards x {ppo.reward_scale:g}{note}"


def _std(net: NetConfig, discrete: bool) -> str:
    if discrete:
        return "none: actions are discrete"
    start = math.log(2.0) + net.std_min if net.std == "softplus" else 1.0 + net.std_min
    how = {"softplus": "softplus(raw)", "exp": "exp(raw)", "param": "exp(a parameter)"}[net.std]
    least = f"at least {net.std_min:g}" if net.std_min else "no minimum"
    return f"{how} + {net.std_min:g}: {start:.3f} where raw is 0, {least}"


def _entropy(ppo: PpoConfig, discrete: bool) -> str:
    if discrete:
        return f"of the distribution over legal actions; weight {ppo.ent_coef:g}"
    kind = {
        "gaussian": "Gaussian, before the tanh: rewards ever larger standard deviations",
        "tanh_sample": "after the tanh, one sample per state: at most log 2 per dimension",
        "tanh_quadrature": "after the tanh, by quadrature: at most log 2 per dimension",
    }[ppo.entropy]
    return f"{kind}; weight {ppo.ent_coef:g}"


def _init(net: NetConfig) -> str:
    gains = f"gains {net.gain_hidden:.4g} hidden, {net.gain_policy:.4g} policy, {net.gain_value:.4g} value"
    kind = "orthogonal" if net.init == "orthogonal" else "uniform within gain x sqrt(3 / inputs)"
    return f"{kind}; {gains}; biases 0"


def _layer_norm(net: NetConfig) -> str:
    if not net.layer_norm:
        return "none"
    return "linear, norm, activation" if net.norm_order == "pre" else "linear, activation, norm"


def _grad_clip(algo: AlgoConfig) -> str:
    if not algo.max_grad_norm:
        return "none"
    what = {
        "joint": "global norm, policy and value together",
        "per_network": "norms of policy and value separately",
        "elementwise": "absolute value of each element",
    }[algo.grad_clip]
    return f"{what}, at {algo.max_grad_norm:g}"


def _resets(env: EnvConfig, start_share: float) -> str:
    done = {
        "fresh": "a new initial state after every episode",
        "first": "the same initial state after every episode",
        "rollout_cache": "one new initial state per environment and rollout",
    }[env.reset_on_done]
    every = (
        f"all reset every {counted(env.full_reset_every, 'update')}"
        if env.full_reset_every
        else "never all reset at once"
    )
    if start_share:
        done += f", but with probability {start_share:g} one in a later stage"
    return f"{done}; {every}"


def _budget(run: RunConfig, real: int) -> str:
    asked = run.total_steps
    return f"budget {run.budget}: {real:,} steps for {asked:,} requested ({real / asked:.3g} x)"


def _value_forward(ppo: PpoConfig, length: int) -> str:
    if ppo.advantage_when == "rollout":
        if ppo.value_forward == "both":
            return "next states are evaluated in every step of the rollout; T passes per sequence in a minibatch"
        return "values of a rollout are shifted, last observations evaluated too; T passes per sequence in a minibatch"
    both = ppo.value_forward == "both"
    return f"{2 * length if both else length + 1} value passes per sequence of {length} steps and minibatch"


def _obs_norm(ppo: PpoConfig) -> str:
    if ppo.obs_norm == "none":
        return "none"
    divisor = "n - 1" if ppo.obs_norm_ddof else "n"
    clip = f", clipped at {ppo.obs_norm_clip:g}" if ppo.obs_norm_clip else ""
    if ppo.obs_norm == "env":
        where = "in the step, with earlier statistics; the first observation of an episode stays raw and uncounted"
    elif ppo.obs_norm_update == "before_sgd":
        where = "in the network; statistics are updated before the gradient steps, so the first ratios are not 1"
    else:
        where = "in the network; statistics are updated after the gradient steps"
    return f"{where}; variance over {divisor}{clip}"


def _devices(number: int) -> str:
    on = {0: "all devices", 1: "one device"}.get(number, f"{number} devices")
    return f"one program on {on}; advantages are normalised over whole minibatches"


ASPECTS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "1.1": ("advantage", "critical", "high", (
        "ppo.advantage", "ppo.gae_axis", "ppo.advantage_when", "ppo.advantage_scale", "ppo.gae_lambda", "algo.gamma",
        "ppo.bptt_horizon",
    )),
    "1.2": ("end of an episode", "high", "high", ("ppo.episode_end",)),
    "1.3": ("value loss", "medium", "high", (
        "ppo.vf_coef", "ppo.vf_half", "ppo.clip_vf_eps", "ppo.value_target", "ppo.reward_scale",
    )),
    "1.4": ("standard deviation of actions", "medium", "high", ("net.std", "net.std_min")),
    "1.5": ("entropy", "low to medium", "high", ("ppo.entropy", "ppo.ent_coef")),
    "1.6": ("initial weights", "low to medium", "high", (
        "net.init", "net.gain_hidden", "net.gain_policy", "net.gain_value",
    )),
    "1.7": ("layer norm", "low to medium", "high", ("net.layer_norm", "net.norm_order")),
    "1.8": ("gradient clipping", "low", "high", ("algo.max_grad_norm", "algo.grad_clip")),
    "1.9": ("resets and budget", "low", "unsure", (
        "env.reset_on_done", "env.full_reset_every", "starts.share", "run.budget", "run.budget_epochs",
    )),
    "2.1": ("value passes", "medium", "high", ("ppo.value_forward",)),
    "2.2": ("devices", "high on several devices, none on one", "high", ("run.devices",)),
    "2.3": ("network library", "none at run time", "medium", ()),
    "2.4": ("observation normalisation", "none if it is off", "medium", (
        "ppo.obs_norm", "ppo.obs_norm_update", "ppo.obs_norm_ddof", "ppo.obs_norm_clip",
    )),
}  # fmt: skip
"""Number as in docs/ppo.md -> title, impact and confidence, and the keys that decide it.

Impact and confidence are those of the published comparison of two implementations, Brax and SCS."""
