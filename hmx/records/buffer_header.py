"""What a saved replay buffer says of itself, and whether it fits an environment."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from typing import Any

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.records.sealed_arrays import ArrayForm

SCHEMA = 1
RECORDS = {
    "td_errors": "float32", "consequence_scores": "float32", "scored": "bool", "scored_at": "uint32", "birth": "uint32",
}  # fmt: skip
"""The arrays `[size]` that every buffer has; further ones are `items/...` and `env_states/...`."""


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


def from_json(data: Mapping[str, Any], forms: Mapping[str, ArrayForm]) -> Header:
    """The inverse of `to_json`; nothing in it is taken on trust.

    Raises:
        ValueError, TypeError, KeyError, AttributeError: it is not a header.
    """
    env, ring = data["env"], data["ring"]
    gamma = data["gamma"]
    return Header(
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


def to_json(header: Header) -> dict[str, Any]:
    """Plain values, without the arrays."""
    return {
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
    }


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError
    return value


def _real(value: Any) -> float:
    if type(value) not in (int, float) or not abs(value) <= sys.float_info.max:  # an integer may be beyond any float
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
