"""What a configuration means in each aspect in which implementations of PPO silently differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hmx.config.fields import get
from hmx.config.schema import Config
from hmx.errors import counted
from hmx.registry import derive
from hmx.registry.derive import value_weight
from hmx.registry.env_facts import env_facts
from hmx.registry.rules import BUGS


class Aspect(NamedTuple):
    """One aspect in which implementations differ, as a configuration decides it."""

    id: str  # such as "1.2"
    title: str
    values: dict[str, Any]  # dotted key -> value, of every key that decides it
    meaning: str  # in plain words
    bug: bool = False  # whether a known bug is reproduced


def meaning(cfg: Config) -> tuple[Aspect, ...]:
    """Describe a configuration without problems in every aspect, in the order of their numbers."""
    found = []
    for number, (title, keys, words) in ASPECTS.items():
        values = {key: get(cfg, key) for key in keys}
        bug = any(values.get(key) == value for key, (value, _) in BUGS.items())
        found.append(Aspect(number, title, values, words(cfg), bug))
    return tuple(found)


def aspect_of(key: str) -> str | None:
    """Return the number of the aspect that a dotted key belongs to, if any."""
    return next((number for number, (_, keys, _) in ASPECTS.items() if key in keys), None)


def _advantage(cfg: Config) -> str:
    algo, ppo = cfg.algo, cfg.ppo
    form = {
        "gae": "GAE",
        "vtrace": "GAE with V-trace-clipped ratios",
        "brax": "Brax's advantage, delta + gamma GAE of the next step: GAE without its first lambda",
    }[ppo.advantage]
    recomputed = ppo.advantage == "vtrace" or ppo.advantage_when == "minibatch"
    when = "recomputed per minibatch" if recomputed else "once per rollout"
    axis = "time" if ppo.gae_axis == "time" else "the batch (known bug: unrelated sequences are summed)"
    row = f"; sequences of {derive.horizon(cfg):,} steps" if ppo.advantage_when == "minibatch" else ""
    unit = ", as a change of symlog(value)" if ppo.advantage_scale == "symlog" else ""
    return f"{form}, along {axis}, {when}{row}{unit}; lambda {ppo.gae_lambda:g}, gamma {algo.gamma:g}"


def _episode_end(cfg: Config) -> str:
    return {
        "bootstrap": "a truncated step bootstraps from its last observation",
        "mask": "a truncated step has advantage 0 and its own value as target; the step before bootstraps from it",
        "terminal": "truncation counts as termination: values ignore what the time limit cut off",
        "timeout_reward": "truncation counts as termination, with gamma V(s_t) added to the reward",
        "leak": "the advantage of a truncated episode leaks into the next one (known bug)",
    }[cfg.ppo.episode_end]


def _value_loss(cfg: Config) -> str:
    algo, ppo = cfg.algo, cfg.ppo
    loss = "cross-entropy" if ppo.value_target == "two_hot" else "mean squared error"
    factor = value_weight(ppo) * (1.0 if ppo.value_target == "two_hot" else 0.5)
    clip = f"clipped at {ppo.clip_vf_eps:g}" if ppo.clip_vf_eps else "not clipped"
    clips = algo.max_grad_norm and algo.grad_clip == "joint"
    note = "" if cfg.net.shared_torso or clips else "; Adam cancels the factor: separate networks, no joint clip"
    return f"{factor:g} x {loss} of {ppo.value_target} targets, {clip}; rewards x {ppo.reward_scale:g}{note}"


def _continuous(cfg: Config) -> bool:
    try:
        return env_facts(cfg.env).action_dim > 0
    except KeyError:
        return True


def _std(cfg: Config) -> str:
    net = cfg.net
    if not _continuous(cfg):
        return "none: actions are discrete"
    start = math.log(2.0) + net.std_min if net.std == "softplus" else 1.0 + net.std_min
    how = {"softplus": "softplus(raw)", "exp": "exp(raw)", "param": "exp(a parameter)"}[net.std]
    least = f"at least {net.std_min:g}" if net.std_min else "no minimum"
    return f"{how} + {net.std_min:g}: {start:.3f} where raw is 0, {least}"


def _entropy(cfg: Config) -> str:
    ppo = cfg.ppo
    if not _continuous(cfg):
        return f"of the distribution over legal actions; weight {ppo.ent_coef:g}"
    kind = {
        "gaussian": "Gaussian, before the tanh: rewards ever larger standard deviations",
        "tanh_sample": "after the tanh, one sample per state: at most log 2 per dimension",
        "tanh_quadrature": "after the tanh, by quadrature: at most log 2 per dimension",
    }[ppo.entropy]
    return f"{kind}; weight {ppo.ent_coef:g}"


def _init(cfg: Config) -> str:
    net = cfg.net
    gains = f"gains {net.gain_hidden:.4g} hidden, {net.gain_policy:.4g} policy, {net.gain_value:.4g} value"
    kind = "orthogonal" if net.init == "orthogonal" else "uniform within gain x sqrt(3 / inputs)"
    return f"{kind}; {gains}; biases 0"


def _layer_norm(cfg: Config) -> str:
    if not cfg.net.layer_norm:
        return "none"
    return "linear, norm, activation" if cfg.net.norm_order == "pre" else "linear, activation, norm"


def _grad_clip(cfg: Config) -> str:
    algo = cfg.algo
    if not algo.max_grad_norm:
        return "none"
    what = {
        "joint": "global norm, policy and value together",
        "per_network": "norms of policy and value separately",
        "elementwise": "absolute value of each element",
    }[algo.grad_clip]
    return f"{what}, at {algo.max_grad_norm:g}"


def _resets(cfg: Config) -> str:
    env = cfg.env
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
    if cfg.starts.share:
        done += f", but with probability {cfg.starts.share:g} one in a later stage"
    real, asked = derive.derive(cfg).total_env_steps, cfg.run.total_steps
    return f"{done}; {every}; budget {cfg.run.budget}: {real:,} steps for {asked:,} requested ({real / asked:.3g} x)"


def _value_forward(cfg: Config) -> str:
    length = derive.horizon(cfg)
    if cfg.ppo.advantage_when == "rollout":
        if cfg.ppo.value_forward == "both":
            return "next states are evaluated in every step of the rollout; T passes per sequence in a minibatch"
        return "values of a rollout are shifted, last observations evaluated too; T passes per sequence in a minibatch"
    both = cfg.ppo.value_forward == "both"
    return f"{2 * length if both else length + 1} value passes per sequence of {length} steps and minibatch"


def _obs_norm(cfg: Config) -> str:
    ppo = cfg.ppo
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


def _devices(cfg: Config) -> str:
    on = {0: "all devices", 1: "one device"}.get(cfg.run.devices, f"{cfg.run.devices} devices")
    return f"one program on {on}; advantages are normalised over whole minibatches"


ASPECTS: dict[str, tuple[str, tuple[str, ...], Callable[[Config], str]]] = {
    "1.1": ("advantage", (
        "ppo.advantage", "ppo.gae_axis", "ppo.advantage_when", "ppo.advantage_scale", "ppo.gae_lambda", "algo.gamma",
        "ppo.bptt_horizon",
    ), _advantage),
    "1.2": ("end of an episode", ("ppo.episode_end",), _episode_end),
    "1.3": ("value loss", (
        "ppo.vf_coef", "ppo.vf_half", "ppo.clip_vf_eps", "ppo.value_target", "ppo.reward_scale",
    ), _value_loss),
    "1.4": ("standard deviation of actions", ("net.std", "net.std_min"), _std),
    "1.5": ("entropy", ("ppo.entropy", "ppo.ent_coef"), _entropy),
    "1.6": ("initial weights", ("net.init", "net.gain_hidden", "net.gain_policy", "net.gain_value"), _init),
    "1.7": ("layer norm", ("net.layer_norm", "net.norm_order"), _layer_norm),
    "1.8": ("gradient clipping", ("algo.max_grad_norm", "algo.grad_clip"), _grad_clip),
    "1.9": ("resets and budget", (
        "env.reset_on_done", "env.full_reset_every", "starts.share", "run.budget", "run.budget_epochs",
    ), _resets),
    "2.1": ("value passes", ("ppo.value_forward",), _value_forward),
    "2.2": ("devices", ("run.devices",), _devices),
    "2.3": ("network library", (), lambda cfg: "Flax Linen; no effect at run time"),
    "2.4": ("observation normalisation", (
        "ppo.obs_norm", "ppo.obs_norm_update", "ppo.obs_norm_ddof", "ppo.obs_norm_clip",
    ), _obs_norm),
}  # fmt: skip
"""Number as in docs/ppo.md -> title, the keys that decide it, and the function that describes it."""
