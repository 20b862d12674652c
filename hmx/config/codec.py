"""Convert configurations to TOML, dictionaries and digests, and back."""

from __future__ import annotations

import hashlib
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from hmx.config.coerce import BadValue, coerce, fitting, show, toml
from hmx.config.fields import FIELDS, OWN_SECTIONS, SECTIONS, is_own, own_key, own_parts, own_values, replace, values_of
from hmx.config.problem import MAX_LINES, UNKNOWN, Problem, error, fix
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import HmxError, Unavailable, nearest

SCHEMA = 4
"""Number of the file format; a higher one is refused. Schema 2 moved the keys of PPO from [algo] to [ppo]."""

EARLIER_DEFAULTS = {"env.rules": (3, "original"), "gumbel.sees": (4, "everything")}
"""Key -> the schema with its present default, and the value that files of earlier schemas without the key have."""

_REPLACED = {"env.loopholes": ("env.rules", {"true": "original", "false": "closed"})}
"""Key of an earlier schema -> its current key, and the current value for each of its values."""

_REMOVED: dict[str, object] = {
    "gumbel.teacher": "search", "gumbel.unseen_value": 0.0, "score.kind": "rollouts", "ppo.auto_scale": False,
}  # fmt: skip
"""Key of earlier versions -> the value that hmx always has now."""


def to_dict(cfg: Config) -> dict[str, dict[str, Any]]:
    """Convert a configuration to sections of plain values (lists for tuples), ready for JSON."""
    out: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    values = values_of(cfg)
    for key, field in FIELDS.items():
        value = values[key]
        out[field.section][field.name] = (
            float(value) if field.kind == "float" else list(value) if isinstance(value, tuple) else value
        )
    for section in OWN_SECTIONS:
        if my := getattr(cfg, section).my:
            out[section]["my"] = dict(my)
    if cfg.env.sha256:
        out["env"]["sha256"] = cfg.env.sha256
    return out


def from_dict(data: Mapping[str, Any]) -> Config:
    """Read a configuration from sections of plain values; missing keys take their defaults.

    Raises:
        HmxError: lists every unknown key, wrong type and value that is not one of the choices.
    """
    values, problems = resolve(flatten(data))
    if problems:
        raise error(problems)
    return replace(Config(), values)


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten sections to current dotted keys, without `schema`."""
    flat: dict[str, Any] = {}
    for section, body in data.items():
        if isinstance(body, Mapping):
            flat.update(current(f"{section}.{name}", value) for name, value in body.items())
            if section in OWN_SECTIONS and isinstance(body.get("my"), Mapping):
                flat.update({own_key(section, name): value for name, value in flat.pop(f"{section}.my").items()})
        elif section != "schema":
            flat[section] = body
    return flat


def current(key: str, value: Any = None) -> tuple[str, Any]:
    """Return the current key and value for those of an earlier schema."""
    if key in _REPLACED:
        new, values = _REPLACED[key]
        return new, values.get(show(value), value)
    moved = key.replace("algo.", "ppo.", 1)
    return moved if key not in FIELDS and (moved in FIELDS or moved in _REMOVED) else key, value


def published(key: str) -> str:
    """Return the name of a key in schema 1, which is also its name in a shape digest."""
    return key.replace("ppo.", "algo.", 1)


def resolve(
    raw: Mapping[str, Any], origins: Mapping[str, str] | None = None, text: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """Convert values to the types of the schema, and find every problem among them.

    With `text`, strings are read as the type of their field.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in raw.items():
        origin = (origins or {}).get(key, "")
        field = FIELDS.get(key)
        if key in _REMOVED and not text:
            if value != _REMOVED[key]:
                place = f" ({origin})" if origin else ""
                words = f"{key} = {quoted(show(value))}{place} is ignored: {_removed(key)}"
                warnings.warn(words, Unavailable, stacklevel=2)
            continue
        if field is None and is_own(key):  # checked by `hmx.registry.own_options`, once the user's code may run
            if isinstance(value, bool | int | float | str) and (key != "env.sha256" or not text):
                values[key] = value
            else:
                words = "must be a number, a text, true or false" if key != "env.sha256" else "is set by hmx"
                problems.append(Problem("value", (key,), words, (), show(value), origin))
            continue
        if field is None:
            few = len(problems) < MAX_LINES  # skip the search for a better name if no line is shown
            problems.append(unknown_key(key, show(value), origin) if few else Problem(UNKNOWN, (key,), ""))
            continue
        if not text and isinstance(value, str) and value in field.gone:  # so that recorded runs can be read
            values[key] = value
            continue
        try:
            values[key] = coerce(field, value, text)
        except BadValue as bad:
            misread = isinstance(value, str) and not text and field.kind != "str"
            shown = toml(value) if misread else show(value) or '""'
            problems.append(Problem("value", (key,), bad.message, fix(key, bad.works), shown, origin))
    return values, problems


def _removed(key: str) -> str:
    return f"the key was removed; it is always {show(_REMOVED[key])} now"


