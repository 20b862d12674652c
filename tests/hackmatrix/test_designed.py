"""The designed rules: exactly how they differ from those of the original game."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import differences, load, read
from oracle_play import scene
from positions import at_the_exit, random_scenario
from probe import BATCH, game_step, legal_actions, padded
from rows import RICH, RIGHT, UNDO, UP, WAIT, WARP

from hmx.envs.hackmatrix import rules as game

pytestmark = pytest.mark.slow
ORIGINAL, DESIGNED = game.Rules(name="original"), game.Rules(name="designed")
STEPS = 40


class Both(NamedTuple):
    """One step of the same positions under both rules."""

    original: tuple[game.State, game.Events]
    designed: tuple[game.State, game.Events]
    legal: jax.Array  # of the designed state, [28, BATCH]
    legal_original: jax.Array


def _both(state: game.State, action: jax.Array, keys: jax.Array) -> Both:
    original = game_step(state, action, jax.random.clone(keys), ORIGINAL)
    designed = game_step(state, action, keys, DESIGNED)
    return Both(original, designed, legal_actions(designed[0]), legal_actions(original[0]))


def play(scenario: dict[str, Any], *actions: int) -> list[Both]:
    """The steps of one position, with the state as it is under the designed rules."""
    state, steps = padded(load([scenario], DESIGNED)), []
    for turn, action in enumerate(actions):
        keys = jax.random.split(jax.random.key(turn), BATCH)
        steps.append(_both(state, jnp.full(BATCH, action, jnp.int32), keys))
        state = steps[-1].designed[0]
    return steps


def test_end_of_a_stage_empties_the_history() -> None:
    wait, leave, undo = play(scene((5, 4), owned=["undo", "wait"], **RICH), WAIT, RIGHT, UNDO)
    assert wait.legal[UNDO].all() and (wait.designed[0].history_count == 1).all()
    assert (leave.designed[0].stage == 2).all() and (leave.designed[0].history_count == 0).all()
    assert not leave.legal[UNDO].any() and leave.legal_original[UNDO].all()
    assert (leave.original[0].history_count == 1).all()
    after, events = undo.designed
    assert (events.valid == 0).all() and (after.stage == 2).all() and (after.board_stage == 2).all()
    first, second = play(scene((0, 0), owned=["undo", "wait"], stage=2, **RICH), WAIT, UNDO)
    assert first.legal[UNDO].all() and (second.designed[1].valid == 1).all()


def test_undo_within_a_stage_takes_back_turns_until_the_history_is_empty() -> None:
    scenario = scene((2, 2), owned=["undo"], **RICH)
    start = read(load([scenario], DESIGNED))[0]
    right, up, again, back, illegal = play(scenario, RIGHT, UP, UNDO, UNDO, UNDO)
    assert not start.turn and [int(s.designed[0].pos[0]) for s in (right, up, again, back)] == [15, 21, 21, 15]
    assert [bool(s.legal[UNDO].all()) for s in (right, up, again, back)] == [True, True, True, False]
    assert differences(read(right.designed[0])[0], read(back.designed[0])[0]) == []
    assert (illegal.designed[1].valid == 0).all()


def test_losing_every_path_to_the_exit_pays_nothing() -> None:
    walls = [(3, 3, 1, 0), (2, 3, 1, 0), (4, 3, 1, 0), (3, 2, 1, 0), (3, 4, 1, 0)]
    (step,) = play(scene((0, 0), owned=["warp"], **RICH, enemies=[("glitch", 3, 3, 2)], data=walls), WARP)
    assert (step.original[1].distance == 10).all() and (step.designed[1].distance == 0).all()
    assert (step.designed[0].exit_distance == 0).all() and (step.designed[1].died == 0).all()


def test_everything_else_is_equal_in_random_games() -> None:
    rng = random.Random(30)
    scenarios = [at_the_exit(rng) if i % 2 else random_scenario(rng) for i in range(BATCH)]
    for scenario in scenarios:
        scenario["ownedPrograms"] = sorted({*scenario["ownedPrograms"], WAIT, UNDO})
        scenario["player"] |= {"hp": 3, "credits": 60, "energy": 60}
    state, legal = load(scenarios, DESIGNED), None
    often = jnp.zeros(game.NUM_ACTIONS).at[jnp.asarray([RIGHT, UP, WAIT, UNDO])].set(1.5)
    seen = dict.fromkeys(("exits", "emptied", "undone", "lost"), 0)
    for turn in range(STEPS):
        k_act, k_step = jax.random.split(jax.random.key(turn))
        mask = legal_actions(state) if legal is None else legal
        action = jax.random.categorical(k_act, jnp.where(mask.T, often, -jnp.inf), axis=-1).astype(jnp.int32)
        step = jax.tree.map(np.asarray, _both(state, action, jax.random.split(k_step, BATCH)))
        (a, events_a), (b, events_b) = step.original, step.designed
        entered = (events_a.stage_completed > 0) & (events_a.victory == 0)
        gone = (events_a.stage_completed == 0) & (a.exit_distance == 0) & (a.pos != a.exit)
        expected = a._replace(history_count=np.where(entered, 0, a.history_count))
        paid = events_a._replace(distance=np.where(gone, 0, events_a.distance))
        jax.tree.map(np.testing.assert_array_equal, (b, events_b), (expected, paid))
        others = np.arange(game.NUM_ACTIONS) != UNDO
        np.testing.assert_array_equal(step.legal[others], step.legal_original[others])
        np.testing.assert_array_equal(step.legal[UNDO], step.legal_original[UNDO] & (b.history_count > 0))
        seen["exits"] += int(entered.sum())
        seen["emptied"] += int((entered & (a.history_count > 0)).sum())
        seen["undone"] += int(((np.asarray(action) == UNDO) & (events_b.valid == 1)).sum())
        seen["lost"] += int((gone & (events_a.distance > 0)).sum())
        state, legal = step.designed[0], step.legal
    assert seen["exits"] > 100 and seen["emptied"] > 40 and seen["undone"] > 400, seen
