"""Resolve the sides on the command line to runs, metrics files and configurations."""

from __future__ import annotations

import os
import re
import shlex
import string
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hmx.config import presets
from hmx.config.files import words
from hmx.config.names import is_run_name
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, nearest
from hmx.records.layout import list_runs
from hmx.records.paths import CONFIG, META, METRICS
from hmx.reports.compare.findings import Kind
from hmx.reports.compare.imported import is_imported

LETTERS = string.ascii_uppercase
MAX_MEMBERS = 1000
PRESET = "preset:"

_DEPTH = 3  # folders below the given one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_WAYS = "a side is a run, a folder of runs, a metrics file, a configuration or a preset"


@dataclass(frozen=True)
class MemberPath:
    """A part of a side; `path` is the run folder, the file, or the name of a preset."""

    kind: Kind
    path: Path
    label: str


@dataclass(frozen=True)
class SidePaths:
    """A side as given; `letter` is its place, A for the first."""

    letter: str
    name: str
    members: tuple[MemberPath, ...]


def choose(texts: Sequence[str], root: Path) -> tuple[SidePaths, ...]:
    """Resolve texts of the form `[NAME=]PATH[,PATH...]`.

    A path that exists as a whole is never split. A path is a run (its name below `root`, its folder or its
    metrics.jsonl), a folder whose subfolders are runs or whose files are `*.jsonl` or `*.csv`, a metrics file, a TOML
    file, or the name of a preset, which `preset:` in front marks as one. Refuses too few or too many sides, names that
    clash (exit code 2), and paths that do not exist (3).
    """
    if len(texts) < 2:
        given = shlex.quote(quoted(texts[0])) if texts else "runs/one"
        raise HmxError("expected at least two sides to compare", f"hmx compare {given} runs/another")
    if len(texts) > len(LETTERS):
        raise HmxError(f"cannot compare {len(texts)} sides: at most {len(LETTERS)}", "join runs: A=runs/one,runs/two")
    found: list[SidePaths] = []
    for letter, text in zip(LETTERS, texts, strict=False):
        name, paths = _split(text, root)
        members = tuple(member for path in paths for member in _members(path, root))
        if len(members) > MAX_MEMBERS:
            raise HmxError(f"{quoted(text)} has more than {MAX_MEMBERS:,} runs", "give a folder with fewer runs")
        if name:
            _check_name(name, letter, found)
        found.append(SidePaths(letter, name or _free(_default_name(paths), letter, found), members))
    return tuple(found)


def _split(text: str, root: Path) -> tuple[str, list[str]]:
    """Return the name of a side, "" if none was given, and its paths."""
    if _exists(text, root):
        return "", [text]
    name, equals, rest = text.partition("=")
    if not equals:
        name, rest = "", text
    elif not name:
        raise HmxError(
            f"{quoted(text)}: expected a name before the equals sign",
            f"hmx compare ours={shlex.quote(quoted(rest))} ...",
        )
    paths = [rest] if _exists(rest, root) else rest.split(",")
    if not all(paths):
        raise HmxError(f"{quoted(text) or repr(text)} contains an empty path", _WAYS)
    return name, paths


def _exists(text: str, root: Path) -> bool:
    try:
        return bool(text) and (Path(text).exists() or (is_run_name(text) and (root / text).exists()))
    except (OSError, ValueError):
        return False


def _check_name(name: str, letter: str, before: Sequence[SidePaths]) -> None:
    if not _NAME.fullmatch(name):
        message = f"{quoted(name)} is not a valid name: use letters, digits, dots, dashes and underscores"
        raise HmxError(message, "hmx compare ours=runs/one theirs=runs/another")
    if name in LETTERS and name != letter:
        raise HmxError(f"{name} is the letter of side {LETTERS.index(name) + 1}", f"give side {letter} another name")
    if name in {side.name for side in before}:
        raise HmxError(f"two sides have the name {name}", f"hmx compare {name}=... {name}-2=...")


