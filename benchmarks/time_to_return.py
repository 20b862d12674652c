"""How much processor time training takes until the mean return passes a threshold, for the default and for changes.

    python benchmarks/time_to_return.py hackmatrix [--change "ppo.update_epochs=2"] [--seeds 5] [--limit 8M]
    python benchmarks/time_to_return.py cartpole-discrete --base "env.num_envs=64" --change "ppo.update_epochs=2"

Thresholds: +5 on HackMatrix, 475 on cartpole-discrete, -200 on pendulum; `--target` for others. All variants train in
turn with every seed, from seed 0, in one process. A seed has arrived when the mean return of all episodes that ended
in the last `--window` updates passes the threshold; one that does not within `--limit` steps is reported as such, and
the median then counts it as infinite. Compiling is timed apart. Printed are the median over the seeds of processor
seconds, wall seconds and environment steps, the lowest and highest processor seconds, and the ratio of the medians to
the first variant with a 95 % interval (bootstrap over seeds).
"""

from __future__ import annotations

import argparse
import collections
import math
import shlex
import time
from typing import NamedTuple

import jax
import numpy as np

from hmx.agents import make_algorithm
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.env.registry import make_env
from hmx.runs.chunk import Chunk, compile_chunk, reduce_row
from hmx.runs.loop import abstract_state, init_state

TARGETS = {"hackmatrix": 5.0, "cartpole-discrete": 475.0, "pendulum": -200.0}
RETURN, EPISODES = "train/mean_episode_return", "train/num_episodes"


class Arrival(NamedTuple):
    """When a seed passed the threshold; infinite if it did not."""

    cpu: float
    wall: float
    steps: float


NEVER = Arrival(math.inf, math.inf, math.inf)


def configure(env: str, base: str, change: str, limit: str) -> Config:
    """Combine the preset and settings of `base` with those of `change`; a run would last `limit` steps."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--preset")
    parser.add_argument("sets", nargs="*")
    given = parser.parse_args(shlex.split(base))
    return load(
        preset=given.preset,
        sets=[f"env.id={env}", *given.sets, f"run.total_steps={limit}", *shlex.split(change)],
    ).config


def train(cfg: Config, chunk: Chunk, seed: int, target: float, window: int) -> Arrival:
    """Train one seed until it arrives."""
    algorithm = make_algorithm(cfg, make_env(cfg.env, cfg.reward))
    state = jax.block_until_ready(init_state(algorithm, seed, 1))
    recent: collections.deque[tuple[float, float]] = collections.deque(maxlen=window)
    per_update, done = cfg.env.num_envs * cfg.algo.num_steps, 0
    cpu, wall = time.process_time(), time.perf_counter()
    while done * per_update < cfg.run.total_steps:
        hypers = [algorithm.hypers(done + i) for i in range(chunk.length)]
        rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
        result = chunk.call(state, rows, np.int32(chunk.length))
        state, packed = result.state, jax.device_get(result.packed)
        for values in packed:
            done += 1
            record = reduce_row(chunk.rows, values)
            recent.append((record[EPISODES], record.get(RETURN, 0.0)))
            episodes = sum(number for number, _ in recent)
            mean = sum(number * value for number, value in recent) / max(episodes, 1)
            if len(recent) == window and mean > target:
                return Arrival(time.process_time() - cpu, time.perf_counter() - wall, done * per_update)
    return NEVER


def ratio(first: list[float], other: list[float]) -> str:
    """Write the ratio of the medians and its bootstrap interval."""
    if not np.isfinite([np.median(first), np.median(other)]).all():
        return "not known"
    rng = np.random.default_rng(0)
    draws = rng.integers(0, len(first), (2, 2000, len(first)))
    medians = [np.median(np.array(values)[rows], axis=1) for values, rows in zip((other, first), draws, strict=True)]
    with np.errstate(invalid="ignore"):
        low, high = np.nanpercentile(medians[0] / medians[1], [2.5, 97.5])
    return f"{np.median(other) / np.median(first):.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("env")
    parser.add_argument("--base", default="", help="preset and settings of all variants")
    parser.add_argument("--change", action="append", default=[], help="settings of one more variant, in quotes")
    parser.add_argument("--target", type=float)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--limit", default="8M", help="environment steps after which a seed is given up")
    parser.add_argument("--window", type=int, default=8, help="updates whose episodes are averaged")
    args = parser.parse_args()
    target = TARGETS[args.env] if args.target is None else args.target
    variants = {
        change or "default": configure(args.env, args.base, change, args.limit) for change in ["", *args.change]
    }
    chunks = {}
    for name, cfg in variants.items():
        algorithm, began = make_algorithm(cfg, make_env(cfg.env, cfg.reward)), time.process_time()
        chunks[name] = compile_chunk(algorithm, abstract_state(algorithm, 0, 1), cfg.run.updates_per_chunk)
        print(f"{name}: compiled in {time.process_time() - began:.1f} s of processor time", flush=True)
    found: dict[str, list[Arrival]] = {name: [] for name in variants}
    for seed in range(args.seeds):
        for name, cfg in variants.items():
            found[name].append(train(cfg, chunks[name], seed, target, args.window))
            print(f"seed {seed}, {name}: {found[name][-1].cpu:.1f} s, {found[name][-1].steps:,.0f} steps", flush=True)
    print(f"\n{args.env} to {target:+g}, {args.seeds} seeds, jax {jax.__version__} on {jax.devices()[0].device_kind}")
    print(f"{'CPU s':>8} {'lowest':>8} {'highest':>8} {'wall s':>8} {'steps':>12}  {'ratio of CPU s':<20} variant")
    first = [arrival.cpu for arrival in found["default"]]
    for name, arrivals in found.items():
        cpu, wall, steps = (list(values) for values in zip(*arrivals, strict=True))
        against = "1" if name == "default" else ratio(first, cpu)
        numbers = f"{np.median(cpu):>8.1f} {min(cpu):>8.1f} {max(cpu):>8.1f} {np.median(wall):>8.1f}"
        print(f"{numbers} {np.median(steps):>12,.0f}  {against:<20} {name}")


if __name__ == "__main__":
    main()
