"""The settings of a study as TOML, and the reading of a whole study."""

from __future__ import annotations

import dataclasses
import os
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from hmx.config.coerce import toml
from hmx.config.files import Unreadable, names_in, open_limited, read_plain, words
from hmx.config.schema import Config
from hmx.config.textfile import MAX_BYTES, quoted
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import NewerSchema, check_schema
from hmx.records.plain import JsonValue, plain_object, typed
from hmx.registry.load import load_stored
from hmx.study.check import check_confirmation, check_history, check_settings, check_trial
from hmx.study.records import (
    CONFIG_KEY,
    CONFIGS,
    CONFIRM,
    CONFIRMED,
    PROPOSAL,
    SCHEMA,
    SETTINGS,
    TRIALS,
    Confirmation,
    Parameter,
    Promotion,
    RungResult,
    Study,
    StudySettings,
    Trial,
    create,
    read_record,
)
from hmx.study.space import parse_space, text_of

_NUMBER = re.compile(r"[0-9]{4,7}")
_RUNG = re.compile(r"rung-([0-9]+)\.json")
_PROMOTION = re.compile(r"promote-([0-9]+)\.json")
R = TypeVar("R")


def settings_file(folder: Path, revision: int) -> Path:
    """Return the file of a revision of the settings."""
    return folder / f"study.{revision}.toml"


def create_settings(folder: Path, settings: StudySettings) -> bool:
    """Create the file of a revision; return False if there is one already.

    Raises:
        HmxError: it cannot be written (exit code 3).
    """
    return create(settings_file(folder, settings.revision), to_toml(settings))


def read_study(folder: str | Path, before: Study | None = None) -> Study:
    """Read a study as its files are now.

    Args:
        folder: study folder.
        before: the study as it was read earlier; files of it are not read again, since they never change.

    Raises:
        NewerSchema: a later hmx wrote one of its files (exit code 3).
        HmxError: it is not a study, or one of its files is damaged (3), or a configuration is not valid (2).
    """
    folder = Path(folder)
    revisions, names = _settings_and_configs(folder)
    if before is not None and len(before.history) == len(revisions):
        history, configs = before.history, before.configs
    else:
        history = tuple(read_settings(folder, revision) for revision in revisions)
        files = {name: folder / CONFIGS / f"{name}.toml" for name in names}
        configs = {name: _read_config(path) for name, path in files.items()}
        check_history(history, configs, folder)
    trials = read_trials(folder, before.by_number if before else None)
    for trial in trials:
        check_trial(trial, history)
    found = Study(
        folder=folder, history=history, configs=configs, trials=trials, confirmations=read_confirmations(folder)
    )
    for one in found.confirmations:
        check_confirmation(one, found.by_number)
    return found


def _read_config(path: Path) -> Config:
    try:
        os.close(open_limited(path, MAX_BYTES))
    except OSError as problem:
        hint = "the study needs the configuration that it was made with: restore it, or make another study"
        raise HmxError(f"cannot read {path}: {words(problem)}", hint, ExitCode.ARTEFACT) from None
    return load_stored(path).config


