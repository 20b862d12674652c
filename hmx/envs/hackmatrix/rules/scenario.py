"""Positions as plain dictionaries: set up a position to watch or to test, and read it back.

The format is the field names of `set_state` in the reference's test interface: `player`, `enemies`, `transmissions`,
`blocks`, `resources`, `stage`, `turn`, `showActivated`, `scheduledTasksDisabled`, `ownedPrograms` (action numbers).
Beyond it, optional: `exit` ({row, col}, otherwise the corner (5, 5)) and the block types `question-data` and
`question-program`. Only `player` with `row` and `col` is required.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from hmx.envs.hackmatrix.rules import roster
from hmx.envs.hackmatrix.rules.bits import CELLS, HALF, SIDE, SLOTS, Board
from hmx.envs.hackmatrix.rules.generate import FIRST_INTERVAL
from hmx.envs.hackmatrix.rules.history import WORDS
from hmx.envs.hackmatrix.rules.paths import exit_distance
from hmx.envs.hackmatrix.rules.position import (
    BlockPosition,
    CellPosition,
    EnemyPosition,
    Position,
    ResourcePosition,
    TransmissionPosition,
)
from hmx.envs.hackmatrix.rules.state import ENEMY_TYPES, MAX_HP, TIMER_LIMIT, C, E, Rules, State, T, blocks
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, NUM_ACTIONS, PROGRAMS
from hmx.errors import HmxError, nearest
from hmx.types import Array

_EXIT = {"row": 5, "col": 5}
_BLOCKS = {"data": (C.DATA, False), "program": (C.PROGRAM, False)}
_BLOCKS |= {"question-data": (C.DATA, True), "question-program": (C.PROGRAM, True)}
_NAMES = [p.name for p in PROGRAMS]
_INT32 = 2**31 - 1
_MAX_ITEMS = 1000  # of a list; the board has 36 cells and 32 slots of each kind
_MAX_TOLD = 20  # problems in a message

Fields = Mapping[str, tuple[int, int, int | None]]
"""Field -> (smallest, largest, default); a default of None makes the field required."""
Layout = Sequence[tuple[str, int, int]]

_CELL: dict[str, tuple[int, int, int | None]] = {"row": (0, SIDE - 1, None), "col": (0, SIDE - 1, None)}
_PLAYER = _CELL | {
    "hp": (0, 3, 3),
    "credits": (0, _INT32, 0),
    "energy": (0, _INT32, 0),
    "dataSiphons": (0, _INT32, 0),
    "attackDamage": (1, 65535, 1),
    "score": (0, _INT32, 0),
}
_ENEMY = _CELL | {
    "hp": (1, 3, None),
    "stunned": (0, 1, 0),
    "spawnedFromSiphon": (0, 1, 0),
    "isFromScheduledTask": (0, 1, 0),
}
_TRANSMISSION = _CELL | {"turnsRemaining": (0, TIMER_LIMIT, 1)}
_BLOCK = _CELL | {"points": (0, 31, 0), "spawnCount": (0, 15, 0), "siphoned": (0, 1, 0)}
_RESOURCE = _CELL | {"credits": (0, 3, 0), "energy": (0, 3, 0), "dataSiphon": (0, 1, 0)}
_TOP = {"stage": (1, 8, 1), "turn": (0, _INT32, 0), "showActivated": (0, 1, 0), "scheduledTasksDisabled": (0, 1, 0)}
_LISTS = ("enemies", "transmissions", "blocks", "resources", "ownedPrograms")


class _Reader:
    """Reads fields and collects every problem instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def numbers(self, item: object, fields: Fields, where: str, also: tuple[str, ...] = ()) -> dict[str, int]:
        if not isinstance(item, Mapping):
            self.problems.append(f"{where} must be an object with {', '.join(fields)}")
            item = {}
        for key in item:
            if key not in fields and key not in also:
                near = self.near(key, [*fields, *also])
                hint = f"; did you mean {near!r}?" if near else ""
                self.problems.append(f"{where} has an unknown field {_shown(key)}{hint}")
        return {
            name: self.number(item.get(name, default), low, high, f"{where}.{name}")
            for name, (low, high, default) in fields.items()
        }

    def number(self, value: object, low: int, high: int, where: str) -> int:
        if value is None:
            self.problems.append(f"{where} is missing")
        elif not isinstance(value, int) or not low <= value <= high:
            span = f"a whole number from {low}" + (f" to {high}" if high < _INT32 else "")
            span = "true or false" if (low, high) == (0, 1) else span
            self.problems.append(f"{where} is {_shown(value)} but must be {span}")
        else:
            return int(value)
        return low

    def choice(self, value: object, options: list[str], where: str) -> str:
        if value in options:
            return str(value)
        near = self.near(value, options)
        hint = f"; did you mean {near!r}?" if near else f": one of {', '.join(options)}"
        self.problems.append(f"{where} is {_shown(value)}, which is unknown{hint}")
        return options[0]

    def items(self, position: Mapping[str, object], name: str) -> list[object]:
        value = position.get(name, [])
        if not isinstance(value, list):
            self.problems.append(f"{name} must be a list")
        elif len(value) > _MAX_ITEMS:
            self.problems.append(f"{name} has {len(value):,} items, more than a board can hold")
        else:
            return value
        return []

    def near(self, value: object, options: list[str]) -> str | None:
        """Return the most similar option; skipped once there are more problems than are shown."""
        if not isinstance(value, str) or len(self.problems) >= _MAX_TOLD:
            return None
        return nearest(value, options)

    def message(self) -> str:
        """Return the problems, one per line, at most a screen of them."""
        told = self.problems[:_MAX_TOLD]
        more = len(self.problems) - len(told)
        return "\n".join([*told, f"and {more:,} more"] if more else told)


