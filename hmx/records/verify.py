"""Check every file of a run folder, and change nothing."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from hmx.config import files
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.records import artefact, buffer_file, checkpoints, frozen, jsonl, lock, reference_file, score_file
from hmx.records.meta import Meta
from hmx.records.paths import (
    CHECKPOINTS,
    ENVIRONMENT,
    EVALUATION,
    GRADIENTS,
    LOCK,
    METRICS,
    REFERENCE,
    SCORE_REPORT,
    RunPaths,
)
from hmx.records.plain import JsonResult, JsonValue, plain_object

_REPORTS = (EVALUATION, GRADIENTS, SCORE_REPORT)


class Damage(NamedTuple):
    """One damaged or missing file: its path inside the run folder, and its problem."""

    path: str
    what: str


class Stretch(NamedTuple):
    """Updates that were trained again, and the first value that differs."""

    first: int
    last: int
    outcome: Literal["equal", "different", "not replayed"]
    update: int | None = None  # the first that differs
    quantity: str = ""  # its metric, or the leaf of the state after `last`
    reason: str = ""  # why the stretch cannot be replayed


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunReplay:
    """Stretches of a run, drawn at random and trained again."""

    seed: int  # of the draw
    of: int  # number of stretches that the run has
    stretches: tuple[Stretch, ...]

    def with_outcome(self, outcome: str) -> list[Stretch]:
        """Return the stretches with an outcome, in order."""
        return [stretch for stretch in self.stretches if stretch.outcome == outcome]


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifyResult(JsonResult):
    """Whether a run folder is intact."""

    run: Path
    intact: tuple[int, ...]  # updates of the intact checkpoints, oldest first
    damage: tuple[Damage, ...]
    notes: tuple[Damage, ...]  # harmless findings, such as a lock that was left behind
    replay: RunReplay | None = None  # None if none was asked for, or files are damaged

    def to_json(self) -> dict[str, JsonValue]:
        """Return a JSON object with stable keys."""
        found = plain_object(self)
        intact = found.pop("intact")
        if self.replay is None:
            del found["replay"]
        return {"schema": self.schema_number, "whole": not self.damage, "intact_checkpoints": intact, **found}


def verify(paths: RunPaths) -> VerifyResult:
    """Read every file of a run that has a checksum, and compare them.

    Files may change while a process trains there: a checkpoint is deleted while it is read, for example. So damage
    counts only if a second check also finds it.
    """
    found = _verify(paths)
    if not found.damage:
        return found
    again = _verify(paths)
    return dataclasses.replace(again, damage=tuple(damage for damage in again.damage if damage in found.damage))


def _verify(paths: RunPaths) -> VerifyResult:
    run_id = frozen.run_id_of(paths)
    config, known, _ = frozen.describe(paths)
    problem = frozen.config_fault(paths, exact=True)
    damage = [] if problem is None else [_of(paths, paths.config, problem)]
    faults = {p: checkpoints.faults(p, run_id=run_id) for p in checkpoints.listing(paths.checkpoints)}
    intact = {int(p.name): p for p, found in faults.items() if not found}
    states = [] if paths.diagnosis.is_symlink() else checkpoints.listing(paths.diagnosis)
    diagnoses = {p: checkpoints.faults(p, run_id=run_id) for p in states}
    damage += [Damage(_inside(paths, p), why) for p, found in (faults | diagnoses).items() for why in found]
    damage += _absent(paths, known, faults)
    damage += _environment(paths, known)
    damage += _reference(paths, config, run_id)
    damage += _metrics(paths, known, intact)
    reports = [] if paths.reports.is_symlink() else sorted(paths.reports.rglob("*"))
    damage += [found for path in reports if path.suffix == ".json" for found in _report(paths, path, run_id)]
    damage += [found for path in reports if path.suffix == ".npz" for found in _arrays(paths, path)]
    # Last, since a run writes it after each checkpoint.
    problem = frozen.meta_fault(paths)
    damage += [] if problem is None else [_of(paths, paths.meta, problem)]
    lock_damage, lock_notes = _lock(paths)
    aside = [
        Damage(_inside(paths, path), "set aside as damaged")
        for folder in (paths.folder, paths.checkpoints)
        for path in sorted(folder.glob("*.damaged"))
    ]
    notes = (*_no_report(paths, config, known), *lock_notes, *aside)
    return VerifyResult(run=paths.folder, intact=tuple(intact), damage=(*damage, *lock_damage), notes=notes)


def _inside(paths: RunPaths, path: Path) -> str:
    return path.relative_to(paths.folder).as_posix()


def _of(paths: RunPaths, path: Path, problem: HmxError | OSError) -> Damage:
    """Return the damage of a file, without the path, which is shown next to it."""
    if isinstance(problem, HmxError):
        what = problem.message.removeprefix(f"{path} ").removeprefix(f"cannot read {path}: ")
    else:
        what = "missing" if isinstance(problem, FileNotFoundError) else files.words(problem)
    return Damage(_inside(paths, path), what)


def _absent(paths: RunPaths, known: Meta | None, faults: dict[Path, list[str]]) -> Iterator[Damage]:
    """Find missing folders, and the missing checkpoint that meta.json names."""
    for folder in (paths.checkpoints, paths.reports):
        if folder.is_symlink() or not folder.is_dir():
            missing = not os.path.lexists(folder)
            yield Damage(folder.name, "missing" if missing else "a link or a file instead of a folder")
    if known is not None and known.update > max((int(p.name) for p in faults), default=0):
        yield Damage(f"{CHECKPOINTS}/{known.update}", "missing, but meta.json says that it was written")


def _environment(paths: RunPaths, known: Meta | None) -> Iterator[Damage]:
    """Find a damaged copy of the user's environment."""
    if known is None or not known.environment:
        return
    try:
        if hashlib.sha256(files.read_plain(paths.environment)).hexdigest() != known.environment.get("sha256"):
            yield Damage(ENVIRONMENT, "has changed since the run began")
    except OSError as problem:
        yield _of(paths, paths.environment, problem)


