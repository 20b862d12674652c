"""Processes that files name: they run, they have ended, or that cannot be seen."""

import dataclasses
import os
import subprocess
import sys

from hmx.records.owner import has_ended, lives, mark_of, this_process


def test_a_mark_tells_whether_its_process_has_ended() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = mark_of(process.pid)
    assert has_ended(mark) is False
    process.kill()
    process.communicate()
    assert has_ended(mark) is True
    assert has_ended(mark_of(os.getpid())) is False
    pid, machine, start = mark_of(os.getpid()).split("-")
    assert has_ended(f"{pid}-{machine}-{int(start) + 1}") is True, "a later process has got the number"
    for other in (f"{pid}-01234567-{start}", pid, "", "x-y-z", f"²-{machine}-1"):
        assert has_ended(other) is None


def test_a_process_of_another_machine_cannot_be_seen() -> None:
    me = this_process()
    assert lives(me) is True
    assert lives(dataclasses.replace(me, started="1")) is False
    assert lives(dataclasses.replace(me, boot="before")) is False
    assert lives(dataclasses.replace(me, boot="before", host="elsewhere")) is None
    assert lives(dataclasses.replace(me, pids="pid:[1]")) is None
