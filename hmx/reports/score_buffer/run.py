"""Compute scores in parts of equal size, save intermediate results, and resume where an earlier call stopped."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config import codec
from hmx.envs.protocol import EnvSpec
from hmx.errors import HmxError
from hmx.jobs.evaluation import Progress
from hmx.records import score_file
from hmx.records.atomic import writing
from hmx.records.buffer_file import settings_of
from hmx.records.score_file import ScoreHeader
from hmx.reports.score_buffer.source import ScoreTask, score_key
from hmx.runs.buffers import Host, loaded, named, stored
from hmx.runs.checkpoint import to_host
from hmx.runs.device_memory import naming_shortages
from hmx.runs.signals import SignalGuard, StopNow, interruptible
from hmx.scoring import Continuation, Positions, ScoreOptions, compare, make_continuation, play, q_gap
from hmx.scoring.options import live_environments
from hmx.types import Array, Key

KeptMetric = Literal["w1", "dmean", "tv", "js"]
METRICS: tuple[KeptMetric, ...] = get_args(KeptMetric)  # each has a column; they come from the same rollouts

_LIVE = {"cpu": 4096}  # environments in parallel
_LIVE_ELSEWHERE = 65536
_PROBED = 64
_LONGEST_PROBE = 1000  # steps, in environments without a limit
_SAVE_EVERY = 5.0  # seconds


class ScoreTable(NamedTuple):
    """Scores: a row per position, in the order of the task."""

    header: ScoreHeader
    columns: Mapping[str, Host]  # see `hmx.records.score_file.COLUMNS`


def part_size(options: ScoreOptions, spec: EnvSpec) -> int:
    """Return the number of positions computed together, a power of two.

    It depends on the options alone, so that the arithmetic of a position does not depend on the other positions.
    """
    fitting = _LIVE.get(jax.default_backend(), _LIVE_ELSEWHERE) // live_environments(options, spec)
    return 1 << max(fitting.bit_length() - 1, 0)


def compute(task: ScoreTask, out: Path, progress: Progress) -> ScoreTable:
    """Score all positions, except those that an earlier, interrupted call has scored.

    Raises:
        HmxError: the folder contains other scores, or the horizon is too short (exit code 2).
        StopNow: a signal; the scores so far are saved.
    """
    request, total = request_of(task), len(task.slots)
    policy = make_continuation(task.agent.network.outputs, *task.policy, task.agent.network.value)
    found = _earlier(out, request, task.request.force)
    if found is None:
        progress("measuring how long episodes last", 0, total)
        lengths = _lengths(task, policy)
        header = ScoreHeader(
            request=request, size=0, total=total, horizon=_horizon(task, lengths), lengths=lengths, seconds=0.0,
            compile_seconds=0.0,
        )  # fmt: skip
        found = ScoreTable(header, {})
    if found.header.size < total:
        with SignalGuard() as guard:
            found = _score(task, policy, out, found, progress, guard)
        with suppress(OSError):
            (out / score_file.UNDONE).unlink(missing_ok=True)
    return found


def request_of(task: ScoreTask) -> str:
    """Return a digest of everything that the scores depend on."""
    agent, buffer = task.agent, task.buffer
    arrays = {"index": task.slots, **named(buffer), **{f"agent/{n}": x for n, x in to_host(agent.params).items()}}
    irrelevant = ("td_errors", "consequence_scores", "scored", "scored_at")
    asked = {
        "options": dataclasses.asdict(task.options) | {"horizon": task.request.horizon},
        "policy": list(task.policy),
        "seed": task.seed,
        "settings": settings_of(agent.cfg),
        "net": dataclasses.asdict(agent.cfg.net) | {"hidden": list(agent.cfg.net.hidden)},
        "arrays": {
            name: hashlib.sha256(stored(leaf, name).data).hexdigest()
            for name, leaf in arrays.items()
            if name not in irrelevant
        },
    }
    return codec.sha256(asked)


def _earlier(out: Path, request: str, force: bool) -> ScoreTable | None:
    """Return the scores of an earlier call for the same request."""
    for name in score_file.NAMES:
        path = out / name
        if not path.exists():
            continue
        try:
            header, columns = score_file.read(path)
        except HmxError:
            if not force:
                raise
            continue
        if header.request == request:
            return ScoreTable(header, {name: loaded(column) for name, column in columns.items()})
        if not force:
            what = "scores" if name == score_file.DONE else "unfinished scores"
            raise HmxError(
                f"cannot write to {out}: it contains {what} for other options, positions or another policy",
                "choose another folder with --out, or replace them with --force",
            )
    return None


def _score(
    task: ScoreTask, policy: Continuation, out: Path, earlier: ScoreTable, progress: Progress, guard: SignalGuard
) -> ScoreTable:
    header = earlier.header
    total = earlier.header.total
    part = part_size(task.options, task.agent.env.spec)
    tables = [earlier.columns] if header.size else []
    progress("compiling", header.size, total)
    begun = time.monotonic()
    program = _compiled(task, policy, part, header.horizon)
    header = dataclasses.replace(header, compile_seconds=header.compile_seconds + time.monotonic() - begun)
    progress("scoring", header.size, total)
    saved = time.monotonic()
    while header.size < total:
        begun = time.monotonic()
        slots = task.slots[header.size : header.size + part]
        tables.append(interruptible(partial(_rows, task, program, slots, part)))
        seconds = header.seconds + time.monotonic() - begun
        header = dataclasses.replace(header, size=header.size + len(slots), seconds=seconds)
        progress("scoring", header.size, total)
        stopped = guard.requested if header.size < total else None
        if stopped is not None or header.size == total or time.monotonic() - saved > _SAVE_EVERY:
            tables = [{name: np.concatenate([table[name] for table in tables]) for name in tables[-1]}]
            with writing("the folder", out):
                out.mkdir(parents=True, exist_ok=True)
            columns = {name: stored(column, name) for name, column in tables[0].items()}
            name = score_file.DONE if header.size == total else score_file.UNDONE
            score_file.write(out / name, header, columns)
            saved = time.monotonic()
        if stopped is not None:
            stop = StopNow(stopped)
            stop.hint = f"{header.size:,} of {total:,} positions are saved; run the same command again to continue"
            raise stop
    return ScoreTable(header, tables[0])


Program = Callable[[Any, Positions], dict[str, Array]]


def _compiled(task: ScoreTask, policy: Continuation, part: int, horizon: int) -> Program:
    params = task.agent.params
    positions = task.positions(np.zeros(part, np.int64))
    key, steps = score_key(task.seed, "scores"), jnp.int32(horizon)

    def build() -> Any:
        return jax.jit(partial(_scored, task, policy)).lower(params, positions, key, steps).compile()

    with naming_shortages("compiling"):
        program = interruptible(build)
    return lambda params, positions: program(params, positions, key, steps)


def _rows(task: ScoreTask, program: Program, slots: Host, part: int) -> dict[str, Host]:
    padded = np.concatenate([slots, np.repeat(slots[:1], part - len(slots))])
    with naming_shortages("scoring"):
        arrays = jax.device_get(program(task.agent.params, task.positions(padded)))
    rows = {name: np.asarray(column)[: len(slots)] for name, column in arrays.items()}
    return {"index": slots.astype(np.int64), "birth": task.buffer.birth[slots], **rows}


def _scored(
    task: ScoreTask, policy: Continuation, params: Any, positions: Positions, key: Key, horizon: Array
) -> dict[str, Array]:
    options, env = task.options, task.agent.env
    outcomes = play(env, policy, params, positions, key, options, horizon)
    main = compare(outcomes, options)
    assert main.null is not None
    plain = dataclasses.replace(options, corrected=False)
    by_metric = {f"c_{m}": compare(outcomes, dataclasses.replace(plain, metric=m)).score for m in METRICS}
    return by_metric | {
        "score": main.score,
        "halves": main.halves.T,
        "bias": main.bias,
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


def _proxy(task: ScoreTask, policy: Continuation, params: Any, positions: Positions, key: Key) -> Array:
    """Compute the gap of action values, or without them of one step and the value after it."""
    options, agent = task.options, task.agent
    if agent.network.are_values:
        values = agent.network.outputs(params, positions.obs)
        probs = policy.probs(params, positions.obs, positions.legal) if policy.probs and options.needs_probs else None
        return q_gap(agent.env.spec, values, positions, key, options, probs)
    step = dataclasses.replace(options, metric="dmean", bootstrap=True, null=False, corrected=False)
    return compare(play(agent.env, policy, params, positions, key, step, jnp.int32(1)), step).score


def _lengths(task: ScoreTask, policy: Continuation) -> tuple[int, ...]:
    """Return the steps until rollouts end, or the limit, in ascending order.

    One rollout each of the action taken and of one other action, from positions between the oldest and the newest.
    """
    agent, birth = task.agent, task.buffer.birth
    ordered = task.slots[np.argsort(birth[task.slots], kind="stable")]
    slots = ordered[np.linspace(0, len(ordered) - 1, min(_PROBED, len(ordered))).astype(np.int64)]
    positions = task.positions(np.concatenate([slots, np.repeat(slots[:1], _PROBED - len(slots))]))
    options = ScoreOptions(
        actions="sampled", num_actions=1, rollouts=1, bootstrap=False, gamma=task.options.gamma, team_reward="mean"
    )
    limit = agent.env.spec.max_steps or _LONGEST_PROBE
    program = jax.jit(lambda params, at, key: play(agent.env, policy, params, at, key, options, jnp.int32(limit)))
    key = score_key(task.seed, "lengths")
    with naming_shortages("measuring how long episodes last"):
        found = interruptible(lambda: jax.device_get(program(agent.params, positions, key).steps))
    return tuple(sorted(int(x) for x in np.asarray(found)[: len(slots)].reshape(-1)))


def _horizon(task: ScoreTask, lengths: tuple[int, ...]) -> int:
    """Return the requested steps per rollout, unless most episodes are longer, or enough for 99 % of them."""
    enough = lengths[-(-99 * len(lengths) // 100) - 1]
    horizon = task.request.horizon
    if horizon is None:
        return enough
    median = lengths[(len(lengths) - 1) // 2]
    if horizon < median and not (task.request.force or task.options.bootstrap):
        raise HmxError(
            f"cannot score with a horizon of {horizon} steps: from these positions the median episode has "
            f"{median}, and later rewards would count as 0",
            f"--horizon {enough} lets 99 % of the episodes end; --bootstrap values the rest; --force scores anyway",
        )
    return horizon
