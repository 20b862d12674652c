"""Gates whose sides are commands, which take milliseconds, and one of real runs."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hmx.gates.campaign import Change, new_gate, try_change
from hmx.gates.records import Attempt, GateRequest, Ledger
from hmx.gates.worker import PairTrainer

TRAINER = """
import json, random, sys
seed, file, gain = int(sys.argv[1]), sys.argv[2], sys.argv[3]
noise = random.Random(f"{seed} {gain}").gauss(0, 1)
with open(file, "w") as out:
    json.dump({"score": noise + float(gain), "seed": seed}, out)
"""
REQUEST = GateRequest(metric="score", max_seeds=10, error=0.4, attempts=1)


def trainer_of(gain: str) -> tuple[str, ...]:
    """Return the command of a trainer in `train.py` whose score is its gain and noise."""
    return (sys.executable, "-S", "train.py", "{seed}", "{file}", gain)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...]]:
    """Writes `train.py`, and returns its command by the gain."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINER)
    return trainer_of


@pytest.fixture
def quick_trainer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the trainer run in this process; other commands, and a trainer that fails, run as they do."""
    run = PairTrainer._run

    def run_here(self: PairTrainer, command: Sequence[str], environ: Any, place: Path, log: Path) -> None:
        if command[2] == "train.py":
            with contextlib.suppress(Exception), monkeypatch.context() as patch:
                patch.setattr(sys, "argv", list(command[2:]))
                exec((place / "train.py").read_text(), {})
                return
        run(self, command, environ, place, log)

    monkeypatch.setattr(PairTrainer, "_run", run_here)


@pytest.fixture
def gate(tmp_path: Path, trainer: Callable[[str], tuple[str, ...]]) -> Ledger:
    """A gate whose baseline is the trainer without a gain; its first level is 0.2."""
    return new_gate(tmp_path / "gates" / "g", REQUEST, command=trainer("0"))


@pytest.fixture
def attempt(trainer: Callable[[str], tuple[str, ...]]) -> Callable[[Ledger, str], tuple[Ledger, Attempt]]:
    """Tries a gain of the trainer."""
    return lambda gate, gain: try_change(gate, Change(command=trainer(gain)))
