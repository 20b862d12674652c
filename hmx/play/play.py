"""Let a person play HackMatrix in a terminal."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

from rich.console import Console

from hmx.config.schema import Config
from hmx.envs.hackmatrix.rules.tables import FIRST_PROGRAM, SIPHON
from hmx.errors import HmxError
from hmx.play.advice import Advisor, make_advisor
from hmx.play.boards import BoardView
from hmx.play.keys import RESIZED, Keyboard
from hmx.play.reasons import why_not
from hmx.play.request import PlayRequest
from hmx.play.scenario import read_scenario
from hmx.play.screen import PROGRAM_KEYS, draw, explain
from hmx.play.simulator import Simulator
from hmx.play.watch import COMPILING, Say, agent_policy, ignore, restored_state
from hmx.registry.environments import features_of
from hmx.reports.review.job import judge_of
from hmx.reports.review.request import ReviewRequest
from hmx.runs.compilation import enable_cache
from hmx.runs.restoring import Run
from hmx.runs.signals import interruptible

MENU = {FIRST_PROGRAM + number: key for number, key in enumerate(PROGRAM_KEYS)}
_MOVES = {"up": 0, "w": 0, "down": 1, "s": 1, "left": 2, "a": 2, "right": 3, "d": 3, " ": SIPHON}
KEYS = {**_MOVES, **{key: action for action, key in MENU.items()}}
HELP = "arrows/wasd move  space siphon  1-0 e-p f-k programs  n new  ? rules  q quit"


def open_game(request: PlayRequest, warn: Say = ignore, phase: Say = ignore) -> tuple[Simulator, Advisor | None]:
    """Open a game without a step limit, by the rules of the run whose agent advises, if any.

    Return the game, and what compares the best two actions of the agent. `warn` and `phase` are as of `watch`.

    Raises:
        HmxError: a run of another environment, or a search that is not possible (exit code 2); no such run or no intact
            checkpoint (3).
    """
    if request.advise is None and (request.search is not None or request.checkpoint is not None):
        what, option = "use a checkpoint", f"--checkpoint {request.checkpoint}"
        if request.search is not None:
            what, option = "search", "--search 32"
        raise HmxError(f"cannot {what}: no agent given", f"hmx play --advise RUN {option}")
    position = None if request.scenario is None else read_scenario(request.scenario)
    run = None if request.advise is None else Run.find(request.advise)
    cfg = Config() if run is None else run.cfg
    if "board" not in features_of(cfg.env):
        raise HmxError(f"cannot take advice from {request.advise}: it plays {cfg.env.id}", "give a run of HackMatrix")
    enable_cache()
    env = dataclasses.replace(cfg.env, max_steps=0)

    def begin() -> tuple[Simulator, Advisor | None]:
        if run is None:
            phase(COMPILING)
            return Simulator(env, cfg.reward, seed=request.seed, position=position), None
        session = run.open()
        state = restored_state(run, session, request.checkpoint, warn)
        policy = agent_policy(session, state, False, request.search)
        phase(COMPILING)
        game = Simulator(env, cfg.reward, seed=request.seed, position=position, policy=policy)
        advisor = make_advisor(judge_of(session, state, ReviewRequest()))
        advisor(game)  # compiles
        return game, advisor

    # In another thread, so that Ctrl-C works while it compiles.
    return interruptible(begin)


def perform(
    game: Simulator, keyboard: Keyboard, leave: Callable[[Simulator], None], advise: Advisor | None = None
) -> None:
    """Let a person play until q; `leave` is called at the end of every game that has a move."""
    console = Console(highlight=False)
    note = advice = ""
    advised = None  # the frame that the advice is for
    with keyboard, _leaving(game, leave):
        while True:
            frame = game.frame
            if advise is not None and frame is not advised:
                advice, advised = advise(game), frame
            title = f"game {frame.episode + 1}   step {frame.step}"
            view = BoardView(frame, reveal=False, keys=MENU, title=title, advice=advice)
            draw(console, view, HELP, note or ("n new game   q quit" if frame.outcome else ""))
            key = keyboard.read()
            if key in ("q", "escape"):
                return
            if key == "?":
                explain(console, keyboard)
            elif key == "n":
                if game.actions:
                    leave(game)
                game.new()
                note = "new game"
            elif key != RESIZED:
                note = _act(game, KEYS.get(str(key)))


@contextlib.contextmanager
def _leaving(game: Simulator, leave: Callable[[Simulator], None]) -> Iterator[None]:
    """Leave the last game at the end of the block, also after Ctrl-C."""
    try:
        yield
    finally:
        if game.actions:
            leave(game)


def _act(game: Simulator, action: int | None) -> str:
    if game.frame.outcome:
        return "the game is over; press n for a new one"
    if action is None:
        return "no action has that key"
    if action not in game.frame.legal:
        return why_not(action, game.frame.position)
    game.act(action)
    return ""
