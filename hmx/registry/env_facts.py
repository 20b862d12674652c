"""Facts of an environment that are known without building it (and so without JAX): its origin and its sizes.

An environment is built in, of an optional extra (`gymnax/CartPole-v1`), registered by an installed package (entry-point
group `hmx.environments`), a function of a module (`package.module:make`), or a file (`./game.py`, `./game.py:make`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config.schema import ENV_IDS, EnvConfig
from hmx.registry.importing import imported


class BoardSizes(NamedTuple):
    """Sizes of the input of the cells network from one observation."""

    scalars: int
    cells: int
    features: int  # per cell


class EnvFacts(NamedTuple):
    """The sizes of an environment under a configuration; a test compares them with the environment itself."""

    obs_size: int  # numbers in the observation of one agent
    obs_bytes: int  # that these take as stored in a rollout
    features: int  # numbers of it that a network without cells reads
    num_actions: int
    state_bytes: int  # of one environment, all agents together
    board: BoardSizes | None = None  # if an observation can be read cell by cell
    action_dim: int = 0  # numbers of a continuous action, if num_actions is 0
    value_only: int = 0  # of the features, the last ones, which the policy does not read
    decode: int = 0  # numbers computed on the way from a packed observation to its features


def _vector(size: int, num_actions: int, state_bytes: int = 8, **more: Any) -> EnvFacts:
    """Return the facts where an observation is a float32 vector; 8 bytes are a number and the steps of the episode."""
    return EnvFacts(size, 4 * size, size, num_actions, state_bytes, **more)


_FACTS = {
    "counting": _vector(1, 4),
    "corridor": _vector(8, 2),
    "frozenlake": _vector(64, 4),
    "frozenlake-slippery": _vector(64, 4),
    "recall": _vector(4, 4, 12),
    "cartpole-discrete": _vector(4, 2, 20),
    "cartpole": _vector(4, 0, 20, action_dim=1),
    "pendulum": _vector(3, 0, 12, action_dim=1),
}
_CELLS, _CELL_FEATURES, _FLAT = 36, 37, 1545  # of HackMatrix

_OTHER_UNIT, _OWN_UNIT = 13, 10  # numbers that a unit sees of another, and of itself
_UNIT_ACTIONS = 5  # four directions and standing still; one more for each enemy that may be attacked
# State: of a unit its position, life, team, health, type, cooldown, movement and attack; steps (twice) and the end.
_UNIT_BYTES, _BATTLE_BYTES = 34, 9
_ENEMY_BYTES = 12  # target position of an enemy, and its last victim

_learned: dict[tuple[object, ...], tuple[EnvFacts, int]] = {}
"""Facts and step limits of environments of extras and users, known only after they are built."""


def scenario(env_id: str) -> tuple[int, int] | None:
    """Return allies and enemies of `smax/NAME`; None for any other id and for an unknown scenario."""
    scenarios: Mapping[str, tuple[int, int]] = imported("hmx.envs.suites.entries:SCENARIOS")
    return scenarios.get(env_id.removeprefix("smax/")) if env_id.startswith("smax/") else None


def learn(cfg: EnvConfig, facts: EnvFacts, limit: int) -> None:
    """Store facts and step limit of a built environment, unless `facts_known`."""
    _learned[_identity(cfg)] = facts, limit


def facts_known(cfg: EnvConfig) -> bool:
    """Return whether `env_facts` knows the environment: built in, of SMAX, or already built."""
    return cfg.id in ENV_IDS or scenario(cfg.id) is not None or _identity(cfg) in _learned


def _identity(cfg: EnvConfig) -> tuple[object, ...]:
    return cfg.id, cfg.my, cfg.sha256, cfg.max_steps


def env_facts(cfg: EnvConfig) -> EnvFacts:
    """Return the facts of the environment `cfg.id`.

    Raises:
        KeyError: the environment does not exist, or is not built in and not built yet; see `facts_known`.
    """
    if cfg.id == "hackmatrix":
        # a game, its steps and its legal actions; every snapshot for UNDO is another 288 bytes
        state = 363 + 288 * cfg.undo_depth
        if cfg.obs == "flat":
            return _vector(_FLAT, 28, state)
        board = BoardSizes(scalars=33, cells=2 * _CELLS + 1, features=_CELL_FEATURES)
        return EnvFacts(67, 4 * 67, _FLAT, 28, state, board, decode=_CELLS * _CELL_FEATURES)
    if units := scenario(cfg.id):
        allies, enemies = units
        seen = _OTHER_UNIT * (allies - 1 + enemies) + _OWN_UNIT
        world = (_OWN_UNIT + 2) * (allies + enemies) if cfg.world_state else 0  # of each unit also team and type
        state = _UNIT_BYTES * (allies + enemies) + _ENEMY_BYTES * enemies + _BATTLE_BYTES
        return _vector(seen + world, _UNIT_ACTIONS + enemies, state, value_only=world)
    if cfg.id == "rendezvous":
        return _vector(11 + cfg.num_agents, 3, 5 + 5 * cfg.num_agents)
    return _FACTS[cfg.id] if cfg.id in _FACTS else _learned[_identity(cfg)][0]
