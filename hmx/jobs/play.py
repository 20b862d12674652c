"""`hmx play`: a game that a person plays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.jobs.simulator import FramePolicy, Simulator
from hmx.jobs.watch import agent_policy
from hmx.records.frozen import read_config
from hmx.records.layout import find_policy
from hmx.records.paths import DEFAULT_ROOT
from hmx.runs.compilation import enable_cache
from hmx.runs.session import open_session
from hmx.runs.signals import interruptible

Game = Simulator


def open_game(
    *,
    seed: int = 0,
    position: Mapping[str, object] | None = None,
    cfg: Config | None = None,
    advise: str | Path | None = None,
    search: int | None = None,
    checkpoint: int | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> Game:
    """Open a game without a step limit.

    Args:
        seed: of the games.
        position: a scenario that every game starts from.
        cfg: the rules; None takes the defaults, or those of the run that advises.
        advise: name or path of a run whose agent says what it would do.
        search: simulations per decision of that agent.
        checkpoint: update of its checkpoint; None takes the newest intact one.
        root: folder of the runs, for a name.

    Raises:
        HmxError: a run of another environment, or a search that is not possible (exit code 2); no such run or no intact
            checkpoint (3).
    """
    if advise is None and (search is not None or checkpoint is not None):
        searches = search is not None
        what, option = ("search", "--search 32") if searches else ("use a checkpoint", f"--checkpoint {checkpoint}")
        raise HmxError(f"cannot {what}: no agent given", f"hmx play --advise RUN {option}")
    paths = None if advise is None else find_policy(advise, root)
    rules = cfg or (Config() if paths is None else read_config(paths))
    if rules.env.id != "hackmatrix":
        raise HmxError(f"cannot take advice from {advise}: it plays {rules.env.id}", "give a run of HackMatrix")
    enable_cache()
    env = dataclasses.replace(rules.env, max_steps=0)

    def begin() -> Game:
        policy: FramePolicy | None = None
        if paths is not None:
            policy = agent_policy(open_session(rules, paths), paths, False, checkpoint, search)
        return Game(env, rules.reward, seed=seed, position=position, policy=policy)

    # In another thread, so that Ctrl-C works while it compiles.
    return interruptible(begin)
