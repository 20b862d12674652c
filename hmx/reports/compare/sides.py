"""What `hmx compare` is asked to compare: from words of the command line to runs, metrics files and configurations."""

from __future__ import annotations

import dataclasses
import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from hmx.config import presets
from hmx.config.names import is_run_name, nearest
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import words
from hmx.records.layout import CONFIG, META, METRICS, list_runs

LETTERS = string.ascii_uppercase
MAX_MEMBERS = 1000
PRESET = "preset:"

_DEPTH = 3  # folders below the one that was given
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_WAYS = "a side is a run, a folder of runs, a metrics file, a configuration or a preset"

Kind = Literal["run", "metrics", "config", "preset"]


@dataclasses.dataclass(frozen=True)
class Member:
    """One thing that a side is made of; `path` is the run folder or the file, or the name of a preset."""

    kind: Kind
    path: Path
    label: str


@dataclasses.dataclass(frozen=True)
class Chosen:
    """A side as it was asked for: `letter` is its place, A for the first."""

    letter: str
    name: str
    members: tuple[Member, ...]


def choose(texts: Sequence[str], root: str | Path) -> tuple[Chosen, ...]:
    """The sides that are meant by texts of the form `[NAME=]PATH[,PATH...]`.

    A path that exists as a whole is never split. A path may be a run (by its name below `root`, its folder or its
    metrics.jsonl), a folder whose subfolders are runs or whose files are `*.jsonl`, a metrics file, a TOML file, or the
    name of a preset, which `preset:` in front makes certain.

    Raises:
        HmxError: fewer than two sides, too many, names that clash (exit code 2), or nothing there (3).
    """
    if len(texts) < 2:
        given = quoted(texts[0]) if texts else "runs/one"
        raise HmxError("a comparison takes at least two sides", f"hmx compare {given or 'runs/one'} runs/another")
    if len(texts) > len(LETTERS):
        raise HmxError(f"{len(texts)} sides: at most {len(LETTERS)} can be compared", "hmx compare A=runs/one,runs/two")
    found: list[Chosen] = []
    for letter, text in zip(LETTERS, texts, strict=False):
        name, paths = _split(text, Path(root))
        members = tuple(member for path in paths for member in _members(path, Path(root)))
        if len(members) > MAX_MEMBERS:
            raise HmxError(f"{quoted(text)} holds more than {MAX_MEMBERS:,} runs", "name the folder of fewer")
        if name:
            _check_name(name, letter, found)
        found.append(Chosen(letter, name or _free(_default_name(paths), letter, found), members))
    return tuple(found)


def _split(text: str, root: Path) -> tuple[str, list[str]]:
    """The name of a side, empty where none was given, and its paths."""
    if _there(text, root):
        return "", [text]
    name, equals, rest = text.partition("=")
    if not equals:
        name, rest = "", text
    elif not name:
        raise HmxError(f"{quoted(text)}: no name before the equals sign", f"hmx compare ours={quoted(rest)} ...")
    paths = [rest] if _there(rest, root) else rest.split(",")
    if not all(paths):
        raise HmxError(f"{quoted(text) or repr(text)} names an empty path", _WAYS)
    return name, paths


def _there(text: str, root: Path) -> bool:
    try:
        return bool(text) and (Path(text).exists() or (is_run_name(text) and (root / text).exists()))
    except (OSError, ValueError):
        return False


def _check_name(name: str, letter: str, before: Sequence[Chosen]) -> None:
    if not _NAME.fullmatch(name):
        words_ = f"{quoted(name)} cannot be the name of a side: letters, digits, dots, dashes and underscores can"
        raise HmxError(words_, "hmx compare ours=runs/one theirs=runs/another")
    if name in LETTERS and name != letter:
        raise HmxError(f"{name} stands for side {LETTERS.index(name) + 1}", f"give side {letter} another name")
    if name in {side.name for side in before}:
        raise HmxError(f"two sides are called {name}", f"hmx compare {name}=... {name}-2=...")


def _free(name: str, letter: str, before: Sequence[Chosen]) -> str:
    if name in LETTERS:
        name = f"run-{name}"
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


def _members(text: str, root: Path) -> list[Member]:
    if text.startswith(PRESET):
        return [_preset(text.removeprefix(PRESET))]
    try:
        for path in [*([root / text] if is_run_name(text) else []), _home(text)]:
            if path.is_dir():
                return _folder(path, text)
            if path.is_file():
                return [_file(path)]
            if path.exists():
                raise HmxError(f"{quoted(text)} is neither a file nor a folder", _WAYS, ExitCode.ARTEFACT)
    except (OSError, ValueError) as problem:
        why = "not a path" if isinstance(problem, ValueError) else words(problem)
        raise HmxError(f"cannot read {quoted(text)}: {why}", _WAYS, ExitCode.ARTEFACT) from None
    if text in presets.names():
        return [_preset(text)]
    near = nearest(text, [*list_runs(root), *presets.names()])
    hint = f"did you mean {near}? " if near else ""
    raise HmxError(f"there is no run, file or preset {quoted(text)}", hint + _WAYS, ExitCode.ARTEFACT)


def _home(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # ~ of somebody whom this machine does not know
        return Path(text)


def _preset(name: str) -> Member:
    presets.text(name)
    return Member("preset", Path(name), f"preset {name}")


def _file(path: Path) -> Member:
    if path.suffix == ".toml":
        return Member("config", path, quoted(str(path)))
    if path.name == METRICS and _is_run(path.parent):
        return Member("run", path.parent, quoted(str(path.parent)))
    if path.suffix in (".jsonl", ".json"):
        return Member("metrics", path, quoted(str(path)))
    hint = "metrics files end in .jsonl, configurations in .toml"
    raise HmxError(f"{quoted(str(path))} is neither a metrics file nor a configuration", hint, ExitCode.ARTEFACT)


def _folder(path: Path, text: str) -> list[Member]:
    found = _below(path, _DEPTH)
    if not found:
        files = sorted(child for child in path.iterdir() if child.suffix == ".jsonl" and child.is_file())
        found = [Member("metrics", file, quoted(str(file))) for file in files]
    if not found:
        hint = f"a run has a {CONFIG}, a folder of seeds has runs or *.jsonl files in it"
        raise HmxError(f"there are no runs in {quoted(text)}", hint, ExitCode.ARTEFACT)
    return found


def _below(path: Path, depth: int) -> list[Member]:
    if _is_run(path):
        return [Member("run", path, quoted(str(path)))]
    if (path / METRICS).is_file():
        return [Member("metrics", path / METRICS, quoted(str(path / METRICS)))]
    if not depth:
        return []
    found: list[Member] = []
    for child in sorted(
        path.iterdir(), key=lambda p: [int(t) if t.isdigit() else t for t in re.split(r"([0-9]+)", p.name)]
    ):
        if not child.name.startswith(".") and child.is_dir() and len(found) <= MAX_MEMBERS:
            found += _below(child, depth - 1)
    return found


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / META).is_file()
