"""Draw rectangles, lines, dots and words as SVG text, and scale values to pixels."""

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


def linear(low: float, high: float, start: float, end: float, count: int = 5, seconds: bool = False) -> Scale:
    """Return a linear scale from `low` to `high` with ticks at round numbers, or round durations for seconds."""
    if not high > low:
        high = low + 1.0
    step = _round_step((high - low) / max(count, 1), seconds)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    ticks = tuple(float(f"{i * step:.12g}") for i in range(first, last + 1))
    return Scale(lambda value: start + (value - low) / (high - low) * (end - start), ticks)


def logarithmic(low: float, high: float, start: float, end: float, most: int = 8) -> Scale:
    """Return a logarithmic scale between positive values with at most about `most` ticks at round numbers."""
    below, above = math.log10(low), math.log10(high)
    if above - below < 0.2:
        below, above = below - 0.1, above + 0.1
    powers = range(math.floor(below), math.ceil(above) + 1)
    factors = (1.0, 2.0, 5.0) if above - below < 2 else (1.0,)
    found = [f * 10.0**p for p in powers for f in factors if below - 1e-9 <= math.log10(f * 10.0**p) <= above + 1e-9]
    ticks = tuple(found[:: -(-len(found) // most)]) if len(found) > 1 else linear(10**below, 10**above, 0, 1, 4).ticks
    return Scale(lambda value: start + (math.log10(value) - below) / (above - below) * (end - start), ticks)


def _round_step(step: float, seconds: bool) -> float:
    if seconds and 10 < step <= 86400:
        return next(s for s in (15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400) if s >= step)
    power = 10.0 ** math.floor(math.log10(step))
    return next(f * power for f in (1.0, 2.0, 2.5, 5.0, 10.0) if f * power >= step * (1 - 1e-9))


def rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    """Return a filled rectangle; `title` is shown by a pointer that rests on it."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">{inner}</rect>'


def line(points: Sequence[tuple[float, float]], colour: str = INK, width: float = 1.0, dash: str = "") -> str:
    """Return a line through points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"{dashed}/>'


def area(points: Sequence[tuple[float, float]], colour: str, opacity: float = 0.18) -> str:
    """Return a translucent filled shape without an outline."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polygon points="{path}" fill="{colour}" fill-opacity="{opacity}"/>'


def dot(x: float, y: float, radius: float, colour: str, title: str = "") -> str:
    """Return a disc."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colour}">{inner}</circle>'


def words(
    x: float,
    y: float,
    text: str,
    anchor: str = "start",
    size: int = 11,
    colour: str = INK,
    turn: int = 0,
    mono: bool = False,
) -> str:
    """Return a line of text whose baseline is at y; `mono` gives all letters one width."""
    family = ' font-family="ui-monospace, monospace"' if mono else ""
    turned = f' transform="rotate({turn} {x:.1f} {y:.1f})"' if turn else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{family}{turned}>'
        f"{escape(text)}</text>"
    )


def figure(width: float, height: float, parts: Sequence[str], label: str) -> str:
    """Return a whole drawing; screen readers read `label`."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}" font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
    )
