"""Configurations as TOML, dictionaries and digests."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config.coerce import BadValue, coerce, show
from hmx.config.fields import FIELDS, SECTIONS, get, replace
from hmx.config.names import nearest
from hmx.config.problem import MAX_LINES, UNKNOWN, Problem, error
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import HmxError

SCHEMA = 1
"""The number a configuration file carries; a higher one is refused."""

SHAPE_KEYS: tuple[str, ...] = (
    "run.num_seeds",
    "env.id",
    "env.num_envs",
    "env.num_agents",
    "env.obs",
    "env.undo_depth",
    "net.kind",
    "net.hidden",
    "net.cell_features",
    "net.activation",
    "net.shared_torso",
    "net.layer_norm",
    "net.rnn",
    "net.rnn_hidden",
    "algo.name",
    "algo.value_target",
)
"""What a checkpoint's arrays, and the meaning of its parameters, depend on: fixed for the life of a run."""

DQN_SHAPE_KEYS: tuple[str, ...] = ("dqn.dueling", "replay.capacity", "replay.mixing")
"""What they depend on besides where the algorithm is dqn."""

LATER_SHAPE_KEYS: tuple[str, ...] = (
    "env.action_repeat",
    "env.reset_on_done",
    "env.world_state",
    "net.value_hidden",
    "net.norm_order",
    "net.std",
    "net.std_min",
    "algo.obs_norm",
    "algo.obs_norm_ddof",
    "algo.obs_norm_clip",
    "algo.reward_scale",
)
"""The same, of keys younger than some checkpoints: in a digest only where they are not at their defaults."""


class Parsed(NamedTuple):
    """A configuration file: values by dotted key as written, and the line of each (0: not found)."""

    values: dict[str, Any]
    lines: dict[str, int]


def to_dict(cfg: Config) -> dict[str, dict[str, Any]]:
    """Sections of plain values (lists for tuples), ready for JSON."""
    out: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    for key, field in FIELDS.items():
        value = get(cfg, key)
        out[field.section][field.name] = (
            float(value) if field.kind == "float" else list(value) if isinstance(value, tuple) else value
        )
    return out


def from_dict(data: Mapping[str, Any]) -> Config:
    """The configuration in `data`; what is missing takes its default.

    Raises:
        HmxError: unknown keys, wrong types or values outside the choices, all of them at once.
    """
    values, problems = resolve(flatten(data))
    if problems:
        raise error(problems)
    return replace(Config(), values)


def flatten(data: Mapping[str, Any]) -> dict[str, Any]:
    """Nested sections to dotted keys; `schema` is dropped."""
    flat: dict[str, Any] = {}
    for section, body in data.items():
        if isinstance(body, Mapping):
            flat.update({f"{section}.{name}": value for name, value in body.items()})
        elif section != "schema":
            flat[section] = body
    return flat


def resolve(
    raw: Mapping[str, Any], origins: Mapping[str, str] | None = None, text: bool = False
) -> tuple[dict[str, Any], list[Problem]]:
    """Values in the types of the schema, and every problem among them.

    Args:
        raw: value by dotted key.
        origins: where each key came from, for the problems.
        text: whether strings are to be read as the type of their field.
    """
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in raw.items():
        origin = (origins or {}).get(key, "")
        field = FIELDS.get(key)
        if field is None:
            few = len(problems) < MAX_LINES  # what is not listed needs no search for a better name
            problems.append(unknown_key(key, show(value), origin) if few else Problem(UNKNOWN, (key,), "", "", "", ""))
            continue
        try:
            values[key] = coerce(field, value, text)
        except BadValue as bad:
            problems.append(Problem("value", (key,), bad.message, bad.suggestion, show(value) or '""', origin))
    return values, problems


def unknown_key(key: str, value: str = "", origin: str = "") -> Problem:
    """The problem of a key that the schema does not have, with the nearest that it has."""
    near = nearest(key, FIELDS)
    section, dot, _ = key.partition(".")
    what = "unknown key" if section in SECTIONS or not dot else f"unknown section {quoted(section)}"
    if near is None:
        return Problem(UNKNOWN, (key,), f"{what}; sections are {', '.join(SECTIONS)}", "", value, origin)
    try:
        coerce(FIELDS[near], value, text=True)
    except BadValue as bad:
        return Problem(UNKNOWN, (key,), what, bad.suggestion, value, origin)
    return Problem(UNKNOWN, (key,), what, f"{near}={quoted(value)}", value, origin)


