"""Check that run.toml and meta.json belong to the run's checkpoints."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import tomllib
from pathlib import Path
from typing import NamedTuple

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.files import Unreadable, read_plain, words
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints, jsonl, meta
from hmx.records.artefact import REPORT_SCHEMA, NewerSchema, foreign, read_json
from hmx.records.meta import Meta
from hmx.records.paths import CONFIG, EVALUATION, META, METRICS, REPORTS, RunPaths
from hmx.registry.load import load_stored


class Copy(NamedTuple):
    """A checkpoint's copy of a small file of the run, verified by its SHA-256."""

    path: Path
    text: str


def read_config(paths: RunPaths) -> Config:
    """Read the configuration of a run.

    Raises:
        HmxError: run.toml is missing, damaged or changed (exit code 3), with each changed key if known; or a later hmx
            wrote it (2).
    """
    problem = config_fault(paths)
    if problem is not None:
        raise problem
    try:
        return load_stored(paths.config).config
    except HmxError as failure:
        if isinstance(failure.__cause__, OSError):
            raise Unreadable(failure.message, failure.hint, ExitCode.ARTEFACT) from failure
        raise


def task_of(paths: RunPaths) -> tuple[str, str]:
    """Return the ids of the environment and of the algorithm of a run, "" where run.toml does not name them.

    Much faster than reading the configuration, for lists of many runs.
    """
    try:
        text = read_plain(paths.config).decode("utf-8")
    except (OSError, ValueError):
        return "", ""
    return _value(text, "env", "id"), _value(text, "algo", "name")


def _value(text: str, section: str, key: str) -> str:
    """Return a string in a file that hmx wrote, with a line for each key."""
    inner = text.partition(f"\n[{section}]\n")[2].partition("\n[")[0]
    line = re.search(rf"^{key} = (\"[^\"\n]*\")$", inner, re.MULTILINE)
    return str(tomllib.loads(line[0])[key]) if line else ""


def describe(paths: RunPaths) -> tuple[Config | None, Meta | None, list[str]]:
    """Return the readable parts of the configuration and the meta data of a run, and warnings."""
    found, config, warnings = None, None, []
    try:
        found = meta.read(paths.meta)
    except NewerSchema as problem:
        warnings.append(f"{problem.message}, so versions and device are unknown")
    except HmxError:
        warnings.append("cannot read its meta.json, so versions and device are unknown")
    try:
        config = read_config(paths)
    except HmxError as problem:
        warnings.append(f"cannot read its configuration: {quoted(' '.join(problem.message.split()), 300)}")
    return config, found, warnings


def is_damaged(paths: RunPaths) -> bool:
    """Return whether run.toml or meta.json is there but cannot be read, other than for being of a newer hmx."""
    try:
        read_config(paths)
        if paths.meta.exists():
            meta.read(paths.meta)
    except NewerSchema:
        return False
    except HmxError as problem:
        return problem.exit_code == ExitCode.ARTEFACT
    return False


def config_fault(paths: RunPaths, exact: bool = False) -> HmxError | None:
    """Return the problem of a run's run.toml; None if there is none.

    It must be the file that meta.json or the newest checkpoint knows, or have the same values.

    Args:
        paths: of the run.
        exact: whether a change without effect counts too: in a comment, or a file from before a resumption that did
            not reach its first checkpoint.
    """
    kept = copy_of(paths, CONFIG)
    try:
        text = read_plain(paths.config).decode("utf-8")
    except Unreadable as problem:
        return problem
    except (OSError, UnicodeDecodeError) as problem:
        why = "is missing" if isinstance(problem, FileNotFoundError) else f"cannot be read: {words(problem)}"
        return _damaged(paths, why, kept)
    known = current_meta(paths)
    if known is not None and known.config_sha256 == meta.sha256(text):
        return None
    if kept is not None and kept.text == text:
        older = exact and known is not None and known.config_sha256 and _has_more_records(paths, kept)
        why = (
            f"is older than meta.json: it is the file of checkpoint {kept.path.parent.name}, before the last resumption"
        )
        return _damaged(paths, why, None) if older else None
    try:
        new = load_stored(paths.config).config
    except HmxError as fault:
        return fault if _is_newer(text) else _damaged(paths, f"is damaged: {fault.message}", kept)
    if kept is None:
        return None if _agrees_with_digests(paths, text, known) else _damaged(paths, "has changed", None)
    if changed := codec.diff(load_stored(kept.path).config, new):
        update = kept.path.parent.name
        lines = [f"  {key}: {show(before)} became {show(after)}" for key, (before, after) in changed.items()]
        return _damaged(paths, "\n".join([f"has changed since checkpoint {update}:", *lines]), kept)
    return _damaged(paths, "has changed, but its values are the same", kept) if exact else None


def _has_more_records(paths: RunPaths, kept: Copy) -> bool:
    """Return whether the run has trained since a checkpoint; a resumption drops the records after it first."""
    mark = checkpoints.read_manifest(kept.path.parent).metrics
    try:
        return mark is not None and paths.metrics.stat().st_size > mark.size
    except OSError:
        return False


