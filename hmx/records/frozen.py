"""run.toml as a run froze it: whether it still says what it said when the run's checkpoints were made."""

from __future__ import annotations

import shlex
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.load import load
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records import checkpoints, meta
from hmx.records.artefact import read_plain, words
from hmx.records.layout import CONFIG, META, RunPaths
from hmx.records.meta import Meta


class Copy(NamedTuple):
    """A small file of the run as a checkpoint carries it, verified by its SHA-256."""

    path: Path
    text: str


def read_config(paths: RunPaths) -> Config:
    """The configuration of a run.

    Raises:
        HmxError: run.toml is missing, damaged, or says something else than when it was written (exit code 3), each
            key named where that can be known; or a later hmx wrote it (2).
    """
    problem = config_fault(paths)
    if problem is not None:
        raise problem
    return load(file=paths.config, environ={}).config


def config_fault(paths: RunPaths, exact: bool = False) -> HmxError | None:
    """What is wrong with the run.toml of a run; None if nothing is.

    It must be the file that meta.json or the newest checkpoint knows, or at least say the same.

    Args:
        paths: of the run.
        exact: whether a change that means nothing, as in a comment, counts too.
    """
    kept = copy_of(paths, CONFIG)
    try:
        text = read_plain(paths.config).decode("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        why = "is missing" if isinstance(problem, FileNotFoundError) else f"cannot be read: {words(problem)}"
        return _damaged(paths, why, kept)
    known = meta.find(paths.meta)
    if (known is not None and known.config_sha256 == meta.sha256(text)) or (kept is not None and kept.text == text):
        return None
    if _is_newer(text):
        return _load_fault(paths.config)
    fault = _load_fault(paths.config)
    if fault is not None:
        return _damaged(paths, f"is damaged: {fault.message}", kept)
    if kept is None:
        return None if _agrees_with_digests(paths, text, known) else _damaged(paths, "has changed", None)
    old, new = (load(file=path, environ={}, check=False).config for path in (kept.path, paths.config))
    changed = codec.diff(old, new)
    if changed:
        update = kept.path.parent.name
        lines = [f"  {key}: {show(before)} became {show(after)}" for key, (before, after) in changed.items()]
        return _damaged(paths, "\n".join([f"has changed since checkpoint {update}:", *lines]), kept)
    return _damaged(paths, "has changed, though not in what it means", kept) if exact else None


def copy_of(paths: RunPaths, name: str) -> Copy | None:
    """The newest copy of run.toml or meta.json that a checkpoint of the run carries, if it is undamaged."""
    for checkpoint in reversed(checkpoints.listing(paths.checkpoints)):
        try:
            files = {file.path: file for file in checkpoints.read_manifest(checkpoint).files}
            if name in files:
                text = read_plain(checkpoint / name).decode("utf-8")
                if meta.sha256(text) == files[name].sha256:
                    return Copy(checkpoint / name, text)
        except (HmxError, OSError, UnicodeDecodeError):
            continue
    return None


def known_meta(paths: RunPaths) -> Meta | None:
    """The meta data of a run, or else the copy in its newest checkpoint; None where neither can be read."""
    known = meta.find(paths.meta)
    if known is not None:
        return known
    kept = copy_of(paths, META)
    return meta.find(kept.path) if kept is not None else None


def _load_fault(path: Path) -> HmxError | None:
    try:
        load(file=path, environ={})
    except HmxError as problem:
        return problem
    return None


def _is_newer(text: str) -> bool:
    try:
        schema = tomllib.loads(text).get("schema")
    except (ValueError, RecursionError):
        return False
    return type(schema) is int and schema > codec.SCHEMA


def _agrees_with_digests(paths: RunPaths, text: str, known: Meta | None) -> bool:
    """Whether it is the configuration that meta.json or a checkpoint of schema 1 was written with.

    The options of today may be more than those of then: the digest is taken over the keys that the file has.
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
    """The digest of a configuration by the keys that its file has, whichever the schema has today."""
    raw = codec.parse_toml(text, CONFIG).values
    values, _ = codec.resolve(raw)
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return codec.sha256(sections)


def _damaged(paths: RunPaths, why: str, kept: Copy | None) -> HmxError:
    hint = "restore the file, or start a new run"
    if kept is not None:
        plain = paths.config.is_file() and not paths.config.is_symlink()
        away = "" if plain or not (paths.config.exists() or paths.config.is_symlink()) else _away(paths.config)
        put_back = f"{away}cp {shlex.quote(str(kept.path))} {shlex.quote(str(paths.config))}"
        hint = f"put back what checkpoint {kept.path.parent.name} knows: {put_back}"
        if " has changed since" in f" {why}":
            hint += f"; a change that is meant goes by way of: hmx resume {paths.argument} --set KEY=VALUE"
    return HmxError(f"{paths.config} {why}", hint, ExitCode.ARTEFACT)


def _away(path: Path) -> str:
    quoted = shlex.quote(str(path))
    return f"mv {quoted} {quoted}.damaged && "
