"""What a configuration means in the ways in which implementations of PPO silently differ."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from hmx.config import derive
from hmx.config.env_facts import env_facts
from hmx.config.fields import get
from hmx.config.schema import Config
from hmx.config.switches import BUGS, value_weight


class Row(NamedTuple):
    """One of the differences, as a configuration settles it."""

    id: str  # such as "1.2"
    title: str
    values: dict[str, Any]  # dotted key -> value, of every key that belongs to the row
    meaning: str  # what they come to, in words
    bug: bool = False  # whether a known bug is reproduced

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        values = {key: list(value) if isinstance(value, tuple) else value for key, value in self.values.items()}
        return {**self._asdict(), "values": values}


def meaning(cfg: Config) -> tuple[Row, ...]:
    """The effective meaning of a configuration, one row per known difference, in the order of their numbers.

    The configuration must have no problems.
    """
    rows = []
    for number, (title, keys, words) in ROWS.items():
        values = {key: get(cfg, key) for key in keys}
        bug = any(values.get(key) == value for key, (value, _) in BUGS.items())
        rows.append(Row(number, title, values, words(cfg), bug))
    return tuple(rows)


def row_of(key: str) -> str | None:
    """The number of the row that a dotted key belongs to, if it belongs to one."""
    return next((number for number, (_, keys, _) in ROWS.items() if key in keys), None)


def _advantage(cfg: Config) -> str:
    algo = cfg.algo
    form = {
        "gae": "GAE",
        "vtrace": "GAE with V-trace-clipped ratios",
        "brax": "Brax's advantage, delta + gamma GAE of the next step: GAE without its first lambda",
    }[algo.advantage]
    anew = algo.advantage == "vtrace" or algo.advantage_when == "minibatch"
    when = "anew per minibatch" if anew else "once per rollout"
    axis = "time" if algo.gae_axis == "time" else "the batch (known bug: unrelated rows are summed)"
    row = f"; rows of {derive.horizon(cfg):,} steps" if algo.advantage_when == "minibatch" else ""
    return f"{form}, along {axis}, {when}{row}; lambda {algo.gae_lambda:g}, gamma {algo.gamma:g}"


def _episode_end(cfg: Config) -> str:
    return {
        "bootstrap": "a cut step bootstraps from its true last observation",
        "mask": "a cut step has advantage 0 and its own value for a target; the one before bootstraps from it",
        "terminal": "a cut counts as a termination: values forget the time limit's future",
        "timeout_reward": "a cut counts as a termination that pays gamma V(s_t) more",
        "leak": "the sum runs on past a cut into the next episode (known bug)",
    }[cfg.algo.episode_end]


def _value_loss(cfg: Config) -> str:
    algo = cfg.algo
    loss = "cross-entropy" if algo.value_target == "two_hot" else "mean squared error"
    factor = value_weight(algo) * (1.0 if algo.value_target == "two_hot" else 0.5)
    clip = f"clipped at {algo.clip_vf_eps:g}" if algo.clip_vf_eps else "not clipped"
    clips = algo.max_grad_norm and algo.grad_clip == "joint"
    felt = "" if cfg.net.shared_torso or clips else "; Adam cancels the factor: separate networks, no joint clip"
    return f"{factor:g} x {loss} of {algo.value_target} targets, {clip}; rewards x {algo.reward_scale:g}{felt}"


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
    floor = f"never under {net.std_min:g}" if net.std_min else "no floor"
    return f"{how} + {net.std_min:g}: {start:.3f} where raw is 0, {floor}"


def _entropy(cfg: Config) -> str:
    algo = cfg.algo
    if not _continuous(cfg):
        return f"of the distribution over legal actions; weight {algo.ent_coef:g}"
    kind = {
        "gaussian": "Gaussian, before the squash: pushes deviations up without end",
        "tanh_sample": "after the squash, one sample per state: at most log 2 per dimension",
        "tanh_quadrature": "after the squash, by quadrature: at most log 2 per dimension",
    }[algo.entropy]
    return f"{kind}; weight {algo.ent_coef:g}"


def _init(cfg: Config) -> str:
    net = cfg.net
    gains = f"gains {net.gain_hidden:.4g} hidden, {net.gain_policy:.4g} policy, {net.gain_value:.4g} value"
    kind = "orthogonal" if net.init == "orthogonal" else "uniform within gain x sqrt(3 / inputs)"
    return f"{kind}; {gains}; biases 0"


def _layer_norm(cfg: Config) -> str:
    if not cfg.net.layer_norm:
        return "none"
    return "linear, norm, non-linearity" if cfg.net.norm_order == "pre" else "linear, non-linearity, norm"


def _grad_clip(cfg: Config) -> str:
    algo = cfg.algo
    if not algo.max_grad_norm:
        return "none"
    what = {
        "joint": "norm of the whole gradient, policy and value together",
        "per_network": "norm of policy and of value, each alone",
        "elementwise": "size of every element",
    }[algo.grad_clip]
    return f"{what}, at {algo.max_grad_norm:g}"


def _resets(cfg: Config) -> str:
    env = cfg.env
    done = {
        "fresh": "a fresh start after every episode",
        "first": "the same start again after every episode",
        "rollout_cache": "one fresh start per environment and rollout",
    }[env.reset_on_done]
    every = f"all begin anew every {env.full_reset_every:,} updates" if env.full_reset_every else "never all at once"
    real, asked = derive.derive(cfg).total_env_steps, cfg.run.total_steps
    return f"{done}; {every}; budget {cfg.run.budget}: {real:,} steps run of {asked:,} asked ({real / asked:.3g} x)"


def _value_forward(cfg: Config) -> str:
    length = derive.horizon(cfg)
    if cfg.algo.advantage_when == "rollout":
        if cfg.algo.value_forward == "both":
            return "next states are valued in every step of the rollout; T passes per row in a minibatch"
        return "values of a rollout are shifted, last observations valued apart; T passes per row in a minibatch"
    both = cfg.algo.value_forward == "both"
    return f"{2 * length if both else length + 1} value passes per row of {length} steps and minibatch"


def _obs_norm(cfg: Config) -> str:
    algo = cfg.algo
    if algo.obs_norm == "none":
        return "none"
    divisor = "n - 1" if algo.obs_norm_ddof else "n"
    clip = f", clipped at {algo.obs_norm_clip:g}" if algo.obs_norm_clip else ""
    if algo.obs_norm == "env":
        where = "in the step, with the statistics before it; an episode's first observation stays raw, uncounted"
    elif algo.obs_norm_update == "before_sgd":
        where = "in the network; statistics move before the gradient steps, so the first ratios are not 1"
    else:
        where = "in the network; statistics rest from acting until the gradient steps are done"
    return f"{where}; deviation over {divisor}{clip}"


def _devices(cfg: Config) -> str:
    on = {0: "all devices", 1: "one device"}.get(cfg.run.devices, f"{cfg.run.devices} devices")
    return f"one program on {on}; minibatches are normalised as a whole"


ROWS: dict[str, tuple[str, tuple[str, ...], Callable[[Config], str]]] = {
    "1.1": (
        "advantage",
        (
            "algo.advantage",
            "algo.gae_axis",
            "algo.advantage_when",
            "algo.gae_lambda",
            "algo.gamma",
            "algo.bptt_horizon",
        ),
        _advantage,
    ),
    "1.2": ("end of an episode", ("algo.episode_end",), _episode_end),
    "1.3": (
        "value loss",
        ("algo.vf_coef", "algo.vf_half", "algo.clip_vf_eps", "algo.value_target", "algo.reward_scale"),
        _value_loss,
    ),
    "1.4": ("deviation of actions", ("net.std", "net.std_min"), _std),
    "1.5": ("entropy", ("algo.entropy", "algo.ent_coef"), _entropy),
    "1.6": ("initial weights", ("net.init", "net.gain_hidden", "net.gain_policy", "net.gain_value"), _init),
    "1.7": ("layer norm", ("net.layer_norm", "net.norm_order"), _layer_norm),
    "1.8": ("gradient clipping", ("algo.max_grad_norm", "algo.grad_clip"), _grad_clip),
    "1.9": (
        "resets and budget",
        ("env.reset_on_done", "env.full_reset_every", "run.budget", "run.budget_epochs"),
        _resets,
    ),
    "2.1": ("value passes", ("algo.value_forward",), _value_forward),
    "2.2": ("devices", ("run.devices",), _devices),
    "2.3": ("network library", (), lambda cfg: "Flax Linen, parameters apart from functions; nothing at run time"),
    "2.4": (
        "observation normalisation",
        ("algo.obs_norm", "algo.obs_norm_update", "algo.obs_norm_ddof", "algo.obs_norm_clip"),
        _obs_norm,
    ),
}
"""Number -> title, the keys that settle it, and what says its meaning; numbers as in docs/ppo.md."""
