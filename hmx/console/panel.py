"""The live panel of a run in a terminal (stderr), and the stream of JSON lines for programs (stdout)."""

from __future__ import annotations

import contextlib
import math
import signal
import sys
import time
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from hmx.play.keys import Echo
from hmx.records.curves import EVALUATED, UNTRAINED, Records
from hmx.records.jsonl import encode
from hmx.records.paths import METRICS
from hmx.render.quantities import clock, short, sparkline
from hmx.runs.sinks import EndState, Record, RunInfo, Sink

SCHEMA = 1

# The values below the bar: label, metric, format.
_FIGURES = (
    ("stage", "stats/highest_stage", "{:.0f}"),
    ("entropy", "train/entropy", "{:.2f}"),
    ("KL", "train/approx_kl", "{:.4f}"),
    ("search KL", "train/search_kl", "{:.2f}"),
    ("epsilon", "train/epsilon", "{:.2f}"),
    ("Q", "train/q_value", "{:.2f}"),
)
_RETURN, _EPISODES = "train/mean_episode_return", "train/num_episodes"
NO_RETURN = "no return yet: not every game has ended once"
_TRAINING = ("training", "saving")  # phases that count as time of the run
NOTES = {
    "compiling": "the next run with these sizes starts faster",
    "stopping": "saves a checkpoint first; Ctrl-C again stops at once, without saving",
}


def earlier(info: RunInfo) -> Iterator[Record]:
    """Yield the records of a resumed run from before its first update here, as far as they can be read."""
    if info.first_update:
        with contextlib.suppress(OSError):
            yield from (record for _, record in Records(info.path / METRICS))


class RecentReturn:
    """The mean return of a run while it trains: evaluations if there are any, and means of training games.

    The latter are over the updates that the longest first game took.

    All environments start together, so short and long games end at different times at first: single updates swing where
    length and return go together. With a fixed policy each game begins like the one before, so over a long
    window the mean over games that end in it is the mean return (renewal-reward theorem, Ross 1996, "Stochastic
    processes", theorem 3.6.1).
    """

    def __init__(self) -> None:
        self.means: list[float] = []
        self.evaluated: dict[float, float] = {}  # update that an evaluation precedes -> mean return over agents
        self.untrained = math.nan  # mean return of random play
        self._agents = 0  # in the newest evaluation
        self._recent: deque[tuple[float, float]] = deque()  # sum of the returns and episodes, per update
        self._waited = 0  # updates until the first return, that one included
        self._update = -1.0

    def record(self, record: Record) -> None:
        """Add the update of one agent."""
        self.untrained = record.get(UNTRAINED, self.untrained)
        if EVALUATED in record:
            self._agents = self._agents + 1 if record["update"] in self.evaluated else 1
            before = self.evaluated.get(record["update"], 0.0)
            self.evaluated[record["update"]] = before + (record[EVALUATED] - before) / self._agents
        if record["update"] != self._update:
            self._update = record["update"]
            self._waited += not self.means
            self._recent.append((0.0, 0.0))
            if len(self._recent) > self._waited:
                self._recent.popleft()
        value, count = record.get(_RETURN, math.nan), max(record.get(_EPISODES, 1.0), 1.0)
        if math.isfinite(value):
            total, counted = self._recent[-1]
            others = counted > 0
            self._recent[-1] = total + value * count, counted + count
            mean = sum(total for total, _ in self._recent) / sum(counted for _, counted in self._recent)
            self.means[len(self.means) - others :] = [mean]

    @property
    def newest_evaluation(self) -> str:
        """The newest evaluation as text; empty without any."""
        shown = [f"return {list(self.evaluated.values())[-1]:+.2f}"] if self.evaluated else []
        shown += [] if math.isnan(self.untrained) else [f"random play {self.untrained:+.2f}"]
        return ", ".join(shown)

    @property
    def newest(self) -> str:
        """The newest mean as text, or why there is none."""
        return f"return {self.means[-1]:+.2f}" if self.means else NO_RETURN


