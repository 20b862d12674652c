"""The findings of `hmx bench` as a document and in sentences, and its phases as one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hmx.errors import counted
from hmx.registry.algorithms import PartName
from hmx.registry.load import Loaded
from hmx.render.blocks import Block, Cell, Column, Document, Paragraph, Row, Table, exact_table
from hmx.render.quantities import UNKNOWN, data_size, duration, interval, percent, short
from hmx.reports.bench.findings import BenchFindings, MetricsCost, Part, Phase, SizeSpeed, UpdateSpeed
from hmx.stats.estimate import Estimate

_BUSY = 0.1  # share of the processors that other programs may use


def document(findings: BenchFindings) -> Document:
    """Build the report: the bottleneck, the phases, and other sizes."""
    return Document(f"Benchmark of {findings.env} with {findings.algorithm}", tuple(_blocks(findings)))


def values(findings: BenchFindings) -> Table:
    """Build the table that `--csv` writes: a row per phase."""
    names = ("seconds", "seconds_low", "seconds_high", "steps_per_sec", "steps_per_sec_low", "steps_per_sec_high")
    rows = (
        (phase.name, phase.unit, phase.rounds, *phase.seconds, *(phase.steps_per_sec or (None, None, None)))
        for phase in findings.phases
    )
    return exact_table(("phase", "unit", "rounds", *names), rows)


def _speed(speed: UpdateSpeed) -> Iterator[Block]:
    """Yield a table of the numbers of environments, and the conclusions."""
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
    if found.other_programs is not None and found.other_programs > _BUSY:
        text = f"Other programs used {percent(found.other_programs)} of the processors meanwhile: speeds are too low."
        yield Paragraph(text, "warning")
    yield _phases(found)
    yield _parts(found)
    if found.metrics is not None:
        yield Paragraph(_metrics(found.metrics), "strong")
    yield from _speed(found.speed)
    yield Paragraph(_conditions(found), "faint")


def _phases(found: BenchFindings) -> Table:
    columns = (
        Column("phase", "left"), Column("of", "left", rank=1), Column("time"), Column("95 %", rank=2),
        Column("steps/s"), Column("95 %", rank=1),
    )  # fmt: skip
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


def _metrics(cost: MetricsCost) -> str:
    value, low, high = (None if share is None else 100 * share for share in cost.share)
    without = f"{counted(cost.rounds, 'round')} with and without them, in turn"
    return f"The reward, action and event metrics take {interval(value, low, high)} % of an update ({without})."


def _conditions(found: BenchFindings) -> str:
    machine = found.machine
    memory = "" if found.memory_bytes is None else f" An update takes {data_size(found.memory_bytes)} of memory"
    memory += f", {data_size(found.free_bytes)} are free." if memory and found.free_bytes else "." if memory else ""
    return (
        f"{machine.device}, {counted(machine.num_processors, 'processor')}, Python {machine.python}, "
        f"jax {machine.versions.get('jax', UNKNOWN)}; {duration(found.seconds)} in all. A checkpoint has "
        f"{data_size(found.checkpoint_bytes)} on disk.{memory}"
    )


WHAT: dict[PartName, str] = {
    "environment": "environment steps",
    "transport": "messages to and from the workers",
    "network": "choosing actions",
    "learning": "learning (the rest of an update)",
    "saving": "saving checkpoints",
    "logging": "writing metrics",
}

_LONG = 0.25  # minimum share of the time of a run for a sentence on compiling
_WORTH = 1.1  # minimum ratio of speeds to suggest another size


def verdict(parts: Sequence[Part], compile_seconds: float, run_seconds: float) -> str:
    """Name the part that takes most of the time, and compiling if it takes a large share of the whole run."""
    first = parts[0]
    text = f"Training spends {percent(first.share)} of its time in {WHAT[first.name]}"
    text += f": {duration(first.seconds)} per update."
    if compile_seconds > _LONG * run_seconds:
        text += f" Compiling takes {duration(compile_seconds)} once, and the whole run {duration(run_seconds)}."
    return text


def advice(task: Loaded, bottleneck: PartName) -> str:
    """Say what makes that part faster, as the algorithm says, or else as for all."""
    cfg = task.config
    if specific := task.algorithm.advice(cfg, bottleneck):
        return specific
    if bottleneck == "environment":
        return (
            f"Make a step of {cfg.env.id} cheaper, or compare numbers of environments below. While the environment "
            "takes most of the time, more epochs or a larger network cost little."
        )
    if bottleneck == "transport":
        return (
            "Give each worker more environments, by fewer workers (env.num_workers) or more environments, so that a "
            "message moves more of them."
        )
    if bottleneck == "saving":
        return f"Save less often: run.checkpoint_every is {cfg.run.checkpoint_every}."
    if bottleneck == "logging":
        return f"Write the records of more updates at once: run.updates_per_chunk is {cfg.run.updates_per_chunk}."
    return "Use a smaller network (net.hidden), or more environments, since larger batches use a processor better."


def suggestion(sizes: Sequence[SizeSpeed]) -> str:
    """Suggest the fastest number of environments, if its interval lies above 1."""
    faster = [size for size in sizes if size.ratio.value >= _WORTH and (size.ratio.low or 0.0) > 1]
    if not sizes:
        return ""
    if not faster:
        return "None of the other numbers of environments is faster by 10 % or more."
    best = max(faster, key=lambda size: size.ratio.value)
    return (
        f"--num-envs {best.num_envs} is {interval(*best.ratio)} times as fast in steps per second. With more "
        "environments, a policy is updated less often for the same number of steps."
    )


def not_measured(late: Sequence[tuple[int, float]], large: Sequence[int]) -> str:
    """List the other numbers of environments that were not measured, with the reason."""
    texts = []
    if late:
        numbers = ", ".join(f"{number:,}" for number, _ in late)
        texts.append(f"No time for {numbers} environments: about {duration(sum(s for _, s in late))} more (--seconds).")
    if large:
        texts.append(f"No memory for {', '.join(f'{number:,}' for number in large)} environments.")
    return " ".join(texts)