def read_settings(folder: Path, revision: int) -> StudySettings:
    """Read a revision of the settings.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it cannot be read, or is not what hmx wrote (3).
    """
    path = settings_file(folder, revision)
    hint = "settings are not edited: hmx study add STUDY changes a study, hmx study new NAME makes another"
    try:
        data = tomllib.loads(read_plain(path, MAX_BYTES).decode())
        check_schema(data.pop("schema", None), SCHEMA, str(path))
        space, configs = data.pop("space"), data.pop("configs", ())
        parameters = parse_space(f"{key}={text}" for key, text in space.items())
        settings = typed(StudySettings, {**data, "space": [], "revision": revision})
        settings = dataclasses.replace(settings, space=(*config_choice(configs), *parameters))
        check_settings(settings)
    except (NewerSchema, Unreadable):
        raise
    except (HmxError, OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as problem:
        why = problem.message if isinstance(problem, HmxError) else words(problem)
        raise HmxError(f"cannot read {path}: {quoted(' '.join(why.split()), 200)}", hint, ExitCode.ARTEFACT) from None
    return settings


def config_choice(names: Sequence[str]) -> tuple[Parameter, ...]:
    """Return the parameter that chooses between several configurations; none for one configuration."""
    return (Parameter(key=CONFIG_KEY, kind="choice", choices=tuple(names)),) if len(names) > 1 else ()


def to_toml(settings: StudySettings) -> str:
    """Write a settings file."""
    data = plain_object(settings)
    del data["revision"]  # is in the name of the file
    tables = {name: data.pop(name) for name in ("objective", "versions")}
    tables["space"] = {one.key: text_of(one) for one in settings.space if one.key != CONFIG_KEY}
    data["configs"] = [choice for one in settings.space if one.key == CONFIG_KEY for choice in one.choices]
    del data["space"]
    text = [f"schema = {SCHEMA}", *_lines(data)]
    for name, table in tables.items():
        assert isinstance(table, dict)
        text += ["", f"[{name}]", *_lines(table)]
    return "\n".join(text) + "\n"


def _lines(table: Mapping[str, JsonValue]) -> Iterator[str]:
    for key, value in table.items():
        if value is not None:
            yield f"{toml(key) if '.' in key else key} = {toml(value)}"


def read_trials(folder: Path, known: Mapping[int, Trial] | None = None) -> tuple[Trial, ...]:
    """Read all trials of a study; of trials in `known`, which were read before, only new files are read."""
    trials = []
    for number, place in numbered(folder / TRIALS):
        names = names_of(place)
        if PROPOSAL not in names:  # a process has made the folder, but not yet the trial
            continue
        trial = (known or {}).get(number) or read_record(Trial, place / PROPOSAL)
        if trial.number != number:
            hint = f"a copied trial counts twice; delete it: rm -r {place}"
            raise HmxError(f"{place / PROPOSAL} is of trial {trial.number}", hint, ExitCode.ARTEFACT)
        more = _series(RungResult, place, _RUNG, names, len(trial.rungs))
        promotions = _series(Promotion, place, _PROMOTION, names, len(trial.promotions) + 1)
        trials.append(dataclasses.replace(
            trial, folder=place, rungs=trial.rungs + more, promotions=trial.promotions + promotions
        ))  # fmt: skip
    return tuple(trials)


def read_confirmations(folder: Path) -> tuple[Confirmation, ...]:
    """Read all confirmations of a study."""
    confirmations = []
    for _, place in numbered(folder / CONFIRM):
        names = names_of(place)
        if CONFIRMED in names:
            chosen = read_record(Confirmation, place / CONFIRMED)
            results = _series(RungResult, place, _RUNG, names, 0)
            confirmations.append(dataclasses.replace(chosen, folder=place, rungs=results[:1]))
    return tuple(confirmations)


def folders_of(study: Path) -> list[Path]:
    """Return the folders that a study writes its own files to."""
    runs = [place for name in (TRIALS, CONFIRM) for _, place in numbered(study / name)]
    return [study, study / CONFIGS, *runs]


def _settings_and_configs(folder: Path) -> tuple[list[int], list[str]]:
    """Return the numbers of a study's settings files, rising, and the sorted names of its configurations."""
    names = names_of(folder.resolve())  # the study folder may be a link
    revisions = sorted(int(match[1]) for name in names if (match := SETTINGS.fullmatch(name)))
    configs = sorted(name.removesuffix(".toml") for name in names_of(folder / CONFIGS) if name.endswith(".toml"))
    if not revisions or not configs:
        reason = "it has no study.1.toml" if not revisions else f"it has no configuration in {CONFIGS}/"
        message = f"{folder} is not a study: {reason}" if folder.is_dir() else f"there is no study {folder}"
        raise HmxError(message, "hmx study new NAME makes one", ExitCode.ARTEFACT)
    return revisions, configs


def numbered(folder: Path) -> list[tuple[int, Path]]:
    """Return the folders whose names are numbers, in order; others are not of the study."""
    return sorted((int(name), folder / name) for name in names_of(folder) if _NUMBER.fullmatch(name) and int(name))


def names_of(folder: Path) -> set[str]:
    """Return the names in a study folder, which must not be a link; none if it is missing."""
    try:
        return set(names_in(folder))
    except FileNotFoundError:
        return set()
    except OSError as problem:
        hint = "check its permissions; a link inside a study is not followed: put the folder itself there"
        raise HmxError(f"cannot read {folder}: {words(problem)}", hint, ExitCode.ARTEFACT) from None


def _series(kind: type[R], folder: Path, pattern: re.Pattern[str], names: set[str], first: int) -> tuple[R, ...]:
    """Read numbered records from number `first` on, without a gap."""
    records: list[R] = []
    known = {int(match[1]): name for name in names if (match := pattern.fullmatch(name))}
    while first + len(records) in known:
        records.append(read_record(kind, folder / known[first + len(records)]))
    return tuple(records)
