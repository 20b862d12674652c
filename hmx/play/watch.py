"""Watch episodes in any environment: their frames, and a terminal that shows them as the keys ask."""

from __future__ import annotations

import contextlib
import itertools
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jax
from rich.console import Console

from hmx.algos.evaluate import random_policy
from hmx.algos.search import make_act, searched
from hmx.algos.types import TrainState
from hmx.config.schema import Config, EnvConfig
from hmx.envs.belief import as_seen, imagine
from hmx.envs.protocol import EnvSpec, playable
from hmx.envs.registry import make_env
from hmx.errors import HmxError
from hmx.own.copies import naming_failures
from hmx.play import keys
from hmx.play.frames import Frame, FramePolicy, frame_policy
from hmx.play.keys import Keyboard
from hmx.play.request import WatchRequest
from hmx.play.scenario import read_scenario
from hmx.play.screen import draw, explain, step_line, summary, view
from hmx.play.simulator import Simulator
from hmx.play.spectator import Image, Spectator
from hmx.registry.environments import features_of
from hmx.runs.compilation import enable_cache
from hmx.runs.restoring import Run
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.runs.simulated import on_host, open_pool
from hmx.simulators.pool import SimulatorFailed, WorkerPool

COMPILING = "compiling the game; the next start is faster"
HELP = "space pause  Enter step  left back  n next episode  + - speed  ? rules  q quit"
Say = Callable[[str], None]


def ignore(text: str) -> None:
    """Drop a text."""


_DEFAULTS = WatchRequest()


def watch(
    run: str | Path | None = None,
    request: WatchRequest = _DEFAULTS,
    *,
    env: EnvConfig | None = None,
    pictures: bool = False,
    warn: Say = ignore,
    phase: Say = ignore,
) -> Iterator[Frame]:
    """Play whole episodes and yield every position with the probabilities and value of the policy, or of its search.

    The first of several agents trained side by side plays. `env` is the environment of random play. `warn` is called
    for each newer checkpoint that cannot be used, and `phase` before a compilation. With `pictures`, frames of a
    simulator hold what it draws, if it can.

    Raises:
        HmxError: no run and not random, an environment that does not work, an impossible scenario, or a search that is
            not possible (exit code 2); no such run or no intact checkpoint (3). Raised by this call, not by the first
            frame.
    """
    if (run is None and not request.random) or (run is not None and env is not None):
        why = "no run given" if run is None else "a run has its own environment"
        raise HmxError(f"cannot watch: {why}", "hmx watch RUN, or hmx watch --random --env ID")
    position, seed = None if request.scenario is None else read_scenario(request.scenario), request.seed
    enable_cache()
    source = None if run is None else Run.find(run)
    cfg = Config(env=env or EnvConfig()) if source is None else source.cfg
    if request.search is not None and run is None:
        raise HmxError("cannot search: random play has no values to guide it", "hmx watch RUN --search 32")
    has_board = "board" in features_of(cfg.env)
    if request.scenario is not None and not has_board:
        raise HmxError(f"cannot start from a scenario: {cfg.env.id} has none", "leave out --scenario")

    stack = contextlib.ExitStack()  # of what to close after the last frame

    def open_game() -> Simulator | Spectator:
        programs = None
        if request.random or source is None:
            made = make_env(cfg.env, cfg.reward)
            spec = made.spec
            policy = frame_policy(random_policy(action_dim=spec.action_dim, parts=spec.action_parts))
        else:
            session = source.open()
            if request.search is not None:
                session = session._replace(env=playable(session.env, "a search"))
            state = restored_state(source, session, request.checkpoint, warn)
            policy = agent_policy(session, state, request.greedy, request.search)
            made = session.env if has_board or policy.imagine is None else as_seen(session.env)
            programs = None if session.lowered is None else session.lowered.part("game", made is session.env)
        phase(COMPILING)
        if has_board:
            return Simulator(cfg.env, cfg.reward, seed=seed, position=position, policy=policy, programs=programs)
        if made.spec.simulator is None:
            return Spectator(made, seed=seed, policy=policy, programs=programs)
        pool, draw = _open_simulator(made.spec, cfg.env, seed, pictures, warn)
        stack.callback(pool.close)
        return Spectator(on_host(made.spec, pool), seed=seed, policy=policy, draw=draw)

    # In another thread, so that Ctrl-C works while it compiles.
    return _frames(interruptible(open_game), request.episodes, stack)


