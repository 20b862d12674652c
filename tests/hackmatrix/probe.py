"""One compiled step of `BATCH` games at a time, seen from the rules and from the environment at once.

The functions here take seconds to compile: with `BATCH` games, all modules share one compilation of each.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from compiled import RULES, board_problem, counts_of, match, read
from oracle import Outcome, legal, observe
from oracle_enemies import spawn
from oracle_state import Position

from hmx.config.schema import EnvConfig, RewardWeights
from hmx.envs.hackmatrix import rules as game
from hmx.envs.hackmatrix.env import HackMatrixState, make_hackmatrix
from hmx.envs.hackmatrix.observation import packed, parts
from hmx.types import Timestep

BATCH = 512
LIMIT = 1000  # steps of an episode, more than a probe or a random play takes
ENV = make_hackmatrix(EnvConfig(max_steps=LIMIT, undo_depth=RULES.undo_depth, rules=RULES.name), RewardWeights())
new_games = jax.jit(game.reset)
new_later_games = jax.jit(ENV.spec.later_reset)
game_step = jax.jit(game.step, static_argnums=3)
legal_actions = jax.jit(game.legal)


class Seen(NamedTuple):
    """What a step shows: the state by the rules, the environment's next state and timestep, and decoded views."""

    after: game.State
    events: game.Events
    legal: jax.Array  # of `after`, [28, BATCH]
    next_state: HackMatrixState
    timestep: Timestep
    final: tuple[jax.Array, ...]  # player, programs, grid of the final observation
    shown: tuple[jax.Array, ...]  # the same of the observation shown next


@jax.jit
def env_state(state: game.State) -> HackMatrixState:
    """A batch of games as the environment keeps them."""
    mask = game.legal(state).astype(jnp.uint32)
    word = (mask << jnp.arange(game.NUM_ACTIONS, dtype=jnp.uint32)[:, None]).sum(0, dtype=jnp.uint32)
    return HackMatrixState(state, jnp.zeros_like(state.hp), word)


@jax.jit
def _parts(timestep: Timestep) -> list[tuple[jax.Array, ...]]:
    return [parts(obs[:, 0]) for obs in (timestep.final_obs, timestep.obs)]


def _probe(state: game.State, action: jax.Array, keys: jax.Array) -> Seen:
    after, events = game_step(state, action, jax.random.clone(keys), RULES)
    next_state, timestep = ENV.step(env_state(state), action[:, None], keys)
    return Seen(after, events, legal_actions(after), next_state, timestep, *_parts(timestep))


def padded(state: game.State) -> game.State:
    """The games of a batch, repeated until there are `BATCH`."""
    index = np.arange(BATCH) % state.hp.shape[0]
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf)[..., index]), state)


@functools.cache
def _keys(seed: int) -> jax.Array:
    return jax.random.split(jax.random.key(seed), BATCH)


def probe(state: game.State, actions: Sequence[int], seed: int) -> Seen:
    """One step of up to `BATCH` games; everything comes back as numpy arrays of just these games."""
    count = len(actions)
    action = jnp.asarray(np.asarray(actions, np.int32)[np.arange(BATCH) % count])
    return trim(_probe(padded(state), action, jax.random.clone(_keys(seed))), count)


def trim(seen: Seen, count: int) -> Seen:
    """The first games of a batch, in numpy; the batch axis leads in observations and trails elsewhere."""
    leading = {"timestep", "final", "shown"}

    def cut(name: str, leaf: Any) -> np.ndarray:
        leaf = np.asarray(leaf)
        return leaf[:count] if name in leading else leaf[..., :count]

    return Seen(**{name: jax.tree.map(functools.partial(cut, name), tree) for name, tree in seen._asdict().items()})


def take(state: Any, index: Sequence[int]) -> Any:
    """Some games of a numpy batch."""
    return jax.tree.map(lambda leaf: np.asarray(leaf)[..., np.asarray(index, int)], state)


def join(a: Any, b: Any) -> Any:
    """Two numpy batches as one."""
    return jax.tree.map(lambda x, y: np.concatenate([np.asarray(x), np.asarray(y)], axis=-1), a, b)


@jax.jit
def _views(state: game.State) -> tuple[jax.Array, ...]:
    return (*parts(packed(state).T), game.legal(state, RULES).T)


def views(state: game.State) -> tuple[np.ndarray, ...]:
    """Player, programs, grid and mask of a batch; the batch axis leads."""
    count = state.hp.shape[0]
    return tuple(np.asarray(view)[:count] for view in _views(padded(state)))


