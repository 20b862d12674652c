import os
import subprocess
import threading
from pathlib import Path

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import layout
from hmx.records.layout import check_own, find_run, list_runs, new_run, planned_name, stem_of
from hmx.records.paths import RunPaths

STEM = "hackmatrix-ppo-s0"


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(root, name):
    paths = new_run(root, name, STEM)
    paths.config.write_text("schema = 1\n")
    return paths


def test_paths_of_a_run_are_fixed():
    paths = RunPaths(Path("runs"), "a-1")
    assert [str(p) for p in (paths.folder, paths.config, paths.meta, paths.metrics)] == [
        "runs/a-1",
        "runs/a-1/run.toml",
        "runs/a-1/meta.json",
        "runs/a-1/metrics.jsonl",
    ]
    assert str(paths.checkpoint(12)) == "runs/a-1/checkpoints/12"
    assert str(paths.reports) == "runs/a-1/reports"


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "/etc", "-rf", ".hidden", "a\0b", "a\n"])
def test_names_cannot_leave_the_root(home, name):
    with pytest.raises(HmxError, match="cannot be the name of a run") as caught:
        RunPaths(home, name)
    assert caught.value.exit_code is ExitCode.USAGE
    RunPaths(home, caught.value.hint.removeprefix("--name "))
    if name:
        with pytest.raises(HmxError):
            new_run(home / "runs", name, STEM)
    assert not (home / "runs").exists()


@pytest.mark.parametrize("name", ["a b", "ä", "x" * 101, "a\\b"])
def test_new_run_refuses_names_that_are_hard_to_type(home, name):
    with pytest.raises(HmxError, match="cannot be the name of a run: use letters"):
        new_run(home / "runs", name, STEM)
    assert not (home / "runs").exists()


def test_a_run_folder_with_a_space_in_its_name_is_found_and_listed(home):
    made("runs", "mine").folder.rename(home / "runs" / "my run")
    paths = find_run("my run")
    assert (paths, find_run("runs/my run"), list_runs()) == (paths, paths, ["my run"])
    assert (paths.folder, paths.argument) == (Path("runs/my run"), "'my run'")


def test_default_names_count_up(home):
    assert stem_of("hackmatrix", "ppo", 0) == STEM
    assert planned_name("runs", "", STEM) == "hackmatrix-ppo-s0-001"
    assert not Path("runs").exists()
    names = [new_run("runs", "", STEM).name for _ in range(3)]
    assert names == [f"{STEM}-001", f"{STEM}-002", f"{STEM}-003"]
    assert new_run("runs", "", stem_of("corridor", "ppo", 1)).name == "corridor-ppo-s1-001"
    os.rmdir(f"runs/{STEM}-002/checkpoints")
    (Path("runs") / f"{STEM}-1000").mkdir()
    (Path("runs") / f"{STEM}-best").mkdir()
    assert planned_name("runs", "", STEM) == f"{STEM}-1001"
    assert planned_name("runs", "mine", STEM) == "mine"


def test_a_new_run_has_its_folders(home):
    paths = new_run("deep/er/runs", "x", STEM)
    assert paths.checkpoints.is_dir()
    assert paths.reports.is_dir()
    assert not paths.exists()


def test_number_taken_by_a_faster_process_is_skipped(home, monkeypatch):
    monkeypatch.setattr(layout, "_next_number", lambda root, stem: 1)
    assert [new_run("runs", "", STEM).name for _ in range(3)] == [f"{STEM}-00{i}" for i in (1, 2, 3)]
    monkeypatch.setattr(layout, "_TRIES", 2)
    with pytest.raises(HmxError, match="no free number"):
        new_run("runs", "", STEM)


