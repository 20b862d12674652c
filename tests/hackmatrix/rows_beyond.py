"""Hand-worked positions for corners of the rules that recorded transitions and the table of deviations leave open."""

from __future__ import annotations

from oracle_play import scene
from rows import CRASH, D_BOM, RICH, RIGHT, SIPHON, UNDO, UP, WAIT, WARP, Results, row

BEYOND = 45  # not a row of the table


# The virus holds the direct way, so the first search must go around it although the goal itself is taken.
@row(
    BEYOND,
    scene(
        (2, 2),
        transmissions=[(2, 2, 9, "virus")],
        owned=["wait"],
        **RICH,
        enemies=[("virus", 2, 3, 2, "stunned"), ("daemon", 2, 4, 3)],
    ),
    WAIT,
)
def a_taken_goal_is_still_a_goal(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [15, 22]


@row(BEYOND, scene((2, 2), turn=30, owned=["wait"], **RICH), WAIT)
def the_next_scheduled_turn_counts_from_now(r: Results) -> None:
    assert (r[1].position.turn, r[1].position.next_turn, len(r[1].position.transmissions)) == (31, 43, 1)


@row(
    BEYOND,
    scene(
        (2, 2),
        owned=["d_bom"],
        **RICH,
        enemies=[("daemon", 4, 4, 3), ("virus", 4, 4, 2), ("virus", 5, 5, 2), ("daemon", 0, 0, 3)],
    ),
    D_BOM,
)
def the_bomb_spares_its_own_cell(r: Results) -> None:
    left = [(e.cell, e.hp, e.stunned) for e in r[1].position.enemies]
    assert left == [(28, 2, False), (35, 1, True), (0, 3, False)], "the earlier of two nearest daemons goes off"


@row(
    BEYOND,
    scene((2, 2), owned=["crash"], **RICH, enemies=[("daemon", 3, 3, 3, "isFromScheduledTask"), ("virus", 3, 3, 2)]),
    CRASH,
)
def the_first_of_a_stack_decides_the_kill(r: Results) -> None:
    assert r[1].position.enemies == [] and r[1].terms["kills"] == 0


@row(
    BEYOND,
    scene((0, 0), owned=["warp"], **RICH, enemies=[("daemon", 3, 3, 3), ("virus", 3, 3, 2, "isFromScheduledTask")]),
    WARP,
)
def warp_counts_one_kill(r: Results) -> None:
    assert r[1].position.enemies == [] and abs(r[1].terms["kills"] - 0.3) < 1e-6


@row(BEYOND, scene((2, 2), owned=["wait"], **RICH, enemies=[("glitch", 2, 2, 2)], data=[(3, 2, 1, 0)]), WAIT)
def an_enemy_in_the_players_cell_steps_out_upwards(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [20] and r[1].position.hp == 3


@row(
    BEYOND,
    scene((2, 2), owned=["wait"], **RICH, data=[(2, 2, 1, 0)], enemies=[("daemon", 4, 3, 3), ("virus", 2, 1, 2)]),
    WAIT,
)
def on_a_block_only_neighbours_and_greedy_steps_matter(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [21, 13] and r[1].position.hp == 2


# The way ahead is held by a stunned daemon: no free path; the shortest path's first cell is free, so it is taken.
@row(
    BEYOND,
    scene(
        (0, 0),
        owned=["wait"],
        **RICH,
        enemies=[("daemon", 0, 2, 3, "stunned"), ("daemon", 0, 4, 3)],
        data=[(1, c, 1, 0) for c in range(6)],
    ),
    WAIT,
)
def without_a_free_path_enemies_queue(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [2, 3]


# The queue is full ahead: the greedy step leads away from the player.
@row(
    BEYOND,
    scene(
        (0, 0),
        owned=["wait"],
        **RICH,
        enemies=[("daemon", 0, 2, 3, "stunned"), ("daemon", 0, 3, 3)],
        data=[(1, c, 1, 0) for c in range(6)],
    ),
    WAIT,
)
def the_last_resort_may_lead_away(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [2, 4]


@row(BEYOND, scene((2, 2), dataSiphons=1, data=[(2, 3, 9, 9), (3, 2, 9, 9), (1, 2, 9, 9), (2, 1, 9, 9)]), SIPHON)
def boards_fill_up_but_never_overflow(r: Results) -> None:
    assert len(r[1].position.transmissions) == 31 and r[1].position.pending == 0
    assert len({t.cell for t in r[1].position.transmissions}) == 31


@row(
    BEYOND, scene((5, 4), hp=2, owned=["undo", "wait"], **RICH, enemies=[("daemon", 0, 0, 3)]), WAIT, RIGHT, UNDO, RIGHT
)
def undo_survives_the_exit(r: Results) -> None:
    assert [x.position.stage for x in r] == [1, 1, 2, 2, 3]
    assert r[3].position.cell == 34 and r[3].cell(5, 5).content == "exit" and r[3].position.hp == 2
    assert (r[3].position.interval, r[3].position.next_turn, r[3].position.turn) == (11, 11, 1)


@row(BEYOND, scene((2, 2), dataSiphons=2, owned=["step"], **RICH, data=[(2, 3, 1, 2)]), 15, SIPHON, UP)
def pending_spawns_wait_for_a_real_enemy_turn(r: Results) -> None:
    assert [len(x.position.transmissions) for x in r] == [0, 0, 0, 2]
    assert r[2].position.pending == 2 and all(t.from_siphon for t in r[3].position.transmissions)
