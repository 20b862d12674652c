"""The eight symmetries of the board, which transform packed observations and actions.

Bit 2 of a symmetry's number exchanges rows and columns; then bit 0 reverses the columns, and bit 1 the rows. The rules
break some ties in a fixed order, so the same action may have another outcome on a transformed board.
"""

from __future__ import annotations

import jax.numpy as jnp

from hmx.envs.hackmatrix.observation import V
from hmx.envs.hackmatrix.rules.bits import SIDE, Array, col_of, row_of, u32
from hmx.envs.hackmatrix.rules.tables import NUM_ACTIONS

_STEPS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # change of row and column of each move
_PLANES = int(V.PLANES)
_POS = 2 * _PLANES  # the word of the player's cell


def _turned_step(step: tuple[int, int], symmetry: int) -> tuple[int, int]:
    row, col = step[::-1] if symmetry & 4 else step
    return -row if symmetry & 2 else row, -col if symmetry & 1 else col


def _sources(symmetry: int) -> tuple[int, ...]:
    images = [_STEPS.index(_turned_step(step, symmetry)) for step in _STEPS]
    return *(images.index(move) for move in range(len(_STEPS))), *range(len(_STEPS), NUM_ACTIONS)


SYMMETRIES = tuple(map(_sources, range(8)))
"""The original of each action, by symmetry."""


def _cells(rows: range, cols: range) -> Array:
    """Return cells of three rows as bits of a word."""
    return u32(sum(1 << (SIDE * row + col) for row in rows for col in cols))


def _exchanged(word: Array, cells: Array, distance: int) -> Array:
    """Exchange bits with those `distance` above them."""
    different = ((word >> distance) ^ word) & cells
    return word ^ different ^ (different << distance)


def _transposed(low: Array, high: Array) -> tuple[Array, Array]:
    """Exchange rows and columns: in each square of three by three cells, and then two of these squares."""
    near = _cells(range(1), range(1, 2)) | _cells(range(1, 2), range(2, 3))
    far = _cells(range(1), range(2, 3))
    near, far = near | near << 3, far | far << 3
    low, high = (_exchanged(_exchanged(word, near, SIDE - 1), far, 2 * (SIDE - 1)) for word in (low, high))
    different = ((low >> 3) ^ high) & _cells(range(3), range(3))
    return low ^ (different << 3), high ^ different


def _reversed_columns(word: Array) -> Array:
    for col in range(SIDE // 2):
        word = _exchanged(word, _cells(range(3), range(col, col + 1)), SIDE - 1 - 2 * col)
    return word


def _reversed_rows(low: Array, high: Array) -> tuple[Array, Array]:
    first = _cells(range(1), range(SIDE))
    return _exchanged(high, first, 2 * SIDE), _exchanged(low, first, 2 * SIDE)


def turned(words: Array, symmetry: Array) -> Array:
    """Transform packed observations [..., WORDS], each by a symmetry [...]."""
    transposes, reverses_rows, reverses_columns = (((symmetry >> bit) & 1 != 0) for bit in (2, 1, 0))

    def choose(where: Array, changed: Array, same: Array) -> Array:
        return jnp.where(where[..., None], changed, same)

    low, high, pos = words[..., :_PLANES], words[..., _PLANES:_POS], words[..., _POS : _POS + 1]
    row, col = row_of(pos), col_of(pos)
    row, col = choose(transposes, col, row), choose(transposes, row, col)
    row = choose(reverses_rows, SIDE - 1 - row, row)
    col = choose(reverses_columns, SIDE - 1 - col, col)
    low, high = (choose(transposes, *pair) for pair in zip(_transposed(low, high), (low, high), strict=True))
    low, high = (choose(reverses_rows, *pair) for pair in zip(_reversed_rows(low, high), (low, high), strict=True))
    low, high = (choose(reverses_columns, _reversed_columns(half), half) for half in (low, high))
    return jnp.concatenate([low, high, row * SIDE + col, words[..., _POS + 1 :]], axis=-1)
