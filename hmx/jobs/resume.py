"""`hmx resume`: continue a run from its newest intact checkpoint, as if it had never stopped."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from hmx.config import codec
from hmx.config.files import Unreadable
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError, counted
from hmx.jobs.changed import changed, other_run
from hmx.jobs.healthy import check_alone
from hmx.jobs.train import NewRun, TrainResult, made_on, run_session, start_run, worker_result
from hmx.jobs.worker import check_same_config
from hmx.records import atomic, jsonl, layout
from hmx.records import meta as metas
from hmx.records.artefact import NewerSchema
from hmx.records.atomic import writing
from hmx.records.checkpoints import listing, newest_intact
from hmx.records.frozen import copy_of, meta_fault
from hmx.records.layout import find_run
from hmx.records.lock import RunLock
from hmx.records.lock import holding as lock_of
from hmx.records.meta import Meta
from hmx.records.own_environment import environment_facts, keep_environment
from hmx.records.paths import DEFAULT_ROOT, META, RunPaths
from hmx.records.plain import JsonResult
from hmx.registry.derive import derive
from hmx.registry.load import Loaded
from hmx.registry.trust import Permissions
from hmx.registry.user_code import hashes_of
from hmx.runs import reference as references
from hmx.runs.checkpoint import DoesNotFit
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import enable_cache
from hmx.runs.devices import device_name
from hmx.runs.event_files import check_installed
from hmx.runs.installed_sinks import installed_sinks
from hmx.runs.memory import placed
from hmx.runs.programs import Programs
from hmx.runs.restoring import Restored, Run, restore
from hmx.runs.session import Session, open_task
from hmx.runs.sinks import Sink
from hmx.runs.training import Training, make_sinks

NO_CHANGES: Mapping[str, object] = MappingProxyType({})


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumePlan(JsonResult):
    """The plan of a resumption: nothing has been computed or written."""

    run: Path
    update: int  # of the checkpoint
    total_updates: int
    env_steps: int  # per seed, at the checkpoint
    total_env_steps: int  # per seed, at the end
    changes: dict[str, tuple[object, object]]  # dotted key -> (old, new)
    config: Config = dataclasses.field(metadata={"json": codec.to_dict})
    device: str
    warnings: tuple[str, ...]


class Continued(NamedTuple):
    """A run that continues from a checkpoint: nothing has been computed or written."""

    session: Session  # with the changes
    restored: Restored
    changes: dict[str, tuple[object, object]]  # dotted key -> (old, new)
    warnings: tuple[str, ...]

    def plan(self, run: Path, **more: Any) -> dict[str, Any]:
        """Return the fields of the plan that `run` continues; those of `more` replace others."""
        session, update = self.session, self.restored.update
        return {
            "run": run, "update": update, "total_updates": session.sizes.num_updates,
            "env_steps": update * session.sizes.batch_size, "total_env_steps": session.sizes.total_env_steps,
            "changes": self.changes, "config": session.cfg, "device": device_name(session.mesh),
            "warnings": self.warnings, **more,
        }  # fmt: skip


def resume(
    run: str | Path,
    *,
    changes: Mapping[str, object] | None = None,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    root: str | Path = DEFAULT_ROOT,
    group: Group = ALONE,
) -> TrainResult:
    """Continue a run up to its `run.total_steps`.

    Records after the checkpoint are dropped first; training writes them again, bit for bit the same on the same
    machine with the same versions.

    `changes` are new values by dotted key (text is read as on the command line), kept in run.toml and noted in
    meta.json. Any number of processes may continue the run; only process 0 of the `group` reads its folder.

    Raises:
        HmxError: a change that the state forbids, or a run that is finished (exit code 2); no such run, no
            intact checkpoint, or one that does not fit (3); a process of the group is gone (1).
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    check_same_config(group, {"command": "resume", "run": Path(run).name, **(changes or {})})
    if not group.is_coordinator:
        enable_cache()
        return worker_result(group)
    paths = find_run(run, root)
    with RunLock(paths) as lock:
        return resume_locked(lock, changes=changes or {}, sinks=sinks, command_line=command_line, group=group)


def resume_locked(
    lock: RunLock,
    *,
    changes: Mapping[str, object] = NO_CHANGES,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    group: Group = ALONE,
    until: int | None = None,
    programs: Programs | None = None,
) -> TrainResult:
    """Continue a run as `resume` does, holding its lock; with `until`, only to that update.

    `programs` are those of earlier runs, which are used where they fit.
    """
    warning, paths = enable_cache(), lock.paths  # the cache before the programs in it are used
    opened = _open(paths, changes, programs)
    check_alone(opened.session.cfg.run, group)
    with writing("the run folder", paths.folder, ExitCode.ARTEFACT):
        meta, notes = _prepare(opened, paths, command_line, [lock.note] if lock.note else [])
    sink_group = make_sinks(opened.session.cfg.run, paths, sinks, (warning, *notes, *opened.warnings))
    training, restored = Training(opened.session, paths, meta, sink_group, group), opened.restored
    return run_session(training, lambda: restored.state, restored.update, until=until, episodes=restored.episodes)


