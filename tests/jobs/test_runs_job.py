from __future__ import annotations

import errno
import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from hmx.config import files
from hmx.errors import ExitCode, HmxError
from hmx.jobs import runs
from hmx.jobs.requests import ListRequest, State
from hmx.jobs.resume import resume
from hmx.records import checkpoints
from hmx.records import meta as metas
from hmx.records.jsonl import MetricsWriter
from hmx.records.layout import new_run
from hmx.records.lock import RunLock
from hmx.records.paths import RunPaths

MOMENT = "2026-01-01T00:00:00+00:00"
RETURN = "train/mean_episode_return"


def make(root: Path, name: str, state: str = "finished", updates: int = 3, **meta: object) -> RunPaths:
    """A run without checkpoints: what the list reads of it."""
    paths = new_run(root, name, "stem")
    paths.config.write_text("schema = 1\n")
    known = metas.Meta(created=MOMENT, updated=MOMENT, state=state, update=updates, env_steps=10 * updates)
    metas.write(paths.meta, metas.changed(known, **meta))
    with MetricsWriter(paths.metrics) as writer:
        for update in range(1, updates + 1):
            writer.write({"update": update, "env_steps": 10 * update, "seed": 0, RETURN: update / 2})
    return paths


def states(root: Path) -> dict[str, str]:
    return {row.name: row.state for row in runs.list_runs(root).runs}


def test_list_shows_the_fields_of_runs(tmp_path: Path) -> None:
    paths = make(tmp_path, "a")
    (row,) = runs.list_runs(tmp_path).runs
    assert (row.name, row.path, row.state, row.update, row.env_steps) == ("a", paths.folder, "finished", 3, 30)
    assert (row.last_return, row.created) == (1.5, MOMENT)
    assert row.size == sum(p.stat().st_size for p in paths.folder.rglob("*") if p.is_file())
    for name, state in (("a", "finished"), ("b", "running")):
        paths = make(tmp_path, name, state) if name != "a" else paths
        old = time.time() - 7200
        for path in (paths.config, paths.meta, paths.metrics):
            os.utime(path, (old, old))
    ended, crashed = runs.list_runs(tmp_path).runs
    assert ended.age is not None
    assert crashed.age is not None
    assert 0 <= ended.age < 600  # since its end, not since a file was written
    assert 7200 <= crashed.age < 7800
    assert runs.list_runs(tmp_path / "nowhere").runs == ()


def test_list_shows_the_state_of_each_run(tmp_path: Path) -> None:
    for state in ("finished", "interrupted", "failed"):
        make(tmp_path, state, state)
    make(tmp_path, "crashed", "running")
    alive = make(tmp_path, "running", "running")
    make(tmp_path, "unknown").meta.write_text("{")
    with RunLock(alive):
        assert states(tmp_path) == {name: name for name in get_args(State)}
    assert states(tmp_path)["running"] == "crashed"


def test_progress_follows_the_records(tmp_path: Path) -> None:
    paths = make(tmp_path, "a", "running", updates=5)
    metas.write(paths.meta, metas.changed(metas.read(paths.meta), update=2, env_steps=20))
    (row,) = runs.list_runs(tmp_path).runs
    assert (row.update, row.env_steps) == (5, 50)


def test_listed_return_is_the_latest_mean_over_seeds(tmp_path: Path) -> None:
    paths = make(tmp_path, "a", updates=0)
    assert runs.list_runs(tmp_path).runs[0].last_return is None
    with MetricsWriter(paths.metrics) as writer:
        for update, seed, value in ((1, 0, 9.0), (2, 0, 1.0), (2, 1, 2.0), (3, 0, float("nan")), (4, 0, None)):
            writer.write({"update": update, "seed": seed, **({} if value is None else {RETURN: value})})
        writer.write({"update": 5, "seed": 0, RETURN: 10**400})
        writer.write({"update": "6", "seed": 0, RETURN: "x"})
    (row,) = runs.list_runs(tmp_path).runs
    assert (row.last_return, row.update) == (1.5, 5)


