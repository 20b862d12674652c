"""What a saved replay buffer says of itself, and whether it fits an environment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.config.schema import Config
from hmx.config.textfile import quoted

SCHEMA = 1
FORMAT = "hmx replay buffer"
DTYPES = {
    "bool": "|b1", "int8": "|i1", "uint8": "|u1", "int16": "<i2", "uint16": "<u2", "int32": "<i4", "uint32": "<u4",
    "int64": "<i8", "uint64": "<u8", "float16": "<f2", "float32": "<f4", "float64": "<f8",
}  # fmt: skip
"""The kinds of numbers an array may hold, as `.npy` files name them (little-endian)."""

RECORDS = {
    "td_errors": "float32", "consequence_scores": "float32", "scored": "bool", "scored_at": "uint32", "birth": "uint32",
}  # fmt: skip
"""The arrays `[size]` that every buffer has; further ones are `items/...` and `env_states/...`."""

_MAX_ELEMENTS = 1 << 36
_MAX_RANK = 32


class ArrayForm(NamedTuple):
    """An array without its numbers: `dtype` is a key of `DTYPES`."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """What its numbers take."""
        return math.prod(self.shape) * int(DTYPES[self.dtype][2:])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Header:
    """What a saved buffer says of itself.

    Attributes:
        env: id of the environment.
        settings: dotted key -> value, of everything that decides what a step does; see `settings_of`.
        num_actions: of the environment.
        num_agents: likewise.
        obs_shape: of one agent's observation.
        obs_dtype: its numbers.
        capacity: slots of the buffer.
        size: slots filled; transitions in the file.
        position: the slot that the next transition goes to.
        num_added: transitions ever added.
        num_envs: transitions added at a time: a transition's successor in its episode was born so much later.
        td_max: the largest TD error so far, from which new transitions start.
        gamma: the learner's discount per step; None where nobody said.
        run: name of the run it is from, if any.
        update: updates done then.
        created: when, ISO 8601 in UTC.
        arrays: name -> form.
    """

    env: str
    settings: Mapping[str, Any]
    num_actions: int
    num_agents: int
    obs_shape: tuple[int, ...]
    obs_dtype: str
    capacity: int
    size: int
    position: int
    num_added: int
    num_envs: int
    td_max: float = 0.0
    gamma: float | None = None
    run: str = ""
    update: int = 0
    created: str = ""
    arrays: Mapping[str, ArrayForm] = dataclasses.field(default_factory=dict)


def settings_of(cfg: Config) -> dict[str, Any]:
    """The options that decide what a step of the environment does, and what it is worth, by dotted key.

    How many environments ran side by side decides nothing; reward weights matter to HackMatrix only.
    """
    flat = codec.flatten(codec.to_dict(cfg))
    sections = ("env", "reward") if cfg.env.id == "hackmatrix" else ("env",)
    return {key: value for key, value in flat.items() if key.split(".")[0] in sections and key != "env.num_envs"}


def differences(header: Header, cfg: Config) -> list[str]:
    """One line per option that the buffer was filled under another value of than `cfg` has.

    An option that the buffer does not know had the default of today when there was no other.
    """
    now, defaults = settings_of(cfg), codec.flatten(codec.to_dict(Config()))
    before = {key: header.settings.get(key, defaults[key]) for key in now}
    lines = [
        f"{key} = {quoted(show(before[key]))} in the buffer, {quoted(show(now[key]))} here"
        for key in now
        if before[key] != now[key]
    ]
    unknown = [key for key in header.settings if key not in FIELDS]
    return [*lines, *(f"{quoted(key)} decided something in the buffer, and is unknown here" for key in unknown)]


def from_json(data: Mapping[str, Any]) -> tuple[Header, dict[str, str]]:
    """The inverse of `to_json`; nothing in it is taken on trust.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is not a header.
    """
    forms = {_text(row["name"]): _form(row) for row in data["arrays"]}
    sums = {_text(row["name"]): _text(row["sha256"]) for row in data["arrays"]}
    env, ring = data["env"], data["ring"]
    gamma = data["gamma"]
    header = Header(
        env=_text(env["id"]),
        settings={_text(key): _plain(value) for key, value in env["settings"].items()},
        num_actions=_count(env["num_actions"]),
        num_agents=_count(env["num_agents"]),
        obs_shape=tuple(_count(n) for n in env["obs_shape"]),
        obs_dtype=_text(env["obs_dtype"]),
        **{key: _count(ring[key]) for key in ("capacity", "size", "position", "num_added", "num_envs")},
        td_max=_real(ring["td_max"]),
        gamma=None if gamma is None else _real(gamma),
        run=_text(data["run"]),
        update=_count(data["update"]),
        created=_text(data["created"]),
        arrays=forms,
    )
    return header, sums


def to_json(header: Header, sums: Mapping[str, str]) -> dict[str, Any]:
    """Plain values; `sums` has the SHA-256 of every array."""
    return {
        "format": FORMAT,
        "schema": SCHEMA,
        "created": header.created,
        "run": header.run,
        "update": header.update,
        "gamma": header.gamma,
        "env": {
            "id": header.env,
            "settings": dict(header.settings),
            "digest": codec.sha256(dict(header.settings)),
            "num_actions": header.num_actions,
            "num_agents": header.num_agents,
            "obs_shape": list(header.obs_shape),
            "obs_dtype": header.obs_dtype,
        },
        "ring": {key: getattr(header, key) for key in ("capacity", "size", "position", "num_added", "num_envs")}
        | {"td_max": header.td_max},
        "arrays": [
            {"name": name, "dtype": form.dtype, "shape": list(form.shape), "sha256": sums[name]}
            for name, form in header.arrays.items()
        ],
    }


def _form(row: Mapping[str, Any]) -> ArrayForm:
    shape, dtype = row["shape"], _text(row["dtype"])
    if dtype not in DTYPES:
        raise ValueError(f"an array of {dtype}")
    if not isinstance(shape, list) or not 1 <= len(shape) <= _MAX_RANK:
        raise ValueError(f"an array of the shape {str(shape)[:80]}")
    sizes = tuple(_count(n) for n in shape)
    # in this order, so that what is multiplied is not large
    if max(sizes) > _MAX_ELEMENTS or math.prod(sizes) > _MAX_ELEMENTS:
        raise ValueError(f"an array of the shape {str(shape)[:80]}, more than {_MAX_ELEMENTS:,} elements")
    return ArrayForm(sizes, dtype)


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError
    return float(value)


def _text(value: Any) -> str:
    if type(value) is not str or len(value) > 1000:
        raise TypeError
    return value


def _plain(value: Any) -> Any:
    if not isinstance(value, bool | int | float | str):
        raise TypeError
    return value
