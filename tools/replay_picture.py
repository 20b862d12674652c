"""The picture of docs/q-learning.md: what draws a transition, over the run and at its end.

python benchmarks/replay_arms.py --json > arms.jsonl
python tools/replay_picture.py arms.jsonl > docs/img/replay-arms.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from hmx.render import svg
from hmx.stats.intervals import bootstrap, mean

Row = dict[str, Any]  # the output of benchmarks/replay_arms.py --json for an arm

COLOURS = {
    "uniform": "#777777", "td": "#1f77b4", "qgap": "#e6ab02", "consequence": "#1b9e77", "additive": "#7570b3",
    "multiplicative": "#d95f02",
}  # fmt: skip
NAMES = {
    "uniform": "uniform", "td": "TD error", "qgap": "Q-gap and TD", "consequence": "consequence",
    "additive": "additive", "multiplicative": "multiplicative",
}  # fmt: skip
_WIDTH, _HEIGHT, _TOP, _BOTTOM, _LEFT = 1120.0, 400.0, 44.0, 348.0, 64.0
_SPLIT, _MIDDLE, _RIGHT = 640.0, 800.0, 1096.0


def picture(rows: Sequence[Row]) -> str:
    """Left the share of seeds whose greedy policy reaches the goal, right the mean return of the whole run."""
    rows = sorted(rows, key=lambda row: list(COLOURS).index(row["arm"]))
    parts = [f'<rect width="{_WIDTH:.0f}" height="{_HEIGHT:.0f}" fill="#fff"/>', *_curves(rows), *_intervals(rows)]
    label = "FrozenLake 8x8: seeds that reach the goal over the run, and return per episode, by what draws a transition"
    head, _, rest = svg.figure(_WIDTH, _HEIGHT, parts, label).partition(">")
    return f'{head} xmlns="http://www.w3.org/2000/svg">{rest}\n'


def _curves(rows: Sequence[Row]) -> list[str]:
    steps = rows[0]["at_steps"][-1]
    x, y = svg.linear(0.0, steps, _LEFT, _SPLIT), svg.linear(0.0, 1.0, _BOTTOM, _TOP)
    parts = [svg.words(_LEFT, 24, f"Greedy policy reaches the goal, share of {rows[0]['seeds']} seeds", size=14)]
    for tick in y.ticks:
        parts.append(svg.line([(_LEFT, y.place(tick)), (_SPLIT, y.place(tick))], svg.GRID))
        parts.append(svg.words(_LEFT - 8, y.place(tick) + 4, f"{tick:.1f}", "end"))
    parts += [svg.words(x.place(tick), _BOTTOM + 18, f"{tick / 1000:.0f}k", "middle") for tick in x.ticks]
    parts.append(svg.words((_LEFT + _SPLIT) / 2, _BOTTOM + 38, "environment steps", "middle", colour=svg.FAINT))
    for row in rows:
        shares = [mean(look) for look in row["solved_at"]]
        places = [(x.place(at), y.place(share)) for at, share in zip(row["at_steps"], shares, strict=True)]
        parts.append(svg.line(places, COLOURS[row["arm"]], 2.0))
    return parts


def _intervals(rows: Sequence[Row]) -> list[str]:
    """Draw a row per arm: every seed as a faint disc, the mean and its interval."""
    x = svg.linear(0.0, 1.0, _MIDDLE, _RIGHT)
    parts = [svg.words(_MIDDLE, 24, "Return per episode over the whole run", size=14)]
    for tick in x.ticks:
        parts.append(svg.line([(x.place(tick), _TOP), (x.place(tick), _BOTTOM)], svg.GRID))
        parts.append(svg.words(x.place(tick), _BOTTOM + 18, f"{tick:.1f}", "middle"))
    each = (_BOTTOM - _TOP) / len(rows)
    for i, row in enumerate(rows):
        parts += _interval(row, _TOP + (i + 0.5) * each, x.place)
    words = "mean and 95 % interval; a pale disc is a seed"
    parts.append(svg.words((_MIDDLE + _RIGHT) / 2, _BOTTOM + 38, words, "middle", colour=svg.FAINT))
    return parts


def _interval(row: Row, y: float, place: Callable[[float], float]) -> list[str]:
    colour, values = COLOURS[row["arm"]], row["whole"]
    parts = [svg.rect(_SPLIT + 24, y - 6, 12, 12, colour), svg.words(_SPLIT + 42, y + 4, NAMES[row["arm"]], size=13)]
    parts += [f'<g fill-opacity="0.3">{svg.dot(place(value), y, 4, colour)}</g>' for value in values]
    if interval := bootstrap(values):
        parts.append(svg.line([(place(interval.low), y), (place(interval.high), y)], svg.INK, 2.5))
    parts.append(svg.dot(place(mean(values)), y, 5, svg.INK, f"{mean(values):.2f}"))
    return parts


def main(path: str) -> None:
    """Draws the arms of a file."""
    sys.stdout.write(picture([json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]))


if __name__ == "__main__":
    main(sys.argv[1])
