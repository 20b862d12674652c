"""From the observations of a space to the arrays that networks read."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from hmx.errors import HmxError
from hmx.registry.observations import CRITIC, is_image, ordered
from hmx.simulators.answers import OBSERVATIONS, Broken, numbers

Space = Any  # of a simulator
GUIDE = "docs/simulators.md lists the spaces that hmx reads; a wrapper can convert others"


class Observations(NamedTuple):
    """What networks read of a space: the form of the arrays, their limits, and the conversion.

    The parts of a Dict are joined to one vector, in the order of `hmx.registry.observations`. The channels of an image
    come last. `read` raises `Broken` for an observation of another form than the space.
    """

    shape: tuple[int, ...]
    dtype: str
    low: np.ndarray
    high: np.ndarray
    read: Callable[[Any], np.ndarray]
    parts: tuple[tuple[str, int], ...] = ()  # names and sizes of joined parts, in order; empty for a single array


def kind_of(space: Space) -> str:
    """Return the name of the class of a space."""
    return type(space).__name__


def observations_of(space: Space) -> Observations:
    """Return how a space is read.

    Raises:
        HmxError: it is neither a Box nor a Dict of them, it is empty, or the policy would read nothing.
    """
    inside = getattr(space, "spaces", None)
    if isinstance(inside, Mapping):
        return _of_parts({name: inside[name] for name in ordered(inside)})
    _check_box(space, f"observations of the space {kind_of(space)}")
    return _of_image(space) if is_image(space.shape) else _of_box(space, "float32")


def _of_box(space: Space, dtype: str) -> Observations:
    shape = tuple(int(size) for size in space.shape)

    def read(obs: Any) -> np.ndarray:
        array = numbers(obs, dtype, "an observation")
        if array.shape != shape:
            raise Broken(f"an observation has shape {array.shape}; its space has {shape}", OBSERVATIONS)
        return array

    return Observations(shape, dtype, *_limits(space), read)


def _of_image(space: Space) -> Observations:
    """Read an image, whose first axis is that of the channels if it is the shortest, as with stacked frames."""
    dtype = str(np.dtype(space.dtype))
    plain = _of_box(space, dtype if dtype in ("uint8", "bool") else "float32")
    if plain.shape[0] >= min(plain.shape[1:]):
        return plain
    shape = (*plain.shape[1:], plain.shape[0])
    low, high = (np.moveaxis(limit, 0, -1) for limit in (plain.low, plain.high))
    return Observations(
        shape, plain.dtype, low, high, lambda obs: np.ascontiguousarray(np.moveaxis(plain.read(obs), 0, -1))
    )


def _of_parts(boxes: Mapping[str, Space]) -> Observations:
    if set(boxes) <= {CRITIC}:
        message = f"cannot read observations with the parts {list(boxes)}: the policy reads none of them"
        raise HmxError(message, "name what the policy reads policy")
    for name, box in boxes.items():
        _check_part(name, box)
    parts = tuple((name, math.prod(box.shape)) for name, box in boxes.items())
    shapes = {name: tuple(box.shape) for name, box in boxes.items()}
    limits = [_limits(box) for box in boxes.values()]
    low, high = (np.concatenate([np.ravel(pair[end]) for pair in limits]) for end in (0, 1))
    shape = (sum(size for _, size in parts),)

    def read(obs: Any) -> np.ndarray:
        if not isinstance(obs, Mapping) or obs.keys() != shapes.keys():
            shown = f"the parts {sorted(obs)}" if isinstance(obs, Mapping) else f"the type {type(obs).__name__}"
            raise Broken(f"an observation has {shown}; its space has the parts {sorted(shapes)}", OBSERVATIONS)
        joined = np.empty(shape, np.float32)
        start = 0
        for name, size in parts:
            part = numbers(obs[name], "float32", f"the part {name} of an observation")
            if part.shape != shapes[name]:
                what = f"the part {name} of an observation has shape {part.shape}"
                raise Broken(f"{what}; its space has {shapes[name]}", OBSERVATIONS)
            joined[start : start + size] = part.reshape(-1)
            start += size
        return joined

    return Observations(shape, "float32", low, high, read, parts)


def _limits(space: Space) -> tuple[np.ndarray, np.ndarray]:
    return np.broadcast_to(space.low, space.shape), np.broadcast_to(space.high, space.shape)


def _check_box(space: Space, what: str) -> None:
    if not all(hasattr(space, name) for name in ("low", "high", "shape", "dtype")):
        hint = f"wrap it so that it shows one Box, as gymnasium.wrappers.FlattenObservation does; {GUIDE}"
        raise HmxError(f"cannot read {what}: hmx reads Box, and Dict of them", hint)
    if not math.prod(space.shape):
        raise HmxError(f"cannot read observations of shape {tuple(space.shape)}: they hold no numbers", GUIDE)


def _check_part(name: str, space: Space) -> None:
    _check_box(space, f"the part {name} of observations, of the space {kind_of(space)}")
    if is_image(space.shape):
        message = f"cannot read the part {name} of observations: an image cannot be joined with other numbers"
        raise HmxError(message, f"show the image alone, or numbers in its place; {GUIDE}")