def _reference(paths: RunPaths, config: Config | None, run_id: str) -> Iterator[Damage]:
    """Find a damaged or missing reference policy."""
    if not os.path.lexists(paths.reference):
        if config is not None and config.ppo.ref:
            yield Damage(REFERENCE, "missing")
        return
    try:
        header, _ = reference_file.KIND.read(paths.reference, in_memory=False)
    except HmxError as problem:
        yield _of(paths, paths.reference, problem)
        return
    if other := artefact.foreign(header[reference_file.RUN_ID], run_id):
        yield Damage(REFERENCE, other)


def _metrics(paths: RunPaths, known: Meta | None, intact: Mapping[int, Path]) -> Iterator[Damage]:
    try:
        found = jsonl.survey(paths.metrics)
    except (HmxError, OSError) as problem:
        if intact or not isinstance(problem, FileNotFoundError):
            yield _of(paths, paths.metrics, problem)
        return
    if known is not None:
        foreign = [why for run_id in found.runs if (why := artefact.foreign(run_id, known.run_id))]
        yield from (Damage(METRICS, why) for why in foreign[:20])
    yield from (Damage(METRICS, f"line {number} is not a record") for number in found.damaged[:20])
    yield from (Damage(METRICS, f"lacks {_span(first, last)}") for first, last in found.missing[:20])
    yield from (Damage(METRICS, f"has update {update} more than once") for update in found.repeated[:20])
    if not found.whole:
        yield Damage(METRICS, f"has {jsonl.MOST_DAMAGED} damaged lines or more; the rest was not read")
        return
    if found.torn and known is not None and known.state in ("finished", "interrupted"):
        yield Damage(METRICS, "the last line is incomplete")
    newest = max(intact, default=0)
    try:
        mark = checkpoints.read_manifest(intact[newest]).metrics if newest else None
    except HmxError:  # deleted since
        return
    try:
        if mark is not None and not jsonl.begins_with(paths.metrics, mark):
            yield Damage(METRICS, f"records up to update {newest} have changed since checkpoint {newest} was written")
    except files.Unreadable as problem:
        yield _of(paths, paths.metrics, problem)


def _span(first: int, last: int) -> str:
    return f"update {first}" if first == last else f"updates {first} to {last}"


def _report(paths: RunPaths, path: Path, run_id: str) -> Iterator[Damage]:
    try:
        data = artefact.read_json(
            path, artefact.REPORT_SCHEMA, f"{path} is missing", "", sealed_from=artefact.REPORT_SEALED_FROM
        )
    except HmxError as problem:
        yield _of(paths, path, problem)
        return
    if path.name in _REPORTS and not (isinstance(data, dict) and type(data.get("schema")) is int):
        yield Damage(_inside(paths, path), "not a report")
        return
    found = str(data.get("run_id", "")) if isinstance(data, dict) else ""
    if other := artefact.foreign(found, run_id):
        yield Damage(_inside(paths, path), other)


def _arrays(paths: RunPaths, path: Path) -> Iterator[Damage]:
    """Find a damaged file of scores, or of a replay buffer; other files may be the user's."""
    try:
        if path.name in score_file.NAMES:
            score_file.read(path, in_memory=False)
        elif path.name.startswith("buffer"):
            buffer_file.read(path, in_memory=False)
    except HmxError as problem:
        yield _of(paths, path, problem)


def _no_report(paths: RunPaths, config: Config | None, known: Meta | None) -> Iterator[Damage]:
    """Note the missing evaluation of a finished run, which may have been stopped during it."""
    path = paths.reports / EVALUATION
    if known is None or known.state != "finished" or os.path.lexists(path):
        return
    if config is not None and config.run.eval_episodes:
        yield Damage(_inside(paths, path), f"missing; evaluate again with: hmx evaluate {paths.argument}")


def _lock(paths: RunPaths) -> tuple[list[Damage], list[Damage]]:
    """Check the lock; one that is held or stale is a note, not damage."""
    try:
        holding = lock.holding(paths)
        size = paths.lock.stat().st_size if holding.state != "free" else 0
    except FileNotFoundError:  # released since
        return [], []
    except OSError as problem:
        return [_of(paths, paths.lock, problem)], []
    if holding.state == "free":
        return [], []
    if holding.owner is None and size:
        return [Damage(LOCK, "its content has changed")], []
    state = "held" if holding.state == "held" else "stale, left"
    owner = f"process {holding.owner.pid} on {holding.owner.host}" if holding.owner else "an unknown process"
    return [], [Damage(LOCK, f"{state} by {owner}")]
