"""Time programs in turn, so that other load on the machine slows all of them equally."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.collector import StepResult, play_step, start
from hmx.algos.evaluate import random_actions
from hmx.algos.search import SearchAct, make_act, searched
from hmx.algos.types import Carry, Decision, RolloutState, TrainState
from hmx.config.schema import RunConfig
from hmx.envs.protocol import Env, EnvState
from hmx.errors import optional
from hmx.records.checkpoints import Retention
from hmx.records.jsonl import MetricsWriter
from hmx.reports.bench.findings import Compilation, PhaseName
from hmx.runs import checkpoint, devices
from hmx.runs.chunk import Chunk, compile_chunk, reduce_row
from hmx.runs.loop import init_state, seed_state
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.stats.estimate import Estimate
from hmx.stats.intervals import median, median_interval
from hmx.types import Array, Key

T = TypeVar("T")

FEWEST = 3  # rounds, however long they take
Work = Callable[[], object]

_SAVED = "/jax/compilation_cache/compile_time_saved_sec"
_LONG_ENOUGH = 0.1  # seconds that a call should take, since starting a program also takes time
_SHORTEST = 1e-6  # seconds


def time_in_turn(
    works: Mapping[str, Work],
    rounds: int,
    *,
    most: int | None = None,
    seconds: float = 0.0,
    limit: float = math.inf,
    warm: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Return the seconds of each work in each round, after a first call of each that does not count.

    Each work returns arrays to wait for, or returns when it is done; it is `warm` if it has been called before. There
    are `rounds` rounds, and up to `most` until `seconds` have passed. After `limit` seconds fewer rounds suffice, but
    at least `FEWEST`.
    """
    for work in () if warm else works.values():
        jax.block_until_ready(work())
    found: dict[str, list[float]] = {name: [] for name in works}
    begun = time.perf_counter()
    for done in range(most or rounds):
        passed = time.perf_counter() - begun
        if (done >= rounds and passed > seconds) or (done >= FEWEST and passed > limit):
            break
        for name, work in works.items():
            start_s = clock()
            jax.block_until_ready(work())
            found[name].append(clock() - start_s)
    return found


def device_clock() -> Callable[[], float]:
    """Return the best clock to compare programs: processor time on a CPU, where other programs may run as well."""
    return time.process_time if jax.default_backend() == "cpu" else time.perf_counter


def estimate(values: Sequence[float]) -> Estimate:
    """Estimate the median of at least one value."""
    return Estimate(median(values), *(median_interval(values) or (None, None)))


def calls_for(work: Callable[[int], object], most: int) -> int:
    """Return how many repetitions last `_LONG_ENOUGH`, at most `most`, where `work(n)` does n of them."""
    seconds = time_in_turn({"": partial(work, 1)}, 1)[""][0]
    return max(min(math.ceil(_LONG_ENOUGH / max(seconds, _SHORTEST)), most), 1)


def compiled(build: Callable[[], T]) -> tuple[T, Compilation]:
    """Return the program that `build` compiles, and how long compiling takes without the persistent cache.

    A program from the cache counts with the time that it took when it was compiled.
    """
    saved: list[float] = []

    def listen(event: str, duration_secs: float, **_: str | int) -> None:
        saved.extend([duration_secs] if event == _SAVED else [])

    with optional("find out whether a program came from the cache"):
        jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        begun = time.perf_counter()
        program = interruptible(build)
        waited = time.perf_counter() - begun
    finally:
        with optional("find out whether a program came from the cache"):
            jax.monitoring.unregister_event_duration_listener(listen)
    return program, Compilation(waited + sum(saved), waited, bool(saved))


_Played = tuple[RolloutState, StepResult]  # with the last step, so that no part of a step is optimised away


