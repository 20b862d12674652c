"""The request of `hmx compare`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hmx.config.coerce import typed_number
from hmx.config.option import MAX_SEED, opt
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.records.curves import RETURN
from hmx.records.metrics_table import METRICS, Direction
from hmx.records.paths import DEFAULT_ROOT

EVALUATION = "evaluation"
MEASURE_PANEL = "Measure"
_LARGEST = 1e100  # of the values that runs report


class Window(NamedTuple):
    """The last part of a run: a share of the compared steps, or a number of steps."""

    share: float = 0.1
    steps: int = 0

    def __str__(self) -> str:
        return f"{self.steps}" if self.steps else f"{self.share:.0%}"

    def width(self, end: float) -> float:
        """Return the number of steps."""
        return min(float(self.steps), end) if self.steps else self.share * end


TENTH = Window()


def _window(text: str) -> Window:
    """Return the final part of a run from `10%` or a number of steps."""
    value = _number(text.strip().removesuffix("%"))
    if text.strip().endswith("%") and value is not None and 0 < value <= 100:
        return Window(share=value / 100)
    if not text.strip().endswith("%") and value is not None and 1 <= value <= 2**53 and value == int(value):
        return Window(steps=int(value))
    raise HmxError(f"--last {_given(text)}: expected a share or a number of steps", "--last 10% or --last 20_000")


def _thresholds(texts: Sequence[str]) -> tuple[tuple[str, float], ...]:
    """Return environment ("" for all) and value of each threshold."""
    found: list[tuple[str, float]] = []
    for text in texts:
        env = ""
        for part in text.split(","):
            name, equals, number = part.rpartition("=")
            env = name.strip() if equals else env
            value = _number(number)
            if value is None:
                hint = "--threshold 0.8,0.9 or --threshold corridor=0.8"
                raise HmxError(f"--threshold {_given(text)}: expected numbers", hint)
            found.append((env, value))
    return tuple(found)


def _ranges(texts: Sequence[str]) -> tuple[tuple[str, float, float], ...]:
    """Return environment, the value that counts as 0 and the one that counts as 1."""
    found: list[tuple[str, float, float]] = []
    for text in texts:
        parts = re.fullmatch(r"([^=]+)=([^:]+):([^:]+)", text)
        low, high = (_number(parts[2]), _number(parts[3])) if parts else (None, None)
        if parts is None or low is None or high is None or low == high:
            hint = "--range corridor=-1:0.93"
            raise HmxError(f"--range {_given(text)}: expected an environment and two different numbers", hint)
        found.append((parts[1].strip(), low, high))
    return tuple(found)


def _given(text: str) -> str:
    return quoted(text) or repr(text)


def _number(text: str) -> float | None:
    value = typed_number(text)
    return None if isinstance(value, str) or abs(value) > _LARGEST else float(value)


@dataclass(frozen=True, kw_only=True)
class CompareRequest:
    """The sides and how to compare them."""

    sides: tuple[str, ...] = ()  # of the form `[NAME=]PATH[,PATH...]`; see `hmx.reports.compare.sides.choose`
    metric: str = opt(
        RETURN, "metric to compare, or evaluation for the return in the evaluation at the end of each run",
        metavar="METRIC", panel=MEASURE_PANEL,
    )  # fmt: skip
    last: Window = opt(
        TENTH, "final part of each run to average: a share (10%) or a number of steps", metavar="PART", parse=_window,
        panel=MEASURE_PANEL,
    )  # fmt: skip
    thresholds: tuple[tuple[str, float], ...] = opt(  # task ("" for all) and value; none: chosen from the data
        (), "report when each threshold is first reached (repeatable)", flag="--threshold", metavar="[ENV=]X,...",
        parse=_thresholds, panel=MEASURE_PANEL,
    )  # fmt: skip
    ranges: tuple[tuple[str, float, float], ...] = opt(  # task and the values that count as 0 and as 1 over all tasks
        (), "values that count as 0 and 1 when tasks are combined (repeatable)", flag="--range",
        metavar="ENV=LOW:HIGH", parse=_ranges, panel=MEASURE_PANEL,
    )  # fmt: skip
    own_end: bool = opt(False, "compare each run up to its own end, not that of the shortest", panel=MEASURE_PANEL)
    samples: int = opt(10_000, "number of bootstrap resamples", ge=1, le=1_000_000, panel=MEASURE_PANEL)
    seed: int = opt(0, "seed of the resamples", ge=0, le=MAX_SEED, panel=MEASURE_PANEL)
    impl: bool = opt(
        False, "compare the losses of all sides term by term on one batch (takes a minute)", panel=MEASURE_PANEL
    )
    fail_if: tuple[str, ...] = opt(
        (), 'exit with code 4 if a condition such as "P(A>B) < 0.4" holds (repeatable)', metavar="EXPR", panel="Check"
    )
    better: Direction | None = None  # which values are better; None: what the table of metrics says
    root: Path = Path(DEFAULT_ROOT)  # runs folder, for names

    @property
    def curve(self) -> str:
        """The metric whose curve is used."""
        return RETURN if self.metric == EVALUATION else self.metric

    @property
    def direction(self) -> Direction:
        """Whether higher or lower values are better."""
        info = METRICS.get(self.curve)
        if self.better is not None:
            return self.better
        return "none" if info is None else info.direction

    @property
    def up(self) -> bool:
        """Whether more is better; a metric without a direction is treated as if it were."""
        return self.direction != "down"

    @property
    def is_return(self) -> bool:
        """Whether values are on the scale of episode returns, so that random play has a value."""
        return self.curve == RETURN
