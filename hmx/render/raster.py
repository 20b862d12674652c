"""Drawings as pixels, with Pillow; and text as a drawing."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any

from hmx.render.blocks import Picture, Shape

BACK, INK = "#1d1f21", "#e4e6e8"
LEFT, HEIGHT = 300.0, 342.0  # pixels: the place of a text, and the height of its ground
_TALL, _WIDEST = 1.7, 40.0  # height of a letter's place as a multiple of its width; its largest width
_MONOSPACED = ("DejaVuSansMono.ttf", "LiberationMono-Regular.ttf", "Menlo.ttc")  # where Pillow looks for fonts


def raster(shapes: Sequence[Shape], width: float, height: float, scale: float = 1) -> Any:
    """Draw shapes in order on a dark ground as an image of Pillow, with `scale` pixels per pixel of the drawing."""
    from PIL import Image, ImageDraw

    image = Image.new("RGB", (round(width * scale), round(height * scale)), BACK)
    draw = ImageDraw.Draw(image)
    for shape in shapes:
        x, y, wide, tall = (scale * value for value in (shape.x, shape.y, shape.width, shape.height))
        if shape.kind == "rect":
            draw.rectangle((x, y, x + wide, y + tall), shape.fill)
        elif shape.kind == "circle":
            draw.ellipse((x - wide / 2, y - wide / 2, x + wide / 2, y + wide / 2), shape.fill)
        else:
            draw.text((x, y), shape.text, shape.fill, _font(tall or 12 * scale, shape.mono), "mm")
    return image


def lettered(text: str) -> Picture:
    """Draw a text letter by letter, as large as fits, in the middle of a dark ground."""
    ground = Shape("rect", 0, 0, LEFT + 16, HEIGHT, BACK)
    return Picture("the environment", text, LEFT + 16, HEIGHT, (ground, *_letters(text)))


def _letters(text: str) -> Iterator[Shape]:
    lines = text.split("\n")
    columns = max(map(len, lines))
    width = min(LEFT / columns, LEFT / (_TALL * len(lines)), _WIDEST)
    left, top = 8 + (LEFT - width * columns) / 2, (HEIGHT - _TALL * width * len(lines)) / 2
    for row, line in enumerate(lines):
        y = top + _TALL * width * (row + 0.5)
        for column, letter in enumerate(line):
            if letter != " ":
                x = left + width * (column + 0.5)
                yield Shape("text", x, y, height=1.5 * width, fill=INK, text=letter, mono=True)


@functools.cache
def _font(size: float, mono: bool) -> Any:
    """Return a font of Pillow; one with letters of one width if the system has such a font."""
    from PIL import ImageFont

    for name in _MONOSPACED if mono else ():
        with contextlib.suppress(OSError):
            return ImageFont.truetype(name, size)
    return ImageFont.load_default(size)
