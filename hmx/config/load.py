"""The configuration of a run from its layers, remembering where each value came from.

Later layers win: defaults, preset, file, `HMX_*` environment variables, `--set`, flags.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hmx.config import codec, derive, presets
from hmx.config.autoscale import auto_scale
from hmx.config.coerce import show
from hmx.config.env_facts import own_agents
from hmx.config.fields import FIELDS, SECTIONS, get, replace
from hmx.config.names import nearest
from hmx.config.problem import UNKNOWN, Problem, error
from hmx.config.schema import Config
from hmx.config.textfile import quoted, read_text
from hmx.errors import HmxError

DEFAULT = "default"
RUN_FILE = "run.toml"
_CHECK = "check the path and its permissions"


class Loaded(NamedTuple):
    """A configuration and, for every dotted key, where its value came from.

    Origins read `default`, `preset quick`, `run.toml:12`, `HMX_ALGO_GAMMA`, `--set` or the flag, as `--num-envs`; that
    of a value which the environment fixes reads `env.id`.
    """

    config: Config
    origins: dict[str, str]


class Flag(NamedTuple):
    """A value given by an option of the command line whose name is not that of its key."""

    value: Any
    option: str


class _Layers:
    """Values so far, their origins, and every problem met."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins = dict.fromkeys(FIELDS, DEFAULT)
        self.problems: list[Problem] = []

    def add(self, raw: Mapping[str, Any], origins: Mapping[str, str], text: bool) -> None:
        values, problems = codec.resolve(raw, origins, text)
        self.values.update(values)
        self.origins.update({key: origins[key] for key in values})
        self.problems += problems


def load(
    preset: str | None = None,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    flags: Mapping[str, Any] | None = None,
    check: bool = True,
    new_run: bool = False,
) -> Loaded:
    """Puts the layers together and judges the result.

    Args:
        preset: name of a preset, see `hmx.config.presets`; None or `default` is the schema's own defaults.
        file: a configuration file, or a run folder that holds a `run.toml`.
        environ: the environment; None reads the process's own.
        sets: texts of the form `section.key=value`.
        flags: value (or `Flag`) by dotted key; None values count as not given.
        check: whether to apply the rules of `derive.problems` too; those of types and names always apply.
        new_run: whether the configuration is for a run yet to be made: where `file` is the run.toml of a run, the name
            of that run is then left out, since it is taken.

    Returns:
        The configuration as given: `algo.auto_scale` is judged by its outcome but not applied.

    Raises:
        HmxError: every problem of every layer at once, one line each; or a file that cannot be read.
    """
    layers = _Layers()
    if preset is not None:
        raw = presets.values(preset)
        layers.add(raw, dict.fromkeys(raw, f"preset {preset}"), text=False)
    if file is not None:
        _add_file(layers, Path(file), new_run)
    _add_environ(layers, os.environ if environ is None else environ)
    _add_sets(layers, sets)
    _add_flags(layers, flags or {})
    cfg = _with_own_agents(replace(Config(), layers.values), layers)
    problems = layers.problems
    if check:
        scaled = auto_scale(cfg, layers.origins)[0] if cfg.algo.auto_scale else cfg
        bad = {key for p in problems for key in p.keys}
        problems = problems + [p for p in derive.problems(scaled) if not bad.intersection(p.keys)]
    if problems:
        raise error(problems, {key: show(get(cfg, key)) for key in FIELDS}, layers.origins)
    return Loaded(cfg, layers.origins)


def _with_own_agents(cfg: Config, layers: _Layers) -> Config:
    """The number of agents where the environment fixes it and nobody has said another."""
    fixed = own_agents(cfg.env.id)
    if not fixed or layers.origins["env.num_agents"] != DEFAULT:
        return cfg
    layers.origins["env.num_agents"] = "env.id"
    return replace(cfg, {"env.num_agents": fixed})


def read_file(file: Path) -> codec.Parsed:
    """The keys of a configuration file, or of the `run.toml` of a run folder.

    Raises:
        HmxError: no such file, not readable, not TOML, or of a newer schema.
    """
    path = file
    try:
        path = file / RUN_FILE if file.is_dir() else file
        text = read_text(path)
    except FileNotFoundError:
        raise HmxError(f"there is no configuration file {path}", _files_nearby(path)) from None
    except UnicodeDecodeError:
        raise HmxError(f"{path} is not a text file in UTF-8", "give a TOML file such as a run's run.toml") from None
    except OSError as problem:
        raise HmxError(f"cannot read {path}: {(problem.strerror or str(problem)).lower()}", _CHECK) from None
    except ValueError:
        raise HmxError(f"{str(path)!r} cannot be the path of a file", _CHECK) from None
    return codec.parse_toml(text, str(path))


def _files_nearby(path: Path) -> str:
    names = sorted(p.name for p in path.parent.glob("*.toml")) if path.parent.is_dir() else []
    near = nearest(path.name, names)
    return f"did you mean {path.parent / near}?" if near else "every run folder holds a run.toml that can be given here"


def _add_file(layers: _Layers, file: Path, new_run: bool) -> None:
    values, lines = read_file(file)
    path = file / RUN_FILE if file.is_dir() else file
    if new_run and path.name == RUN_FILE and values.get("run.name") == path.resolve().parent.name:
        del values["run.name"]
    origins = {k: f"{path.name}:{lines[k]}" if k in lines else path.name for k in values}
    layers.add(values, origins, text=False)


def _add_environ(layers: _Layers, environ: Mapping[str, str]) -> None:
    by_variable = {field.env_var: key for key, field in FIELDS.items()}
    given = {name: text for name, text in environ.items() if name.startswith("HMX_")}
    known = {by_variable[name]: text for name, text in given.items() if name in by_variable}
    layers.add(known, {key: FIELDS[key].env_var for key in known}, text=True)
    for name, text in given.items():
        if name in by_variable:
            continue
        near = nearest(name, by_variable)
        # Other variables may well begin with HMX_: only what looks like a slip of a known one is a problem.
        if name.split("_")[1].lower() in SECTIONS or (near is not None and _close(name, near)):
            works = f"{near}={text}" if near else ""
            layers.problems.append(Problem(UNKNOWN, (name,), "no option has this name", works, text, "environment"))


def _close(a: str, b: str) -> bool:
    from difflib import SequenceMatcher

    return SequenceMatcher(None, a, b).ratio() > 0.85


def _add_sets(layers: _Layers, sets: Iterable[str]) -> None:
    for text in sets:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            near = nearest(key, FIELDS) or "algo.learning_rate"
            works = f"{near}={show(FIELDS[near].default)}"
            given = quoted(text) or '""'
            layers.problems.append(Problem("syntax", (), f"--set {given}: must read section.key=value", works))
            continue
        layers.add({key: value}, {key: "--set"}, text=True)


def _add_flags(layers: _Layers, flags: Mapping[str, Any]) -> None:
    for key, given in flags.items():
        name = key.rpartition(".")[2].replace("_", "-")
        value, option = given if isinstance(given, Flag) else (given, f"--{name}")
        if value is not None:
            layers.add({key: value}, {key: option}, text=True)
