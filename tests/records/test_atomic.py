"""Atomic writes: the old file or the new one, and nothing that a killed process left."""

import os
import secrets
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hmx.records import atomic
from hmx.records.atomic import create, sweep, write_text
from hmx.records.owner import mark_of

ROOT = Path(__file__).parents[2]
KILLED = """
import os, sys
from pathlib import Path
from hmx.records.atomic import replacing
with replacing(Path(sys.argv[1]) / "a") as file:
    os.kill(os.getpid(), 9)
"""


def test_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    names = (".metrics.csv.tmp-77", ".metrics.csv.tmp-78", ".metrics.tmp-77", ".other.csv.tmp-77")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / names[1])  # a process may be writing it
    write_text(tmp_path / "metrics.csv", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "metrics.csv"])
    assert (tmp_path / "metrics.csv").read_text() == "text"


def test_temporary_files_of_this_machine_are_deleted_as_soon_as_their_process_has_ended(tmp_path: Path) -> None:
    left = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert left.returncode == -9
    mine = tmp_path / f".mine.tmp-{mark_of(os.getpid())}-00"
    mine.touch()
    assert len(list(tmp_path.iterdir())) == 2
    sweep(tmp_path)
    assert list(tmp_path.iterdir()) == [mine]


@pytest.mark.parametrize("hours", [-48, 48])
def test_a_wrong_clock_deletes_no_file_that_another_machine_writes(
    hours: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 3600 * hours)
    for name in (".a.tmp-77-01234567-1-00", ".b.tmp-77-01234567-1-00"):
        (tmp_path / name).touch()
    os.utime(tmp_path / ".b.tmp-77-01234567-1-00", (now() - 7200, now() - 7200))
    sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".a.tmp-77-01234567-1-00"]


def test_a_link_with_the_name_of_a_temporary_file_is_not_written_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda size: "00" * size)
    monkeypatch.setattr(atomic, "sweep", lambda *place: None)
    outside = tmp_path / "outside"
    outside.write_text("precious")
    for name in (f".a.tmp-{os.getpid()}", f".a.tmp-{mark_of(os.getpid())}-{'00' * 4}"):
        (tmp_path / name).symlink_to(outside)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "a", "text")
    assert outside.read_text() == "precious"


@pytest.mark.parametrize("name", ["replace", "link"])
def test_content_is_flushed_before_a_name_and_the_name_after_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    flush, move = os.fsync, getattr(os, name)

    def fsync(handle: int) -> None:
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "content")
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, name, lambda old, new: (done.append("name"), move(old, new)))
    write_text(tmp_path / "a", "text") if name == "replace" else create(tmp_path / "a", "text")
    assert done == ["content", "name", "folder"]


@pytest.mark.parametrize("first", [True, False])
def test_a_creation_whose_answer_was_lost_is_known(
    first: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NFS sends the call again, which then fails because of the first one, or of another process."""
    link = os.link

    def sent_again(old: Path, new: Path) -> None:
        if first:
            link(old, new)
        raise FileExistsError

    (tmp_path / "b").write_text("of another process")
    monkeypatch.setattr(os, "link", sent_again)
    assert create(tmp_path / ("a" if first else "b"), "text") == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"][1 - first :]
