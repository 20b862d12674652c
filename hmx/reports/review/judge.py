"""What the actions of a game were worth: rollouts of every decision, and fresh ones of those that seem to matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.protocol import Env, EnvState, take
from hmx.records.plain import JsonValue
from hmx.reports.review.findings import KeyDecision, ReviewedAction
from hmx.reports.review.request import ReviewRequest
from hmx.reports.score_buffer.run import part_size
from hmx.rl import distributions
from hmx.runs.buffers import Host
from hmx.runs.signals import interruptible
from hmx.scoring import Continuation, Outcomes, Positions, ScoreOptions, play
from hmx.stats import intervals
from hmx.types import Array, Key

MOST_ACTIONS = 8  # alternatives that are tried; random ones of more legal actions
_CANDIDATES = 3  # decisions with fresh rollouts per decision shown
_WIDE = 2.576  # standard errors of a 99 % interval
_NUMBERS = 64  # of an observation, at most

Outputs = Callable[[Any, Array], Array]


class Judge(NamedTuple):
    """The agent that continues from the positions of a game, and its environment."""

    env: Env
    policy: Continuation
    outputs: Outputs  # preferences; the action with the highest one is advised
    params: Any
    options: ScoreOptions  # with the rollouts of the screening


class ReviewProgram(NamedTuple):
    """The rollouts of some positions, compiled: `run(params, positions of size part, key)`."""

    run: Callable[[Any, Positions, Key], Outcomes]
    advise: Callable[[Any, Array, Array], Array]
    part: int


class GamePositions(NamedTuple):
    """The positions of one game before each of its T moves, on the host."""

    env_state: EnvState
    obs: Host  # [T, A, ...]
    legal: Host  # bool [T, A, num_actions]
    taken: Host  # int32 [T, A]


def options_of(request: ReviewRequest, env: Env, bootstrap: bool, gamma: float) -> ScoreOptions:
    """Return how rollouts are played: the same random numbers for all actions, and hidden parts drawn again."""
    everything = env.spec.num_actions - 1 <= MOST_ACTIONS and env.spec.num_agents == 1
    return ScoreOptions(
        actions="all" if everything else "sampled", num_actions=MOST_ACTIONS, rollouts=request.screened,
        horizon=request.depth, bootstrap=bootstrap, crn=True, gamma=gamma, team_reward="mean", redrawn=True,
    )  # fmt: skip


def compile_program(judge: Judge) -> ReviewProgram:
    """Return the program of a judge, which all its games share."""

    def run(params: Any, at: Positions, key: Key) -> Outcomes:
        return play(judge.env, judge.policy, params, at, key, judge.options)

    def advise(params: Any, obs: Array, legal: Array) -> Array:
        return distributions.mode(judge.outputs(params, obs), legal)

    return ReviewProgram(jax.jit(run), jax.jit(advise), part_size(judge.options, judge.env.spec))


def judge_game(
    judge: Judge, program: ReviewProgram, game: GamePositions, request: ReviewRequest, number: int = 0
) -> list[KeyDecision]:
    """Return the decisions that mattered most in a game, the largest gain first.

    A few rollouts of all decisions choose the candidates and their best alternatives. Fresh rollouts then measure the
    gain of this alternative, so that the choice does not bias it.
    """
    key = jax.random.fold_in(jax.random.key(request.seed), number)
    several = np.flatnonzero(game.legal.sum(-1).prod(-1) > 1)
    if not len(several):
        return []
    screened = _outcomes(judge, program, game, several, jax.random.fold_in(key, 0))
    gains = _mean_gains(screened)
    order = np.argsort(-gains.max(1), kind="stable")[: _CANDIDATES * request.decisions]
    steps = several[order]
    advised = np.asarray(program.advise(judge.params, jnp.asarray(game.obs[steps]), jnp.asarray(game.legal[steps])))
    rounds = -(-request.confirmed // request.screened)
    fresh = [_outcomes(judge, program, game, steps, jax.random.fold_in(key, 1 + i)) for i in range(rounds)]
    decisions = []
    for row, place in enumerate(order):
        best = np.asarray(screened.tried.action[place, gains[place].argmax()])
        results = _results(fresh, row)
        if tuple(best) in results:
            decisions.append(_decision(judge.env, game, int(steps[row]), results, best, advised[row]))
    decisions.sort(key=lambda decision: -decision.gain)
    return decisions[: request.decisions]


class _Result(NamedTuple):
    """The rollouts of one action."""

    returns: Host  # float64 [N]
    won: Host | None  # bool [N]


def _results(rounds: list[Outcomes], row: int) -> dict[tuple[int, ...], _Result]:
    """Return the rollouts of a position by action, the action played first; only actions tried in every round."""
    by_action: dict[tuple[int, ...], list[tuple[Host, Host | None]]] = {}
    for played in rounds:
        for k in np.flatnonzero(played.tried.valid[row]):
            won = None if played.won is None else np.asarray(played.won[row, k])
            action = tuple(int(one) for one in played.tried.action[row, k])
            by_action.setdefault(action, []).append((np.asarray(played.returns[row, k], np.float64), won))
    return {
        action: _Result(
            np.concatenate([returns for returns, _ in parts]),
            None if parts[0][1] is None else np.concatenate([won for _, won in parts if won is not None]),
        )
        for action, parts in by_action.items()
        if len(parts) == len(rounds)
    }


def _outcomes(judge: Judge, program: ReviewProgram, game: GamePositions, steps: Host, key: Key) -> Outcomes:
    """Play the rollouts of some moves in parts of one size; return them on the host."""
    results = []
    for start in range(0, len(steps), program.part):
        chosen = steps[start : start + program.part]
        padded = np.concatenate([chosen, np.repeat(chosen[:1], program.part - len(chosen))])
        obs, legal, taken = (jnp.asarray(leaf[padded]) for leaf in (game.obs, game.legal, game.taken))
        state = take(judge.env.spec, game.env_state, padded)
        positions = Positions(state, obs, legal, taken, jnp.asarray(padded, jnp.uint32))
        results.append(interruptible(partial(_on_host, program, judge.params, positions, key)))
    joined: Outcomes = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(steps)], *results)
    return joined


def _on_host(program: ReviewProgram, params: Any, positions: Positions, key: Key) -> Outcomes:
    outcomes: Outcomes = jax.device_get(program.run(params, positions, key))
    return outcomes


def _mean_gains(outcomes: Outcomes) -> Host:
    """Return the mean gain of every alternative over the action taken, [S, K]; -inf for the action taken itself."""
    gains = outcomes.returns.mean(-1) - outcomes.returns[:, :1].mean(-1)
    allowed = np.array(outcomes.tried.valid)
    allowed[:, 0] = False
    return np.where(allowed, gains, -np.inf)


def _decision(
    env: Env, game: GamePositions, step: int, results: Mapping[tuple[int, ...], _Result], best: Host, advised: Host
) -> KeyDecision:
    played = next(iter(results.values())).returns
    ordered = sorted(results.items(), key=lambda item: -item[1].returns.mean())
    actions = tuple(
        ReviewedAction(
            action=_name(env, action),
            played=result.returns is played,
            advised=action == tuple(advised),
            returns=float(result.returns.mean()),
            gain=float((result.returns - played).mean()),
            gain_interval=gain_interval(result.returns - played),
            wins=None if result.won is None else float(result.won.mean()),
            wins_interval=None if result.won is None else _wilson(result.won),
        )
        for action, result in ordered
    )
    gains = results[tuple(best)].returns - played
    interval = gain_interval(gains)
    return KeyDecision(
        step=step,
        played=_name(env, next(iter(results))),
        best=_name(env, best),
        advised=_name(env, advised),
        gain=float(gains.mean()),
        gain_interval=interval,
        blunder=interval.low > 0.0,
        actions=actions,
        state=_state(env, game, step),
    )


def _wilson(won: Host) -> intervals.Interval:
    interval = intervals.wilson(int(won.sum()), len(won))
    assert interval is not None  # there are rollouts
    return interval


def gain_interval(gains: Host) -> intervals.Interval:
    """Return the 99 % interval of the mean of paired differences."""
    error = _WIDE * float(gains.std(ddof=1)) / math.sqrt(len(gains))
    return intervals.Interval(float(gains.mean()) - error, float(gains.mean()) + error)


def _name(env: Env, action: Iterable[int]) -> str:
    return "+".join(env.spec.action_names[int(one)] if env.spec.action_names else str(int(one)) for one in action)


def _state(env: Env, game: GamePositions, step: int) -> Mapping[str, JsonValue]:
    if env.spec.describe is not None:
        return env.spec.describe(jax.device_get(take(env.spec, game.env_state, np.array([step]))))
    return {"observation": [[float(x) for x in agent.reshape(-1)[:_NUMBERS]] for agent in game.obs[step]]}
