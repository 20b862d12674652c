"""One step of the game: `reset`, `step` and `legal`, for one game or a batch along the trailing axis."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits, paths
from hmx.envs.hackmatrix.rules.actions import Outcome, perform
from hmx.envs.hackmatrix.rules.bits import Array
from hmx.envs.hackmatrix.rules.enemies import Occupied, adjacent, enemy_turn, occupied
from hmx.envs.hackmatrix.rules.generate import FIRST_INTERVAL, later_game, new_game, populate
from hmx.envs.hackmatrix.rules.mask import legal_actions, legal_word
from hmx.envs.hackmatrix.rules.state import E, Events, Rules, State, blocks
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, SIPHON, P

DEFAULT = Rules()
LAST_STAGE = 8


class TurnResult(NamedTuple):
    """A batch after an action and its enemy turn, before any new stage is generated."""

    state: State
    events: Events
    occupied: Occupied
    done: Array  # bool [B]
    entered: Array  # bool [B]: a new stage must be generated


def random_words(keys: Array) -> tuple[Array, Array]:
    """Return random words from typed keys [B], uint32 [2, B] each: for the step, and for a new game after it."""
    words = jax.vmap(lambda key: jax.random.bits(key, (4,)))(keys).T
    return words[:2], words[2:]


def legal_word_of(state: State) -> Array:
    """Return the mask as bits, uint32 [B], from the state alone."""
    return legal_word(state, occupied(state))


def advance(state: State, action: Array, words: Array, rules: Rules, legal_bits: Array) -> TurnResult:
    """Play an action and the enemy turn after it; all arguments are batched, `legal_bits` is the current mask."""
    valid = (action >= 0) & ((legal_bits >> action.astype(jnp.uint32)) & 1 != 0)
    before = state
    done_action = jnp.where(valid, action, -1)
    state, outcome = perform(state, done_action, words)
    state = state._replace(enemies=bits.compress(state.enemies, state.enemies[E.ALIVE]))
    completed = outcome.at_exit
    takes_turn = valid & ((action <= SIPHON) | (action == FIRST_PROGRAM + P.WAIT)) & ~completed
    state, occ, overflow = enemy_turn(state, takes_turn, words)

    by_undo = completed & (state.board_stage != state.stage)
    victory = completed & (state.stage == LAST_STAGE)
    entered = completed & ~victory
    completed_stage = jnp.where(completed, state.stage, 0)
    stage = state.stage + entered
    state = state._replace(
        hp=jnp.where(completed, jnp.minimum(3, state.hp + 1), state.hp),
        stage=stage,
        interval=jnp.where(entered, FIRST_INTERVAL + 1 - stage, state.interval),
    )
    distance = paths.exit_distance(state.pos, state.exit, blocks(state.cells), ~completed)
    state = state._replace(exit_distance=distance)
    events = _events(before, state, outcome, valid, completed_stage, victory, rules)
    events = events._replace(undo_stage=by_undo.astype(jnp.int32), overflow=overflow)
    events = events._replace(program=jnp.where(done_action >= FIRST_PROGRAM, action - FIRST_PROGRAM, -1))
    done = ~valid | (events.died != 0) | victory
    return TurnResult(state, events, occ, done, entered)


def _events(
    before: State, after: State, outcome: Outcome, valid: Array, completed_stage: Array, victory: Array, rules: Rules
) -> Events:
    died = after.hp == 0
    completed = completed_stage > 0
    hunted = (adjacent(after.enemies, after.pos) & after.enemies[E.SIPHON]) != 0
    won = jnp.where(completed, before.exit_distance, before.exit_distance - after.exit_distance)
    if rules.name != "original":
        lost_path = ~completed & (after.exit_distance == 0) & (after.pos != after.exit)
        won = jnp.where(lost_path, 0, won)
    zero = jnp.zeros_like(after.hp)
    return Events(
        valid=valid.astype(jnp.int32),
        stage_completed=completed_stage,
        victory=victory.astype(jnp.int32),
        died=died.astype(jnp.int32),
        siphon_death=(died & hunted).astype(jnp.int32),
        score=after.score - before.score,
        kills=outcome.kills,
        data_siphon=outcome.data_siphon.astype(jnp.int32),
        distance=jnp.where(died, 0, jnp.maximum(0, won)),
        credits=after.credits - before.credits,
        energy=after.energy - before.energy,
        hp=after.hp - before.hp,
        missed_credits=outcome.missed_credits,
        missed_energy=outcome.missed_energy,
        reset_wasted=outcome.reset_wasted.astype(jnp.int32),
        undo_stage=zero,
        overflow=zero,
        program=zero,
    )


def first_stage(words: Array, rules: Rules, later: bool = False) -> tuple[State, Occupied]:
    """Return new games in their first stage, or `later` in another one, and their occupied cells."""
    state = new_game(words, rules)
    if later:
        state = later_game(state, words)
    nothing = bits.empty_like(state.pos)
    everywhere = jnp.ones(words.shape[1:], bool)
    state, occ, _ = populate(state, everywhere, Occupied(nothing, nothing), words, rules)
    return state, occ


def _batched(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[..., None], tree)


def _single(tree: Any) -> Any:
    return jax.tree.map(lambda x: x[..., 0], tree)


def reset(key: Array, rules: Rules = DEFAULT) -> State:
    """Start a new game per key.

    Args:
        key: a typed key, or keys [B].
        rules: the static choices of the rules.
    """
    if key.ndim == 0:
        return State(*_single(reset(key[None], rules)))
    words, _ = random_words(key)
    return first_stage(words, rules)[0]


def step(state: State, action: Array, key: Array, rules: Rules = DEFAULT) -> tuple[State, Events]:
    """Play one action in each game; an action outside the mask changes nothing and reports `valid` 0.

    Args:
        state: one game, or a batch along the trailing axis.
        action: int32 scalar or [B], 0 to 27.
        key: a typed key, or keys [B], one for each game.
        rules: the static choices of the rules, the same as in `reset`.

    Returns:
        The next state and the events. Finished games are not reset.
    """
    if state.hp.ndim == 0:
        new, events = step(_batched(state), jnp.asarray(action)[None], key[None], rules)
        return _single(new), _single(events)
    words, _ = random_words(key)
    played = advance(state, jnp.asarray(action), words, rules, legal_word_of(state))
    new, _, overflow = populate(played.state, played.entered, played.occupied, words, rules)
    return new, played.events._replace(overflow=played.events.overflow + overflow)


def legal(state: State, rules: Rules = DEFAULT) -> Array:
    """Return the valid actions, bool [28] or [28, B]."""
    del rules
    if state.hp.ndim == 0:
        return legal(_batched(state))[:, 0]
    return legal_actions(legal_word_of(state))