class ConsoleSink(Sink):
    """Show a live panel; without a terminal, `hmx.console.progress.ProgressLog` writes lines instead.

    Args:
        console: where it is shown.
        now: returns the seconds of a clock.
        title: shown instead of the run's name, for one of many runs: its panel disappears when it ends.
    """

    name = "the console"

    def __init__(self, console: Console, now: Any = time.monotonic, title: str = "") -> None:
        self._console = console
        self._title = title
        self._now = now
        self._live: Live | None = None
        self._echo = Echo()
        self._info: RunInfo | None = None
        self._phase = "starting"
        self._phase_since = now()
        self._trained = 0.0  # seconds of training so far, this process
        self._before = 0.0  # and of earlier ones
        self._first_steps = 0
        self._steps = 0
        self._latest: dict[str, float] = {}
        self._returns = RecentReturn()
        self._window: defaultdict[str, list[float]] = defaultdict(list)
        self._update = -1

    def start(self, info: RunInfo) -> None:
        """Show the panel."""
        self._info = info
        self._first_steps = self._steps = info.first_update * info.steps_per_update
        for record in earlier(info):
            self._returns.record(record)
            self._before = float(record.get("elapsed", self._before))
        self._phase_since = self._now()
        if self._console.is_terminal:
            self._live = Live(
                self, console=self._console, refresh_per_second=4, redirect_stdout=False, redirect_stderr=False,
                transient=bool(self._title),
            )  # fmt: skip
            self._echo.off()
            self._live.start()

    def phase(self, name: str) -> None:
        """Name the phase that the run is in."""
        if name == self._phase:
            return
        if self._phase in _TRAINING:
            self._trained += self._now() - self._phase_since
        self._phase, self._phase_since = name, self._now()

    def record(self, record: Record) -> None:
        """Keep the metrics of one update of one seed; the seeds of an update are averaged."""
        if int(record["update"]) != self._update:
            self._close_window()
            self._update = int(record["update"])
        self._steps = int(record["env_steps"])
        self._returns.record(record)
        for name, value in record.items():
            self._window[name].append(float(value))

    def flush(self) -> None:
        """Show the last update of the chunk."""
        self._close_window()

    def warn(self, message: str) -> None:
        """Print a warning above the panel."""
        self._console.print(Text.assemble(("warning: ", "yellow"), message))

    def close(self, state: EndState) -> None:
        """Leave the last state of the panel on the screen, unless it has a title."""
        self._close_window()
        self.phase(state)
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._echo.restore()

    def _close_window(self) -> None:
        for name, values in self._window.items():
            self._latest[name] = sum(values) / len(values)
        self._window.clear()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the panel."""
        info = self._info
        if info is None:
            return
        width = min(options.max_width, 84)
        rows = Table.grid(expand=True)
        rows.add_row(self._bar(max(info.total_steps, 1), width - 4))
        rows.add_row(self._times(info))
        if latest := self._latest:
            if text := self._returns.newest_evaluation:
                levels = [self._returns.untrained, *self._returns.evaluated.values()]
                rows.add_row(_with_line(f"evaluated: {text}", levels, width - 4, options.ascii_only))
            rows.add_row(self._curve(width - 4, options.ascii_only))
            figures = [(label, form.format(latest[name])) for label, name, form in _FIGURES if name in latest]
            rows.add_row("  ".join(f"{label} {figure}" for label, figure in figures))
        yield Panel(
            rows, title=Text(self._title or info.name, "bold"), title_align="left", width=width, border_style="dim"
        )

    def _bar(self, total: int, width: int) -> Table:
        label = self._phase
        if self._phase in ("compiling", "measuring", "evaluating", "stopping"):
            label += f" {clock(self._now() - self._phase_since)}"
        tail = f" {min(self._steps / total, 1):4.0%}" + (f" {short(self._steps)}/{short(total)}" if width >= 50 else "")
        grid = Table.grid(expand=True)
        grid.add_column(width=max(len(label), 8) + 1, no_wrap=True)
        grid.add_column(ratio=1)
        grid.add_column(width=len(tail), no_wrap=True)
        grid.add_row(Text(label, "cyan"), ProgressBar(total=total, completed=self._steps), tail)
        return grid

    def _times(self, info: RunInfo) -> Text:
        done, left = self._steps - self._first_steps, info.total_steps - self._steps
        seconds = self._trained + (self._now() - self._phase_since if self._phase in _TRAINING else 0.0)
        note = info.compile_time if self._phase == "compiling" else ""
        if note := note or NOTES.get(self._phase, ""):
            return Text(note, "dim", overflow="ellipsis", no_wrap=True)
        if not done or seconds <= 0:
            return Text("")
        rate = self._latest.get("train/steps_per_sec", 0.0)
        text = Text.assemble((clock(self._before + seconds), "bold"), " elapsed", no_wrap=True, overflow="ellipsis")
        if left > 0 and self._phase in (*_TRAINING, "measuring"):
            text.append_text(Text.assemble(", ", (clock(seconds / done * left), "bold"), " remaining"))
        return text.append(f"  {short(rate)} steps/s")

    def _curve(self, width: int, ascii_only: bool) -> Text:
        means, newest = self._returns.means, self._returns.newest
        if not means:
            return Text(newest, "dim", overflow="ellipsis", no_wrap=True)
        return _with_line(newest, means, width, ascii_only)


def _with_line(text: str, values: Sequence[float], width: int, ascii_only: bool) -> Text:
    """Return a text, and values as a line after it."""
    line = sparkline(values, width - len(text) - 2, ascii_only)
    return Text.assemble((text, "bold"), "  ", (line, "green"), overflow="ellipsis", no_wrap=True)


class JsonSink(Sink):
    """Write one JSON object per line: `start`, then `update` for each update and seed.

    A closed pipe ends the run as SIGTERM does: the chunk is finished and a checkpoint is written.
    """

    name = "the JSON stream"

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self.broken = False

    def start(self, info: RunInfo) -> None:
        """Write the facts of the run."""
        sizes = ("first_update", "total_updates", "steps_per_update", "num_seeds")
        counts = {name: getattr(info, name) for name in sizes}
        self.emit("start", {"run": info.name, "path": str(info.path), **counts})

    def record(self, record: Record) -> None:
        """Write a record."""
        self.emit("update", record)

    def warn(self, message: str) -> None:
        """Write a warning."""
        self.emit("warning", {"message": message})

    def emit(self, event: str, body: Any) -> None:
        """Write one line at once."""
        if self.broken:
            return
        try:
            self._stream.write(encode({"schema": SCHEMA, "event": event, **body}) + "\n")
            self._stream.flush()
        except BrokenPipeError:
            self.broken = True
            with contextlib.suppress(ValueError):
                signal.raise_signal(signal.SIGTERM)
