"""What the player sees of a plain-Python position."""

from __future__ import annotations

from oracle_state import DATA, DATA_SIPHON, EXIT, PROGRAM, PROGRAMS, SIZE, TYPES, Position

Grid = dict[tuple[int, int, int], float]


def observe(pos: Position) -> tuple[list[float], list[int], Grid]:
    """Player features [10], owned programs [23] and the nonzero entries of the grid [6, 6, 42]."""
    player = [
        pos.cell // SIZE / 5,
        pos.cell % SIZE / 5,
        pos.hp / 3,
        min(pos.credits / 50, 1.0),
        min(pos.energy / 50, 1.0),
        (pos.stage - 1) / 7,
        pos.siphons / 10,
        (pos.attack - 1) / 2,
        float(pos.show),
        float(pos.calm),
    ]
    grid: Grid = {}
    for cell in range(SIZE * SIZE):
        for channel, value in _cell(pos, cell).items():
            if value:
                grid[cell // SIZE, cell % SIZE, channel] = float(value)
    return player, [int(k in pos.owned) for k in range(len(PROGRAMS))], grid


def _visible(pos: Position, cell: int) -> bool:
    """Whether a cryptog in this cell is seen."""
    return pos.show or cell // SIZE == pos.cell // SIZE or cell % SIZE == pos.cell % SIZE


def _cell(pos: Position, index: int) -> dict[int, float]:
    cell = pos.cells[index]
    seen: dict[int, float] = {39: cell.content == DATA_SIPHON, 40: cell.content == EXIT, 41: cell.center}
    enemies, transmissions = pos.enemies_at(index), pos.transmissions_at(index)
    if enemies and (enemies[0].type != "cryptog" or _visible(pos, index)):
        first = enemies[0]
        seen |= {TYPES.index(first.type): 1, 4: first.hp / 3, 5: first.stunned, 6: first.from_siphon}
    if transmissions:
        seen[36] = min(transmissions[0].timer / 4, 1.0)
    if cell.block:
        seen[11] = cell.siphoned
        if cell.question:
            seen[9] = 1
        else:
            seen |= {7: cell.content == DATA, 8: cell.content == PROGRAM, 35: cell.spawn / 9}
            seen |= {10: cell.value / 9} if cell.content == DATA else {12 + cell.value: 1}
    if not cell.block or cell.siphoned:
        seen |= {37: cell.credits / 3, 38: cell.energy / 3}
    return seen
