"""Atomic writes: the old file or the new one, and nothing that a killed process left."""

import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hmx.records import atomic
from hmx.records.atomic import sweep, write_text
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