class EnvPlayer:
    """Environments that step with random legal actions or with a policy, in one program.

    One program, because most of its compilation is that of the environment. Without `decide` only random play is
    possible. `state` is the argument of `decide`, and `play` takes a state like it; the first of its `num_seeds` agents
    acts.
    """

    def __init__(
        self, env: Env, num_envs: int, seed: int, decide: SearchAct | None = None, state: TrainState | None = None,
        num_seeds: int = RunConfig.num_seeds, carry: Carry = None,
    ) -> None:  # fmt: skip
        act_of = partial(_act_of, env, decide, num_seeds)

        def run(state: TrainState | None, played: _Played, acting: Array, steps: Array, key: Key) -> _Played:
            def step(i: Array, at: _Played) -> _Played:
                actors, _ = at
                act = act_of(state, acting, actors.env_state)
                return play_step(env, act, actors, jax.random.fold_in(key, i))

            after: _Played = jax.lax.fori_loop(0, steps, step, played)
            return after

        k_start, self._key = jax.random.split(jax.random.key(seed))
        actors = jax.jit(lambda key: start(env, num_envs, carry, key))(k_start)
        step = partial(play_step, env, act_of(state, jnp.bool_(False), actors.env_state))
        last = jax.tree.map(_zeros, jax.eval_shape(step, actors, k_start)[1])
        self.num_envs, self._calls = num_envs, 0
        self._played: _Played = actors, last
        self._program, self.compilation = compiled(
            lambda: jax.jit(run).lower(state, self._played, np.bool_(False), np.int32(1), self._key).compile()
        )

    @property
    def actors(self) -> RolloutState:
        """Return the current state of the environments."""
        actors, _ = self._played
        return actors

    def play(self, steps: int, state: TrainState | None = None, acting: bool = False) -> None:
        """Take steps in every environment, at random or `acting` with a policy."""
        key = jax.random.fold_in(self._key, self._calls)
        self._calls += 1
        self._played = jax.block_until_ready(self._program(state, self._played, np.bool_(acting), np.int32(steps), key))


def _act_of(
    env: Env, decide: SearchAct | None, num_seeds: int, state: TrainState | None, acting: Array, env_state: EnvState
) -> Callable[[Carry, Array, Array, Array, Key], tuple[Decision, Carry]]:
    """Return how to act from `env_state`: with `decide` if there is one and `acting` holds, else at random."""

    def act(carry: Carry, obs: Array, legal: Array, reset: Array, key: Key) -> tuple[Decision, Carry]:
        if decide is None or state is None:
            unknown = jnp.zeros(legal.shape[:-1])
            action = random_actions(key, legal, env.spec.action_dim)
            return Decision(action, unknown, jnp.zeros(legal.shape), unknown), carry
        policy = partial(decide, seed_state(state, 0, num_seeds), env_state, carry, obs, legal, reset)

        def random(key: Key) -> tuple[Decision, Carry]:
            decision: Decision = jax.tree.map(_zeros, jax.eval_shape(policy, key)[0])
            action = random_actions(key, legal, env.spec.action_dim).astype(decision.action.dtype)
            return decision._replace(action=action), carry

        decided: tuple[Decision, Carry] = jax.lax.cond(acting, policy, random, key)
        return decided

    return act


def _zeros(leaf: jax.ShapeDtypeStruct) -> Array:
    return jnp.zeros(leaf.shape, leaf.dtype)


class Rollouts(NamedTuple):
    """A kind of rollout: `play(n)` plays n of them in all environments of a device."""

    name: PhaseName
    unit: str
    play: Callable[[int], object]


RANDOM, POLICY = "a rollout of random actions", "a rollout of the policy"


