"""Drawings of positions as environments describe them: boards of HackMatrix, lakes and battles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast

import numpy as np

from hmx.envs.hackmatrix.rules.position import Position, block_name, visible
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES
from hmx.envs.protocol import EnvSpec, EnvState
from hmx.render.blocks import Picture, Shape
from hmx.render.quantities import number

_INK, _WHITE, _FAINT, _BLUE, _ORANGE = "#222222", "#ffffff", "#9aa0a6", "#1f77b4", "#d95f02"

_TILE = 24.0  # of a lake
_LAKE = {"H": "#23415f", "G": "#1b9e77", "S": "#dbe9f4"}
_ICE = "#eef5fa"
_FIELD, _NEAREST = 280.0, 8.0  # of a battle: pixels, and the smallest part of its map that is shown

_SIDE, _CELL = 6, 48.0  # of a board
_BOARD, _EMPTY, _DATA, _PROGRAM, _EXIT = "#1d1f21", "#282a2e", "#3a3f44", "#26365c", "#2e7d32"
_ENEMIES = {"virus": "#ff6b6b", "daemon": "#e38bff", "glitch": "#ffd75f", "cryptog": "#5fd7ff"}


class Unit(TypedDict):
    """A unit of a battle; `x` and `y` are its position on the map."""

    side: Literal["ally", "enemy"]
    number: int
    kind: str
    health: float
    x: float
    y: float


def described(
    spec: EnvSpec, state: EnvState, obs: Sequence[np.ndarray] | np.ndarray | None, most: int = 64
) -> dict[str, Any]:
    """Describe a position as its environment does, or by its text, or by the first numbers of its observation.

    Args:
        spec: of the environment.
        state: a batch of one, on the host.
        obs: the observation `[A, ...]`; None if the environment describes or renders its states.
        most: numbers of an observation, at most.
    """
    if spec.describe is not None:
        return spec.describe(state)
    if spec.render is not None:
        return {"text": spec.render(state)}
    assert obs is not None
    return {"observation": [[float(x) for x in agent.reshape(-1)[:most]] for agent in obs]}


def picture(state: Mapping[str, object]) -> Picture:
    """Draw a position; a state that cannot be drawn is shown as text."""
    for key, draw in (("position", board), ("map", lake), ("battle", battle)):
        if key in state:
            return draw(cast(Any, state[key]))
    if "text" in state:
        return Picture("the position", str(state["text"]))
    rows = cast("Sequence[Sequence[float]]", state["observation"])
    return Picture("the observation", "\n".join(" ".join(number(x) for x in agent) for agent in rows))


def lake(rows: Sequence[str]) -> Picture:
    """Draw a map of cells with the agent on it."""
    shapes = []
    for i, line in enumerate(rows):
        for j, letter in enumerate(line):
            left, top, half = j * _TILE, i * _TILE, _TILE / 2
            shapes.append(Shape("rect", left, top, _TILE - 1, _TILE - 1, _LAKE.get(letter, _ICE), letter))
            if letter == "@":
                shapes.append(Shape("circle", left + half, top + half, 0.7 * _TILE, fill=_ORANGE, text="the agent"))
            elif letter in "SGH":
                ink = _WHITE if letter in "GH" else _INK
                shapes.append(Shape("text", left + half, top + half, fill=ink, text=letter))
    return Picture(
        "the lake and the agent (@)", "\n".join(rows), _TILE * len(rows[0]), _TILE * len(rows), tuple(shapes)
    )


def battle(units: Sequence[Unit]) -> Picture:
    """Draw the units of a battle from above, north up, each with its number and its health."""
    xs, ys = [unit["x"] for unit in units], [unit["y"] for unit in units]
    wide = max(max(xs) - min(xs), max(ys) - min(ys), _NEAREST) * 1.2
    left, low = (max(xs) + min(xs) - wide) / 2, (max(ys) + min(ys) - wide) / 2
    shapes, lines = [Shape("rect", 0, 0, _FIELD, _FIELD, "#f4f2ea")], []
    for unit in units:
        x, y = (unit["x"] - left) / wide * _FIELD, (1 - (unit["y"] - low) / wide) * _FIELD
        name = f"{unit['side']} {unit['number']}, {unit['kind']}, health {number(unit['health'])}"
        shapes += [
            Shape("circle", x, y, 16, fill=_BLUE if unit["side"] == "ally" else _ORANGE, text=name),
            Shape("text", x, y, fill=_WHITE, text=str(unit["number"])),
            Shape("text", x, y + 16, height=9, fill="#666666", text=number(unit["health"])),
        ]
        lines.append(name)
    return Picture("the battle: allies in blue, enemies in orange", "\n".join(lines), _FIELD, _FIELD, tuple(shapes))


def board(position: Position) -> Picture:
    """Draw a position of HackMatrix: two lines of text per cell, and the figures of the player below."""
    texts: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for row, col, text, colour in _contents(position):
        texts.setdefault((row, col), []).append((text, colour))
    fills = {(b["row"], b["col"]): _PROGRAM if b["type"] == "program" else _DATA for b in position.get("blocks", ())}
    shapes = [Shape("rect", 0, 0, _SIDE * _CELL, _SIDE * _CELL + 54, _BOARD)]
    lines = []
    for row in reversed(range(_SIDE)):
        top = (_SIDE - 1 - row) * _CELL
        for col in range(_SIDE):
            left, items = col * _CELL, texts.get((row, col), [])
            hover = " ".join([f"row {row}, column {col}:", *(text for text, _ in items)])
            fill = _EXIT if any(text == "EXIT" for text, _ in items) else fills.get((row, col), _EMPTY)
            shapes.append(Shape("rect", left + 1, top + 1, _CELL - 2, _CELL - 2, fill, hover))
            for i, (text, colour) in enumerate(items[:3]):
                middle = top + _CELL / 2 + 14 * (i - (min(len(items), 3) - 1) / 2)
                size = 12 if len(text) <= 6 else 9
                shapes.append(Shape("text", left + _CELL / 2, middle, height=size, fill=colour, text=text[:9]))
        lines.append(
            " ".join(f"{'/'.join(text for text, _ in texts.get((row, col), [])) or '.':8}" for col in range(_SIDE))
        )
    for i, line in enumerate(_figures(position)):
        shapes.append(Shape("text", _SIDE * _CELL / 2, _SIDE * _CELL + 12 + 15 * i, height=11, fill=_FAINT, text=line))
        lines.append(line)
    return Picture("the board", "\n".join(lines), _SIDE * _CELL, _SIDE * _CELL + 54, tuple(shapes))


def _contents(position: Position) -> Iterator[tuple[int, int, str, str]]:
    """Yield row, column, text and colour of all items on the board; items on a cell come before the cell."""
    player = position["player"]
    yield player["row"], player["col"], "@", "#8fe388"
    for enemy in position.get("enemies", ()):
        text = f"{enemy['type'][0]}{enemy['hp']}{'*' if enemy.get('stunned') else ''}"
        yield enemy["row"], enemy["col"], text if visible(enemy, position) else f"({text})", _ENEMIES[enemy["type"]]
    for coming in position.get("transmissions", ()):
        yield coming["row"], coming["col"], f"t{coming['turnsRemaining']}", _ENEMIES["virus"]
    for block in position.get("blocks", ()):
        spawns = f"!{block['spawnCount']}" if block.get("spawnCount") else "free"
        yield block["row"], block["col"], block_name(block), _WHITE
        yield block["row"], block["col"], "taken" if block.get("siphoned") else spawns, _FAINT
    for item in position.get("resources", ()):
        for name, sign, colour in (("credits", "$", "#ffd75f"), ("energy", "e", "#7fb2ff")):
            if item.get(name):
                yield item["row"], item["col"], f"{sign}{item.get(name)}", colour
        if item.get("dataSiphon"):
            yield item["row"], item["col"], "S", "#5fd7ff"
    way_out = position.get("exit", {"row": _SIDE - 1, "col": _SIDE - 1})
    yield way_out["row"], way_out["col"], "EXIT", _WHITE


def _figures(position: Position) -> Iterator[str]:
    player = position["player"]
    yield f"stage {position.get('stage', 1)} of 8, turn {position.get('turn', 0)}, score {player.get('score', 0)}"
    yield (
        f"hp {player.get('hp', 3)}, attack {player.get('attackDamage', 1)}, ${player.get('credits', 0)}, "
        f"e{player.get('energy', 0)}, {player.get('dataSiphons', 0)} siphons"
    )
    owned = [ACTION_NAMES[index] for index in position.get("ownedPrograms", ())]
    yield f"programs: {' '.join(owned) or 'none'}"
