"""The scenarios of SMAX and their sizes, known without importing JaxMARL (and so JAX)."""

from __future__ import annotations

from hmx.config.problem import Problem, fix
from hmx.errors import nearest

PREFIX = "smax/"
"""The start of an id; the rest is a scenario."""

SCENARIOS: dict[str, tuple[int, int]] = {
    "3m": (3, 3), "2s3z": (5, 5), "25m": (25, 25), "3s5z": (8, 8), "8m": (8, 8), "5m_vs_6m": (5, 6),
    "10m_vs_11m": (10, 11), "27m_vs_30m": (27, 30), "3s5z_vs_3s6z": (8, 9), "3s_vs_5z": (3, 5), "6h_vs_8z": (6, 8),
    "smacv2_5_units": (5, 5), "smacv2_10_units": (10, 10), "smacv2_20_units": (20, 20),
}  # fmt: skip
"""Allies and enemies of each scenario in JaxMARL 0.2; a test compares them, and the sizes, with JaxMARL."""

LIMIT = 100
"""Steps after which a battle is truncated, as published."""

_OTHER_UNIT, _OWN_UNIT = 13, 10  # numbers that a unit sees of another, and of itself
_ACTIONS = 5  # four directions and standing still; one more for each enemy that may be attacked
# State: of a unit its position, life, team, health, type, cooldown, movement and attack; steps (twice) and the end.
_UNIT_BYTES, _BATTLE_BYTES = 34, 9
_ENEMY_BYTES = 12  # where an enemy is headed, and whom it attacked last


def scenario(env_id: str) -> tuple[int, int] | None:
    """Return allies and enemies of `smax/NAME`; None for any other id and for an unknown scenario."""
    return SCENARIOS.get(env_id.removeprefix(PREFIX)) if env_id.startswith(PREFIX) else None


def sizes(allies: int, enemies: int) -> tuple[int, int, int]:
    """Return the size of an ally's observation (float32), its number of actions, and the bytes of a battle's state."""
    observation = _OTHER_UNIT * (allies - 1 + enemies) + _OWN_UNIT
    state = _UNIT_BYTES * (allies + enemies) + _ENEMY_BYTES * enemies + _BATTLE_BYTES
    return observation, _ACTIONS + enemies, state


def world_size(allies: int, enemies: int) -> int:
    """Return the size of the state of a battle: for each unit its own observation, its team and its type."""
    return (_OWN_UNIT + 2) * (allies + enemies)


def unknown(env_id: str) -> Problem | None:
    """Return the problem with an id `smax/NAME` whose scenario is unknown; None for every other id."""
    if not env_id.startswith(PREFIX) or scenario(env_id):
        return None
    near = nearest(env_id.removeprefix(PREFIX), SCENARIOS)
    words = f"no such scenario; SMAX has {', '.join(SCENARIOS)}"
    return Problem("unknown_env", ("env.id",), words, fix("env.id", f"{PREFIX}{near or '3m'}"))