@pytest.mark.parametrize("file", ["run.toml", "meta.json", "metrics.jsonl", "checkpoints", "lock"])
@pytest.mark.parametrize("way", ["folder", "link", "pipe", "junk"])
def test_damaged_runs_do_not_stop_the_list(file: str, way: str, tmp_path: Path) -> None:
    """Nor is a pipe waited for, or a link followed."""
    paths = make(tmp_path, "a", "running")
    make(tmp_path, "b")
    victim = paths.folder / file
    if victim.is_dir():
        victim.rmdir()
    victim.unlink(missing_ok=True)
    if way == "folder":
        victim.mkdir()
    elif way == "link":
        victim.symlink_to("/dev/zero")
    elif way == "pipe":
        os.mkfifo(victim)
    else:
        victim.write_bytes(b"\xff\0[")
    found = {row.name: row for row in runs.list_runs(tmp_path).runs}
    assert found["b"].state == "finished"
    assert found["a"].state == ("unknown" if file == "meta.json" else "crashed")


def test_list_is_sorted_by_each_order_and_missing_values_come_last(tmp_path: Path) -> None:
    for name, env, speed in (("a", "lake", 1.0), ("b", "corridor", 3.0), ("c", "maze", None)):
        paths = make(tmp_path, name, updates=0)
        paths.config.write_text(f'schema = 1\n\n[env]\nid = "{env}"\n')
        with MetricsWriter(paths.metrics) as writer:
            writer.write({"update": 1, "env_steps": 8, "seed": 0, **({"train/steps_per_sec": speed} if speed else {})})

    def listed(sort: Any, reverse: bool = False) -> str:
        return "".join(row.name for row in runs.list_runs(tmp_path, ListRequest(sort=sort, reverse=reverse)).runs)

    assert [listed("environment"), listed("steps/s"), listed("steps/s", True)] == ["bac", "bac", "abc"]
    assert listed("environment", True) == "cab" and listed("remaining") == "abc"


def test_list_is_written_as_json(tmp_path: Path) -> None:
    make(tmp_path, "a")
    data = json.loads(json.dumps(runs.list_runs(tmp_path).to_json()))
    assert set(data) == {"schema", "root", "runs"}
    assert set(data["runs"][0]) == {
        "name", "path", "env", "algorithm", "state", "update", "env_steps", "total_steps", "last_return",
        "steps_per_sec", "seconds_left", "size", "created", "age",
    }  # fmt: skip


def test_verification_is_written_as_json(unpack: Callable[[int, Path], RunPaths], tmp_path: Path) -> None:
    paths = unpack(2, tmp_path)
    assert runs.verify(paths.folder).to_json() == {
        "schema": 1,
        "run": str(paths.folder),
        "whole": True,
        "intact_checkpoints": [2, 4],
        "damage": [],
        "notes": [],
    }
    (paths.checkpoint(4) / "run.toml").unlink()
    data = json.loads(json.dumps(runs.verify(paths.folder).to_json()))
    assert data["whole"] is False
    assert data["damage"] == [{"path": "checkpoints/4", "what": "run.toml: no such file or directory"}]


def test_verify_reports_damaged_records(unpack: Callable[[int, Path], RunPaths], tmp_path: Path) -> None:
    paths = unpack(2, tmp_path)
    lines = paths.metrics.read_bytes().splitlines(keepends=True)

    def said(*parts: bytes) -> list[str]:
        paths.metrics.write_bytes(b"".join(parts))
        found = runs.verify(paths.folder)
        assert {place.path for place in found.damage} <= {"metrics.jsonl"}
        return [place.what for place in found.damage]

    assert said(*lines) == []
    assert said(*lines, b'{"update":5') == ["the last line is incomplete"]
    changed = ["records up to update 4 have changed since checkpoint 4 was written"]
    assert said(*lines[:3]) == changed
    assert said(lines[0].replace(b"0.3", b"0.4"), *lines[1:]) == changed
    assert said(*lines[:3], lines[3].replace(b"0.3", b"0.4")) == changed
    assert said(lines[0], b"[]\n", *lines[1:])[0] == "line 2 is not a record"
    assert said(lines[0], *lines)[0] == "has update 1 more than once"
    assert said(lines[0], *lines[3:])[0] == "lacks updates 2 to 3"
    # Records after the newest checkpoint are not covered by it, and are made again by a resumption.
    later = lines[3].replace(b'"update":4', b'"update":5')
    assert said(*lines, later) == []