def test_concurrent_runs_get_separate_folders(home):
    names = []
    threads = [threading.Thread(target=lambda: names.append(new_run("runs", "", STEM).name)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(names)) == 8


def test_a_run_is_never_overwritten(home):
    paths = made("runs", "mine")
    paths.metrics.write_text("precious")
    with pytest.raises(HmxError, match="run runs/mine already exists") as caught:
        new_run("runs", "mine", STEM)
    assert caught.value.exit_code is ExitCode.USAGE
    assert "resume it: hmx resume mine;" in caught.value.hint
    assert "--force" in caught.value.hint
    assert "--name mine-2" in caught.value.hint
    assert paths.metrics.read_text() == "precious"


def test_resume_command_can_be_pasted_for_any_folder(home):
    paths = made("my runs", "mine")
    with pytest.raises(HmxError) as caught:
        new_run("my runs", "mine", STEM)
    assert "hmx resume 'my runs/mine';" in caught.value.hint
    printed = subprocess.run(["sh", "-c", f"printf %s {paths.argument}"], capture_output=True, text=True, check=True)
    assert find_run(printed.stdout) == paths


def test_force_deletes_only_files_that_a_run_wrote(home):
    paths = made("runs", "mine")
    for file in (paths.metrics, paths.meta, paths.checkpoint(3) / "x", paths.reports / "y", paths.folder / "notes.txt"):
        file.parent.mkdir(exist_ok=True)
        file.write_text("old")
    assert new_run("runs", "mine", STEM, force=True) == paths
    left = sorted(str(p.relative_to(paths.folder)) for p in paths.folder.rglob("*"))
    assert left == ["checkpoints", "notes.txt", "reports"]


def test_force_refuses_a_folder_that_is_not_a_run(home):
    (home / "runs" / "thesis").mkdir(parents=True)
    (home / "runs" / "thesis" / "chapter1").write_text("precious")
    for force in (False, True):
        with pytest.raises(HmxError, match="already exists and is not a run") as caught:
            new_run("runs", "thesis", STEM, force=force)
        assert caught.value.hint == "choose another name: --name thesis-2"
    assert (home / "runs" / "thesis" / "chapter1").read_text() == "precious"


def test_an_empty_folder_may_be_used(home):
    (home / "runs" / "mine").mkdir(parents=True)
    assert new_run("runs", "mine", STEM).checkpoints.is_dir()


@pytest.mark.parametrize("name", ["", "mine"])
def test_unwritable_root_is_refused(home, name, monkeypatch):
    Path("file").write_text("")
    with pytest.raises(HmxError, match=r"cannot write the run folder file.*: (not a directory|file exists)") as caught:
        new_run("file", name, STEM)
    assert caught.value.exit_code is ExitCode.USAGE

    def refuse(self, *args, **kwargs):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(HmxError, match=r"cannot write the run folder locked.*: permission denied") as caught:
        new_run("locked", name, STEM)
    assert "run.root" in caught.value.hint


def test_run_is_found_by_name_path_or_file(home):
    paths = made("runs", "mine")
    for text in (
        "mine",
        "runs/mine",
        "runs/mine/",
        str(home / "runs" / "mine"),
        "runs/mine/run.toml",
        "runs/../runs/mine",
    ):
        found = find_run(text)
        assert found.folder.resolve() == paths.folder.resolve(), text
        assert found.name == "mine"
    os.chdir("runs/mine")
    assert find_run(".").folder.resolve() == (home / "runs" / "mine")
    os.chdir("checkpoints")
    assert find_run("..").folder.resolve() == (home / "runs" / "mine")


def test_name_prefers_the_run_in_the_root_to_a_local_folder(home):
    made("runs", "mine")
    made(".", "mine")
    assert find_run("mine") == RunPaths(Path("runs"), "mine")
    assert find_run("./mine").folder.resolve() == home / "mine"
    assert find_run("mine", root="elsewhere").folder.resolve() == home / "mine"


def test_missing_run_suggests_the_nearest_name(home):
    made("runs", "hackmatrix-ppo-s0-001")
    made("runs", "corridor")
    with pytest.raises(HmxError, match="there is no run coridor in runs") as caught:
        find_run("coridor")
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert caught.value.hint == "did you mean corridor?"
    with pytest.raises(HmxError) as caught:
        find_run("zzz")
    assert caught.value.hint == "runs in runs: corridor, hackmatrix-ppo-s0-001"
    with pytest.raises(HmxError, match=r"there is no run no/such/path$"):
        find_run("no/such/path")


@pytest.mark.parametrize("text", ["x", "", "a" * 300, "x/" + "a" * 300, "..", "/", "~", "/proc/1/root/x"])
def test_any_name_is_found_or_refused_with_a_message(home, text):
    with pytest.raises(HmxError) as caught:
        find_run(text)
    assert caught.value.exit_code is ExitCode.ARTEFACT
    assert caught.value.hint


def test_a_folder_without_a_configuration_is_not_a_run(home):
    new_run("runs", "started", STEM)
    with pytest.raises(HmxError, match=r"started is not a run folder: it has no run.toml"):
        find_run("started")
    assert list_runs("runs") == []
    with pytest.raises(HmxError) as caught:
        find_run("started")
    assert caught.value.hint == "start a run with `hmx train`"


def test_unreadable_folder_is_refused(home, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(HmxError, match="cannot read mine: permission denied") as caught:
        find_run("mine")
    assert caught.value.exit_code is ExitCode.ARTEFACT


def test_listing_skips_folders_that_are_not_runs(home):
    made("runs", "b")
    made("runs", "a")
    (home / "runs" / ".cache").mkdir()
    (home / "runs" / "file").write_text("")
    assert list_runs("runs") == ["a", "b"]
    assert list_runs("nowhere") == []
    assert list_runs("runs/file") == []


def test_results_are_not_written_through_a_link_of_the_run(tmp_path: Path) -> None:
    paths = new_run(tmp_path / "runs", "a", "stem")
    check_own(paths.reports, "--output")
    check_own(paths.events, "--output")
    paths.reports.rmdir()
    paths.reports.symlink_to(tmp_path)
    paths.events.write_text("x")
    for folder, what in ((paths.reports, "a link instead of a folder"), (paths.events, "not a folder")):
        with pytest.raises(HmxError, match=f"cannot write in {folder}: {what}") as refused:
            check_own(folder, "--output")
        assert refused.value.exit_code == ExitCode.ARTEFACT