class Updates:
    """The updates of a run, compiled as `hmx train` compiles them, and its checkpoints and records."""

    def __init__(self, session: Session) -> None:
        cfg, algorithm, self.session = session.cfg, session.algorithm, session
        self._mesh, seeds = session.mesh, cfg.run.num_seeds
        self.length = self._length()
        self._chunk, self.compilation = compiled(self._compile)
        self.memory_bytes = self._chunk.memory_bytes
        # From the middle of the run, when Q-learning learns.
        hypers = algorithm.hypers(session.sizes.num_updates // 2)
        self._hypers = {name: np.full(self.length, value, np.float32) for name, value in hypers.items()}
        self.state = devices.put(self._mesh, algorithm, init_state(algorithm, cfg.run.seed, seeds), seeds)
        # Acting is measured on one device; there, the state cannot be used again once it has been donated.
        self._first = None if self._mesh is None else jax.tree.map(jnp.copy, devices.gather(self._mesh, self.state))
        self._record: dict[str, float] = {}
        self._saved = 0

    def _length(self) -> int:
        return self.session.sizes.updates_per_chunk

    def _compile(self) -> Chunk:
        session, run = self.session, self.session.cfg.run
        return compile_chunk(
            session.algorithm, session.abstract, self.length, run.num_seeds, run.on_nonfinite, self._mesh
        )

    def close(self) -> None:
        """End what the updates hold apart from memory."""

    def cpu_seconds(self) -> float:
        """Return the processor time of this process and of its workers."""
        return time.process_time()

    def rollouts(self) -> tuple[Rollouts, ...]:
        """Return the kinds of rollouts to measure, from the cheapest to that of an update without its learning."""
        session, cfg, num_envs = self.session, self.session.cfg, self.num_envs
        search = session.task.simulations
        env = searched(session.env, cfg.gumbel.sees, search)
        decide = make_act(session.algorithm, env, cfg, search, greedy=False)  # as rollouts do
        carry = session.algorithm.initial_carry((num_envs, env.spec.num_agents))
        player = EnvPlayer(env, num_envs, cfg.run.seed, decide, self.acting_state, cfg.run.num_seeds, carry)

        def play(acting: bool, rollouts: int) -> None:
            player.play(rollouts * cfg.algo.num_steps, self.acting_state, acting)

        return (
            Rollouts("environment", RANDOM, partial(play, False)),
            Rollouts("acting", POLICY, partial(play, True)),
        )

    @property
    def acting_state(self) -> TrainState:
        """Return the state to act with on one device."""
        return self.state if self._first is None else self._first

    @property
    def num_devices(self) -> int:
        """Number of devices that share an update."""
        return self.session.mesh.size if self.session.mesh else 1

    @property
    def num_envs(self) -> int:
        """Environments of a device, over all seeds."""
        cfg = self.session.cfg
        return max(cfg.env.num_envs * cfg.run.num_seeds // self.num_devices, 1)

    @property
    def steps(self) -> int:
        """Environment steps of an update, over all seeds."""
        return self.session.sizes.batch_size * self.session.cfg.run.num_seeds

    def update(self, number: int) -> None:
        """Do updates, at most `length`, and copy their metrics to the host."""
        result = self._chunk.call(self.state, self._hypers, np.int32(number))
        self.state = result.state
        packed, _ = jax.device_get((result.packed, result.done))
        rows: np.ndarray[Any, Any] = packed.reshape(self.length, -1, packed.shape[-1])
        self._record = reduce_row(self._chunk.rows, rows[0, 0])

    def save(self, folder: Path) -> Path:
        """Write a checkpoint in place of the previous one, and return its folder."""
        self._saved += 1
        snapshot = checkpoint.snapshot(devices.replicate_locally(self._mesh, self.state))
        return checkpoint.write(folder, snapshot, self._saved, keep=Retention(1))

    def log(self, writer: MetricsWriter) -> None:
        """Write the records of a chunk to disk."""
        for update in range(self.length):
            for seed in range(self.session.cfg.run.num_seeds):
                writer.write({"update": update, "env_steps": update * self.steps, "seed": seed, **self._record})
        writer.flush()


class OtherPrograms:
    """Measure the share of the processors that other programs use, from its creation on."""

    def __init__(self) -> None:
        self._begun, self._busy, self._own = time.perf_counter(), _busy_seconds(), time.process_time()

    def share(self) -> float | None:
        """Return the share of the processors' time that this process may use; None if unknown."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = busy - self._busy - (time.process_time() - self._own)
        whole = (time.perf_counter() - self._begun) * len(os.sched_getaffinity(0))
        return min(max(others / whole, 0.0), 1.0)


def _busy_seconds() -> float | None:
    """Return the seconds that the processors of this process have worked since the machine started."""
    try:
        ours = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [line.split() for line in Path("/proc/stat").read_text(encoding="utf-8").splitlines()]
        # user, nice, system, (idle, waiting for the disk,) interrupts, soft interrupts, other virtual machines
        ticks = [int(row[field]) for row in rows if row and row[0] in ours for field in (1, 2, 3, 6, 7, 8)]
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    return sum(ticks) / os.sysconf("SC_CLK_TCK")
