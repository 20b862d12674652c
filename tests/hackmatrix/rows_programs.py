"""The table of deviations from row 25 on: programs, observations, rewards, capacity."""

from __future__ import annotations

from oracle_play import scene
from rows import (
    ATK,
    COL,
    CRASH,
    DEBUG,
    HACK,
    LEFT,
    POLY,
    PULL,
    PUSH,
    RICH,
    RIGHT,
    ROW,
    SHOW,
    SIPH,
    SIPHON,
    UNDO,
    WAIT,
    WARP,
    Results,
    row,
)


@row(
    25,
    scene(
        (2, 2),
        owned=["crash"],
        enemies=[("daemon", 3, 3, 3), ("daemon", 5, 2, 3)],
        transmissions=[(1, 1, 4, "virus")],
        data=[(2, 3, 4, 1), (2, 4, 4, 1)],
        credits_at=[(2, 3, 2)],
        **RICH,
    ),
    CRASH,
)
def crash_clears_the_surrounding_cells(r: Results) -> None:
    pos = r[1].position
    assert [(e.cell, e.hp) for e in pos.enemies] == [(32, 3)] and pos.transmissions == []
    assert (r[1].cell(2, 3).content, r[1].cell(2, 3).credits, r[1].cell(2, 4).content) == ("empty", 2, "data")
    assert r[1].paid() == {"kills": 0.6, "resource_gain": -0.25}


@row(
    26,
    scene(
        (2, 2),
        owned=["row"],
        attackDamage=2,
        enemies=[("daemon", 2, 5, 3), ("virus", 2, 0, 2), ("virus", 0, 2, 2)],
        data=[(2, 4, 1, 1)],
        **RICH,
    ),
    ROW,
)
def row_hits_with_attack_damage_and_stuns(r: Results) -> None:
    hit, other = r[1].position.enemies
    assert (hit.cell, hit.hp, hit.stunned) == (17, 1, True) and (other.cell, other.stunned) == (2, False)


@row(26, scene((2, 2), owned=["col"], attackDamage=2, enemies=[("daemon", 5, 2, 3), ("virus", 2, 0, 2)], **RICH), COL)
def col_hits_with_attack_damage_and_stuns(r: Results) -> None:
    assert [(e.hp, e.stunned) for e in r[1].position.enemies] == [(1, True), (2, False)]


@row(
    27,
    scene(
        (2, 2),
        owned=["debug"],
        attackDamage=2,
        enemies=[("daemon", 5, 2, 3), ("daemon", 4, 0, 3)],
        data=[(5, 2, 1, 0, True)],
        **RICH,
    ),
    DEBUG,
)
def debug_hits_with_attack_damage(r: Results) -> None:
    assert [(e.hp, e.stunned) for e in r[1].position.enemies] == [(1, True), (3, False)]


@row(
    28,
    scene((2, 2), dataSiphons=1, owned=["hack"], attackDamage=1, enemies=[("daemon", 4, 2, 3)], **RICH),
    SIPHON,
    HACK,
)
def hack_hits_on_any_siphoned_cell(r: Results) -> None:
    assert HACK not in r[0].mask and HACK in r[1].mask
    assert (r[2].enemy(3, 2).hp, r[2].enemy(3, 2).stunned) == (2, True)


@row(
    28,
    scene((2, 2), owned=["hack"], attackDamage=2, enemies=[("daemon", 5, 2, 3)], data=[(5, 2, 1, 0, True)], **RICH),
    HACK,
)
def hack_uses_attack_damage_and_keeps_the_block(r: Results) -> None:
    assert (r[1].enemy(5, 2).hp, r[1].enemy(5, 2).stunned, r[1].cell(5, 2).content) == (1, True, "data")


@row(29, scene((2, 2), owned=["poly"], enemies=[("daemon", 5, 5, 1), ("virus", 0, 0, 1)], **RICH), POLY)
def poly_carries_damage_over(r: Results) -> None:
    (left,) = r[1].position.enemies
    assert left.cell == 0 and left.type != "virus" and left.hp == (2 if left.type == "daemon" else 1)
    assert r[1].paid() == {"kills": 0.3, "resource_gain": -0.1}


