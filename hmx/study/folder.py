"""The settings of a study as TOML, and the reading of a whole study."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from hmx.config.textfile import read_text
from hmx.errors import ExitCode, HmxError
from hmx.records.artefact import check_schema
from hmx.records.plain import JsonValue, plain_object, typed
from hmx.registry.load import load
from hmx.study.records import (
    CONFIG_KEY,
    CONFIGS,
    SCHEMA,
    Parameter,
    Study,
    StudySettings,
    create,
    list_study,
    read_confirmations,
    read_trials,
)
from hmx.study.space import parse_space, text_of


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
        folder: of the study.
        before: the study as it was read earlier; files of it are not read again, since they never change.

    Raises:
        NewerSchema: a later hmx wrote one of its files (exit code 3).
        HmxError: it is not a study, or one of its files is damaged (3), or a configuration is not valid (2).
    """
    folder = Path(folder)
    listing = list_study(folder)
    if before is not None and len(before.history) == len(listing.revisions):
        history, configs = before.history, before.configs
    else:
        history = tuple(read_settings(folder, revision) for revision in listing.revisions)
        files = {name: folder / CONFIGS / f"{name}.toml" for name in listing.configs}
        configs = {name: load(file=path, environ={}, check=False).config for name, path in files.items()}
    return Study(
        folder=folder,
        history=history,
        configs=configs,
        trials=read_trials(folder, {trial.number: trial for trial in before.trials} if before else None),
        confirmations=read_confirmations(folder),
    )


def read_settings(folder: Path, revision: int) -> StudySettings:
    """Read a revision of the settings.

    Raises:
        NewerSchema: a later hmx wrote it (exit code 3).
        HmxError: it cannot be read, or is not what hmx wrote (3).
    """
    path = settings_file(folder, revision)
    hint = "settings are not edited: hmx study add changes a study, hmx study new makes another"
    try:
        data = tomllib.loads(read_text(path))
        check_schema(data.pop("schema", None), SCHEMA, str(path))
        space, configs = data.pop("space"), data.pop("configs", ())
        parameters = parse_space(f"{key}={text}" for key, text in space.items())
        settings = typed(StudySettings, {**data, "space": [], "revision": revision})
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as problem:
        why = " ".join(str(problem).split())[:200]
        raise HmxError(f"cannot read {path}: {why}", hint, ExitCode.ARTEFACT) from None
    return dataclasses.replace(settings, space=(*config_choice(configs), *parameters))


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
            yield f"{json.dumps(key) if '.' in key else key} = {json.dumps(value, ensure_ascii=False)}"