def train_to(
    lock: RunLock,
    new: Callable[[], NewRun],
    *,
    until: int,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    programs: Programs | None = None,
) -> TrainResult:
    """Train a run to an update, holding its lock: from its newest checkpoint, or the `new` run if it has none."""
    if listing(lock.paths.checkpoints):
        return resume_locked(lock, sinks=sinks, command_line=command_line, until=until, programs=programs)
    begun = new()
    layout.renew_run(lock.paths)
    return start_run(begun, lock.paths, sinks=sinks, command_line=command_line, until=until)


def is_trained(paths: RunPaths, update: int, last: int) -> bool:
    """Return whether a run has reached an update; at the last one, also whether it was evaluated."""
    newest, _ = newest_intact(paths.checkpoints)
    if newest is None or int(newest.name) < update:
        return False
    known = metas.find(paths.meta)
    return update < last or (known is not None and known.state == "finished")


def _prepare(
    opened: Continued, paths: RunPaths, command_line: Sequence[str], notes: list[str]
) -> tuple[Meta, list[str]]:
    """Restore the run folder to its checkpoint, and record all changes, findings and repairs."""
    cfg, restored, made = opened.session.cfg, opened.restored, made_on(opened.session.mesh)
    fits = _metrics_fit(paths, restored)  # before anything is changed, since it may refuse
    old, found = _meta(paths)
    if restored.missing is not None:
        found.append(restored.warnings[0])
    for update, _ in restored.damaged:
        layout.set_aside(paths.checkpoint(update))
    notes = [
        *notes,
        *found,
        *_rewind(paths, restored, fits, old.run_id),
        *_plain_reports(paths),
        *_other_machine(old, made),
    ]
    damaged = {str(update): why for update, why in restored.damaged}
    meta = metas.resumed(old, restored.update, command_line, opened.changes, damaged, notes)
    text = metas.with_history(codec.to_toml(cfg), meta.resumes)
    meta = dataclasses.replace(
        meta,
        **made,
        config_digest=codec.digest(cfg),
        shape_digest=codec.shape_digest(cfg),
        config_sha256=metas.sha256(text),
        env_steps=restored.update * opened.session.sizes.batch_size,
        environment=environment_facts(cfg.env),
    )
    if "env.sha256" in opened.changes:
        keep_environment(meta, paths)
    # In this order: a process that dies in between leaves a run.toml that the checkpoint knows.
    metas.write(paths.meta, meta)
    atomic.write_text(paths.config, text)
    return meta, notes


def _meta(paths: RunPaths) -> tuple[Meta, list[str]]:
    """Return the meta data; a damaged or older file is set aside and replaced by a checkpoint's copy or new data."""
    problem = meta_fault(paths)
    if problem is None:
        return metas.read(paths.meta), []
    if isinstance(problem, NewerSchema | Unreadable):
        raise problem
    if os.path.lexists(paths.meta):
        layout.set_aside(paths.meta)
    kept = copy_of(paths, META)
    if kept is None:
        return metas.collect(device_name(None), ()), [f"{problem.message}; a new one is written"]
    return metas.read(kept.path), [f"{problem.message}; the copy in checkpoint {kept.path.parent.name} is used"]


def plan(run: str | Path, *, changes: Mapping[str, object] | None = None) -> ResumePlan:
    """Return the plan of `resume`; read the checkpoint and write nothing."""
    paths = find_run(run)
    opened = _open(paths, changes or {})
    holding = lock_of(paths)
    in_use = f"{paths.folder} is in use: resume would refuse" if holding.state == "held" else ""
    return ResumePlan(**opened.plan(paths.folder, warnings=(*([in_use] if in_use else []), *opened.warnings)))


def open_to_train(task: Loaded, paths: RunPaths, programs: Programs | None = None) -> Session:
    """Open the session of a run that has a state; refuse what cannot be trained before anything is changed."""
    if Permissions.accept_change:
        task = task.changed(hashes_of(task.values))
    session = placed(open_task(task, paths, programs))
    if session.cfg.run.tensorboard:
        check_installed()
    installed_sinks(session.cfg.run.sink)
    return session


