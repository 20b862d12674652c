"""The tables of `hmx compute-config`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from hmx.reports.quantities import count, duration, scaled
from hmx.reports.sizes.job import ComputeResult
from hmx.sizing.batch import FORMULAS, INPUT_FIELDS
from hmx.sizing.memory import Memory

ACCOUNTS: tuple[tuple[str, str, str], ...] = (
    ("steps per environment | per agent", "steps_per_env_seed", "agent_steps_per_agent"),
    ("agent steps per batch", "agent_steps_per_batch_seed", "stored_agent_steps"),
    ("environment steps per batch", "batch_size", "env_steps_per_batch_floor"),
    ("agent steps per gradient", "experiences_per_gradient_seed", "samples_per_update"),
    ("batches to reach the end", "total_epochs", "epochs_if_collected"),
)
"""What is counted, under the name of the equations and under that of the agent-step accounting."""

SWEPT = (
    "target_batch_size", "batch_size_envs", "num_envs", "envs_per_worker", "steps_per_env_seed",
    "agent_steps_per_batch_seed", "experiences_per_gradient_seed", "agents_per_forward", "total_agents", "segments",
    "minibatch_segments", "num_minibatches", "gradient_updates_per_batch", "total_epochs", "stored_agent_steps",
    "env_steps_per_batch_floor", "agent_steps_per_agent", "samples_per_update", "exact_fit",
    "rollout_collected_agent_steps", "rollout_overshoot_ratio", "epochs_if_collected",
)  # fmt: skip
"""Rows of a sweep: first those of the published comparison of 3 and 24 agents."""

TRAIN_UNITS = {
    "num_updates": "updates",
    "gradient_steps": "updates",
    "total_env_steps": "env steps",
    "steps_per_chunk": "env steps",
    "num_chunks": "chunks",
    "num_checkpoints": "checkpoints",
}
"""Sizes of a run that the inputs do not tell."""

# What a synchronous trainer does not have: workers that take turns, a buffer that goes round, rows drawn apart.
_NOT_FOR_TRAINERS = (
    "target_batch_size", "target_batch_size_raw", "floor_applied", "batch_size_envs", "envs_per_worker",
    "agents_per_forward", "agents_per_worker", "workers_per_batch", "free_idx_seed", "free_idx", "total_epochs",
    "total_epochs_ceil", "total_epochs_world", "gradient_updates_total", "usable_transitions",
    "global_agent_steps_per_epoch", "expected_coverage_independent_minibatches",
)  # fmt: skip
_DESCRIBED_FROM = 96  # columns from which names and what they mean stand side by side
_ROOMY_FROM = 66  # columns from which there is room for more than names and values
_COLUMN_GAP = 2
_LONGEST_NAME = max(map(len, FORMULAS))


def as_option(field: str, value: Any) -> str:
    """A repair as one would type it: an option for an input, `key=value` for a key of the configuration."""
    return f"--{field.replace('_', '-')} {value}" if field in INPUT_FIELDS else f"{field}={value}"


def show(found: ComputeResult, explain: bool = False) -> None:
    """Prints one configuration on stdout."""
    console = Console(highlight=False)
    _print(console, Group(*_sections(found, explain, console.width)))


def _print(console: Console, body: RenderableType) -> None:
    """Prints; what is no terminal gets no spaces at the end of lines."""
    if console.is_terminal:
        console.print(body)
        return
    with console.capture() as capture:
        console.print(body)
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _sections(found: ComputeResult, explain: bool, width: int) -> Iterator[RenderableType]:
    derived = found.derived or {}
    names = {**found.inputs, **derived}
    described, roomy = width >= _DESCRIBED_FROM and not explain, width >= _ROOMY_FROM
    yield Text(f"from {found.source}", "dim")
    for note in found.notes:
        yield Text(f"note: {note}", "dim")
    inputs = [
        (name, value, INPUT_FIELDS[name].unit, "given" if name in found.given else "")
        for name, value in found.inputs.items()
        if not (found.trainer and name in ("obs_width", "obs_height"))  # what the environment shows counts, no grid
    ]
    yield from _section("inputs", _values(inputs, width))
    for group, rows in _groups(found):
        if group == "agent-step accounting":
            yield from _section("two accountings", _accounts(found, explain))
        shown = [(name, derived[name], FORMULAS[name].unit, FORMULAS[name].label if described else "") for name in rows]
        yield from _section(group, _explained(shown, names, width) if explain else _values(shown, width))
    if found.train:
        sizes = [(name, found.train[name], unit, "") for name, unit in TRAIN_UNITS.items()]
        yield from _section("hmx train", _values(sizes, width))
    yield from _section("learning horizons", _horizons(found.horizons))
    if found.memory:
        yield from _section("memory", _memory(found.memory, found.gpu_memory, explain, roomy))
    yield from _section("schedules", _schedules(found.schedules, roomy))
    if found.wall_clock:
        yield from _section("wall-clock", _wall_clock(found.wall_clock, roomy))


def _section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text()
    yield Text(title, "bold")
    yield Padding(body, (0, 0, 0, 2))


def _groups(found: ComputeResult) -> Iterator[tuple[str, list[str]]]:
    derived = found.derived or {}
    hidden = {name for name in derived if name.endswith("_seed") and name != "free_idx_seed"}
    # The floor of two environments changes something for a single worker only.
    hidden |= {n for n in derived if n.endswith("_fixed") and derived[n] == derived[n.removesuffix("_fixed")]}
    if found.trainer:
        hidden.update(_NOT_FOR_TRAINERS)
    for group in dict.fromkeys(formula.group for formula in FORMULAS.values()):
        if group == "memory" or (group == "rollout" and found.trainer):
            continue
        if rows := [n for n, f in FORMULAS.items() if f.group == group and n in derived and n not in hidden]:
            yield group, rows


def _grid(*justify: str) -> Table:
    """Columns of which the first and those that fold give way where there is no room; numbers are never cut."""
    table = Table.grid(padding=(0, _COLUMN_GAP, 0, 0))
    for number, side in enumerate(justify):
        wraps = side == "fold" or number == 0
        table.add_column(justify="right" if side == "right" else "left", no_wrap=not wraps, overflow="fold")
    return table


def _values(rows: Sequence[tuple[str, Any, str, str]], width: int) -> Table:
    """Name, value, unit and a word on it; names and values stand in the same columns in every section."""
    table = _grid("left", "right", "left", "fold")
    roomy = width >= _ROOMY_FROM
    table.columns[0].width, table.columns[1].width = min(_LONGEST_NAME, width - (34 if roomy else 20)), 14
    table.columns[2].width = 11 if roomy else 0
    for name, value, unit, word in rows:
        style = "bold" if word == "given" else ""
        cells = (Text(unit, "dim"), Text(word, "dim")) if roomy else ()
        table.add_row(Text(name, style), Text(count(value), style), *cells)
    return table


def _explained(rows: Sequence[tuple[str, Any, str, str]], names: Mapping[str, Any], width: int) -> Group:
    parts: list[RenderableType] = []
    for row in rows:
        formula, _, remark = FORMULAS[row[0]].formula.partition("; ")
        parts += [_values([row], width), Text(f"    = {formula}", "dim")]
        if (filled := fill(formula, names)) != formula:
            parts.append(Text(f"    = {filled}", "dim"))
        if remark:
            parts.append(Text(f"    {remark}", "dim italic"))
    return Group(*parts)


def fill(formula: str, values: Mapping[str, Any]) -> str:
    """A formula with numbers in place of the names that have one."""
    return re.sub(r"[a-z_][a-z_0-9]*", lambda m: count(values[m[0]]) if m[0] in values else m[0], formula)


def _accounts(found: ComputeResult, explain: bool) -> Table:
    derived = {**found.inputs, **(found.derived or {})}
    table = _grid("left", "right", "right")
    table.add_row("", Text("equations", "dim"), Text("agent steps", "dim"))
    for label, seed, true in ACCOUNTS:
        ours = derived.get(true if not found.trainer or true != "epochs_if_collected" else "total_epochs_ceil")
        table.add_row(label, count(derived.get(seed)), Text(count(ours), "bold"))
        if explain and seed in FORMULAS and true in FORMULAS:
            table.add_row(
                *(Text(text, "dim") for text in ("", *(FORMULAS[n].formula.partition(";")[0] for n in (seed, true))))
            )
    table.add_row(Text("training uses", "dim"), Text("no", "dim"), Text("yes", "bold"))
    return table


def _horizons(ahead: Mapping[str, Any]) -> Table:
    table = _grid("left", "right", "fold")
    for name, formula in (("reward_steps", "1 / (1 - gamma)"), ("advantage_steps", "1 / (1 - gamma * gae_lambda)")):
        steps = ahead[name]
        shown = "no end" if steps is None else f"{steps:,.2f}"
        table.add_row(name, shown, Text(f"steps = {fill(formula, ahead)}", "dim"))
    table.add_row("bptt_horizon", count(ahead["bptt_horizon"]), Text("steps of a row", "dim"))
    return table


def _memory(memory: Memory, limit: int | None, explain: bool, roomy: bool) -> Group:
    table = _grid("left", "right", "right", "right", "fold") if roomy else _grid("left", "right")

    def row(label: str, size: int, word: str = "", style: str = "") -> None:
        sizes = (count(size), scaled(size, 1000), scaled(size, 1024)) if roomy else (scaled(size, 1000),)
        table.add_row(*(Text(text, style) for text in (label, *sizes)), *([Text(word, "dim")] if roomy else []))

    for part in memory.parts:
        if part.bytes:
            word = "estimate, 2x" if not part.exact else "" if part.counted else "not counted"
            row(part.label, part.bytes, word, "" if part.counted else "dim")
    low, high = memory.interval
    row("total", memory.total, style="bold")
    row("  at least", low)
    row("  at most", high)
    if limit is not None:
        row("--gpu-mem", limit, f"{100 * memory.total / limit:.1f} % used")
    formulas = [Text(f"{part.label} = {part.formula}", "dim") for part in memory.parts if part.bytes and explain]
    return Group(table, *formulas)


def _schedules(schedules: Mapping[str, Mapping[str, Any]], roomy: bool) -> Table:
    table = _grid("left", *(["left"] if roomy else []), "right", "right", "right")
    table.add_row("", *([""] if roomy else []), *(Text(head, "dim") for head in ("start", "middle", "end")))
    for name, row in schedules.items():
        kind = [Text(row["schedule"], "dim")] if roomy else []
        table.add_row(name, *kind, *(f"{row[at]:.6g}" for at in ("start", "middle", "end")))
    return table


def _wall_clock(clock: Mapping[str, Any], roomy: bool) -> Table:
    heads = ["steps/s", f"{count(clock['agent_steps'])} steps", "useful steps/s", "as many useful"]
    rows = [
        [f"{row['sps']:,.0f}", duration(row["seconds"]), f"{row['useful_sps']:,.0f}", duration(row["useful_seconds"])]
        for row in clock["at"]
    ]
    shown = len(heads) if roomy else 2
    table = _grid(*["right"] * shown)
    table.add_row(*(Text(head, "dim") for head in heads[:shown]))
    for row in rows:
        table.add_row(*row[:shown])
    return table


def show_sweep(field: str, results: Sequence[ComputeResult]) -> None:
    """Prints a column for each value, in blocks as wide as the terminal, and what is wrong with those refused."""
    console = Console(highlight=False)
    rows = [_swept_cells(field, found) for found in results]
    names = [field, "valid", *SWEPT, "memory"]
    widths = [max(len(cell) for cell in cells) + _COLUMN_GAP for cells in rows]
    room = console.width - max(map(len, names)) - _COLUMN_GAP
    for number, block in enumerate(_blocks(widths, room)):
        table = _grid("left", *["right"] * len(block))
        for at, name in enumerate(names):
            style = "bold" if at == 0 else ""
            cells = (Text(rows[i][at], style or ("" if results[i].valid else "dim")) for i in block)
            table.add_row(Text(name, style), *cells)
        _print(console, Group(*([Text()] if number else []), table))
    remarks = list(_remarks(field, results))
    if remarks:
        _print(console, Group(Text(), *remarks))


def _remarks(field: str, results: Sequence[ComputeResult]) -> Iterator[Text]:
    for found in results:
        for problem in (*found.errors, *(w for w in found.warnings if w.code == "W_BUFFER_OVER_MEMORY")):
            yield Text(f"{field} {count(found.inputs[field])}: {problem.code}: {problem.message}")
        if found.suggestions:
            yield Text(f"  try {' or '.join(as_option(*pair) for pair in found.suggestions)}", "dim")


def _swept_cells(field: str, found: ComputeResult) -> list[str]:
    derived = found.derived or {}
    held = scaled(found.memory.total, 1000) if found.memory else "-"
    return [
        count(found.inputs[field]),
        "yes" if found.valid else "no",
        *(count(derived.get(name)) for name in SWEPT),
        held,
    ]


def _blocks(widths: Sequence[int], room: int) -> Iterator[list[int]]:
    block: list[int] = []
    for i, width in enumerate(widths):
        if block and sum(widths[j] for j in block) + width > room:
            yield block
            block = []
        block.append(i)
    yield block
