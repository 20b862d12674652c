"""How often `hmx review` finds a false blunder and a true one: games of 100 decisions with known values.

Each decision has nine actions of equal value, except that one alternative in the middle of the game is worth more by
`gain`. Rewards are normal with standard deviation 1, or the action played also wins 100 with a small probability while
the alternatives pay the same mean for sure, or actions of both kinds alternate. `review` sees only rollouts, which
NumPy draws here.

    python benchmarks/review_errors.py --games 200
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.small.corridor import make_corridor
from hmx.reports.review.judge import GamePositions, Judge, ReviewProgram, judge_game, options_of
from hmx.reports.review.request import ReviewRequest
from hmx.scoring import Candidates, Outcomes, make_continuation

STEPS, ACTIONS, WORTH = 100, 9, 100.0
BLUNDER = STEPS // 2  # the step at which an alternative gains
PARTS = 32  # decisions whose rollouts are drawn together

Draw = Callable[[np.random.Generator, Any, int], Any]  # (random, steps [S], rollouts N) -> returns [S, ACTIONS, N]


def normal(random: np.random.Generator, steps: Any, rollouts: int) -> Any:
    """Draw returns with mean 0."""
    return random.normal(size=(len(steps), ACTIONS, rollouts))


def rare(share: float, mixed: bool = False) -> Draw:
    """Return the draw of an action played that wins with probability `share`; alternatives pay the same mean for sure.

    If `mixed`, the actions that win and those that pay for sure alternate, in every decision and from one to the next.
    """

    def draw(random: np.random.Generator, steps: Any, rollouts: int) -> Any:
        place = np.arange(ACTIONS)[None]
        wins = (steps[:, None] + place) % 2 == 0 if mixed else np.broadcast_to(place == 0, (len(steps), ACTIONS))
        won = random.random((len(steps), ACTIONS, rollouts)) < share
        return normal(random, steps, rollouts) + WORTH * np.where(wins[..., None], won, share)

    return draw


class Errors(NamedTuple):
    """The errors of the review of several games."""

    false: float  # share of games with a false blunder
    found: float  # share of games whose blunder is found
    bias: float  # mean error of the gains shown
    outside: float  # share of games with a true gain outside its interval


def measure(draw: Draw, gain: float, games: int, request: ReviewRequest | None = None) -> Errors:
    """Review games whose values are known."""
    env = make_corridor(STEPS, 0.0)
    env = env._replace(spec=env.spec._replace(num_actions=ACTIONS, action_names=()))
    state, seen = env.reset(jax.random.split(jax.random.key(0), STEPS))
    legal, taken = np.ones((STEPS, 1, ACTIONS), bool), np.zeros((STEPS, 1), np.int32)
    game = GamePositions(state, np.asarray(seen.obs), legal, taken)
    policy = make_continuation(lambda params, obs: obs, "greedy", 1.0)
    request = request or ReviewRequest()
    judge = Judge(env, policy, lambda params, obs: obs, None, options_of(request, env, False, 1.0))
    rollouts = judge.options.rollouts

    def run(params: Any, at: Any, key: Any) -> Outcomes:
        steps = np.asarray(at.id)
        seed = [*np.asarray(jax.random.key_data(key)).tolist(), int(steps[0])]
        returns = draw(np.random.default_rng(seed), steps, rollouts)
        returns[:, ACTIONS - 1] += gain * (steps == BLUNDER)[:, None]
        actions = np.tile(np.arange(ACTIONS, dtype=np.int32)[None, :, None], (len(steps), 1, 1))
        none: Any = np.zeros(len(steps))
        tried: Any = Candidates(*(jnp.asarray(x) for x in (actions, np.ones(actions.shape[:2], bool))))
        return Outcomes(tried, returns, None, None, none, none)

    program = ReviewProgram(run, lambda params, obs, legal: jnp.asarray(taken[: len(obs)]), PARTS)
    false, found, outside, errors = [], [], [], []
    for number in range(games):
        shown = judge_game(judge, program, game, request, number)
        true = [gain if (one.step, one.best) == (BLUNDER, str(ACTIONS - 1)) else 0.0 for one in shown]
        pairs = list(zip(shown, true, strict=True))
        false.append(any(one.blunder and not worth for one, worth in pairs))
        found.append(any(one.blunder and worth for one, worth in pairs))
        outside.append(any(not one.gain_interval.low <= worth <= one.gain_interval.high for one, worth in pairs))
        errors += [one.gain - worth for one, worth in pairs]
    return Errors(*(float(np.mean(values)) for values in (false, found, errors, outside)))


def main() -> None:
    """Print a row per reward and gain."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--games", type=int, default=200)
    games = parser.parse_args().games
    rows: list[tuple[str, Draw, tuple[float, ...]]] = [
        ("normal", normal, (0.0, 0.5, 1.0, 1.5)),
        ("wins of 1 %", rare(0.01), (0.0, 4.0, 8.0)),
        ("wins of 2 %", rare(0.02), (0.0, 4.0, 8.0)),
        ("wins of 3 %", rare(0.03), (0.0, 8.0, 16.0)),
        ("both, 3 %", rare(0.03, mixed=True), (0.0, 8.0, 16.0)),
    ]
    print("rewards       gain  false  found   bias  outside")
    for name, draw, gains in rows:
        for gain in gains:
            one = measure(draw, gain, games)
            print(
                f"{name:12} {gain:5.1f}  {one.false:5.1%}  {one.found:5.1%}  {one.bias:+.2f}  {one.outside:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
