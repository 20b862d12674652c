"""The environments, each described by an entry: what the rest of hmx asks it, and where its code is.

An environment is built in, of an optional extra (`gymnax/CartPole-v1`), registered by an installed package (entry-point
group `hmx.environments`), a function of a module (`package.module:make`), or a file (`./game.py`, `./game.py:make`).
Nothing here imports JAX, and no user code runs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Literal, NamedTuple

from hmx.config.references import is_reference, parse
from hmx.config.schema import ENTRIES, ENV_IDS, EnvConfig
from hmx.errors import optional
from hmx.registry.entry import EnvEntry, Feature
from hmx.registry.sizes import Sizes
from hmx.registry.user_code import owners, registered

Origin = Literal["built in", "extra", "package", "module", "file"]

EXTRAS: Mapping[str, str] = MappingProxyType({e.id.partition("/")[0]: e.package for e in ENTRIES if e.package})
"""Optional extras that bring environments, and the package that each needs; their ids are `EXTRA/NAME`."""


class EnvSource(NamedTuple):
    """The origin of an environment."""

    id: str
    origin: Origin
    target: str = ""  # the extra, the file or the dotted module
    attribute: str = ""  # name within it; empty for the file itself

    @property
    def own(self) -> bool:
        """Return whether it is the user's or another package's code."""
        return self.origin in ("package", "module", "file")


def find_environment(env_id: str) -> EnvEntry | None:
    """Return the entry of an environment of hmx or of an extra; None for any other."""
    every = {entry.id: entry for entry in ENTRIES}
    return every.get(env_id) or every.get(f"{extra_of(env_id)}/")


def features_of(cfg: EnvConfig) -> frozenset[Feature]:
    """Return the features of an environment; an environment of a user has none."""
    entry = find_environment(cfg.id)
    return entry.features(cfg) if entry else frozenset()


def names_in(extra: str) -> list[str]:
    """Return the names, without the extra, of its environments that have an entry of their own."""
    return [entry.id.partition("/")[2] for entry in ENTRIES if extra_of(entry.id) == extra]


def find_source(env_id: str) -> EnvSource | None:
    """Return the origin of an environment; None if there is no such environment.

    Files and modules need not exist: a run can be listed and compared without its environment.
    """
    if env_id in ENV_IDS:
        return EnvSource(env_id, "built in")
    if is_reference(env_id):
        target, _ = parse(env_id)
        dotted = all(part.isidentifier() for part in target.split("."))
        origin: Origin | None = "file" if target.endswith(".py") else "module" if dotted else None
        return None if origin is None else EnvSource(env_id, origin, target, env_id.removeprefix(target)[1:])
    if extra := extra_of(env_id):
        return EnvSource(env_id, "extra", extra)
    point = next((point for point in registered("env.id") if point.name == env_id), None)
    return None if point is None else EnvSource(env_id, "package", point.module, point.attr)


def exists(env_id: str) -> bool:
    """Return whether there may be such an environment; files and modules need not exist."""
    source = find_source(env_id)
    return source is not None and (source.own or find_environment(env_id) is not None)


def clashes(name: str) -> list[str]:
    """Return the owners of the name of a registered environment, if there are several: hmx itself, or packages."""
    points = [point for point in registered("env.id") if point.name == name]
    claims = owners(points)
    if points and (name in ENV_IDS or extra_of(name)):
        claims.append("hmx itself")
    return claims if len(claims) > 1 else []


def extra_of(env_id: str) -> str:
    """Return the extra that an environment comes from; empty if it is built in or does not exist."""
    extra, slash, name = env_id.partition("/")
    return extra if extra in EXTRAS and slash and name else ""


def step_limit(cfg: EnvConfig) -> int:
    """Return the steps after which an episode of an environment of hmx is truncated; 0 for never."""
    entry = find_environment(cfg.id)
    return cfg.max_steps if entry is None else entry.step_limit(cfg.max_steps)


@cache
def stored_sizes() -> Mapping[str, Sizes]:
    """Return the sizes of the built-in environments and of SMAX with default options; `make docs` writes them."""
    sizes: dict[str, Sizes] = {}
    with optional("read the stored environment sizes"):
        rows = json.loads(files("hmx.registry").joinpath("sizes.json").read_text(encoding="utf-8"))
        sizes = {name: Sizes(**row) for name, row in rows.items()}
    return MappingProxyType(sizes)


def known_sizes(cfg: EnvConfig) -> Sizes | None:
    """Return the sizes of an environment if they are known without building it; None otherwise.

    Actions, agents and step limit are those under the configuration, the others those with default options.
    """
    sizes = stored_sizes().get(cfg.id)
    entry = find_environment(cfg.id)
    if sizes is None or entry is None:
        return None
    return sizes._replace(num_agents=entry.num_agents or cfg.num_agents, max_steps=entry.step_limit(cfg.max_steps))
