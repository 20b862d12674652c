"""`hmx watch`: the frames of games that an agent or a random policy plays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax

from hmx.agents.types import Decision
from hmx.config.env_facts import WATCHABLE
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.jobs.frames import Frame
from hmx.jobs.simulator import FramePolicy, Simulator, decide_at_random
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.records.paths import DEFAULT_ROOT
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import seed_state
from hmx.runs.restoring import restore
from hmx.runs.session import open_session
from hmx.runs.signals import interruptible
from hmx.types import Array, Key


def watch(
    run: str | Path | None = None,
    *,
    random: bool = False,
    position: Mapping[str, object] | None = None,
    seed: int = 0,
    episodes: int = 1,
    greedy: bool = False,
    checkpoint: int | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> Iterator[Frame]:
    """Play whole episodes and yield every position with the probabilities and value of the policy.

    Args:
        run: name or path of a run; of several agents trained side by side the first one plays.
        random: play at random; no run is needed then, and the rules are the defaults without one.
        position: a scenario that every episode starts from.
        seed: of the games.
        episodes: how many, at least 1.
        greedy: take the most probable action instead of drawing one.
        checkpoint: update of the checkpoint; None takes the newest intact one.
        root: folder of the runs, for a name.

    Raises:
        HmxError: no run and not random, an environment that cannot be drawn, or an impossible scenario (exit
            code 2); no such run or no intact checkpoint (3). Raised by this call, not by the first frame.
    """
    if run is None and not random:
        raise HmxError("cannot watch: no run given", "hmx watch RUN, or hmx watch --random")
    enable_cache()
    cfg = Config() if run is None else read_config(find_run(run, root))
    if cfg.env.id not in WATCHABLE:
        raise HmxError(f"{run} plays {cfg.env.id}, and only hackmatrix can be drawn", f"hmx evaluate {run}")
    policy = FramePolicy(jax.jit(decide_at_random)) if random else _agent(str(run), cfg, greedy, checkpoint, root)
    # In another thread, so that Ctrl-C is heard while it compiles.
    game = interruptible(lambda: Simulator(cfg.env, cfg.reward, seed=seed, position=position, policy=policy))
    return _frames(game, episodes)


def _frames(game: Simulator, episodes: int) -> Iterator[Frame]:
    for episode in range(episodes):
        yield game.new() if episode else game.frame
        while game.choice is not None:
            yield game.act(game.choice)


def _agent(run: str | Path, cfg: Config, greedy: bool, checkpoint: int | None, root: str | Path) -> FramePolicy:
    session = open_session(cfg)
    state = seed_state(restore(session, find_run(run, root), checkpoint).state, 0, cfg.run.num_seeds)

    @jax.jit
    def decide(carry: Any, obs: Array, mask: Array, reset: Array, key: Key) -> tuple[Decision, Any]:
        return session.algorithm.act(state, carry, obs, mask, reset, key, greedy)

    return FramePolicy(decide, session.algorithm.initial_carry((1, 1)))