def test_verify_notes_files_set_aside_and_the_lock_owner(
    unpack: Callable[[int, Path], RunPaths], tmp_path: Path
) -> None:
    paths = unpack(2, tmp_path)
    (paths.checkpoints / "3.damaged").mkdir()
    paths.lock.touch()
    with RunLock(paths):
        found = runs.verify(paths.folder)
    assert found.damage == ()
    assert [place.path for place in found.notes] == ["lock", "checkpoints/3.damaged"]
    assert f"held by process {os.getpid()}" in found.notes[0].what


def test_verify_notes_a_finished_run_without_its_report(
    unpack: Callable[[int, Path], RunPaths], tmp_path: Path
) -> None:
    paths = unpack(2, tmp_path)
    metas.write(paths.meta, metas.changed(metas.read(paths.meta), state="finished"))
    assert runs.verify(paths.folder).notes == (), "it was to have none"
    text = paths.config.read_text().replace("eval_episodes = 0", "eval_episodes = 5")
    paths.config.write_text(text)
    metas.write(paths.meta, metas.changed(metas.read(paths.meta), config_sha256=metas.sha256(text)))
    (note,) = runs.verify(paths.folder).notes
    assert note.path == "reports/evaluation.json"
    assert f"hmx evaluate {paths.argument}" in note.what


def test_verify_checks_states_kept_for_diagnosis(unpack: Callable[[int, Path], RunPaths], tmp_path: Path) -> None:
    paths = unpack(2, tmp_path)
    shutil.copytree(paths.checkpoint(4), paths.diagnosis / "4")
    assert runs.verify(paths.folder).damage == ()
    (paths.diagnosis / "4" / "meta.json").unlink()
    (found,) = runs.verify(paths.folder).damage
    assert found.path == "diagnosis/4"


