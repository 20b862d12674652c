"""Time of `hmx train` until its first update is on disk, cold and from the cache of compiled programs.

    python benchmarks/first_update.py [--rounds 3] [--python OTHER/.venv/bin/python ...] [-- --env cartpole]

Each measurement is a new process, killed after its first record. A cold one has an empty cache; a cached one has the
cache that the cold one filled. Several `--python`, such as those of two working trees, take turns. Compare processor
seconds if other programs use the machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hmx.stats.intervals import median


def first_update(python: str, words: list[str], cache: Path) -> tuple[float, float]:
    """Return the wall and processor seconds of a new training until its first record is on disk."""
    with tempfile.TemporaryDirectory() as root:
        command = [python, "-m", "hmx", "train", *words, "--set", f"run.root={root}"]
        env = os.environ | {"HMX_CACHE_DIR": str(cache)}
        begun = time.monotonic()
        process = subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL)
        while not any(file.read_bytes() for file in Path(root).glob("*/metrics.jsonl")):
            if process.poll() is not None:
                sys.exit("hmx train ended before its first update")
            time.sleep(0.01)
        wall = time.monotonic() - begun
        process.kill()
        usage = os.wait4(process.pid, 0)[2]
        process.returncode = -9  # `wait4` has reaped it
    return wall, usage.ru_utime + usage.ru_stime


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--python", nargs="+", default=[sys.executable], metavar="PATH")
    parser.add_argument("words", nargs="*", help="options of hmx train, after --")
    args = parser.parse_args()

    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for _ in range(args.rounds):
        for python in args.python:
            with tempfile.TemporaryDirectory() as cache:
                for what in ("cold", "cached"):
                    found.setdefault((python, what), []).append(first_update(python, args.words, Path(cache)))
    for (python, what), pairs in found.items():
        wall, processor = zip(*pairs, strict=True)
        print(f"{python}  {what:6}  {median(wall):5.1f} s wall  {median(processor):5.1f} s of processor time")


if __name__ == "__main__":
    main()
