"""The program of the guard of a pool: it kills the workers, and all that they started, when the trainer has ended.

A worker cannot do that by itself: it may loop in C while it holds the interpreter's lock, or be stopped. The guard is a
process without threads or user code. Standard input gives it the number of each worker, one per line, which is also the
number of the worker's process group. The pool writes `end` when it has ended the workers itself.
"""

import os
import select
import signal
import sys

_POLL = 1.0  # seconds; a process that the trainer forked may hold the pipe open


def _watch(trainer: int) -> None:
    text = b""
    os.set_blocking(0, False)
    while True:
        gone = os.getppid() != trainer
        select.select([0], [], [], 0.0 if gone else _POLL)
        try:
            some = os.read(0, 4096)
        except BlockingIOError:
            if gone:
                break
            continue
        if not some:
            break
        text += some
        if text.endswith(b"end\n"):
            return
    for group in text.split(b"\n")[:-1]:
        try:
            os.killpg(int(group), signal.SIGKILL)
        except OSError:
            continue


if __name__ == "__main__":
    _watch(int(sys.argv[1]))
