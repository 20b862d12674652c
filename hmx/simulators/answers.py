"""Convert what a simulator returns: numbers, truth values and pictures. Anything else is an error that names it."""

from __future__ import annotations

import numpy as np

_NUMBERS = "biuf"  # kinds of dtypes that are real numbers
_CHANNELS = (1, 3, 4)  # grey, RGB, and RGB with transparency


OBSERVATIONS = "observations"  # the check of observations that are not of their space


class Broken(Exception):
    """A simulator returned something that cannot be trained on; the text says what.

    Attributes:
        check: the check of `hmx.simulators.checks` that it fails.
    """

    def __init__(self, text: str, check: str = "interface") -> None:
        super().__init__(text)
        self.check = check


def truths(given: object, what: str) -> np.ndarray:
    """Return truth values as bools; numbers must be 0 or 1, since others have no certain meaning."""
    array = np.asarray(given)
    if array.dtype == np.bool_:
        return array
    if array.dtype.kind not in _NUMBERS:
        raise Broken(f"{what} has the type {array.dtype}; expected bool")
    ones: np.ndarray = array == 1
    wrong = array[~(ones | (array == 0))]
    if wrong.size:
        added = (array <= 0).all()
        more = "; of a mask that is added to logits, return the places where it is 0" if added else ""
        raise Broken(f"{what} has the number {wrong.flat[0]:g}; expected bools, or 0 and 1{more}")
    return ones


def flag(given: object, what: str) -> bool:
    """Return one truth value; see `truths`."""
    if isinstance(given, bool):
        return given
    array = np.asarray(given)
    if array.size != 1:
        raise Broken(f"{what} has the shape {array.shape}; expected one bool")
    return bool(truths(array, what).reshape(()))


def number(given: object, what: str) -> float:
    """Return one real number, which may be infinite or NaN."""
    if isinstance(given, float):
        return float(given)
    array = np.asarray(given)
    if array.size != 1 or array.dtype.kind not in _NUMBERS:
        raise Broken(f"{what} is {_shown(given, array)}; expected one number")
    return float(array.reshape(()))


def numbers(given: object, dtype: str, what: str) -> np.ndarray:
    """Return an array of a type, to which integers and bools must convert without a change of their values."""
    array = np.asarray(given)
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in _NUMBERS:
        raise Broken(f"{what} has the type {array.dtype}; expected {dtype}", OBSERVATIONS)
    with np.errstate(invalid="ignore", over="ignore"):
        cast: np.ndarray = array.astype(dtype)
    if cast.dtype.kind != "f" and not (cast == array).all():
        wrong = array[cast != array].flat[0]
        raise Broken(f"{what} has the number {wrong:g}, which its space of {dtype} does not have", OBSERVATIONS)
    return cast


def picture(given: object) -> np.ndarray:
    """Return a rendered picture as uint8 `[height, width, 3]`.

    Colours are bytes, or floats from 0 to 1 or to 255; channels are the last axis or the first one, and may be missing
    (grey). Transparency is left out. Of a list of pictures, as in the mode `rgb_array_list`, the last one counts.
    """
    what = "what render returned"
    if isinstance(given, list | tuple) and given and getattr(given[-1], "ndim", 0) > 1:
        given = given[-1]
    array = np.asarray(given)
    if array.ndim == 4 and len(array):
        array = array[-1]
    if array.dtype.kind not in _NUMBERS:
        raise Broken(f"{what} is {_shown(given, array)}; expected a picture")
    shape = array.shape
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim == 3 and array.shape[-1] not in _CHANNELS and array.shape[0] in _CHANNELS:
        array = np.moveaxis(array, 0, -1)
    if array.ndim != 3 or array.shape[-1] not in _CHANNELS or not array.size:
        raise Broken(f"{what} has the shape {shape}; expected [height, width, 3]")
    colours = np.repeat(array, 3, axis=-1) if array.shape[-1] == 1 else array[..., :3]
    return np.ascontiguousarray(_bytes(colours, what))


def _bytes(colours: np.ndarray, what: str) -> np.ndarray:
    if colours.dtype == np.uint8:
        return colours
    low, high = float(colours.min()), float(colours.max())
    if not (low >= 0 and high <= 255):
        raise Broken(f"{what} has colours from {low:g} to {high:g}; expected bytes, or floats from 0 to 1")
    scale = 255 if high <= 1 and colours.dtype.kind in "bf" else 1
    return np.rint(colours.astype(np.float64) * scale).astype(np.uint8)


def _shown(given: object, array: np.ndarray) -> str:
    if given is None:
        return "None"
    return f"a {type(given).__name__}" + (f" of shape {array.shape}" if array.ndim else "")
