"""The request of `hmx compare`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hmx.config.option import MAX_SEED, opt
from hmx.records.curves import RETURN
from hmx.records.metrics_table import METRICS, Direction
from hmx.records.paths import DEFAULT_ROOT

EVALUATION = "evaluation"
MEASURE_PANEL = "Measure"


class Window(NamedTuple):
    """The last part of a run: a share of the compared steps, or a number of steps."""

    share: float = 0.1
    steps: int = 0

    def width(self, end: float) -> float:
        """Return the number of steps."""
        return min(float(self.steps), end) if self.steps else self.share * end


TENTH = Window()


@dataclass(frozen=True, kw_only=True)
class CompareOptions:
    """The options of one value each."""

    own_end: bool = opt(False, "compare each run up to its own end, not that of the shortest", panel=MEASURE_PANEL)
    samples: int = opt(10_000, "number of bootstrap resamples", ge=1, le=1_000_000, panel=MEASURE_PANEL)
    seed: int = opt(0, "seed of the resamples", ge=0, le=MAX_SEED, panel=MEASURE_PANEL)
    impl: bool = opt(
        False, "compare the losses of all sides term by term on one batch (takes a minute)", panel=MEASURE_PANEL
    )


@dataclass(frozen=True, kw_only=True)
class CompareRequest(CompareOptions):
    """The sides and how to compare them."""

    sides: tuple[str, ...] = ()  # of the form `[NAME=]PATH[,PATH...]`; see `hmx.reports.compare.sides.choose`
    metric: str = RETURN  # or `evaluation`: the return in the evaluation at the end of each run
    last: Window = TENTH  # final part of a run whose mean is its final value
    thresholds: tuple[tuple[str, float], ...] = ()  # task ("" for all) and value; none: chosen from the data
    ranges: tuple[tuple[str, float, float], ...] = ()  # task and the values that count as 0 and as 1 over all tasks
    fail_if: tuple[str, ...] = ()  # conditions on the figures
    better: Direction | None = None  # which values are better; None: what the table of metrics says
    root: Path = Path(DEFAULT_ROOT)  # folder of the runs, for names

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
