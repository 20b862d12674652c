"""Ordered lists of enemies and transmissions as bit planes: look-ups, changes, and a per-slot form."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits
from hmx.envs.hackmatrix.rules.bits import SLOTS, Array, Board, u32
from hmx.envs.hackmatrix.rules.state import DAEMON, E, T

Tree = TypeVar("Tree")
Result = TypeVar("Result")
ALL = 0xFFFFFFFF
PLACE = int(E.TYPE)  # the first planes of both rosters: which slots are alive, and where they stand


def mask(condition: Array) -> Array:
    """Return all slots where `condition` [B] holds, else none."""
    return jnp.where(condition, u32(ALL), u32(0))


def size(planes: Array) -> Array:
    """Return the number of items, int32."""
    return lax.population_count(planes[E.ALIVE]).astype(jnp.int32)


def matches(planes: Array, start: int, width: int, value: Array) -> Array:
    """Return slots whose `width`-bit number at plane `start` equals `value` [B] (uint32)."""
    rows = jnp.arange(width, dtype=jnp.uint32).reshape(-1, *(1,) * (planes.ndim - 1))
    different = planes[start : start + width] ^ (u32(0) - ((value[None] >> rows) & 1))
    same: Array = ~lax.reduce(different, u32(0), lax.bitwise_or, (0,)) & planes[E.ALIVE]
    return same


def at(planes: Array, row: Array, col: Array) -> Array:
    """Return slots of the items on (row, col); empty off the board."""
    return matches(planes, E.ROW, 6, (row & 7) | (col & 7) << 3)


def number(planes: Array, start: int, width: int, slot: Array) -> Array:
    """Return the number stored for one slot, uint32."""
    value = u32(0)
    for j in range(width):
        value = value | (((planes[start + j] >> slot) & 1) << j)
    return value


def index_at(planes: Array, slot: Array) -> Array:
    """Return the cell index of one slot, uint32."""
    return number(planes, E.ROW, 3, slot) * bits.SIDE + number(planes, E.COL, 3, slot)


def used_slots(planes: Array) -> Array:
    """Return one past the highest slot in use anywhere in the batch: the bound of loops over slots."""
    return (SLOTS - lax.clz(planes[E.ALIVE].max())).astype(jnp.int32)


def cell_of(planes: Array, slot: Array) -> Board:
    """Return the cell of one slot, empty if the slot is not in use."""
    return bits.only(bits.cell(index_at(planes, slot)), (planes[E.ALIVE] >> slot) & 1 != 0)


def boards(enemies: Array, transmissions: Array) -> tuple[Board, Board]:
    """Return the cells on which enemies stand, and those on which transmissions do."""
    places = jnp.stack([enemies[:PLACE], transmissions[:PLACE]], axis=1)

    def add(k: Array, cells: Board) -> Board:
        return cells | cell_of(places, u32(k))

    found: Board = lax.fori_loop(0, used_slots(places), add, bits.empty_like(places[0]))
    return Board(found.lo[0], found.hi[0]), Board(found.lo[1], found.hi[1])


def put(item: Array, place: Array, planes: int) -> Array:
    """Return planes of one item: plane j is `place` [B], one bit, in the games where bit j of `item` [B] is set."""
    rows = jnp.arange(planes, dtype=jnp.uint32).reshape(-1, *(1,) * item.ndim)
    return jnp.where((item[None] >> rows) & 1 != 0, place[None], u32(0))


def full_hp(alive: Array, daemon: Array) -> tuple[Array, Array]:
    """Return the two hit-point planes of unhurt enemies: 3 for daemons, 2 for the others."""
    return alive & daemon, alive


def is_type(planes: Array, kind: int) -> Array:
    """Return slots of one enemy type."""
    low, high = (planes[E.TYPE + j] if kind >> j & 1 else ~planes[E.TYPE + j] for j in range(2))
    return planes[E.ALIVE] & low & high


def hatch(matured: Array) -> Array:
    """Return enemy planes of matured transmissions, with full hit points and the same flags."""
    alive = matured[T.ALIVE]
    hp_0, hp_1 = full_hp(alive, is_type(matured, DAEMON))
    tail = [hp_0, hp_1, jnp.zeros_like(alive), matured[T.SCHEDULED], matured[T.SIPHON]]
    return jnp.concatenate([matured[: T.TIMER], jnp.stack(tail)])


class Items(NamedTuple):
    """A roster with one row per slot, each int32 [SLOTS, B]; `hp` is the timer for transmissions."""

    alive: Array
    row: Array
    col: Array
    type: Array
    hp: Array
    stunned: Array
    scheduled: Array
    siphon: Array

    @property
    def place(self) -> Array:
        """Return the cell index of every slot."""
        return self.row * bits.SIDE + self.col


# The first plane and the number of planes of each field of `Items`; a transmission is never stunned.
_PLACE_FIELDS = ((E.ALIVE, 1), (E.ROW, 3), (E.COL, 3), (E.TYPE, 2))
_ENEMY_FIELDS = (*_PLACE_FIELDS, (E.HP, 2), (E.STUNNED, 1), (E.SCHEDULED, 1), (E.SIPHON, 1))
_TRANSMISSION_FIELDS = (*_PLACE_FIELDS, (T.TIMER, 6), (0, 0), (T.SCHEDULED, 1), (T.SIPHON, 1))


def _transposed(words: Array, count: int) -> Array:
    """Return `count` words of bits: word k has bit n where word n [N, B] has bit k."""
    trailing = (1,) * (words.ndim - 1)
    k = jnp.arange(count, dtype=jnp.uint32).reshape(count, 1, *trailing)
    n = jnp.arange(len(words), dtype=jnp.uint32).reshape(len(words), *trailing)
    return (((words[None] >> k) & 1) << n[None]).sum(axis=1, dtype=jnp.uint32)


def _unpack(planes: Array, fields: tuple[tuple[int, int], ...]) -> Items:
    words = _transposed(planes, SLOTS)
    return Items(*(((words >> start) & ((1 << width) - 1)).astype(jnp.int32) for start, width in fields))


def _pack(items: Items, fields: tuple[tuple[int, int], ...]) -> Array:
    def together() -> Array:
        words = jnp.zeros_like(items.alive, jnp.uint32)
        for (start, width), value in zip(fields, items, strict=True):
            words = words | (u32(value) & ((1 << width) - 1)) << start
        return jnp.where(items.alive != 0, words, 0)

    return _transposed(once(items.alive.any(), together), sum(width for _, width in fields))


def unpack_enemies(planes: Array) -> Items:
    """Return the per-slot form of the enemies."""
    return _unpack(planes, _ENEMY_FIELDS)


def pack_enemies(items: Items) -> Array:
    """Return planes of the enemies; dead ones leave gaps with all planes zero."""
    return _pack(items, _ENEMY_FIELDS)


def unpack_transmissions(planes: Array) -> Items:
    """Return the per-slot form of the transmissions."""
    return _unpack(planes, _TRANSMISSION_FIELDS)


def pack_transmissions(items: Items) -> Array:
    """Return planes of the transmissions."""
    return _pack(items, _TRANSMISSION_FIELDS)


def first_on_cell(alive: Array, index: Array) -> Array:
    """Return which slots are the first of the list on their cell, bool [SLOTS, B].

    Args:
        alive: bool [SLOTS, B], the slots that take part.
        index: int32 [SLOTS, B], their cells.
    """

    def visit(taken: Board, slot: tuple[Array, Array]) -> tuple[Board, Array]:
        here, cell_index = slot
        first = here & ~bits.has(taken, cell_index)
        return taken | bits.only(bits.cell(cell_index), first), first

    return lax.scan(visit, bits.empty_like(alive[0]), (alive, index))[1]


def once(condition: Array, function: Callable[[], Tree]) -> Tree:
    """Return `function()` if the scalar `condition` holds, else zeros; computed once, before anything that uses it.

    XLA on CPUs repeats element-wise work in every kernel that needs it. A loop of at most one round prevents this: put
    it around a value that is expensive and used often. Unlike `lax.cond`, a loop also ends early under `vmap` if no
    lane needs it.
    """

    def body(carry: tuple[Array, Tree]) -> tuple[Array, Tree]:
        return jnp.zeros_like(carry[0]), function()

    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(function))
    result: Tree = lax.while_loop(lambda carry: carry[0], body, (condition, zeros))[1]
    return result


def lanes_of(games: int, least: int = 8, share: int = 16) -> int:
    """Return the lanes of `for_few` for work that one game in `share` needs: at least `least`, at most `games`."""
    return min(games, max(least, games // share))


def taken(x: Array, index: Array) -> Array:
    """Return the entries `index` of the last axis, which must all exist: no operation checks that."""
    return x.at[..., index].get(mode="promise_in_bounds", wrap_negative_indices=False)


def for_few(needed: Array, lanes: int, function: Callable[[Tree], Result], operand: Tree, result: Result) -> Result:
    """Return `result` with `function(operand)` in the games where `needed` [B] holds, computed `lanes` games at a time.

    Work that only a few games of a batch need becomes cheap, at the price of a gather and a scatter.

    Args:
        needed: bool [B].
        lanes: how many games are computed side by side; more rounds follow if more need it.
        function: from the operand of `lanes` games to their results; both with the batch axis last.
        operand: a pytree with the batch axis last.
        result: a pytree like what the function returns, for all games.
    """
    size = needed.shape[0]
    ranks = jnp.arange(1, lanes + 1, dtype=jnp.int32)

    def round_(carry: tuple[Array, Result]) -> tuple[Array, Result]:
        left, result = carry
        order = jnp.cumsum(left, dtype=jnp.int32)
        game = jnp.minimum((order[None] < ranks[:, None]).sum(axis=1), size - 1)
        out = function(jax.tree.map(partial(taken, index=game), operand))
        here = left & (order <= lanes)
        place = jnp.clip(order - 1, 0, lanes - 1)

        def put(new: Array, old: Array) -> Array:
            return jnp.where(here.reshape((1,) * (old.ndim - 1) + (size,)), taken(new, place), old)

        return left & ~here, jax.tree.map(put, out, result)

    return lax.while_loop(lambda c: jnp.any(c[0]), round_, (needed, result))[1]
