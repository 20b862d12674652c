"""Find what keeps PPO from running, or runs otherwise than intended, in a configuration; no JAX."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from hmx.config.divisors import neighbours
from hmx.config.fields import FIELDS, values_of
from hmx.config.learning import PpoConfig
from hmx.config.problem import Problem, fix
from hmx.config.schema import Config, EnvConfig, Rnn
from hmx.registry.derive import derive, horizon
from hmx.registry.environments import features_of
from hmx.registry.sizes import Sizes

_SIZE_KEYS = (
    "run.total_steps", "env.num_envs", "env.num_agents", "net.rnn", "algo.num_steps", "ppo.num_minibatches",
    "ppo.bptt_horizon",
)  # fmt: skip

BUGS = {
    "ppo.gae_axis": ("batch", "advantages are summed over unrelated sequences"),
    "ppo.episode_end": ("leak", "the advantage of a truncated episode leaks into the next one"),
}
"""Key -> the value that reproduces a known bug of another implementation, and the effect of the bug."""

_PLAIN = {"ppo.advantage_when": "rollout", "ppo.gae_axis": "time", "ppo.episode_end": "bootstrap"}


def check(cfg: Config, sizes: Sizes | None, bad: Collection[str]) -> Iterator[Problem]:
    """Find switches that contradict each other and, if all sizes are possible, batches that do not split."""
    yield from switches(cfg.ppo, cfg.net.rnn, cfg.env)
    if sizes is not None and sizes.simulated:
        yield from _simulated(cfg.ppo)
    if not set(bad).intersection(_SIZE_KEYS):
        num_steps = cfg.algo.num_steps
        yield from sequences(cfg.ppo, cfg.env, num_steps, horizon(cfg.net, cfg.ppo, num_steps))


def _simulated(ppo: PpoConfig) -> Iterator[Problem]:
    """Find switches that need every step of an environment inside the compiled update."""
    words = "a simulator steps outside the compiled update"
    if ppo.obs_norm == "env":
        yield Problem("simulator", ("ppo.obs_norm", "env.id"), words, fix("ppo.obs_norm", "network"))
    if ppo.value_forward == "both":
        yield Problem("simulator", ("ppo.value_forward", "env.id"), words, fix("ppo.value_forward", "shift"))


def switches(ppo: PpoConfig, rnn: Rnn, env: EnvConfig) -> Iterator[Problem]:
    """Find switches that contradict each other; each value must be valid on its own."""
    is_plain = (ppo.advantage_when, ppo.gae_axis, ppo.episode_end) == tuple(_PLAIN.values())
    needed = ", ".join(f"{key}={value}" for key, value in _PLAIN.items())
    if ppo.advantage == "vtrace" and not is_plain:
        yield Problem("vtrace_plain", ("ppo.advantage", *_PLAIN), f"vtrace needs {needed}", fix("ppo.advantage", "gae"))
    if ppo.row_end != "bootstrap" and not (is_plain and ppo.advantage != "brax"):
        words = f"sequences that do not end in a bootstrap need {needed}, and not Brax's advantage"
        keys = ("ppo.row_end", "ppo.advantage", *_PLAIN)
        yield Problem("row_end_plain", keys, words, fix("ppo.row_end", "bootstrap"))
    if ppo.advantage_when == "minibatch":
        works = fix("ppo.advantage_when", "rollout")
        if ppo.value_forward == "shift" and ppo.episode_end in ("bootstrap", "leak"):
            keys = ("ppo.value_forward", "ppo.advantage_when", "ppo.episode_end")
            words = "the step after a truncation is of the next episode, so the last observation needs its own value"
            yield Problem("shift_cut", keys, words, fix("ppo.value_forward", "both") + works)
        if ppo.value_forward == "both" and rnn != "none":
            keys = ("ppo.value_forward", "ppo.advantage_when", "net.rnn")
            words = "a recurrent network can only evaluate steps in their order"
            yield Problem("both_memory", keys, words, works)
    if ppo.advantage_scale != "reward" and (ppo.advantage == "vtrace" or ppo.advantage_when == "minibatch"):
        words = "advantages recomputed in every minibatch are in units of reward"
        keys = ("ppo.advantage_scale", "ppo.advantage", "ppo.advantage_when")
        yield Problem("scale_recomputed", keys, words, fix("ppo.advantage_scale", "reward"))
    if ppo.value_target == "two_hot" and not ppo.vf_half:
        words = "the loss of a two_hot value is a cross-entropy, without a factor of one half to omit"
        yield Problem("half_two_hot", ("ppo.vf_half", "ppo.value_target"), words, fix("ppo.vf_half", True))
    if ppo.value_target == "two_hot" and ppo.clip_vf_eps > 0:
        words = "a two_hot value cannot be clipped"
        yield Problem("clip_two_hot", ("ppo.clip_vf_eps", "ppo.value_target"), words, fix("ppo.clip_vf_eps", 0))
    if ppo.obs_norm != "none" and "cells" in features_of(env):
        words = "packed observations are words of bits, which cannot be normalised"
        works = fix("ppo.obs_norm", "none") + fix("env.obs", "flat")
        yield Problem("norm_packed", ("ppo.obs_norm", "env.obs"), words, works)
    if ppo.ref_kl_coef and not ppo.ref:
        words = "there is no reference policy to keep close to; name a run with ppo.ref"
        yield Problem("no_reference", ("ppo.ref_kl_coef", "ppo.ref"), words, fix("ppo.ref_kl_coef", 0))
    if ppo.ref and ppo.obs_norm == "env":
        words = (
            "steps return observations that this run has normalised, and a reference policy needs its own statistics"
        )
        yield Problem("reference_obs", ("ppo.obs_norm", "ppo.ref"), words, fix("ppo.obs_norm", "network"))


def sequences(ppo: PpoConfig, env: EnvConfig, steps: int, length: int) -> Iterator[Problem]:
    """Find rollouts of `steps` that do not split into sequences of `length`, and sequences into minibatches."""
    envs, minibatches, per_env = env.num_envs, ppo.num_minibatches, env.num_agents * (steps // length)
    sequences = envs * per_env
    if steps % length:
        whole = [n for n in (steps // length * length, -(-steps // length) * length) if n]
        works = fix("ppo.bptt_horizon", *neighbours(steps, length)) + fix("algo.num_steps", *whole)
        words = f"{steps:,} steps per agent do not split into sequences of {length:,} steps"
        yield Problem("row_split", ("ppo.bptt_horizon", "algo.num_steps"), words, works)
    elif sequences % minibatches:
        unit = minibatches // math.gcd(per_env, minibatches)
        fewer = envs // unit * unit
        works = fix("ppo.num_minibatches", *neighbours(sequences, minibatches))
        works += fix("env.num_envs", fewer) if fewer else ()
        what = "steps" if length == 1 else f"sequences of {length:,} steps"
        words = f"{envs:,} x {per_env:,} = {sequences:,} {what} do not split into {minibatches:,} equal minibatches"
        yield Problem("batch_split", ("ppo.num_minibatches", "env.num_envs", "algo.num_steps"), words, works)
    if length == 1 and ppo.row_end != "bootstrap":
        words = "leaves out the last step of a sequence, but sequences have only one step"
        works = fix("ppo.row_end", "bootstrap") + fix("ppo.bptt_horizon", steps)
        yield Problem("row_end", ("ppo.row_end", "ppo.bptt_horizon"), words, works)


def warn(cfg: Config) -> Iterator[Problem]:
    """Find settings that run but may be unintended."""
    sizes = derive(cfg)
    if cfg.ppo.norm_adv and sizes.minibatch_size == 1:
        words = "a minibatch of one step has standard deviation 0, so every advantage becomes 0"
        yield Problem("norm_one", ("ppo.norm_adv", "ppo.num_minibatches"), words, fix("ppo.norm_adv", False))
    if cfg.net.rnn != "none" and sizes.horizon == 1:
        words = "with sequences of one step, no gradient reaches earlier steps, so nothing is learned to be remembered"
        yield Problem("no_bptt", ("ppo.bptt_horizon", "net.rnn"), words, fix("ppo.bptt_horizon", 0))
    if cfg.ppo.prio_alpha and 4 * sizes.minibatch_segments > sizes.segments:
        words = "sampling more than a quarter of the sequences without replacement hardly prefers any"
        keys = ("ppo.prio_alpha", "ppo.num_minibatches")
        yield Problem("prio_coarse", keys, words, fix("ppo.num_minibatches", 4))
    yield from unused_reference(cfg.ppo)
    yield from known_bugs(cfg)


def unused_reference(ppo: PpoConfig) -> Iterator[Problem]:
    """Warn of a reference policy without a weight."""
    if ppo.ref and not ppo.ref_kl_coef:
        words = "the distance from the reference policy is measured, but not penalised"
        yield Problem("unused_reference", ("ppo.ref_kl_coef", "ppo.ref"), words, fix("ppo.ref_kl_coef", 0.1))


def known_bugs(cfg: Config) -> Iterator[Problem]:
    """Warn of switches that reproduce a known bug."""
    values = values_of(cfg)
    for key, (value, what) in BUGS.items():
        if values[key] == value:
            yield Problem("known_bug", (key,), f"reproduces a known bug: {what}", fix(key, FIELDS[key].default))
