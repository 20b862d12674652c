"""The programs of HackMatrix and the numbering of the actions (rules, sections 3.1 and 3.6)."""

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
    """What a program costs, and how many transmissions siphoning its block calls."""

    name: str
    credits: int
    energy: int
    spawn: int


PROGRAMS: tuple[Program, ...] = (
    Program("push", 0, 2, 4),
    Program("pull", 0, 2, 4),
    Program("crash", 3, 2, 6),
    Program("warp", 2, 2, 5),
    Program("poly", 1, 1, 3),
    Program("wait", 0, 1, 1),
    Program("debug", 3, 0, 4),
    Program("row", 3, 1, 2),
    Program("col", 3, 1, 2),
    Program("undo", 1, 0, 3),
    Program("step", 0, 3, 4),
    Program("siph+", 5, 0, 7),
    Program("exch", 4, 0, 3),
    Program("show", 2, 0, 2),
    Program("reset", 0, 4, 2),
    Program("calm", 2, 4, 6),
    Program("d_bom", 3, 0, 4),
    Program("delay", 1, 2, 4),
    Program("anti-v", 3, 0, 4),
    Program("score", 0, 5, 5),
    Program("reduc", 2, 1, 3),
    Program("atk+", 4, 4, 8),
    Program("hack", 2, 2, 4),
)

DIRECTIONS = ("up", "down", "left", "right")
SIPHON = 4
FIRST_PROGRAM = 5
NUM_ACTIONS = FIRST_PROGRAM + len(PROGRAMS)
ACTION_NAMES: tuple[str, ...] = (*DIRECTIONS, "siphon", *(p.name for p in PROGRAMS))
