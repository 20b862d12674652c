"""The enemy turn of the plain-Python model, over every order the enemies may act in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from oracle_state import MAX_HP, NEIGHBOURS, Enemy, Position, Transmission, manhattan


class TooMany(Exception):
    """More outcomes than the caller wants to see."""


def first_step(start: int, goal: int, walls: frozenset[int]) -> int | None:
    """The first cell of the shortest path that comes first in U, D, L, R order; None without a path."""
    if start == goal or goal in walls:
        return None
    came_from: dict[int, int] = {start: start}
    queue = deque([start])
    while queue:
        here = queue.popleft()
        for there in NEIGHBOURS[here]:
            if there in came_from or there in walls:
                continue
            came_from[there] = here
            if there == goal:
                while came_from[there] != start:
                    there = came_from[there]
                return there
            queue.append(there)
    return None


class _Turn:
    """The part of an enemy turn in which enemies act: `cells` of all enemies, who attacked, and the player's hp."""

    def __init__(self, pos: Position) -> None:
        self.goal = pos.cell
        self.enemies = tuple(pos.enemies)
        self.transmissions = frozenset(t.cell for t in pos.transmissions)
        self.blocks = frozenset(c for c, cell in enumerate(pos.cells) if cell.block)
        self.paths: dict[tuple[int, frozenset[int]], int | None] = {}

    def path(self, start: int, walls: frozenset[int]) -> int | None:
        key = start, walls
        if key not in self.paths:
            self.paths[key] = first_step(start, self.goal, walls)
        return self.paths[key]

    def destination(self, i: int, cells: tuple[int, ...]) -> int:
        """Where enemy `i` goes."""
        here = cells[i]
        walls = frozenset() if self.enemies[i].type == "glitch" else self.blocks
        taken = self.transmissions | {c for j, c in enumerate(cells) if j != i}
        free = self.path(here, walls | (taken - {self.goal}))
        if free is not None:
            return free
        through = self.path(here, walls)
        if through is not None and through not in taken:
            return through
        open_cells = [n for n in NEIGHBOURS[here] if n not in walls and n not in taken]
        return min(open_cells, key=lambda n: manhattan(n, self.goal), default=here)

    def act(self, i: int, cells: tuple[int, ...], attacked: int, hp: int) -> tuple[tuple[int, ...], int, int]:
        if manhattan(cells[i], self.goal) == 1:
            return cells, attacked | 1 << i, max(0, hp - 1)
        return (*cells[:i], self.destination(i, cells), *cells[i + 1 :]), attacked, hp

    def ends(self, hp: int, cap: int) -> set[tuple[tuple[int, ...], int, int]]:
        """Every (cells, attacked, hp) after both steps, over all orders."""
        able = [i for i, e in enumerate(self.enemies) if not e.disabled and not e.stunned]
        states = {(tuple(e.cell for e in self.enemies), 0, hp)}
        work = 0
        for actors in (able, [i for i in able if self.enemies[i].type == "virus"]):
            layer = {(sum(1 << i for i in actors if not s[1] >> i & 1), *s) for s in states}
            states = set()
            while layer:
                work += len(layer)
                if work > cap:
                    raise TooMany
                states |= {s[1:] for s in layer if s[0] == 0}
                layer = {
                    (left & ~(1 << i), *self.act(i, cells, attacked, hp_now))
                    for left, cells, attacked, hp_now in layer
                    for i in actors
                    if left >> i & 1
                }
        return states


def mature(pos: Position) -> None:
    """Transmissions count down; those due become enemies that cannot act this turn."""
    waiting = []
    for t in pos.transmissions:
        if t.timer <= 1:
            pos.enemies.append(Enemy(t.type, t.cell, MAX_HP[t.type], 1, False, t.from_siphon, t.from_schedule))
        else:
            waiting.append(t._replace(timer=t.timer - 1))
    pos.transmissions = waiting


def eligible(pos: Position) -> list[int]:
    """Cells a transmission may appear on."""
    taken = {pos.cell} | {e.cell for e in pos.enemies} | {t.cell for t in pos.transmissions}
    return [c for c, cell in enumerate(pos.cells) if c not in taken and not cell.block]


def in_line_of_fire(pos: Position, cell: int) -> bool:
    """Whether nothing but transmissions stands between the player and a cell of the same row or column."""
    row, col, r, c = *divmod(pos.cell, 6), *divmod(cell, 6)
    if row != r and col != c:
        return False
    stops = {e.cell for e in pos.enemies} | {k for k, content in enumerate(pos.cells) if content.block}
    low, high = sorted((pos.cell, cell))
    between = range(low + 1, high) if row == r else range(low + 6, high, 6)
    return not stops.intersection(between)


def spawn_cells(pos: Position) -> list[int]:
    """Where the next transmission appears with equal chances: out of the line of fire where that is possible."""
    cells = eligible(pos)
    return [c for c in cells if not in_line_of_fire(pos, c)] or cells


def spawn(pos: Position, spawned: list[Transmission]) -> str | None:
    """Adds transmissions one by one; returns what is wrong with their places, if anything."""
    for t in spawned:
        cells = spawn_cells(pos)
        if t.cell not in cells:
            return f"{t} appeared outside {cells}"
        pos.transmissions.append(t)
    return None


def enemy_turn(start: Position, cap: int) -> Iterator[tuple[Position, int, int]]:
    """Every (position, scheduled spawns, siphon spawns) an enemy turn may lead to, without the spawns themselves.

    The last snapshot of the history is that of the position returned, so it lacks the spawns too.
    """
    pos = start.copy()
    if pos.step_active:
        pos.step_active = False
        yield pos, 0, 0
        return
    pos.turn += 1
    mature(pos)
    scheduled, siphoned = 0, pos.pending
    if not pos.calm and pos.turn >= pos.next_turn:
        scheduled, pos.next_turn = 1, pos.turn + pos.interval
    pos.pending = 0
    turn = _Turn(pos)
    for cells, _, hp in sorted({(cells, 0, hp) for cells, _, hp in turn.ends(pos.hp, cap)}):
        end = pos.copy()
        end.hp = hp
        end.enemies = [
            e._replace(cell=c, disabled=max(0, e.disabled - 1), stunned=False)
            for e, c in zip(pos.enemies, cells, strict=True)
        ]
        room = len(eligible(end))
        scheduled_here = min(scheduled, room)
        siphoned_here = min(siphoned, room - scheduled_here)
        end.push_snapshot()
        yield end, scheduled_here, siphoned_here
