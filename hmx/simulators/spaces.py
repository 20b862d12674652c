"""What a simulator observes and takes, read from its spaces as plain data.

Spaces are recognised by what they offer, as in Gymnasium: `n` (Discrete), `nvec` (MultiDiscrete), `low`, `high`,
`shape` and `dtype` (Box), or a mapping `spaces` (Dict). So this module needs no package.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from hmx.errors import HmxError
from hmx.registry.observations import is_image
from hmx.simulators.observations import GUIDE, Observations, Space, kind_of, observations_of


class Facts(NamedTuple):
    """The form of a simulator's observations and actions, and what else it offers; plain data."""

    obs_shape: tuple[int, ...]  # [F] of joined parts, [H, W, C] of an image
    obs_dtype: str  # float32; uint8 or bool for images
    action_parts: tuple[int, ...]  # choices of each part of a discrete action; empty for continuous actions
    action_dim: int  # numbers of a continuous action; 0 for discrete ones
    limit: int  # steps after which the simulator truncates an episode by itself; 0 if unknown
    has_state: bool  # whether it has `get_state` and `set_state`
    render_mode: str  # empty for none
    action_low: tuple[float, ...] = ()  # limits of the numbers of a continuous action
    action_high: tuple[float, ...] = ()
    step_seconds: float = 0.0  # simulated time of a step, which its attribute `dt` states; 0 if it has none
    obs_parts: tuple[tuple[str, int], ...] = ()  # names and sizes of joined parts in order; empty for a single array
    obs_low: tuple[float, ...] = ()  # limits of the numbers of an observation; empty for images
    obs_high: tuple[float, ...] = ()
    statistics: tuple[str, ...] = ()  # its wrappers that keep running statistics over episodes

    @property
    def num_actions(self) -> int:
        """Return the number of choices over all parts; 0 for continuous actions."""
        return sum(self.action_parts)

    @property
    def action_form(self) -> tuple[tuple[int, ...], str]:
        """Return shape and dtype of an action: int32 per part, or float32 in [-1, 1] per number."""
        return ((len(self.action_parts),), "int32") if self.action_parts else ((self.action_dim,), "float32")


