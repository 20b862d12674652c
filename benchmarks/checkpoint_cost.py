"""Cost of checkpoints: bytes on disk, and the share of training time at the default cadence.

    python benchmarks/checkpoint_cost.py [--num-envs 512] [--num-steps 64] [--rounds 6] [--updates 4] [--set KEY=VALUE]

Chunks of `--updates` updates with a checkpoint begun before them and chunks without one take turns, so that other load
on the machine affects both equally. A checkpoint stops training for the copy to the host, and its write in the
background slows the chunk that runs meanwhile. The period is that of the configuration, `updates_per_chunk` x
`checkpoint_every` updates.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmx.registry.load import load
from hmx.runs import checkpoint
from hmx.runs.chunk import compile_chunk
from hmx.runs.loop import init_state
from hmx.runs.saving import Saver
from hmx.runs.session import open_session, state_bytes


@dataclasses.dataclass
class Times:
    """Seconds, one entry per round."""

    copy: list[float] = dataclasses.field(default_factory=list)  # training stands still
    write: list[float] = dataclasses.field(default_factory=list)  # in the background, during a chunk
    beside: list[float] = dataclasses.field(default_factory=list)  # a chunk during a write
    alone: list[float] = dataclasses.field(default_factory=list)  # a chunk without


def measure(cfg: Any, updates: int, rounds: int, folder: Path) -> tuple[Times, int, int]:
    """The times, the bytes of the state, and those of a checkpoint on disk."""
    session, times = open_session(cfg), Times()
    chunk = compile_chunk(session.algorithm, session.abstract, updates, cfg.run.num_seeds)
    state = init_state(session.algorithm, cfg.run.seed, cfg.run.num_seeds)
    hypers = {k: np.full(updates, v, np.float32) for k, v in session.algorithm.hypers(0).items()}

    def prepare(state: Any, update: int, score: float | None) -> Any:
        copy = checkpoint.snapshot(state)

        def write() -> None:
            start = time.perf_counter()
            checkpoint.write(folder, copy, update, cfg.run.keep, keep_best=cfg.run.keep_best)
            times.write.append(time.perf_counter() - start)

        return write

    saver = Saver(prepare)
    for i in range(2 * rounds + 2):
        if i % 2 == 0:
            start = time.perf_counter()
            saver.save(state, i)
            times.copy.append(time.perf_counter() - start)
        start = time.perf_counter()
        played = chunk.call(state, hypers, np.int32(updates))
        state = jax.block_until_ready(played.state)
        (times.alone if i % 2 else times.beside).append(time.perf_counter() - start)
        saver.wait()
    newest = max(folder.iterdir(), key=lambda path: int(path.name))
    on_disk = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
    # The first round pays for imports and for memory that is touched for the first time.
    return Times(*(getattr(times, field.name)[1:] for field in dataclasses.fields(times))), state_bytes(state), on_disk


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--num-envs", type=int, default=512)
    parser.add_argument("--num-steps", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    sets = [f"env.num_envs={args.num_envs}", f"algo.num_steps={args.num_steps}", *args.set]
    cfg = load(sets=sets, environ={}).config
    with tempfile.TemporaryDirectory() as folder:
        times, in_memory, on_disk = measure(cfg, args.updates, args.rounds, Path(folder))
    median = {field.name: statistics.median(getattr(times, field.name)) for field in dataclasses.fields(times)}
    period = cfg.run.updates_per_chunk * cfg.run.checkpoint_every
    seconds = median["alone"] / args.updates * period
    slower = [a - b for a, b in zip(times.beside, times.alone, strict=True)]
    cost = median["copy"] + statistics.median(slower)
    print(f"{jax.devices()[0].device_kind}, {os.cpu_count()} processors, {args.num_envs} x {args.num_steps} steps")
    print(f"state              {in_memory:>12,} bytes in memory, {on_disk:,} in a checkpoint")
    print(f"copy               {median['copy']:>12.3f} s, for which training stands still")
    print(f"write              {median['write']:>12.3f} s in the background")
    print(f"a chunk is slower  {statistics.median(slower):>12.3f} s ({min(slower):.3f} to {max(slower):.3f})")
    print(f"period             {seconds:>12.1f} s for {period} updates")
    print(f"share of training  {cost / seconds:>12.2%}; at most {(median['copy'] + median['write']) / seconds:.2%}")


if __name__ == "__main__":
    main()
