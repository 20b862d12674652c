"""Evidence from pairs that may be looked at after each of them, and an error budget for a series of such tests.

An e-value of a null hypothesis has an expectation of at most 1 if that holds, however and whenever the observation
stops (Ville 1939; Ramdas, Gruenwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe anytime-valid
inference"). So it exceeds 1 / level with a probability of at most `level`.
"""

from __future__ import annotations

import bisect
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from statistics import NormalDist

_BETS = (2.0, 6.0)  # each has an equal part of the stake; for effects of about one, and of two or more, deviations
_NORMAL = NormalDist()
_SAMPLES = 400


def e_value(differences: Sequence[float], more: int = 0) -> float:
    """Return the e-value against "for every size d, a gain of d is at most as probable as a loss of d".

    Each difference bets on its own sign. How much depends on the rank of its size among the sizes so far, so the bet
    knows no scale and no distribution, and a large gain counts more than a small loss. For a normal distribution, the
    bets are those of the likelihood ratio. A difference of 0 is left out.

    Args:
        differences: of pairs, in the order in which they were observed.
        more: number of further pairs to assume, each larger than every pair before it. They are gains, and nothing
            raises the value more; if it is negative, they are losses, and nothing lowers it more.
    """
    signed = list(_scores(differences))
    counts = range(len(signed), len(signed) + abs(more))
    signed += [math.copysign(_half_normal((count + 0.5) / (count + 1)), more) for count in counts]
    gains = [sum(_log_gain(bet * score) for score in signed) for bet in _BETS]
    return sum(math.exp(gain) for gain in gains) / len(gains)


def power(effect: float, level: float, pairs: int) -> float:
    """Return the probability that at most so many pairs reject at a level, by samples with fixed seeds.

    The values of both sides are normal, and `effect` is by how many of their standard deviations one side is better.
    """
    draw, kept = random.Random(0), 0
    for _ in range(_SAMPLES):
        gains = [0.0] * len(_BETS)
        for score in _scores(draw.gauss(effect, math.sqrt(2)) for _ in range(pairs)):
            gains = [gain + _log_gain(bet * score) for gain, bet in zip(gains, _BETS, strict=True)]
            if sum(map(math.exp, gains)) / len(gains) * level >= 1:
                kept += 1
                break
    return kept / _SAMPLES


def _scores(differences: Iterable[float]) -> Iterator[float]:
    """Yield the normal score of the rank of each difference that is not 0, with its sign."""
    sizes = list[float]()
    for difference in filter(None, differences):
        size = abs(difference)
        low = bisect.bisect_left(sizes, size)
        sizes.insert(low, size)
        below = (low + bisect.bisect_right(sizes, size) - 1) / 2  # an equal size before it counts half
        yield math.copysign(_half_normal((below + 0.5) / len(sizes)), difference)


def _half_normal(quantile: float) -> float:
    return _NORMAL.inv_cdf((1 + quantile) / 2)


def _log_gain(bet: float) -> float:
    """Return log(2 / (1 + exp(-bet))), the factor of a stake that the bet leaves."""
    return math.log(2) - (max(-bet, 0.0) + math.log1p(math.exp(-abs(bet))))


def stakes(budget: float, half: int, outcomes: Sequence[float | None]) -> tuple[list[float], float]:
    """Return the level of each test of a series, as the last element that of the next one, and the budget that is left.

    The probability that any test of the series, of whatever length, rejects a null hypothesis that holds is at most
    `budget`. A test may stake any part of what is left. Here that is 1 / (half + count) for the `count`-th test that
    does not reject. Without returns the levels are budget half / ((half + count - 1) (half + count)), which sum up to
    the budget, and half of it is staked in the first `half` tests.

    Proof: while a test runs whose null hypothesis holds, left - stake + stake * e has no higher expectation later. It
    is at least 1 where the test rejects, and at least what is left after the test where it does not.

    A test that rejects gets its stake back, as in the online fallback procedure (Tian and Ramdas 2021, "Online control
    of the familywise error rate"): if its null hypothesis holds, nothing after it matters. A test that ends with the
    e-value e gets min(e, 1) of its stake back: its level times e bounded the probability that it would still reject.

    Args:
        budget: probability of an error in the whole series.
        half: number of tests that stake half of it.
        outcomes: per test, the e-value at its end if it did not reject; None if it did.
    """
    left, count, levels = budget, 1, []
    for outcome in (*outcomes, None):
        levels.append(left / (half + count))
        if outcome is not None:
            left -= levels[-1] * (1 - min(outcome, 1.0))
            count += 1
    return levels, left
