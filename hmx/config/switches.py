"""Which of the switches that tell implementations of PPO apart go together."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.config import smax_facts
from hmx.config.problem import Problem
from hmx.config.schema import AlgoConfig, Config

BUGS = {
    "algo.gae_axis": ("batch", "advantages are summed over unrelated rows"),
    "algo.episode_end": ("leak", "where an episode is cut, the sum runs on into the next one"),
}
"""Key -> the value that reproduces a known bug of an implementation, and what the bug does."""


def value_weight(algo: AlgoConfig) -> float:
    """The weight of the value loss, which is half the mean squared error (or the cross-entropy of two_hot)."""
    return algo.vf_coef if algo.vf_half else 2.0 * algo.vf_coef


def is_plain(cfg: Config) -> bool:
    """Whether advantages are computed once, over time, with a bootstrap at the end of episodes."""
    algo = cfg.algo
    return (algo.advantage_when, algo.gae_axis, algo.episode_end) == ("rollout", "time", "bootstrap")


def problems(cfg: Config) -> Iterator[Problem]:
    """Switches that contradict each other; each value must be fit on its own."""
    algo, net = cfg.algo, cfg.net
    plain = "algo.advantage_when=rollout, algo.gae_axis=time and algo.episode_end=bootstrap"
    if algo.advantage == "vtrace" and not is_plain(cfg):
        keys = ("algo.advantage", "algo.advantage_when", "algo.gae_axis", "algo.episode_end")
        yield Problem("vtrace_plain", keys, f"vtrace needs {plain}", "algo.advantage=gae")
    if algo.row_end != "bootstrap" and not (is_plain(cfg) and algo.advantage != "brax"):
        row_keys = ("algo.row_end", "algo.advantage", "algo.advantage_when", "algo.gae_axis", "algo.episode_end")
        words = f"a row's end without a bootstrap needs {plain}, and not Brax's advantage"
        yield Problem("row_end_plain", row_keys, words, "algo.row_end=bootstrap")
    if algo.advantage_when == "minibatch":
        yield from _anew(cfg)
    if algo.grad_clip == "per_network" and net.shared_torso:
        words = "policy and value share layers, so there is one network to clip"
        yield Problem(
            "clip_shared",
            ("algo.grad_clip", "net.shared_torso"),
            words,
            "net.shared_torso=false or algo.grad_clip=joint",
        )
    if not algo.vf_half and algo.value_target == "two_hot":
        words = "the loss of a two_hot value is a cross-entropy, which has no half to leave out"
        yield Problem("half_two_hot", ("algo.vf_half", "algo.value_target"), words, "algo.vf_half=true")
    if cfg.env.world_state and not smax_facts.scenario(cfg.env.id):
        words = "only battles of SMAX have a world state"
        yield Problem("world_state", ("env.world_state", "env.id"), words, "env.world_state=false")
    elif cfg.env.world_state and net.shared_torso:
        words = "what only the value may see needs a value with layers of its own"
        yield Problem("world_shared", ("env.world_state", "net.shared_torso"), words, "net.shared_torso=false")
    if algo.obs_norm != "none" and cfg.env.id == "hackmatrix" and cfg.env.obs == "packed":
        words = "packed observations are words of bits, which have no mean"
        yield Problem("norm_packed", ("algo.obs_norm", "env.obs"), words, "algo.obs_norm=none or env.obs=flat")


def _anew(cfg: Config) -> Iterator[Problem]:
    algo = cfg.algo
    if algo.value_forward == "shift" and algo.episode_end in ("bootstrap", "leak"):
        keys = ("algo.value_forward", "algo.advantage_when", "algo.episode_end")
        words = "the step after a cut belongs to the next episode, so the value of the last observation is needed apart"
        yield Problem("shift_cut", keys, words, "algo.value_forward=both or algo.advantage_when=rollout")
    if algo.value_forward == "both" and cfg.net.rnn != "none":
        keys = ("algo.value_forward", "algo.advantage_when", "net.rnn")
        words = "a network with a memory values steps in their order only"
        yield Problem("both_memory", keys, words, "algo.advantage_when=rollout")


def warnings(cfg: Config) -> Iterator[Problem]:
    """Bugs that are reproduced because they were asked for, and what has no effect."""
    if cfg.net.value_hidden and cfg.net.shared_torso:
        words = "has no effect: the value has no torso of its own"
        yield Problem("value_hidden", ("net.value_hidden", "net.shared_torso"), words, "net.shared_torso=false")
    for key, (value, what) in BUGS.items():
        if getattr(cfg.algo, key.partition(".")[2]) == value:
            yield Problem("known_bug", (key,), f"reproduces a known bug: {what}", f"{key}={_right(key)}")


def _right(key: str) -> str:
    return {"algo.gae_axis": "time", "algo.episode_end": "bootstrap"}[key]
