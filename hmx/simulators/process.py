"""The processes of a pool: workers, and a guard that ends them with the trainer.

Each runs Python without the current folder on its path: a file `types.py` there would replace the module of that name
in the worker, although the user has not named it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from hmx.config.textfile import quoted
from hmx.registry.own_modules import is_here

_PROGRAMS = Path(__file__).parent  # two folders below the one that hmx lies in
_CPU_CLOCK = 2  # of a process on Linux: these bits, below its complemented number (clock_getcpuclockid)
_CRASH = "Fatal Python error"  # of Python's faulthandler
_TIMEVAL = struct.Struct("@ll")  # of the C library: seconds and microseconds
_SHOWN = 5  # lines of what a worker printed before it died

ModulePath = tuple[list[str], str, bool]
"""Where a worker searches modules: the places, the current folder, and whether it is searched too, after these."""


def module_path(own_code: bool) -> ModulePath:
    """Return the path of modules for a worker: that of this process, without the current folder.

    Code of the user (`own_code`) may import from that folder whenever it runs. So the folder stays, as the last place,
    if this process has it on its path: in a notebook, or in a program in that folder.
    """
    places = [place for place in sys.path if not is_here(place)]
    last = own_code and len(places) < len(sys.path)
    return places, os.path.realpath(os.curdir), last or is_here(str(_PROGRAMS.parents[1]))


def without_here(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for a worker, whose PYTHONPATH has no empty entry and no `.`."""
    places = environ.get("PYTHONPATH", "").split(os.pathsep)
    kept = [place for place in places if os.path.isabs(place) or not is_here(place)]
    rest = {name: value for name, value in environ.items() if name != "PYTHONPATH"}
    return {**rest, "PYTHONPATH": os.pathsep.join(kept)} if kept else rest


def _flags() -> list[str]:
    """Return the options with which this process reads neither variables of Python nor packages of the user."""
    return ["-E"] * sys.flags.ignore_environment + ["-s"] * sys.flags.no_user_site


class Guard:
    """A process that kills others, and what they started, when this one ends without closing them."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_PROGRAMS / "guard.py"), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )

    def watch(self, process: subprocess.Popen[bytes]) -> None:
        """Add a process that leads a process group of its own."""
        self._write(f"{process.pid}\n")

    def close(self) -> None:
        """End the guard, after the processes have ended."""
        self._write("end\n")
        self._process.communicate()

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was killed
            self._process.stdin.write(text.encode())


class WorkerProcess:
    """One worker process, and the connection to it."""

    def __init__(self, number: int, memory: int | None, environ: Mapping[str, str], path: ModulePath) -> None:
        self.number = number
        self.link, theirs = socket.socketpair()
        self.output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        handles = [theirs.fileno(), *([] if memory is None else [memory])]
        numbers = [str(theirs.fileno()), "-1" if memory is None else str(memory)]
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *_flags(), str(_PROGRAMS / "boot.py"), *numbers, json.dumps(path)],
                pass_fds=handles,
                stdin=subprocess.DEVNULL,
                stdout=self.output,
                stderr=self.output,
                env=dict(environ),
                start_new_session=True,  # so that Ctrl-C reaches the trainer alone
            )
        finally:
            theirs.close()

    def close(self) -> None:
        """Close the connection, at which the process closes its simulators and ends by itself."""
        self.link.close()

    def limit(self, seconds: float) -> None:
        """Limit the time that an answer may take; 0 for no limit.

        The system measures it. `settimeout` would cost another system call per message.
        """
        self.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(*divmod(round(seconds * 1e6), 10**6)))

    def end(self, seconds: float) -> int | None:
        """Wait for the process, or kill it if it takes longer, kill what it started, and return its exit status."""
        try:
            self.process.wait(max(seconds, 0.0))
        except subprocess.TimeoutExpired:
            self.process.kill()
        status = self.process.wait()
        with contextlib.suppress(OSError):  # nothing else is left in its group
            os.killpg(self.process.pid, signal.SIGKILL)
        return status

    def cpu_seconds(self) -> float:
        """Return its processor time; 0 where the system does not tell that of another process."""
        clock = (~self.process.pid << 3) | _CPU_CLOCK
        try:
            return time.clock_gettime(clock)
        except (OSError, OverflowError):
            return 0.0

    def tail(self) -> str:
        """Return the last lines that it printed, or the first ones about a crash."""
        size = os.fstat(self.output.fileno()).st_size
        self.output.seek(max(size - 8192, 0))
        text = self.output.read().decode(errors="replace")
        crash = text.find(_CRASH)
        lines = [line for line in text[max(crash, 0) :].splitlines() if line.strip()]
        shown = lines[:_SHOWN] if crash >= 0 else lines[-_SHOWN:]
        return "".join(f"\n  {quoted(line, 200)}" for line in shown)