def _shown(value: object) -> str:
    """Return a value for a message: short, on one line, nested values by their type only."""
    if isinstance(value, Mapping):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = ascii(value) if isinstance(value, str) and not value.isprintable() else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


_ENEMY_LAYOUT = (
    ("alive", E.ALIVE, 1), ("row", E.ROW, 3), ("col", E.COL, 3), ("type", E.TYPE, 2), ("hp", E.HP, 2),
    ("stunned", E.STUNNED, 1), ("isFromScheduledTask", E.SCHEDULED, 1), ("spawnedFromSiphon", E.SIPHON, 1),
)  # fmt: skip
_TRANSMISSION_LAYOUT = (
    ("alive", T.ALIVE, 1), ("row", T.ROW, 3), ("col", T.COL, 3), ("type", T.TYPE, 2), ("turnsRemaining", T.TIMER, 6),
)  # fmt: skip
"""The fields of a slot: name, first plane and number of bits."""


def _slots(
    r: _Reader, position: Mapping[str, object], name: str, fields: Fields, kind_field: str, layout: Layout, total: int
) -> NDArray[np.uint32]:
    """Read a list of enemies or transmissions into the planes of their slots."""
    items = r.items(position, name)
    if len(items) > SLOTS:
        r.problems.append(f"{name} has {len(items)} items, but at most {SLOTS} fit")
    planes = np.zeros(total, np.uint32)
    for slot, raw in enumerate(items):
        where = f"{name}[{slot}]"
        item = r.numbers(raw, fields, where, (kind_field,))
        given = raw.get(kind_field) if isinstance(raw, Mapping) else None
        kind = ENEMY_TYPES.index(r.choice(given, list(ENEMY_TYPES), f"{where}.{kind_field}"))
        if "hp" in item:
            r.number(item["hp"], 1, MAX_HP[kind], f"{where}.hp")
        item |= {"type": kind, "alive": 1}
        for field, start, width in layout if slot < SLOTS else ():
            for j in range(width):
                planes[start + j] |= np.uint32(((item[field] >> j) & 1) << slot)
    return planes


def _set(cells: NDArray[np.uint32], start: int, width: int, cell: int, value: int) -> None:
    for j in range(width):
        cells[start + j, cell] = (value >> j) & 1


def _cells(r: _Reader, position: Mapping[str, object], exit_cell: int) -> NDArray[np.uint32]:
    cells = np.zeros((C.PLANES, CELLS), np.uint32)
    for i, raw in enumerate(r.items(position, "blocks")):
        where = f"blocks[{i}]"
        item = r.numbers(raw, _BLOCK, where, ("type", "programType", "programActionIndex"))
        raw = raw if isinstance(raw, Mapping) else {}
        plane, hidden = _BLOCKS[r.choice(raw.get("type"), list(_BLOCKS), f"{where}.type")]
        value = _program(r, raw, where) if plane == C.PROGRAM else item["points"]
        cell = item["row"] * SIDE + item["col"]
        cells[:, cell] = 0
        cells[plane, cell] = 1
        cells[C.HIDDEN, cell] = hidden
        cells[C.SIPHONED, cell] = item["siphoned"]
        _set(cells, C.VALUE, 5, cell, value)
        _set(cells, C.SPAWN, 4, cell, item["spawnCount"])
    for i, raw in enumerate(r.items(position, "resources")):
        item = r.numbers(raw, _RESOURCE, f"resources[{i}]")
        cell = item["row"] * SIDE + item["col"]
        if item["dataSiphon"]:
            _clear_content(cells, cell)
            cells[C.ITEM, cell] = 1
        else:
            _set(cells, C.AMOUNT, 2, cell, item["credits"] or item["energy"])
            cells[C.ENERGY, cell] = int(item["credits"] == 0 and item["energy"] > 0)
    _clear_content(cells, exit_cell)
    cells[C.EXIT, exit_cell] = 1
    return cells


