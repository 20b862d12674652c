"""What each action of the plain-Python model does before the enemies move: moves, attacks, the siphon, 23 programs."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oracle_enemies import TooMany
from oracle_state import (
    DATA,
    DATA_SIPHON,
    DIRECTIONS,
    EMPTY,
    EXIT,
    MAX_HP,
    PROGRAMS,
    SIPHON,
    SIZE,
    SURROUNDING,
    TYPES,
    Enemy,
    Position,
    cross,
    manhattan,
    neighbour,
)


@dataclass
class Done:
    """One way an action may turn out."""

    pos: Position
    kills: int = 0
    picked_siphon: bool = False
    left: bool = False  # the exit was reached


# --- what may be done -------------------------------------------------------------------------------


def direction_allowed(pos: Position, direction: tuple[int, int]) -> bool:
    there = neighbour(pos.cell, direction)
    return there is not None and (not pos.blocked(there) or bool(pos.enemies_at(there)))


def _near_anything(pos: Position) -> bool:
    around = SURROUNDING[pos.cell]
    return any(pos.blocked(c) or pos.enemies_at(c) or pos.transmissions_at(c) for c in around)


APPLICABLE: dict[str, Callable[[Position], bool]] = {
    "push": lambda p: bool(p.enemies),
    "pull": lambda p: bool(p.enemies),
    "crash": _near_anything,
    "warp": lambda p: bool(p.enemies or p.transmissions),
    "poly": lambda p: bool(p.enemies),
    "debug": lambda p: any(p.blocked(e.cell) for e in p.enemies),
    "row": lambda p: any(e.cell // SIZE == p.cell // SIZE for e in p.enemies),
    "col": lambda p: any(e.cell % SIZE == p.cell % SIZE for e in p.enemies),
    "undo": lambda p: bool(p.history),
    "show": lambda p: not p.show,
    "reset": lambda p: p.hp < 3,
    "calm": lambda p: not p.calm,
    "d_bom": lambda p: any(e.type == "daemon" for e in p.enemies),
    "delay": lambda p: bool(p.transmissions),
    "anti-v": lambda p: any(e.type == "virus" for e in p.enemies),
    "score": lambda p: p.stage < 8,
    "reduc": lambda p: any(c.block and not c.siphoned and c.spawn > 0 for c in p.cells),
    "atk+": lambda p: p.atk_uses < 2,
    "hack": lambda p: any(c.siphoned for c in p.cells),
}


def allowed(pos: Position, action: int) -> bool:
    """Whether the action mask shows this action."""
    if action < 4:
        return direction_allowed(pos, DIRECTIONS[action])
    if action == SIPHON:
        return pos.siphons > 0
    name, credits, energy, _ = PROGRAMS[action - 5]
    affordable = action - 5 in pos.owned and pos.credits >= credits and pos.energy >= energy
    return affordable and APPLICABLE.get(name, lambda _: True)(pos)


# --- hits -------------------------------------------------------------------------------------------


def hit(done: Done, damage: int, struck: set[int]) -> None:
    """Struck enemies (by list index) lose hp and are stunned; those at 0 go, and count unless scheduled."""
    after = []
    for i, e in enumerate(done.pos.enemies):
        if i in struck:
            e = e._replace(hp=max(0, e.hp - damage), stunned=True)
        if e.hp > 0:
            after.append(e)
        else:
            done.kills += not e.from_schedule
    done.pos.enemies = after


def clear_enemies(done: Done, cell: int) -> None:
    """Removes all enemies of a cell; the first one decides whether it is a kill."""
    there = done.pos.enemies_at(cell)
    done.kills += bool(there) and not there[0].from_schedule
    done.pos.enemies = [e for e in done.pos.enemies if e.cell != cell]


def clear_transmissions(done: Done, cell: int) -> None:
    there = done.pos.transmissions_at(cell)
    done.kills += bool(there) and not there[0].from_schedule
    done.pos.transmissions = [t for t in done.pos.transmissions if t.cell != cell]


# --- directions and the siphon ----------------------------------------------------------------------


def move(pos: Position, direction: tuple[int, int]) -> Done:
    done = Done(pos)
    there = neighbour(pos.cell, direction)
    while there is not None:
        transmissions, enemies = pos.transmissions_at(there), pos.enemies_at(there)
        if transmissions:
            pos.transmissions.remove(transmissions[0])
            done.kills += not transmissions[0].from_schedule
            return done
        if enemies:
            target = next(i for i, e in enumerate(pos.enemies) if e.cell == there)
            hit(done, pos.attack, {target})
            return done
        if pos.blocked(there):
            break
        there = neighbour(there, direction)
    there = neighbour(pos.cell, direction)
    assert there is not None and not pos.blocked(there)
    pos.cell = there
    if pos.cells[there].content == DATA_SIPHON:
        pos.siphons += 1
        pos.cells[there] = pos.cells[there]._replace(content=EMPTY)
        done.picked_siphon = True
    done.left = pos.cells[there].content == EXIT
    return done


def siphon(pos: Position) -> Done:
    pos.cells[pos.cell] = pos.cells[pos.cell]._replace(center=True)
    for c in cross(pos.cell):
        cell = pos.cells[c]
        if cell.siphoned:
            continue
        if cell.block:
            if cell.content == DATA:
                pos.score += cell.value
            else:
                pos.owned |= {cell.value}
            pos.pending += cell.spawn
            cell = cell._replace(spawn=0, question=False)
        else:
            pos.credits += cell.credits
            pos.energy += cell.energy
            cell = cell._replace(credits=0, energy=0)
        pos.cells[c] = cell._replace(siphoned=True)
    pos.siphons -= 1
    pos.interval = max(4, pos.interval - 1)
    pos.next_turn += 5
    return Done(pos)


# --- programs ---------------------------------------------------------------------------------------


def _sign(n: int) -> int:
    return (n > 0) - (n < 0)


def wanted_cell(pos: Position, enemy: Enemy, pull: bool) -> int | None:
    """Where PUSH or PULL would put this enemy."""
    way = -1 if pull else 1
    sr = way * _sign(enemy.cell // SIZE - pos.cell // SIZE)
    sc = way * _sign(enemy.cell % SIZE - pos.cell % SIZE)
    steps = [(sr, sc)] + [(sr, 0)] * (sr != 0) + [(0, sc)] * (sc != 0)
    cells = [n for step in steps if (n := neighbour(enemy.cell, step)) is not None]
    if pull:
        return min((c for c in cells if c != pos.cell), key=lambda c: manhattan(c, pos.cell), default=None)
    return max(cells, key=lambda c: manhattan(c, pos.cell), default=None)


def push_pull(pos: Position, pull: bool) -> Done:
    wishes = [wanted_cell(pos, e, pull) for e in pos.enemies]
    entered: set[int] = set()
    for i, wish in enumerate(wishes):
        if wish is not None and wish not in entered:
            pos.enemies[i] = pos.enemies[i]._replace(cell=wish)
            entered.add(wish)
    return Done(pos)


def crash(pos: Position) -> Done:
    done = Done(pos)
    for c in SURROUNDING[pos.cell]:
        if pos.blocked(c):
            pos.cells[c] = pos.cells[c]._replace(content=EMPTY, value=0, spawn=0, question=False)
        clear_enemies(done, c)
        clear_transmissions(done, c)
    return done


def warp(pos: Position) -> Iterator[Done]:
    targets = [(e.cell, clear_enemies) for e in pos.enemies]
    targets += [(t.cell, clear_transmissions) for t in pos.transmissions]
    for cell, clear in dict.fromkeys(targets):
        done = Done(pos.copy())
        done.pos.cell = cell
        clear(done, cell)
        done.left = cell == pos.exit
        yield done


def poly(pos: Position, cap: int) -> Iterator[Done]:
    if 3 ** len(pos.enemies) > cap:
        raise TooMany
    for types in itertools.product(*([t for t in TYPES if t != e.type] for e in pos.enemies)):
        done = Done(pos.copy())
        done.pos.enemies = [
            e._replace(type=t, hp=MAX_HP[t] - (MAX_HP[e.type] - e.hp)) for e, t in zip(pos.enemies, types, strict=True)
        ]
        hit(done, 0, set())
        yield done


def d_bom(pos: Position) -> Done:
    done = Done(pos)
    daemons = [i for i, e in enumerate(pos.enemies) if e.type == "daemon"]
    bomb = pos.enemies.pop(min(daemons, key=lambda i: manhattan(pos.enemies[i].cell, pos.cell)))
    done.kills += not bomb.from_schedule
    hit(done, 1, {i for i, e in enumerate(pos.enemies) if e.cell in SURROUNDING[bomb.cell]})
    return done


def _strike(pos: Position, damage: int, struck: Callable[[Enemy], bool]) -> Done:
    done = Done(pos)
    hit(done, damage, {i for i, e in enumerate(pos.enemies) if struck(e)})
    return done


def _reduc(pos: Position) -> Done:
    pos.cells = [c._replace(spawn=max(0, c.spawn - 1)) if c.block and not c.siphoned else c for c in pos.cells]
    return Done(pos)


def _delay(pos: Position) -> Done:
    pos.transmissions = [t._replace(timer=t.timer + 3) for t in pos.transmissions]
    return Done(pos)


def _undo(pos: Position) -> Done:
    pos.restore(pos.history.pop())
    return Done(pos)


def _set(**changes: Callable[[Position], object]) -> Callable[[Position], Done]:
    def effect(pos: Position) -> Done:
        for name, value in changes.items():
            setattr(pos, name, value(pos))
        return Done(pos)

    return effect


EFFECTS: dict[str, Callable[[Position], Done]] = {
    "push": lambda p: push_pull(p, pull=False),
    "pull": lambda p: push_pull(p, pull=True),
    "crash": crash,
    "wait": _set(),
    "debug": lambda p: _strike(p, p.attack, lambda e: p.blocked(e.cell)),
    "row": lambda p: _strike(p, p.attack, lambda e: e.cell // SIZE == p.cell // SIZE),
    "col": lambda p: _strike(p, p.attack, lambda e: e.cell % SIZE == p.cell % SIZE),
    "undo": _undo,
    "step": _set(step_active=lambda p: True),
    "siph+": _set(siphons=lambda p: p.siphons + 1),
    "exch": _set(energy=lambda p: p.energy + 4),
    "show": _set(show=lambda p: True),
    "reset": _set(hp=lambda p: 3),
    "calm": _set(calm=lambda p: True),
    "d_bom": d_bom,
    "delay": _delay,
    "anti-v": lambda p: _strike(p, 1, lambda e: e.type == "virus"),
    "score": _set(score=lambda p: p.score + 8 - p.stage),
    "reduc": _reduc,
    "atk+": _set(attack=lambda p: p.attack + 1, atk_uses=lambda p: p.atk_uses + 1),
    "hack": lambda p: _strike(p, p.attack, lambda e: p.cells[e.cell].siphoned),
}


def perform(start: Position, action: int, cap: int) -> Iterator[Done]:
    """Every way the player's part of an allowed action may turn out."""
    pos = start.copy()
    if action < 4:
        yield move(pos, DIRECTIONS[action])
    elif action == SIPHON:
        yield siphon(pos)
    else:
        name, credits, energy, _ = PROGRAMS[action - 5]
        pos.credits -= credits
        pos.energy -= energy
        if name == "warp":
            yield from warp(pos)
        elif name == "poly":
            yield from poly(pos, cap)
        else:
            yield EFFECTS[name](pos)
