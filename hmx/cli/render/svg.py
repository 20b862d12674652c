"""Drawings as SVG text: rectangles, lines, words, and scales for them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

INK, GRID, FAINT = "#222", "#ddd", "#777"


class Scale(NamedTuple):
    """From values to places."""

    place: Callable[[float], float]
    ticks: tuple[float, ...]


class Frame(NamedTuple):
    """The size of a drawing and the room around what it plots, in pixels."""

    width: float = 520.0
    height: float = 300.0
    left: float = 64.0
    right: float = 16.0
    top: float = 30.0
    bottom: float = 46.0

    @property
    def across(self) -> tuple[float, float]:
        """From the left to the right end of what is plotted."""
        return self.left, self.width - self.right

    @property
    def upward(self) -> tuple[float, float]:
        """From its bottom to its top."""
        return self.height - self.bottom, self.top

    def axes(
        self, x_label: str, y_label: str,
        x: Scale | None = None, y: Scale | None = None,
        show_x: Callable[[float], str] = str, show_y: Callable[[float], str] = str,
    ) -> list[str]:  # fmt: skip
        """Both axes with their names; a scale gets its ticks in words, that of `y` lines as well."""
        (left, right), (bottom, top) = self.across, self.upward
        parts = []
        if y:
            for tick in y.ticks:
                parts.append(line([(left, y.place(tick)), (right, y.place(tick))], GRID))
                parts.append(words(left - 6, y.place(tick) + 4, show_y(tick), "end"))
        if x:
            parts += [words(x.place(tick), bottom + 16, show_x(tick), "middle") for tick in x.ticks]
        parts.append(line([(left, top), (left, bottom), (right, bottom)]))
        parts.append(words((left + right) / 2, self.height - 8, x_label, "middle", colour=FAINT))
        parts.append(words(14, (top + bottom) / 2, y_label, "middle", colour=FAINT, turn=-90))
        return parts

    def whole(self, parts: Sequence[str], label: str) -> str:
        """The drawing of this size; `label` is for who cannot see it."""
        return figure(self.width, self.height, parts, label)


def nothing(why: str) -> str:
    """What stands where there is nothing to draw."""
    return figure(Frame().width, 60, [words(10, 34, why)], "nothing")


def linear(low: float, high: float, start: float, end: float, count: int = 5) -> Scale:
    """A linear scale from `low` to `high`, with ticks at round numbers within."""
    if not high > low:
        high = low + 1.0
    step = _round_step((high - low) / max(count, 1))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = tuple(round(i * step, 12) for i in range(first, last + 1))
    return Scale(lambda value: start + (value - low) / (high - low) * (end - start), ticks)


def logarithmic(low: float, high: float, start: float, end: float) -> Scale:
    """A logarithmic scale between positive values, with ticks at powers of ten (and their halves if few)."""
    below, above = math.log10(low), math.log10(high)
    if above - below < 0.2:
        below, above = below - 0.1, above + 0.1
    powers = range(math.floor(below), math.ceil(above) + 1)
    factors = (1.0, 2.0, 5.0) if above - below < 2 else (1.0,)
    ticks = tuple(
        f * 10.0**p for p in powers for f in factors if below - 1e-9 <= math.log10(f * 10.0**p) <= above + 1e-9
    )
    return Scale(lambda value: start + (math.log10(value) - below) / (above - below) * (end - start), ticks)


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= step * (1 - 1e-9))


def rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    """A filled rectangle, with words for a pointer that rests on it."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">{inner}</rect>'


def line(points: Sequence[tuple[float, float]], colour: str = INK, width: float = 1.0, dash: str = "") -> str:
    """A line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def area(points: Sequence[tuple[float, float]], colour: str, opacity: float = 0.18) -> str:
    """A filled shape without an outline, seen through."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{colour}" fill-opacity="{opacity}"/>'


def dot(x: float, y: float, radius: float, colour: str, title: str = "") -> str:
    """A disc."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}">{inner}</circle>'


def words(
    x: float, y: float, text: str, anchor: str = "start", size: int = 11, colour: str = INK, turn: int = 0
) -> str:
    """A line of text whose baseline is at y."""
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{turned}>'
        f"{escape(text)}</text>"
    )


def figure(width: float, height: float, parts: Sequence[str], label: str) -> str:
    """A whole drawing; `label` is for who cannot see it."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}" font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
    )


def diverging(value: float) -> str:
    """Blue for -1, white for 0, red for 1."""
    share = min(max(abs(value), 0.0), 1.0)
    strong = (178, 24, 43) if value > 0 else (33, 102, 172)
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in strong)


def rising(value: float) -> str:
    """White for 0 to dark green for 1."""
    share = min(max(value, 0.0), 1.0)
    return "#" + "".join(f"{round(255 + (c - 255) * share):02x}" for c in (0, 90, 50))
