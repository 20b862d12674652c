"""The sides of a comparison, and how texts on the command line name their members."""

from __future__ import annotations

import os
import re
import shlex
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hmx.config import presets
from hmx.config.files import words
from hmx.config.names import is_run_name
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, nearest
from hmx.jobs.evaluation import RANDOM, PolicyStats
from hmx.records.layout import list_runs
from hmx.records.logs import is_imported
from hmx.records.meta import Meta
from hmx.records.paths import CONFIG, META, METRICS
from hmx.registry.algorithms import Aspect
from hmx.registry.derive import Derived
from hmx.reports.compare.findings import Kind
from hmx.reports.curves import AgentMetrics

LETTERS = string.ascii_uppercase
MAX_MEMBERS = 1000
PRESET = "preset:"

_DEPTH = 3  # folders below the given one
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
_WAYS = "a side is a run, a folder of runs, a metrics file, a configuration or a preset"


@dataclass(frozen=True, kw_only=True)
class Member:
    """A run, metrics file or configuration of a side; all but its place is known once it has been read."""

    kind: Kind
    path: Path  # the run folder, the file, or the name of a preset
    label: str
    config: Config | None = None
    values: Mapping[str, str] = field(default_factory=dict)  # texts of keys, derived sizes, and effects of aspects
    sizes: Derived | None = None  # None without a configuration that can run
    aspects: tuple[Aspect, ...] = ()
    meta: Meta | None = None
    state: str = ""
    seeds: tuple[AgentMetrics, ...] = ()
    evaluation: tuple[PolicyStats, ...] = ()
    startup: float | None = None  # seconds from creating the folder to the first update
    warnings: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        """The environment of its configuration; "" without one."""
        return self.config.env.id if self.config is not None else ""

    @property
    def trained(self) -> tuple[PolicyStats, ...]:
        """The evaluation of the trained agents: PPO by sampling, Q-learning greedily."""
        return tuple(row for row in self.evaluation if row.policy != RANDOM)


@dataclass(frozen=True)
class Side:
    """All members of a side; `letter` is its place, A for the first."""

    letter: str
    name: str
    members: tuple[Member, ...]

    @property
    def seeds(self) -> tuple[AgentMetrics, ...]:
        """All agents of all runs, with those that repeat others."""
        return tuple(seed for member in self.members for seed in member.seeds)

    @property
    def trained_seeds(self) -> tuple[AgentMetrics, ...]:
        """The agents that have records, each once."""
        return tuple(seed for seed in self.seeds if len(seed.steps) and not seed.repeats)

    @property
    def configs(self) -> tuple[Config, ...]:
        """All known configurations."""
        return tuple(member.config for member in self.members if member.config is not None)


def choose(texts: Sequence[str], root: Path) -> tuple[Side, ...]:
    """Resolve texts of the form `[NAME=]PATH[,PATH...]` to sides whose members have not been read.

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
    sides: list[Side] = []
    for letter, text in zip(LETTERS, texts, strict=False):
        name, paths = _split(text, root)
        members = tuple(member for path in paths for member in _members(path, root))
        if len(members) > MAX_MEMBERS:
            raise HmxError(f"{quoted(text)} has more than {MAX_MEMBERS:,} runs", "give a folder with fewer runs")
        if name:
            _check_name(name, letter, sides)
        sides.append(Side(letter, name or _free(_default_name(paths), letter, sides), members))
    return tuple(sides)


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


def _check_name(name: str, letter: str, before: Sequence[Side]) -> None:
    if not _NAME.fullmatch(name):
        message = f"{quoted(name)} is not a valid name: use letters, digits, dots, dashes and underscores"
        raise HmxError(message, "hmx compare ours=runs/one theirs=runs/another")
    if name in LETTERS and name != letter:
        raise HmxError(f"{name} is the letter of side {LETTERS.index(name) + 1}", f"give side {letter} another name")
    if name in {side.name for side in before}:
        raise HmxError(f"two sides have the name {name}", f"hmx compare {name}=... {name}-2=...")


def _free(name: str, letter: str, before: Sequence[Side]) -> str:
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


def _members(text: str, root: Path) -> list[Member]:
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


def _preset(name: str) -> Member:
    presets.text(name)
    return Member(kind="preset", path=Path(name), label=f"preset {name}")


def _file(path: Path) -> Member:
    label = quoted(str(path))
    if path.suffix == ".toml":
        return Member(kind="config", path=path, label=label)
    if path.name == METRICS and _is_run(path.parent):
        return Member(kind="run", path=path.parent, label=quoted(str(path.parent)))
    if path.suffix in (".jsonl", ".json") or is_imported(path):
        return Member(kind="metrics", path=path, label=label)
    hint = "metrics files end in .jsonl or .csv or are TensorBoard event files, configurations end in .toml"
    raise HmxError(f"cannot compare {label}: neither a metrics file nor a configuration", hint, ExitCode.ARTEFACT)


def _folder(path: Path, text: str) -> list[Member]:
    members = _below(path, _DEPTH)
    if not members:
        files = sorted(child for child in path.iterdir() if child.suffix in (".jsonl", ".csv") and child.is_file())
        members = [Member(kind="metrics", path=file, label=quoted(str(file))) for file in files]
    if not members:
        hint = f"a run has a {CONFIG}; a folder of seeds contains runs or *.jsonl files"
        raise HmxError(f"no runs in {quoted(text)}", hint, ExitCode.ARTEFACT)
    return members


def _below(path: Path, depth: int) -> list[Member]:
    if _is_run(path):
        return [Member(kind="run", path=path, label=quoted(str(path)))]
    if (path / METRICS).is_file():
        return [Member(kind="metrics", path=path / METRICS, label=quoted(str(path / METRICS)))]
    if is_imported(path):
        return [Member(kind="metrics", path=path, label=quoted(str(path)))]
    members: list[Member] = []
    for child in sorted(path.iterdir(), key=_in_order) if depth else ():
        if not child.name.startswith(".") and child.is_dir() and len(members) <= MAX_MEMBERS:
            members += _below(child, depth - 1)
    return members


def _in_order(path: Path) -> list[tuple[int, str]]:
    """Return a key that sorts seed2 before seed10."""
    return [(int(part) if part.isdecimal() else -1, part) for part in re.split(r"([0-9]+)", path.name)]


def _is_run(path: Path) -> bool:
    return (path / CONFIG).is_file() or (path / META).is_file()
