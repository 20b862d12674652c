"""The schema as a flat table with one row per dotted key, and ways to read and replace values by key."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hmx.config.option import Option
from hmx.config.schema import ENTRIES, Config


@dataclasses.dataclass(kw_only=True)
class Field(Option):
    """One option; `kind` is the type of its values, such as `int` or `tuple[int, ...]`, that of its choices if any."""

    key: str  # `section.name`, or for the option of one command its flag
    section: str
    name: str
    kind: str
    optional: bool  # whether None is a value
    choices: tuple[Any, ...]

    @property
    def repeatable(self) -> bool:
        """Whether the command line takes it several times."""
        return self.kind.startswith("tuple[") and self.kind != "tuple[int, ...]"

    @property
    def may_change(self) -> bool:
        """Whether a run that has a state may get another value."""
        return not self.shape and not self.fixed

    def read_by(self, algorithm: str) -> bool:
        """Return whether an algorithm reads this option; own algorithms read only those that all read."""
        return not self.applies or algorithm in self.applies

    def applies_to(self, algorithm: str, env_id: str) -> bool:
        """Return whether an algorithm and an environment read this option."""
        return self.read_by(algorithm) and self.of_env(env_id)

    def of_env(self, env_id: str) -> bool:
        """Return whether an environment reads this option."""
        return not self.envs or env_id in self.envs

    @property
    def described(self) -> str:
        """Its meaning, with its unit."""
        return f"{self.doc} [{self.unit}]" if self.unit else self.doc

    @property
    def env_var(self) -> str:
        """The environment variable that sets this option."""
        return f"HMX_{self.section}_{self.name}".upper()

    @property
    def values(self) -> tuple[str, ...]:
        """The values that completion offers and help lists."""
        return ("true", "false") if self.kind == "bool" else tuple(str(choice) for choice in self.choices or self.known)


def fields_of(kind: type[Any], section: str = "", shared: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Field]:
    """Return the options that a dataclass declares with `opt`, by key.

    Without a `section`, for the request of a command, keys are flags. `shared` is metadata of the table, for options
    that have none of their own.
    """
    hints = typing.get_type_hints(kind)
    rows = {}
    for f in dataclasses.fields(kind):
        if not f.metadata:  # `my`, and sha256 of EnvConfig, which are keys only where they are set: see `own_values`
            continue
        meta = {name: value or shared.get(name, value) for name, value in f.metadata.items()}
        meta["envs"] = tuple(entry.id for entry in ENTRIES if f.name in entry.options.get(kind.__name__, ()))
        if not section:
            meta["flag"] = meta["flag"] or f"--{f.name.replace('_', '-')}"
        key = f"{section}.{f.name}" if section else meta["flag"]
        rows[key] = Field(key=key, section=section, name=f.name, default=f.default, **_kind(hints[f.name]), **meta)
    return rows


def own_fields(kind: type[Any], section: str) -> dict[str, Field]:
    """Return the options that a user's dataclass declares, by name; a field may be plain or made with `opt`.

    Raises:
        ValueError: a field has no default, or its type is not bool, int, float, str or a `Literal` of these.
    """
    hints, rows = typing.get_type_hints(kind), {}
    for f in dataclasses.fields(kind):
        known = _kind(hints[f.name])
        composed = typing.get_origin(hints[f.name]) not in (None, typing.Literal)
        if composed or known["kind"] not in ("bool", "int", "float", "str") or f.default is dataclasses.MISSING:
            raise ValueError(f"{kind.__name__}.{f.name} must be a bool, int, float or str with a default")
        more = {"doc": "", **f.metadata}
        key = own_key(section, f.name)
        rows[f.name] = Field(key=key, section=section, name=f.name, default=f.default, **known, **more)
    return rows


def _kind(hint: Any) -> dict[str, Any]:
    """Return the name of a type, whether it includes None, and its choices."""
    args, origin = typing.get_args(hint), typing.get_origin(hint)
    if origin in (types.UnionType, typing.Union):
        (inner,) = (arg for arg in args if arg is not types.NoneType)
        return {**_kind(inner), "optional": True}
    if origin is typing.Literal:
        return {"kind": type(args[0]).__name__, "optional": False, "choices": args}
    name = hint.__name__ if isinstance(hint, type) and not args else str(hint)
    return {"kind": name, "optional": False, "choices": ()}


FIELDS: dict[str, Field] = {
    key: field
    for section in dataclasses.fields(Config)
    for key, field in fields_of(section.default_factory, section.name, section.metadata).items()  # type: ignore[arg-type]
}
SECTIONS: tuple[str, ...] = tuple(f.name for f in dataclasses.fields(Config))


OWN_SECTIONS: Mapping[str, str] = MappingProxyType({"env": "env.id", "net": "net.kind", "algo": "algo.name"})
"""Section whose code may be the user's -> key that names it; that code declares `SECTION.my.NAME`."""


def own_key(section: str, name: str) -> str:
    """Return the key of an option that the user's code declares."""
    return f"{section}.my.{name}"


def own_parts(key: str) -> tuple[str, str] | None:
    """Return section and name of an option that the user's code declares; None for any other key."""
    section, _, rest = key.partition(".my.")
    return (section, rest) if section in OWN_SECTIONS and rest.isidentifier() else None


def own_values(cfg: Config) -> dict[str, Any]:
    """Return the keys that only user code has, with their values: `SECTION.my.NAME` and `env.sha256`."""
    pairs = {own_key(s, name): value for s in OWN_SECTIONS for name, value in getattr(cfg, s).my}
    return {**pairs, **({"env.sha256": cfg.env.sha256} if cfg.env.sha256 else {})}


def is_own(key: str) -> bool:
    """Return whether a key is one that `own_values` may return."""
    return key == "env.sha256" or own_parts(key) is not None


def keys_of(configs: Iterable[Config]) -> list[str]:
    """Return the keys of the schema, and the own keys that any of the configurations sets."""
    return list(dict.fromkeys([*FIELDS, *(key for cfg in configs for key in own_values(cfg))]))


def values_of(cfg: Config) -> dict[str, Any]:
    """Return every value by dotted key: those of the schema, then those of `own_values`."""
    return {**{key: getattr(getattr(cfg, f.section), f.name) for key, f in FIELDS.items()}, **own_values(cfg)}


def get(cfg: Config, key: str) -> Any:
    """Return the value under a dotted key; None for an own option that is not set."""
    if is_own(key):
        return own_values(cfg).get(key)
    section, _, name = key.partition(".")
    return getattr(getattr(cfg, section), name)


def replace(cfg: Config, values: Mapping[str, object]) -> Config:
    """Return the configuration with the given dotted keys set; the keys must exist."""
    by_section: dict[str, dict[str, Any]] = {}
    own: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        if parts := own_parts(key):
            own.setdefault(parts[0], {})[parts[1]] = value
            continue
        section, _, name = key.partition(".")
        by_section.setdefault(section, {})[name] = value
    for section, named in own.items():
        merged = {**dict(getattr(cfg, section).my), **named}
        by_section.setdefault(section, {})["my"] = tuple(sorted(merged.items()))
    changed = {s: dataclasses.replace(getattr(cfg, s), **names) for s, names in by_section.items()}
    return dataclasses.replace(cfg, **changed)
