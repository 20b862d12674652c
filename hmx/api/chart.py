"""Curves of runs for notebooks and files."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from pathlib import Path

from hmx.api.hints import for_python
from hmx.errors import HmxError, counted
from hmx.records.curves import RETURN
from hmx.records.layout import find_run
from hmx.records.metrics_table import METRICS
from hmx.records.paths import DEFAULT_ROOT
from hmx.render import figures
from hmx.render.blocks import Axis, Document, Plot
from hmx.render.html import page
from hmx.reports.curves import agents_of, mean_curve, read_metrics

_HEIGHT = 420  # pixels in a notebook


@dataclass(frozen=True, repr=False)
class Chart:
    """A figure: a notebook shows it, and `save` writes it as a page or, for papers, as PDF, PNG or SVG."""

    plot: Plot

    def __repr__(self) -> str:
        """Name the metric and count its curves."""
        return f"Chart({self.plot.title!r}, {counted(len(self.plot.series), 'curve')})"

    def html(self) -> str:
        """Return a page that needs no other file."""
        return page(Document("", (self.plot,)))

    def save(self, path: str | Path) -> None:
        """Write the figure to a file: .pdf, .png or .svg (extra `figures`), otherwise a page.

        Raises:
            HmxError: matplotlib is not installed.
        """
        if Path(path).suffix.lower() in figures.FORMAT_NAMES:
            figures.save([self.plot], Path(path))
        else:
            Path(path).write_text(self.html(), encoding="utf-8")

    def _repr_html_(self) -> str:
        """Show the page in a notebook, in a separate frame: its style does not change the notebook's."""
        return f'<iframe srcdoc="{escape(self.html())}" width="100%" height="{_HEIGHT}" style="border: 0"></iframe>'


@for_python
def plot(*runs: str | Path, metric: str = RETURN, root: str | Path = DEFAULT_ROOT) -> Chart:
    """Draw a metric of runs over environment steps, each run averaged over its seeds.

    Args:
        runs: names or paths.
        metric: its name; docs/metrics.md lists them.
        root: runs folder, for names.

    Raises:
        HmxError: there is no such run, or none has the metric.
    """
    series = []
    for number, run in enumerate(runs):
        found = read_metrics(find_run(run, root).metrics, {metric})
        curve = mean_curve(agents_of(found), metric)
        if curve is not None:
            series.append(curve.series(Path(run).name, colour=number))
    if not series:
        raise HmxError(f"cannot plot {metric}: no run reports it", "hmx.load_metrics(run).keys() are the names")
    info = METRICS.get(metric)
    label = metric.rpartition("/")[2].replace("_", " ")
    caption = f"{info.help[:1].upper()}{info.help[1:]}." if info is not None else ""
    return Chart(Plot(label, Axis("environment steps"), Axis(label), tuple(series), caption))
