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
from hmx.records import atomic, lock
from hmx.records.artefact import sealed
from hmx.records.layout import new_run
from hmx.records.lock import STALE, RunLock, holding
from hmx.records.owner import started, this_process
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
import os, sys, time
from hmx.records import lock
from hmx.records.paths import RunPaths
lock._TRIES = 3
held = 0
while held < 20:  # the others end after as many turns, and then nothing refuses this one
    try:
        with lock.RunLock(RunPaths(sys.argv[1], "r")):
            # Only one process at a time may be here.
            os.close(os.open(sys.argv[2], os.O_CREAT | os.O_EXCL))
            held += 1
            time.sleep(0.002)
            os.unlink(sys.argv[2])
    except lock.RunInUse:
        time.sleep(0.001)
print(held)
"""


TAKE_OVER = """
import collections, errno, fcntl, json, os, random, sys, time

def slow(call):
    def late(*arguments, **named):
        time.sleep(random.random() * 0.002)  # as on the disk of a server, so that the steps of processes mix
        return call(*arguments, **named)
    return late

def refuse(number):
    def call(*arguments, **named):
        raise OSError(number, os.strerror(number))
    return call

inside, disk = sys.argv[2:]
if disk == "flock of one machine":  # and every process here stands for a machine
    fcntl.flock = lambda handle, operation: None
else:
    fcntl.flock = refuse(errno.ENOLCK)
if disk == "no hard links":
    os.link = refuse(errno.EPERM)
for name in ("open", "fstat", "pread", "pwrite", "link", "replace"):
    setattr(os, name, slow(getattr(os, name)))

from hmx.records import atomic, lock
from hmx.records.paths import RunPaths
lock._TRIES = 2
counts = collections.Counter()
WORDS = {0: "held", 1: "error", 2: "refused", 3: "two processes held it"}

def turn(killed):
    random.seed()
    try:
        with lock.RunLock(RunPaths(sys.argv[1], "r")):
            os.close(os.open(inside, os.O_CREAT | os.O_EXCL))
            time.sleep(0.002)
            os.unlink(inside)
            if killed:
                os._exit(0)
    except lock.RunInUse:
        return 2
    except FileExistsError:
        return 3
    return 0

for number in range(40):
    child = os.fork()
    if not child:
        code = 1
        try:
            code = turn(number % 2)
        finally:
            os._exit(code)
    counts[WORDS[os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])]] += 1
print(json.dumps({word: counts[word] for word in WORDS.values()}))
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
    write(paths, pid=parent, started=started(parent))
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
    assert ended == ["20\n"] * 3
    assert os.listdir(paths.folder) == []


def test_a_lock_that_was_taken_over_meanwhile_is_not_stolen(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process takes the stale lock over, after this one has read it and before it writes."""
    create, calls = atomic.create, []
    write(paths)

    def late(path: Path, text: str) -> bool:
        if not calls:
            with hold(paths) as process:
                calls.append((path, paths.lock.read_bytes(), process.pid))
                process.kill()
            write(paths, pid=os.getppid(), started=started(os.getppid()), token="fresh")
        return create(path, text)

    monkeypatch.setattr(atomic, "create", late)
    with pytest.raises(HmxError, match=f"in use by process {os.getppid()} since"):
        RunLock(paths).__enter__()
    assert json.loads(paths.lock.read_text())["token"] == "fresh"
    assert os.listdir(paths.folder) == ["lock"]


@pytest.mark.parametrize("disk", ["no flock", "flock of one machine", "no hard links"])
def test_one_of_many_processes_takes_a_stale_lock_on_any_disk(disk: str, paths: RunPaths, tmp_path: Path) -> None:
    """Half of the processes that get the lock are killed while they hold it, so most locks that are found are stale."""
    work = [start(TAKE_OVER, paths, str(tmp_path / "inside"), disk) for _ in range(4)]
    ended = [json.loads(process.communicate()[0]) for process in work]
    assert [count["two processes held it"] for count in ended] == [0, 0, 0, 0]
    assert [count["error"] for count in ended] == [0, 0, 0, 0]
    assert sum(count["held"] for count in ended) > 16
    with RunLock(paths):
        assert os.listdir(paths.folder) == ["lock"]
    assert os.listdir(paths.folder) == []


@pytest.mark.parametrize("wrong", [-600.0, 600.0])
@pytest.mark.parametrize("flock", [True, False])
def test_a_wrong_clock_changes_nothing(
    wrong: float, flock: bool, paths: RunPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + wrong)
    if not flock:
        monkeypatch.setattr(lock, "_flock", lambda handle, shared: None)
    write(paths, host="elsewhere", boot="another", pid=77)
    for silent, state in ((STALE - 30, "held"), (STALE + 30, "stale")):
        os.utime(paths.lock, (now() - silent, now() - silent))
        assert holding(paths).state == state
    with RunLock(paths) as held:
        assert "of process 77 on elsewhere" in held.note
        assert abs(paths.lock.stat().st_mtime - now()) < 30


def test_a_heartbeat_is_that_of_the_file_system(paths: RunPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "HEARTBEAT", 0.01)
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 600)
    with RunLock(paths):
        os.utime(paths.lock, (1, 1))
        while paths.lock.stat().st_mtime == 1:
            time.sleep(0.01)
        assert abs(paths.lock.stat().st_mtime - now()) < 30


def test_a_process_that_has_ended_holds_no_lock_before_its_parent_notices(paths: RunPaths) -> None:
    process = hold(paths)
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it stays a zombie
    assert holding(paths).state == "stale"
    process.communicate()


def test_a_lock_left_by_a_kill_while_it_was_taken_over_is_taken_over(paths: RunPaths) -> None:
    """A process was killed after it had created its file, and before it had renamed that to `lock`."""
    write(paths, token="first")
    first = lock._chain(paths.lock)[0]
    write(paths, token="second")
    paths.lock.rename(first.successor)
    write(paths, token="first")
    assert [link.owner.token for link in lock._chain(paths.lock) if link.owner] == ["first", "second"]
    assert holding(paths).state == "stale"
    with RunLock(paths):
        assert os.listdir(paths.folder) == ["lock"]
        assert json.loads(paths.lock.read_text())["pid"] == os.getpid()
    assert os.listdir(paths.folder) == []


def test_an_owner_that_lost_its_lock_leaves_that_of_the_other(paths: RunPaths) -> None:
    """The machine of the owner was suspended, so another process took over."""
    with RunLock(paths):
        successor, mine = lock._chain(paths.lock)[0].successor, paths.lock.read_text()
        paths.lock.rename(paths.folder / "mine")
        write(paths, pid=os.getppid(), started=started(os.getppid()))
        paths.lock.rename(successor)
        (paths.folder / "mine").rename(paths.lock)
    assert paths.lock.read_text() == mine
    assert holding(paths).state == "held"


def test_run_in_use_is_not_replaced(paths: RunPaths) -> None:
    paths.config.write_text("schema = 1\n")
    with hold(paths) as process:
        with pytest.raises(HmxError, match=f"is in use by process {process.pid}"):
            new_run(paths.root, "r", "stem", force=True)
        assert paths.config.exists()
        process.communicate("\n")
    new_run(paths.root, "r", "stem", force=True)
    assert not paths.config.exists()


def test_a_lock_that_this_process_could_not_delete_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = new_run(tmp_path, "r", "")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    with RunLock(paths):
        assert holding(paths).state == "held"
        monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.undo()
    assert paths.lock.exists() and holding(paths).state == "stale"
    with RunLock(paths) as again:
        assert "stale lock" in again.note
