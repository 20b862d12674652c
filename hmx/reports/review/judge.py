"""What the actions of a game were worth: rollouts of every decision, and fresh ones of those that seem to matter."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.envs.pictures import described
from hmx.envs.protocol import Env, EnvState, take
from hmx.records.plain import JsonValue
from hmx.reports.review.findings import KeyDecision, ReviewedAction
from hmx.reports.review.request import ReviewRequest
from hmx.reports.score_buffer.run import part_size
from hmx.rl import distributions
from hmx.runs.buffers import Host
from hmx.runs.signals import interruptible
from hmx.scoring import Continuation, Outcomes, Positions, ScoreOptions, candidates, own_keys, play
from hmx.stats.intervals import Interval, bounded_interval, wilson
from hmx.types import Array, Key

MOST_ACTIONS = 8  # alternatives that are tried; random ones of more legal actions
_MISSED = 0.05  # share of games with an interval that misses the true gain, at most
_CANDIDATES = 6  # decisions with fresh rollouts per decision shown

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
        # Independent of `key`: all rollouts of a decision have the same alternatives.
        k_actions = own_keys(jax.random.key(0), at.id)[0]
        tried = candidates(judge.options, judge.env.spec, at.taken, at.legal, k_actions, None)
        return play(judge.env, judge.policy, params, at._replace(tried=tried), key, judge.options)

    def advise(params: Any, obs: Array, legal: Array) -> Array:
        return distributions.mode(judge.outputs(params, obs), legal)

    return ReviewProgram(jax.jit(run), jax.jit(advise), part_size(judge.options, judge.env.spec))


def judge_game(
    judge: Judge, program: ReviewProgram, game: GamePositions, request: ReviewRequest, number: int = 0
) -> list[KeyDecision]:
    """Return the decisions that mattered most in a game, the largest gain first.

    A few rollouts of all decisions find candidates. With more rollouts of these, they choose the decisions and the
    best alternative of each. Fresh ones of these measure the gains, so that no choice biases them. The intervals of
    the chosen alternatives have a joint level (Bonferroni): in 95 % of games or more, they all contain the true gains.
    """
    key = jax.random.fold_in(jax.random.key(request.seed), number)
    several = np.flatnonzero(game.legal.sum(-1).prod(-1) > 1)
    if not len(several):
        return []
    played = partial(_rollouts, judge, program, game)
    screened = played(several, request.screened, jax.random.fold_in(key, 0))
    few = _most_gained(screened)[: _CANDIDATES * request.decisions]
    shortlist = several[few]
    again = played(shortlist, -(-request.confirmed // _CANDIDATES), jax.random.fold_in(key, 1))
    narrowed = again._replace(returns=np.concatenate([screened.returns[few], again.returns], -1))
    chosen = _most_gained(narrowed)[: request.decisions]
    steps = shortlist[chosen]
    best = _mean_gains(narrowed)[chosen].argmax(1)
    measured = played(steps, request.confirmed, jax.random.fold_in(key, 2))
    spans = np.zeros(len(game.taken))
    for where, found in ((several, screened), (shortlist, narrowed), (steps, measured)):
        spans[where] = np.maximum(spans[where], _differences(found).max((1, 2)))
    advised = np.asarray(program.advise(judge.params, *jax.device_put((game.obs[steps], game.legal[steps]))))
    level = 1 - _MISSED / max(len(steps), 1)
    decisions = []
    for row, step in enumerate(steps):
        # A rollout of one decision may miss a rare reward that those of other decisions within its reach have shown.
        largest = float(spans[max(step - request.depth, 0) : step + request.depth + 1].max())
        one: _Rollouts = jax.tree.map(lambda leaf, row=row: leaf[row], measured)
        actions = _actions(judge.env, one, advised[row], Interval(-largest, largest), level)
        alternative = next(action for action in actions if action.action == _name(judge.env, one.action[best[row]]))
        decisions.append(
            KeyDecision(
                step=int(step), played=actions[0].action, best=alternative.action,
                advised=_name(judge.env, advised[row]), level=level,
                gain=alternative.gain, gain_interval=alternative.gain_interval,
                blunder=alternative.gain_interval.low > 0.0, state=_state(judge.env, game, step),
                actions=tuple(sorted(actions, key=lambda action: -action.returns)),
            )
        )  # fmt: skip
    return sorted(decisions, key=lambda decision: -decision.gain)


class _Rollouts(NamedTuple):
    """N rollouts of K actions of S decisions; the first action is the one played."""

    action: Host  # [S, K, A]
    valid: Host  # bool [S, K]
    returns: Host  # float64 [S, K, N]
    won: Host | None  # bool [S, K, N]


def _rollouts(
    judge: Judge, program: ReviewProgram, game: GamePositions, steps: Host, number: int, key: Key
) -> _Rollouts:
    """Play at least `number` rollouts of every action of some moves."""
    rounds = [
        _outcomes(judge, program, game, steps, jax.random.fold_in(key, i))
        for i in range(-(-number // judge.options.rollouts))
    ]
    tried, won = rounds[0].tried, [one.won for one in rounds if one.won is not None]
    returns = np.concatenate([np.asarray(one.returns, np.float64) for one in rounds], -1)
    return _Rollouts(
        np.asarray(tried.action), np.asarray(tried.valid), returns, np.concatenate(won, -1) if won else None
    )


def _outcomes(judge: Judge, program: ReviewProgram, game: GamePositions, steps: Host, key: Key) -> Outcomes:
    """Play the rollouts of some moves in parts of one size; return them on the host."""
    results = []
    for start in range(0, len(steps), program.part):
        chosen = steps[start : start + program.part]
        padded = np.concatenate([chosen, np.repeat(chosen[:1], program.part - len(chosen))])
        obs, legal, taken = (jax.device_put(leaf[padded]) for leaf in (game.obs, game.legal, game.taken))
        state = take(judge.env.spec, game.env_state, padded)
        positions = Positions(state, obs, legal, taken, jax.device_put(padded.astype(np.uint32)))
        results.append(interruptible(partial(_on_host, program, judge.params, positions, key)))
    joined: Outcomes = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(steps)], *results)
    return joined


def _on_host(program: ReviewProgram, params: Any, positions: Positions, key: Key) -> Outcomes:
    outcomes: Outcomes = jax.device_get(program.run(params, positions, key))
    return outcomes


def _differences(played: _Rollouts) -> Host:
    """Return the difference of each alternative from the action played in each rollout, [S, K, N]."""
    return np.where(played.valid[..., None], np.abs(played.returns - played.returns[:, :1]), 0.0)


def _mean_gains(played: _Rollouts) -> Host:
    """Return the mean gain of every alternative over the action played, [S, K]; -inf for the action played itself."""
    gains = played.returns.mean(-1) - played.returns[:, :1].mean(-1)
    allowed = np.array(played.valid)
    allowed[:, 0] = False
    return np.where(allowed, gains, -np.inf)


def _most_gained(played: _Rollouts) -> Host:
    """Return the numbers of the decisions with an alternative, the largest mean gain first."""
    largest = _mean_gains(played).max(1)
    return np.argsort(-largest, kind="stable")[: np.isfinite(largest).sum()]


def _actions(env: Env, played: _Rollouts, advised: Host, bounds: Interval, level: float) -> list[ReviewedAction]:
    """Return the actions of one decision, the one played first; `bounds` are those of a gain in a rollout."""
    gains, won = played.returns - played.returns[0], played.won
    return [
        ReviewedAction(
            action=_name(env, played.action[k]),
            played=k == 0,
            advised=tuple(played.action[k]) == tuple(advised),
            returns=float(played.returns[k].mean()),
            gain=float(gains[k].mean()),
            gain_interval=_known(bounded_interval(gains[k], bounds, level)) if k else Interval(0.0, 0.0),
            wins=None if won is None else float(won[k].mean()),
            wins_interval=None if won is None else _known(wilson(int(won[k].sum()), won.shape[1])),
        )
        for k in np.flatnonzero(played.valid).tolist()
    ]


def _known(interval: Interval | None) -> Interval:
    assert interval is not None  # there are rollouts
    return interval


def _name(env: Env, action: Iterable[int]) -> str:
    return "+".join(env.spec.action_names[int(one)] if env.spec.action_names else str(int(one)) for one in action)


def _state(env: Env, game: GamePositions, step: int) -> Mapping[str, JsonValue]:
    return described(env.spec, jax.device_get(take(env.spec, game.env_state, np.array([step]))), game.obs[step])
