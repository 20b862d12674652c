"""What `hmx score-buffer` does with its options: progress on stderr, and the answer in the form asked for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from hmx.cli import score_plot, score_tables
from hmx.cli.boundary import check_reports, print_json, say, write_report
from hmx.reports.consequence.job import dry_run, judge, score_buffer
from hmx.reports.consequence.options import Ask
from hmx.reports.consequence.run import Progress


def show_plan(path: Path, checkpoint: Path | None, asked: Ask, out: Path | None, *, json: bool) -> None:
    """What scoring would take at most."""
    plan = dry_run(path, checkpoint=checkpoint, ask=asked, out=out)
    if json:
        print_json(plan.to_json())
    else:
        Console(highlight=False).print(score_tables.plan(plan.to_json()))


def show_scores(
    path: Path, checkpoint: Path | None, asked: Ask, out: Path | None, *, html: Path | None, strict: bool, json: bool
) -> None:
    """Scores, and shows the report.

    Raises:
        HmxError: see the job; also scores that do not pass, if that is asked (exit code 4).
    """
    check_reports(html)
    with _bars(Console(stderr=True)) as progress:
        result = score_buffer(path, checkpoint=checkpoint, ask=asked, out=out, progress=progress)
    found = result.to_json()
    for warning in found["warnings"]:
        say("warning", warning)
    if html is not None:
        write_report(html, score_plot.page(found))
    if json:
        print_json(found)
    else:
        console = Console(highlight=False)
        console.print(score_tables.render(found, console.options.ascii_only))
    if strict:
        judge(result)


@contextlib.contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    """A bar with the time that is left, where somebody looks on."""
    if not console.is_terminal:
        yield lambda phase, done, total: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=console, transient=True) as bars:
        task = bars.add_task("starting", total=None)
        last = ""

        def tell(phase: str, done: int, total: int) -> None:
            nonlocal last
            if phase != last:
                # the time left follows from the speed of this phase alone
                bars.reset(task, description=phase, total=total or None, completed=done)
                last = phase
            bars.update(task, completed=done, total=total or None)

        yield tell
