"""What is wrong with a run folder, file by file: everything in it is read, nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from hmx.errors import HmxError
from hmx.records import checkpoints, frozen, jsonl, layout, lock, meta
from hmx.records.artefact import REPORT_SCHEMA, read_json, words
from hmx.records.checkpoints import Manifest
from hmx.records.layout import RunPaths
from hmx.records.meta import Meta


class Damage(NamedTuple):
    """One thing that is wrong: a path inside the run folder, and what about it."""

    path: str
    what: str


class Findings(NamedTuple):
    """What was found: `damage` is what a run should not have, `notes` what one may have."""

    damage: tuple[Damage, ...]
    notes: tuple[Damage, ...]
    intact: tuple[int, ...]  # updates of the intact checkpoints, oldest first


def verify(paths: RunPaths) -> Findings:
    """Reads every file of a run whose content is known, and compares."""
    known, notes = _read_meta(paths)
    damage = [*notes, *_config(paths)]
    faults = {p: checkpoints.faults(p) for p in checkpoints.listing(paths.checkpoints)}
    intact = {int(p.name): checkpoints.read_manifest(p) for p, found in faults.items() if not found}
    damage += [Damage(_inside(paths, p), why) for p, found in faults.items() for why in found]
    damage += [Damage(_inside(paths, p), why) for p in _kept_apart(paths) for why in checkpoints.faults(p)]
    damage += _absent(paths, known, faults)
    damage += _metrics(paths, known, intact)
    damage += [found for path in _reports(paths) for found in _report(paths, path)]
    lock_damage, lock_notes = _lock(paths)
    aside = [
        Damage(_inside(paths, path), "set aside as damaged")
        for folder in (paths.folder, paths.checkpoints)
        for path in sorted(folder.glob("*.damaged"))
    ]
    return Findings((*damage, *lock_damage), (*_no_report(paths, known), *lock_notes, *aside), tuple(intact))


def _inside(paths: RunPaths, path: Path) -> str:
    return path.relative_to(paths.folder).as_posix()


def _kept_apart(paths: RunPaths) -> list[Path]:
    """The states before updates that were refused."""
    return [] if paths.diagnosis.is_symlink() else checkpoints.listing(paths.diagnosis)


def _short(paths: RunPaths, problem: HmxError, path: Path) -> str:
    """The message without the path, which is told beside it."""
    return problem.message.removeprefix(f"{path} ").removeprefix("cannot be read: ")


def _read_meta(paths: RunPaths) -> tuple[Meta | None, list[Damage]]:
    try:
        return meta.read(paths.meta), []
    except HmxError as problem:
        return None, [Damage(layout.META, _short(paths, problem, paths.meta))]


def _config(paths: RunPaths) -> Iterator[Damage]:
    problem = frozen.config_fault(paths, exact=True)
    if problem is not None:
        yield Damage(layout.CONFIG, _short(paths, problem, paths.config))


def _absent(paths: RunPaths, known: Meta | None, faults: dict[Path, list[str]]) -> Iterator[Damage]:
    """Folders that should be there, and the checkpoint that meta.json speaks of."""
    for folder in (paths.checkpoints, paths.reports):
        if folder.is_symlink() or not folder.is_dir():
            missing = not os.path.lexists(folder)
            yield Damage(folder.name, "missing" if missing else "not a folder of its own")
    if known is not None and known.update > max((int(p.name) for p in faults), default=0):
        yield Damage(f"{layout.CHECKPOINTS}/{known.update}", "missing, though meta.json says it was written")


def _metrics(paths: RunPaths, known: Meta | None, intact: dict[int, Manifest]) -> Iterator[Damage]:
    try:
        found = jsonl.survey(paths.metrics)
    except FileNotFoundError:
        if intact:
            yield Damage(layout.METRICS, "missing")
        return
    except (HmxError, OSError) as problem:
        what = _short(paths, problem, paths.metrics) if isinstance(problem, HmxError) else words(problem)
        yield Damage(layout.METRICS, what)
        return
    yield from (Damage(layout.METRICS, f"line {number} is not a record") for number in found.damaged[:20])
    newest = max(intact, default=0)
    gaps = [*found.missing, *([(found.last + 1, newest)] if found.last < newest else [])]
    yield from (Damage(layout.METRICS, f"lacks {_span(first, last)}") for first, last in gaps[:20])
    yield from (Damage(layout.METRICS, f"has update {update} more than once") for update in found.repeated[:20])
    if found.torn and known is not None and known.state in ("finished", "interrupted"):
        yield Damage(layout.METRICS, "the last line is cut")
    yield from _changed(paths, intact)


def _changed(paths: RunPaths, intact: dict[int, Manifest]) -> Iterator[Damage]:
    """The first stretch of records that is not what the newest checkpoint saw; older ones narrow it down."""
    marks = [(update, manifest.metrics) for update, manifest in intact.items() if manifest.metrics is not None]
    if not marks or jsonl.begins_with(paths.metrics, marks[-1][1]):
        return
    good = 0
    for update, mark in marks:
        if not jsonl.begins_with(paths.metrics, mark):
            yield Damage(layout.METRICS, f"{_span(good + 1, update)} changed since the checkpoint was written")
            return
        good = update


def _span(first: int, last: int) -> str:
    return f"update {first}" if first == last else f"updates {first} to {last}"


def _reports(paths: RunPaths) -> list[Path]:
    return sorted(paths.reports.glob("*.json")) if not paths.reports.is_symlink() else []


def _report(paths: RunPaths, path: Path) -> Iterator[Damage]:
    try:
        read_json(path, REPORT_SCHEMA, f"{path} is missing", "", sealed_from=REPORT_SCHEMA)
    except HmxError as problem:
        yield Damage(_inside(paths, path), _short(paths, problem, path))


def _no_report(paths: RunPaths, known: Meta | None) -> Iterator[Damage]:
    """The evaluation of a finished run may have been cut short; it can be had again."""
    path = paths.reports / layout.EVALUATION
    if known is None or known.state != "finished" or os.path.lexists(path):
        return
    if frozen.config_fault(paths) is None and frozen.read_config(paths).run.eval_episodes:
        yield Damage(_inside(paths, path), f"missing; to have it again: hmx evaluate {paths.argument}")


def _lock(paths: RunPaths) -> tuple[list[Damage], list[Damage]]:
    """A lock that is held or was left behind is no damage, but worth telling."""
    try:
        holding = lock.holding(paths)
    except OSError as problem:
        return [Damage(layout.LOCK, words(problem))], []
    if holding.state == "free":
        return [], []
    if holding.owner is None and paths.lock.stat().st_size:
        return [Damage(layout.LOCK, "its content has changed")], []
    state = "held" if holding.state == "held" else "left behind"
    owner = f"process {holding.owner.pid} on {holding.owner.host}" if holding.owner else "a process unknown"
    return [], [Damage(layout.LOCK, f"{state} by {owner}")]
