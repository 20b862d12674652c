"""`hmx fork`: continue a run from a checkpoint as a new run, with changed settings."""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from hmx.config import codec, fields
from hmx.config.coerce import show_all
from hmx.config.files import words
from hmx.config.names import clean_run_name
from hmx.config.problem import error
from hmx.errors import HmxError
from hmx.jobs.changed import changed, other_run
from hmx.jobs.healthy import check_alone
from hmx.jobs.requests import ForkRequest
from hmx.jobs.resume import Continued, ResumePlan, continued, open_to_train
from hmx.jobs.train import TrainResult, new_meta, run_session, worker_result, write_run
from hmx.jobs.worker import check_same_config
from hmx.records import frozen, jsonl, layout, reference_file
from hmx.records import meta as metas
from hmx.records.atomic import writing
from hmx.records.checkpoints import CheckpointInfo
from hmx.records.layout import find_run
from hmx.records.lock import RunLock
from hmx.records.meta import Meta, Resume
from hmx.records.paths import DEFAULT_ROOT, RunPaths
from hmx.runs import checkpoint
from hmx.runs.cluster.group import ALONE, Group
from hmx.runs.compilation import enable_cache
from hmx.runs.restoring import Run, choose, restore_chosen
from hmx.runs.session import Session
from hmx.runs.sinks import Sink
from hmx.runs.training import Training, add_copies, make_sinks

_DEFAULTS = ForkRequest()


@dataclasses.dataclass(frozen=True, kw_only=True)
class ForkPlan(ResumePlan):
    """The plan of a fork; `run` is the new run, and nothing of it has been written."""

    parent: Path


