"""Load a configuration from its layers, and record the origin of each value.

Later layers win: defaults, preset, file, `HMX_*` environment variables, `--set`, options.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from hmx.config import codec, presets
from hmx.config.coerce import BadValue, check_range, coerce, fitting, show
from hmx.config.fields import FIELDS, SECTIONS, fields_of, replace, values_of
from hmx.config.files import open_limited, words
from hmx.config.problem import UNKNOWN, VALUES, Problem, error, fix, split_set
from hmx.config.schema import Config
from hmx.config.textfile import MAX_BYTES, read_text
from hmx.errors import HmxError, nearest, nearest_file
from hmx.registry import user_code
from hmx.registry.algorithms import AlgorithmEntry, find_algorithm
from hmx.registry.check import error_of, problems
from hmx.registry.environments import exists, find_environment, known_sizes
from hmx.registry.sizes import Sizes
from hmx.registry.small_tasks import is_small, small_task_sizes

DEFAULT = "default"
SMALL_TASK = "default for small tasks"
ENV_SECTIONS = ("env", "reward")
RUN_FILE = "run.toml"
_CHECK = "check the path and its permissions"


class Loaded(NamedTuple):
    """A task: a configuration, the origin of every dotted key, and the entry of its algorithm.

    An origin is `default`, `preset quick`, `run.toml:12`, `HMX_ALGO_GAMMA`, `--set`, an option such as `--num-envs`,
    `env.id` for a value that the environment fixes, or `default for small tasks`.
    """

    config: Config
    origins: Mapping[str, str] = MappingProxyType({})
    sizes: Sizes | None = None  # of the environment, if the configuration was checked with them; None: not checked yet

    @property
    def algorithm(self) -> AlgorithmEntry:
        """Return the entry of its algorithm."""
        return find_algorithm(self.config.algo.name)

    @property
    def simulations(self) -> int | None:
        """Return the simulations per decision where it plays by search."""
        return self.algorithm.simulations(self.config)

    @property
    def values(self) -> dict[str, Any]:
        """Return every value by dotted key."""
        return values_of(self.config)

    def changed(self, values: Mapping[str, object]) -> Loaded:
        """Return the task with other values by dotted key."""
        return self._replace(config=replace(self.config, values))


def bind(task: Loaded) -> Loaded:
    """Return the task of a new run, with the SHA-256 of every file of the user as it is now."""
    return task.changed(user_code.hashes_of(task.values))


class _Layers:
    """The values so far, their origins, and every problem found."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.origins = dict.fromkeys(FIELDS, DEFAULT)
        self.problems: list[Problem] = []

    def add(self, raw: Mapping[str, Any], origins: Mapping[str, str], text: bool) -> None:
        values, problems = codec.resolve(raw, origins, text)
        for key in user_code.HASHES.keys() & values if text else ():
            user_code.allow(values[key], key)  # typed by the user, not read from a file
        self.values.update(values)
        self.origins.update({key: origins[key] for key in values})
        self.problems += problems


def load(
    preset: str | None = None,
    file: str | Path | None = None,
    environ: Mapping[str, str] | None = None,
    sets: Iterable[str] = (),
    flags: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    check: bool | Collection[str] = True,
) -> Loaded:
    """Combine the layers of a new configuration and check the result.

    Args:
        preset: name of a preset, see `hmx.config.presets`; None or `default` for the defaults of the schema.
        file: a configuration file, or a run folder, which contains a `run.toml`. The name of that run is left out,
            since it is in use.
        environ: the environment variables; None for those of the process.
        sets: texts of the form `section.key=value`.
        flags: values of command-line options by dotted key; None for options that were not given.
        values: values by dotted key that a Python program passes, which win over all others.
        check: whether to look for all problems as well, if the sizes of the environment are known without building it;
            or the sections whose own problems to look for. Types and names are always checked.

    Returns:
        The configuration as given, see `bind`.

    Raises:
        HmxError: lists every problem of every layer, one per line; or the file cannot be read.
    """
    layers = _Layers()
    if preset is not None:
        raw = presets.values(preset)
        layers.add(raw, dict.fromkeys(raw, f"preset {preset}"), text=False)
    if file is not None:
        _add_file(layers, Path(file), of_new_run=True)
    _add_environ(layers, os.environ if environ is None else environ)
    _add_options(layers, sets, flags or {})
    layers.add(values or {}, dict.fromkeys(values or {}, VALUES), text=True)
    cfg = _with_defaults(layers, preset is not None or file is not None)
    sizes = known_sizes(cfg.env) if check else None
    unfit = layers.problems
    if check and (find_environment(cfg.env.id) or unfit or not exists(cfg.env.id)):
        bad = {key for problem in unfit for key in problem.keys}
        broken = [problem for problem in problems(cfg, sizes) if not bad.intersection(problem.keys)]
        if check is not True:
            own = [p for p in broken if all(key.partition(".")[0] in check for key in p.keys)]
            broken = [p for p in own if p.keys != ("env.id",)]  # building the environment reports the missing package
        unfit = unfit + broken
    if unfit:
        raise error_of(unfit, values_of(cfg), layers.origins)
    return Loaded(cfg, layers.origins, sizes)


