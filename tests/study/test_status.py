"""Reading a large study: how much is read, and what is imported for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from hmx.config import codec
from hmx.config.schema import Config
from hmx.records import atomic, meta
from hmx.study.folder import create_settings, read_study
from hmx.study.records import (
    PROPOSAL,
    Promotion,
    RungResult,
    StudySettings,
    Trial,
    promotion_file,
    rung_file,
    trial_folder,
    write_once,
)
from hmx.study.space import parse_space
from hmx.study.status import study_status


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of three trials: one was promoted, one is paused, and one has only begun."""
    folder = tmp_path / "lr"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "base.toml").write_text(codec.to_toml(Config()))
    create_settings(folder, StudySettings(space=parse_space(["algo.gamma=0.9..0.99"]), trials=3, rungs=(0.5, 1.0)))
    for number, rungs in {1: 2, 2: 1, 3: 0}.items():
        place = trial_folder(folder, number)
        proposal = Trial(number=number, values={"algo.gamma": 0.95}, sampler="random", revision=1)
        write_once(place / PROPOSAL, proposal)
        atomic.write_text(place / "meta.json", meta.to_text(meta.changed(meta.collect("cpu", []), cpu_seconds=2.5)))
        for rung in range(rungs):
            result = RungResult(rung=rung, update=rung + 1, env_steps=100, per_seed=(1.0,), objective=1.0)
            write_once(rung_file(place, rung), result)
    write_once(promotion_file(trial_folder(folder, 1), 1), Promotion(rung=1, seen="1-2"))
    return folder


@pytest.fixture
def opened(study: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of the study was opened."""
    count: Counter[str] = Counter()
    system = os.open

    def counted(path: str | Path, *more: object, **given: object) -> int:
        if not (more and isinstance(more[0], int) and more[0] & os.O_DIRECTORY):
            count[os.path.relpath(path, study)] += 1
        return system(path, *more, **given)

    monkeypatch.setattr(os, "open", counted)
    return count


def test_status_opens_each_file_of_a_trial_once(study: Path, opened: Counter[str]) -> None:
    assert study_status(study).cpu_seconds == 7.5
    files = {str(path.relative_to(study)) for path in (study / "trials").rglob("*") if path.is_file()}
    locks = {f"trials/{name}/lock" for name in ("0003",)}  # only a trial with training to do may be held
    assert {path: times for path, times in opened.items() if path.startswith("trials")} == dict.fromkeys(
        files | locks, 1
    )


def test_worker_that_reads_again_opens_only_new_files_of_trials(study: Path, opened: Counter[str]) -> None:
    before = read_study(study)
    opened.clear()
    place = trial_folder(study, 3)
    write_once(rung_file(place, 0), RungResult(rung=0, update=1, env_steps=100, per_seed=(1.0,), objective=1.0))
    opened.clear()
    assert len(read_study(study, before).trials[2].rungs) == 1
    assert opened == {"trials/0003/rung-0.json": 1}


def test_status_and_report_do_not_import_jax(study: Path) -> None:
    """In a process of its own: importing JAX takes longer than reading 2,000 trials."""
    code = (
        "import sys; from hmx.cli.app import app\n"
        f"for command in ('status', 'report'): app(['study', command, {str(study)!r}], standalone_mode=False)\n"
        "print({'jax', 'jaxlib', 'orbax', 'scipy'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
