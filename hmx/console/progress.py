"""Progress on stderr: bars in a terminal, occasional lines elsewhere (pipes, notebooks, CI and cluster logs)."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Task, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars
from rich.text import Text

from hmx.config.textfile import printable
from hmx.console.panel import NO_RETURN, NOTES, RecentReturn, earlier
from hmx.errors import counted
from hmx.render.quantities import clock, short
from hmx.runs.sinks import EndState, Record, RunInfo, Sink

if TYPE_CHECKING:  # imports NumPy
    from hmx.jobs.evaluation import Progress

Clock = Callable[[], float]

_FIRST_MINUTE, _EARLY, _LATER = 60.0, 10.0, 30.0  # seconds: a line every 10 s at first, then every 30 s
_STEP = 0.05  # or every 5 %, but no more often than every 10 s
_TRAINING = ("training", "saving", "measuring")
_BETWEEN = (*_TRAINING, "evaluating")  # phases without a line, apart from the first and the last evaluation


class Pace:
    """Decide when the next line of a log is due."""

    def __init__(self, now: Clock = time.monotonic) -> None:
        self._now = now
        self._begun = self._last = now()
        self._share = 0.0

    def due(self, share: float) -> bool:
        """Return whether to write a line at this finished share, and count it as written in that case."""
        now = self._now()
        waited, early = now - self._last, now - self._begun < _FIRST_MINUTE
        if waited < _EARLY or not (early or waited >= _LATER or share - self._share >= _STEP):
            return False
        self._last, self._share = now, share
        return True


class Reminder:
    """Write once a minute that a phase lasts, until it ends or another line is written.

    Args:
        write: writes a line; another thread calls it.
        every: seconds.
    """

    def __init__(self, write: Callable[[str], None], every: float = 60.0) -> None:
        self._write, self._every = write, every
        self._phase, self._begun = "", 0.0
        self._ended = threading.Event()

    def begin(self, phase: str) -> None:
        """Watch a phase from now on."""
        self._phase, self._begun = phase, time.monotonic()
        self.wait()

    def wait(self) -> None:
        """Restart the minute."""
        self.end()
        self._ended = threading.Event()
        threading.Thread(target=self._remind, args=(self._ended, self._phase, self._begun), daemon=True).start()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()

    def _remind(self, ended: threading.Event, phase: str, begun: float) -> None:
        while not ended.wait(self._every):
            self._write(f"still {phase} ({clock(time.monotonic() - begun)})")


class ProgressLog(Sink):
    """Write lines about a run, for outputs that are not a terminal."""

    name = "the progress log"

    def __init__(self, stream: TextIO | None = None, now: Clock = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._now = now
        self._info: RunInfo | None = None
        self._pace = Pace(now)
        self._phase, self._since = "", now()
        self._trained = 0.0  # seconds of training in this process
        self._first = self._steps = 0
        self._values: defaultdict[str, list[float]] = defaultdict(list)
        self._returns = RecentReturn()
        self._evaluated = 0  # evaluations that it showed
        self._explained = False  # whether it said why there is no return
        self._reminder = Reminder(self._line)

    def start(self, info: RunInfo) -> None:
        """Name the run folder, the device and the sizes."""
        self._info = info
        self._first = self._steps = info.first_update * info.steps_per_update
        for record in earlier(info):
            self._returns.record(record)
        self._evaluated = len(self._returns.evaluated)
        seeds = f" for each of {info.num_seeds} seeds" if info.num_seeds > 1 else ""
        left = info.total_updates - info.first_update
        self._line(f"run {info.path} on {info.device}")
        if info.config.run.init_from and not info.first_update:
            self._line(f"network of {info.config.run.init_from}")
        self._line(f"{counted(left, 'update')} of {counted(info.steps_per_update, 'step')}{seeds}")

    def phase(self, name: str) -> None:
        """Report when compiling starts and ends, and when the first or the last evaluation starts."""
        if name == self._phase:
            return
        seconds = self._now() - self._since
        if self._phase == "compiling" and name != "stopping":
            self._line(f"compiled in {seconds:.1f} s")
        elif self._phase in _TRAINING:
            self._trained += seconds
        self._reminder.end()
        between = self._first < self._steps < (self._info.total_steps if self._info else 0)
        if name not in (_BETWEEN if between else _TRAINING):
            self._reminder.begin(name)
            known = self._info.compile_time if self._info is not None else ""
            notes = {"compiling": f" ({known}) ..." if known else " ...", "stopping": f" ... {NOTES['stopping']}"}
            self._line(name + notes.get(name, " ..."))
        self._phase, self._since = name, self._now()

    def record(self, record: Record) -> None:
        """Keep the metrics of an update; seeds and updates of one chunk are averaged, apart from the return."""
        self._steps = int(record["env_steps"])
        self._returns.record(record)
        for name in ("train/steps_per_sec", "stats/highest_stage"):
            if name in record:
                self._values[name].append(float(record[name]))

    def flush(self) -> None:
        """Write a line if one is due."""
        info, evaluated = self._info, self._returns.evaluated
        if info is not None and len(evaluated) > self._evaluated:
            self._evaluated = len(evaluated)
            share = (max(evaluated) - 1) / info.total_updates
            self._line(f"evaluated at {share:.0%}: {self._returns.newest_evaluation}")
        if info is not None and self._pace.due((self._steps - self._first) / max(info.total_steps - self._first, 1)):
            self._line("  ".join(self._parts(info)))
            if not self._returns.means and not self._explained:
                self._line(NO_RETURN)
                self._explained = True
        self._values.clear()

    def warn(self, message: str) -> None:
        """Write a warning at once."""
        self._line(f"warning: {message}")

    def close(self, state: EndState) -> None:
        """Write the outcome of the run."""
        self._reminder.end()
        self._line(f"{state} after {short(self._steps)} steps")

    def _parts(self, info: RunInfo) -> Iterator[str]:
        seconds = self._trained + self._now() - self._since
        done, left = self._steps - self._first, info.total_steps - self._steps
        yield f"{self._steps / info.total_steps:4.0%}"
        yield f"{short(self._steps)}/{short(info.total_steps)} steps"
        means = {name: sum(values) / len(values) for name, values in self._values.items()}
        if "train/steps_per_sec" in means:
            yield f"{short(means['train/steps_per_sec'])} steps/s"
        if done and left > 0:
            yield f"{clock(seconds / done * left)} remaining"
        if self._returns.means:
            yield self._returns.newest
        if "stats/highest_stage" in means:
            yield f"stage {means['stats/highest_stage']:.1f}"

    def _line(self, text: str) -> None:
        _write_line(self._stream, text)


def status(text: str, quiet: bool) -> contextlib.AbstractContextManager[object]:
    """Show the current work on stderr: in a terminal while it lasts, elsewhere as a line; `quiet` shows nothing."""
    console = Console(stderr=True)
    if quiet:
        return contextlib.nullcontext()
    if console.is_terminal:
        return console.status(text)
    _write_line(sys.stderr, f"{text} ...")
    return contextlib.nullcontext()


@contextlib.contextmanager
def progress(quiet: bool) -> Iterator[Progress]:
    """Yield a function that shows progress on stderr: a bar in a terminal, otherwise lines; `quiet` shows nothing.

    Import modules that need JAX inside the block, so that the user sees output before these seconds.
    """
    console = Console(stderr=True)
    if quiet:
        yield lambda phase, done, total, rate=0.0: None
    elif console.is_terminal:
        with _bar(console) as report:
            yield report
    else:
        reminder = Reminder(partial(_write_line, sys.stderr))
        report = progress_lines(sys.stderr, reminder)
        if "jax" not in sys.modules:
            report("starting", 0, 0)
        try:
            yield report
        finally:
            reminder.end()


def _write_line(stream: TextIO, text: str) -> None:
    stream.write(f"{printable(text)}\n")
    stream.flush()


def progress_lines(stream: TextIO, reminder: Reminder, now: Clock = time.monotonic) -> Progress:
    """Return a function that writes a line when a phase starts, and then at the pace of a log."""
    phase, begun, pace = "", now(), Pace(now)

    def report(name: str, done: int, total: int, rate: float = 0.0) -> None:
        nonlocal phase, begun, pace
        if name != phase:
            phase, begun, pace = name, now(), Pace(now)
            reminder.begin(name)
            _write_line(stream, f"{name} ...")
        elif total and pace.due(done / total):
            seconds = now() - begun
            left = f"  {clock(seconds / done * (total - done))} remaining" if 0 < done < total else ""
            speed = f"  {short(rate)} steps/s" if rate else ""
            reminder.wait()
            _write_line(stream, f"{name}: {done / total:4.0%}  {short(done)}/{short(total)}{speed}{left}")

    return report


class _Done(MofNCompleteColumn):
    """Show the finished share if the total is known."""

    def render(self, task: Task) -> Text:
        return super().render(task) if task.total else Text()


class _Remaining(TimeRemainingColumn):
    """Show the time remaining if the total is known."""

    def render(self, task: Task) -> Text:
        return super().render(task).append(" remaining") if task.total else Text()


@contextlib.contextmanager
def _bar(console: Console) -> Iterator[Progress]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        _Done(),
        TimeElapsedColumn(),
        _Remaining(),
        TextColumn("{task.fields[speed]}"),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None, speed="")
        last = ""

        def report(phase: str, done: int, total: int, rate: float = 0.0) -> None:
            nonlocal last
            if phase != last:
                # The time remaining follows only from the speed of this phase.
                bars.reset(task, description=phase, total=total or None, completed=done)
                last = phase
            bars.update(task, completed=done, total=total or None, speed=f"{short(rate)} steps/s" if rate else "")

        yield report