def digest(cfg: Config) -> str:
    """SHA-256 over the canonical JSON of the whole configuration, as 64 hex digits."""
    return sha256(to_dict(cfg))


def shape_keys(cfg: Config, keys: tuple[str, ...] = SHAPE_KEYS) -> tuple[str, ...]:
    """The keys that are fixed for the life of this run: `keys`, and those that matter to its algorithm alone."""
    return (*keys, *DQN_SHAPE_KEYS) if cfg.algo.name == "dqn" else keys


def shape_digest(cfg: Config, keys: tuple[str, ...] = SHAPE_KEYS) -> str:
    """SHA-256 over the shape keys, or those of an earlier schema: equal where checkpoints fit each other."""
    data, keys = to_dict(cfg), shape_keys(cfg, keys)
    later = tuple(key for key in LATER_SHAPE_KEYS if get(cfg, key) != FIELDS[key].default)
    return sha256({key: data[FIELDS[key].section][FIELDS[key].name] for key in (*keys, *later)})


def sha256(data: Any) -> str:
    """SHA-256 over the canonical JSON of plain values, as 64 hex digits."""
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def diff(a: Config, b: Config) -> dict[str, tuple[Any, Any]]:
    """The dotted keys that differ, with the value in `a` and in `b`."""
    return {key: (get(a, key), get(b, key)) for key in FIELDS if get(a, key) != get(b, key)}


def to_toml(cfg: Config) -> str:
    """The file that `hmx train --config` takes back, each key under its line of documentation."""
    out = [f"schema = {SCHEMA}"]
    for section in SECTIONS:
        out += ["", f"[{section}]"]
        for field in FIELDS.values():
            if field.section != section:
                continue
            unit = f" [{field.unit}]" if field.unit else ""
            choices = f" ({', '.join(str(c) for c in field.choices)})" if field.choices else ""
            out += [f"# {field.doc}{unit}{choices}", f"{field.name} = {_toml(coerce(field, get(cfg, field.key)))}"]
    return "\n".join(out) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    if isinstance(value, str):
        return _toml_string(value)
    return repr(value)


def _toml_string(value: str) -> str:
    short = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}
    body = "".join(short.get(c) or (f"\\u{ord(c):04x}" if ord(c) < 0x20 or ord(c) == 0x7F else c) for c in value)
    return f'"{body}"'


def parse_toml(text: str, source: str) -> Parsed:
    """The keys and lines of a configuration file.

    Args:
        text: the file's content.
        source: the file's name, for messages.

    Raises:
        HmxError: a syntax error (with file and line), or a file of a newer schema.
    """
    import tomllib  # only needed when there is a file

    try:
        data = tomllib.loads(text)
    except RecursionError:
        raise HmxError(f"{source}: nested too deeply", "a configuration has sections of plain values") from None
    except ValueError as problem:
        raise _syntax_error(text, source, str(problem)) from None
    schema = data.get("schema", SCHEMA)
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        given = quoted(repr(schema) if isinstance(schema, str) else show(schema))
        raise HmxError(f"{source}: schema must be a whole number, not {given}", f"write: schema = {SCHEMA}")
    if schema > SCHEMA:
        raise HmxError(
            f"{source} has schema {show(schema)}, written by a newer hmx; this one reads schema {SCHEMA}",
            "upgrade hmx (pip install --upgrade hmx), or write the file again with this version",
        )
    return Parsed(flatten(data), _lines(text))


def _syntax_error(text: str, source: str, words: str) -> HmxError:
    at = re.search(r"\(at line (\d+), column \d+\)", words)
    line = int(at[1]) if at else max(1, len(text.rstrip().splitlines()))
    what = words[: at.start()].strip() if at else words.replace("(at end of document)", "").strip()
    rows = text.splitlines()
    shown = quoted(rows[line - 1].strip()) if 0 < line <= len(rows) else ""
    hint = f"line {line} reads: {shown}" if shown else "a configuration has lines such as: num_envs = 512"
    return HmxError(f"{source}:{line}: not valid TOML: {quoted(what, 200)}", hint)


def _lines(text: str) -> dict[str, int]:
    """The line of each `key = value`, found by eye as it were: TOML's own reader does not tell."""
    lines: dict[str, int] = {}
    section = ""
    for number, row in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*([\w.-]+)\s*\]\s*(#.*)?$", row):
            section = head[1] + "."
        elif pair := re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", row):
            lines.setdefault(section + pair[1], number)
    return lines
