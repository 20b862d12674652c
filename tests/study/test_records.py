"""The files of a study: written once, read back as they were, and refused when they are damaged, foreign or newer."""

from __future__ import annotations

import dataclasses
import os
import socket
import threading
from pathlib import Path

import pytest

from hmx.config import codec
from hmx.config.schema import Config, RunConfig
from hmx.errors import HmxError
from hmx.records.artefact import NewerSchema, sealed
from hmx.records.atomic import create
from hmx.study.folder import create_settings, read_settings, read_study, settings_file
from hmx.study.records import (
    CONFIRMED,
    PROPOSAL,
    Confirmation,
    Objective,
    Promotion,
    RungResult,
    StudySettings,
    Trial,
    confirmation_folder,
    numbers_of,
    promotion_file,
    ranges_of,
    read_record,
    rung_file,
    trial_folder,
    write_once,
)
from hmx.study.space import parse_space

SETTINGS = StudySettings(
    space=parse_space(["algo.learning_rate=1e-4..1e-2:log", "net.hidden=64,64|32", "net.activation=tanh|relu"]),
    objective=Objective(measure="steps_to", threshold=0.1, maximize=False),
    trials=60, rungs=(1 / 9, 1 / 3, 1.0), sampler_seed=7, synchronous=True, confirm_top=3, confirm_seeds=10,
    versions={"jax": "0.10.2", "orbax-checkpoint": "1"},
)  # fmt: skip


VALUES = {"algo.learning_rate": 0.001, "net.hidden": [32], "net.activation": "tanh"}


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study of one configuration without trials."""
    folder = tmp_path / "study"
    (folder / "configs").mkdir(parents=True)
    (folder / "configs" / "base.toml").write_text(codec.to_toml(Config(run=RunConfig(num_seeds=2))))
    create_settings(folder, SETTINGS)
    return folder


def propose(study: Path, number: int, **more: object) -> Path:
    folder = trial_folder(study, number)
    proposal = Trial(number=number, values=VALUES, sampler="random", revision=1, **more)
    assert write_once(folder / PROPOSAL, proposal)
    return folder


def result(rung: int, objective: float | None, failed: str = "") -> RungResult:
    return RungResult(
        rung=rung, update=rung + 1, env_steps=100, per_seed=(objective, None), objective=objective, failed=failed
    )


def test_settings_are_read_as_they_were_written(study: Path) -> None:
    assert read_settings(study, 1) == SETTINGS


def test_newest_settings_hold(study: Path) -> None:
    for revision in range(2, 11):
        create_settings(study, dataclasses.replace(SETTINGS, revision=revision, trials=60 + revision))
    found = read_study(study)
    assert [one.trials for one in found.history] == [60, *range(62, 71)]
    assert found.settings.revision == 10


def test_only_the_first_of_many_writers_creates_a_file(tmp_path: Path) -> None:
    path, won = tmp_path / "file", list[int]()
    barrier = threading.Barrier(8)

    def write(number: int) -> None:
        barrier.wait()
        if create(path, f"{number}" * 1000):
            won.append(number)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert path.read_text() == f"{won[0]}" * 1000
    assert [other.name for other in tmp_path.iterdir()] == ["file"]


def test_study_is_read_with_results_promotions_and_confirmations(study: Path) -> None:
    one = propose(study, 1)
    write_once(rung_file(one, 0), result(0, 2.5))
    write_once(promotion_file(one, 1), Promotion(rung=1, seen="1-2"))
    two = propose(study, 2, seen=("1",))
    write_once(rung_file(two, 0), result(0, None, failed="loss is not finite"))
    propose(study, 3, refused="too large")
    chosen = Confirmation(trial=1, seeds=(3, 4), seen="1")
    write_once(confirmation_folder(study, 1) / CONFIRMED, chosen)
    found = read_study(study)
    assert [trial.number for trial in found.trials] == [1, 2, 3]
    assert [trial.number for trial in found.accepted] == [1, 2]
    assert [trial.promoted for trial in found.trials] == [1, 0, 0]
    assert [trial.open for trial in found.trials] == [True, False, False]
    assert found.trials[0].rungs == (result(0, 2.5),)
    assert found.trials[1].failed == "loss is not finite"
    assert found.trials[1].seen == ("1",)
    (confirmation,) = found.confirmations
    assert (confirmation.trial, confirmation.seeds, confirmation.result) == (1, (3, 4), None)


def test_study_read_again_has_the_new_files(study: Path) -> None:
    one = propose(study, 1)
    before = read_study(study)
    write_once(rung_file(one, 0), result(0, 1.0))
    propose(study, 2)
    assert read_study(study, before) == read_study(study)


def test_best_trials_are_those_of_the_highest_rung(study: Path) -> None:
    for number, objectives in {1: (5.0,), 2: (4.0, 1.0), 3: (6.0, 2.0), 4: (None,), 5: (5.0,)}.items():
        folder = propose(study, number)
        for rung, objective in enumerate(objectives):
            write_once(rung_file(folder, rung), result(rung, objective))
    found = read_study(study)
    assert [trial.number for trial in found.best()] == [2, 3, 1, 5, 4]  # fewer steps to the threshold are better


def test_a_decision_is_never_changed(study: Path) -> None:
    folder = propose(study, 1)
    assert not write_once(folder / PROPOSAL, Trial(number=1, values={}, sampler="grid", revision=2))
    assert read_record(Trial, folder / PROPOSAL).sampler == "random"


def test_changed_byte_in_a_decision_is_reported_with_its_file(study: Path) -> None:
    folder = propose(study, 1)
    path = folder / PROPOSAL
    path.write_text(path.read_text().replace("0.001", "0.002"))
    with pytest.raises(HmxError, match=r"0001/trial\.json is damaged: its content has changed") as damaged:
        read_study(study)
    assert damaged.value.exit_code == 3


@pytest.mark.parametrize("text", ["", "{", "[]", sealed({"schema": 1, "number": 1}), sealed({"schema": 1, "my": 2})])
def test_file_of_another_kind_is_reported(study: Path, text: str) -> None:
    folder = propose(study, 1)
    (folder / PROPOSAL).write_text(text)
    with pytest.raises(HmxError, match=r"0001/trial\.json") as damaged:
        read_study(study)
    assert damaged.value.exit_code == 3


def test_copied_trial_is_reported(study: Path) -> None:
    propose(study, 1).rename(trial_folder(study, 4))
    with pytest.raises(HmxError, match=r"0004/trial\.json is of trial 1"):
        read_study(study)


def test_files_of_a_newer_hmx_are_refused(study: Path) -> None:
    folder = propose(study, 1)
    (folder / PROPOSAL).write_text(sealed({"schema": 2, "kind": "new"}))
    with pytest.raises(NewerSchema, match="written by a newer hmx"):
        read_study(study)
    path = settings_file(study, 1)
    path.write_text(path.read_text().replace("schema = 1", "schema = 2", 1))
    with pytest.raises(NewerSchema, match=r"study\.1\.toml has schema 2"):
        read_study(study)


@pytest.mark.parametrize("place", ["trials", "trials/0001", "confirm", "confirm/0001", "configs"])
def test_a_link_inside_a_study_is_refused_and_one_to_a_study_is_followed(study: Path, place: str) -> None:
    propose(study, 1)
    confirmation_folder(study, 1).mkdir(parents=True)
    link = study.with_name("link")
    link.symlink_to(study)
    assert read_study(link).trials[0].number == 1
    (study / place).rename(study.with_name("outside"))
    (study / place).symlink_to(study.with_name("outside"))
    with pytest.raises(HmxError, match=f"cannot read .*{place}: a link instead of a folder") as refused:
        read_study(study)
    assert refused.value.exit_code == 3


@pytest.mark.parametrize("place", ["study.1.toml", "configs/base.toml", "trials/0001/trial.json", "trials/0001"])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "folder", "large"])
def test_only_regular_files_of_a_study_are_read(
    study: Path, place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pipe would block the reader, and a device or a sparse file fill the memory."""
    propose(study, 1)
    path = study / place
    path.rename(study.with_name("old"))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # the name of a socket is short
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir() if path.suffix else path.touch()
    else:
        with path.open("wb") as file:
            file.truncate(1 << 34)
    with pytest.raises(HmxError, match=f"cannot read .*{place}: ") as refused:
        read_study(study)
    assert refused.value.exit_code == 3


