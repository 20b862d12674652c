"""Schedules, and the hyperparameters that they change during a run.

Progress is the share of agent steps done, clamped to [0, 1]. In the Metta training equations it counts epochs and can
exceed 1, where a cosine rises again, a linear entropy bonus turns negative and beta exceeds 1.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hmx.config.learning import Schedule


def progress(agent_steps: int, total: int) -> float:
    """Compute the share of a run that is done, in [0, 1]; 1 if the run is empty."""
    return min(max(agent_steps / total, 0.0), 1.0) if total > 0 else 1.0


def value(name: Schedule, start: float, end: float, p: float, rate: float = 0.1, warmup: float = 0.0) -> float:
    """Compute the value of a schedule at progress `p`.

    Args:
        name: with q the progress since the warm-up:

            - constant: start
            - linear: start + (end - start) q
            - cosine: end + (start - end) (1 + cos(pi q)) / 2
            - logarithmic: start + (end - start) ln(1 + rate q) / ln(1 + rate), which reaches the end
            - exponential: max(end, start exp(-rate q)), which reaches the end only if rate >= ln(start / end). The
              Metta training equations call this schedule logarithmic.
        start: value at the beginning, or at the end of the warm-up.
        end: value at the end.
        p: progress, clamped to [0, 1].
        rate: rate of logarithmic and exponential schedules, above 0.
        warmup: share of the run over which the value first rises linearly from 0 to `start`.

    Raises:
        KeyError: no schedule has that name.
    """
    p = min(max(p, 0.0), 1.0)
    if p < warmup:
        return start * p / warmup
    if warmup:
        p = (p - warmup) / (1.0 - warmup) if warmup < 1.0 else 0.0
    if name == "constant":
        return start
    if name == "linear":
        return start + (end - start) * p
    if name == "cosine":
        return end + 0.5 * (start - end) * (1.0 + math.cos(math.pi * p))
    if name == "logarithmic":
        return start + (end - start) * math.log1p(rate * p) / math.log1p(rate)
    if name == "exponential":
        return max(end, start * math.exp(-rate * p))
    raise KeyError(name)


def prio_beta(beta0: float, alpha: float, p: float) -> float:
    """Compute the exponent of the importance weights, beta0 + (1 - beta0) alpha p, as in Metta and PufferLib.

    It ends at 1 only if alpha is 1; in prioritised replay (Schaul et al., 2016) there is no alpha.
    """
    return beta0 + (1.0 - beta0) * alpha * min(max(p, 0.0), 1.0)


class Scheduled(NamedTuple):
    """The dotted keys of a scheduled hyperparameter: start, schedule, and end as a share of the start."""

    start: str
    schedule: str
    end: str


SCHEDULED: dict[str, Scheduled] = {
    "learning_rate": Scheduled("algo.learning_rate", "algo.lr_schedule", "algo.lr_end"),
    "clip_eps": Scheduled("ppo.clip_eps", "ppo.clip_schedule", "ppo.clip_end"),
    "ent_coef": Scheduled("ppo.ent_coef", "ppo.ent_schedule", "ppo.ent_end"),
    "clip_vf_eps": Scheduled("ppo.clip_vf_eps", "ppo.clip_vf_schedule", "ppo.clip_vf_end"),
    "start_share": Scheduled("starts.share", "starts.share_schedule", "starts.share_end"),
    "ref_kl_coef": Scheduled("ppo.ref_kl_coef", "ppo.ref_kl_schedule", "ppo.ref_kl_end"),
}
ABSENT_AT_0 = ("clip_vf_eps", "start_share", "ref_kl_coef")
