"""Between plain-Python positions and the compiled game: packing, reading back, comparing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from oracle import Outcome, settle
from oracle_enemies import spawn
from oracle_state import (
    CORNERS,
    DATA,
    DATA_SIPHON,
    EMPTY,
    EXIT,
    NEIGHBOURS,
    PROGRAM,
    PROGRAMS,
    TYPES,
    Cell,
    Enemy,
    Position,
    Transmission,
)

from hmx.envs.hackmatrix.rules import Events, Rules, State
from hmx.envs.hackmatrix.rules.scenario import from_dict
from hmx.envs.hackmatrix.rules.state import C, E, T

RULES = Rules(name="original")
NUMBERS = ("hp", "credits", "energy", "siphons", "score", "attack", "stage", "turn", "atk_uses", "interval", "pending")
FIELDS = {name: name for name in NUMBERS} | {"next_turn": "next_scheduled"}
FLAGS = ("show", "calm", "step_active")


def load(scenarios: Sequence[dict[str, Any]], rules: Rules = RULES) -> State:
    """The scenarios as one batch, along the trailing axis."""
    states = [jax.tree.map(np.asarray, from_dict(s, rules)) for s in scenarios]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves, axis=-1)), *states)


def _bits(words: Any, count: int) -> np.ndarray:
    """[planes, B] words to [B, planes, count] bits."""
    words = np.asarray(words)
    return ((words[..., None] >> np.arange(count, dtype=np.uint32)) & 1).swapaxes(0, 1).astype(np.int64)


def _number(bits: np.ndarray, start: int, width: int) -> np.ndarray:
    """[B, planes, n] to [B, n]."""
    return sum(bits[:, start + j] << j for j in range(width))


def _lists(*columns: np.ndarray) -> list[list[tuple[Any, ...]]]:
    """Columns [B, n] to rows [B][n] of tuples."""
    return [list(zip(*row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)]


def _enemies(planes: Any) -> list[list[Enemy]]:
    b = _bits(planes, 32)
    cell = _number(b, E.ROW, 3) * 6 + _number(b, E.COL, 3)
    flags = (b[:, p].astype(bool) for p in (E.STUNNED, E.SIPHON, E.SCHEDULED))
    rows = _lists(b[:, E.ALIVE], _number(b, E.TYPE, 2), cell, _number(b, E.HP, 2), *flags)
    for row in rows:
        alive = [r[0] for r in row]
        assert alive == sorted(alive, reverse=True), f"the enemy roster has holes: {alive}"
    return [[Enemy(TYPES[t], c, hp, 0, *flags) for a, t, c, hp, *flags in row if a] for row in rows]


def _transmissions(planes: Any) -> list[list[Transmission]]:
    b = _bits(planes, 32)
    cell = _number(b, T.ROW, 3) * 6 + _number(b, T.COL, 3)
    flags = (b[:, p].astype(bool) for p in (T.SIPHON, T.SCHEDULED))
    rows = _lists(b[:, T.ALIVE], cell, _number(b, T.TIMER, 6), _number(b, T.TYPE, 2), *flags)
    for row in rows:
        alive = [r[0] for r in row]
        assert alive == sorted(alive, reverse=True), f"the transmission roster has holes: {alive}"
    return [[Transmission(c, timer, TYPES[t], *flags) for a, c, timer, t, *flags in row if a] for row in rows]


def _cells(cells: Any) -> list[list[Cell]]:
    b = np.concatenate([_bits(cells.lo, 18), _bits(cells.hi, 18)], axis=-1)
    content = b[:, [C.DATA, C.PROGRAM, C.ITEM, C.EXIT]]
    assert (content.sum(1) <= 1).all(), "a cell holds two things"
    kind = (content * np.arange(1, 5)[:, None]).sum(1)
    block = (kind == 1) | (kind == 2)
    value, count = (np.where(block, _number(b, *place), 0) for place in ((C.VALUE, 5), (C.SPAWN, 4)))
    amount = _number(b, C.AMOUNT, 2)
    credits, energy = (np.where(b[:, C.ENERGY] == k, amount, 0) for k in (0, 1))
    flags = [(b[:, p] == 1) for p in (C.SIPHONED, C.CENTER)]
    rows = _lists(kind, value, count, block & (b[:, C.HIDDEN] == 1), credits, energy, *flags)
    names = (EMPTY, DATA, PROGRAM, DATA_SIPHON, EXIT)
    return [[Cell(names[k], *rest) for k, *rest in row] for row in rows]


def read(state: State) -> list[Position]:
    """Every game of a batch as a position; their histories are left out."""
    state = jax.tree.map(np.asarray, state)
    enemies, transmissions = _enemies(state.enemies), _transmissions(state.transmissions)
    cells = _cells(state.cells)
    result = []
    for i in range(state.hp.shape[0]):
        pos = Position(int(state.pos[i]), cells=cells[i], enemies=enemies[i], transmissions=transmissions[i])
        for name, leaf in FIELDS.items():
            setattr(pos, name, int(getattr(state, leaf)[i]))
        for name in FLAGS:
            setattr(pos, name, bool(getattr(state, name)[i]))
        pos.exit = int(state.exit[i])
        pos.owned = frozenset(k for k in range(32) if int(state.owned[i]) >> k & 1)
        result.append(pos)
    return result


def differences(expected: Position, actual: Position) -> list[str]:
    """What differs between two positions, in words."""
    wrong = []
    for name in (*FIELDS, *FLAGS, "cell", "exit", "owned", "enemies", "transmissions"):
        a, b = getattr(expected, name), getattr(actual, name)
        if a != b:
            wrong.append(f"{name}: {b} instead of {a}")
    pairs = enumerate(zip(expected.cells, actual.cells, strict=True))
    return wrong + [f"cell {divmod(i, 6)}: {b} instead of {a}" for i, (a, b) in pairs if a != b]


def counts_of(events: Events) -> list[dict[str, int]]:
    """The events of each game of a batch."""
    table = {name: np.asarray(value).tolist() for name, value in events._asdict().items()}
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def match(found: list[Outcome], actual: Position, counts: dict[str, int]) -> tuple[Outcome | None, list[list[str]]]:
    """The outcome the compiled game took, settled with its spawns or its new board; else what is wrong with each."""
    problems = []
    for outcome in found:
        wrong = [f"{k}: {counts[k]} instead of {v}" for k, v in outcome.counts.items() if counts[k] != v]
        if not wrong:
            trial = Outcome(outcome.position.copy(), outcome.counts, outcome.terms, outcome.done)
            trial.scheduled, trial.siphoned, trial.new_stage = outcome.scheduled, outcome.siphoned, outcome.new_stage
            known = len(trial.position.transmissions)
            spawned = actual.transmissions[known:]
            problem = adopt(trial.position, actual) if trial.new_stage else settle(trial, spawned)
            wrong = [problem] if problem else differences(trial.position, actual)
            if not wrong:
                return trial, []
        problems.append(wrong)
    return None, problems


def adopt(pos: Position, actual: Position) -> str | None:
    """Takes over a new board and its transmissions; returns what is wrong with them, if anything."""
    pos.cells, pos.exit = list(actual.cells), actual.exit
    born = actual.transmissions[len(pos.transmissions) :]
    if any(t.timer != 1 or t.from_siphon or t.from_schedule for t in born) or len(born) != pos.stage:
        return f"stage {pos.stage} brought {born}"
    return board_problem(pos) or spawn(pos, born)


def board_problem(pos: Position) -> str | None:
    """What a new board breaks of the rules of generation, if anything."""
    cells = pos.cells
    others = [c for c in CORNERS if c != pos.cell]
    exits = [c for c in range(36) if cells[c].content == EXIT]
    if exits != [pos.exit] or pos.exit not in others:
        return f"the exit is on {exits}, stored as {pos.exit}"
    if [c for c in range(36) if cells[c].content == DATA_SIPHON] != [c for c in others if c != pos.exit]:
        return "data siphons are not on the two corners left"
    blocks = [c for c in range(36) if cells[c].block]
    if not (5 <= len(blocks) <= 11 or not blocks):
        return f"{len(blocks)} blocks"
    taken = {e.cell for e in pos.enemies} | {t.cell for t in pos.transmissions} | set(CORNERS)
    if taken & set(blocks):
        return "a block on a corner, an enemy or a transmission"
    return _contents_problem(cells, pos.exit) or _layout_problem(set(blocks), pos.exit)


def _contents_problem(cells: list[Cell], exit_cell: int) -> str | None:
    for c, cell in enumerate(cells):
        amounts = [n for n in (cell.credits, cell.energy) if n]
        if len(amounts) != (not cell.block and c != exit_cell) or any(n > 3 for n in amounts):
            return f"resources {cell}"
        if cell.siphoned or cell.center:
            return f"old marks {cell}"
        if cell.content == DATA and not (1 <= cell.value <= 9 and cell.spawn == cell.value):
            return f"points {cell}"
        if cell.content == PROGRAM and cell.spawn != PROGRAMS[cell.value][3]:
            return f"spawn count {cell}"
    programs = [cell.value for cell in cells if cell.content == PROGRAM]
    return None if len(set(programs)) == len(programs) else "a program twice"


def _layout_problem(blocks: set[int], exit_cell: int) -> str | None:
    if any(all(n in blocks for n in NEIGHBOURS[b]) for b in blocks):
        return "a block nobody can stand beside"
    seen, todo = {0}, [0]
    while todo:
        here = todo.pop()
        if here == exit_cell and here != 0:
            continue
        for n in NEIGHBOURS[here]:
            if n not in seen and n not in blocks:
                seen.add(n)
                todo.append(n)
    return None if seen | blocks == set(range(36)) else "the board is not connected"
