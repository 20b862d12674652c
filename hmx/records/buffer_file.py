"""A replay buffer in one file: the transitions of its filled slots, and the environment that filled it.

Every array leads with the transitions, in the order of their slots. The header names the environment and every option
that decides what a step does, so that rollouts from these transitions follow the same rules.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.fields import FIELDS, own_values
from hmx.config.files import open_plain
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.records.plain import plain_object, typed
from hmx.records.sealed_arrays import ArrayForm, FileKind, StoredArray

RECORDS = {
    "td_errors": "float32", "consequence_scores": "float32", "scored": "bool", "scored_at": "uint32", "birth": "uint32",
}  # fmt: skip
"""The arrays `[size]` that every buffer has; further ones are `items/...` and `env_states/...`."""

_ENV = ("settings", "num_actions", "num_agents", "obs_shape", "obs_dtype")
_RING = ("capacity", "size", "position", "num_added", "num_envs", "td_max")
_OWN = ("created", "run", "update", "gamma")
_NAME = re.compile(r"(items|env_states)(/(?!\.\.?(/|$))[A-Za-z0-9_.\[\]'-]{1,100}){0,20}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class BufferHeader:
    """The header of a saved buffer."""

    env: str  # id of the environment
    settings: dict[str, bool | int | float | str]  # by dotted key, all that decide what a step does; see `settings_of`
    num_actions: int
    num_agents: int
    obs_shape: tuple[int, ...]  # of one agent's observation
    obs_dtype: str
    capacity: int  # slots of the buffer
    size: int  # slots filled; transitions in the file
    position: int  # slot of the next transition
    num_added: int  # transitions ever added
    num_envs: int  # transitions added at a time: the distance between a transition and its successor
    td_max: float = 0.0  # largest TD error so far, the initial one of new transitions
    gamma: float | None = None  # discount per step of the learner; None if unknown
    run: str = ""  # name of the run it is from, if any
    update: int = 0  # updates done when it was written
    created: str = ""  # when it was written, ISO 8601 in UTC


def write(path: Path, header: BufferHeader, arrays: Mapping[str, StoredArray]) -> None:
    """Write a buffer atomically; the same content gives the same bytes."""
    facts = plain_object(header)
    env = {"id": header.env, "digest": codec.sha256(facts["settings"])} | {key: facts[key] for key in _ENV}
    body = {key: facts[key] for key in _OWN} | {"env": env, "ring": {key: facts[key] for key in _RING}}
    KIND.write(path, body, arrays)


def is_buffer(path: Path) -> bool:
    """Return whether a file looks like a saved buffer; `read` checks whether it is one."""
    try:
        with os.fdopen(open_plain(path), "rb") as file:
            return file.read(4) == b"PK\x03\x04"
    except OSError:
        return False


def read_header(path: Path) -> BufferHeader:
    """Read the header of a buffer, and check that its arrays are there; errors as of `read`."""
    return read(path, whole=False)[0]


def settings_of(cfg: Config) -> dict[str, Any]:
    """Return the options that decide what a step of the environment does and how it is rewarded, by dotted key.

    The number of environments has no effect.
    """
    flat = codec.flatten(codec.to_dict(cfg))
    read = (field for field in FIELDS.values() if field.of_env(cfg.env.id))
    keys = [field.key for field in read if field.section in ("env", "reward") and field.key != "env.num_envs"]
    return {key: flat[key] for key in keys} | {k: v for k, v in own_values(cfg).items() if k.startswith("env.")}


def differences(header: BufferHeader, now: Mapping[str, Any]) -> list[str]:
    """Describe each option whose value in the buffer differs from that in the settings `now`, one line each.

    An option newer than the buffer counts as its current default.
    """
    defaults = codec.flatten(codec.to_dict(Config()))
    recorded = dict(codec.current(key, value) for key, value in header.settings.items())
    before = {key: recorded.get(key, defaults.get(key)) for key in now}
    lines = [
        f"{key} = {quoted(show(before[key]))} in the buffer, {quoted(show(now[key]))} here"
        for key in now
        if before[key] != now[key]
    ]
    unknown = [key for key in recorded if key not in FIELDS and key not in now]
    return [*lines, *(f"{quoted(key)} is set in the buffer, and unknown here" for key in unknown)]


def _parse(body: Mapping[str, Any], forms: dict[str, ArrayForm]) -> BufferHeader:
    """Return the header, unless it is missing or contradicts itself."""
    env = {"env" if name == "id" else name: value for name, value in body["env"].items() if name != "digest"}
    header = typed(BufferHeader, {**env, **body["ring"], **{key: body[key] for key in _OWN}})
    if not header.size <= header.capacity or header.position >= max(header.capacity, 1) or header.num_envs < 1:
        raise ValueError(f"a ring of {header.capacity:,} slots, {header.size:,} filled, next {header.position:,}")
    for name, form in forms.items():
        if name not in RECORDS and _NAME.fullmatch(name) is None:
            raise ValueError(f"an array of the name {name}")
        if form.shape[:1] != (header.size,) or (name in RECORDS and form != ArrayForm((header.size,), RECORDS[name])):
            raise ValueError(f"{name} is {form.dtype}{list(form.shape)} for {header.size:,} transitions")
    if missing := [name for name in RECORDS if name not in forms]:
        raise ValueError(f"the array {missing[0]} is missing")
    return header


KIND = FileKind(
    "hmx replay buffer",
    1,
    "saved buffer",
    "use an intact copy, or write it again with `hmx train --save-buffer` or `hmx score-buffer RUN`",
    _parse,
)
read = KIND.read