def test_verify_beside_a_writer_reports_no_checkpoint_that_retention_deletes(
    unpack: Callable[[int, Path], RunPaths], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, really = unpack(2, tmp_path), files.sha256_of

    def delete_meanwhile(path: Path) -> str:
        if "/2/" in str(path):
            shutil.rmtree(run.checkpoint(2), ignore_errors=True)
        return really(path)

    monkeypatch.setattr(files, "sha256_of", delete_meanwhile)
    found = runs.verify(run.folder)
    assert (found.damage, found.intact) == ((), (4,))


def test_read_error_stops_resume_and_keeps_the_checkpoint(
    unpack: Callable[[int, Path], RunPaths], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, really = unpack(2, tmp_path), os.open

    def fail(path: Any, *given: Any, **more: Any) -> int:
        if str(path).endswith("checkpoints/4/run.toml"):
            raise OSError(errno.EIO, "Input/output error")
        return really(path, *given, **more)

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(HmxError, match=r"cannot read .*/4/run\.toml: input/output error") as caught:
        resume(run.folder)
    assert caught.value.exit_code == ExitCode.ARTEFACT
    assert [path.name for path in checkpoints.listing(run.checkpoints)] == ["2", "4"]


def test_a_list_is_filtered_and_sorted(tmp_path: Path) -> None:
    for name, state, updates in (("b-1", "finished", 3), ("b-2", "failed", 9), ("c", "finished", 6)):
        make(tmp_path, name, state, updates)
    make(tmp_path, "empty", updates=0)

    def names(**wanted: Any) -> list[str]:
        return [row.name for row in runs.list_runs(tmp_path, ListRequest(**wanted)).runs]

    assert names(match="b-*") == ["b-1", "b-2"]
    assert names(state="failed") == ["b-2"]
    assert names(sort="return") == ["b-2", "c", "b-1", "empty"]
    assert names(sort="return", reverse=True) == ["b-1", "c", "b-2", "empty"]
    assert names(reverse=True) == ["empty", "c", "b-2", "b-1"]
    make(tmp_path, "d", "running")
    assert names(sort="age")[0] == "d"


def test_renamed_run_is_intact_and_resumes(unpack: Callable[[int, Path], RunPaths], tmp_path: Path) -> None:
    paths = unpack(2, tmp_path)
    with RunLock(paths), pytest.raises(HmxError, match="is in use by process"):
        runs.rename(paths.folder, "new")
    make(tmp_path, "taken")
    with pytest.raises(HmxError, match="taken already exists"):
        runs.rename(paths.folder, "taken")
    assert runs.rename(paths.folder, "new") == tmp_path / "new"
    assert not paths.folder.exists() and not (tmp_path / "new" / "lock").exists()
    assert runs.verify(tmp_path / "new").damage == ()


def test_remove_deletes_folders_but_not_running_runs_or_link_targets(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "file").touch()
    paths, other = make(tmp_path / "runs", "a"), make(tmp_path / "runs", "b")
    (paths.folder / "link").symlink_to(kept)
    (tmp_path / "runs" / "alias").symlink_to(other.folder)
    with RunLock(other):
        with pytest.raises(HmxError, match="is in use by process"):
            runs.removable([paths.folder, other.folder])
        with pytest.raises(HmxError, match="is in use by process"):
            runs.remove(runs.list_runs(tmp_path / "runs", ListRequest(match="b")).runs)
    with pytest.raises(HmxError, match="it is a link"):
        runs.removable([tmp_path / "runs" / "alias"])
    runs.remove(runs.removable([f"{paths.folder}/.", paths.folder]))
    assert not paths.folder.exists() and other.exists() and (kept / "file").exists()


def test_a_killed_removal_leaves_no_damaged_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, other, really = make(tmp_path, "a"), make(tmp_path, "b"), Path.unlink

    def ends(problem: BaseException) -> None:
        def unlink(path: Path, missing_ok: bool = False) -> None:
            if path.name == "metrics.jsonl":
                raise problem
            really(path, missing_ok)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "unlink", unlink)
            with pytest.raises(type(problem) if isinstance(problem, KeyboardInterrupt) else HmxError):
                runs.remove(runs.removable([paths.folder]))

    ends(OSError(errno.EACCES, "Permission denied"))
    assert states(tmp_path).keys() == {"a", "b"}, "it can be repeated"
    ends(KeyboardInterrupt())
    assert [row.name for row in runs.list_runs(tmp_path).runs] == ["b"]
    assert len(list(tmp_path.iterdir())) == 2, "the rest is hidden"
    runs.remove(runs.removable([other.folder]))
    assert list(tmp_path.iterdir()) == []


def test_followed_tail_shows_every_record_and_ends_with_the_run(tmp_path: Path) -> None:
    paths = make(tmp_path, "a", "running", updates=5)
    updates = [record["update"] for record in runs.tail(paths.folder, 2)]
    assert updates == [4, 5]
    seen = []
    with RunLock(paths):
        following = runs.tail(paths.folder, 1, follow=True)
        seen.append(next(following)["update"])
        with MetricsWriter(paths.metrics) as writer:
            writer.write({"update": 6, "env_steps": 60, "seed": 0})
        seen.append(next(following)["update"])
        with MetricsWriter(paths.metrics) as writer:
            writer.write({"update": 7, "env_steps": 70, "seed": 0})
    assert [*seen, *(record["update"] for record in following)] == [5, 6, 7]