def _clear_content(cells: NDArray[np.uint32], cell: int) -> None:
    for plane in (C.DATA, C.PROGRAM, C.HIDDEN, C.ITEM, *range(C.VALUE, C.SPAWN + 4)):
        cells[plane, cell] = 0


def _program(r: _Reader, raw: Mapping[str, object], where: str) -> int:
    if "programType" in raw:
        return _NAMES.index(r.choice(raw["programType"], _NAMES, f"{where}.programType"))
    number = r.number(raw.get("programActionIndex"), FIRST_PROGRAM, NUM_ACTIONS - 1, f"{where}.programActionIndex")
    return number - FIRST_PROGRAM


def _board(cells: NDArray[np.uint32]) -> Board:
    weights = 2 ** np.arange(HALF, dtype=np.uint32)
    halves = (cells.reshape(C.PLANES, 2, HALF) * weights).sum(-1).astype(np.uint32)
    return Board(jnp.asarray(halves[:, 0]), jnp.asarray(halves[:, 1]))


@jax.jit  # twenty times faster than dispatching its operations one by one
def _distance(pos: Array, exit_index: Array, cells: Board) -> Array:
    """Return the distance to the exit in one game."""
    obstacles = blocks(Board(cells.lo[:, None], cells.hi[:, None]))
    return exit_distance(pos[None], exit_index[None], obstacles, jnp.ones(1, bool))[0]


def from_dict(position: Mapping[str, object], rules: Rules | None = None) -> State:
    """Return one game in the described position.

    Raises:
        HmxError: for every field that is unknown, missing or out of range, all at once.
    """
    rules = rules or Rules()
    r = _Reader()
    if not isinstance(position, Mapping):
        raise HmxError("a scenario must be a JSON object", 'start from {"player": {"row": 0, "col": 0}}')
    top = r.numbers(position, _TOP, "the scenario", ("player", "exit", *_LISTS))
    player = r.numbers(position.get("player", {}), _PLAYER, "player")
    exit_at = r.numbers(position.get("exit", _EXIT), _CELL, "exit")
    exit_cell = exit_at["row"] * SIDE + exit_at["col"]
    owned = 0
    for action in r.items(position, "ownedPrograms"):
        owned |= 1 << (r.number(action, FIRST_PROGRAM, NUM_ACTIONS - 1, "ownedPrograms") - FIRST_PROGRAM)
    enemies = _slots(r, position, "enemies", _ENEMY, "type", _ENEMY_LAYOUT, E.PLANES)
    sent = _slots(r, position, "transmissions", _TRANSMISSION, "enemyType", _TRANSMISSION_LAYOUT, T.PLANES)
    cells = _board(_cells(r, position, exit_cell))
    if r.problems:
        raise HmxError(r.message(), "correct these fields of the scenario; docs/hackmatrix.md describes them")

    def number(value: int) -> Array:
        return jnp.asarray(np.int32(value))  # quicker than from a Python number

    pos, exit_index = (jnp.asarray(np.uint32(c)) for c in (player["row"] * SIDE + player["col"], exit_cell))
    return State(
        enemies=jnp.asarray(enemies),
        transmissions=jnp.asarray(sent),
        cells=cells,
        pos=pos,
        hp=number(player["hp"]),
        credits=number(player["credits"]),
        energy=number(player["energy"]),
        siphons=number(player["dataSiphons"]),
        score=number(player["score"]),
        attack=number(player["attackDamage"]),
        stage=number(top["stage"]),
        board_stage=number(top["stage"]),
        turn=number(top["turn"]),
        owned=jnp.asarray(np.uint32(owned)),
        show=jnp.asarray(np.bool_(top["showActivated"])),
        calm=jnp.asarray(np.bool_(top["scheduledTasksDisabled"])),
        step_active=jnp.asarray(np.bool_(False)),
        atk_uses=number(0),
        interval=number(FIRST_INTERVAL),
        next_scheduled=number(FIRST_INTERVAL),
        pending=number(0),
        exit=exit_index,
        exit_distance=_distance(pos, exit_index, cells),
        history=jnp.asarray(np.zeros((rules.undo_depth, WORDS), np.uint32)),
        history_head=number(0),
        history_count=number(0),
    )


