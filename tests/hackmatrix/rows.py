"""Positions for each known difference between the reference game and an earlier port (the table of deviations).

Each row is a position, the actions to take and what must hold: `r[0]` is the position before the first action,
`r[i]` what is seen after action `i`. The expectations are worked by hand and are put to the plain-Python model and
to the compiled game alike. Rows about whole new boards only make sense where boards are generated (`boards=True`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from oracle_play import Result, scene

UP, DOWN, LEFT, RIGHT, SIPHON = range(5)
PUSH, PULL, CRASH, WARP, POLY, WAIT, DEBUG, ROW, COL, UNDO, STEP, SIPH, EXCH, SHOW, RESET, CALM = range(5, 21)
D_BOM, DELAY, ANTI_V, SCORE, REDUC, ATK, HACK = range(21, 28)
RICH = {"credits": 20, "energy": 20}
Results = list[Result]


class Row(NamedTuple):
    number: int
    name: str
    scenario: dict[str, Any]
    actions: tuple[int, ...]
    check: Callable[[Results], None]
    boards: bool


ROWS: list[Row] = []


def row(number: int, scenario: dict[str, Any], *actions: int, boards: bool = False) -> Callable[..., Any]:
    def register(check: Callable[[Results], None]) -> Callable[[Results], None]:
        ROWS.append(Row(number, check.__name__, scenario, actions, check, boards))
        return check

    return register


@row(2, scene((0, 0), credits_at=[(0, 1, 3)]), RIGHT)
def walking_leaves_credits(r: Results) -> None:
    assert (r[1].position.cell, r[1].position.credits, r[1].cell(0, 1).credits) == (1, 0, 3)


@row(2, scene((0, 0), siphons=[(0, 1)], energy_at=[(0, 1, 2)]), RIGHT)
def walking_takes_data_siphons(r: Results) -> None:
    assert (r[1].position.siphons, r[1].position.energy, r[1].cell(0, 1).content) == (1, 0, "empty")
    assert r[1].paid() == {"data_siphon": 1.0, "distance_shaping": 0.05}


@row(3, scene((2, 0), data=[(2, 2, 5, 1, True)], enemies=[("daemon", 2, 4, 3, "stunned")]), RIGHT)
def blocks_stop_the_line_of_fire(r: Results) -> None:
    assert (r[1].position.cell, r[1].enemy(2, 4).hp) == (13, 3)


@row(3, scene((2, 0), enemies=[("daemon", 2, 4, 3)], transmissions=[(2, 4, 5, "virus")]), RIGHT)
def transmissions_are_hit_before_enemies(r: Results) -> None:
    assert r[1].position.cell == 12 and r[1].position.transmissions == []
    assert [e.hp for e in r[1].position.enemies] == [3] and r[1].terms["kills"] > 0


@row(4, scene((2, 2), data=[(2, 3, 5, 0, True), (3, 2, 5, 1)], enemies=[("virus", 2, 4, 2), ("virus", 4, 2, 2)]))
def blocks_mask_the_direction(r: Results) -> None:
    assert r[0].mask == [DOWN, LEFT]


@row(4, scene((2, 2), data=[(2, 3, 5, 0, True)], enemies=[("cryptog", 2, 3, 2)]), RIGHT)
def an_enemy_on_the_block_unmasks_it(r: Results) -> None:
    assert r[0].mask == [UP, DOWN, LEFT, RIGHT] and r[1].enemy(2, 3).hp == 1


@row(5, scene((2, 2), data=[(2, 3, 5, 1)], enemies=[("virus", 0, 0, 2)]), RIGHT)
def an_invalid_move_ends_the_episode_and_changes_nothing(r: Results) -> None:
    assert r[1].done and r[1].reward == 0 and set(r[1].terms.values()) == {0.0}
    assert r[1].position.key() == r[0].position.key()


@row(5, scene((2, 2), enemies=[("virus", 0, 0, 2)], **RICH), PUSH)
def an_unowned_program_is_invalid(r: Results) -> None:
    assert r[1].done and r[1].reward == 0 and r[1].position.key() == r[0].position.key()


@row(6, scene((2, 2), enemies=[("daemon", 2, 3, 3)]), RIGHT)
def a_survivor_is_stunned(r: Results) -> None:
    assert r[1].position.hp == 3 and r[1].enemy(2, 3).hp == 2 and r[1].paid() == {}


CROSS = scene(
    (2, 2),
    dataSiphons=2,
    credits_at=[(2, 2, 2), (2, 3, 1)],
    energy_at=[(2, 1, 3), (3, 2, 1)],
    data=[(1, 2, 4, 2)],
    programs=[(3, 2, "hack", 1)],
)


@row(7, CROSS, SIPHON)
def the_siphon_takes_its_whole_cross(r: Results) -> None:
    pos = r[1].position
    assert (pos.score, pos.credits, pos.energy, pos.owned, pos.siphons) == (4, 3, 3, {22}, 1)
    assert r[1].paid() == {"score_gain": 2.0, "resource_gain": 0.3}
    assert r[1].cell(3, 2).content == "program", "a siphoned block stays"


@row(7, scene((2, 2), dataSiphons=1, siphons=[(2, 3)], question_data=[(2, 1, 7, 2)]), SIPHON)
def question_blocks_resolve_and_data_siphons_stay(r: Results) -> None:
    pos = r[1].position
    assert (pos.score, pos.siphons, pos.credits, r[1].cell(2, 3).content) == (7, 0, 0, "siphon")
    assert r[1].grid[2, 1, 7] == 1 and (2, 1, 9) not in r[1].grid and (2, 1, 9) in r[0].grid


@row(8, CROSS, SIPHON)
def siphoning_spawns_elsewhere_with_timer_one(r: Results) -> None:
    born = r[1].position.transmissions
    assert len(born) == 3 and all(t.timer == 1 and t.from_siphon and not t.from_schedule for t in born)
    assert not {t.cell for t in born} & {8, 14, 20} and len({t.cell for t in born}) == 3


@row(9, scene((2, 2), dataSiphons=1), SIPHON)
def every_siphon_hastens_the_schedule(r: Results) -> None:
    assert (r[1].position.interval, r[1].position.next_turn, r[1].position.siphons) == (11, 17, 0)


@row(10, scene((2, 2), dataSiphons=1, data=[(2, 3, 4, 1)]), SIPHON)
def every_cell_of_the_cross_is_siphoned(r: Results) -> None:
    assert [c for c, cell in enumerate(r[1].position.cells) if cell.siphoned] == [8, 13, 14, 15, 20]
    assert r[1].cell(2, 3).spawn == 0 and (2, 3, 35) not in r[1].grid and r[1].grid[2, 3, 11] == 1
    assert r[1].grid[2, 2, 41] == 1 and (2, 1, 11) not in r[1].grid


@row(11, scene((5, 4), hp=1, enemies=[("daemon", 4, 4, 3)]), RIGHT)
def no_enemy_moves_when_the_stage_ends(r: Results) -> None:
    assert not r[1].done and r[1].position.hp == 2 and r[1].position.stage == 2
    assert r[1].paid() == {"stage_completion": 1.0, "distance_shaping": 0.05, "hp_recovery": 1.0}


@row(12, scene((0, 0), owned=["wait"], energy=5, transmissions=[(0, 3, 1, "daemon")]), WAIT, WAIT)
def a_new_enemy_waits_a_turn(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [3] and r[1].enemy(0, 3).disabled == 0
    assert [e.cell for e in r[2].position.enemies] == [2]


@row(13, scene((0, 0), owned=["wait"], energy=5, enemies=[("daemon", 3, 3, 3)]), WAIT)
def enemies_prefer_down_to_left(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [15]


@row(
    13,
    scene(
        (2, 0),
        owned=["wait"],
        energy=5,
        enemies=[("daemon", 2, 4, 3)],
        data=[(2, 3, 1, 1), (1, 3, 1, 0, True), (1, 4, 1, 1)],
    ),
    WAIT,
)
def enemies_walk_around_blocks(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [22], "up is the first cell of the only shortest path"


@row(13, scene((2, 0), owned=["wait"], energy=5, enemies=[("daemon", 2, 1, 3), ("daemon", 2, 2, 3)]), WAIT)
def enemies_do_not_stack(r: Results) -> None:
    assert {e.cell for e in r[1].position.enemies} == {13, 20} and r[1].position.hp == 2


@row(14, scene((2, 0), owned=["wait"], energy=5, enemies=[("daemon", 2, 2, 3)]), WAIT)
def an_enemy_moves_or_attacks(r: Results) -> None:
    assert r[1].position.hp == 3 and [e.cell for e in r[1].position.enemies] == [13]


@row(14, scene((2, 0), owned=["wait"], energy=5, enemies=[("virus", 2, 2, 2)]), WAIT)
def a_virus_moves_and_attacks(r: Results) -> None:
    assert r[1].position.hp == 2 and [e.cell for e in r[1].position.enemies] == [13]


@row(15, scene((0, 0), owned=["wait"], energy=5, transmissions=[(0, 1, 1, "virus")]), WAIT, WAIT)
def a_disabled_enemy_does_not_attack(r: Results) -> None:
    assert r[1].position.hp == 3 and r[2].position.hp == 2


@row(
    16,
    scene(
        (0, 0),
        owned=["step", "wait"],
        energy=9,
        turn=11,
        enemies=[("daemon", 0, 1, 3)],
        transmissions=[(5, 0, 1, "virus")],
    ),
    STEP,
    WAIT,
    WAIT,
)
def step_skips_the_whole_enemy_turn(r: Results) -> None:
    assert r[1].position.step_active and not r[2].position.step_active
    assert (r[2].position.hp, r[2].position.turn, len(r[2].position.transmissions)) == (3, 11, 1)
    assert (r[3].position.hp, r[3].position.turn, len(r[3].position.enemies)) == (2, 12, 2)


# Only (5, 0) is out of the line of fire: the other cells are blocks, lines of the player, or taken.
CORNERED = scene(
    (0, 0),
    turn=11,
    owned=["wait"],
    energy=5,
    data=[(r, c, 1, 0) for r in range(1, 6) for c in range(1, 6) if (r, c) != (5, 5)] + [(4, 0, 1, 0)],
    transmissions=[(5, 5, 9, "virus")],
)


@row(17, CORNERED, WAIT)
def scheduled_spawns_avoid_the_line_of_fire(r: Results) -> None:
    (born,) = [t for t in r[1].position.transmissions if t.cell != 35]
    assert (born.cell, born.timer, born.from_schedule, born.from_siphon) == (30, 1, True, False)
    assert (r[1].position.turn, r[1].position.next_turn) == (12, 24)


LAST_STEP = scene(
    (5, 4),
    hp=2,
    turn=7,
    scheduledTasksDisabled=True,
    showActivated=True,
    enemies=[("daemon", 0, 0, 1, "stunned", "spawnedFromSiphon"), ("virus", 2, 2, 2, "isFromScheduledTask")],
    transmissions=[(1, 1, 3, "glitch")],
)


@row(18, LAST_STEP, RIGHT)
def enemies_and_transmissions_follow_to_the_next_stage(r: Results) -> None:
    assert r[1].position.enemies == r[0].position.enemies and len(r[1].position.enemies) == 2
    assert r[1].position.transmissions[0] == r[0].position.transmissions[0]


@row(19, LAST_STEP, RIGHT)
def a_new_stage_resets_clock_and_flags(r: Results) -> None:
    pos = r[1].position
    assert (pos.turn, pos.interval, pos.next_turn, pos.show, pos.calm, pos.stage) == (0, 11, 11, False, False, 2)


@row(22, LAST_STEP, RIGHT, boards=True)
def every_open_cell_but_the_exit_has_one_resource(r: Results) -> None:
    for c, cell in enumerate(r[1].position.cells):
        amounts = [n for n in (cell.credits, cell.energy) if n]
        assert len(amounts) == (not cell.block and c != r[1].position.exit) and all(1 <= n <= 3 for n in amounts)


@row(23, LAST_STEP, RIGHT, boards=True)
def a_new_stage_brings_as_many_transmissions_as_its_number(r: Results) -> None:
    born = r[1].position.transmissions[1:]
    assert len(born) == 2 and all(t.timer == 1 and not t.from_schedule and not t.from_siphon for t in born)


@row(24, scene((5, 4), hp=2, stage=8, score=50, credits=10, energy=5, data=[(0, 3, 4, 1)]), RIGHT)
def victory_keeps_stage_and_board(r: Results) -> None:
    assert r[1].done and (r[1].position.stage, r[1].position.cell, r[1].position.hp) == (8, 35, 3)
    assert r[1].player[5] == 1 and r[1].position.cells == r[0].position.cells
