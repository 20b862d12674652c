"""Which actions are valid."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits, paths, roster
from hmx.envs.hackmatrix.rules.bits import MOVES, Array, u32
from hmx.envs.hackmatrix.rules.enemies import Occupied
from hmx.envs.hackmatrix.rules.siphon import reducible
from hmx.envs.hackmatrix.rules.state import DAEMON, VIRUS, C, E, State, T, blocks, layer
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, NUM_ACTIONS, PROGRAMS, SIPHON, P


def _applicable(state: State, occ: Occupied) -> dict[P, Array]:
    """Return the programs that need more than their cost."""
    walls = blocks(state.cells)
    player = bits.cell(state.pos)
    enemies = state.enemies[E.ALIVE] != 0
    transmissions = state.transmissions[T.ALIVE] != 0
    return {
        P.PUSH: enemies,
        P.PULL: enemies,
        P.CRASH: bits.some(bits.ring(player) & (walls | occ.enemies | occ.transmissions)),
        P.WARP: enemies | transmissions,
        P.POLY: enemies,
        P.DEBUG: bits.some(occ.enemies & walls),
        P.ROW: bits.some(occ.enemies & paths.row_cells(state.pos)),
        P.COL: bits.some(occ.enemies & paths.col_cells(state.pos)),
        P.UNDO: state.history_count > 0,
        P.SHOW: ~state.show,
        P.RESET: state.hp < 3,
        P.CALM: ~state.calm,
        P.D_BOM: roster.is_type(state.enemies, DAEMON) != 0,
        P.DELAY: transmissions,
        P.ANTI_V: roster.is_type(state.enemies, VIRUS) != 0,
        P.SCORE: state.stage < 8,
        P.REDUC: bits.some(reducible(state)),
        P.ATK_PLUS: state.atk_uses < 2,
        P.HACK: bits.some(layer(state.cells, C.SIPHONED)),
    }


def legal_word(state: State, occ: Occupied) -> Array:
    """Return bit a for action a, uint32 [B]."""
    ground = ~blocks(state.cells) | occ.enemies
    player = bits.cell(state.pos)
    word = u32(state.siphons > 0) << SIPHON
    for action, move in enumerate(MOVES):
        word = word | (u32(bits.some(move(player) & ground)) << action)
    applicable = _applicable(state, occ)
    for k, program in enumerate(PROGRAMS):
        ready = (state.credits >= program.credits) & (state.energy >= program.energy)
        if P(k) in applicable:
            ready = ready & applicable[P(k)]
        word = word | ((u32(ready) & (state.owned >> k)) << (FIRST_PROGRAM + k))
    return word


def legal_actions(word: Array) -> Array:
    """Return the mask as bool [NUM_ACTIONS, *B]."""
    actions = jnp.arange(NUM_ACTIONS, dtype=jnp.uint32).reshape((NUM_ACTIONS,) + (1,) * word.ndim)
    return ((word[None] >> actions) & 1) != 0