def grid_of(grid: np.ndarray) -> dict[tuple[int, int, int], float]:
    """The entries of a grid [6, 6, 42] that are not 0."""
    return {tuple(place): float(grid[tuple(place)]) for place in np.argwhere(grid).tolist()}


@dataclass
class Verdict:
    """What came of comparing one step: the outcome of the model it equals, or what is wrong."""

    outcome: Outcome | None
    problems: list[Any]


class Judge:
    """Compares the games of one probe with the model, one by one."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.after = read(seen.after)
        self.next = read(seen.next_state.game)
        self.counts = counts_of(seen.events)

    def verdict(self, i: int, found: list[Outcome]) -> Verdict:
        """Whether game `i` did one of the things the model found, in every respect."""
        outcome, problems = match(found, self.after[i], self.counts[i])
        if outcome is None:
            return Verdict(None, problems)
        wrong = self._view(i, outcome.position) + self._reward(i, outcome) + self._shown(i, outcome)
        wrong += [f"overflow {self.counts[i]['overflow']}"] * (self.counts[i]["overflow"] != 0)
        return Verdict(outcome, wrong)

    def _view(self, i: int, pos: Position) -> list[str]:
        """The final observation and the mask."""
        wrong = same_view(pos, *(np.asarray(part[i]) for part in self.seen.final))
        mask, expected = np.flatnonzero(self.seen.legal[:, i]).tolist(), legal(pos)
        return wrong + [f"mask {mask} instead of {expected}"] * (mask != expected)

    def _reward(self, i: int, outcome: Outcome) -> list[str]:
        ts = self.seen.timestep
        wrong = []
        for name, value in outcome.terms.items():
            paid = float(ts.terms[name][i])
            if abs(paid - value) > 1e-5 * max(1.0, abs(value)):
                wrong.append(f"{name}: {paid} instead of {value}")
        if abs(float(ts.reward[i, 0]) - outcome.reward) > 1e-4 * max(1.0, abs(outcome.reward)):
            wrong.append(f"reward {ts.reward[i, 0]} instead of {outcome.reward}")
        ended = bool(ts.terminated[i]), bool(ts.truncated[i])
        return wrong + [f"terminated, truncated {ended}"] * (ended != (outcome.done, False))

    def _shown(self, i: int, outcome: Outcome) -> list[str]:
        """The next state of the environment: the same game, or a new one after the end."""
        ts = self.seen.timestep
        mask = np.flatnonzero(ts.legal[i, 0]).tolist()
        pos = self.next[i]
        if outcome.done:
            problem = new_game_problem(pos)
            wrong = [f"after the end: {problem}"] if problem else []
        else:
            wrong = [] if pos.key() == self.after[i].key() else ["the environment went on from another state"]
            pos = outcome.position
        wrong += same_view(pos, *(np.asarray(part[i]) for part in self.seen.shown))
        return wrong + [f"mask shown {mask}"] * (mask != legal(pos))


def same_view(pos: Position, player: np.ndarray, programs: np.ndarray, grid: np.ndarray) -> list[str]:
    """What differs between what the model sees and an observation."""
    want_player, want_programs, want_grid = observe(pos)
    wrong = []
    if not np.allclose(player, want_player, atol=1e-6):
        wrong.append(f"player {player} instead of {want_player}")
    if programs.tolist() != want_programs:
        wrong.append(f"programs {programs} instead of {want_programs}")
    full = np.zeros_like(grid)
    for place, value in want_grid.items():
        full[place] = value
    if not np.allclose(grid, full, atol=1e-6):
        places = np.argwhere(~np.isclose(grid, full, atol=1e-6)).tolist()
        wrong.append(f"grid {[(*p, float(grid[tuple(p)]), float(full[tuple(p)])) for p in places]} (seen, expected)")
    return wrong


def new_game_problem(pos: Position) -> str | None:
    """What a new game breaks of the rules of section 2, if anything."""
    start = Position(pos.cell, credits=pos.credits, energy=pos.energy, siphons=pos.siphons)
    start.cells, start.exit, start.transmissions = pos.cells, pos.exit, pos.transmissions
    if start.key() != pos.key():
        return f"not a start: {pos}"
    if (pos.credits, pos.energy, pos.siphons) not in {(10, 0, 0), (0, 11, 0), (0, 0, 1)} or pos.cell not in (
        0,
        5,
        30,
        35,
    ):
        return f"bonus or corner: {pos}"
    if len(pos.transmissions) != 1 or pos.transmissions[0].timer != 1:
        return f"transmissions: {pos.transmissions}"
    start.transmissions = []
    return board_problem(start) or spawn(start, pos.transmissions)
