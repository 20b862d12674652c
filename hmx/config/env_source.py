"""Find where an environment comes from; nothing here runs its code.

An environment is built in, of an optional extra (`gymnax/CartPole-v1`), registered by an installed package (entry-point
group `hmx.environments`), a function of a module (`package.module:make`), or a file (`./game.py`, `./game.py:make`).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from hmx.config.env_facts import extra_of
from hmx.config.schema import ENV_IDS
from hmx.config.user_code import is_reference, owners, parse, registered

Origin = Literal["built in", "extra", "package", "module", "file"]


class EnvSource(NamedTuple):
    """Where an environment comes from."""

    id: str
    origin: Origin
    target: str = ""  # the extra, the file or the dotted module
    attribute: str = ""  # what to take from it; empty for the file itself

    @property
    def own(self) -> bool:
        """Return whether it is the user's or another package's code."""
        return self.origin in ("package", "module", "file")


def find_source(env_id: str) -> EnvSource | None:
    """Return where an environment of this id comes from; None if there is no such environment.

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


def clashes(name: str) -> list[str]:
    """Return who else claims the name of a registered environment: hmx itself, or several packages."""
    points = [point for point in registered("env.id") if point.name == name]
    claims = owners(points)
    claims += ["hmx itself"] if points and (name in ENV_IDS or extra_of(name)) else []
    return claims if len(claims) > 1 else []
