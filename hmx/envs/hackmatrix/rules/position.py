"""The types of a position as plain data, which `hmx.envs.hackmatrix.rules.scenario` reads and writes."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES


class CellPosition(TypedDict):
    """A cell: row 0 is at the bottom, column 0 on the left."""

    row: int
    col: int


class PlayerPosition(CellPosition):
    """The player, with what it owns."""

    hp: NotRequired[int]
    credits: NotRequired[int]
    energy: NotRequired[int]
    dataSiphons: NotRequired[int]
    attackDamage: NotRequired[int]
    score: NotRequired[int]


class EnemyPosition(CellPosition):
    """An enemy."""

    type: str
    hp: int
    stunned: NotRequired[bool]
    spawnedFromSiphon: NotRequired[bool]
    isFromScheduledTask: NotRequired[bool]


class TransmissionPosition(CellPosition):
    """An enemy on its way."""

    turnsRemaining: int
    enemyType: str


class BlockPosition(CellPosition):
    """A block of data or a program."""

    type: str
    points: NotRequired[int]
    spawnCount: NotRequired[int]
    siphoned: NotRequired[bool]
    programType: NotRequired[str]
    programActionIndex: NotRequired[int]


class ResourcePosition(CellPosition):
    """Credits, energy or a data siphon in a cell."""

    credits: NotRequired[int]
    energy: NotRequired[int]
    dataSiphon: NotRequired[bool]


class Position(TypedDict):
    """A whole position; only `player` is required."""

    player: PlayerPosition
    enemies: NotRequired[list[EnemyPosition]]
    transmissions: NotRequired[list[TransmissionPosition]]
    blocks: NotRequired[list[BlockPosition]]
    resources: NotRequired[list[ResourcePosition]]
    exit: NotRequired[CellPosition]
    stage: NotRequired[int]
    turn: NotRequired[int]
    showActivated: NotRequired[bool]
    scheduledTasksDisabled: NotRequired[bool]
    ownedPrograms: NotRequired[list[int]]


def visible(enemy: EnemyPosition, position: Position) -> bool:
    """Return whether the player sees an enemy: cryptogs are hidden outside its row and column, unless SHOW is on."""
    player = position["player"]
    in_line = enemy["row"] == player["row"] or enemy["col"] == player["col"]
    return enemy["type"] != "cryptog" or in_line or bool(position.get("showActivated"))


def block_name(block: BlockPosition) -> str:
    """Return the name of a program, or the points of data in brackets."""
    if block["type"] == "program":
        index = block.get("programActionIndex")
        name = ACTION_NAMES[index] if index is not None else str(block.get("programType", "program"))
        return name.replace("-", "").upper()
    return "[?]" if block["type"].startswith("question") else f"[{block.get('points', 0)}]"
