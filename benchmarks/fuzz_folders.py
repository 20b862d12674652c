"""Readers for `fuzz_readers.py` of studies, gates, running episodes, caches, saved games and logs of other programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.gates import records as gates
from hmx.gates.records import decide
from hmx.gates.report import gate_status, status
from hmx.gates.verify import verify_gate
from hmx.gates.worker import Score, recorded_pairs
from hmx.runs.lowered import SUFFIX, LoweredPrograms
from hmx.simulators import journal
from hmx.simulators.spaces import Facts
from hmx.study.confirm import confirmations_due
from hmx.study.folder import read_study
from hmx.study.halving import promotions
from hmx.study.records import Objective, write_once
from hmx.study.samplers import complete_revisions, known_before, next_turn, propose
from hmx.study.space import with_values
from hmx.study.state import standing
from hmx.study.status import study_status
from hmx.study.verify import verify_study

sys.path[:0] = [str(Path(__file__).parents[1] / place) for place in ("tests/study", "tests")]  # for `made_studies`

FACTS = Facts((4,), "float32", (3, 2), 0, 0, True, "")
STUDY_FILES = {
    "settings": "study.1.toml",
    "trial": "trials/0001/trial.json",
    "rung": "trials/0001/rung-0.json",
    "promotion": "trials/0001/promote-1.json",
    "confirmation": "confirm/0001/confirm.json",
}

GATE_FILES = {
    "gate": "gate.json",
    "attempt": "attempts/0001/attempt.json",
    "verdict": "attempts/0001/verdict.json",
    "adoption": "attempts/0001/adopted.json",
    "score": "attempts/0001/runs/0000/score.json",
}


def make_study(folder: Path) -> Path:
    """Make a study of two trials, with a file of every kind."""
    from made_studies import small_study  # type: ignore[import-not-found]  # of tests/study

    made: Path = small_study(folder, trials=3)
    return made


def use_study(folder: Path) -> Any:
    """Do with a study all that commands do without training."""
    study = read_study(folder)
    study_status(folder)
    verify_study(folder)
    list(promotions(study, complete_revisions(study)))
    list(confirmations_due(study))
    standing(study)
    for trial in study.trials:
        with_values(study.configs, trial.values)
    turn = next_turn(study)
    if turn is not None and (seen := known_before(study, turn)) is not None:
        propose(study, turn, seen)
    standing(study)
    return study


def make_gate(folder: Path) -> Path:
    """Make a gate of commands with an attempt that was kept and adopted."""
    settings = gates.GateSettings(objective=Objective(metric="score"), max_seeds=8, error=0.4, attempts=1)
    write_once(folder / gates.SETTINGS, settings)
    for number in range(2):
        program = gates.GateProgram(text=f"{number}", digest=f"{number}", command=("true", "{seed}", "{file}"))
        one = gates.Attempt(number=number, program=program, baseline=0, first_seed=0, level=0.2 * number)
        place = gates.attempt_folder(folder, number)
        write_once(place / gates.ATTEMPT, one)
        for seed in range(8):
            write_once(place / gates.RUNS / f"{seed:04d}" / gates.SCORE, Score(float(seed % 3 + 9 * number)))
    gate = gates.read_gate(folder)
    write_once(place / gates.VERDICT, decide(gate, gate.attempts[1], recorded_pairs(gate, gate.attempts[1], 8)))
    write_once(place / gates.ADOPTED, gates.Adoption(order=1))
    return folder


def use_gate(folder: Path) -> Any:
    """Do with a gate all that commands do without training."""
    gate = gates.read_gate(folder)
    status(gate_status(gate), gate)
    verify_gate(gate)
    return gate


def within(place: Path, use: Callable[[], Any]) -> Callable[[Path], Any]:
    """Return a reader that puts a file where others expect it, uses them all, and puts the good one back."""
    good = place.read_bytes()

    def read(path: Path) -> Any:
        place.write_bytes(path.read_bytes())
        try:
            return use()
        finally:
            place.write_bytes(good)

    return read


def good_episodes(folder: Path) -> bytes:
    """Running episodes of two environments."""
    folder.mkdir()
    saved = journal.SavedEpisodes(
        np.array([0, 7]), np.array([2, 1]), np.array([5, 6], np.uint32), np.array([[0, 1], [2, 0], [1, 1]], np.int32),
        np.array([0, 3]), np.array([1, 2, 3], np.uint8),
    )  # fmt: skip
    saved.write(folder)
    return (folder / "episodes.npz").read_bytes()


def read_episodes(path: Path) -> Any:
    """Running episodes, and those of each environment."""
    saved = journal.read(path.parent, FACTS, 2)
    return [saved.of(env) for env in range(2)]


def stored_program(folder: Path) -> tuple[Path, Callable[[], Any]]:
    """Store a small program; return its file, and how to find it."""
    folder.mkdir()
    programs, arguments = LoweredPrograms(folder, "fuzz"), (np.float32(1),)
    programs.add("double", jax.jit(lambda x: 2 * jnp.asarray(x)), *arguments)
    (path,) = folder.glob(f"*{SUFFIX}")
    return path, lambda: programs.find("double", *arguments)


GAME = {
    "schema": 1, "seed": 3, "episode": 2, "rules": "designed", "undo_depth": 4, "actions": ["up", "siphon"],
    "outcome": "unfinished", "total": 0.5, "position": {"player": {"row": 0, "col": 0}},
}  # fmt: skip
PANEL = b'"Step","a - loss","a - loss__MIN","b - loss"\n"10","1.5","0","NaN"\n"20","","","2.5"\n'
MONITOR = f"#{json.dumps({'t_start': 10.5, 'env_id': 'x'})}\nr,l,t\n1.5,10,1.25\n-2.0,20,3.5\n".encode()


def rows_of(data: bytes) -> list[list[str]]:
    """Return the cells of a CSV file."""
    return [line.split(",") for line in data.decode().split("\n")]


def as_rows(tree: Any) -> bytes:
    """Write anything as CSV."""
    rows = tree if isinstance(tree, list) else [tree]
    return "\n".join(",".join(map(str, row)) if isinstance(row, list) else str(row) for row in rows).encode(
        "utf-8", "surrogatepass"
    )