def _open_simulator(
    spec: EnvSpec, env: EnvConfig, seed: int, pictures: bool, warn: Say
) -> tuple[WorkerPool, Callable[[], Image] | None]:
    """Start a simulator; return it and, if there are to be pictures and it can draw them, what draws them."""
    if not pictures:
        return open_pool(spec, env, 1, seed), None
    pool = open_pool(spec, env, 1, seed, "rgb_array")
    if not pool.facts.render_mode:
        warn(f"{env.id} draws no pictures: its render_mode is not rgb_array")
        return pool, None
    pool.reset()
    try:
        pool.render()
    except SimulatorFailed as error:
        warn(f"{env.id} draws no pictures: {error.message.splitlines()[0]}")
        return open_pool(spec, env, 1, seed), None
    return pool, pool.render


def _frames(game: Simulator | Spectator, episodes: int, stack: contextlib.ExitStack) -> Iterator[Frame]:
    with stack, naming_failures():
        for episode in range(episodes):
            yield game.new() if episode else game.frame
            while game.choice is not None:
                yield game.act(game.choice)  # type: ignore[arg-type]  # what it chose, it takes


def restored_state(run: Run, session: Session, checkpoint: int | None, warn: Say) -> TrainState:
    """Return the state of the first agent of a run."""
    restored = run.agent(session, 0, checkpoint)
    for text in restored.warnings:
        warn(text)
    return restored.state


def agent_policy(session: Session, state: TrainState, greedy: bool, search: int | None) -> FramePolicy:
    """Return the policy of an agent; `search` is the number of simulations, None for that of training."""
    search, env = session.task.simulations if search is None else search, session.env
    seen = searched(env, session.cfg.gumbel.sees, search)
    expect = None if seen is env else jax.jit(partial(imagine, env))
    decide: Callable[..., Any] = jax.jit(make_act(session.algorithm, seen, session.cfg, search, greedy))
    if session.lowered is not None:
        decide = session.lowered.part("watch", search, greedy).reuse("decide", decide)
    carry = session.algorithm.initial_carry((1, env.spec.num_agents))
    return FramePolicy(partial(decide, state), carry, expect)


def show(frames: Iterable[Frame], *, title: str, delay: float, step: bool) -> None:
    """Draw frame after frame, and sum up every episode.

    In a terminal each frame replaces the one before; elsewhere each is a line.
    """
    console = Console(highlight=False)
    if step or (console.is_terminal and sys.stdin.isatty()):
        with Keyboard() as keyboard:
            seen = _watch(frames, keyboard, console, title, delay, step)
        ends = [one for one, after in itertools.zip_longest(seen, seen[1:]) if after is None or not after.step]
        if len(ends) > 1 or not ends[0].outcome:  # else it is still on the screen
            console.print("\n".join(map(summary, ends)))
        return
    for frame in frames:
        if console.is_terminal:
            draw(console, view(frame, title))
            time.sleep(delay)
        elif frame.step:
            console.print(step_line(frame), soft_wrap=True, markup=False)
        if frame.outcome:
            console.print(summary(frame))


def _watch(
    frames: Iterable[Frame], keyboard: Keyboard, console: Console, title: str, delay: float, paused: bool
) -> list[Frame]:
    """Play frames as the keys ask, and return all that were reached."""
    source = iter(frames)
    seen: list[Frame] = []
    at, drawn, end = 0, -1, 0.0

    def reached(number: int) -> bool:
        seen.extend(itertools.islice(source, max(number + 1 - len(seen), 0)))
        return number < len(seen)

    while reached(at):
        if drawn != at:
            drawn, end = at, time.monotonic() + delay
            draw(console, view(seen[at], title), HELP, summary(seen[at]) if seen[at].outcome else "")
        match keyboard.read(None if paused else max(end - time.monotonic(), 0.0)):
            case "q" | "escape":
                break
            case None | "enter" | "right":
                at += 1
            case " ":
                paused = not paused
                at += not paused
            case "left" | "b":
                paused, at = True, max(at - 1, 0)
            case "n":
                at += 1
                while reached(at) and seen[at].step:
                    at += 1
            case "+" | "=":
                delay /= 1.5
            case "-":
                delay *= 1.5
            case "?":
                explain(console, keyboard)
                drawn = -1
            case keys.RESIZED:
                drawn = -1
    return seen