def _entities(state: State) -> tuple[list[EnemyPosition], list[TransmissionPosition]]:
    e = [np.asarray(x)[:, 0] for x in roster.unpack_enemies(state.enemies[..., None])]
    t = [np.asarray(x)[:, 0] for x in roster.unpack_transmissions(state.transmissions[..., None])]
    enemies: list[EnemyPosition] = [
        {
            "type": ENEMY_TYPES[kind],
            "row": int(row),
            "col": int(col),
            "hp": int(hp),
            "stunned": bool(stunned),
            "spawnedFromSiphon": bool(siphon),
            "isFromScheduledTask": bool(scheduled),
        }
        for alive, row, col, kind, hp, stunned, scheduled, siphon in zip(*e, strict=True)
        if alive
    ]
    transmissions: list[TransmissionPosition] = [
        {"row": int(row), "col": int(col), "turnsRemaining": int(timer), "enemyType": ENEMY_TYPES[kind]}
        for alive, row, col, kind, timer, *_ in zip(*t, strict=True)
        if alive
    ]
    return enemies, transmissions


def _contents(state: State) -> tuple[list[BlockPosition], list[ResourcePosition]]:
    words = np.stack([np.asarray(state.cells.lo), np.asarray(state.cells.hi)], axis=1)
    cells = ((words[:, :, None] >> np.arange(HALF, dtype=np.uint32)) & 1).reshape(C.PLANES, CELLS)

    def read(start: int, width: int, cell: int) -> int:
        return int(sum(int(cells[start + j, cell]) << j for j in range(width)))

    found: list[BlockPosition] = []
    resources: list[ResourcePosition] = []
    for cell in range(CELLS):
        row, col = divmod(cell, SIDE)
        if cells[C.DATA, cell] or cells[C.PROGRAM, cell]:
            is_program, value = bool(cells[C.PROGRAM, cell]), read(C.VALUE, 5, cell)
            kind = ("question-" if cells[C.HIDDEN, cell] else "") + ("program" if is_program else "data")
            block: BlockPosition = {"row": row, "col": col, "type": kind, "points": 0 if is_program else value}
            block["spawnCount"] = read(C.SPAWN, 4, cell)
            block["siphoned"] = bool(cells[C.SIPHONED, cell])
            if is_program:
                block["programType"] = _NAMES[value]
                block["programActionIndex"] = value + FIRST_PROGRAM
            found.append(block)
        # A data siphon and the resource under it are two entries: one entry that has both sets the siphon only.
        if cells[C.ITEM, cell]:
            resources.append({"row": row, "col": col, "credits": 0, "energy": 0, "dataSiphon": True})
        amount, energy = read(C.AMOUNT, 2, cell), bool(cells[C.ENERGY, cell])
        if amount:
            earned, charged = (0, amount) if energy else (amount, 0)
            resources.append({"row": row, "col": col, "credits": earned, "energy": charged, "dataSiphon": False})
    return found, resources


def to_dict(state: State) -> Position:
    """Return one game as a dictionary that `from_dict` takes; counters that the format does not name are omitted."""
    enemies, transmissions = _entities(state)
    found, resources = _contents(state)
    pos, exit_cell = int(state.pos), int(state.exit)
    position: Position = {
        "player": {
            "row": pos // SIDE,
            "col": pos % SIDE,
            "hp": int(state.hp),
            "credits": int(state.credits),
            "energy": int(state.energy),
            "dataSiphons": int(state.siphons),
            "attackDamage": int(state.attack),
            "score": int(state.score),
        },
        "enemies": enemies,
        "transmissions": transmissions,
        "blocks": found,
        "resources": resources,
        "stage": int(state.stage),
        "turn": int(state.turn),
        "showActivated": bool(state.show),
        "scheduledTasksDisabled": bool(state.calm),
        "ownedPrograms": [k + FIRST_PROGRAM for k in range(len(PROGRAMS)) if (int(state.owned) >> k) & 1],
    }
    exit_place: CellPosition = {"row": exit_cell // SIDE, "col": exit_cell % SIDE}
    if exit_place != _EXIT:
        position["exit"] = exit_place
    return position
