"""Schedules: plain numbers that follow the progress of a run, the same for the trainer and for who only asks.

Progress is the share of agent steps done, clamped to [0, 1]: counted in epochs, as in the Metta training equations, it
can pass 1, where a cosine climbs again, a linear entropy bonus turns negative and beta exceeds 1.
"""

from __future__ import annotations

import math


def progress(agent_steps: int, total: int) -> float:
    """The share of a run that is done, in [0, 1]; 1 where there is nothing to do.

    Args:
        agent_steps: done so far; any unit will do that `total` has too.
        total: of the whole run.
    """
    return min(max(agent_steps / total, 0.0), 1.0) if total > 0 else 1.0


def value(name: str, start: float, end: float, p: float, rate: float = 0.1, warmup: float = 0.0) -> float:
    """The value of a schedule at progress `p`.

    Args:
        name: one of `hmx.config.schema.SCHEDULES`. With q the progress since the warm-up:

            - constant: start
            - linear: start + (end - start) q
            - cosine: end + (start - end) (1 + cos(pi q)) / 2
            - logarithmic: start + (end - start) ln(1 + rate q) / ln(1 + rate), which reaches the end
            - exponential: max(end, start exp(-rate q)), which does so only where rate >= ln(start / end). The Metta
              training equations call this one logarithmic.
        start: value at the beginning, or at the end of the warm-up.
        end: value that the schedule runs towards.
        p: progress, clamped to [0, 1].
        rate: above 0; of logarithmic and exponential schedules.
        warmup: share of the run over which the value first rises from 0 to `start`, in a straight line.

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
    """The exponent of the importance weights: beta0 + (1 - beta0) alpha p, as in Metta and PufferLib.

    It ends at 1 only where alpha is 1; the paper on prioritised replay (Schaul et al., 2016) leaves alpha out.

    Args:
        beta0: share of the bias corrected at the start, in [0, 1].
        alpha: strength of the priorities, in [0, 1].
        p: progress, clamped to [0, 1].
    """
    return beta0 + (1.0 - beta0) * alpha * min(max(p, 0.0), 1.0)
