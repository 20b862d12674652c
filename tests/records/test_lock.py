from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hmx.errors import ExitCode, HmxError
from hmx.records import lock
from hmx.records.artefact import sealed
from hmx.records.layout import new_run
from hmx.records.lock import STALE, RunLock, holding, this_process
from hmx.records.paths import RunPaths

HOLD = """
import sys, time
from hmx.records.paths import RunPaths
from hmx.records.lock import RunLock
with RunLock(RunPaths(sys.argv[1], "r")) as held:
    print("note:", held.note, flush=True)
    sys.stdin.readline()
"""

TAKE_TURNS = """
import os, sys
from hmx.errors import HmxError
from hmx.records import lock
from hmx.records.paths import RunPaths
lock._PATIENCE = 0.05
held = 0
for _ in range(60):
    try:
        with lock.RunLock(RunPaths(sys.argv[1], "r")):
            # Only one process at a time may be here.
            os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
            held += 1
            os.unlink(sys.argv[2])
    except HmxError:
        continue
print(held)
"""


@pytest.fixture
def paths(tmp_path: Path) -> RunPaths:
    (tmp_path / "r").mkdir()
    return RunPaths(tmp_path, "r")


def start(code: str, paths: RunPaths, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, str(paths.root), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )


def hold(paths: RunPaths) -> subprocess.Popen[str]:
    """Another process that holds the lock until it is told to end."""
    process = start(HOLD, paths)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("note:")
    return process


def write(paths: RunPaths, **fields: object) -> None:
    """A lock file as another process left it."""
    mine = this_process()
    data = {"schema": 1, "host": mine.host, "pid": 1, "started": "1", "boot": mine.boot, "since": mine.since, **fields}
    paths.lock.write_text(sealed(data))


def test_second_process_is_refused_and_the_owner_is_named(paths: RunPaths) -> None:
    with hold(paths) as process:
        assert holding(paths).state == "held"
        with pytest.raises(HmxError, match=rf"is in use by process {process.pid} since .* ago\)") as caught:
            RunLock(paths).__enter__()
        assert caught.value.exit_code == ExitCode.USAGE
        assert f"kill {process.pid}" in caught.value.hint
        assert json.loads(paths.lock.read_text())["pid"] == process.pid
        process.communicate("\n")
    assert process.returncode == 0
    assert not paths.lock.exists()
    with RunLock(paths) as held:
        assert held.note == ""


def test_the_lock_of_a_killed_process_is_removed_with_a_note(paths: RunPaths) -> None:
    with hold(paths) as process:
        process.send_signal(signal.SIGKILL)
    assert holding(paths).state == "stale"
    with RunLock(paths) as held:
        assert re.search(rf"removed the stale lock .* of process {process.pid} on .*, which is gone", held.note)
        assert holding(paths).state == "held"
    assert holding(paths) == lock.Holding("free")
    assert os.listdir(paths.folder) == []


def test_one_process_cannot_lock_twice(paths: RunPaths) -> None:
    with RunLock(paths), pytest.raises(HmxError, match=f"in use by process {os.getpid()} since"):
        RunLock(paths).__enter__()
    with RunLock(paths):
        pass


def test_reused_process_id_does_not_hold_the_lock(paths: RunPaths) -> None:
    """This process has the number of the one that left the lock, but began at another time."""
    write(paths, pid=os.getpid(), started="12")
    assert holding(paths).state == "stale"
    with RunLock(paths) as held:
        assert f"of process {os.getpid()} on" in held.note


