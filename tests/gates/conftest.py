"""Gates whose sides are commands, which take milliseconds, and one of real runs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hmx.gates.campaign import Change, new_gate, try_change
from hmx.gates.records import Attempt, GateRequest, Ledger

TRAINER = """
import json, random, sys
seed, file, gain = int(sys.argv[1]), sys.argv[2], sys.argv[3]
noise = random.Random(f"{seed} {gain}").gauss(0, 1)
json.dump({"score": noise + float(gain), "seed": seed}, open(file, "w"))
"""


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], tuple[str, ...]]:
    """Returns the command of a trainer whose score is its gain and noise."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(TRAINER)
    return lambda gain: (sys.executable, "-S", "train.py", "{seed}", "{file}", gain)


@pytest.fixture
def gate(tmp_path: Path, trainer: Callable[[str], tuple[str, ...]]) -> Ledger:
    """A gate whose baseline is the trainer without a gain; its first level is 0.2."""
    request = GateRequest(metric="score", max_seeds=10, error=0.4, attempts=1)
    return new_gate(tmp_path / "gates" / "g", request, command=trainer("0"))


@pytest.fixture
def attempt(trainer: Callable[[str], tuple[str, ...]]) -> Callable[[Ledger, str], tuple[Ledger, Attempt]]:
    """Tries a gain of the trainer."""
    return lambda gate, gain: try_change(gate, Change(command=trainer(gain)))
