"""Draw the picture of docs/compare.md: the learning curves of the first environment.

python tools/compare_picture.py SIDE SIDE ... > docs/img/compare.svg
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.render import plots, svg
from hmx.render.blocks import Aside, Document, Plot
from hmx.reports.compare.document import document
from hmx.reports.compare.job import compare
from hmx.reports.compare.request import CompareRequest

COLOURS = Path(plots.__file__).with_name("page.css").read_text().partition("{")[2].partition("}")[0]
_LEGEND, _LETTER, _SPACE = 24.0, 6.2, 12.0  # pixels: height, width of a letter, and space between names


def first_plot(report: Document) -> Plot:
    """Return the first plot of a report."""
    asides = [block for block in report.blocks if isinstance(block, Aside)]
    return next(block for aside in asides for block in aside.blocks if isinstance(block, Plot))


def picture(plot: Plot) -> str:
    """Return a plot as an SVG file with its legend."""
    named = {series.name: series for series in reversed(plot.series) if series.name}
    names, place = [], 12.0
    for name in plots.names(plot):
        names.append(svg.words(place, 16, name, size=11, colour=plots.colour(named[name])))
        place += _LETTER * len(name) + _SPACE
    drawn = plots.drawing(plot).replace("<svg ", f'<svg y="{_LEGEND:.0f}" ', 1)
    size = [float(part) for part in drawn.partition('viewBox="')[2].partition('"')[0].split()[2:]]
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    whole = svg.figure(
        size[0], size[1] + _LEGEND, [f"<style>:root {{{COLOURS}}}</style>", ground, *names, drawn], plot.title
    )
    return whole.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(picture(first_plot(document(compare(CompareRequest(sides=tuple(sys.argv[1:])))))))
