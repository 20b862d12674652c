"""`hmx play`: a game that a person plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from hmx.config.schema import Config
from hmx.jobs.simulator import Simulator
from hmx.runs.compilation import enable_cache
from hmx.runs.signals import interruptible

Game = Simulator


def open_game(*, seed: int = 0, position: Mapping[str, object] | None = None, cfg: Config | None = None) -> Game:
    """Open a game by the rules of `cfg`, without a step limit."""
    cfg = cfg or Config()
    enable_cache()
    env = dataclasses.replace(cfg.env, max_steps=0)
    # In another thread, so that Ctrl-C works while it compiles.
    return interruptible(lambda: Game(env, cfg.reward, seed=seed, position=position))
