"""Advice to a person at the keyboard: how sure the agent is, and what follows its two best actions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.play.simulator import Simulator
from hmx.render.quantities import percent
from hmx.reports.review.judge import Judge
from hmx.runs.buffers import Host
from hmx.scoring.rollouts import Returns, repeated, rollouts
from hmx.stats.intervals import Interval, bounded_interval
from hmx.types import Array, Key

ROLLOUTS = 64  # of each of the two actions
DEPTH = 64  # steps of a rollout, at most; the agent's value counts for the rest
LEVEL = 0.99  # of the interval that "Sure" and "Doubtful" rest on, in each position


class Continuations(NamedTuple):
    """The rollouts of one action."""

    name: str
    returns: Host  # float [N]
    lost: float  # share of rollouts that ended without a win
    won: float


Advisor = Callable[[Simulator], str]


def make_advisor(judge: Judge) -> Advisor:
    """Return a function that compares the two most probable actions of a position by rollouts, in sentences.

    Both actions have the same random numbers, and what the player cannot see is drawn again. The rollouts of a position
    may miss a rare reward, so the function remembers the largest difference that those of all positions have shown.
    """
    largest = 0.0

    @jax.jit
    def play(state: object, actions: Array, key: Key) -> Returns:
        states = repeated(judge.env, state, 2 * ROLLOUTS)
        keys = jnp.tile(jax.random.split(key, ROLLOUTS), 2)
        action = jnp.repeat(actions, ROLLOUTS)[:, None]
        return rollouts(judge.env, judge.policy, judge.params, states, action, keys, judge.options, DEPTH)

    def advise(game: Simulator) -> str:
        nonlocal largest
        frame = game.frame
        probs = frame.probs
        if probs is None or frame.outcome:
            return ""
        best = sorted(frame.legal, key=lambda action: -probs[action])[:2]
        names = [frame.names[action] for action in best]
        if len(best) < 2:
            return f"{names[0]} is the only action."
        key = jax.random.fold_in(jax.random.fold_in(jax.random.key(game.seed), frame.episode), frame.step)
        result = jax.device_get(play(game.seen()[0], jnp.array(best, jnp.int32), key))
        both = [continuations(name, result, i) for i, name in enumerate(names)]
        largest = max(largest, float(np.abs(both[0].returns - both[1].returns).max()))
        return sentences(both, largest)

    return advise


def continuations(name: str, result: Returns, number: int) -> Continuations:
    """Select the rollouts of the first or second action."""
    own = slice(number * ROLLOUTS, (number + 1) * ROLLOUTS)
    ended = np.asarray(result.ended[own])
    won = np.zeros_like(ended) if result.won is None else np.asarray(result.won[own])
    return Continuations(
        name, np.asarray(result.total[own], np.float64), float((ended & ~won).mean()), float(won.mean())
    )


def sentences(both: Sequence[Continuations], largest: float) -> str:
    """Say which action is better and how sure that is, then how the rollouts of both end.

    Args:
        both: the more probable action first.
        largest: possible difference between their returns in a rollout.
    """
    first, second = both
    gains = first.returns - second.returns
    interval = bounded_interval(gains, Interval(-largest, largest), LEVEL)
    assert interval is not None
    low, high = interval
    gain = f"{abs(gains.mean()):.1f} in return ({min(abs(low), abs(high)):.1f} to {max(abs(low), abs(high)):.1f})"
    if low > 0:
        text = f"Sure: {first.name} is better than {second.name} by {gain}."
    elif high < 0:
        text = f"Doubtful: in rollouts, {second.name} is better than {first.name} by {gain}."
    else:
        text = f"Not sure: {first.name} or {second.name}, {gains.mean():+.1f} in return ({low:+.1f} to {high:+.1f})."
    text += f" Within {DEPTH} steps, {percent(first.lost)} of games are lost after {first.name}"
    text += f" and {percent(second.lost)} after {second.name}"
    if first.won or second.won:
        text += f"; {percent(first.won)} and {percent(second.won)} are won"
    return f"{text}."