def step_rows(facts: Facts, size: int) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """Return the rows that ask for steps from given states of `size` bytes, and those that answer."""
    action, dtype = facts.action_form
    obs = (np.dtype(facts.obs_dtype), facts.obs_shape)
    legal = (np.bool_, (facts.num_actions,))
    at: list[Any] = [("state", np.uint8, (size,)), ("steps", np.int32)]
    shown: list[Any] = [("obs", *obs), ("legal", *legal), ("final_obs", *obs), ("final_legal", *legal)]
    ends: list[Any] = [("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_)]
    return np.dtype([*at, ("action", dtype, action), ("key", np.uint32, (2,))]), np.dtype(at + shown + ends)


def facts_of(env: Any) -> Facts:
    """Read the spaces and abilities of a simulator.

    Raises:
        HmxError: a space is missing or of a kind that no network here reads, with the reason.
    """
    if hasattr(env, "single_action_space"):
        message = "cannot use a vector of environments: hmx makes several simulators itself"
        raise HmxError(message, "make a single environment; env.num_envs says how many")
    observations = observations_of(_space(env, "observation_space"))
    parts, action_dim = _actions(_space(env, "action_space"))
    mode = getattr(env, "render_mode", None) or ""
    if mode == "human":
        message = "cannot train in a simulator that opens a window: its render_mode is human"
        raise HmxError(message, "make it without render_mode, or with render_mode='rgb_array'")
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None) or 0
    has_state = all(callable(getattr(env, name, None)) for name in ("get_state", "set_state"))
    low, high = _limits(env.action_space) if action_dim else ((), ())
    obs_low, obs_high = ((), ()) if is_image(observations.shape) else _limits(observations)
    return Facts(
        observations.shape,
        observations.dtype,
        parts,
        action_dim,
        int(limit),
        has_state,
        str(mode),
        low,
        high,
        _step_seconds(env),
        observations.parts,
        obs_low,
        obs_high,
        tuple(_with_statistics(env)),
    )


def facts_from(values: dict[str, Any]) -> Facts:
    """Return facts from their JSON object."""
    return Facts(**{name: _as_tuples(value) for name, value in values.items()})


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


def _space(env: Any, name: str) -> Space:
    space = getattr(env, name, None)
    if space is None or callable(getattr(env, name)):
        raise HmxError(f"cannot use this simulator: it has no {name}", f"set {name} in __init__; {GUIDE}")
    return space


def _actions(space: Space) -> tuple[tuple[int, ...], int]:
    if hasattr(space, "nvec"):
        return tuple(int(n) for n in np.ravel(space.nvec)), 0
    if hasattr(space, "n") and np.ndim(space.n) == 0 and kind_of(space) != "MultiBinary":
        return (int(space.n),), 0
    if not (hasattr(space, "low") and hasattr(space, "high")):
        message = f"cannot take actions of the space {kind_of(space)}: hmx takes Discrete, MultiDiscrete and Box"
        raise HmxError(message, GUIDE)
    if not np.issubdtype(np.dtype(space.dtype), np.floating):
        raise HmxError(f"cannot take actions of a Box of {np.dtype(space.dtype)}", f"use MultiDiscrete; {GUIDE}")
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        hint = f"give finite limits, as gymnasium.wrappers.RescaleAction does; {GUIDE}"
        raise HmxError("cannot take actions of a Box without limits: policies here are bounded", hint)
    return (), math.prod(int(size) for size in space.shape)


def _limits(space: Space | Observations) -> tuple[tuple[float, ...], tuple[float, ...]]:
    low, high = (np.broadcast_to(limit, space.shape).ravel() for limit in (space.low, space.high))
    return tuple(map(float, low)), tuple(map(float, high))


def _with_statistics(env: Any) -> Iterator[str]:
    """Yield the classes of wrappers that normalise by running statistics, the outermost first."""
    seen: list[Any] = []
    while env is not None and not any(env is layer for layer in seen):
        seen.append(env)
        kept = getattr(env, "__dict__", {})
        if any(type(value).__name__ == "RunningMeanStd" for value in kept.values()):
            yield type(env).__name__
        env = kept.get("env")


def _step_seconds(env: Any) -> float:
    """Return the `dt` of a simulator, as those of MuJoCo in Gymnasium have it; 0 if it has no positive one."""
    seconds = getattr(getattr(env, "unwrapped", env), "dt", 0.0)
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return float(seconds) if is_number and 0.0 < seconds < math.inf else 0.0


def random_rows(noise: np.ndarray, facts: Facts, legal: np.ndarray) -> np.ndarray:
    """Return random legal actions `[E, P]`, as `Actions` takes them, uniform over those of each part.

    Args:
        noise: uniform numbers from 0 to 1, `[E, num_actions]`, or `[E, action_dim]` for continuous actions.
        facts: of the simulator.
        legal: `[E, num_actions]`.
    """
    if facts.action_dim:
        return 2.0 * noise - 1.0
    ranked, ends = noise + legal, np.cumsum((0, *facts.action_parts))
    return np.stack([ranked[:, ends[i] : ends[i + 1]].argmax(1) for i in range(len(facts.action_parts))], axis=1)


class Actions:
    """Convert actions as policies give them to those of a space.

    A row is an int32 per part of a discrete action, or numbers in [-1, 1], which are scaled to the limits.
    """

    def __init__(self, space: Space) -> None:
        self._several, self._discrete = hasattr(space, "nvec"), hasattr(space, "nvec") or hasattr(space, "n")
        self._start = np.asarray(getattr(space, "start", 0))
        if self._several:
            self._shape, self._dtype = np.shape(space.nvec), np.dtype(getattr(space, "dtype", np.int64))
        elif not self._discrete:
            self._shape, self._dtype = tuple(space.shape), np.dtype(space.dtype)
            self._low = np.asarray(space.low, np.float64)
            self._half = (np.asarray(space.high, np.float64) - self._low) / 2
            self._limits = np.asarray(space.low), np.asarray(space.high)

    def __call__(self, row: np.ndarray) -> Any:
        """Return the action of a row."""
        if self._several:
            return (row.reshape(self._shape) + self._start).astype(self._dtype)
        if self._discrete:
            return int(row[0]) + int(self._start)
        unit = row.astype(np.float64).reshape(self._shape)
        scaled = (self._low + (unit + 1.0) * self._half).astype(self._dtype)
        return np.clip(scaled, *self._limits)
