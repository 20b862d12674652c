"""The `hmx` command: `python -m hmx` and the entry point are the same."""

from __future__ import annotations

import os
import sys

from hmx.cli import interrupts  # first, and light: Ctrl-C during an import that comes before it shows a traceback

# `python -m` puts the current folder first on the path. The command `hmx` does not: a `json.py` there is not its own.
if __name__ == "__main__" and not sys.flags.safe_path and sys.path[0] in ("", os.path.abspath("")):
    del sys.path[0]

# OpenBLAS reads this when NumPy or SciPy loads it. Its threads busy-wait for each other: while a compilation or another
# program uses the cores, the QR decompositions of the initial weights take seconds instead of milliseconds. The number
# of threads also changes the last bits of these weights.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# XLA reads this when it is loaded. It would ask users to report each compilation of more than two minutes as a bug.
# Errors that stop a program are exceptions of Python too.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# JAX reads this when it is imported. A program would name ten lines of source for each of its operations, which takes a
# tenth of the time of compiling.
os.environ.setdefault("JAX_INCLUDE_FULL_TRACEBACKS_IN_LOCATIONS", "0")


def main() -> None:
    """Run the command line and end the process with its exit code."""
    interrupts.install()
    # no other code has replaced functions of hmx here, so programs may come from disk (hmx.runs.lowered)
    os.environ.setdefault("HMX_LOWERED", "1")
    try:
        from hmx.cli.app import app

        app(prog_name="hmx")
    except KeyboardInterrupt:  # between two imports, or before the command runs
        interrupts.end()


if __name__ == "__main__":
    main()