def copy_of(paths: RunPaths, name: str) -> Copy | None:
    """Return the newest undamaged copy of run.toml or meta.json in a checkpoint of the run."""
    run_id = run_id_of(paths)
    for checkpoint in reversed(checkpoints.listing(paths.checkpoints)):
        try:
            manifest = checkpoints.read_manifest(checkpoint)
            files = {file.path: file for file in manifest.files}
            if name in files and not foreign(manifest.run_id, run_id):
                text = read_plain(checkpoint / name).decode("utf-8")
                if meta.sha256(text) == files[name].sha256:
                    return Copy(checkpoint / name, text)
        except (HmxError, OSError, UnicodeDecodeError):
            continue
    return None


def known_meta(paths: RunPaths) -> Meta | None:
    """Return the meta data of a run, or the copy in its newest checkpoint; None if neither can be used."""
    known = current_meta(paths)
    if known is not None:
        return known
    kept = copy_of(paths, META)
    return meta.find(kept.path) if kept is not None else None


def current_meta(paths: RunPaths) -> Meta | None:
    """Return the meta data of a run; None if meta.json cannot be used, see `meta_fault`."""
    return None if meta_fault(paths) else meta.find(paths.meta)


def run_id_of(paths: RunPaths) -> str:
    """Return the run id: that of meta.json, or else of the last record; "" for a run of an old schema."""
    known = meta.find(paths.meta)
    if known is not None:
        return known.run_id
    try:
        return next((jsonl.run_of(record) for record in reversed(jsonl.tail(paths.metrics))), "")
    except OSError:
        return ""


def foreign_files(paths: RunPaths) -> list[str]:
    """Return a message for metrics and for an evaluation that belong to another run than meta.json."""
    run_id, found = run_id_of(paths), []
    with contextlib.suppress(OSError, HmxError):
        ids = {jsonl.run_of(record) for record in jsonl.tail(paths.metrics)}
        found += [f"{METRICS} {why}" for other in sorted(ids) if (why := foreign(other, run_id))]
    with contextlib.suppress(HmxError):
        report = read_json(paths.reports / EVALUATION, REPORT_SCHEMA, "", "")
        other = str(report.get("run_id", "")) if isinstance(report, dict) else ""
        found += [f"{REPORTS}/{EVALUATION} {why}"] if (why := foreign(other, run_id)) else []
    return found


def meta_fault(paths: RunPaths) -> HmxError | None:
    """Return the problem of a run's meta.json; None if there is none.

    The file counts its writes. A checkpoint's copy is at most one write ahead, in a run that was killed in between; if
    it is further ahead, the file is of an earlier moment of the run.
    """
    kept = copy_of(paths, META)  # before meta.json, which a run writes after each checkpoint
    copied = meta.find(kept.path) if kept is not None else None
    try:
        known = meta.read(paths.meta)
    except HmxError as problem:
        return problem
    if kept is None or copied is None or known.writes + 1 >= copied.writes:
        return None
    hint = f"`hmx resume` restores it, or: cp {shlex.quote(str(kept.path))} {shlex.quote(str(paths.meta))}"
    message = f"{paths.meta} is older than checkpoint {kept.path.parent.name}: it is from an earlier moment of the run"
    return HmxError(message, hint, ExitCode.ARTEFACT)


def _is_newer(text: str) -> bool:
    try:
        schema = tomllib.loads(text).get("schema")
    except (ValueError, RecursionError):
        return False
    return type(schema) is int and schema > codec.SCHEMA


def _agrees_with_digests(paths: RunPaths, text: str, known: Meta | None) -> bool:
    """Return whether it is the configuration that meta.json or a checkpoint of schema 1 was written with.

    The digest covers the keys of the file only, since there may be more options today.
    """
    digests = {known.config_digest} if known is not None else set()
    for checkpoint in reversed(checkpoints.listing(paths.checkpoints)):
        try:
            digests.add(checkpoints.read_manifest(checkpoint).config_digest)
            break
        except HmxError:
            continue
    digests.discard("")
    return not digests or digest_of_file(text) in digests


def digest_of_file(text: str) -> str:
    """Return the digest of a configuration over the keys that its file has, under their names in its schema."""
    return codec.sha256({name: part for name, part in tomllib.loads(text).items() if name != "schema"})


def _damaged(paths: RunPaths, why: str, kept: Copy | None) -> HmxError:
    hint = "restore the file, or start a new run"
    if kept is not None:
        plain = paths.config.is_file() and not paths.config.is_symlink()
        place = shlex.quote(str(paths.config))
        away = f"mv {place} {place}.damaged && " if not plain and os.path.lexists(paths.config) else ""
        put_back = f"{away}cp {shlex.quote(str(kept.path))} {place}"
        hint = f"restore the copy of checkpoint {kept.path.parent.name}: {put_back}"
        if " has changed since" in f" {why}":
            hint += f"; to change a value on purpose: hmx resume {paths.argument} --set KEY=VALUE"
    return HmxError(f"{paths.config} {why}", hint, ExitCode.ARTEFACT)
