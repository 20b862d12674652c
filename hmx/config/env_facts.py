"""The sizes of each environment, known without building it (and so without JAX)."""

from __future__ import annotations

from typing import NamedTuple

from hmx.config import smax_facts
from hmx.config.schema import ENV_IDS, EnvConfig


class BoardSizes(NamedTuple):
    """Sizes of what the cells network reads from one observation."""

    scalars: int
    cells: int
    features: int  # per cell


class EnvFacts(NamedTuple):
    """The sizes of an environment under a configuration; a test compares them with the environment itself."""

    obs_size: int  # numbers in the observation of one agent
    obs_bytes: int  # that these take as stored in a rollout
    features: int  # numbers a network without cells reads of it
    num_actions: int
    state_bytes: int  # of one environment, all agents together
    board: BoardSizes | None = None  # if an observation can be read cell by cell
    action_dim: int = 0  # numbers of a continuous action, where num_actions is 0
    value_only: int = 0  # of the features, the last ones, which the policy does not read
    decode: int = 0  # numbers computed on the way from a packed observation to its features


_SIZES = {
    "counting": (1, 4),
    "corridor": (8, 2),
    "frozenlake": (64, 4),
    "frozenlake-slippery": (64, 4),
    "recall": (4, 4),
    "cartpole-discrete": (4, 2),
}
"""Observation size (float32) and number of actions of the small environments with one agent."""

_STATE_BYTES = {"recall": 12, "cartpole-discrete": 20}
"""Bytes of the state, where it is more than a number and the steps of the episode."""

_CONTINUOUS = {"pendulum": (3, 1, 12), "cartpole": (4, 1, 20)}
"""Observation size (float32), action size and bytes of the state of environments with continuous actions."""

OWN_LIMITS = {"pendulum": 200, "cartpole": 500, "cartpole-discrete": 500}
"""Step limit of the published task, which the configuration can only lower."""


def step_limit(cfg: EnvConfig) -> int:
    """Return the environment steps after which an episode is truncated; 0 for never."""
    if _limit_key(cfg) in _limits:
        return _limits[_limit_key(cfg)]
    own = smax_facts.LIMIT if smax_facts.scenario(cfg.id) else OWN_LIMITS.get(cfg.id, 0)
    return min(cfg.max_steps or own, own) if own else cfg.max_steps


def is_unlimited(cfg: EnvConfig) -> bool:
    """Return whether no episode is ever truncated; False where that is known only once the environment is built."""
    known = cfg.id in ENV_IDS or smax_facts.scenario(cfg.id) is not None or _limit_key(cfg) in _limits
    return known and step_limit(cfg) == 0


SEVERAL_AGENTS = ("rendezvous",)
"""The environments whose number of agents can be configured."""

ENDLESS = ("pendulum", "counting")
"""The built-in environments whose episodes end only by truncation."""

_MASKED = ("hackmatrix", "counting", "corridor", "recall", "rendezvous")

EXTRAS = {
    "gymnax": "gymnax",
    "brax": "brax",
    "playground": "mujoco_playground",
    "smax": "jaxmarl",
    "craftax": "craftax",
    "navix": "navix",
    "xminigrid": "xminigrid",
    "jumanji": "jumanji",
}
"""Optional extras that bring environments, and the package that each needs; an id of theirs is `EXTRA/NAME`."""

_measured: dict[tuple[object, ...], EnvFacts] = {}
"""Facts about environments of extras and users, which are known only once they are built."""

_limits: dict[tuple[object, ...], int] = {}
"""Step limits of environments that were built; they also depend on `env.max_steps`."""


def extra_of(env_id: str) -> str:
    """Return the extra that an environment comes from; empty if it is built in or does not exist."""
    extra, slash, name = env_id.partition("/")
    return extra if extra in EXTRAS and slash and name else ""


def has_mask(env_id: str) -> bool:
    """Return whether some actions of the environment are known to be illegal in some states."""
    return env_id in _MASKED or smax_facts.scenario(env_id) is not None


def own_agents(env_id: str) -> int:
    """Return the number of agents that the environment itself fixes; 0 if it is configured, or is one."""
    found = smax_facts.scenario(env_id)
    return found[0] if found else 0


def learn_facts(cfg: EnvConfig, facts: EnvFacts) -> None:
    """Keep the facts of an environment that is not built in for `env_facts`."""
    _measured[_identity(cfg)] = facts


def learn_limit(cfg: EnvConfig, limit: int) -> None:
    """Keep the step limit of an environment that was built for `step_limit`."""
    _limits[_limit_key(cfg)] = limit


def facts_known(cfg: EnvConfig) -> bool:
    """Return whether `env_facts` knows the environment: built in, of SMAX, or already built."""
    return cfg.id in ENV_IDS or _identity(cfg) in _measured or smax_facts.scenario(cfg.id) is not None


def _identity(cfg: EnvConfig) -> tuple[object, ...]:
    return cfg.id, cfg.my, cfg.sha256


def _limit_key(cfg: EnvConfig) -> tuple[object, ...]:
    return *_identity(cfg), cfg.max_steps


_CELLS, _CELL_FEATURES, _FLAT = 36, 37, 1545


def env_facts(cfg: EnvConfig) -> EnvFacts:
    """Return the facts of the environment `cfg.id`.

    Raises:
        KeyError: the environment does not exist, or is not built in and not built yet; see `facts_known`.
    """
    if _identity(cfg) in _measured:
        return _measured[_identity(cfg)]
    if cfg.id == "hackmatrix":
        # a game, its steps and its legal actions; every snapshot for UNDO is another 288 bytes
        state = 363 + 288 * cfg.undo_depth
        if cfg.obs == "flat":
            return EnvFacts(_FLAT, 4 * _FLAT, _FLAT, 28, state)
        board = BoardSizes(scalars=33, cells=2 * _CELLS + 1, features=_CELL_FEATURES)
        return EnvFacts(67, 4 * 67, _FLAT, 28, state, board, decode=_CELLS * _CELL_FEATURES)
    if units := smax_facts.scenario(cfg.id):
        own, actions, state = smax_facts.sizes(*units)
        world = smax_facts.world_size(*units) if cfg.world_state else 0
        return EnvFacts(own + world, 4 * (own + world), own + world, actions, state, value_only=world)
    if cfg.id == "rendezvous":
        size = 11 + cfg.num_agents
        return EnvFacts(size, 4 * size, size, 3, 5 + 5 * cfg.num_agents)
    if cfg.id in _CONTINUOUS:
        size, dim, state = _CONTINUOUS[cfg.id]
        return EnvFacts(size, 4 * size, size, 0, state, action_dim=dim)
    size, actions = _SIZES[cfg.id]
    return EnvFacts(size, 4 * size, size, actions, _STATE_BYTES.get(cfg.id, 8))
