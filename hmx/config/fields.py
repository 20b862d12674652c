"""The schema as a flat table: one row per dotted key, and ways to read and replace by key."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config.schema import Config


class Field(NamedTuple):
    """One option: `key` is `section.name`, `kind` the annotation as written in the schema."""

    key: str
    section: str
    name: str
    kind: str
    default: Any
    doc: str
    unit: str
    choices: tuple[Any, ...]

    @property
    def env_var(self) -> str:
        """The environment variable that sets this option."""
        return f"HMX_{self.section}_{self.name}".upper()


def _table() -> dict[str, Field]:
    default = Config()
    rows: dict[str, Field] = {}
    for section in dataclasses.fields(Config):
        values = getattr(default, section.name)
        for f in dataclasses.fields(values):
            key = f"{section.name}.{f.name}"
            meta = f.metadata
            value = getattr(values, f.name)
            rows[key] = Field(
                key, section.name, f.name, str(f.type), value, meta["doc"], meta["unit"], tuple(meta["choices"])
            )
    return rows


FIELDS: dict[str, Field] = _table()
SECTIONS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Config))


def get(cfg: Config, key: str) -> Any:
    """The value under a dotted key."""
    section, _, name = key.partition(".")
    return getattr(getattr(cfg, section), name)


def replace(cfg: Config, values: Mapping[str, Any]) -> Config:
    """The configuration with the given dotted keys set; the keys must exist."""
    by_section: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        by_section.setdefault(section, {})[name] = value
    changed = {s: dataclasses.replace(getattr(cfg, s), **names) for s, names in by_section.items()}
    return dataclasses.replace(cfg, **changed)
