"""Measure every phase of training, and find the bottleneck."""

from __future__ import annotations

import os
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from hmx.config import codec
from hmx.envs.registry import sizes_of
from hmx.jobs.evaluation import Progress, no_progress
from hmx.records.atomic import writing
from hmx.records.jsonl import MetricsWriter
from hmx.records.meta import versions
from hmx.registry.algorithms import PartName
from hmx.registry.check import problems
from hmx.registry.derive import Derived
from hmx.registry.load import Loaded
from hmx.reports.bench import document
from hmx.reports.bench.findings import (
    BenchFindings,
    Machine,
    Part,
    Phase,
    PhaseName,
    SizeSpeed,
    UpdateSpeed,
)
from hmx.reports.bench.hosted import make_updates
from hmx.reports.bench.measure import OtherPrograms, Updates, calls_for, estimate, time_in_turn
from hmx.reports.bench.metrics_cost import metrics_cost
from hmx.reports.bench.request import BenchRequest
from hmx.runs.compilation import enable_cache, processor
from hmx.runs.device_memory import free_memory, naming_shortages
from hmx.runs.devices import device_name
from hmx.runs.memory import fits, placed
from hmx.runs.session import make_session, open_task
from hmx.runs.signals import SignalGuard, StopNow
from hmx.stats.estimate import Estimate

LEAST_ROUNDS = 6  # with fewer there is no interval
MOST_ROUNDS = 40
_PATIENCE = 2.0  # times the time of the phases, after which fewer rounds suffice
_MOST_STEPS = 100_000  # of a call of the environment
_FACTORS = (2.0, 0.5, 4.0)  # other numbers of environments, in the order in which they are tried
SHARE = 0.4  # of the time, for the phases; the rest is for compiling and for other sizes


def bench(
    task: Loaded,
    request: BenchRequest,
    progress: Progress = no_progress,
) -> BenchFindings:
    """Measure the phases of training of a configuration on this machine.

    Nothing is kept: checkpoints and records are written below the runs folder, and deleted.

    Raises:
        HmxError: the configuration cannot run, the environment cannot be built, or the sizes do not fit into
            memory (exit code 2).
        StopNow: a signal arrived.
    """
    begun = time.perf_counter()
    warning = enable_cache()
    session = placed(open_task(task))  # refuses before anything is allocated
    cfg, free = session.cfg, free_memory()
    progress("compiling", 0, 0)
    with (
        SignalGuard(_stop),
        naming_shortages("benchmarking"),
        _scratch(cfg.run.root) as folder,
        closing(make_updates(session)) as updates,
    ):
        phases, on_disk, others = _measure_phases(updates, folder, request.seconds * SHARE, progress)
        metrics = metrics_cost(updates, request.seconds * SHARE) if request.metrics else None
        (base,) = (phase.steps_per_sec for phase in phases if phase.name == "update" and phase.steps_per_sec)
        speed = _speed(updates, request.seconds - (time.perf_counter() - begun), progress, base)
    parts = _parts(session.sizes, phases)
    run_seconds = session.sizes.num_updates * sum(part.seconds for part in parts)
    return BenchFindings(
        env=cfg.env.id,
        algorithm=cfg.algo.name,
        config=codec.flatten(codec.to_dict(cfg)),
        machine=Machine(
            device_name(session.mesh), processor(), os.cpu_count() or 1, platform.python_version(), versions()
        ),
        seconds=time.perf_counter() - begun,
        other_programs=others,
        phases=phases,
        parts=parts,
        run_seconds=run_seconds,
        bottleneck=parts[0].name,
        verdict=document.verdict(parts, phases[0].seconds.value, run_seconds),
        advice=document.advice(session.task, parts[0].name),
        speed=speed,
        checkpoint_bytes=on_disk,
        memory_bytes=updates.memory_bytes,
        free_bytes=free,
        metrics=metrics,
        warnings=(warning,) if warning else (),
    )


def _stop(signum: int) -> None:
    """Leave by an exception, also on SIGTERM, so that the scratch folder is deleted."""
    raise StopNow(signum)


def _scratch(root: str) -> tempfile.TemporaryDirectory[str]:
    """Make a folder on the disk that runs are written to."""
    wanted = Path(root).absolute()
    place = next(folder for folder in (wanted, *wanted.parents) if folder.is_dir())
    with writing("a folder for the benchmark in", place):
        return tempfile.TemporaryDirectory(prefix=".hmx-bench-", dir=place, ignore_cleanup_errors=True)


