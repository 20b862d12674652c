"""One program of `time_to_return.py` or `many_seeds.py` in its own process: hmx, or a peer, which then needs no hmx.

It reads a `Task` as one line of JSON and writes what compiling took. Then it trains one seed for each number it reads,
and writes when that seed's mean return passed the threshold; for the text "speed" it writes how long some updates took.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import numpy as np
from time_to_return_peers import purejaxrl, rejax, sb3, stoix
from time_to_return_program import Program, Series, versions
from time_to_return_task import End, Task


def last_means(series: Series, episodes: int) -> np.ndarray[Any, Any]:
    """Return the mean return of the last episodes after each number of updates, from 0; NaN where too few have ended.

    The last episodes are those of the fewest last updates in which at least `episodes` ended.
    """
    counts, sums = (np.concatenate([[0.0], np.cumsum(values)]) for values in series)
    before = np.searchsorted(counts, counts - episodes, side="right") - 1
    enough = before >= 0
    ended = np.where(enough, counts - counts[before], 1.0)
    return np.where(enough, (sums - sums[before]) / ended, np.nan)


def arrival(series: Series, target: float, episodes: int) -> int | None:
    """Return the number of updates after which the mean return of the last episodes has passed the target."""
    (passed,) = np.nonzero(last_means(series, episodes) > target)
    return int(passed[0]) if len(passed) else None


def on_cpu() -> bool:
    """Whether seconds are those of the processor."""
    return jax.default_backend() == "cpu"


def train(program: Program, seed: int, task: Task) -> End:
    """Train one seed until it arrives or is given up, or to its end if the task says so.

    Where several updates run in one call, each counts as the same share of its time.
    """

    def clocks() -> tuple[float, float]:
        return time.process_time() + program.workers_cpu(), time.perf_counter()

    state = program.start(seed)
    series: Series = (np.zeros(0), np.zeros(0))
    cpu = wall = 0.0
    arrived: tuple[float, float, float] | None = None
    most = min(program.total, task.limit) // program.per_update
    while len(series[0]) < most and (cpu if on_cpu() else wall) < task.seconds:
        began = clocks()
        state, new = program.step(state)
        spent = [now - then for now, then in zip(clocks(), began, strict=True)]
        before = len(series[0])
        series = np.append(series[0], new[0]), np.append(series[1], new[1])
        update = None if arrived else arrival(series, task.target, task.episodes)
        if update is not None:
            share = (update - before) / len(new[0])
            arrived = cpu + share * spent[0], wall + share * spent[1], float(update * program.per_update)
        cpu, wall = cpu + spent[0], wall + spent[1]
        if arrived and not task.to_end:
            break
    whole = cpu, wall, float(len(series[0]) * program.per_update)
    mean_return = float(last_means(series, task.episodes)[-1])
    return End(arrived is not None, *(arrived or whole), mean_return, *whole)


def speed(program: Program, task: Task) -> tuple[float, float, float]:
    """Time one call of a program: processor seconds, wall seconds, and environment steps over all seeds."""
    state = program.start(0)
    times = time.process_time(), time.perf_counter()
    if program.begin is not None:
        program.begin(state)
    after = time.process_time(), time.perf_counter()
    _, series = program.step(state)
    cpu, wall = time.process_time() - after[0], time.perf_counter() - after[1]
    steps = len(series[0]) * program.per_update * task.together
    return cpu - (after[0] - times[0]), wall - (after[1] - times[1]), float(steps)


class Seed(NamedTuple):
    """The training of a seed by hmx."""

    algorithm: Any
    chunk: Any
    state: Any
    done: int = 0  # updates


def hmx(task: Task) -> Program:
    """Compile hmx: chunks of updates with metrics on the host, as `hmx train` runs them."""
    from hmx.algos.build import make_algorithm
    from hmx.envs.registry import make_env
    from hmx.registry.load import load
    from hmx.runs.chunk import compile_chunk
    from hmx.runs.loop import abstract_state, init_state

    cfg = load(environ={}, **task.settings).config
    env = make_env(cfg.env, cfg.reward)
    if env.spec.simulator is not None:
        return hmx_on_simulators(cfg)
    algorithm = make_algorithm(cfg, env)
    seeds, length = task.together, task.updates or cfg.run.updates_per_chunk
    chunk = compile_chunk(algorithm, abstract_state(algorithm, 0, seeds), length, seeds)

    def start(seed: int) -> Seed:
        return Seed(algorithm, chunk, jax.block_until_ready(init_state(algorithm, seed, seeds)))

    per_update = cfg.env.num_envs * cfg.algo.num_steps
    return Program(start, advance, per_update, cfg.run.total_steps, versions("hmx"), memory_bytes=chunk.memory_bytes)


def hmx_on_simulators(cfg: Any) -> Program:
    """Compile hmx for simulators: a seed has workers of its own, and compiles again before its clock starts."""
    from hmx.config.fields import replace
    from hmx.runs.hosted import Host, compile_hosted
    from hmx.runs.session import first_state, open_session
    from hmx.runs.signals import SignalGuard
    from hmx.runs.training import open_host

    hosts: list[Host] = []  # that of the current seed

    def start(seed: int) -> Seed:
        for ended in hosts:
            ended.close()
        session = open_session(replace(cfg, {"run.seed": seed}))
        host = open_host(session, SignalGuard(), print)
        assert host is not None
        hosts[:] = [host]
        state, _ = host.begin(first_state(session))
        chunk = compile_hosted(session.algorithm, host, session.abstract, cfg.algo.num_steps, cfg.run.on_nonfinite)
        return Seed(session.algorithm, chunk, state)

    start(0)  # which shows how long compiling takes
    per_update = cfg.env.num_envs * cfg.algo.num_steps
    named = versions("hmx", "gymnasium")
    return Program(start, advance, per_update, cfg.run.total_steps, named, lambda: hosts[0].cpu_seconds())


def advance(seed: Seed) -> tuple[Seed, Series]:
    """Run a chunk of hmx."""
    from hmx.runs.chunk import reduce_row

    chunk, done = seed.chunk, seed.done
    hypers = [seed.algorithm.hypers(done + i) for i in range(chunk.length)]
    rows = {name: np.array([row[name] for row in hypers], np.float32) for name in hypers[0]}
    result = chunk.call(seed.state, rows, np.int32(chunk.length))
    packed = jax.device_get(result.packed).reshape(chunk.length * chunk.num_seeds, -1)
    records = [reduce_row(chunk.rows, values) for values in packed]
    counts = np.array([record["train/num_episodes"] for record in records])
    means = np.array([record.get("train/mean_episode_return", 0.0) for record in records])
    sums = [values.reshape(chunk.length, chunk.num_seeds).sum(1) for values in (counts, counts * means)]
    return seed._replace(state=result.state, done=done + chunk.length), (sums[0], sums[1])


PROGRAMS: dict[str, Callable[[Task], Program]] = {
    "hmx": hmx, "rejax": rejax, "purejaxrl": purejaxrl, "stoix": stoix, "sb3": sb3,
}  # fmt: skip


@contextlib.contextmanager
def replies() -> Iterator[Callable[[object], None]]:
    """Keep standard output for replies: output of libraries goes to standard error."""
    with os.fdopen(os.dup(1), "w") as file:
        os.dup2(2, 1)
        yield lambda value: print(json.dumps(value), file=file, flush=True)


def main() -> None:
    """Compile, then train the seeds asked for."""
    with replies() as reply:
        task = Task(**json.loads(sys.stdin.readline()))
        began = time.process_time(), time.perf_counter()
        program = PROGRAMS[task.program](task)
        spent = time.process_time() - began[0], time.perf_counter() - began[1]
        memory = program.memory_bytes
        reply({"cpu": spent[0], "wall": spent[1], "versions": program.versions, "on_cpu": on_cpu(), "memory": memory})
        for line in sys.stdin:
            question = json.loads(line)
            reply(speed(program, task) if question == "speed" else train(program, question, task))


if __name__ == "__main__":
    main()
