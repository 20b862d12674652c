"""Draw the pictures of docs/grad-report.md: the plots of several checkpoints side by side.

python tools/grad_picture.py RUN 4 32 60 > docs/img/grad-report.svg
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.render import plots, svg
from hmx.render.blocks import Plot
from hmx.render.quantities import number, short, signed
from hmx.reports.grad_report.figures import by_bucket
from hmx.reports.grad_report.findings import CheckpointReport
from hmx.reports.grad_report.job import grad_report
from hmx.reports.grad_report.request import GradReportRequest

WIDTH, HEIGHT, TOP = 490, 350, 36
STYLE = Path(plots.__file__).with_name("page.css").read_text()
LIGHT = STYLE.partition("{")[2].partition("}")[0]  # the colours of a page on a light ground


def column(report: CheckpointReport, left: float) -> list[str]:
    """Draw the plots of a checkpoint below each other."""
    whole = report.whole
    mean = f"TD error {number(whole.td_error)}" if report.replay else f"return {signed(whole.return_mean)}"
    title = f"update {report.update}, {short(report.env_steps)} steps, mean {mean}"
    parts = [svg.words(left + 20, 24, title, size=15)]
    for i, plot in enumerate(by_bucket(report)):
        parts += figure(plot, left, TOP + i * HEIGHT)
    return parts


def figure(plot: Plot, left: float, top: float) -> list[str]:
    """Draw a plot with its title and legend."""
    parts = [svg.words(left + 20, top + 18, plot.title, size=13)]
    x = left + 20.0
    for name, series in {series.name: series for series in plot.series}.items():
        parts += [placed(plots.swatch(series), x, top + 26), svg.words(x + 22, top + 36, name)]
        x += 34 + 6.5 * len(name)
    return [*parts, placed(plots.drawing(plot), left, top + 44)] if plots.has_values(plot) else parts


def placed(drawing: str, x: float, y: float) -> str:
    """Move a drawing."""
    return re.sub("<svg ", f'<svg x="{x:.0f}" y="{y:.0f}" ', drawing, count=1)


def picture(reports: list[CheckpointReport]) -> str:
    """Return a file with a column per report."""
    width, height = len(reports) * WIDTH, TOP + 3 * HEIGHT
    parts = [part for i, report in enumerate(reports) for part in column(report, i * WIDTH)]
    whole = svg.figure(width, height, parts, "gradient reports at several points of training")
    head, _, rest = whole.partition(">")
    style = f"<style>svg {{ {LIGHT} }}</style><rect width='{width}' height='{height}' fill='#fff'/>"
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("updates", type=int, nargs="+", help="checkpoints")
    parser.add_argument("--replay", action="store_true", help="stored transitions instead of episodes")
    args = parser.parse_args()
    requests = [
        GradReportRequest(checkpoint=update, replay=args.replay, crossfit=not args.replay) for update in args.updates
    ]
    sys.stdout.write(picture([grad_report(args.run, request).reports[0] for request in requests]))