def _free(name: str, letter: str, before: Sequence[SidePaths]) -> str:
    name = f"run-{name}" if name in LETTERS else name
    taken = {side.name for side in before}
    return next(n for n in (name, f"{name}-{letter}", *(f"{name}-{i}" for i in range(2, 99))) if n not in taken)


def _default_name(paths: Sequence[str]) -> str:
    text = paths[0].removeprefix(PRESET)
    path = Path(text)
    if path.name in ("", ".", "..") and not text.startswith(PRESET):
        path = path.resolve()
    own = path.parent.resolve().name if path.name in (METRICS, CONFIG) else path.name
    own = own.removesuffix(".jsonl").removesuffix(".toml") or text
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", own).strip("-._")[:40] or "side"
    return plain if len(paths) == 1 else f"{plain}+{len(paths) - 1}"


def _members(text: str, root: Path) -> list[MemberPath]:
    if text.startswith(PRESET):
        return [_preset(text.removeprefix(PRESET))]
    try:
        for path in [*([root / text] if is_run_name(text) else []), Path(os.path.expanduser(text))]:
            if path.is_dir():
                return _folder(path, text)
            if path.is_file():
                return [_file(path)]
            if path.exists():
                raise HmxError(f"cannot read {quoted(text)}: neither a file nor a folder", _WAYS, ExitCode.ARTEFACT)
    except (OSError, ValueError) as problem:
        why = "not a path" if isinstance(problem, ValueError) else words(problem)
        raise HmxError(f"cannot read {quoted(text)}: {why}", _WAYS, ExitCode.ARTEFACT) from None
    if text in presets.names():
        return [_preset(text)]
    near = nearest(text, [*list_runs(root), *presets.names()])
    hint = f"did you mean {near}? {_WAYS}" if near else _WAYS
    raise HmxError(f"no run, file or preset {quoted(text)}", hint, ExitCode.ARTEFACT)


def _preset(name: str) -> MemberPath:
    presets.text(name)
    return MemberPath("preset", Path(name), f"preset {name}")


def _file(path: Path) -> MemberPath:
    label = quoted(str(path))
    if path.suffix == ".toml":
        return MemberPath("config", path, label)
    if path.name == METRICS and _is_run(path.parent):
        return MemberPath("run", path.parent, quoted(str(path.parent)))
    if path.suffix in (".jsonl", ".json") or is_imported(path):
        return MemberPath("metrics", path, label)
    hint = "metrics files end in .jsonl or .csv or are TensorBoard event files, configurations end in .toml"
    raise HmxError(f"cannot compare {label}: neither a metrics file nor a configuration", hint, ExitCode.ARTEFACT)


def _folder(path: Path, text: str) -> list[MemberPath]:
    found = _below(path, _DEPTH)
    if not found:
        files = sorted(child for child in path.iterdir() if child.suffix in (".jsonl", ".csv") and child.is_file())
        found = [MemberPath("metrics", file, quoted(str(file))) for file in files]
    if not found:
        hint = f"a run has a {CONFIG}; a folder of seeds contains runs or *.jsonl files"
        raise HmxError(f"no runs in {quoted(text)}", hint, ExitCode.ARTEFACT)
    return found


def _below(path: Path, depth: int) -> list[MemberPath]:
    if _is_run(path):
        return [MemberPath("run", path, quoted(str(path)))]
    if (path / METRICS).is_file():
        return [MemberPath("metrics", path / METRICS, quoted(str(path / METRICS)))]
    if is_imported(path):
        return [MemberPath("metrics", path, quoted(str(path)))]
    found: list[MemberPath] = []
    for child in sorted(path.iterdir(), key=_in_order) if depth else ():
        if not child.name.startswith(".") and child.is_dir() and len(found) <= MAX_MEMBERS:
            found += _below(child, depth - 1)
    return found


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts seed2 before seed10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"([0-9]+)", path.name)]


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / META).is_file()
