"""Build the report of `hmx compute-config`: a headline and the sizes that matter first, or everything."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from hmx.config.fields import FIELDS
from hmx.config.problem import Fixes, Problem
from hmx.errors import counted
from hmx.render.blocks import Block, Cell, Column, Document, Heading, Paragraph, Row, Table, Tone, exact_table
from hmx.render.quantities import count, data_size, duration
from hmx.reports.compute_config.derived import Formula, formulas
from hmx.reports.compute_config.findings import SizesFindings, SweepFindings, WallClock
from hmx.reports.compute_config.inputs import INPUT_FIELDS, BatchInputs, Scalar, TrainerInputs
from hmx.runs.memory_parts import Memory

_KEY_SIZES = (
    "num_workers", "async_factor", "target_batch_size", "batch_size_envs", "num_envs", "envs_per_worker", "num_agents",
    "total_agents", "segments", "bptt_horizon", "segments_per_agent", "stored_agent_steps",
    "rollout_collected_agent_steps", "num_minibatches", "samples_per_update", "gradient_updates_per_batch",
    "mean_reuse", "epochs_if_collected",
)  # fmt: skip
"""Values of the short report."""

_TRAINER_LABELS = {
    "num_updates": ("updates in the run", "updates"),
    "gradient_steps": ("gradient steps in the run", "gradient steps"),
    "total_env_steps": ("environment steps in the run", "env steps"),
    "steps_per_chunk": ("environment steps per compiled call", "env steps"),
    "num_chunks": ("compiled calls", "chunks"),
    "num_checkpoints": ("checkpoints written", "checkpoints"),
}

_NOT_FOR_TRAINERS = {
    "target_batch_size", "target_batch_size_raw", "floor_applied", "free_idx_seed", "free_idx", "total_epochs",
    "total_epochs_ceil", "total_epochs_world", "gradient_updates_total", "usable_transitions",
    "global_agent_steps_per_epoch", "expected_coverage_independent_minibatches", "rollout_recvs",
    "rollout_collected_agent_steps", "rollout_overshoot_ratio", "epochs_if_collected", "rollout_mixed_rows",
    "world_size", "obs_width", "obs_height",
}  # fmt: skip
"""Values that `hmx train` does not have: a circular buffer, sequences drawn independently."""

_OF_WORKERS = {
    "num_workers", "async_factor", "forward_pass_minibatch_target_size", "batch_size_envs", "envs_per_worker",
    "agents_per_forward", "agents_per_worker", "workers_per_batch",
}  # fmt: skip
"""Values of environments that worker processes step."""

_ACCOUNTS = (
    ("steps per environment | per agent", "steps_per_env_seed", "agent_steps_per_agent"),
    ("agent steps per batch", "agent_steps_per_batch_seed", "stored_agent_steps"),
    ("environment steps per batch", "batch_size", "env_steps_per_batch_floor"),
    ("agent steps per gradient step", "experiences_per_gradient_seed", "samples_per_update"),
    ("batches that reach total_timesteps", "total_epochs", "epochs_if_collected"),
)
"""A count, its name as the equations count, and its name in agent steps."""

_SWEPT = (
    ("num_envs", "envs", 0), ("total_agents", "agents", 0), ("segments", "sequences", 2),
    ("num_minibatches", "minibatches", 1), ("samples_per_update", "steps per gradient", 3),
    ("exact_fit", "exact fit", 0), ("rollout_overshoot_ratio", "collected / stored", 2),
)  # fmt: skip
"""Columns of a sweep: values, their headers and ranks."""

_LEFT = Column("", "left")


def as_option(name: str, value: object) -> str:
    """Return a setting as the user types it: `--set` for a configuration key."""
    return f"--{name.replace('_', '-')} {value}" if name in INPUT_FIELDS else f"--set {name}={value}"


def as_options(fixes: Fixes, between: str = " or ") -> str:
    """Return alternatives as the user types them."""
    return between.join(as_option(*pair) for pair in fixes)


def problem_text(problem: Problem) -> str:
    """Return a problem on one line, with its repairs."""
    ways = as_options(problem.fixes)
    return f"{problem.code}: {problem.message}{f'; try {ways}' if ways else ''}"


def document(found: SizesFindings, full: bool = False, explain: bool = False, errors: bool = False) -> Document:
    """Build the report on one configuration; `errors` lists its errors, whose values are marked in any case."""
    return Document(f"Sizes of {found.source}", tuple(_blocks(found, full or explain, explain, errors)))


def _blocks(found: SizesFindings, full: bool, explain: bool, errors: bool) -> Iterator[Block]:
    if found.valid:
        yield Paragraph(headline(found), "strong")
    else:
        yield Paragraph(f"Refused: {', '.join(dict.fromkeys(found.codes['errors']))}.", "bad")
    yield from (Paragraph(f"Note: {note}.", "faint") for note in found.notes)
    if errors and found.errors:
        yield Heading("Errors", 2)
        yield from (Paragraph(problem_text(error), "bad") for error in found.errors)
    if found.warnings:
        yield Heading("Warnings", 2)
    yield from (Paragraph(problem_text(warning), "warning") for warning in found.warnings)
    if full and found.derived:
        yield from _all_values(found, explain)
    else:
        yield _key_values(found)
        if found.derived and not found.trainer:
            yield _accounts(found)
    if found.memory:
        yield _memory(found.memory, found.gpu_memory_bytes, full, explain)
    if full:
        yield _schedules(found)
        yield _horizons(found)
    if found.wall_clock:
        yield _wall_clock(found.wall_clock)


def headline(found: SizesFindings) -> str:
    """Return the first answers for sizing a run: environments, minibatches, memory and fit."""
    sizes = {**found.input, **(found.derived or {})}

    def many(name: str, what: str) -> str:
        return f"{count(sizes[name])} {what}{'' if sizes[name] == 1 else 'es' if what[-2:] == 'ch' else 's'}"

    agents = f" with {many('num_agents', 'agent')} each" if sizes["num_agents"] != 1 else ""
    parts = [many("num_envs", "environment") + agents]
    parts.append(f"{many('num_minibatches', 'minibatch')} of {many('samples_per_update', 'agent step')}")
    if memory := found.memory:
        total, low, high = memory.total_bytes, memory.total_bytes_low, memory.total_bytes_high
        parts.append(f"about {data_size(total, 1000)} of memory ({data_size(low, 1000)} to {data_size(high, 1000)})")
    ratio = sizes.get("rollout_overshoot_ratio") or 1.0
    over = f": {ratio:.4g} steps are collected per step stored" if ratio != 1.0 else ""
    return f"{'; '.join([*parts, 'exact fit' if sizes['exact_fit'] else f'no exact fit{over}'])}."


def _all_values(found: SizesFindings, explain: bool) -> Iterator[Block]:
    yield _values(found, "Inputs", list(INPUT_FIELDS))
    table = _formulas(found)
    for group in dict.fromkeys(row.group for row in table.values() if row.group != "memory"):
        if group == "agent steps":
            yield _accounts(found)
        # the memory has its own table, and sizes with a minimum of 2 differ from the others only if it applies
        names = [row.name for row in table.values() if row.group == group and row.name[-6:] != "_fixed"]
        if (values := _values(found, group.capitalize(), names, explain)).rows:
            yield values
    if found.train:
        yield _values(found, "Run", list(_TRAINER_LABELS))
    if others := [name for name in _marks(found) if name not in {**found.input, **(found.derived or {})}]:
        yield _values(found, "Other keys", others)


def _formulas(found: SizesFindings) -> Mapping[str, Formula]:
    return formulas((TrainerInputs if found.trainer else BatchInputs).forward_unit)


def _all(found: SizesFindings) -> dict[str, Scalar]:
    """Return the values by name, without those that `hmx train` does not have, and with all that errors name."""
    train = found.train._asdict() if found.train else {}
    values = {**train, **found.input, **(found.derived or {})}
    hidden = (_NOT_FOR_TRAINERS if found.trainer else set()) | (set() if found.workers else _OF_WORKERS)
    others = {name: value for error in found.errors for name, value in error.values.items()}
    marks = {name: values.get(name, others.get(name)) for name in _marks(found)}
    return {**marks, **{name: value for name, value in values.items() if name not in hidden}}


def _marks(found: SizesFindings) -> dict[str, str]:
    """Return the codes of the errors that each value is part of.

    These are the values whose numbers the error lists or, if it lists none, those that its message names.
    """
    known, marks = {**found.input, **(found.derived or {})}, defaultdict[str, list[str]](list)
    for error in found.errors:
        keys = [str(error.values["field"])] if "field" in error.values else list(error.values)
        # a configuration key stands for the input of the same name
        names = [next((name for name in (key, key.rpartition(".")[2]) if name in known), key) for key in keys]
        listed = [name for name in names if name in known or "." in name]
        for name in listed or [word for word in re.findall(r"[a-z_]+", error.message) if word in known]:
            marks[name].append(error.code)
    return {name: ", ".join(dict.fromkeys(codes)) for name, codes in marks.items()}


def _key_values(found: SizesFindings) -> Table:
    values, marks, rows = _all(found), _marks(found), []
    names = [*_KEY_SIZES, *list(_TRAINER_LABELS)[:3]]
    for name in dict.fromkeys([*(names if found.derived else found.input), *marks]):
        if name in values and (name in marks or (name, values[name]) != ("num_agents", 1)):
            label, _, _ = _label(name)[0].partition(";")
            number, mark = Cell(count(values[name]), values[name]), marks.get(name, "")
            cells: tuple[Cell | str, ...] = (label, number, Cell(name, tone="faint"), *([mark] if marks else []))
            rows.append(Row(cells, "bad" if mark else "plain"))
    return Table((_LEFT, Column(""), Column("", "left", 1), *([_LEFT] if marks else [])), tuple(rows))


def _values(found: SizesFindings, title: str, names: Sequence[str], explain: bool = False) -> Table:
    """Return a table of the existing values; given inputs are emphasised, and those that errors name are marked."""
    values, marks, rows = _all(found), _marks(found), []
    for name in names:
        if name in values:
            label, unit = _label(name)
            last = Cell(label, tone="faint")
            if explain and name in (table := _formulas(found)):
                last = _explained(table[name], {**found.input, **(found.derived or {})})
            number = Cell(count(values[name]), values[name])
            mark = [marks.get(name, "")] if marks else []
            cells: tuple[Cell | str, ...] = (name, number, Cell(unit, tone="faint"), *mark, last)
            rows.append(Row(cells, "bad" if name in marks else "strong" if name in found.given else "plain"))
    marking = [_LEFT] if marks else []
    columns = (_LEFT, Column(""), Column("", "left", 1), *marking, Column("", "left", 0 if explain else 2))
    return Table(columns, tuple(rows), title)


def _label(name: str) -> tuple[str, str]:
    if name in INPUT_FIELDS:
        metadata = INPUT_FIELDS[name].metadata
        return metadata["doc"], metadata["unit"]
    if name in _TRAINER_LABELS:
        return _TRAINER_LABELS[name]
    if name in FIELDS:
        return FIELDS[name].doc, FIELDS[name].unit
    row = formulas()[name]
    return row.label, row.unit


def _explained(row: Formula, values: Mapping[str, Scalar]) -> Cell:
    filled = fill(row.text, values)
    forms = [f"= {row.text}"] + ([f"= {filled}"] if filled != row.text else [])
    return Cell(" ".join(forms) + (f" ({row.remark})" if row.remark else ""), tone="faint")


def fill(text: str, values: Mapping[str, Scalar]) -> str:
    """Return a formula with numbers in place of known names."""
    return re.sub(r"[a-z_][a-z_0-9]*", lambda m: count(values[m[0]]) if m[0] in values else m[0], text)


def _accounts(found: SizesFindings) -> Table:
    values = {**found.input, **(found.derived or {})}
    rows = []
    for label, seed, true in _ACCOUNTS:
        ours = values.get("total_epochs_ceil" if found.trainer and true == "epochs_if_collected" else true)
        rows.append(Row((label, count(values.get(seed)), Cell(count(ours), ours, "strong"))))
    rows.append(Row(("used by training", "no", Cell("yes", tone="strong"))))
    return Table((_LEFT, Column("as the equations count"), Column("in agent steps")), tuple(rows), "Two ways to count")


def _memory(memory: Memory, limit: int | None, full: bool, explain: bool) -> Table:
    def row(label: str, size: int, note: str = "", tone: Tone = "plain") -> Row:
        sizes = (Cell(data_size(size, 1000), size), Cell(data_size(size, 1024), size), Cell(count(size), size))
        return Row((label, *sizes, Cell(note, tone="faint")), tone)

    rows = []
    for part in memory.parts:
        if part.bytes and (part.counted or full):
            marks = ["estimate, within a factor of 2"] * (not part.exact) + ["not in the total"] * (not part.counted)
            rows.append(row(part.label, part.bytes, "; ".join([*([part.formula] if explain else []), *marks])))
    rows.append(row("total", memory.total_bytes, tone="strong"))
    rows += [row("at least", memory.total_bytes_low), row("at most", memory.total_bytes_high)]
    if limit is not None:
        rows.append(row("--gpu-mem", limit, f"{100 * memory.total_bytes / limit:.1f} % used"))
    binary, note = (2, 0) if explain else (1, 1)
    columns = (Column("MB, GB"), Column("MiB, GiB", rank=binary), Column("bytes", rank=2), Column("", "left", note))
    return Table((_LEFT, *columns), tuple(rows), "Memory")


def _schedules(found: SizesFindings) -> Table:
    columns = (_LEFT, Column("schedule", "left", 1), Column("start"), Column("middle"), Column("end"))
    rows = (
        Row((name, ends.schedule, *(Cell(f"{v:.6g}", v) for v in (ends.start, ends.middle, ends.end))))
        for name, ends in found.schedules.items()
    )
    return Table(columns, tuple(rows), "Schedules")


def _horizons(found: SizesFindings) -> Table:
    ahead = found.horizons
    values: dict[str, Scalar] = {"gamma": ahead.gamma, "gae_lambda": ahead.gae_lambda}

    def row(label: str, steps: float | None, formula: str) -> Row:
        return Row(
            (label, "unlimited" if steps is None else f"{steps:,.2f}", Cell(fill(formula, values), tone="faint"))
        )

    rows = (
        row("rewards", ahead.reward_steps, "1 / (1 - gamma)"),
        row("advantages", ahead.advantage_steps, "1 / (1 - gamma * gae_lambda)"),
        Row(("training sequence", count(ahead.bptt_horizon), Cell("bptt_horizon", tone="faint"))),
    )
    return Table((_LEFT, Column("steps"), Column("", "left", 1)), rows, "Steps that the learner looks ahead")


def _wall_clock(clock: WallClock) -> Table:
    columns = (
        Column("steps/s"), Column(f"time for {clock.agent_steps:,} steps"), Column("useful steps/s", rank=1),
        Column("time for as many useful steps", rank=1),
    )  # fmt: skip
    rows = (
        Row((f"{at.sps:,.0f}", duration(at.seconds), f"{at.useful_sps:,.0f}", duration(at.useful_seconds)))
        for at in clock.at
    )
    return Table(columns, tuple(rows), "Time")


def values_table(found: SizesFindings) -> Table:
    """Return every value of one configuration, a row each, for CSV."""
    rows: list[tuple[Scalar, ...]] = [("errors", error.code, error.message, "") for error in found.errors]
    rows += [("inputs", name, value, _label(name)[1]) for name, value in found.input.items()]
    derived, table = found.derived or {}, formulas()
    rows += [(row.group, name, derived[name], row.unit) for name, row in table.items() if name in derived]
    if found.memory:
        rows += [("memory estimate", part.key, part.bytes, "bytes") for part in found.memory.parts]
        rows.append(("memory estimate", "total_bytes", found.memory.total_bytes, "bytes"))
    return exact_table(("group", "name", "value", "unit"), rows)


def sweep_document(found: SweepFindings) -> Document:
    """Build the report of a sweep: a row per value, then the problems of the refused values."""
    heads = ((found.sweep, 0), ("valid", 0), *((head, rank) for _, head, rank in _SWEPT), ("memory", 0))
    columns = tuple(Column(head, rank=rank) for head, rank in heads)
    rows, problems = [], []
    for each in found.results:
        derived, name = each.derived or {}, f"{found.sweep} {count(each.input[found.sweep])}"
        sizes = [count(derived.get(key)) for key, _, _ in _SWEPT]
        memory = data_size(each.memory.total_bytes, 1000) if each.memory else "-"
        cells = (count(each.input[found.sweep]), count(each.valid), *sizes, memory)
        rows.append(Row(cells, "plain" if each.valid else "faint"))
        over = (warning for warning in each.warnings if warning.code == "W_BUFFER_OVER_MEMORY")
        problems += [Paragraph(f"{name}: {p.code}: {p.message}", "bad") for p in each.errors]
        problems += [Paragraph(f"{name}: {problem_text(p)}", "warning") for p in over]
        if each.suggestions:
            problems.append(Paragraph(f"  try {as_options(each.suggestions)}", "faint"))
    title = f"Sizes of {found.results[0].source} for {counted(len(rows), 'value')} of {found.sweep}"
    return Document(title, (Table(columns, tuple(rows)), *problems))


def sweep_table(found: SweepFindings) -> Table:
    """Return every value of a sweep, a row per value of the swept input, for CSV."""
    names = [name for name in formulas() if any(name in (each.derived or {}) for each in found.results)]
    rows = [
        (
            *(each.input[name] for name in INPUT_FIELDS),
            each.valid,
            " ".join(each.codes["errors"]),
            " ".join(each.codes["warnings"]),
            *((each.derived or {}).get(name) for name in names),
        )
        for each in found.results
    ]
    return exact_table((*INPUT_FIELDS, "valid", "errors", "warnings", *names), rows)
