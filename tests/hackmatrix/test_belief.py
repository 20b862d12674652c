"""What the player imagines beside the true game: equal to all that it sees, and independent of what it does not see."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import load
from probe import BATCH, ENV, env_state
from random_play import draw

from hmx.envs.belief import Believed, as_seen, imagine
from hmx.envs.hackmatrix.env import HackMatrixState
from hmx.envs.hackmatrix.observation import packed, visible_enemies
from hmx.envs.hackmatrix.rules import ACTION_NAMES, Rules, State
from hmx.envs.hackmatrix.rules.history import snapshot
from hmx.envs.hackmatrix.rules.state import E
from hmx.types import Timestep

pytestmark = pytest.mark.slow
SEEN = as_seen(ENV)
STEPS = 60
UP, RIGHT = ACTION_NAMES.index("up"), ACTION_NAMES.index("right")
_step = jax.jit(SEEN.step)
_imagine = jax.jit(partial(imagine, ENV))


def _moved(true: State, imagined: State) -> jax.Array:
    """Return the slots of enemies that stand elsewhere, uint32 [B]."""
    planes = true.enemies[E.ROW : E.TYPE] ^ imagined.enemies[E.ROW : E.TYPE]
    return jax.lax.reduce(planes, np.uint32(0), jax.lax.bitwise_or, (0,))


@jax.jit
def _counts(state: Believed, alone: HackMatrixState, seen: Timestep, expected: Timestep) -> dict[str, jax.Array]:
    """Count differences, and the hidden cryptogs that stand where the player imagines them."""
    true, imagined = state.true.game, state.imagined.game
    unseen = true.enemies[E.ALIVE] & ~visible_enemies(true)
    newest = jnp.arange(true.history.shape[0])[:, None] == ((true.history_head - 1) % true.history.shape[0])[None]
    turned = newest & (true.history == snapshot(true)[None]).all(1) & (true.history_count > 0)[None]
    own = (imagined.history == snapshot(imagined)[None]).all(1)
    pairs = zip(jax.tree.leaves((state.true, seen)), jax.tree.leaves((alone, expected)), strict=True)
    return {
        "true": sum((jnp.asarray(a) != b).sum() for a, b in pairs),
        "observation": (packed(true) != packed(imagined)).sum(),
        "mask": (env_state(imagined).legal != state.true.legal).sum(),
        "snapshot": (turned & ~own).sum(),
        "turns": turned.sum(),
        "unseen": jax.lax.population_count(unseen).sum(),
        "found": jax.lax.population_count(unseen & ~_moved(true, imagined)).sum(),
    }


def test_imagined_games_look_the_same_and_true_ones_are_untouched() -> None:
    keys = jax.random.split(jax.random.key(0), BATCH)
    state, seen = jax.jit(SEEN.reset)(keys)
    alone, _ = jax.jit(ENV.reset)(jax.random.clone(keys))
    counts = []
    for turn in range(STEPS):
        k_act, k_env = jax.random.split(jax.random.fold_in(jax.random.key(1), turn))
        action, keys = draw(seen.legal[:, 0], k_act, k_env)
        state, seen = _step(state, action[:, None], keys)
        alone, expected = ENV.step(alone, action[:, None], jax.random.clone(keys))
        counts.append(_counts(state, alone, seen, expected))
    total = {name: sum(int(one[name]) for one in counts) for name in counts[0]}
    assert {name: total[name] for name in ("true", "observation", "mask", "snapshot")} == dict.fromkeys(
        ("true", "observation", "mask", "snapshot"), 0
    )
    assert total["turns"] > 10_000 and total["unseen"] > 1_000
    # Enemies come towards the player, so one who has seen a cryptog mostly knows where it is.
    assert total["found"] > 0.8 * total["unseen"]


def games(places: list[tuple[int, int]], kind: str, points: int) -> HackMatrixState:
    """Return games that differ in what the player at (0, 0) does not see."""
    hidden = [{"row": row, "col": col, "type": "cryptog", "hp": 2} for row, col in places]
    scenario: dict[str, Any] = {
        "player": {"row": 0, "col": 0},
        "blocks": [{"row": 2, "col": 2, "type": "question-data", "points": points, "spawnCount": points}],
        "enemies": hidden,
        "transmissions": [{"row": 5, "col": 1, "enemyType": kind, "turnsRemaining": 3}],
    }
    return env_state(load([scenario] * BATCH, Rules(name="original")))


def test_what_is_imagined_does_not_depend_on_what_is_hidden() -> None:
    one, other = games([(4, 4), (5, 3)], "virus", 2), games([(3, 1), (5, 5)], "cryptog", 9)
    keys, actions = jax.random.split(jax.random.key(3), BATCH), jnp.full((BATCH, 1), RIGHT)
    before = games([(1, 1), (4, 4)], "glitch", 4)
    for known in (False, True):
        drawn = [
            _imagine(before, actions, state, jnp.full(BATCH, known), jax.random.clone(keys)) for state in (one, other)
        ]
        for a, b in zip(*map(jax.tree.leaves, drawn), strict=True):
            np.testing.assert_array_equal(a, b)
    assert any((np.asarray(a) != b).any() for a, b in zip(*map(jax.tree.leaves, (one, other)), strict=True))


def test_player_who_saw_a_cryptog_knows_where_it_went_and_one_who_did_not_does_not() -> None:
    scenario = {  # after a step up the cryptog is out of sight, and can only come closer to the left
        "player": {"row": 3, "col": 2},
        "enemies": [{"row": 3, "col": 5, "type": "cryptog", "hp": 2}],
        "blocks": [{"row": 4, "col": 5, "type": "data", "points": 1, "spawnCount": 1}],
    }
    seen_before = env_state(load([scenario] * BATCH, Rules(name="original")))
    keys, actions = jax.random.split(jax.random.key(4), BATCH), jnp.full((BATCH, 1), UP)
    after, _ = jax.jit(ENV.step)(seen_before, actions, keys)
    assert int(jax.lax.population_count(after.game.enemies[E.ALIVE] & ~visible_enemies(after.game)).sum()) == BATCH
    drawn = [
        _imagine(seen_before, actions, after, jnp.full(BATCH, known), jax.random.clone(keys)) for known in (True, False)
    ]
    right, wrong = ((_moved(after.game, one.game) != 0).mean() for one in drawn)
    assert right == 0.0 and wrong > 0.8