def test_lock_without_flock_depends_on_its_owner(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_flock", lambda handle, shared: None)
    parent = os.getppid()
    write(paths, pid=parent, started=lock._started(parent))
    assert holding(paths).state == "held"
    with pytest.raises(HmxError, match=f"in use by process {parent} since"):
        RunLock(paths).__enter__()
    write(paths, pid=parent, started="12")
    with RunLock(paths) as held:
        assert held.note


def test_deleted_lock_still_excludes_other_processes(paths: RunPaths) -> None:
    with hold(paths) as process:
        data = paths.lock.read_text()
        paths.lock.unlink()
        paths.lock.write_text(data)
        with pytest.raises(HmxError, match=f"in use by process {process.pid} since"):
            RunLock(paths).__enter__()
        process.communicate("\n")
    assert paths.lock.exists(), "it removes only its own file"


def test_lock_of_another_machine_is_held_while_it_has_heartbeats(paths: RunPaths) -> None:
    write(paths, host="elsewhere", boot="another", pid=77)
    assert holding(paths).state == "held"
    with pytest.raises(HmxError, match=r"in use by process 77 on elsewhere since .*; last heartbeat \d") as caught:
        RunLock(paths).__enter__()
    assert caught.value.exit_code == ExitCode.USAGE
    assert f"becomes stale {STALE:.0f} s after" in caught.value.hint
    assert f"rm {paths.lock}" in caught.value.hint
    old = time.time() - STALE - 5
    os.utime(paths.lock, (old, old))
    assert holding(paths).state == "stale"
    with RunLock(paths) as held:
        assert "of process 77 on elsewhere" in held.note


def test_lock_of_another_container_is_held_while_it_has_heartbeats(paths: RunPaths) -> None:
    # Every container has a process 1; that of the owner is not the process 1 that is seen here.
    write(paths, host="pod-0", pid=1, pids="pid:[1]")
    with pytest.raises(HmxError, match="is in use by process 1 on pod-0"), RunLock(paths):
        pass
    assert holding(paths).state == "held"
    silent = time.time() - STALE - 1
    os.utime(paths.lock, (silent, silent))
    assert holding(paths).state == "stale"
    with RunLock(paths):
        pass


def test_reboot_releases_the_locks_of_a_machine(paths: RunPaths) -> None:
    write(paths, boot="the one before", pid=os.getpid(), started=this_process().started)
    with RunLock(paths) as held:
        assert held.note


def test_heartbeats_update_the_lock(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    with RunLock(paths):
        os.utime(paths.lock, (1, 1))
        while paths.lock.stat().st_mtime == 1:
            time.sleep(0.01)


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"schema": 1}', "\0" * 50, "[" * 9000])
def test_damaged_lock_without_owner_is_taken_over(paths: RunPaths, text: str) -> None:
    paths.lock.write_text(text)
    assert holding(paths) == lock.Holding("stale")
    with RunLock(paths) as held:
        assert held.note == (f"removed the stale lock {paths.lock}, which is damaged" if text else "")


@pytest.mark.parametrize("field", [{"pid": "1"}, {"pid": -1}, {"host": 3}, {"extra": 1}])
def test_owner_of_wrong_types_makes_the_lock_stale(paths: RunPaths, field: dict[str, object]) -> None:
    write(paths, **field)
    assert holding(paths) == lock.Holding("stale")


def test_a_lock_that_is_not_a_file_is_refused(paths: RunPaths, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("precious")
    makers = (
        (lambda: paths.lock.mkdir(), "it is a folder", os.rmdir),
        (lambda: paths.lock.symlink_to(tmp_path / "outside"), "it is a link", os.unlink),
        (lambda: paths.lock.symlink_to(tmp_path / "nowhere"), "it is a link", os.unlink),
        (lambda: os.mkfifo(paths.lock), "it is not a file", os.unlink),
    )
    for make, words, remove in makers:
        make()
        with pytest.raises(HmxError, match=words) as caught:
            RunLock(paths).__enter__()
        assert caught.value.exit_code == ExitCode.ARTEFACT
        assert f"mv {paths.lock}" in caught.value.hint
        with pytest.raises(OSError):
            holding(paths)
        remove(paths.lock)
    assert (tmp_path / "outside").read_text() == "precious"
    assert not (tmp_path / "nowhere").exists()


def test_unwritable_folder_is_refused(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(lock.os, "open", refuse)
    with pytest.raises(HmxError, match=r"cannot write the lock .*: permission denied") as caught:
        RunLock(paths).__enter__()
    assert caught.value.exit_code == ExitCode.ARTEFACT


def test_lock_is_held_by_one_of_many_processes(paths: RunPaths, tmp_path: Path) -> None:
    """Each takes and releases it again and again; releasing removes the file that others are waiting at."""
    work = [start(TAKE_TURNS, paths, str(tmp_path / "inside")) for _ in range(3)]
    ended = [process.communicate()[0] for process in work]
    assert [process.returncode for process in work] == [0, 0, 0]
    assert all(int(text) > 0 for text in ended)


def test_file_replaced_while_locking_is_not_the_lock(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    flock, calls = lock._flock, []

    def late(handle: int, shared: bool) -> bool | None:
        calls.append(handle)
        if len(calls) == 1:
            paths.lock.unlink()
            paths.lock.touch()
        return flock(handle, shared)

    monkeypatch.setattr(lock, "_flock", late)
    with RunLock(paths):
        assert len(calls) == 2
        assert json.loads(paths.lock.read_text())["pid"] == os.getpid()


def test_run_in_use_is_not_replaced(paths: RunPaths) -> None:
    paths.config.write_text("schema = 1\n")
    with hold(paths) as process:
        with pytest.raises(HmxError, match=f"is in use by process {process.pid}"):
            new_run(paths.root, "r", "stem", force=True)
        assert paths.config.exists()
        process.communicate("\n")
    new_run(paths.root, "r", "stem", force=True)
    assert not paths.config.exists()
