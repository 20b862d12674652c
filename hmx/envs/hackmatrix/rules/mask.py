"""Which actions are valid."""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.hackmatrix.rules import bits, paths, roster
from hmx.envs.hackmatrix.rules.bits import MOVES, Array, u32
from hmx.envs.hackmatrix.rules.enemies import Occupied
from hmx.envs.hackmatrix.rules.siphon import reducible
from hmx.envs.hackmatrix.rules.state import DAEMON, VIRUS, C, E, State, T, blocks, layer
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, NUM_ACTIONS, PROGRAMS, SIPHON, P


def _affordable(state: State) -> Array:
    """Return the programs whose cost a game can pay as bits, uint32 [B]."""
    words = []
    for costs, owns in (([p.credits for p in PROGRAMS], state.credits), ([p.energy for p in PROGRAMS], state.energy)):
        by_amount = [sum(1 << k for k, cost in enumerate(costs) if cost <= have) for have in range(max(costs) + 1)]
        words.append(roster.taken(jnp.asarray(by_amount, jnp.uint32), jnp.clip(owns, 0, max(costs))))
    return words[0] & words[1]


def _applicable(state: State, occ: Occupied) -> Array:
    """Return the programs that would have an effect, or that need none, as bits, uint32 [B]."""
    walls = blocks(state.cells)
    player = bits.cell(state.pos)
    enemies = state.enemies[E.ALIVE] != 0
    transmissions = state.transmissions[T.ALIVE] != 0
    conditions = {
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
    word = u32(sum(1 << p for p in P if p not in conditions))
    for program, condition in conditions.items():
        word = word | u32(condition) << program
    return word


def legal_word(state: State, occ: Occupied) -> Array:
    """Return bit a for action a, uint32 [B]."""
    ground = ~blocks(state.cells) | occ.enemies
    player = bits.cell(state.pos)
    word = u32(state.siphons > 0) << SIPHON
    for action, move in enumerate(MOVES):
        word = word | (u32(bits.some(move(player) & ground)) << action)
    return word | (_affordable(state) & state.owned & _applicable(state, occ)) << FIRST_PROGRAM


def legal_actions(word: Array) -> Array:
    """Return the mask as bool [NUM_ACTIONS, *B]."""
    actions = jnp.arange(NUM_ACTIONS, dtype=jnp.uint32).reshape((NUM_ACTIONS,) + (1,) * word.ndim)
    return ((word[None] >> actions) & 1) != 0