def unknown_key(key: str, value: str = "", origin: str = "") -> Problem:
    """Return the problem with a key that the schema does not have; its fix is the nearest key that exists."""
    if key in _REPLACED:
        new, values = _REPLACED[key]
        works = fitting(FIELDS[new], values.get(value.lower(), ""))
        return Problem(UNKNOWN, (key,), f"{new} has replaced it", fix(new, works), value, origin)
    if key in _REMOVED:
        return Problem(UNKNOWN, (key,), _removed(key), (), value, origin)
    near = nearest(key, FIELDS)
    section, dot, _ = key.partition(".")
    what = "unknown key" if section in SECTIONS or not dot else f"unknown section {quoted(section)}"
    if near is None:
        listed = "" if section in SECTIONS else f"; sections are {', '.join(SECTIONS)}"
        return Problem(UNKNOWN, (key,), what + listed, (), value, origin)
    return Problem(UNKNOWN, (key,), what, fix(near, fitting(FIELDS[near], value)), value, origin)


def digest(cfg: Config) -> str:
    """Compute the SHA-256 of the canonical JSON of the whole configuration, as 64 hex digits."""
    return sha256(to_dict(cfg))


def shape_keys(cfg: Config, schema: int = 2) -> tuple[str, ...]:
    """Return the keys that the arrays of a checkpoint, and the meaning of its parameters, depend on.

    Args:
        cfg: the configuration. Keys that a single other algorithm reads are left out. Those of PPO are always there, as
            in checkpoints that are older than Q-learning.
        schema: schema number of the checkpoint.
    """
    values = values_of(cfg)
    return tuple(
        key
        for key, field in FIELDS.items()
        if (len(field.applies) != 1 or field.read_by(cfg.algo.name))
        and (
            field.shape == "always"
            or (field.shape == "from_schema_2" and schema > 1)
            or (field.shape == "if_not_default" and values[key] != field.default)
        )
    )


def shape_digest(cfg: Config, schema: int = 2) -> str:
    """Compute the SHA-256 of the shape keys and their values: equal if checkpoints fit each other."""
    data = to_dict(cfg)
    keys = shape_keys(cfg, schema)
    own = {key: value for key, value in own_values(cfg).items() if own_parts(key)}
    return sha256({published(key): data[FIELDS[key].section][FIELDS[key].name] for key in keys} | own)


def sha256(data: Any) -> str:
    """Compute the SHA-256 of the canonical JSON of plain values, as 64 hex digits."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def diff(a: Config, b: Config) -> dict[str, tuple[Any, Any]]:
    """Return the dotted keys that differ, with the value in `a` and in `b`."""
    before, after = values_of(a), values_of(b)
    pairs = {key: (before.get(key), after.get(key)) for key in before | after}
    return {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}


def to_toml(cfg: Config) -> str:
    """Write the file that `hmx train --config` reads, each key below a line of documentation."""
    out = [f"schema = {SCHEMA}"]
    for section, values in to_dict(cfg).items():
        out += ["", f"[{section}]"]
        for field in FIELDS.values():
            if field.section != section:
                continue
            unit = f" [{field.unit}]" if field.unit else ""
            choices = f" ({', '.join(field.choices)})" if field.choices else ""
            out += [f"# {field.doc}{unit}{choices}", f"{field.name} = {toml(coerce(field, values[field.name]))}"]
        if section == "env" and cfg.env.sha256:
            out += ["# SHA-256 of the file of the environment", f"sha256 = {toml(cfg.env.sha256)}"]
        if my := values.get("my"):
            out += ["", f"[{section}.my]", *(f"{name} = {toml(value)}" for name, value in my.items())]
    return "\n".join(out) + "\n"


def parse_toml(text: str, source: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Parse a configuration file; return its values and, if known, their lines by current dotted key.

    Raises:
        HmxError: the file is not TOML (with file and line), or has a newer schema.
    """
    import tomllib  # only needed when there is a file

    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise HmxError(f"{source}: nested too deeply", "a configuration file has sections of plain values") from None
    except ValueError as problem:
        raise _syntax_error(text, source, str(problem)) from None
    schema = data.get("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        given = quoted(repr(schema) if isinstance(schema, str) else show(schema))
        raise HmxError(f"{source}: schema must be a whole number, not {given}", f"write: schema = {SCHEMA}")
    if schema > SCHEMA:
        raise HmxError(
            f"{source} has schema {show(schema)}, written by a newer hmx; this one reads schema {SCHEMA}",
            "upgrade hmx (pip install --upgrade hmx), or rewrite the file for this version",
        )
    values = flatten(data)
    for key, (since, default) in EARLIER_DEFAULTS.items():
        if schema < since:
            values.setdefault(key, default)
    return values, {current(key)[0]: line for key, line in _lines(text).items()}


def _syntax_error(text: str, source: str, words: str) -> HmxError:
    at = re.search(r"\(at line (\d+), column \d+\)", words)
    line = int(at[1]) if at else max(1, len(text.rstrip().splitlines()))
    what = words[: at.start()].strip() if at else words.replace("(at end of document)", "").strip()
    rows = text.splitlines()
    shown = quoted(rows[line - 1].strip()) if 0 < line <= len(rows) else ""
    hint = f"line {line} reads: {shown}" if shown else "a configuration file has lines such as: num_envs = 512"
    return HmxError(f"{source}:{line}: not valid TOML: {quoted(what, 200)}", hint)


def _lines(text: str) -> dict[str, int]:
    """Find the line of each `key = value` by pattern, since `tomllib` does not report lines."""
    lines: dict[str, int] = {}
    section = ""
    for number, row in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]\s*(#.*)?$", row):
            section = head[1] + "."
        elif pair := re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", row):
            lines.setdefault(section + pair[1], number)
    return lines