def fork(
    run: str | Path,
    request: ForkRequest = _DEFAULTS,
    *,
    changes: Mapping[str, object] | None = None,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    root: str | Path = DEFAULT_ROOT,
    group: Group = ALONE,
) -> TrainResult:
    """Continue a run from the exact state at a checkpoint as a new run; the run itself stays as it is.

    The new run gets a copy of the checkpoint and of the records up to it, so it does not need the folder of the other.
    Without changes it equals the other run bit for bit.

    Args:
        run: name or path of the run, which may be training.
        request: the checkpoint, and the name of the new run.
        changes: new values by dotted key (text is read as on the command line). They apply from the checkpoint on, and
            meta.json records them.
        sinks: receivers of records in addition to the local file.
        command_line: kept in meta.json.
        root: runs folder, for a name. The new run is written beside the other one.
        group: the processes of the new run; only process 0 reads and writes files.

    Raises:
        HmxError: a change that the state forbids, no updates left, or a name that is taken (exit code 2); no such run
            or checkpoint, or one that is damaged or does not fit (3); a process of the group is gone (1).
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    asked = {"command": "fork", "run": Path(run).name, **vars(request), **(changes or {})}
    check_same_config(group, asked)
    enable_cache()  # before the programs in it are used
    if not group.is_coordinator:
        return worker_result(group)
    parent = find_run(run, root)
    return start(open_at(parent, request, changes or {}), parent, sinks=sinks, command_line=command_line, group=group)


def start(
    opened: Continued,
    parent: RunPaths,
    *,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    group: Group = ALONE,
    notes: Sequence[str] = (),
) -> TrainResult:
    """Create the new run that `open_at` opened and train it; `notes` are kept in its meta.json."""
    warning = enable_cache()
    cfg, restored = opened.session.cfg, opened.restored
    check_alone(cfg.run, group)
    paths = layout.new_run(cfg.run.root, cfg.run.name, _stem(parent))
    with RunLock(paths):
        with _deleted_on_failure(paths), writing("the run folder", paths.folder):
            session, meta = _create(opened, parent, paths, command_line, notes)
        sink_group = make_sinks(session.cfg.run, paths, sinks, (warning, *meta.resumes[-1].notes, *opened.warnings))
        training = Training(session, paths, meta, sink_group, group)
        return run_session(training, lambda: restored.state, restored.update, episodes=restored.episodes)


def plan(
    run: str | Path,
    request: ForkRequest = _DEFAULTS,
    *,
    changes: Mapping[str, object] | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> ForkPlan:
    """Return the plan of `fork`; read the checkpoint and write nothing."""
    parent = find_run(run, root)
    opened = open_at(parent, request, changes or {})
    cfg = opened.session.cfg
    name = layout.planned_name(cfg.run.root, cfg.run.name, _stem(parent))
    named = fields.replace(cfg, {"run.name": name})
    return ForkPlan(**opened.plan(Path(cfg.run.root) / name, config=named), parent=parent.folder)


def _stem(parent: RunPaths) -> str:
    return f"{clean_run_name(parent.name)}-fork"


def open_at(parent: RunPaths, request: ForkRequest, changes: Mapping[str, object]) -> Continued:
    """Open a fork: restore its checkpoint and write nothing; errors as of `fork`."""
    layout.check_new_name(parent.root, request.name)
    newest = Run.of(parent)
    chosen = choose(parent, request.at)
    later = changed_later(resumes_of(parent), chosen.manifest.update)
    run = newest.changed(later)
    task = changed(run, changes, chosen.path)
    place = {"run.root": str(parent.root), "run.name": request.name}
    session = open_to_train(task.changed(place), parent)
    try:
        restored = restore_chosen(session, parent, chosen, codec.shape_digest(run.cfg, chosen.manifest.schema))
    except checkpoint.DoesNotFit as problem:
        values = {key: new for key, (_, new) in codec.diff(run.cfg, task.config).items()}
        raise HmxError(problem.message, other_run(run, values, chosen.path)) from None
    update, sizes = restored.update, session.sizes
    if update >= sizes.num_updates:
        message = f"cannot fork {parent.name} at update {update:,}: it ends there"
        hint = f"train longer: --steps {2 * update * sizes.batch_size}; or fork an earlier checkpoint: --at UPDATE"
        raise HmxError(message, hint)
    opened = continued(run.changed(place), session, restored)
    if not later:
        return opened
    kept = f"the run was changed after update {update:,}; the fork keeps {show_all(later)}"
    return opened._replace(warnings=(*opened.warnings, kept))


def resumes_of(parent: RunPaths) -> tuple[Resume, ...]:
    """Return the forks and resumptions of a run."""
    known = frozen.known_meta(parent)
    return known.resumes if known is not None else ()


def changed_later(resumes: Sequence[Resume], update: int) -> dict[str, object]:
    """Return the values, after an update, of the keys that resumptions after it have changed.

    Raises:
        HmxError: meta.json names keys or values that this hmx does not know.
    """
    before: dict[str, object] = {}
    for resume in reversed(resumes):
        if resume.update <= update:  # earlier changes apply too, even those at a later update that was trained again
            break
        before |= {key: pair[0] for key, pair in resume.changes.items() if pair and pair[0] is not None}
    values, problems = codec.resolve(before, {}, text=False)
    if problems:
        raise error(problems)
    return values


def _create(
    opened: Continued, source: RunPaths, paths: RunPaths, command_line: Sequence[str], notes: Sequence[str]
) -> tuple[Session, Meta]:
    """Write the new run as if it had been interrupted at the checkpoint; its run.toml and meta.json come last."""
    session = opened.session.changed({"run.name": paths.name})
    update, manifest = opened.restored.update, opened.restored.manifest
    parent = {"name": source.name, "run_id": manifest.run_id or frozen.run_id_of(source)}
    history = tuple(resume for resume in resumes_of(source) if resume.update <= update)
    meta = dataclasses.replace(new_meta(session, command_line), resumes=history)
    notes = [*notes, *_copy_records(source.metrics, paths, update, parent["run_id"], meta.run_id)]
    meta = metas.resumed(meta, update, command_line, opened.changes, notes=notes, parent=parent)
    env_steps = update * session.sizes.batch_size
    text = metas.with_history(codec.to_toml(session.cfg), meta.resumes)
    meta = dataclasses.replace(meta, env_steps=env_steps, config_sha256=metas.sha256(text))
    info = CheckpointInfo(
        run_id=meta.run_id,
        env_steps=env_steps,
        shape_digest=meta.shape_digest,
        config_digest=meta.config_digest,
        metrics=jsonl.Marker(paths.metrics).mark(),
    )
    episodes = opened.restored.episodes
    copies = partial(add_copies, text, meta, None if episodes is None else episodes.write)
    saved = checkpoint.snapshot(opened.restored.state)
    checkpoint.write(paths.checkpoints, saved, update, None, info, add_files=copies)
    if session.cfg.ppo.ref:
        reference_file.copy(source.reference, paths.reference, meta.run_id)
    write_run(session, paths, meta)
    return session, meta


def _copy_records(source: Path, paths: RunPaths, update: int, run_id: str, new_id: str) -> list[str]:
    """Copy the records up to the checkpoint; return what is missing of them."""
    try:
        damaged = jsonl.adopt(source, paths.metrics, update, run_id, new_id)
    except OSError as problem:
        return [f"cannot copy {source}: {words(problem)}; the records start after update {update:,}"]
    if not damaged:
        return []
    lines = ", ".join(map(str, damaged[:8]))
    return [f"{source}: damaged lines were left out ({lines})"]


@contextlib.contextmanager
def _deleted_on_failure(paths: RunPaths) -> Iterator[None]:
    """Delete the folder of a run that could not be created, or whose creation was interrupted."""
    try:
        yield
    except BaseException:
        shutil.rmtree(paths.folder, ignore_errors=True)
        raise
