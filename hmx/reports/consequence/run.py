"""The computation of `hmx score-buffer`: in parts of one size, kept as they are done, and gone on with later."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config import codec
from hmx.env.protocol import EnvSpec
from hmx.errors import HmxError
from hmx.records import score_file
from hmx.records.atomic import writing
from hmx.records.buffer_header import settings_of
from hmx.records.sealed_arrays import DTYPES, ArrayForm
from hmx.reports.consequence.source import Scene, states_at
from hmx.runs.buffers import ACTION, LEGAL, OBS, named
from hmx.runs.checkpoint import to_host
from hmx.runs.device_memory import out_of_memory
from hmx.runs.signals import SignalGuard, StopNow, interruptible
from hmx.scoring import Options, Policy, Positions, compare, make_policy, play, q_gap
from hmx.scoring.options import num_candidates
from hmx.stats.ranks import Host
from hmx.types import Array, Key

METRICS = ("w1", "dmean", "tv", "js")  # each is kept; they come from the same rollouts
DONE, UNDONE = "scores.npz", "unfinished.npz"
Progress = Callable[[str, int, int], None]  # phase, positions done, positions in all

_LIVE = {"cpu": 4096}  # environments side by side in one part
_LIVE_ELSEWHERE = 65536
_PROBED = 64
_LONGEST_PROBE = 1000  # steps, where an environment has no limit of its own
_SAVE_EVERY = 5.0  # seconds


class Task(NamedTuple):
    """What is to be computed."""

    scene: Scene
    options: Options
    policy: tuple[str, float]  # kind and parameter
    slots: Host  # to be scored, in order
    seed: int
    horizon: int | None  # None: from a sample
    force: bool
    chunk: int


class Result(NamedTuple):
    """Arrays by name, each leading with the positions in the order of the task."""

    rows: dict[str, Host]
    horizon: int
    lengths: list[int]  # of a sample of rollouts, ordered
    seconds: float
    compile_seconds: float


def continuation(scene: Scene, kind: str, parameter: float) -> Policy:
    """How play goes on from the positions."""
    preferences = scene.agent.preferences
    return make_policy(preferences.of, kind, parameter, preferences.value)


def live_environments(options: Options, spec: EnvSpec) -> int:
    """Environments that one position takes."""
    return (num_candidates(options, spec) + options.needs_null) * options.rollouts


def part_size(options: Options, spec: EnvSpec) -> int:
    """Positions computed together, a power of two.

    It depends on nothing but the options, so that the arithmetic of a position is the same whatever else is scored.
    """
    fitting = _LIVE.get(jax.default_backend(), _LIVE_ELSEWHERE) // live_environments(options, spec)
    return 1 << max(fitting.bit_length() - 1, 0)


def request_of(task: Task) -> str:
    """A digest of everything that the scores depend on."""
    agent, buffer = task.scene.agent, task.scene.buffer
    arrays = {"index": task.slots, **named(buffer), **{f"agent/{n}": x for n, x in to_host(agent.params).items()}}
    sums = {name: hashlib.sha256(_bytes(leaf)).hexdigest() for name, leaf in arrays.items()}
    known = ("td_errors", "consequence_scores", "scored", "scored_at")  # of which no score depends
    asked = {
        "options": dataclasses.asdict(task.options) | {"horizon": task.horizon},
        "policy": list(task.policy),
        "seed": task.seed,
        "settings": settings_of(agent.cfg),
        "net": dataclasses.asdict(agent.cfg.net) | {"hidden": list(agent.cfg.net.hidden)},
        "arrays": {name: value for name, value in sums.items() if name not in known},
    }
    return codec.sha256(asked)


def compute(task: Task, out: Path, progress: Progress) -> Result:
    """All positions, those of an earlier call that was cut short included.

    Args:
        task: what to compute.
        out: folder where the parts are kept, and found again.
        progress: told of every part.

    Raises:
        HmxError: the folder holds the scores of something else, or the horizon is too short (exit code 2).
        StopNow: a signal; what is done is kept.
    """
    request = request_of(task)
    found = _earlier(out, request, task)
    if found is not None and found[1] == len(task.slots):
        return found[0]
    worker = _Worker(task, out, request, progress, None if found is None else found[0])
    with SignalGuard() as guard:
        for _ in worker.chunks(0 if found is None else found[1], guard):
            pass
    return worker.finished()


def _earlier(out: Path, request: str, task: Task) -> tuple[Result, int] | None:
    """What is there already of the same request, and how many positions that is."""
    for name in (DONE, UNDONE):
        path = out / name
        if not path.exists():
            continue
        try:
            body, forms, data = score_file.read(path)
        except HmxError:
            if not task.force:
                raise
            continue
        if body["request"] == request:
            rows = {n: np.frombuffer(data[n], DTYPES[f.dtype]).reshape(f.shape) for n, f in forms.items()}
            result = Result(rows, body["horizon"], body["lengths"], body["seconds"], body["compile_seconds"])
            return result, body["size"]
        if not task.force:
            what = "the scores" if name == DONE else "unfinished scores"
            said = f"{out} holds {what} of another request: other options, positions or policy"
            raise HmxError(said, "take another folder with --out, or --force to replace them")
    return None


class _Worker:
    """Scores the positions of a task, part by part."""

    def __init__(self, task: Task, out: Path, request: str, progress: Progress, earlier: Result | None) -> None:
        self._task, self._out, self._request, self._progress = task, out, request, progress
        agent = task.scene.agent
        self._policy = continuation(task.scene, *task.policy)
        self._part = part_size(task.options, agent.env.spec)
        self._key = score_key(task.seed, 0)
        self._seconds = 0.0 if earlier is None else earlier.seconds
        self._compiling = 0.0 if earlier is None else earlier.compile_seconds
        self._rows: dict[str, list[Host]] = {} if earlier is None else {n: [x] for n, x in earlier.rows.items()}
        self._saved = time.monotonic()
        if earlier is None:
            progress("measuring how long episodes last", 0, len(task.slots))
            self._lengths = _lengths(task, self._policy)
            self.horizon = _horizon(task, self._lengths)
        else:
            self._lengths, self.horizon = earlier.lengths, earlier.horizon

    def chunks(self, done: int, guard: SignalGuard) -> Iterator[int]:
        """Computes what is left, and yields how much is done."""
        total = len(self._task.slots)
        self._progress("compiling", done, total)
        program = self._compiled()
        self._progress("scoring", done, total)
        while done < total:
            stop = min(done + self._task.chunk, total)
            while done < stop:
                slots = self._task.slots[done : min(done + self._part, stop)]
                begun = time.monotonic()
                self._keep(interruptible(partial(self._compute, program, slots)), slots)
                self._seconds += time.monotonic() - begun
                done += len(slots)
                self._progress("scoring", done, total)
                if guard.requested is not None and done < total:
                    raise self._stopped(guard.requested, done)
            if time.monotonic() - self._saved > _SAVE_EVERY and done < total:
                self._save(UNDONE, done)
            yield done

    def finished(self) -> Result:
        """Everything, written to the folder."""
        self._save(DONE, len(self._task.slots))
        with suppress(OSError):
            (self._out / UNDONE).unlink(missing_ok=True)
        rows = {name: np.concatenate(parts) for name, parts in self._rows.items()}
        return Result(rows, self.horizon, self._lengths, self._seconds, self._compiling)

    def _stopped(self, signum: int, done: int) -> StopNow:
        self._save(UNDONE, done)
        stop = StopNow(signum)
        stop.hint = f"{done:,} of {len(self._task.slots):,} positions are kept; the same command goes on with the rest"
        return stop

    def _compiled(self) -> Callable[..., dict[str, Array]]:
        task = self._task
        positions, begun = self._positions(np.zeros(self._part, np.int64)), time.monotonic()

        def build() -> Any:
            program = jax.jit(partial(_scored, task, self._policy))
            return program.lower(task.scene.agent.params, positions, self._key, jnp.int32(self.horizon)).compile()

        with out_of_memory("compiling"):
            program: Callable[..., dict[str, Array]] = interruptible(build)
        self._compiling += time.monotonic() - begun
        return program

    def _positions(self, slots: Host) -> Positions:
        items = self._task.scene.buffer.items
        obs, legal, taken = (jnp.asarray(items[name][slots]) for name in (OBS, LEGAL, ACTION))
        birth = jnp.asarray(self._task.scene.buffer.birth[slots])
        return Positions(states_at(self._task.scene, slots), obs, legal, taken, birth)

    def _compute(self, program: Callable[..., dict[str, Array]], slots: Host) -> dict[str, Host]:
        padded = np.concatenate([slots, np.repeat(slots[:1], self._part - len(slots))])
        with out_of_memory("scoring"):
            found = program(self._task.scene.agent.params, self._positions(padded), self._key, jnp.int32(self.horizon))
            return {name: np.asarray(x)[: len(slots)] for name, x in jax.device_get(found).items()}

    def _keep(self, found: dict[str, Host], slots: Host) -> None:
        birth = self._task.scene.buffer.birth[slots]
        for name, part in {"index": slots.astype(np.int64), "birth": birth, **found}.items():
            self._rows.setdefault(name, []).append(part)

    def _save(self, name: str, done: int) -> None:
        with writing("the folder", self._out):
            self._out.mkdir(parents=True, exist_ok=True)
        rows = {name: np.ascontiguousarray(np.concatenate(parts)) for name, parts in self._rows.items()}
        self._rows = {name: [whole] for name, whole in rows.items()}
        body = {
            "request": self._request,
            "size": done,
            "total": len(self._task.slots),
            "horizon": self.horizon,
            "lengths": self._lengths,
            "seconds": self._seconds,
            "compile_seconds": self._compiling,
        }
        forms = {n: (ArrayForm(x.shape, x.dtype.name), _bytes(x)) for n, x in rows.items()}
        score_file.write(self._out / name, body, forms)
        self._saved = time.monotonic()


def _bytes(array: Host) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def score_key(seed: int, stream: int) -> Key:
    """The key of one use of chance here: 0 scores, 1 collects, 2 measures lengths."""
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _STREAM), stream)


_STREAM = 3  # of the seed: 0 is training's, 1 evaluation's, 2 that of gradient reports


def _scored(
    task: Task, policy: Policy, params: Any, positions: Positions, key: Key, horizon: Array
) -> dict[str, Array]:
    """What is known of each position, by the name of its column."""
    options, env = task.options, task.scene.agent.env
    outcomes = play(env, policy, params, positions, key, options, horizon)
    main = compare(outcomes, options)
    assert main.null is not None
    found = {f"c_{m}": compare(outcomes, dataclasses.replace(options, metric=m)).score for m in METRICS}
    return found | {
        "score": main.score,
        "halves": main.halves.T,
        "spread": main.spread,
        "null": main.null,
        "action": main.action,
        "valid": main.valid,
        "divergence": main.divergence,
        "mean": main.mean,
        "sd": main.sd,
        "ended": main.ended,
        "steps": outcomes.steps.sum((1, 2), dtype=jnp.int32),
        "proxy": _proxy(task, policy, params, positions, key),
    }


def _proxy(task: Task, policy: Policy, params: Any, positions: Positions, key: Key) -> Array:
    """The gap that needs no rollouts: of action values, or for want of them of one step and the value after it."""
    options, agent = task.options, task.scene.agent
    if agent.preferences.are_values:
        values = agent.preferences.of(params, positions.obs)
        probs = policy.probs(params, positions.obs, positions.legal) if policy.probs and options.needs_probs else None
        return q_gap(agent.env.spec, values, positions.taken, positions.legal, positions.id, key, options, probs)
    step = dataclasses.replace(options, metric="dmean", bootstrap=True, null=False)
    return compare(play(agent.env, policy, params, positions, key, step, jnp.int32(1)), step).score


def _lengths(task: Task, policy: Policy) -> list[int]:
    """Steps that rollouts from a sample of the positions take to end, or the limit; ordered.

    One rollout each of the action taken and of one other. The sample is of the oldest to the newest, whatever their
    order.
    """
    agent, buffer = task.scene.agent, task.scene.buffer
    ordered = task.slots[np.argsort(buffer.birth[task.slots], kind="stable")]
    slots = ordered[np.linspace(0, len(ordered) - 1, min(_PROBED, len(ordered))).astype(np.int64)]
    padded = np.concatenate([slots, np.repeat(slots[:1], _PROBED - len(slots))])
    items = buffer.items
    obs, legal, taken = (jnp.asarray(items[name][padded]) for name in (OBS, LEGAL, ACTION))
    positions = Positions(states_at(task.scene, padded), obs, legal, taken, jnp.asarray(buffer.birth[padded]))
    options = Options(actions="sampled", num_actions=1, rollouts=1, gamma=task.options.gamma)
    limit = agent.env.spec.max_steps or _LONGEST_PROBE
    program = jax.jit(lambda params, at, key: play(agent.env, policy, params, at, key, options, jnp.int32(limit)))
    with out_of_memory("measuring how long episodes last"):
        found = interruptible(lambda: jax.device_get(program(agent.params, positions, score_key(task.seed, 2)).steps))
    return sorted(int(x) for x in np.asarray(found)[: len(slots)].reshape(-1))


def _horizon(task: Task, lengths: list[int]) -> int:
    """The steps of a rollout: those asked for, unless they end before most episodes do, or enough for 99 %."""
    if task.horizon is None:
        return lengths[-(-99 * len(lengths) // 100) - 1]
    median = lengths[(len(lengths) - 1) // 2]
    if task.horizon < median and not (task.force or task.options.bootstrap):
        raise HmxError(
            f"a horizon of {task.horizon} steps ends before most episodes do: from these positions the median is "
            f"{median} steps, and what comes later would count as nothing",
            f"--horizon {lengths[-(-99 * len(lengths) // 100) - 1]} sees 99 % to their end; --bootstrap goes on in "
            "value; --force scores all the same",
        )
    return task.horizon