def test_other_files_and_folders_are_ignored(study: Path) -> None:
    (propose(study, 1) / "notes.txt").write_text("x")
    (trial_folder(study, 1) / ".rung-0.json.tmp-1-ab").write_text("torn")
    (study / "trials" / "old").mkdir()
    (study / "trials" / "0009").mkdir()  # made by a process that was killed before it wrote the proposal
    (study / "trials" / "README").write_text("x")
    assert [trial.number for trial in read_study(study).trials] == [1]


@pytest.mark.parametrize("missing", ["study.1.toml", "configs/base.toml"])
def test_folder_of_another_kind_is_refused(study: Path, missing: str) -> None:
    (study / missing).unlink()
    with pytest.raises(HmxError, match="is not a study: it has no") as refused:
        read_study(study)
    assert refused.value.exit_code == 3


def test_missing_study_is_reported(tmp_path: Path) -> None:
    with pytest.raises(HmxError, match="there is no study"):
        read_study(tmp_path / "none")


def test_full_disk_is_one_error(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("hmx.records.atomic.os.fsync", full)
    with pytest.raises(HmxError, match=r"cannot write .*0001/trial\.json: no space left on device") as failed:
        propose(study, 1)
    assert failed.value.exit_code == 3
    assert not list(trial_folder(study, 1).iterdir())


def test_ranges_of_numbers_are_written_and_read() -> None:
    numbers = [1, 2, 3, 7, 9, 10]
    assert ranges_of(numbers) == "1-3,7,9-10"
    assert numbers_of("1-3,7,9-10") == numbers
    assert numbers_of(ranges_of([])) == []
