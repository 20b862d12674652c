"""The pictures of docs/grad-report.md: gradient reports side by side.

hmx grad-report RUN --checkpoint 4 --crossfit --json > at-4.json    (and so on)
python tools/grad_picture.py at-4.json at-32.json at-60.json > docs/img/grad-report.svg
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.cli import grad_plot
from hmx.cli.console import short
from hmx.cli.render import svg

_WIDTH, _TOP, _GAP = 540, 40, 24


def picture(reports: list[dict[str, Any]]) -> str:
    """A column per report: norms by bucket, shares in the update, and norms against what the buckets were ranked by."""
    parts, bottom = [], 0.0
    for i, report in enumerate(reports):
        point, left, top = report["checkpoint"], i * _WIDTH + 10, float(_TOP)
        replay = report["all"]["replay"]
        mean = f"TD error {replay['td_error']:.2g}" if replay else f"return {report['all']['return_mean']:+.2f}"
        title = f"update {point['update']}, {short(point['env_steps'])} steps, mean {mean}"
        parts.append(svg.words(left + 64, 24, title, size=15))
        shares = grad_plot.stacked if len(report["coefs"]) > 1 else grad_plot.origins
        for drawing in (grad_plot.norms(report), shares(report), grad_plot.slopes(report)):
            parts.append(drawing.replace("<svg ", f'<svg x="{left}" y="{top:.0f}" ', 1))
            size = re.search(r'height="(\d+)"', drawing)
            top += float(size[1] if size else 0) + _GAP
        bottom = max(bottom, top)
    whole = svg.figure(len(reports) * _WIDTH, bottom, parts, "gradient reports at several points of training")
    ground = f'<rect width="{len(reports) * _WIDTH}" height="{bottom:.0f}" fill="#fff"/>'
    head, _, rest = whole.partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg">{ground}{rest}\n'


def main(paths: list[str]) -> None:
    """Draws the newest report of each file."""
    sys.stdout.write(picture([json.loads(Path(path).read_text(encoding="utf-8"))["reports"][-1] for path in paths]))


if __name__ == "__main__":
    main(sys.argv[1:])
