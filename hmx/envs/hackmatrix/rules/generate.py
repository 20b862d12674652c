"""New games and new stages."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from hmx.envs.hackmatrix.rules import bits, enemies, layouts, paths, roster
from hmx.envs.hackmatrix.rules.bits import Array, Board, u32
from hmx.envs.hackmatrix.rules.enemies import Occupied
from hmx.envs.hackmatrix.rules.history import WORDS
from hmx.envs.hackmatrix.rules.state import CORNERS, C, E, Rules, State, T, blocks, with_layers
from hmx.envs.hackmatrix.rules.tables import PROGRAMS, P

START_STREAM, EXIT_STREAM, COUNT_STREAM, KIND_STREAM, RESOURCE_STREAM, STAGE_SPAWN_STREAM = 8, 9, 10, 11, 12, 13
LATER_STREAM, LATER_PROGRAMS_STREAM = 14, 15

FIRST_INTERVAL = 12
BONUS_CREDITS, BONUS_ENERGY, BONUS_SIPHONS = 10, 11, 1
_QUESTION_SHARE = 0.10
_RICH_SHARE = 0.10
_SHARE_BITS = 16
_LANES = 16


def new_game(words: Array, rules: Rules) -> State:
    """Return games before their first stage is generated; `words` is uint32 [2, B]."""
    batch = words.shape[1:]
    zero = jnp.zeros(batch, jnp.int32)
    corner = jnp.asarray(CORNERS, jnp.uint32)[bits.below(bits.draw(words, START_STREAM), u32(4))]
    bonus = bits.below(bits.draw(words, START_STREAM, 1), u32(3))
    none = Board(jnp.zeros((C.PLANES, *batch), jnp.uint32), jnp.zeros((C.PLANES, *batch), jnp.uint32))
    return State(
        enemies=jnp.zeros((E.PLANES, *batch), jnp.uint32),
        transmissions=jnp.zeros((T.PLANES, *batch), jnp.uint32),
        cells=none,
        pos=corner,
        hp=zero + 3,
        credits=jnp.where(bonus == 0, BONUS_CREDITS, zero),
        energy=jnp.where(bonus == 1, BONUS_ENERGY, zero),
        siphons=jnp.where(bonus == 2, BONUS_SIPHONS, zero),
        score=zero,
        attack=zero + 1,
        stage=zero + 1,
        board_stage=zero + 1,
        turn=zero,
        owned=jnp.zeros(batch, jnp.uint32),
        show=zero != 0,
        calm=zero != 0,
        step_active=zero != 0,
        atk_uses=zero,
        interval=zero + FIRST_INTERVAL,
        next_scheduled=zero + FIRST_INTERVAL,
        pending=zero,
        exit=jnp.zeros(batch, jnp.uint32),
        exit_distance=zero,
        history=jnp.zeros((rules.undo_depth, WORDS, *batch), jnp.uint32),
        history_head=zero,
        history_count=zero,
    )


def later_game(state: State, words: Array) -> State:
    """Return new games in possible positions at the beginning of stage 2 to 8, before that stage is generated.

    Up to stage s a player gets 2 (s - 1) data siphons from the boards and perhaps one as the start bonus. All other
    possessions come from used siphons, each on a cross of 5 cells: here at most 2 programs, a data block of 9 points,
    and two cells with 3 credits or energy. The player has at least 2 hit points, since an exit heals one, and has never
    met an enemy turn that UNDO could revert. No enemies are left from earlier stages.
    """

    def uniform(word: Array) -> Array:
        return (word >> 8).astype(jnp.float32) / 2**24

    def number(index: int, n: int | Array) -> Array:
        return bits.below(bits.draw(words, LATER_STREAM, index), u32(n)).astype(jnp.int32)

    stage, siphons = 2 + number(0, 7), number(1, 4)
    used = 2 * stage - 1 - siphons
    most = jnp.minimum(jnp.minimum(2 * (stage - 1), 4), 3 * used // 4)  # a use of ATK+ costs 4 credits and 4 energy
    boosts = jnp.where(number(2, 2) == 1, number(3, most + 1), 0)
    affordable = 3 * used - 4 * boosts

    # each program with the same probability, up to the bound in an order that starts at a random one
    rank = jnp.arange(len(PROGRAMS), dtype=jnp.uint32)[:, None]
    program = (rank + u32(number(4, len(PROGRAMS)))[None]) % len(PROGRAMS)
    share = 0.8 * uniform(bits.draw(words, LATER_STREAM, 5)) ** 2
    offered = uniform(bits.draw(words[:, None], LATER_PROGRAMS_STREAM, rank)) < share[None]
    taken = offered & (jnp.cumsum(offered, axis=0) <= (2 * used - (boosts > 0))[None])
    owned = jnp.where(taken, u32(1) << program, 0).sum(0, dtype=jnp.uint32)
    return state._replace(
        stage=stage,
        interval=FIRST_INTERVAL + 1 - stage,
        hp=2 + number(6, 2),
        credits=jnp.minimum(number(7, 16), affordable),
        energy=jnp.minimum(number(8, 16), affordable),
        siphons=siphons,
        score=jnp.minimum(number(9, 31), 9 * used),
        attack=1 + boosts,
        owned=owned | jnp.where(boosts > 0, u32(1 << P.ATK_PLUS), 0),
    )


def _exit(state: State, words: Array) -> Array:
    """Return one of the three corners without the player, uniformly."""
    corners = jnp.zeros_like(state.pos)
    choice = bits.below(bits.draw(words, EXIT_STREAM), u32(3))
    seen = jnp.zeros_like(state.pos)
    for corner in CORNERS:
        free = state.pos != corner
        corners = jnp.where(free & (seen == choice), u32(corner), corners)
        seen = seen + free
    return corners


def _block_contents(placed: Board, words: Array) -> Board:
    """Return cells with the contents of blocks: kind, question mark, points or a program not yet used, spawn count."""
    spawn_costs = jnp.asarray([p.spawn for p in PROGRAMS], jnp.uint32)

    def contents(i: Array, unused: Array) -> Array:
        """Return the planes of block `i`, as the bits of a word."""
        is_data = (bits.draw(words, KIND_STREAM, 4 * i) & 1) == 0
        hidden = bits.draw(words, KIND_STREAM, 4 * i + 1) < u32(int(_QUESTION_SHARE * 2**32))
        points = 1 + bits.below(bits.draw(words, KIND_STREAM, 4 * i + 2), u32(9))
        pick = bits.below(bits.draw(words, KIND_STREAM, 4 * i + 3), lax.population_count(unused))
        program = bits.select_bit(unused, pick)
        value = jnp.where(is_data, points, program)
        spawn = jnp.where(is_data, points, spawn_costs[jnp.minimum(program, 22)])
        flags = u32(is_data) << C.DATA | u32(~is_data) << C.PROGRAM | u32(hidden) << C.HIDDEN
        return flags | value << C.VALUE | spawn << C.SPAWN

    def fill(i: Array, carry: tuple[Board, Array, Board]) -> tuple[Board, Array, Board]:
        left, unused, planes = carry
        here = bits.lowest_cell(left)
        word = roster.once(jnp.any(bits.some(left)), lambda: contents(i, unused))
        used = jnp.where(bits.some(here), ((word >> C.PROGRAM) & 1) << ((word >> C.VALUE) & 31), 0)
        planes = planes | Board(*(roster.put(word, half, C.PLANES) for half in here))
        return left & ~here, unused & ~used, planes

    unused = jnp.zeros_like(placed.lo) + u32((1 << len(PROGRAMS)) - 1)
    nothing = jnp.zeros((C.PLANES, *placed.lo.shape), jnp.uint32)
    planes: Board = lax.fori_loop(0, layouts.MAX_BLOCKS, fill, (placed, unused, Board(nothing, nothing)))[2]
    return planes


def _resources(ground: Board, words: Array) -> dict[int, Board]:
    """Put a resource on every cell of `ground`: 1, 2 or 3 with shares 0.45, 0.45, 0.10; credits or energy evenly."""
    index = jnp.arange(2 * (2 + _SHARE_BITS), dtype=jnp.uint32)[:, None]
    fair = bits.draw(words[:, None], RESOURCE_STREAM, index)

    def coin(k: int) -> Board:
        return Board(fair[2 * k], fair[2 * k + 1])

    energy, two = coin(0), coin(1)
    # A random binary fraction per cell, compared with the share from its least significant bit up.
    rich = ground ^ ground
    threshold = round(_RICH_SHARE * 2**_SHARE_BITS)
    for j in range(_SHARE_BITS):
        bit = coin(2 + j)
        rich = ~bit | rich if (threshold >> j) & 1 else ~bit & rich
    return {
        int(C.AMOUNT): ground & (~two | rich),
        int(C.AMOUNT) + 1: ground & (two | rich),
        int(C.ENERGY): ground & energy,
    }


def _fill(placed: Board, exit_cell: Board, pos: Array, words: Array) -> Board:
    """Return the cells of a new stage whose blocks lie at `placed`."""
    corners = bits.empty_like(pos) | layouts.corner_board()
    layers = {
        int(C.ITEM): corners & ~exit_cell & ~bits.cell(pos),
        int(C.EXIT): exit_cell,
        **_resources(~(placed | exit_cell), words),
    }
    return with_layers(_block_contents(placed, words), layers)


def populate(state: State, needed: Array, occ: Occupied, words: Array, rules: Rules) -> tuple[State, Occupied, Array]:
    """Generate the stage in the games where `needed` [B] holds; existing enemies and transmissions stay.

    Returns:
        The state, the occupied cells, and how many transmissions found no slot.
    """
    exit_index = jnp.where(needed, _exit(state, words), state.exit)
    exit_cell = bits.cell(exit_index)
    corners = bits.empty_like(state.pos) | layouts.corner_board()
    request = layouts.LayoutRequest(
        eligible=~(corners | occ.enemies | occ.transmissions),
        exit_first=exit_index == 0,
        exit=exit_cell,
        blocks=5 + bits.below(bits.draw(words, COUNT_STREAM), u32(7)).astype(jnp.int32),
        words=words,
    )
    placed = layouts.find(request, needed)
    lanes = roster.lanes_of(needed.shape[0], least=_LANES, share=8)
    board = (placed, exit_cell, state.pos, words)
    cells = roster.for_few(needed, lanes, lambda few: _fill(*few), board, state.cells)
    no = ~needed
    state = state._replace(
        cells=cells,
        exit=exit_index,
        board_stage=jnp.where(needed, state.stage, state.board_stage),
        turn=jnp.where(needed, 0, state.turn),
        next_scheduled=jnp.where(needed, state.interval, state.next_scheduled),
        show=state.show & no,
        calm=state.calm & no,
        step_active=state.step_active & no,
        atk_uses=jnp.where(needed, 0, state.atk_uses),
        history_count=state.history_count if rules.name == "original" else jnp.where(needed, 0, state.history_count),
    )
    number = jnp.where(needed, state.stage, 0)
    none = jnp.zeros_like(number)
    state, occ, overflow = enemies.spawn(state, occ, none, none, number, words, STAGE_SPAWN_STREAM)
    distance = paths.exit_distance(state.pos, state.exit, blocks(state.cells), needed)
    return state._replace(exit_distance=jnp.where(needed, distance, state.exit_distance)), occ, overflow
