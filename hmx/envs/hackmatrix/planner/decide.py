"""The decision of the planner: every legal action in scripted rollouts with common random numbers."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from hmx.config.schema import EnvConfig
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.planner.hidden import redrawn
from hmx.envs.hackmatrix.planner.plan import BoardPlan, make_plan
from hmx.envs.hackmatrix.planner.rollout import rollout
from hmx.envs.hackmatrix.planner.worth import PlannerWeights
from hmx.envs.hackmatrix.rules import NUM_ACTIONS, Rules, State, roster
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, P
from hmx.envs.protocol import Planned, Planner
from hmx.types import Array, Key

ROLLOUTS = 24  # per candidate; only the best `FINALISTS` get the second half
FINALISTS = 3
DEPTH = 12  # actions of a rollout
_PAIRS = 64  # candidates whose rollouts are computed side by side, at most


def make_planner(cfg: EnvConfig, rollouts: int = ROLLOUTS, depth: int = DEPTH) -> Planner:
    """Return the planner for HackMatrix under the rules of a configuration.

    The values are in the unit of `PlannerWeights`, about one hit point; they are not returns.

    Args:
        cfg: of the environment; only its rules matter.
        rollouts: number of rollouts of each of the best candidates, an even number.
        depth: actions of a rollout.
    """
    thought = Rules(undo_depth=0, name=cfg.rules)

    def plan(state: HackMatrixState, legal: Array, key: Key) -> Planned:
        return decide(state.game, legal, key, PlannerWeights(), thought, rollouts, depth)

    return plan


class _Thoughts(NamedTuple):
    """The games as the planner imagines them, `[games * rollouts]`, and its plans for the true ones, `[games]`."""

    states: State
    words: Array  # uint32 [2, games * rollouts]
    plans: BoardPlan


class _Tally(NamedTuple):
    """The rollouts of every pair of a game and an action so far, float32 `[games * NUM_ACTIONS]`."""

    total: Array
    squares: Array
    rollouts: Array

    def means(self) -> Array:
        """Return the mean worth of every pair; -inf without a rollout."""
        return jnp.where(self.rollouts > 0, self.total / jnp.maximum(self.rollouts, 1), -jnp.inf)


def decide(
    state: State, legal: Array, key: Key, weights: PlannerWeights, rules: Rules, rollouts: int, depth: int
) -> Planned:
    """Return the decision for games [E]: half of the rollouts for every candidate, the others for the best ones.

    All candidates of a game use the same imagined games and random numbers. UNDO is a candidate only if nothing else
    is legal, and a game with one candidate takes no rollouts.
    """
    games, half = state.hp.shape[0], rollouts // 2
    words = jax.random.bits(key, (2, games * rollouts))
    repeated: State = jax.tree.map(partial(jnp.repeat, repeats=rollouts, axis=-1), _without_history(state))
    thoughts = _Thoughts(redrawn(repeated, words), words, make_plan(state, weights))
    others = legal[:, 0].at[:, FIRST_PROGRAM + P.UNDO].set(False)
    candidates = jnp.where(others.any(axis=1, keepdims=True), others, legal[:, 0])
    several = candidates.sum(axis=1, keepdims=True) > 1

    def measure(first: Array, pair: Array) -> tuple[Array, Array]:
        game, action = pair // NUM_ACTIONS, pair % NUM_ACTIONS
        index = (game[:, None] * rollouts + first + jnp.arange(half)[None]).reshape(-1)
        imagined: State = jax.tree.map(lambda leaf: leaf[..., index], thoughts.states)
        plans: BoardPlan = jax.tree.map(lambda leaf: leaf[..., index // rollouts], thoughts.plans)
        value = rollout(imagined, action.repeat(half), thoughts.words[:, index], plans, weights, rules, depth)
        value = value.reshape(-1, half)
        return value.sum(axis=1), (value * value).sum(axis=1)

    def phase(number: Array, tally: _Tally) -> _Tally:
        means = tally.means().reshape(games, -1)
        last = lax.top_k(means, FINALISTS)[0][:, -1:]
        needed = (candidates & several & ((number == 0) | (means >= last))).reshape(-1)
        zeros, pairs = jnp.zeros_like(tally.total), jnp.arange(games * NUM_ACTIONS)
        lanes = min(_PAIRS, 4 * games)
        total, squares = roster.for_few(needed, lanes, partial(measure, number * half), pairs, (zeros, zeros))
        return _Tally(tally.total + total, tally.squares + squares, tally.rollouts + half * needed)

    none = jnp.zeros(games * NUM_ACTIONS, jnp.float32)
    return _planned(lax.fori_loop(0, 2, phase, _Tally(none, none, none)), candidates)


def _without_history(state: State) -> State:
    return state._replace(history=state.history[:0])


def _planned(tally: _Tally, candidates: Array) -> Planned:
    """Return the best of the candidates with most rollouts; a candidate without any has the value 0."""
    count = jnp.maximum(tally.rollouts, 1)
    mean = tally.total / count
    spread = jnp.maximum(tally.squares / count - mean * mean, 0.0)
    error = jnp.sqrt(spread / jnp.maximum(count - 1, 1))  # the unbiased variance spread n / (n - 1), over n
    values, errors, most = (x.reshape(candidates.shape) for x in (mean, error, tally.rollouts))
    final = candidates & (most == most.max(axis=1, keepdims=True))
    action = jnp.argmax(jnp.where(final, values, -jnp.inf), axis=1).astype(jnp.int32)
    values = jnp.where(candidates, values, -jnp.inf)
    return Planned(action[:, None], values[:, None], jnp.where(candidates, errors, 0.0)[:, None])
