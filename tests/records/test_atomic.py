"""Atomic writes: the old file or the new one, and nothing that a killed process left."""

import os
from pathlib import Path

from hmx.records.atomic import write_text


def test_temporary_files_of_killed_processes_are_deleted(tmp_path: Path) -> None:
    names = (".metrics.csv.tmp-77", ".metrics.csv.tmp-78", ".metrics.tmp-77", ".other.csv.tmp-77")
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1, 1))
    os.utime(tmp_path / names[1])  # a process may be writing it
    write_text(tmp_path / "metrics.csv", "text")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*names[1:], "metrics.csv"])
    assert (tmp_path / "metrics.csv").read_text() == "text"
