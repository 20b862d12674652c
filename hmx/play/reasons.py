"""Why an action of HackMatrix is not possible, from the position that the player sees."""

from __future__ import annotations

from hmx.envs.hackmatrix.rules.position import Position
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES, FIRST_PROGRAM, PROGRAMS, SIPHON, P
from hmx.play.boards import SIZE

_MOVES = ((1, 0), (-1, 0), (0, -1), (0, 1))  # rows and columns of up, down, left, right; row 0 is at the bottom
_NEEDS = {
    P.PUSH: "there is no enemy", P.PULL: "there is no enemy", P.POLY: "there is no enemy",
    P.CRASH: "there is nothing in the 8 cells around you", P.WARP: "there is no enemy and no transmission",
    P.DEBUG: "no enemy is on a block", P.ROW: "no enemy is in your row", P.COL: "no enemy is in your column",
    P.UNDO: "there is no enemy turn to take back", P.SHOW: "it is active already", P.CALM: "it is active already",
    P.RESET: "you have all hit points", P.D_BOM: "there is no daemon", P.DELAY: "there is no transmission",
    P.ANTI_V: "there is no virus", P.SCORE: "this is the last stage", P.REDUC: "no open block calls a transmission",
    P.ATK_PLUS: "you have used it twice in this stage", P.HACK: "there is no siphoned cell",
}  # fmt: skip


def why_not(action: int, position: Position) -> str:
    """Say why an illegal action is not possible."""
    player, name = position["player"], ACTION_NAMES[action].upper()
    if action < SIPHON:
        rows, columns = _MOVES[action]
        row, column = player["row"] + rows, player["col"] + columns
        blocked = "a block is in the way" if 0 <= row < SIZE and 0 <= column < SIZE else "the board ends there"
        return f"{ACTION_NAMES[action]} is not possible: {blocked}"
    if action == SIPHON:
        return "siphon is not possible: you have no data siphon; walk over S to pick one up"
    number = action - FIRST_PROGRAM
    if action not in position.get("ownedPrograms", ()):
        return f"{name} is not possible: you do not own it; siphon beside its block"
    program, credits, energy = PROGRAMS[number], player.get("credits", 0), player.get("energy", 0)
    if credits < program.credits or energy < program.energy:
        costs = f"it costs ${program.credits} e{program.energy}, and you have ${credits} e{energy}"
        return f"{name} is not possible: {costs}"
    return f"{name} is not possible: {_NEEDS.get(P(number), 'it would have no effect')}"
