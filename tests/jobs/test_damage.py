"""Damage every file of a run folder in every way, and check what verify, evaluate and resume do.

The state that evaluate and resume use is compared bit for bit with that of the undamaged checkpoint. The commands stop
before they compile, since what follows does not depend on the damage.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from damages import DAMAGES, WAYS, delete, empty, flip_early, flip_late, folder, link_to_a_copy_outside, link_to_nothing
from folders import contents

from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs import evaluate as evaluates
from hmx.jobs import resume as resumes
from hmx.jobs import runs
from hmx.jobs.evaluation import write_evaluation
from hmx.records import atomic, checkpoints, jsonl, score_file
from hmx.records import meta as metas
from hmx.records.artefact import sealed, write_sealed
from hmx.records.frozen import config_fault, read_config
from hmx.records.owner import this_process
from hmx.records.paths import RunPaths
from hmx.records.score_file import ScoreHeader
from hmx.records.sealed_arrays import ArrayForm, StoredArray
from hmx.registry.load import Loaded
from hmx.runs.checkpoint import to_host
from hmx.runs.event_files import EventFiles
from hmx.runs.restoring import restore
from hmx.runs.session import Session, open_session
from hmx.runs.training import Training


class Went(NamedTuple):
    """What a command did."""

    update: int
    leaves: dict[str, np.ndarray[Any, Any]]
    warnings: tuple[str, ...]


@functools.cache
def opened(cfg: Config) -> Session:
    """Build a session once, since compiling takes most of the time of these tests."""
    return open_session(cfg)


def session_of(task: Loaded, *given: Any) -> Session:
    """Open a session as the jobs do."""
    return opened(task.config)


@pytest.fixture(scope="session")
def pristine(unpack: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all that one can have: a report, and the lock of a process that was killed."""
    paths: RunPaths = unpack(2, tmp_path_factory.mktemp("pristine"))
    write_sealed(paths.reports / "evaluation.json", {"schema": 2, "policies": []})
    owner = {"host": this_process().host, "pid": 1, "started": "0", "boot": this_process().boot, "since": metas.now()}
    paths.lock.write_text(sealed({"schema": 1, **owner}))
    return paths.folder


@pytest.fixture(scope="session")
def states(pristine: Path) -> dict[int, dict[str, np.ndarray[Any, Any]]]:
    """What the two checkpoints hold."""
    paths = RunPaths(pristine.parent, pristine.name)
    session = opened(read_config(paths))
    return {update: to_host(restore(session, paths, update).state) for update in (2, 4)}


@pytest.fixture
def run(pristine: Path, tmp_path: Path) -> RunPaths:
    shutil.copytree(pristine, tmp_path / "runs" / "corridor", symlinks=True)
    return RunPaths(tmp_path / "runs", "corridor")


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """evaluate and resume up to the moment at which they would compile."""
    seen: dict[str, Any] = {}

    def play(session: Session, episodes: int, *others: object) -> Any:
        def one(state: Any, *played: Any) -> list[Any]:
            seen.update(state=state)
            return []

        return one

    def run_session(training: Training, start: Any, first: int, **more: Any) -> Went:
        return Went(first, to_host(start()), tuple(training.sink_group.warnings))

    monkeypatch.setattr(evaluates, "make_player", play)
    monkeypatch.setattr(resumes, "run_session", run_session)
    for module in (evaluates, resumes):
        monkeypatch.setattr(module, "open_task", session_of)
        monkeypatch.setattr(module, "enable_cache", lambda: None)

    def evaluate(paths: RunPaths) -> Went:
        result = evaluates.evaluate(paths.folder, policies=("sampled",))
        return Went(result.checkpoint, to_host(seen["state"]), result.warnings)

    return SimpleNamespace(evaluate=evaluate, resume=lambda paths: resumes.resume(paths.folder))


def files_of_checkpoint() -> list[str]:
    """Every file of the newest checkpoint, by its path in the run folder."""
    with tarfile.open(Path(__file__).parents[1] / "data" / "run-schema-2.tar.gz") as archive:
        names = [member.name.partition("/")[2] for member in archive if member.isfile()]
    return sorted(name for name in names if name.startswith("checkpoints/4/"))