def _measure_phases(
    updates: Updates, folder: str, seconds: float, progress: Progress
) -> tuple[tuple[Phase, ...], int, float | None]:
    """Return the phases, the bytes of a checkpoint on disk, and the share of other programs."""
    cfg, rollouts = updates.session.cfg, updates.rollouts()
    num_steps, checkpoints = cfg.algo.num_steps, Path(folder, "checkpoints")
    progress("measuring", 0, 0)
    with writing("a file for the benchmark in", Path(folder)), MetricsWriter(Path(folder, "metrics.jsonl")) as writer:
        most = max(_MOST_STEPS // num_steps, 1)
        calls = {kind.name: calls_for(kind.play, most) for kind in rollouts}
        number = calls_for(updates.update, updates.length)
        updates.save(checkpoints)
        updates.log(writer)
        others = OtherPrograms()
        found = time_in_turn(
            {
                **{kind.name: partial(kind.play, calls[kind.name]) for kind in rollouts},
                "update": partial(updates.update, number),
                "saving": partial(updates.save, checkpoints),
                "logging": partial(updates.log, writer),
            },
            LEAST_ROUNDS,
            most=MOST_ROUNDS,
            seconds=seconds,
            limit=_PATIENCE * seconds,
            warm=True,
        )
        share = others.share()
    on_disk = sum(path.stat().st_size for path in checkpoints.rglob("*") if path.is_file())
    steps = updates.num_envs * updates.num_devices * num_steps  # of a rollout
    records = f"{updates.length * cfg.run.num_seeds:,} records"
    phases = (
        Phase("compile", "an update", 1, Estimate(updates.compilation.seconds)),
        *(_steps(kind.name, kind.unit, found[kind.name], calls[kind.name], steps) for kind in rollouts),
        _steps("update", "an update", found["update"], number, updates.steps),
        Phase("saving", "a checkpoint", len(found["saving"]), estimate(found["saving"])),
        Phase("logging", records, len(found["logging"]), estimate(found["logging"])),
    )
    return phases, on_disk, share


def _steps(name: PhaseName, unit: str, found: Sequence[float], calls: int, steps: int) -> Phase:
    seconds = [t / calls for t in found]
    return Phase(name, unit, len(seconds), estimate(seconds), estimate([steps / t for t in seconds]))


def _parts(sizes: Derived, phases: Sequence[Phase]) -> tuple[Part, ...]:
    """Divide the time of an update among its parts, the largest first.

    A rollout consists of environment steps and the additional time of the policy; learning is the rest of the update.
    Steps of simulators are divided into those of the simulators alone, and the messages to and from their workers.
    Checkpoints count as if training waited for them, although they are written in the background.
    """
    median = {phase.name: phase.seconds.value for phase in phases}
    acting = min(median["acting"], median["update"])
    environment = min(median["environment"], acting)
    simulators = min(median.get("simulators", environment), environment)
    transport: dict[PartName, float] = {"transport": environment - simulators} if "simulators" in median else {}
    seconds: dict[PartName, float] = {
        "environment": simulators,
        **transport,
        "network": acting - environment,
        "learning": median["update"] - acting,
        "saving": median["saving"] * sizes.num_checkpoints / sizes.num_updates,
        "logging": median["logging"] / sizes.updates_per_chunk,
    }
    whole = sum(seconds.values())
    ordered = sorted(seconds.items(), key=lambda item: -item[1])
    return tuple(Part(name, value, value / whole) for name, value in ordered)


def _speed(updates: Updates, seconds: float, progress: Progress, base: Estimate) -> UpdateSpeed:
    """Measure other numbers of environments for `seconds`; `base` is the speed of `updates`."""
    cfg, mesh, end = updates.session.cfg, updates.session.mesh, time.perf_counter() + seconds
    number = calls_for(updates.update, updates.length)
    sizes, late, large = [], [], []
    for factor in _FACTORS:
        num_envs = int(cfg.env.num_envs * factor)
        other = updates.session.task.changed({"env.num_envs": num_envs})
        if problems(other.config, sizes_of(updates.session.env)) or num_envs % (mesh.size if mesh else 1):
            continue
        call = (1 + factor) * number * updates.steps / base.value
        predicted = updates.compilation.seconds + (LEAST_ROUNDS + 2) * call
        session = make_session(other, updates.session.env)._replace(mesh=mesh)
        if not fits(session):
            large.append(num_envs)
        elif time.perf_counter() + predicted > end:
            late.append((num_envs, predicted))
        else:
            progress(f"measuring {num_envs:,} environments", 0, 0)
            with closing(make_updates(session)) as others:
                sizes.append(_other_size(updates, number, others))
    return UpdateSpeed(
        compilation=updates.compilation,
        num_envs=cfg.env.num_envs,
        steps_per_sec=base,
        sizes=tuple(sizes),
        not_measured=document.not_measured(late, large),
        suggestion=document.suggestion(sizes),
    )


def _other_size(updates: Updates, number: int, other: Updates) -> SizeSpeed:
    calls = calls_for(other.update, other.length)
    works = {"base": partial(updates.update, number), "other": partial(other.update, calls)}
    found = time_in_turn(works, LEAST_ROUNDS, warm=True)
    rates = [calls * other.steps / t for t in found["other"]]
    ratios = [rate / (number * updates.steps / t) for rate, t in zip(rates, found["base"], strict=True)]
    return SizeSpeed(other.session.cfg.env.num_envs, estimate(rates), estimate(ratios), other.memory_bytes)
