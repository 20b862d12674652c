"""What the player imagines beside the true game: equal to all that it sees, and independent of what it does not see."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import load
from probe import BATCH, ENV, env_state, padded
from random_play import draw

from hmx.envs.belief import Believed, as_seen, imagine
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.observation import packed, visible_enemies
from hmx.envs.hackmatrix.rules import ACTION_NAMES, Rules, State
from hmx.envs.hackmatrix.rules.history import snapshot
from hmx.envs.hackmatrix.rules.state import E

pytestmark = pytest.mark.slow
SEEN = as_seen(ENV)
STEPS = 60
UP, RIGHT = ACTION_NAMES.index("up"), ACTION_NAMES.index("right")
_step = jax.jit(SEEN.step)


def _moved(true: State, imagined: State) -> jax.Array:
    """Return the slots of enemies that stand elsewhere, uint32 [B]."""
    planes = true.enemies[E.ROW : E.TYPE] ^ imagined.enemies[E.ROW : E.TYPE]
    return jax.lax.reduce(planes, np.uint32(0), jax.lax.bitwise_or, (0,))


@jax.jit
def _counts(state: Believed) -> dict[str, jax.Array]:
    """Count differences, and the hidden cryptogs that stand where the player imagines them."""
    true, imagined = state.true.game, state.imagined.game
    unseen = true.enemies[E.ALIVE] & ~visible_enemies(true)
    newest = jnp.arange(true.history.shape[0])[:, None] == ((true.history_head - 1) % true.history.shape[0])[None]
    turned = newest & (true.history == snapshot(true)[None]).all(1) & (true.history_count > 0)[None]
    own = (imagined.history == snapshot(imagined)[None]).all(1)
    return {
        "observation": (packed(true) != packed(imagined)).sum(),
        "mask": (env_state(imagined).legal != state.true.legal).sum(),
        "snapshot": (turned & ~own).sum(),
        "turns": turned.sum(),
        "unseen": jax.lax.population_count(unseen).sum(),
        "found": jax.lax.population_count(unseen & ~_moved(true, imagined)).sum(),
    }


def test_imagined_games_look_the_same() -> None:
    state, seen = jax.jit(SEEN.reset)(jax.random.split(jax.random.key(0), BATCH))
    counts = []
    for turn in range(STEPS):
        k_act, k_env = jax.random.split(jax.random.fold_in(jax.random.key(1), turn))
        action, keys = draw(seen.legal[:, 0], k_act, k_env)
        state, seen = _step(state, action[:, None], keys)
        counts.append(_counts(state))
    total = {name: sum(int(one[name]) for one in counts) for name in counts[0]}
    assert (total["observation"], total["mask"], total["snapshot"]) == (0, 0, 0)
    assert total["turns"] > 10_000 and total["unseen"] > 1_000
    # Enemies come towards the player, so one who has seen a cryptog mostly knows where it is.
    assert total["found"] > 0.8 * total["unseen"]


def test_both_halves_of_a_batch_are_what_they_are_alone() -> None:
    """The true game is that of the environment, and the imagined one what `hmx watch` imagines."""
    alone = jax.jit(partial(imagine, ENV))
    state, seen = jax.jit(SEEN.reset)(jax.random.split(jax.random.key(4), BATCH))
    ended = 0
    for turn in range(12):
        k_act, k_env = jax.random.split(jax.random.fold_in(jax.random.key(5), turn))
        action, keys = draw(seen.legal[:, 0], k_act, k_env)
        true = ENV.step(state.true, action[:, None], jax.random.clone(keys))
        before, (state, seen) = state, _step(state, action[:, None], jax.random.clone(keys))
        over = seen.terminated | seen.truncated
        imagined = alone(before.imagined, action[:, None], true[0], ~over, keys)
        for a, b in zip(
            jax.tree.leaves((state, seen)), jax.tree.leaves((Believed(true[0], imagined), true[1])), strict=True
        ):
            np.testing.assert_array_equal(a, b)
        ended += int(over.sum())
    assert ended > 10


def games(scenario: dict[str, Any]) -> HackMatrixState:
    """Return one position in every game."""
    return env_state(padded(load([scenario], Rules(name="original"))))


def hiding(places: list[tuple[int, int]], kind: str, points: int) -> HackMatrixState:
    """Return games that differ in what the player at (0, 0) does not see."""
    return games(
        {
            "player": {"row": 0, "col": 0},
            "blocks": [{"row": 2, "col": 2, "type": "question-data", "points": points, "spawnCount": points}],
            "enemies": [{"row": row, "col": col, "type": "cryptog", "hp": 2} for row, col in places],
            "transmissions": [{"row": 5, "col": 0, "enemyType": kind, "turnsRemaining": 3}],
        }
    )


def test_player_imagines_what_it_has_seen_and_nothing_of_what_is_hidden() -> None:
    keys = jax.random.split(jax.random.key(3), BATCH)
    right, up = (jnp.full((BATCH, 1), action, jnp.int32) for action in (RIGHT, UP))  # as in the compiled step
    before = hiding([(3, 4), (4, 4)], "glitch", 4)
    true = hiding([(4, 4), (5, 3)], "virus", 2), hiding([(3, 3), (5, 5)], "cryptog", 9)
    after = [_step(Believed(state, before), right, jax.random.clone(keys))[0] for state in true]
    assert (np.asarray(after[0].true.game.enemies) != after[1].true.game.enemies).any()
    for a, b in zip(*(jax.tree.leaves(one.imagined) for one in after), strict=True):
        np.testing.assert_array_equal(a, b)

    # After a step up the cryptog is out of sight, and can only come closer to the left.
    seen = games(
        {
            "player": {"row": 3, "col": 2},
            "enemies": [{"row": 3, "col": 5, "type": "cryptog", "hp": 2}],
            "blocks": [{"row": 4, "col": 5, "type": "data", "points": 1, "spawnCount": 1}],
        }
    )
    moved, _ = _step(Believed(seen, seen), up, keys)
    assert int(_counts(moved)["unseen"]) == int(_counts(moved)["found"]) == BATCH
