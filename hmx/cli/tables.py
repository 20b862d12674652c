"""Tables for eyes: the end of a run, an evaluation, and what a run would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from hmx.cli.console import clock, short
from hmx.config.coerce import show
from hmx.config.fields import FIELDS, SECTIONS, get

if TYPE_CHECKING:
    from hmx.jobs.evaluate import EvaluateResult, PolicyStats
    from hmx.jobs.train import Plan, TrainResult
    from hmx.sizing.memory import Memory


class PolicyTable:
    """A row per policy; intervals where there is room for them."""

    def __init__(self, rows: Sequence[PolicyStats], names: dict[str, str]) -> None:
        self._rows, self._names = rows, names

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """A table as wide as it needs to be."""
        wide = options.max_width >= 72
        staged = any(row.stage_mean is not None for row in self._rows)
        winnable = any(row.wins is not None for row in self._rows)
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0))
        table.add_column("agent", no_wrap=True)
        columns = [
            "return",
            *(["95 %"] if wide else []),
            *(["stage", *(["median", "best"] if wide else [])] if staged else []),
        ]
        for name in [*columns, "length", *(["wins"] if winnable else [])]:
            table.add_column(name, justify="right", no_wrap=True)
        for row in self._rows:
            table.add_row(*self._cells(row, wide, staged, winnable), style="" if row.policy == "random" else "bold")
        yield table

    def _cells(self, row: PolicyStats, wide: bool, staged: bool, winnable: bool) -> Iterator[str]:
        name = self._names.get(row.policy, row.policy)
        seeds = {other.seed for other in self._rows if other.seed is not None}
        yield f"{name} {row.seed}" if row.seed is not None and len(seeds) > 1 else name
        yield f"{row.return_mean:+.2f}"
        if wide:
            yield f"{row.return_interval[0]:+.2f} to {row.return_interval[1]:+.2f}" if row.return_interval else ""
        if staged:
            yield _number(row.stage_mean, ".2f")
            if wide:
                yield _number(row.stage_median, ".0f")
                yield _number(row.stage_max, "d")
        yield f"{row.length_mean:.0f}"
        if winnable:
            yield "" if row.wins is None else f"{row.wins}/{row.episodes}" if wide else str(row.wins)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def result(end: TrainResult) -> RenderableType:
    """The end of a run: random against trained, speed, where it lies, what to do next."""
    name = end.resume_command.removeprefix("hmx resume ")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    steps = end.env_steps * end.num_seeds
    facts.add_row("steps", f"{steps:,}, of them {short(end.steps_per_sec)} per second on {end.device}")
    facts.add_row("time", f"{clock(end.seconds) if end.seconds >= 60 else f'{end.seconds:.1f} s'} of training")
    facts.add_row("run", str(end.run))
    for number, change in enumerate(end.auto_scale):
        facts.add_row("" if number else "scaled", change)
    watch = [f"hmx watch {name}"] if end.env == "hackmatrix" else []
    for number, command in enumerate([*watch, f"hmx evaluate {name}", f"hmx train --config {end.run}"]):
        facts.add_row("" if number else "next", Text(command, "cyan"))
    parts: list[RenderableType] = []
    if end.evaluation:
        parts.append(PolicyTable(end.evaluation, {"sampled": "trained", "greedy": "trained"}))
    return Group(*parts, facts)


def evaluation(found: EvaluateResult) -> RenderableType:
    """A row per policy, and how many stages were left by way of UNDO."""
    head = (
        f"{found.run.name}, checkpoint {found.checkpoint} ({found.env_steps:,} steps), {found.episodes:,} episodes each"
    )
    parts: list[RenderableType] = [Text(head), PolicyTable(found.policies, {})]
    for row in found.policies:
        if row.stages_completed is not None and row.undo_stages is not None:
            stages = f"{row.stages_completed:.2f} stages completed per episode"
            parts.append(Text(f"{row.policy}: {stages}, {row.undo_stages:.2f} of them by way of UNDO", "dim"))
        if row.unfinished:
            parts.append(Text(f"{row.policy}: {row.unfinished} episodes were given up unfinished", "yellow"))
    return Group(*parts)


def plan(planned: Plan) -> RenderableType:
    """Every value with its origin, sizes, memory and places."""
    values = Table.grid(padding=(0, 2, 0, 0))
    values.add_column(no_wrap=True)
    values.add_column(overflow="fold")
    values.add_column(style="dim", overflow="fold")
    for section in SECTIONS:
        for field in FIELDS.values():
            if field.section == section:
                origin = planned.origins.get(field.key, "default")
                style = "" if origin == "default" else "bold cyan"
                shown = show(get(planned.config, field.key)) or '""'
                values.add_row(Text(field.key, style), Text(shown, style), "" if origin == "default" else origin)
    sizes = Table.grid(padding=(0, 2, 0, 0))
    sizes.add_column(style="dim", no_wrap=True)
    sizes.add_column(overflow="fold")
    for line in _sizes(planned):
        sizes.add_row(*line)
    means = Table.grid(padding=(0, 2, 0, 0))
    means.add_column(style="dim", no_wrap=True)
    means.add_column(no_wrap=True)
    means.add_column(overflow="fold")
    for row in planned.meaning:
        means.add_row(row.id, row.title, Text(row.meaning, "red" if row.bug else ""))
    head = partial(Text, style="bold")
    return Group(
        head("configuration"), values, Text(), head("what it means"), means, Text(), head("what follows"), sizes
    )


def _sizes(planned: Plan) -> Iterator[tuple[str, str]]:
    sizes = planned.sizes
    yield (
        "update",
        f"{sizes.batch_size:,} steps, {sizes.gradient_steps_per_update} gradient steps of {sizes.minibatch_size:,}",
    )
    yield "run", f"{sizes.num_updates:,} updates, {sizes.total_env_steps:,} steps per seed"
    yield "chunk", f"{sizes.updates_per_chunk} updates in one compiled call"
    yield "checkpoints", f"{sizes.num_checkpoints} written, {data_size(planned.checkpoint_bytes)} kept on disk"
    if planned.replay_ratio is not None:
        yield "replay", f"each transition is trained on {planned.replay_ratio:g} times on average"
        yield from replay_sizes(planned.memory)
    yield (
        "memory",
        f"{data_size(planned.state_bytes)} of state and {data_size(planned.rollout_bytes)} of rollout, "
        f"on {planned.device}",
    )
    for change in planned.auto_scale:
        yield "scaled", change
    yield from planned.files.items()


def replay_sizes(memory: Memory) -> Iterator[tuple[str, str]]:
    """The parts that a buffer adds, and the total with its interval."""
    for part in memory.parts:
        if part.key.startswith(("replay_", "priority_", "scoring_")):
            yield "", f"{part.label}: {data_size(part.bytes)}, {part.formula}"
    low, high = memory.interval
    yield "", f"about {data_size(memory.total)} in all, {data_size(low)} to {data_size(high)}"


def data_size(count: float) -> str:
    """Bytes in words, such as `1.5 MiB`."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
