"""Pictures in a terminal: two pixels per character, one above the other."""

from __future__ import annotations

from typing import Any

import numpy as np
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.text import Text

_UPPER_HALF = "▀"  # in the colour of the upper pixel, on that of the lower one


def can_show(console: Console) -> bool:
    """Return whether a terminal has the colours and characters for pictures."""
    colours = not console.no_color and console.color_system in ("256", "truecolor")
    return console.is_terminal and colours and not console.options.ascii_only


def half_blocks(image: np.ndarray[Any, Any], columns: int, lines: int) -> Text:
    """Draw a picture, uint8 `[height, width, 3]`, in at most so many columns and lines, in its proportions."""
    height, width = image.shape[:2]
    scale = min(columns / width, 2 * lines / height, 1.0)
    small = _shrunk(image, 2 * max(int(scale * height / 2), 1), max(int(scale * width), 1))
    text = Text(no_wrap=True, overflow="crop")
    for i in range(0, len(small), 2):
        for upper, lower in zip(small[i], small[i + 1], strict=True):
            text.append(_UPPER_HALF, Style(color=Color.from_rgb(*upper), bgcolor=Color.from_rgb(*lower)))
        text.append("\n")
    text.right_crop(1)
    return text


def _shrunk(image: np.ndarray[Any, Any], height: int, width: int) -> np.ndarray[Any, Any]:
    """Return the mean colours of `height` x `width` blocks of a picture."""
    mean: np.ndarray[Any, Any] = image.astype(np.float32)
    for axis, size in enumerate((height, width)):
        edges = np.linspace(0, image.shape[axis], size + 1).astype(int)
        starts = np.minimum(edges[:-1], image.shape[axis] - 1)
        counts = np.maximum(np.diff(edges), 1).reshape(-1, *[1] * (2 - axis))
        mean = np.add.reduceat(mean, starts, axis=axis) / counts
    return mean
