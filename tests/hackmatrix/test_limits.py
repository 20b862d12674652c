"""What bounds the game: slots, and the step limit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from compiled import load, read
from oracle_play import scene
from oracle_state import Position
from probe import BATCH, ENV, LIMIT, env_state, take
from rows import RICH, RIGHT, SIPHON, WAIT

from hmx.envs.hackmatrix import rules as game
from hmx.envs.hackmatrix.observation import packed

pytestmark = pytest.mark.slow
observed = jax.jit(packed)


def _step(state: game.State, action: jax.Array, keys: jax.Array) -> Any:
    """The same step as the first of an episode, which shows the state after it, and as the last."""
    first = env_state(state)
    last = first._replace(steps=jnp.full_like(first.steps, LIMIT - 1))
    after, _ = ENV.step(first, action[:, None], jax.random.clone(keys))
    next_state, timestep = ENV.step(last, action[:, None], keys)
    return after.game, observed(after.game).T, next_state, timestep


FULL = [("daemon", 1 + c // 6, c % 6, 3) for c in range(30)] + [("daemon", 0, 4, 3), ("daemon", 0, 5, 3)]
SCENES: dict[str, tuple[dict[str, Any], tuple[int, ...]]] = {
    "walk": (scene((0, 0), enemies=[("daemon", 5, 0, 3)]), (RIGHT,)),
    "exit": (scene((5, 4), hp=2, owned=["wait", "undo"], **RICH), (WAIT, RIGHT)),
    "death": (scene((0, 0), hp=1, enemies=[("daemon", 0, 1, 3), ("daemon", 1, 0, 3)], dataSiphons=1), (SIPHON,)),
    "overflow": (scene((0, 0), owned=["wait"], **RICH, enemies=FULL, transmissions=[(0, 2, 1, "virus")]), (WAIT,)),
    "invalid": (scene((0, 0), stage=3), (1,)),
}  # fmt: skip


class Limits:
    """The scenes played side by side, each for as long as it has actions."""

    def __init__(self) -> None:
        self.positions: dict[str, list[Position]] = {}
        self.steps: list[tuple[list[str], Any]] = []
        state = load([s for s, _ in SCENES.values()])
        names = list(SCENES)
        for name, pos in zip(names, read(state), strict=True):
            self.positions[name] = [pos]
        for turn in range(max(len(actions) for _, actions in SCENES.values())):
            going = [k for k, name in enumerate(names) if len(SCENES[name][1]) > turn]
            names = [names[k] for k in going]
            padding = [going[k % len(going)] for k in range(BATCH)]
            actions = [SCENES[names[k % len(names)]][1][turn] for k in range(BATCH)]
            keys = jax.random.split(jax.random.key(turn), BATCH)
            seen = _step(jax.tree.map(jnp.asarray, take(state, padding)), jnp.asarray(actions, jnp.int32), keys)
            state = seen[0]
            self.steps.append((names, jax.tree.map(np.asarray, seen)))
            for name, pos in zip(names, read(take(state, range(len(names)))), strict=True):
                self.positions[name].append(pos)


@pytest.fixture(scope="module")
def limits() -> Limits:
    return Limits()


def test_step_limit_truncates_unfinished_episodes(limits: Limits) -> None:
    for names, (_, observed, next_state, timestep) in limits.steps:
        ended = timestep.terminated
        np.testing.assert_array_equal(timestep.truncated, ~ended)
        np.testing.assert_array_equal(timestep.final_obs[~ended, 0], observed[~ended])
        assert (next_state.steps == 0).all() and (next_state.game.stage == 1).all() and (next_state.game.hp == 3).all()
        assert not (timestep.obs == timestep.final_obs).all(-1).any(), names
        expected = [name in ("death", "invalid") for name in names]
        assert ended[: len(names)].tolist() == expected


def test_episode_truncated_at_the_exit_ends_on_the_new_board(limits: Limits) -> None:
    pos = limits.positions["exit"][-1]
    assert pos.stage == 2 and len(pos.transmissions) == 2 and sum(c.content == "siphon" for c in pos.cells) == 2


def test_overflowing_items_are_counted(limits: Limits) -> None:
    pos = limits.positions["overflow"][-1]
    assert len(pos.enemies) == 32 and pos.transmissions == []
    names, (*_, timestep) = limits.steps[0]
    assert timestep.info["overflow_sum"][names.index("overflow")] == 1
    assert timestep.info["overflow_sum"][: len(names)].sum() == 1
