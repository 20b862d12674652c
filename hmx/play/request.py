"""The requests of `hmx watch` and `hmx play`; imports nothing heavy, since the command line is built from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hmx.config.option import MAX_SEED, OUTPUT_PANEL, checkpoint_option, opt, search_option

GAME_PANEL = "Game"


@dataclass(frozen=True, kw_only=True)
class GameRequest:
    """A game that is played or watched."""

    seed: int = opt(0, "seed of the game", ge=0, le=MAX_SEED, panel=GAME_PANEL)
    search: int | None = search_option(GAME_PANEL)
    checkpoint: int | None = checkpoint_option(GAME_PANEL)
    scenario: Path | None = opt(
        None, "start from the position in a JSON file (docs/hackmatrix.md)", metavar="FILE", panel=GAME_PANEL
    )


@dataclass(frozen=True, kw_only=True)
class WatchRequest(GameRequest):
    """What to watch, and how to show it."""

    random: bool = opt(False, "watch random play instead of an agent", panel=GAME_PANEL)
    episodes: int = opt(1, "number of episodes to show", ge=1, short="-n", panel=GAME_PANEL)
    greedy: bool = opt(False, "take the most probable action instead of sampling", panel=GAME_PANEL)
    delay: float = opt(0.4, "pause between steps in a terminal", "seconds", ge=0, metavar="SECONDS", panel=OUTPUT_PANEL)
    step: bool = opt(False, "wait for Enter before every step", panel=OUTPUT_PANEL)
    save: Path | None = opt(
        None, "save the episodes as an animation instead: .gif, .svg or .html", metavar="FILE", panel=OUTPUT_PANEL
    )
    force: bool = opt(False, "with --save: replace an existing file", panel=OUTPUT_PANEL)


@dataclass(frozen=True, kw_only=True)
class PlayRequest(GameRequest):
    """What to play with."""

    advise: str | None = opt(
        None, "show what the agent of a run would do, and how sure it is", metavar="RUN", panel=GAME_PANEL
    )
    games: Path = opt(
        Path("games"), "folder in which every game is saved for hmx review", metavar="FOLDER", panel=GAME_PANEL
    )
