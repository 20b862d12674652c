"""Make Ctrl-C end a command at any moment, also while modules are imported."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from hmx.errors import ExitCode

_REPEAT = 0.5  # seconds, enough for the main thread to leave the callback


def install() -> None:
    """Handle SIGINT until a job installs handlers of its own; keep it ignored where the shell ignores it.

    Python's own handler raises `KeyboardInterrupt` between any two instructions. NumPy and JAX turn it into other
    errors while they are imported, and Python drops it in callbacks of the garbage collector.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
        sys.unraisablehook = _send_again


def _interrupt(signum: int, frame: FrameType | None) -> None:
    if _is_importing(frame):
        os.write(2, b"error: interrupted\n")
        os._exit(ExitCode.SIGINT)
    raise KeyboardInterrupt


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    if isinstance(dropped.exc_value, KeyboardInterrupt):
        threading.Timer(_REPEAT, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(dropped)
