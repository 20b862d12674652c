"""The turn-end snapshots that UNDO restores, as a ring of words."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules.bits import Array, Board, u32
from hmx.envs.hackmatrix.rules.roster import for_few, lanes_of
from hmx.envs.hackmatrix.rules.state import C, E, State, T, where

# The flags are the last planes of both rosters, and are lost on restore.
_ENEMY_PLANES, _TRANSMISSION_PLANES = int(E.SCHEDULED), int(T.SCHEDULED)
_NUMBERS = ("credits", "energy", "siphons", "score", "turn")
WORDS = _ENEMY_PLANES + _TRANSMISSION_PLANES + 2 * int(C.PLANES) + len(_NUMBERS) + 2


def snapshot(state: State) -> Array:
    """Return the fields that UNDO restores, uint32 [WORDS, B]."""
    small = (
        state.pos
        | u32(state.hp) << 6
        | u32(state.show) << 8
        | u32(state.calm) << 9
        | u32(state.atk_uses) << 10
        | u32(state.board_stage) << 12
        | u32(state.attack) << 16
    )
    scalars = [small, state.owned, *(u32(getattr(state, name)) for name in _NUMBERS)]
    return jnp.concatenate(
        [
            state.enemies[:_ENEMY_PLANES],
            state.transmissions[:_TRANSMISSION_PLANES],
            state.cells.lo,
            state.cells.hi,
            jnp.stack(scalars),
        ]
    )


def _flagless(planes: Array, total: int) -> Array:
    lost = jnp.zeros((total - planes.shape[0], *planes.shape[1:]), jnp.uint32)
    return jnp.concatenate([planes, lost])


def restored(state: State, words: Array) -> State:
    """Return the state with all fields of a snapshot restored."""
    a = _ENEMY_PLANES
    b = a + _TRANSMISSION_PLANES
    c = b + C.PLANES
    d = c + C.PLANES
    small, owned, *numbers = (words[d + i] for i in range(len(_NUMBERS) + 2))
    return state._replace(
        enemies=_flagless(words[:a], E.PLANES),
        transmissions=_flagless(words[a:b], T.PLANES),
        cells=Board(words[b:c], words[c:d]),
        pos=small & 63,
        hp=((small >> 6) & 3).astype(jnp.int32),
        show=((small >> 8) & 1) != 0,
        calm=((small >> 9) & 1) != 0,
        atk_uses=((small >> 10) & 3).astype(jnp.int32),
        board_stage=((small >> 12) & 15).astype(jnp.int32),
        attack=(small >> 16).astype(jnp.int32),
        owned=owned,
        **{name: word.astype(jnp.int32) for name, word in zip(_NUMBERS, numbers, strict=True)},
    )


def push(state: State, condition: Array) -> State:
    """Store a snapshot in the games where `condition` [B] holds, in place of the oldest."""
    depth = state.history.shape[0]
    slots = jnp.arange(depth, dtype=jnp.int32)[:, None, None]
    here = condition[None, None] & (slots == state.history_head[None, None])
    return state._replace(
        history=jnp.where(here, snapshot(state)[None], state.history),
        history_head=jnp.where(condition, (state.history_head + 1) % depth, state.history_head),
        history_count=jnp.where(condition, jnp.minimum(depth, state.history_count + 1), state.history_count),
    )


def undo(state: State, condition: Array) -> State:
    """Restore the newest snapshot in the games where `condition` holds, and delete it."""
    lanes = lanes_of(len(condition))
    ring = (state.history, state.history_head)
    blank = jnp.zeros_like(state.history[0])
    words = for_few(condition, lanes, lambda few: _newest_of(*few), ring, blank)
    back = restored(state, words)._replace(
        history_head=(state.history_head - 1) % state.history.shape[0], history_count=state.history_count - 1
    )
    return where(condition, back, state)._replace(history=state.history)


def _newest_of(history: Array, head: Array) -> Array:
    """Return the newest snapshots, uint32 [WORDS, B]."""
    return jnp.where(_newest(history, head), history, u32(0)).sum(axis=0, dtype=jnp.uint32)


def _newest(history: Array, head: Array) -> Array:
    """Return which snapshot is the newest, bool [depth, 1, B]."""
    depth = history.shape[0]
    slots = jnp.arange(depth, dtype=jnp.int32)[:, None, None]
    return slots == ((head - 1) % depth)[None, None]


def imagined(state: State, true: State, history: Array) -> State:
    """Return a state that looks like `true` to the player, with the player's own snapshots.

    The newest one is that of `state` where no turn or program has followed it in the true game.
    """
    newest = _newest(history, true.history_head)
    untouched = jnp.where(newest, true.history == snapshot(true)[None], True).all((0, 1))
    return state._replace(history=jnp.where(newest & untouched[None, None], snapshot(state)[None], history))
