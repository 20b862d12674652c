"""Environments of XLand-MiniGrid (github.com/dunnolab/xland-minigrid)."""

from __future__ import annotations

from typing import Any

from hmx.envs.protocol import Env
from hmx.envs.single import Single, named
from hmx.envs.suites.functional import built, one_hot
from hmx.envs.suites.importing import importing
from hmx.errors import HmxError
from hmx.types import Array, Key

ACTIONS = ("move_forward", "turn_right", "turn_left", "pick_up", "put_down", "toggle")


def make_xminigrid(env_id: str, max_steps: int) -> Env:
    """Build `xminigrid/MiniGrid-NAME` of XLand-MiniGrid (Nikulin et al. 2023, arXiv:2312.12044).

    `XLand-MiniGrid-...` is refused: without a ruleset from a benchmark, which xminigrid downloads, it has no goal and
    pays nothing.
    """
    with importing("xminigrid"):
        import xminigrid
        from xminigrid.core.constants import NUM_COLORS, NUM_TILES
    names = xminigrid.registered_environments()
    if env_id.removeprefix("xminigrid/") in names and "/XLand" in env_id:
        words = f"{env_id} needs rulesets that xminigrid downloads; without them it has no goal"
        raise HmxError(words, "choose xminigrid/MiniGrid-NAME, such as xminigrid/MiniGrid-DoorKey-8x8")
    theirs, params = xminigrid.make(named(env_id, [name for name in names if name.startswith("MiniGrid")]))
    sizes = (NUM_TILES, NUM_COLORS)

    def reset(key: Key) -> Any:
        timestep = theirs.reset(params, key)
        return timestep, one_hot(timestep.observation, sizes)

    def step(timestep: Any, action: Array, key: Key) -> Any:
        after = theirs.step(params, timestep, action)
        return after, one_hot(after.observation, sizes), after.reward, after.discount == 0

    return built(env_id, Single(reset, step, ACTIONS, limit=params.max_steps), max_steps)
