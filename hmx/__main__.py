"""The `hmx` command: `python -m hmx` and the entry point are the same."""

from __future__ import annotations

import os

# Read by OpenBLAS when NumPy or SciPy first loads it. Its threads wait actively for each other: beside a compilation or
# another program, the QR decompositions of the initial weights take seconds instead of milliseconds. The last bits of
# these weights also depend on the number of threads.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from hmx.cli.app import app


def main() -> None:
    """Run the command line and end the process with its exit code."""
    app(prog_name="hmx")


if __name__ == "__main__":
    main()
