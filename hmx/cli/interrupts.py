"""Make Ctrl-C end a command at any moment, also while modules are imported."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # this module is imported before Ctrl-C is handled, so it imports nothing that takes long
if TYPE_CHECKING:
    from types import FrameType

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
        end()
    raise KeyboardInterrupt


def end() -> None:
    """End the process at once, as an interrupted command ends."""
    os.write(2, b"error: interrupted\n")
    os._exit(128 + signal.SIGINT)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def _send_again(dropped: sys.UnraisableHookArgs) -> None:
    import threading

    if isinstance(dropped.exc_value, KeyboardInterrupt):
        threading.Timer(_REPEAT, os.kill, (os.getpid(), signal.SIGINT)).start()
    else:
        sys.__unraisablehook__(dropped)
