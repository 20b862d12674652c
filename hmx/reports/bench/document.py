"""The findings of `hmx bench` as a document, and its phases as one table."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.errors import counted
from hmx.reports.bench.advice import WHAT
from hmx.reports.bench.comparison import BUSY
from hmx.reports.bench.findings import BenchFindings, Comparison, Phase, UpdateSpeed
from hmx.reports.blocks import Block, Cell, Column, Document, Heading, Paragraph, Row, Table, Tone
from hmx.reports.quantities import UNKNOWN, data_size, duration, interval, percent, short
from hmx.stats.estimate import Estimate

_TONES: dict[str, Tone] = {"faster": "good", "slower": "bad", "no difference seen": "plain"}


def document(findings: BenchFindings) -> Document:
    """Build the report: the bottleneck, the phases, other sizes, and the comparison."""
    return Document(f"Benchmark of {findings.env} with {findings.algorithm}", tuple(_blocks(findings)))


def values(findings: BenchFindings) -> Table:
    """Build the table that `--csv` writes: a row per phase."""
    names = ("seconds", "seconds_low", "seconds_high", "steps_per_sec", "steps_per_sec_low", "steps_per_sec_high")
    columns = (Column("phase", "left"), Column("unit", "left"), Column("rounds"), *map(Column, names))
    rows = []
    for phase in findings.phases:
        numbers = (phase.rounds, *phase.seconds, *(phase.steps_per_sec or (None, None, None)))
        cells = [Cell("" if number is None else str(number), number) for number in numbers]
        rows.append(Row((phase.name, phase.unit, *cells)))
    return Table(columns, tuple(rows))


def speed_blocks(speed: UpdateSpeed) -> Iterator[Block]:
    """Yield the numbers of environments beside each other, and what follows; also for `hmx compute-config`."""
    columns = (Column("environments"), Column("steps/s"), Column("95 %"), Column("ratio"), Column("memory", rank=1))
    rows = [Row((f"{speed.num_envs:,}", *_rate(speed.steps_per_sec), "1", ""))]
    for size in speed.sizes:
        memory = UNKNOWN if size.memory_bytes is None else data_size(size.memory_bytes)
        rows.append(Row((f"{size.num_envs:,}", *_rate(size.steps_per_sec), interval(*size.ratio), memory)))
    if speed.sizes:
        note = "Whole updates, measured in turn. Ratios are of steps per second, with 95 % intervals."
        yield Table(columns, tuple(rows), "Numbers of environments", note)
    if speed.suggestion:
        yield Paragraph(speed.suggestion, "strong")
    if speed.not_measured:
        yield Paragraph(speed.not_measured, "faint")


def _blocks(found: BenchFindings) -> Iterator[Block]:
    yield Paragraph(found.verdict, "strong")
    yield Paragraph(found.advice)
    for warning in found.warnings:
        yield Paragraph(f"Warning: {warning}.", "warning")
    if found.other_programs is not None and found.other_programs > BUSY:
        text = f"Other programs used {percent(found.other_programs)} of the processors meanwhile: speeds are too low."
        yield Paragraph(text, "warning")
    if found.comparison is not None:
        yield from _comparison(found.comparison)
    yield _phases(found)
    yield _parts(found)
    yield from speed_blocks(found.speed)
    yield Paragraph(_conditions(found), "faint")


def _phases(found: BenchFindings) -> Table:
    columns = (
        Column("phase", "left"),
        Column("of", "left", rank=1),
        Column("time"),
        Column("95 %", rank=2),
        Column("steps/s"),
        Column("95 %", rank=1),
    )
    rows = [Row((phase.name, phase.unit, *_times(phase))) for phase in found.phases]
    compilation, updates = found.speed.compilation, found.by_name["update"].rounds
    note = f"Medians of {counted(updates, 'round')}, in which the phases took turns."
    if compilation.cached:
        note += f" The update came from the cache of compiled programs, in {duration(compilation.waited)};"
        note += " shown is how long it took to compile."
    return Table(columns, tuple(rows), "Phases", note)


def _times(phase: Phase) -> Iterator[str]:
    low, high = phase.seconds.low, phase.seconds.high
    yield duration(phase.seconds.value)
    yield "" if low is None or high is None else f"{duration(low)} to {duration(high)}"
    yield from ("", "") if phase.steps_per_sec is None else _rate(phase.steps_per_sec)


def _rate(rate: Estimate) -> tuple[str, str]:
    ends = "" if rate.low is None or rate.high is None else f"{short(rate.low)} to {short(rate.high)}"
    return short(rate.value), ends


def _parts(found: BenchFindings) -> Table:
    columns = (Column("part of training", "left"), Column("per update"), Column("share"))
    rows = [
        Row((WHAT[part.name], duration(part.seconds), Cell(percent(part.share, 1), part.share, bar=part.share)))
        for part in found.parts
    ]
    note = (
        f"The whole run takes {duration(found.run_seconds)}, without compiling and evaluating. Checkpoints are written "
        "in the background; their share is what they cost at most."
    )
    return Table(columns, tuple(rows), "Where the time goes", note)


def _comparison(comparison: Comparison) -> Iterator[Block]:
    yield Heading(f"Compared with {comparison.file}", 2)
    if comparison.differences:
        yield Paragraph("These differ: " + "; ".join(comparison.differences) + ".", "warning")
    columns = (
        Column("phase", "left"),
        Column("before"),
        Column("now"),
        Column("speed, ratio"),
        Column("verdict", "left"),
    )
    rows = []
    for row in comparison.phases:
        verdict = Cell(row.verdict, tone=_TONES.get(row.verdict, "faint"))
        rows.append(Row((row.name, duration(row.before), duration(row.now), interval(*row.ratio), verdict)))
    reasons = dict.fromkeys(row.reason for row in comparison.phases if row.reason)
    note = "; ".join(f"too noisy: {reason}" for reason in reasons)
    yield Table(columns, tuple(rows), "", f"{note[:1].upper()}{note[1:]}." if note else "")


def _conditions(found: BenchFindings) -> str:
    machine = found.machine
    memory = "" if found.memory_bytes is None else f" An update takes about {data_size(found.memory_bytes)} of memory"
    memory += f", {data_size(found.free_bytes)} are free." if memory and found.free_bytes else "." if memory else ""
    return (
        f"{machine.device}, {counted(machine.num_processors, 'processor')}, Python {machine.python}, "
        f"jax {machine.versions.get('jax', UNKNOWN)}; {duration(found.seconds)} in all. A checkpoint has "
        f"{data_size(found.checkpoint_bytes)} on disk.{memory}"
    )
