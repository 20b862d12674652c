"""The programs of HackMatrix and the numbering of the actions."""

from __future__ import annotations

import enum
from typing import NamedTuple


class P(enum.IntEnum):
    """Program numbers; action = number + 5."""

    PUSH = 0
    PULL = 1
    CRASH = 2
    WARP = 3
    POLY = 4
    WAIT = 5
    DEBUG = 6
    ROW = 7
    COL = 8
    UNDO = 9
    STEP = 10
    SIPH_PLUS = 11
    EXCH = 12
    SHOW = 13
    RESET = 14
    CALM = 15
    D_BOM = 16
    DELAY = 17
    ANTI_V = 18
    SCORE = 19
    REDUC = 20
    ATK_PLUS = 21
    HACK = 22


class Program(NamedTuple):
    """Cost and effect of a program, and the number of transmissions that siphoning its block calls."""

    name: str
    credits: int
    energy: int
    spawn: int
    effect: str


PROGRAMS: tuple[Program, ...] = (
    Program("push", 0, 2, 4, "move every enemy one cell away from you"),
    Program("pull", 0, 2, 4, "move every enemy one cell towards you"),
    Program("crash", 3, 2, 6, "clear the 8 cells around you: blocks, enemies, transmissions"),
    Program("warp", 2, 2, 5, "jump to a random enemy or transmission and destroy it"),
    Program("poly", 1, 1, 3, "turn every enemy into another type; damage stays"),
    Program("wait", 0, 1, 1, "let the enemies act"),
    Program("debug", 3, 0, 4, "hit every enemy on a block"),
    Program("row", 3, 1, 2, "hit every enemy in your row"),
    Program("col", 3, 1, 2, "hit every enemy in your column"),
    Program("undo", 1, 0, 3, "take back what happened since the last enemy turn"),
    Program("step", 0, 3, 4, "skip the next enemy turn"),
    Program("siph+", 5, 0, 7, "gain a data siphon"),
    Program("exch", 4, 0, 3, "gain 4 energy"),
    Program("show", 2, 0, 2, "see cryptogs everywhere until the stage ends"),
    Program("reset", 0, 4, 2, "restore 3 hit points"),
    Program("calm", 2, 4, 6, "stop scheduled transmissions until the stage ends"),
    Program("d_bom", 3, 0, 4, "destroy the nearest daemon; 1 damage in the 8 cells around it"),
    Program("delay", 1, 2, 4, "delay every transmission by 3 turns"),
    Program("anti-v", 3, 0, 4, "hit every virus for 1 damage"),
    Program("score", 0, 5, 5, "score 8 minus the stage"),
    Program("reduc", 2, 1, 3, "every open block calls one transmission fewer"),
    Program("atk+", 4, 4, 8, "raise your attack by 1 for the whole game (twice a stage)"),
    Program("hack", 2, 2, 4, "hit every enemy on a siphoned cell"),
)

DIRECTIONS = ("up", "down", "left", "right")
SIPHON = 4
FIRST_PROGRAM = 5
NUM_ACTIONS = FIRST_PROGRAM + len(PROGRAMS)
ACTION_NAMES: tuple[str, ...] = (*DIRECTIONS, "siphon", *(p.name for p in PROGRAMS))