def _open(paths: RunPaths, changes: Mapping[str, object], programs: Programs | None = None) -> Continued:
    run = Run.of(paths)
    task = changed(run, changes)
    _check_steps(run, paths, task.config.run.total_steps)
    session = open_to_train(task, paths, programs)
    try:
        restored = restore(session, paths)
    except DoesNotFit as problem:  # for example with a file of the environment that has changed
        hint = other_run(run._replace(task=session.task), {})
        raise HmxError(problem.message, hint, problem.exit_code) from None
    meta = metas.find(paths.meta)  # damaged meta data will be replaced
    # A run killed between its last checkpoint and its evaluation still needs the evaluation.
    complete = meta is not None and meta.state == "finished"
    if restored.update >= session.sizes.num_updates + (not complete):
        steps = restored.update * session.sizes.batch_size
        message = f"{paths.name} is finished: {steps:,} steps, {restored.update:,} updates"
        raise HmxError(message, f"to extend it: hmx resume {paths.argument} --steps {2 * steps}")
    return continued(run, session, restored)


def _check_steps(run: Run, paths: RunPaths, asked: int) -> None:
    """Refuse fewer steps than the run has trained, whatever else is wrong with their number."""
    own, done = derive(run.cfg), max(run.updates(), default=0)
    if asked == run.cfg.run.total_steps or math.ceil(asked / own.batch_size) >= done:
        return
    steps, again = done * own.batch_size, f"hmx resume {paths.argument}"
    longer = 2 * steps
    while longer <= run.cfg.run.total_steps:
        longer *= 2
    hint = f"to extend it: {again} --steps {longer}"
    if done < own.num_updates:
        hint = f"to continue to its own {run.cfg.run.total_steps:,} steps: {again}; {hint}"
    raise HmxError(f"cannot resume {paths.name} to {counted(asked, 'step')}: it has trained {steps:,}", hint)


def continued(run: Run, session: Session, restored: Restored) -> Continued:
    """Return a run that continues from a checkpoint, with its reference policy if it has one."""
    restored = restored._replace(state=references.attached(session, run.paths, restored.state))
    differences = codec.diff(run.cfg, session.cfg)
    notes = schedule_notes(session.task, differences)
    return Continued(session, restored, differences, (*restored.warnings, *notes))


def _metrics_fit(paths: RunPaths, restored: Restored) -> bool:
    """Return whether metrics.jsonl begins with the bytes marked by the checkpoint; refuse a file of a later hmx."""
    mark = restored.manifest.metrics
    if mark is not None and jsonl.begins_with(paths.metrics, mark):
        return True
    with contextlib.suppress(OSError):
        jsonl.survey(paths.metrics)
    return False


def _rewind(paths: RunPaths, restored: Restored, fits: bool, run_id: str) -> list[str]:
    """Truncate metrics.jsonl at the checkpoint; return the missing or damaged parts before that."""
    path, update, mark = paths.metrics, restored.update, restored.manifest.metrics
    if not os.path.lexists(path):
        return [f"{path} is missing; it starts again after update {update}"] if update else []
    if path.is_symlink() or not path.is_file():
        what = "a link" if path.is_symlink() else "no regular file"
        return [f"{path} is {what} and was set aside as {layout.set_aside(path).name}; a new file starts"]
    if mark is not None and fits:
        jsonl.cut(path, mark.size)
        return []
    original = layout.copy_aside(path)
    damaged = jsonl.salvage(path, update, run_id)
    last = jsonl.survey(path).last
    notes = []
    if damaged:
        lines = ", ".join(map(str, damaged[:8]))
        notes.append(f"{path}: damaged lines were left out ({lines}); the file as it was is {original.name}")
    else:
        original.unlink()
    if last < update:
        notes.append(f"{path} lacks updates {last + 1} to {update}")
    if mark is not None and not notes:
        notes.append(f"{path}: records up to update {update} have changed since they were written")
    return notes


def _plain_reports(paths: RunPaths) -> list[str]:
    """Set aside a link in place of the reports folder, since it may lead out of the run folder."""
    if not paths.reports.is_symlink() and (paths.reports.is_dir() or not paths.reports.exists()):
        return []
    return [f"{paths.reports} is not a folder and was set aside as {layout.set_aside(paths.reports).name}"]


def _other_machine(old: Meta, made: Mapping[str, Any]) -> list[str]:
    differing = metas.differences(old, made)
    parts = [f"{name} {before} became {now}" for name, (before, now) in differing.items()]
    return [f"versions have changed, {metas.OTHER_BITS}: {', '.join(parts)}"] if parts else []


def schedule_notes(task: Loaded, differences: Mapping[str, object]) -> list[str]:
    """Return a note for each schedule that a new length of the run stretches."""
    if "run.total_steps" not in differences:
        return []
    entry, values = task.algorithm, task.values
    kinds = {name: values[SCHEDULED[name].schedule] for name in entry.schedules}
    kinds |= dict.fromkeys(entry.linear, "linear")
    spans = f"schedule now spans {values['run.total_steps']:,} steps"
    return [f"the {kind} {name} {spans}" for name, kind in kinds.items() if kind != "constant"]