def load_stored(file: str | Path, sets: Iterable[str] = (), flags: Mapping[str, Any] | None = None) -> Loaded:
    """Read a configuration as a run, a checkpoint, a study or a gate keeps it, with changes.

    Environment variables do not count, and only types and names are checked; arguments and errors as of `load`.
    """
    layers = _Layers()
    _add_file(layers, Path(file), of_new_run=False)
    _add_options(layers, sets, flags or {})
    cfg = _with_defaults(layers, named=True)
    if layers.problems:
        raise error_of(layers.problems, values_of(cfg), layers.origins)
    return Loaded(cfg, layers.origins)


def _add_options(layers: _Layers, sets: Iterable[str], flags: Mapping[str, Any]) -> None:
    for found in map(split_set, sets):
        if isinstance(found, Problem):
            layers.problems.append(found)
        else:
            layers.add(found, dict.fromkeys(found, "--set"), text=True)
    typed = {key: value for key, value in flags.items() if value is not None}
    layers.add(typed, {key: FIELDS[key].flag or "--set" for key in typed}, text=True)


def _with_defaults(layers: _Layers, named: bool) -> Config:
    """Return the configuration of all layers, with defaults that follow from the environment and from other values.

    `named` says whether it begins with a preset or a file, which have sizes that small tasks would replace.
    """
    cfg = replace(Config(), layers.values)
    entry = find_environment(cfg.env.id)
    if entry and entry.num_agents > 1 and layers.origins["env.num_agents"] == DEFAULT:
        layers.origins["env.num_agents"] = "env.id"  # which fixes it
        cfg = replace(cfg, {"env.num_agents": entry.num_agents})
    if cfg.env.num_workers and cfg.env.envs_per_worker and layers.origins["env.num_envs"] == DEFAULT:
        layers.origins["env.num_envs"] = "env.num_workers x env.envs_per_worker"
        cfg = replace(cfg, {"env.num_envs": cfg.env.num_workers * cfg.env.envs_per_worker})
    if not named and is_small(cfg.env.id):
        fitting = {**small_task_sizes(cfg.run.total_steps, find_algorithm(cfg.algo.name).replays)}
        fitting |= entry.defaults if entry else {}
        chosen = {key: size for key, size in fitting.items() if layers.origins[key] == DEFAULT}
        layers.origins.update(dict.fromkeys(chosen, SMALL_TASK))
        cfg = replace(cfg, chosen)
    return cfg


def read_file(file: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """Read a configuration file, or the `run.toml` of a run folder, see `hmx.config.codec.parse_toml`.

    Raises:
        HmxError: the file does not exist, cannot be read, is not TOML, or has a newer schema.
    """
    path = file
    try:
        if file.is_dir():
            path = file / RUN_FILE
            os.close(open_limited(path, MAX_BYTES))  # which may come from a stranger, while the user may name a pipe
        text = read_text(path)
    except FileNotFoundError:
        near = nearest_file(path) if path.suffix == ".toml" else None
        hint = f"did you mean {near}?" if near else "give a TOML file, or the folder of a run"
        raise HmxError(f"no such configuration file: {path}", hint) from None
    except UnicodeDecodeError:
        raise HmxError(
            f"{path} is not a text file in UTF-8", "give a TOML file, such as the run.toml of a run"
        ) from None
    except OSError as problem:
        raise HmxError(f"cannot read {path}: {words(problem)}", _CHECK) from problem
    except ValueError:
        raise HmxError(f"{str(path)!r} is not a valid path", _CHECK) from None
    return codec.parse_toml(text, str(path))


def _add_file(layers: _Layers, file: Path, of_new_run: bool) -> None:
    values, lines = read_file(file)
    path = file / RUN_FILE if file.is_dir() else file
    if of_new_run:
        values.pop("env.sha256", None)  # of the other run's environment
        if path.name == RUN_FILE and values.get("run.name") == path.resolve().parent.name:
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
        from difflib import SequenceMatcher  # slow to import

        near = nearest(name, by_variable)
        # Other variables may start with HMX_: only names that resemble an option are a problem.
        if name.split("_")[1].lower() in SECTIONS or SequenceMatcher(None, name, near or "").ratio() > 0.85:
            works = fix(near, fitting(FIELDS[by_variable[near]], text)) if near else ()
            layers.problems.append(Problem(UNKNOWN, (name,), "no option has this name", works, text, "environment"))


Request = TypeVar("Request")


def read_request(kind: type[Request], flags: Mapping[str, Any]) -> Request:
    """Build the request of a command from the typed options; missing ones take their defaults.

    Args:
        kind: a dataclass whose fields are made by `hmx.config.option.opt`.
        flags: text or value by option, such as `--rollouts`; None for options that were not given.

    Raises:
        HmxError: lists every problem, one per line.
    """
    fields, values, problems = fields_of(kind), {}, []
    for flag, given in flags.items():
        if given is None:
            continue
        try:
            value = coerce(fields[flag], given, text=True)
            if value is not None:
                check_range(fields[flag], value)
            values[fields[flag].name] = value
        except BadValue as bad:
            problems.append(Problem("value", (flag,), bad.message, fix(flag, bad.works), show(given) or '""'))
    if problems:
        raise error(problems)
    return kind(**values)