@row(
    30,
    scene((3, 3), owned=["push"], enemies=[("daemon", 5, 3, 3), ("virus", 4, 3, 2), ("virus", 5, 1, 2)], **RICH),
    PUSH,
)
def push_falls_back_to_one_axis_and_may_stack(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [33, 33, 30]


@row(30, scene((3, 3), owned=["push"], enemies=[("daemon", 5, 1, 3), ("virus", 4, 0, 2)], **RICH), PUSH)
def push_keeps_the_second_out_of_a_cell_just_taken(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [30, 24]


@row(
    31,
    scene((3, 3), owned=["pull"], enemies=[("daemon", 4, 3, 3), ("virus", 5, 5, 2), ("virus", 4, 4, 2)], **RICH),
    PULL,
)
def pull_never_enters_the_players_cell(r: Results) -> None:
    assert [e.cell for e in r[1].position.enemies] == [27, 28, 22]


@row(32, scene((0, 0), owned=["warp"], enemies=[("daemon", 3, 3, 3), ("virus", 3, 3, 2)], **RICH), WARP)
def warp_removes_everybody_in_the_cell(r: Results) -> None:
    assert r[1].position.enemies == [] and r[1].position.cell == 21 and r[1].terms["kills"] > 0.29


UNDO_TURN = scene(
    (2, 2), owned=["undo", "wait", "siph+", "atk+"], enemies=[("daemon", 5, 5, 3, "isFromScheduledTask")], **RICH
)


@row(33, UNDO_TURN, WAIT, SIPH, ATK, UNDO)
def undo_takes_back_the_programs_of_this_turn(r: Results) -> None:
    then, now = r[1].position, r[4].position
    assert (now.siphons, now.attack, now.credits, now.energy) == (0, 1, then.credits, then.energy)
    assert (now.atk_uses, now.cell, now.turn) == (0, 14, 1) and UNDO not in r[0].mask and UNDO in r[3].mask
    assert then.enemies[0].from_schedule and not now.enemies[0].from_schedule


@row(33, UNDO_TURN, RIGHT, RIGHT, UNDO, UNDO)
def a_second_undo_goes_back_a_turn(r: Results) -> None:
    assert [x.position.cell for x in r] == [14, 15, 16, 16, 15] and r[4].position.turn == 1
    assert UNDO not in r[4].mask


@row(34, scene((2, 2), owned=["atk+"], attackDamage=3, **RICH), ATK, ATK)
def attack_has_no_cap(r: Results) -> None:
    assert r[2].position.attack == 5 and r[2].player[7] == 2 and ATK in r[1].mask and ATK not in r[2].mask


@row(35, scene((2, 2), enemies=[("daemon", 2, 4, 2), ("virus", 2, 4, 1)]))
def the_first_of_a_stack_is_seen(r: Results) -> None:
    assert {k: round(v, 3) for k, v in r[0].grid.items() if k[:2] == (2, 4)} == {(2, 4, 1): 1, (2, 4, 4): 0.667}


@row(35, scene((2, 2), enemies=[("cryptog", 3, 4, 2), ("virus", 3, 4, 1)]))
def a_hidden_first_hides_the_stack(r: Results) -> None:
    assert [k for k in r[0].grid if k[:2] == (3, 4)] == []


@row(36, scene((2, 2), question_programs=[(2, 3, "hack", 4)], question_data=[(2, 4, 9, 9)], credits_at=[(2, 3, 2)]))
def question_blocks_show_nothing_else(r: Results) -> None:
    assert {k: v for k, v in r[0].grid.items() if k[0] == 2} == {(2, 3, 9): 1, (2, 4, 9): 1}


@row(
    37, scene((2, 2), data=[(2, 3, 0, 0), (3, 2, 0, 0, True)], credits_at=[(2, 3, 2), (3, 2, 2)], energy_at=[(0, 0, 3)])
)
def resources_hide_under_unsiphoned_blocks(r: Results) -> None:
    assert {k[:2] for k in r[0].grid if k[2] in (37, 38)} == {(3, 2), (0, 0)}


@row(38, scene((2, 2), transmissions=[(2, 5, 3, "virus"), (0, 0, 1, "virus")]), RIGHT)
def transmissions_are_kills_and_spawns_do_not_cancel_them(r: Results) -> None:
    assert r[1].paid() == {"kills": 0.3} and len(r[1].position.enemies) == 1


@row(38, scene((2, 2), enemies=[("virus", 2, 5, 1, "isFromScheduledTask")]), RIGHT)
def scheduled_enemies_are_no_kills(r: Results) -> None:
    assert r[1].paid() == {} and r[1].position.enemies == []


@row(39, scene((2, 2), owned=["siph+"], **RICH), SIPH)
def siph_plus_is_no_pick_up(r: Results) -> None:
    assert r[1].paid() == {"resource_gain": -0.25} and r[1].position.siphons == 1


@row(40, scene((0, 0), owned=["warp"], enemies=[("daemon", 5, 5, 3)], **RICH), WARP)
def warping_to_the_exit_pays_the_whole_way(r: Results) -> None:
    paid = {
        "stage_completion": 1.0,
        "distance_shaping": 0.5,
        "kills": 0.3,
        "resource_gain": -0.2,
        "resource_holding": 0.36,
    }
    assert r[1].paid() == paid


@row(
    40,
    scene((2, 2), hp=1, stage=3, enemies=[("daemon", 3, 3, 3), ("virus", 1, 3, 2, "stunned", "spawnedFromSiphon")]),
    RIGHT,
)
def death_pays_no_distance(r: Results) -> None:
    assert r[1].done and r[1].position.hp == 0
    assert r[1].paid() == {"damage_penalty": -1.0, "death_penalty": -1.5, "siphon_death_penalty": -10.0}


@row(41, scene((5, 4), hp=2, stage=8, score=50, credits=10, energy=5), RIGHT)
def the_last_stage_pays_a_hundred(r: Results) -> None:
    paid = {
        "stage_completion": 100.0,
        "victory": 5500.0,
        "distance_shaping": 0.05,
        "hp_recovery": 1.0,
        "resource_holding": 0.15,
    }
    assert r[1].paid() == paid


@row(
    42,
    scene(
        (2, 2),
        dataSiphons=1,
        data=[(2, 3, 4, 0), (0, 0, 4, 0)],
        credits_at=[(2, 4, 3), (0, 1, 2)],
        energy_at=[(3, 4, 3)],
    ),
    SIPHON,
)
def siphon_quality_looks_around_the_same_blocks(r: Results) -> None:
    assert r[1].paid() == {"score_gain": 2.0, "siphon_quality": -0.15}


@row(42, scene((2, 2), dataSiphons=1, data=[(2, 3, 4, 0), (0, 0, 4, 0)], credits_at=[(0, 1, 2)]), SIPHON)
def an_equal_block_elsewhere_is_no_better_place(r: Results) -> None:
    assert r[1].paid() == {"score_gain": 2.0}


@row(42, scene((2, 2), dataSiphons=1, question_data=[(2, 3, 4, 0)], credits_at=[(2, 4, 3)]), SIPHON)
def question_blocks_count_for_siphon_quality(r: Results) -> None:
    assert r[1].paid() == {"score_gain": 2.0, "siphon_quality": -0.075}


@row(43, scene((5, 5), enemies=[("daemon", 5, 2, 3)]), LEFT)
def attacking_from_the_exit_ends_no_stage(r: Results) -> None:
    assert r[1].position.stage == 1 and not r[1].paid() and r[1].enemy(5, 2).hp == 2


FULL = scene(
    (0, 0),
    owned=["show"],
    enemies=[("daemon", c // 6, c % 6, 1 + c % 3) for c in range(5, 32)],
    transmissions=[(c // 6, c % 6, 4, "virus") for c in (1, 2, 3, 4)],
    **RICH,
)


@row(44, FULL, SHOW)
def twenty_seven_enemies_fit(r: Results) -> None:
    assert r[1].position.enemies == r[0].position.enemies and len(r[1].position.enemies) == 27
    assert sum(1 for k in r[1].grid if k[2] == 1) == 27
