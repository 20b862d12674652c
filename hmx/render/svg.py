"""Draw rectangles, dots and words as SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

INK = "#222"


def rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    """Return a filled rectangle; `title` is shown by a pointer that rests on it."""
    inner = f"<title>{escape(title)}</title>" if title else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}">{inner}</rect>'


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
    mono: bool = False,
) -> str:
    """Return a line of text whose baseline is at y; `mono` gives all letters one width."""
    family = ' font-family="ui-monospace, monospace"' if mono else ""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}"{family}>'
        f"{escape(text)}</text>"
    )


def figure(width: float, height: float, parts: Sequence[str], label: str) -> str:
    """Return a whole drawing; screen readers read `label`."""
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(label)}" font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
    )
