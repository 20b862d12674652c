"""Tables about runs on disk: the list, a verification, and what a resumption would be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmx.cli.console import short
from hmx.cli.tables import data_size
from hmx.config.coerce import show
from hmx.config.textfile import quoted

if TYPE_CHECKING:
    from hmx.jobs.resume import ResumePlan
    from hmx.jobs.runs import ListResult, VerifyResult
    from hmx.jobs.sync import SyncResult

_LONGEST = 400  # characters of a text from a file
_STYLES = {"running": "green", "crashed": "red", "failed": "red", "unknown": "red", "interrupted": "yellow"}


def runs(found: ListResult) -> RenderableType:
    """A row per run, by name."""
    if not found.runs:
        return Text(f"no runs in {found.root}; `hmx train` makes one")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    for name in ("steps", "return", "size", "age"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in found.runs:
        table.add_row(
            Text(quoted(row.name, _LONGEST)),
            Text(row.state, _STYLES.get(row.state, "")),
            short(row.env_steps),
            "" if row.last_return is None else f"{row.last_return:+.2f}",
            data_size(row.size),
            "" if row.age is None else age(row.age),
        )
    return table


def age(seconds: float) -> str:
    """A length of time in its largest unit, such as `3 h`."""
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {name}"
    return f"{seconds:.0f} s"


def verification(found: VerifyResult) -> RenderableType:
    """What is wrong, or that nothing is."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for style, rows in (("red", found.damage), ("dim", found.notes)):
        for row in rows:
            lines = (quoted(line, _LONGEST) for line in row.what.splitlines())
            table.add_row(Text(quoted(row.path, _LONGEST), style), Text("\n".join(lines)))
    known = ", ".join(str(update) for update in found.intact) or "none"
    end = Text(
        f"{quoted(str(found.run), _LONGEST)}: {'damaged' if found.damage else 'whole'}; intact checkpoints: {known}"
    )
    return Group(table, end) if found.damage or found.notes else end


def resumption(planned: ResumePlan) -> RenderableType:
    """Where a run would go on, up to where, and what would change."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("run", Text(quoted(str(planned.run), _LONGEST)))
    facts.add_row("from", f"update {planned.update:,}, {planned.env_steps:,} steps per seed")
    facts.add_row("to", f"update {planned.total_updates:,}, {planned.total_env_steps:,} steps per seed")
    for key, (before, after) in planned.changes.items():
        facts.add_row("change", Text(quoted(f"{key}: {show(before)} becomes {show(after)}", _LONGEST)))
    facts.add_row("device", planned.device)
    return facts


def synchronisation(done: SyncResult) -> RenderableType:
    """How many records went where."""
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    facts.add_row("run", Text(quoted(str(done.run), _LONGEST)))
    project = quoted(done.project)
    facts.add_row("sent", Text(f"{done.sent:,} records to the project {project}; {done.there:,} were there already"))
    for seed, name, url in done.wandb_runs:
        facts.add_row(f"seed {seed}", Text(quoted(url or name, _LONGEST)))
    return facts
