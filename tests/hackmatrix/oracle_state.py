"""A plain-Python position of HackMatrix: the slow, obvious model that the compiled game is held against.

Cells are numbered `row * 6 + col`; row 0 is the bottom row. Lists keep the game's own order.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, NamedTuple

SIZE = 6
CELLS = range(SIZE * SIZE)
DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # U, D, L, R: also the order of every tie-break
CORNERS = (0, 5, 30, 35)

TYPES = ("virus", "daemon", "glitch", "cryptog")
MAX_HP = {"virus": 2, "daemon": 3, "glitch": 2, "cryptog": 2}

SIPHON, WAIT = 4, 10
PROGRAMS = (
    # name, credits, energy, spawn cost
    ("push", 0, 2, 4),
    ("pull", 0, 2, 4),
    ("crash", 3, 2, 6),
    ("warp", 2, 2, 5),
    ("poly", 1, 1, 3),
    ("wait", 0, 1, 1),
    ("debug", 3, 0, 4),
    ("row", 3, 1, 2),
    ("col", 3, 1, 2),
    ("undo", 1, 0, 3),
    ("step", 0, 3, 4),
    ("siph+", 5, 0, 7),
    ("exch", 4, 0, 3),
    ("show", 2, 0, 2),
    ("reset", 0, 4, 2),
    ("calm", 2, 4, 6),
    ("d_bom", 3, 0, 4),
    ("delay", 1, 2, 4),
    ("anti-v", 3, 0, 4),
    ("score", 0, 5, 5),
    ("reduc", 2, 1, 3),
    ("atk+", 4, 4, 8),
    ("hack", 2, 2, 4),
)
PROGRAM_NAMES = tuple(p[0] for p in PROGRAMS)
ACTIONS = range(5 + len(PROGRAMS))

EMPTY, DATA, PROGRAM, DATA_SIPHON, EXIT = "empty", "data", "program", "siphon", "exit"


class Cell(NamedTuple):
    """One square of the board. `value` is the points of a data block or the number of a program."""

    content: str = EMPTY
    value: int = 0
    spawn: int = 0
    question: bool = False
    credits: int = 0
    energy: int = 0
    siphoned: bool = False
    center: bool = False

    @property
    def block(self) -> bool:
        return self.content in (DATA, PROGRAM)


class Enemy(NamedTuple):
    type: str
    cell: int
    hp: int
    disabled: int = 0
    stunned: bool = False
    from_siphon: bool = False
    from_schedule: bool = False


class Transmission(NamedTuple):
    cell: int
    timer: int
    type: str
    from_siphon: bool = False
    from_schedule: bool = False


class Snapshot(NamedTuple):
    """What UNDO restores. The flags of enemies and transmissions are not kept."""

    cell: int
    hp: int
    credits: int
    energy: int
    siphons: int
    score: int
    attack: int
    turn: int
    owned: frozenset[int]
    enemies: tuple[Enemy, ...]
    transmissions: tuple[Transmission, ...]
    cells: tuple[Cell, ...]
    show: bool
    calm: bool
    atk_uses: int


@dataclass
class Position:
    """Everything the game knows between two actions."""

    cell: int
    hp: int = 3
    credits: int = 0
    energy: int = 0
    siphons: int = 0
    score: int = 0
    attack: int = 1
    stage: int = 1
    turn: int = 0
    owned: frozenset[int] = frozenset()
    show: bool = False
    calm: bool = False
    step_active: bool = False
    atk_uses: int = 0
    interval: int = 12
    next_turn: int = 12
    pending: int = 0
    exit: int = 35
    cells: list[Cell] = field(default_factory=lambda: [Cell() for _ in CELLS])
    enemies: list[Enemy] = field(default_factory=list)
    transmissions: list[Transmission] = field(default_factory=list)
    history: list[Snapshot] = field(default_factory=list)
    undo_depth: int | None = None

    def copy(self) -> Position:
        return dataclasses.replace(
            self,
            cells=list(self.cells),
            enemies=list(self.enemies),
            transmissions=list(self.transmissions),
            history=list(self.history),
        )

    def key(self) -> tuple[Any, ...]:
        """What two outcomes of one action must share to be the same (their histories then agree as well)."""
        return (
            *(getattr(self, name) for name in COUNTERS),
            self.owned,
            tuple(self.cells),
            tuple(self.enemies),
            tuple(self.transmissions),
        )

    def restorable(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in RESTORED)

    def snapshot(self) -> Snapshot:
        return Snapshot(
            *self.restorable(),
            owned=self.owned,
            enemies=tuple(e._replace(from_siphon=False, from_schedule=False) for e in self.enemies),
            transmissions=tuple(t._replace(from_siphon=False, from_schedule=False) for t in self.transmissions),
            cells=tuple(self.cells),
            show=self.show,
            calm=self.calm,
            atk_uses=self.atk_uses,
        )

    def push_snapshot(self) -> None:
        self.history.append(self.snapshot())
        if self.undo_depth is not None:
            del self.history[: max(0, len(self.history) - self.undo_depth)]

    def restore(self, snap: Snapshot) -> None:
        for name in (*RESTORED, "owned", "show", "calm", "atk_uses"):
            setattr(self, name, getattr(snap, name))
        self.cells = list(snap.cells)
        self.enemies = list(snap.enemies)
        self.transmissions = list(snap.transmissions)

    def blocked(self, cell: int) -> bool:
        return self.cells[cell].block

    def enemies_at(self, cell: int) -> list[Enemy]:
        return [e for e in self.enemies if e.cell == cell]

    def transmissions_at(self, cell: int) -> list[Transmission]:
        return [t for t in self.transmissions if t.cell == cell]


RESTORED = ("cell", "hp", "credits", "energy", "siphons", "score", "attack", "turn")
COUNTERS = (
    *RESTORED,
    "stage",
    "show",
    "calm",
    "step_active",
    "atk_uses",
    "interval",
    "next_turn",
    "pending",
    "exit",
)


def neighbour(cell: int, direction: tuple[int, int]) -> int | None:
    """The cell one step away, or None outside the board."""
    row, col = cell // SIZE + direction[0], cell % SIZE + direction[1]
    return row * SIZE + col if 0 <= row < SIZE and 0 <= col < SIZE else None


NEIGHBOURS = tuple(
    tuple(n for d in DIRECTIONS if (n := neighbour(c, d)) is not None) for c in CELLS
)  # in U, D, L, R order
SURROUNDING = tuple(
    tuple(
        n for dr in (-1, 0, 1) for dc in (-1, 0, 1) if (dr, dc) != (0, 0) and (n := neighbour(c, (dr, dc))) is not None
    )
    for c in CELLS
)


def cross(cell: int) -> tuple[int, ...]:
    return (cell, *NEIGHBOURS[cell])


def manhattan(a: int, b: int) -> int:
    return abs(a // SIZE - b // SIZE) + abs(a % SIZE - b % SIZE)


def _block_cell(block: dict[str, Any]) -> Cell:
    """`type` is data or program; with the prefix `question-` the content is hidden until siphoned."""
    kind = block["type"].removeprefix("question-")
    if kind == "program":
        if "programActionIndex" in block:
            value = block["programActionIndex"] - 5
        else:
            value = PROGRAM_NAMES.index(block["programType"])
    else:
        value = block.get("points", 0)
    return Cell(
        content=kind,
        value=value,
        spawn=block.get("spawnCount", 0),
        question=block["type"].startswith("question-"),
        siphoned=block.get("siphoned", False),
    )


def from_dict(scenario: dict[str, Any], undo_depth: int | None = None) -> Position:
    """The position that the reference game's `set_state` makes: blocks, then resources, then the exit at (5, 5)."""
    at = lambda item: item["row"] * SIZE + item["col"]  # noqa: E731
    player = scenario["player"]
    pos = Position(
        cell=at(player),
        hp=player.get("hp", 3),
        credits=player.get("credits", 0),
        energy=player.get("energy", 0),
        siphons=player.get("dataSiphons", 0),
        score=player.get("score", 0),
        attack=player.get("attackDamage", 1),
        stage=scenario.get("stage", 1),
        turn=scenario.get("turn", 0),
        owned=frozenset(a - 5 for a in scenario.get("ownedPrograms", ())),
        show=scenario.get("showActivated", False),
        calm=scenario.get("scheduledTasksDisabled", False),
        undo_depth=undo_depth,
    )
    for block in scenario.get("blocks", ()):
        pos.cells[at(block)] = _block_cell(block)
    for res in scenario.get("resources", ()):
        old = pos.cells[at(res)]
        if res.get("dataSiphon", False):
            pos.cells[at(res)] = old._replace(content=DATA_SIPHON, value=0, spawn=0, question=False)
        elif res.get("credits", 0) > 0:
            pos.cells[at(res)] = old._replace(credits=res["credits"], energy=0)
        elif res.get("energy", 0) > 0:
            pos.cells[at(res)] = old._replace(credits=0, energy=res["energy"])
    pos.cells[pos.exit] = pos.cells[pos.exit]._replace(content=EXIT, value=0, spawn=0, question=False)
    for e in scenario.get("enemies", ()):
        siphon, schedule = e.get("spawnedFromSiphon", False), e.get("isFromScheduledTask", False)
        pos.enemies.append(Enemy(e["type"], at(e), e["hp"], 0, e.get("stunned", False), siphon, schedule))
    for t in scenario.get("transmissions", ()):
        pos.transmissions.append(Transmission(at(t), t["turnsRemaining"], t["enemyType"]))
    return pos
