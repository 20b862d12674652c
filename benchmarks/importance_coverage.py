"""Measure how often the interval of an option's importance contains the true importance, for effects of known form.

    python benchmarks/importance_coverage.py [--studies 100] [--seed 0]

Each study has trials with one option, drawn uniformly, and a result that is its effect plus normal noise of the same
size. Two truths are compared with the interval: the share of variance of the best cubic in ranks, which
`hmx.stats.importance` estimates, and the first-order index of Sobol' (2001), both of 400,000 draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.polynomial import legendre

from hmx.stats.importance import Factor, importances

Effect = Callable[[np.ndarray], np.ndarray]

EFFECTS: dict[str, Effect] = {
    "line": lambda x: x,
    "S-curve": lambda x: np.tanh(6.0 * (x - 0.5)),
    "parabola": lambda x: -((x - 0.5) ** 2),
    "narrow inner optimum": lambda x: np.exp(-(((x - 0.7) / 0.08) ** 2)),
    "two waves": lambda x: np.sin(4.0 * np.pi * x),
}
TRIALS = (30, 100)
DRAWS, CELLS = 400_000, 2000


def draw(rng: np.random.Generator, effect: Effect, trials: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the values of the option and the results of a study."""
    grid = effect(np.linspace(0.0, 1.0, 1001))
    x = rng.random(trials)
    return x, (effect(x) - grid.mean()) / grid.std() + rng.normal(size=trials)


def centred_ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from -0.5 to 0.5."""
    return (np.argsort(np.argsort(values)) + 0.5) / values.size - 0.5


def true_shares(rng: np.random.Generator, effect: Effect) -> tuple[float, float]:
    """Return the index of Sobol' and the share of the best cubic."""
    x, y = draw(rng, effect, DRAWS)
    rank = centred_ranks(y)
    variance = rank.var()
    means = rank[np.argsort(x)].reshape(CELLS, -1).mean(1)
    index = (means.var() - variance / (DRAWS / CELLS)) / variance  # without the noise of each cell's mean
    basis = legendre.legvander(2.0 * centred_ranks(x), 3)[:, 1:]
    basis -= basis.mean(0)
    return index, (basis @ np.linalg.lstsq(basis, rank, rcond=None)[0]).var() / variance


def main() -> None:
    """Print a row per effect and number of trials."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    for name, effect in EFFECTS.items():
        index, cubic = true_shares(rng, effect)
        for trials in TRIALS:
            inside = np.zeros(2)
            for study in range(args.studies):
                x, y = draw(rng, effect, trials)
                found = importances([Factor(x, True)], y, study)[0]
                assert found is not None  # a continuous option that varies always has an importance
                low, high = (np.nan if end is None else end for end in (found.share.low, found.share.high))
                inside += [low <= truth <= high for truth in (cubic, index)]
            of_cubic, of_index = inside / args.studies
            print(
                f"{name:>21} {trials:>4} trials: best cubic {cubic:.2f}, in {of_cubic:4.0%} of the intervals; "
                f"Sobol' {index:.2f}, in {of_index:4.0%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
