"""What all pages of HTML share: one file with its drawings inside, no script, nothing fetched."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; max-width: 1120px; margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin: 1.6em 0 .4em; } h3 { font-size: 1em; margin: 0 0 .3em; }
.plots { display: flex; flex-wrap: wrap; gap: 24px; } figure { margin: 0; max-width: 520px; }
figcaption { color: #555; font-size: 13px; } svg { max-width: 100%; height: auto; }
.finding { font-weight: 600; } .warning { color: #8a4b00; } .failed { color: #b2182b; font-weight: 600; }
"""


class Drawing(NamedTuple):
    """A drawing with what stands above and below it."""

    heading: str
    svg: str
    caption: str


def document(title: str, body: str, style: str = "") -> str:
    """The whole page; `style` is what its own parts need beside the common one."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}{style.lstrip()}</style></head><body><h1>{escape(title)}</h1>{body}</body></html>\n"
    )


def figures(drawings: Iterable[Drawing]) -> str:
    """Drawings side by side, as many as there is room for."""
    shown = "".join(
        f"<figure><h3>{escape(heading)}</h3>{svg}<figcaption>{escape(caption)}</figcaption></figure>"
        for heading, svg, caption in drawings
    )
    return f'<div class="plots">{shown}</div>'


def paragraph(text: str, kind: str = "") -> str:
    """A line of text of a kind that the style knows."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def sentence(text: str) -> str:
    """With a capital at its start."""
    return text[:1].upper() + text[1:]