def same(went: Went, states: dict[int, dict[str, np.ndarray[Any, Any]]]) -> bool:
    wanted = states[went.update]
    return list(wanted) == list(went.leaves) and all(
        wanted[name].dtype == leaf.dtype and wanted[name].tobytes() == leaf.tobytes()
        for name, leaf in went.leaves.items()
    )


def test_intact_run_verifies_evaluates_and_resumes(run: RunPaths, commands: SimpleNamespace, states: Any) -> None:
    found = runs.verify(run.folder)
    assert (found.damage, found.intact) == ((), (2, 4))
    assert [note.path for note in found.notes] == ["lock"]
    for command in (commands.evaluate, commands.resume):
        went = command(run)
        assert went.update == 4
        assert same(went, states)
    # The archived run was made with the pinned versions.
    warnings = [text for text in went.warnings if not text.startswith("versions have changed")]
    assert warnings == [f"removed the stale lock {run.lock} of process 1 on {this_process().host}, which is gone"]
    assert len(files_of_checkpoint()) == len([p for p in run.checkpoint(4).rglob("*") if p.is_file()]) > 10


def test_a_changed_byte_in_any_file_of_a_checkpoint_is_found(run: RunPaths, tmp_path: Path) -> None:
    for file in files_of_checkpoint():
        victim = run.folder / file
        data = victim.read_bytes()
        flip_late(victim, tmp_path / "outside")
        (place,) = runs.verify(run.folder).damage
        assert place.path == "checkpoints/4" and victim.name in place.what
        newest, broken = checkpoints.newest_intact(run.checkpoints)
        assert newest == run.checkpoint(2) and victim.name in broken[run.checkpoint(4)][0]
        victim.write_bytes(data)
    assert runs.verify(run.folder).damage == ()


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (next(file for file in files_of_checkpoint() if "/d/" in file), flip_late),
        *((f"checkpoints/4/{name}", way) for name in ("manifest.json", "run.toml") for way in DAMAGES),
    ],
)
def test_a_damaged_checkpoint_is_reported_and_the_older_one_used(
    file: str, damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    victim = run.folder / file
    damage(victim, tmp_path / "outside")
    found = runs.verify(run.folder)
    assert {place.path for place in found.damage} == {"checkpoints/4"}
    assert any(victim.name in place.what for place in found.damage)
    assert found.intact == (2,)
    for command in (commands.evaluate, commands.resume):
        went = command(run)
        assert went.update == 2
        assert same(went, states)
        (warning,) = [text for text in went.warnings if text.startswith("checkpoint")]
        assert "checkpoint 4 is damaged" in warning
        assert victim.name in warning
        assert "checkpoint 2 is used instead" in warning
    (entry,) = metas.read(run.meta).resumes
    assert victim.name in entry.damaged["4"]
    assert [p.name for p in checkpoints.listing(run.checkpoints)] == ["2"]
    assert jsonl.survey(run.metrics).last == 2
    assert runs.verify(run.folder).damage == ()


@WAYS
def test_a_damaged_configuration_is_refused_with_the_command_that_restores_it(
    damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    if damage in (flip_early, flip_late):
        # Most of the file is comments; a change in what it means is another matter than one in what it says.
        for value in ("gamma = 0.99", "slip = 0.1")[damage is flip_late :]:
            text = run.config.read_text()
            assert f"\n{value}\n" in text
            run.config.write_text(text.replace(f"\n{value}\n", f"\n{value[:-1]}{chr(ord(value[-1]) ^ 1)}\n"))
    else:
        damage(run.config, tmp_path / "outside")
    run.lock.unlink()
    before = contents(run.folder)
    found = runs.verify(run.folder)
    assert [place.path for place in found.damage] == ["run.toml"]
    assert found.intact == (2, 4)
    for command in (commands.evaluate, commands.resume):
        with pytest.raises(HmxError, match=r"run\.toml") as caught:
            command(run)
        assert caught.value.exit_code == ExitCode.ARTEFACT
        assert "restore the copy of checkpoint 4: " in caught.value.hint
    assert contents(run.folder) == before
    if damage is flip_early:
        assert "algo.gamma: 0.99 became 0.98" in caught.value.message
        assert "env.slip: 0.1 became 0.0" in caught.value.message
        assert f"hmx resume {run.folder} --set KEY=VALUE" in caught.value.hint
    remedy = caught.value.hint.partition("checkpoint 4: ")[2].partition(";")[0]
    subprocess.run(["sh", "-c", remedy], check=True)
    assert runs.verify(run.folder).damage == ()
    went = commands.resume(run)
    assert went.update == 4
    assert same(went, states)


def test_every_changed_byte_of_the_configuration_is_detected(run: RunPaths) -> None:
    data, meant = run.config.read_bytes(), read_config(run)
    same_meaning = 0
    for at in range(0, len(data), 67):
        run.config.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        fault = config_fault(run, exact=True)
        assert fault is not None
        assert fault.exit_code == ExitCode.ARTEFACT
        if config_fault(run) is None:
            assert read_config(run) == meant
            same_meaning += 1
    assert 0 < same_meaning < len(data) // 67


@WAYS
def test_damaged_meta_data_are_restored_from_a_checkpoint(
    damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    created = metas.read(run.meta).created
    damage(run.meta, tmp_path / "outside")
    assert [place.path for place in runs.verify(run.folder).damage] == ["meta.json"]
    assert [row.state for row in runs.list_runs(run.root).runs] == ["unknown"]
    went = commands.evaluate(run)
    assert (went.update, went.warnings) == (4, ())
    went = commands.resume(run)
    assert went.update == 4
    assert same(went, states)
    (warning,) = [text for text in went.warnings if "meta.json" in text]
    assert "the copy in checkpoint 4 is used" in warning
    meta = metas.read(run.meta)
    assert meta.created == created
    assert warning in meta.resumes[0].notes
    assert runs.verify(run.folder).damage == ()
    assert os.listdir(tmp_path) in (["runs"], ["outside", "runs"], ["runs", "outside"])


@WAYS
def test_intact_lines_of_damaged_metrics_are_kept(
    damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    whole = run.metrics.read_bytes()
    damage(run.metrics, tmp_path / "outside")
    found = runs.verify(run.folder)
    assert {place.path for place in found.damage} == {"metrics.jsonl"}
    assert found.intact == (2, 4)
    assert runs.list_runs(run.root).runs[0].state == "interrupted"
    assert commands.evaluate(run).warnings == ()
    went = commands.resume(run)
    assert went.update == 4
    assert same(went, states)
    assert any("metrics.jsonl" in text for text in went.warnings)
    assert not run.metrics.is_symlink()
    if run.metrics.exists():
        survey = jsonl.survey(run.metrics)
        assert (survey.damaged, survey.torn, survey.repeated) == ((), False, ())
        kept = run.metrics.read_bytes().splitlines()
        assert sum(line in whole.splitlines() for line in kept) >= len(kept) - 1, "all but the one that was flipped"
    if damage is link_to_a_copy_outside:
        assert (tmp_path / "outside").read_bytes() == whole, "nothing is written through a link"


@WAYS
def test_damaged_report_is_reported_and_does_not_block(
    damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    damage(run.reports / "evaluation.json", tmp_path / "outside")
    found = runs.verify(run.folder)
    # A run that was interrupted need not have one.
    assert [place.path for place in found.damage] == ([] if damage is delete else ["reports/evaluation.json"])
    for command in (commands.evaluate, commands.resume):
        went = command(run)
        assert went.update == 4
        assert same(went, states)


@pytest.mark.parametrize("name", ["gradients.json", "scores/report.json", "scores/scores.npz"])
@WAYS
def test_damaged_scores_and_gradients_are_reported(damage: Any, name: str, run: RunPaths, tmp_path: Path) -> None:
    (run.reports / "scores").mkdir()
    for report in ("gradients.json", "scores/report.json"):
        write_sealed(run.reports / report, {"schema": 2, "values": list(range(100))})
    header = ScoreHeader(request="", size=2, total=2, horizon=1, lengths=(1,), seconds=0.0, compile_seconds=0.0)
    forms = {name: ArrayForm((2, *(2 for _ in axes)), dtype) for name, (dtype, axes) in score_file.COLUMNS.items()}
    columns = {name: StoredArray(form, bytes(form.nbytes)) for name, form in forms.items()}
    score_file.write(run.reports / "scores" / "scores.npz", header, columns)
    assert runs.verify(run.folder).damage == ()
    damage(run.reports / name, tmp_path / "outside")
    found = [place.path for place in runs.verify(run.folder).damage]
    assert found == ([] if damage is delete else [f"reports/{name}"])


@pytest.mark.parametrize("text", ["{}", "[]", '{"schema": "2"}'])
def test_a_report_without_a_schema_is_damaged(text: str, run: RunPaths) -> None:
    (run.reports / "gradients.json").write_text(text)
    assert [place.what for place in runs.verify(run.folder).damage] == ["not a report"]


@WAYS
def test_a_damaged_lock_is_replaced_or_refused(
    damage: Any, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    damage(run.lock, tmp_path / "outside")
    found = runs.verify(run.folder)
    if damage in (delete, empty):
        assert found.damage == ()
    else:
        assert [place.path for place in found.damage] == ["lock"]
    went = commands.evaluate(run)
    assert (went.update, went.warnings) == (4, ())
    if damage in (folder, link_to_a_copy_outside, link_to_nothing):
        with pytest.raises(HmxError, match="cannot lock") as caught:
            commands.resume(run)
        assert caught.value.exit_code == ExitCode.ARTEFACT
        subprocess.run(["sh", "-c", caught.value.hint.rpartition(": ")[2]], check=True)
        assert commands.resume(run).update == 4
        return
    went = commands.resume(run)
    assert went.update == 4
    assert same(went, states)
    assert any("damaged" in text for text in went.warnings) == (damage not in (delete, empty))
    assert not run.lock.exists()


def test_a_link_inside_a_run_is_not_written_through(run: RunPaths, commands: SimpleNamespace, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    run.checkpoints.rename(outside / "checkpoints")
    run.checkpoints.symlink_to(outside / "checkpoints")
    before = sorted(outside.rglob("*"))
    with pytest.raises(HmxError, match="checkpoints is a link instead of a folder") as caught:
        commands.resume(run)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert [place for place in runs.verify(run.folder).damage if place.path == "checkpoints"]
    shutil.rmtree(run.reports)
    run.reports.symlink_to(outside)
    with pytest.raises(OSError, match="a link instead of a folder"):
        write_evaluation(run, "", [])
    for seeds in (1, 2):
        link = run.events if seeds == 1 else run.events / "seed-0"
        link.symlink_to(outside)
        with pytest.raises(HmxError, match=r"cannot write TensorBoard files .*: a link instead of a folder"):
            EventFiles(run.events, seeds > 1)._writer(0)
        link.unlink()
        run.events.mkdir(exist_ok=True)
    assert sorted(outside.rglob("*")) == before


@pytest.mark.parametrize("name", ["metrics.jsonl.damaged", ".metrics.jsonl.tmp-1"])
def test_damaged_metrics_are_not_copied_through_a_link(
    name: str, run: RunPaths, commands: SimpleNamespace, tmp_path: Path
) -> None:
    (tmp_path / "outside").write_text("precious")
    (run.folder / name).symlink_to(tmp_path / "outside")
    run.metrics.write_bytes(b"torn" + run.metrics.read_bytes())
    assert commands.resume(run).update == 4
    assert (tmp_path / "outside").read_text() == "precious"
    assert (run.folder / "metrics.jsonl.damaged").read_bytes().startswith(b"torn")


@WAYS
def test_a_run_without_an_intact_checkpoint_is_refused_and_unchanged(
    damage: Any, run: RunPaths, commands: SimpleNamespace, tmp_path: Path
) -> None:
    for update in (2, 4):
        damage(run.checkpoint(update) / "manifest.json", tmp_path / f"outside{update}")
    run.lock.unlink()
    before = sorted(run.folder.rglob("*"))
    for command in (commands.evaluate, commands.resume):
        with pytest.raises(HmxError, match=r"no checkpoint of .* is intact") as caught:
            command(run)
        assert caught.value.exit_code == ExitCode.ARTEFACT
        assert "manifest.json" in caught.value.message
        assert "hmx train --config" in caught.value.hint and "--force" in caught.value.hint
    assert sorted(run.folder.rglob("*")) == before
    found = runs.verify(run.folder)
    assert found.intact == ()
    assert {"checkpoints/2", "checkpoints/4"} <= {place.path for place in found.damage}


@pytest.mark.parametrize("name", ["checkpoints", "checkpoints/4", "reports"])
@pytest.mark.parametrize("way", ["deleted", "file", "link", "link outside"])
def test_link_in_place_of_a_folder_is_reported_and_not_followed(
    name: str, way: str, run: RunPaths, commands: SimpleNamespace, states: Any, tmp_path: Path
) -> None:
    victim, outside = run.folder / name, tmp_path / "outside"
    victim.rename(outside)
    if way == "file":
        victim.write_text("")
    elif way != "deleted":
        victim.symlink_to(outside if way == "link outside" else "nothing")
    precious = sorted(outside.rglob("*"))
    found = runs.verify(run.folder)
    assert name in {place.path for place in found.damage}
    if name == "checkpoints":
        for command in (commands.evaluate, commands.resume):
            with pytest.raises(HmxError, match=r"checkpoints|no checkpoint") as caught:
                command(run)
            assert caught.value.exit_code == ExitCode.ARTEFACT and "--force" not in caught.value.hint
            assert way != "deleted" or "has lost its checkpoints: meta.json says that 4 was" in caught.value.message
    else:
        for command in (commands.evaluate, commands.resume):
            went = command(run)
            assert went.update == (4 if name == "reports" else 2)
            assert same(went, states)
        if way != "deleted":
            assert any(name.rpartition("/")[2] in text for text in went.warnings)
            assert not victim.is_symlink()
        elif name == "checkpoints/4":
            assert any("checkpoint 4 is missing" in text for text in went.warnings)
    assert sorted(outside.rglob("*")) == precious, "nothing is deleted or written through a link"


def test_a_resumption_records_everything_it_repairs(run: RunPaths, commands: SimpleNamespace) -> None:
    meta = metas.read(run.meta)
    metas.write(run.meta, dataclasses.replace(meta, versions={**meta.versions, "jax": "0.0.1"}))
    damage_newest = run.checkpoint(4) / "run.toml"
    damage_newest.unlink()
    went = resumes.resume(run.folder, changes={"run.keep": "9"}, command_line=["hmx", "resume"])
    assert went.update == 2  # type: ignore[attr-defined]
    meta = metas.read(run.meta)
    (entry,) = meta.resumes
    assert (entry.update, entry.command, entry.changes) == (2, ("hmx", "resume"), {"run.keep": [3, 9]})
    assert entry.damaged == {"4": "run.toml: no such file or directory"}
    assert any("of process 1 on" in note for note in entry.notes)
    assert any(f"jax 0.0.1 became {meta.versions['jax']}" in note for note in entry.notes)
    assert meta.config_sha256 == metas.sha256(run.config.read_text())
    assert read_config(run).run.keep == 9
    assert commands.resume(run).update == 2


def test_a_resumption_killed_between_its_two_files_can_be_repeated(
    run: RunPaths, commands: SimpleNamespace, states: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """meta.json knows the new configuration already, run.toml is still the old one."""
    write = atomic.write_text

    def die(path: Path, text: str) -> None:
        if path.name == "run.toml":
            raise KeyboardInterrupt
        write(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(atomic, "write_text", die)
        with pytest.raises(KeyboardInterrupt):
            resumes.resume(run.folder, changes={"run.total_steps": "256"})
    assert runs.verify(run.folder).damage == ()
    went = commands.resume(run)
    assert went.update == 4
    assert same(went, states)
    assert read_config(run).run.total_steps == 128
