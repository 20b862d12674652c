"""Options of a gradient report: the measured values, and the episodes or transitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from hmx.config.coerce import BadValue, check_range, coerce, show
from hmx.config.fields import fields_of
from hmx.config.option import opt
from hmx.errors import HmxError

RankBy = Literal["reward_std", "return", "td", "consequence", "priority", "age"]
AdvantageKind = Literal["trainer", "group", "group-std"]
KeyKind = Literal["independent", "common", "both"]
KlKind = Literal["analytic", "k1", "k3"]

PROBE, MEASURE = "Probe", "Measure"
MAX_EPISODES = 1 << 20
NO_KL = "has no policy to measure a KL divergence from"
_STORED_ONLY = ("consequence", "priority", "age")
_EPISODES_ONLY = "drop it, or drop --replay to play episodes"


@dataclass(frozen=True, kw_only=True)
class ProbeRequest:
    """The measurements of a gradient report."""

    groups: int = opt(64, "number of start states", ge=1, panel=PROBE)
    per_group: int = opt(8, "episodes from each start state; with --replay, transitions per group", ge=2, panel=PROBE)
    keys: KeyKind = opt(
        "independent", "random keys of the environment within a group; both also measures the variance that actions "
        "alone cause", panel=PROBE,
    )  # fmt: skip
    max_length: int = opt(
        0, "longest episode, rounded up to a multiple of ppo.bptt_horizon; 0 for the limit of the environment", ge=0,
        metavar="STEPS", panel=PROBE,
    )  # fmt: skip
    replay: bool = opt(
        False, "measure stored transitions, of the checkpoint or of --from-buffer, instead of episodes", panel=PROBE
    )
    buckets: int = opt(4, "number of buckets that groups are ranked into", ge=1, panel=MEASURE)
    by: RankBy | None = opt(
        None, "value that ranks the groups: reward_std, or td with --replay, by default; consequence, priority and "
        "age need --replay", panel=MEASURE,
    )  # fmt: skip
    rank_zeros: bool = opt(
        False, "rank groups that score 0 with the others, instead of in a bucket of their own", panel=MEASURE
    )
    crossfit: bool = opt(False, "also rank by one half of each group and measure the other half", panel=MEASURE)
    advantage: AdvantageKind = opt(
        "trainer", "advantage in the task component: the trainer's, the return minus the group mean, or that divided "
        "by the standard deviation of the group", panel=MEASURE,
    )  # fmt: skip
    kl: KlKind = opt("analytic", "KL divergence, exact or as one of two estimates", panel=MEASURE)
    kl_coef: float | None = opt(
        None, "weight of the KL component (by default ppo.ref_kl_coef as scheduled; 0 with --reference)", ge=0,
        panel=MEASURE,
    )  # fmt: skip
    chunk: int = opt(
        8, "parts of groups whose gradients are computed at once; memory use is proportional to it", ge=1, panel=MEASURE
    )

    @property
    def rank(self) -> RankBy:
        """The value that ranks the groups."""
        return self.by or ("td" if self.replay else "reward_std")

    @property
    def own_zero(self) -> bool:
        """Whether scores of 0 have a separate bucket: only for values whose 0 has a meaning."""
        meaningful = ("td", "consequence", "reward_std") if self.replay else ("reward_std",)
        return self.rank in meaningful and not self.rank_zeros


def check(request: ProbeRequest) -> None:
    """Refuse options that are invalid for every run (exit code 2)."""
    for flag, declared in fields_of(type(request)).items():
        value = getattr(request, declared.name)
        try:
            check_range(declared, coerce(declared, value))
        except BadValue as bad:
            raise HmxError(f"{flag} {show(value)}: {bad.message}", f"{flag} {show(bad.works)}") from None
    if request.by in _STORED_ONLY and not request.replay:
        raise HmxError(f"cannot rank by {request.by} without --replay", "--by reward_std, or add --replay")
    if request.buckets > request.groups:
        hint = f"--groups {16 * request.buckets} (16 per bucket), or --buckets {max(request.groups // 16, 1)}"
        raise HmxError(f"cannot fill {request.buckets} buckets with {request.groups} groups", hint)
    if request.groups * request.per_group > MAX_EPISODES:
        what = f"cannot play {request.groups:,} x {request.per_group:,} episodes in parallel"
        raise HmxError(f"{what}: at most {MAX_EPISODES:,}", "--groups 64 --per-group 8")
    usual = ProbeRequest()
    for name in ("crossfit", "keys", "max_length") if request.replay else ():
        if getattr(request, name) != getattr(usual, name):
            raise HmxError(f"cannot use {_option(name)} with --replay: it applies to episodes", _EPISODES_ONLY)
    if request.crossfit and request.per_group < 4:
        what = f"cannot use --crossfit with {request.per_group} episodes per group: half of them has no variance"
        raise HmxError(what, "--per-group 8")


def check_q(request: ProbeRequest) -> None:
    """Refuse options that Q-learning does not have (exit code 2)."""
    usual = ProbeRequest()
    whys = {"advantage": "learns from TD errors, not from advantages", "kl": NO_KL, "kl_coef": NO_KL}
    for name, why in whys.items():
        if getattr(request, name) != getattr(usual, name):
            raise HmxError(f"cannot use {_option(name)}: Q-learning {why}", f"drop {_option(name)}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
