"""Processor seconds of short commands: Tab, help and the list of runs.

    python benchmarks/start_up.py [--rounds 10] [--python OTHER/.venv/bin/python ...]

Shows the minimum of the rounds for each, after a first round that compiles the sources of hmx. `import typer` is the
share of the command line's library before any command is built. Run it in a folder with `runs/` to list runs.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys


def seconds(command: list[str], environ: dict[str, str]) -> float:
    """Return the user and system seconds of a process."""
    silent = subprocess.DEVNULL
    process = subprocess.Popen(command, env=os.environ | environ, stdin=silent, stdout=silent, stderr=silent)
    usage = os.wait4(process.pid, 0)[2]
    process.returncode = 0  # `wait4` has reaped it
    return usage.ru_utime + usage.ru_stime


def tab(line: str) -> dict[str, str]:
    """Return the variables with which bash asks what completes a line."""
    words = line.split(" ")
    return {"_HMX_COMPLETE": "complete_bash", "COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PATH")
    args = parser.parse_args()

    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    hmx = ["-m", "hmx"]
    rows: list[tuple[str, list[str], dict[str, str]]] = [
        ("python -c pass", ["-c", "pass"], {}),
        ("import typer", ["-c", "import typer"], {}),
        *((f"{line}<Tab>", hmx, tab(line)) for line in ("hmx tr", "hmx runs show ", "hmx train --pre")),
        *((f"hmx {line}", [*hmx, *line.split()], {}) for line in ("--help", "train --help", "runs list")),
    ]
    for python in args.python:
        for name, words, environ in rows:
            times = [seconds([python, *words], environ) for _ in range(args.rounds + 1)][1:]
            print(f"{python}  {name:20}  {min(times):.2f} s")


if __name__ == "__main__":
    main()
