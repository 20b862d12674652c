"""`hmx train --dry-run`: the plan of a new run."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.problem import line
from hmx.config.schema import Config, RunConfig
from hmx.envs.registry import sizes_of
from hmx.jobs.saved_buffer import places
from hmx.jobs.train import read_networks
from hmx.records import layout
from hmx.records.checkpoints import MIDDLE
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonResult
from hmx.registry.algorithms import Aspect
from hmx.registry.check import warnings as warnings_of
from hmx.registry.derive import Derived
from hmx.registry.load import Loaded
from hmx.runs.checkpoint import state_bytes, without_reference
from hmx.runs.devices import device_name, make_mesh
from hmx.runs.memory import memory_problem, run_memory
from hmx.runs.memory_parts import Memory
from hmx.runs.session import Session, open_task


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan(JsonResult):
    """The plan of a run: nothing has been computed or written."""

    config: Config = dataclasses.field(metadata={"json": codec.to_dict})
    origins: dict[str, str]
    sizes: Derived
    run: Path
    exists: bool
    files: dict[str, str]  # what -> where
    state_bytes: int  # on the device, over all seeds; a checkpoint is about as large on disk
    checkpoint_bytes: int  # on disk, of those kept
    device: str
    memory: Memory | None  # during an update; None if the run is too large to be traced
    replay_ratio: float | None  # how often a transition is trained on; None without replay
    warnings: tuple[str, ...]
    meaning: tuple[Aspect, ...]  # what the configuration comes to where implementations of its algorithm differ


def plan(task: Loaded) -> Plan:
    """Plan a new run; write nothing.

    Raises:
        HmxError: the configuration cannot run.
    """
    session = open_task(task)
    session, _, reference, notes = read_networks(session)
    cfg = session.cfg
    stem = layout.stem_of(cfg.env.id, cfg.algo.name, cfg.run.seed)
    name = layout.planned_name(cfg.run.root, cfg.run.name, stem)
    paths = RunPaths(Path(cfg.run.root), name)
    entry, env_sizes = session.task.algorithm, sizes_of(session.env)
    saved = state_bytes(without_reference(session.abstract))
    files = {
        "config": paths.config,
        "meta": paths.meta,
        "metrics": paths.metrics,
        "checkpoints": paths.checkpoints,
        "reports": paths.reports,
    }
    files |= {"reference": paths.reference} if reference is not None else {}
    files |= {f"buffer {i}" if i else "buffer": place for i, place in enumerate(places(cfg.replay, cfg.run, paths))}
    return Plan(
        config=replace(cfg, {"run.name": paths.name}),
        origins=dict(task.origins),
        sizes=session.sizes,
        run=paths.folder,
        exists=paths.exists(),
        files={what: str(path) for what, path in files.items()},
        state_bytes=state_bytes(session.abstract),
        checkpoint_bytes=_kept_bytes(cfg.run, saved, session.sizes.num_checkpoints),
        device=device_name(make_mesh(cfg.run.devices, cfg.env.num_envs)),
        memory=run_memory(session),
        replay_ratio=entry.replay_ratio(cfg) if entry.replay_ratio else None,
        warnings=(*notes, *(line(problem) for problem in warnings_of(cfg, env_sizes)), *_refusal(session)),
        meaning=entry.aspects(cfg, env_sizes),
    )


def _kept_bytes(run: RunConfig, checkpoint: int, num_checkpoints: int) -> int:
    """Return the disk for the checkpoints that a run keeps, in bytes, if each takes `checkpoint` of them."""
    middle = min(len(MIDDLE), run.keep_middle_mb * 10**6 // checkpoint)
    return checkpoint * min(run.keep + run.keep_best + middle, num_checkpoints)


def _refusal(session: Session) -> list[str]:
    problem = memory_problem(session)
    return [f"{problem.message}: train would refuse; {problem.hint}"] if problem else []
