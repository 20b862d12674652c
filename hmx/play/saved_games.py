"""Games of HackMatrix that a person played, as files: the seed and the actions, from which the game is played again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import jax
import numpy as np

from hmx.config.files import words
from hmx.config.option import MAX_SEED
from hmx.config.schema import EnvConfig, RewardWeights
from hmx.config.textfile import quoted, read_text
from hmx.envs.hackmatrix.entry import GameRules
from hmx.envs.hackmatrix.rules.tables import ACTION_NAMES
from hmx.errors import ExitCode, HmxError
from hmx.play.simulator import Simulator
from hmx.records import atomic
from hmx.records.atomic import writing
from hmx.records.plain import plain_object, typed
from hmx.reports.review.job import PlayedGame
from hmx.reports.review.judge import GamePositions

SCHEMA = 1
_MOST = 10_000  # files of one seed
_LARGEST = {"seed": MAX_SEED, "episode": 100_000, "undo_depth": 64}


@dataclass(frozen=True, kw_only=True)
class SavedGame:
    """A game: the same seed, rules and actions give the same positions with the same version of hmx."""

    schema: int = SCHEMA
    seed: int
    episode: int
    rules: GameRules
    undo_depth: int
    actions: tuple[str, ...]
    outcome: str
    total: float
    position: Mapping[str, object] | None = None  # the scenario it began from


def saved_game(game: Simulator) -> SavedGame:
    """Return the current game of a simulator."""
    return SavedGame(
        seed=game.seed,
        episode=game.frame.episode,
        rules=game.env.rules,
        undo_depth=game.env.undo_depth,
        actions=tuple(ACTION_NAMES[action] for action in game.actions),
        outcome=game.frame.outcome or "unfinished",
        total=game.frame.episode_return,
        position=game.position,
    )


def save(game: SavedGame, folder: Path) -> Path:
    """Write a game to a new file in a folder, and return its path.

    Raises:
        HmxError: it cannot be written.
    """
    with writing("the game", folder):
        folder.mkdir(parents=True, exist_ok=True)
        names = (folder / f"hackmatrix-s{game.seed}-{number:03d}.json" for number in range(1, _MOST))
        path = next(path for path in names if not path.exists())
        atomic.write_bytes(path, (json.dumps(plain_object(game)) + "\n").encode())
    return path


def read(path: Path) -> SavedGame:
    """Read a saved game.

    Raises:
        HmxError: it cannot be read (exit code 3), or is not a saved game (2).
    """
    name, hint = quoted(str(path)), "give a file that hmx play has saved"
    try:
        game = _game(json.loads(read_text(path)))
    except OSError as problem:
        why = words(problem)
        raise HmxError(f"cannot read {name}: {why}", hint, ExitCode.ARTEFACT) from None
    except (ValueError, TypeError, RecursionError):
        raise HmxError(f"cannot review {name}: not a saved game", hint) from None
    unknown = [action for action in game.actions if action not in ACTION_NAMES]
    if unknown or not game.actions:
        what = f"unknown action {quoted(str(unknown[0]))}" if unknown else "no move"
        raise HmxError(f"cannot review {name}: it has {what}", hint)
    return game


def _game(data: object) -> SavedGame:
    """Return a saved game from JSON; raise ValueError or TypeError for anything else."""
    game = typed(SavedGame, data)
    if game.schema != SCHEMA or any(getattr(game, name) > largest for name, largest in _LARGEST.items()):
        raise ValueError("not a saved game")
    return game


def replayed(saved: SavedGame, name: str, env: EnvConfig) -> PlayedGame:
    """Play a saved game again, with the observations of `env`.

    Raises:
        HmxError: an action is not legal: another version of hmx saved the game.
    """
    game = Simulator(env, RewardWeights(), seed=saved.seed, position=saved.position)
    game.new(saved.episode)
    seen = []
    for step, action_name in enumerate(saved.actions):
        action = ACTION_NAMES.index(action_name)
        if action not in game.frame.legal:
            hint = "review it with the version of hmx that saved it"
            raise HmxError(f"cannot play {name} again: {action_name} is not legal at step {step}", hint)
        seen.append(jax.device_get(game.seen()))
        game.act(action)
    states = jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=-1), *(state for state, _, _ in seen))
    obs, legal = (np.concatenate([one[part] for one in seen]) for part in (1, 2))
    taken = np.array([[ACTION_NAMES.index(action)] for action in saved.actions], np.int32)
    return PlayedGame(name, GamePositions(states, obs, legal, taken), saved.outcome, saved.total)
