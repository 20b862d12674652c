"""The results of `train`, `resume`, `evaluate` and `runs` as documents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hmx.config.coerce import show, show_all
from hmx.config.fields import FIELDS, OWN_SECTIONS, own_values, values_of
from hmx.config.textfile import quoted
from hmx.errors import counted
from hmx.render.blocks import Block, Cell, Column, Document, Heading, Paragraph, Row, Table, Tone, facts
from hmx.render.numbers import Shown, exact, right, table_of, texts
from hmx.render.quantities import UNKNOWN, age, clock, data_size, number, short

if TYPE_CHECKING:
    from hmx.jobs.evaluation import EvaluateResult, PolicyStats
    from hmx.jobs.hub import HubResult
    from hmx.jobs.plan import Plan
    from hmx.jobs.resume import ResumePlan
    from hmx.jobs.runs import ListResult
    from hmx.jobs.sync import SyncResult
    from hmx.jobs.train import TrainResult
    from hmx.records.verify import Damage, Stretch, VerifyResult
    from hmx.runs.memory_parts import Memory

_FEW_WINS = 10  # below this, the bootstrap interval of the mean return covers less than 95 %
_LONGEST = 400  # characters of a text from a file
_TERMS = 5  # reward terms with a name, at most
_TONES: dict[str, Tone] = {
    "running": "good", "crashed": "bad", "failed": "bad", "unknown": "bad", "interrupted": "warning",
}  # fmt: skip
TRAINED = {"sampled": "trained", "greedy": "trained", "search": "trained"}
"""Name of the policy that judged a run at its end -> its name in the summary of that run."""


def training(result: TrainResult, command: Callable[[str], str] = str, page: Path | None = None) -> Document:
    """Show the end of a run: random play and the trained agent, speed, files, its page, next commands."""
    name = result.resume_command.removeprefix("hmx resume ")
    steps = result.env_steps * result.num_seeds
    further: tuple[str, ...] = (f"hmx watch {name}", f"hmx evaluate {name}")
    further += (f"hmx report {name}",) if page else ()
    if result.state == "interrupted":
        further = (result.resume_command, *further)
    seconds = f"{result.seconds:.1f} s" if result.seconds < 60 else clock(result.seconds)
    rows = [
        ("steps", f"{steps:,} at {short(result.steps_per_sec)} steps/s on {result.device}"),
        ("time", f"{seconds} of training"),
        ("run", str(result.run)),
        *([("page", f"{page}, without episodes")] if page else []),
        *_listed("next", [command(text) for text in further]),
    ]
    blocks: list[Block] = [policies(result.evaluation, TRAINED)] if result.evaluation else []
    blocks += few_wins(result.evaluation, TRAINED)
    return Document("", (*blocks, facts(tuple(rows))))


def evaluation(found: EvaluateResult) -> Document:
    """Show a row per policy, and what was completed on boards that UNDO brought back."""
    blocks: list[Block] = [policies(found.policies, {})]
    if found.search is not None:
        start = {"player": ", from what the player has seen", "everything": ", and sees what is hidden from the player"}
        text = (
            f"search: looks ahead by {found.search} simulated steps before each action{start.get(found.sees or '', '')}"
        )
        blocks.append(Paragraph(text, "faint"))
    if found.changes:
        unlike = ", unlike the run" if found.run else ""
        text = f"evaluated with {show_all(found.changes)}{unlike}"
        blocks.append(Paragraph(text, "warning" if found.run else "faint"))
    if found.trained_with:
        text = f"returns have the default reward weights; the agent learned with {show_all(found.trained_with)}"
        blocks.append(Paragraph(text, "faint"))
    blocks += (Paragraph(f"{policy}: {terms}", "faint") for policy, terms in earned(found.policies).items())
    blocks += undone(found.policies, {})
    for row in found.policies:
        if row.unfinished:
            blocks.append(Paragraph(f"{row.policy}: {counted(row.unfinished, 'episode')} did not finish", "warning"))
    blocks += few_wins(found.policies, {})
    what = found.env
    if found.run is not None and found.env_steps is not None:
        what = f"{found.run.name}, checkpoint {found.checkpoint} ({counted(found.env_steps, 'step')})"
    return Document(f"{what}, {counted(found.episodes, 'episode')} per policy", tuple(blocks))


def earned(rows: Sequence[PolicyStats]) -> dict[str, str]:
    """Return the reward terms that the return of each policy is made of, as means over its agents."""
    agents = {name: [row.reward_terms for row in rows if row.policy == name] for name in (row.policy for row in rows)}
    means = {
        name: {term: sum(found.get(term, 0.0) for found in terms) / len(terms) for term in terms[0]}
        for name, terms in agents.items()
    }
    return {name: f"{composition(terms)} per episode" for name, terms in means.items() if len(terms) > 1}


def composition(terms: Mapping[str, float]) -> str:
    """Return the largest reward terms with their amounts, and the sum of the others: coin +1.00, door +0.90."""
    order = sorted((name for name in terms if terms[name]), key=lambda name: -abs(terms[name]))
    whole = order if len(order) <= _TERMS + 1 else order[:_TERMS]
    shown = [f"{name} {terms[name]:+.2f}" for name in whole]
    if rest := order[len(whole) :]:
        shown.append(f"{len(rest)} others {sum(terms[name] for name in rest):+.2f}")
    return ", ".join(shown) or "no reward"


def few_wins(rows: Sequence[PolicyStats], names: Mapping[str, str]) -> Iterator[Paragraph]:
    """Say of each agent with few wins, once for all its seeds, that the intervals of its returns rest on them."""
    few = [row for row in rows if row.wins is not None and row.wins < _FEW_WINS and row.policy != "random"]
    few = [row for row in few if row.win_rate_interval is not None]
    for policy in dict.fromkeys(row.policy for row in few):
        seeds = [row for row in few if row.policy == policy]
        name, wins = names.get(policy, policy), sorted(row.wins or 0 for row in seeds)
        episodes = counted(seeds[0].episodes, "episode")
        if not wins[-1]:
            each = f" of each of {len(seeds)} seeds" if len(seeds) > 1 else ""
            yield Paragraph(f"{name}: no win in {episodes}{each}, so the return does not show rarer wins", "faint")
        elif len(seeds) == 1 and seeds[0].win_rate_interval:
            ends = seeds[0].win_rate_interval
            rate = f"win rate {100 * ends.low:.1f} to {100 * ends.high:.1f} %"
            rests = f"the return rests on {counted(wins[0], 'win')} in {episodes} ({rate})"
            yield Paragraph(f"{name}: {rests}, so its interval covers less than 95 %", "faint")
        else:
            number = f"{wins[0]} to {wins[-1]} wins" if wins[0] < wins[-1] else counted(wins[0], "win")
            rests = f"the returns of {len(seeds)} seeds rest on {number} in {episodes}"
            yield Paragraph(f"{name}: {rests}, so their intervals cover less than 95 %", "faint")


def undone(rows: Sequence[PolicyStats], names: Mapping[str, str]) -> Iterator[Paragraph]:
    """Say for each policy what it completed on boards that UNDO brought back from an earlier stage."""
    for row in rows:
        if row.stages_completed is None or row.undo_stages is None or row.wins_without_undo is None:
            continue
        stages = f"{row.stages_completed:.2f} stages completed per episode"
        back = f"{row.undo_stages:.2f} of them on a board that UNDO brought back"
        wins = f"wins without such a stage: {row.wins_without_undo}/{row.episodes}"
        yield Paragraph(f"{names.get(row.policy, row.policy)}: {stages}, {back}; {wins}", "faint")


def policies(rows: Sequence[PolicyStats], names: Mapping[str, str]) -> Table:
    """Show a row per policy and seed; `names` replaces policy names."""
    several = len({row.seed for row in rows if row.seed is not None}) > 1

    def agent(row: PolicyStats) -> str:
        name = names.get(row.policy, row.policy)
        return f"{name} {row.seed}" if several and row.seed is not None else name

    columns = [texts("agent", agent), right("return", lambda row: f"{row.return_mean:+.2f}")]
    columns.append(right("95 %", _return_interval, 1))
    if any(row.stage_mean is not None for row in rows):
        columns += [_known("stage", "stage_mean", ".2f"), _known("median", "stage_median", ".0f", 2)]
        columns.append(_known("best", "stage_max", "", 2))
    columns.append(_known("length", "length_mean", ".0f"))
    if any(row.wins is not None for row in rows):
        columns.append(right("wins", lambda row: "" if row.wins is None else f"{row.wins}/{row.episodes}"))
    return table_of(rows, columns, tone=lambda row: "plain" if row.policy == "random" else "strong")


def _known(name: str, field: str, form: str, rank: int = 0) -> Shown:
    """Return a column of a field in a format, empty where it is unknown."""

    def cell(row: PolicyStats) -> str:
        value = getattr(row, field)
        return "" if value is None else f"{value:{form}}"

    return right(name, cell, rank)


def _return_interval(row: PolicyStats) -> str:
    ends = row.return_interval
    if ends is None:
        return ""
    return f"all {row.episodes:,} equal" if ends.low == ends.high else f"{ends.low:+.2f} to {ends.high:+.2f}"


def plan(planned: Plan, full: bool = False) -> Document:
    """Show the plan of `train`: settings that differ from the defaults (all if `full`), sizes, memory and files."""
    blocks: list[Block] = []
    columns = (Column("", "left"), Column("", "left"), Column("", "left"))
    if values := tuple(_values(planned, full)):
        blocks += [Heading("Configuration" if full else "Different from the defaults"), Table(columns, values)]
    if full:
        rows = [Row((row.id, row.title, row.meaning), "bad" if row.bug else "plain") for row in planned.meaning]
        if rows:
            blocks += [Heading("Meaning"), Table(columns, tuple(rows))]
    blocks += [Heading("Sizes"), facts(tuple(_sizes(planned)))]
    if not full:
        blocks.append(Paragraph("--full also shows every value and what the settings mean.", "faint"))
    return Document("", tuple(blocks))


def _values(planned: Plan, full: bool) -> Iterator[Row]:
    values, own = values_of(planned.config), own_values(planned.config)
    for field in FIELDS.values():
        value, origin = values[field.key], planned.origins.get(field.key, "default")
        if full or (value != field.default and field.key != "run.name"):
            tone: Tone = "plain" if origin == "default" else "strong"
            source = "" if origin == "default" else origin
            yield Row((Cell(field.key, tone=tone), Cell(show(value) or '""', tone=tone), Cell(source, tone="faint")))
        if field.key in OWN_SECTIONS.values():
            for key, setting in own.items():
                if key.startswith(f"{field.section}."):
                    yield Row((key, show(setting), Cell(planned.origins.get(key, ""), tone="faint")))


def _sizes(planned: Plan) -> Iterator[tuple[str, str]]:
    sizes = planned.sizes
    count = sizes.gradient_steps_per_update
    gradient_steps = f", {counted(count, 'gradient step')} of {sizes.minibatch_size:,}" if count else ""
    yield "update", f"{counted(sizes.batch_size, 'step')}{gradient_steps}"
    yield "run", f"{counted(sizes.num_updates, 'update')}, {counted(sizes.total_env_steps, 'step')} per seed"
    yield "chunk", f"{counted(sizes.updates_per_chunk, 'update')} in one compiled call"
    yield "checkpoints", f"{sizes.num_checkpoints} written, {data_size(planned.checkpoint_bytes)} kept on disk"
    if planned.replay_ratio is not None:
        yield "replay", f"each transition is trained on {planned.replay_ratio:g} times on average"
    yield from _memory(planned.memory) if planned.memory else ()
    yield "device", planned.device
    yield from planned.files.items()


def _memory(memory: Memory) -> Iterator[tuple[str, str]]:
    low, high = data_size(memory.total_bytes_low), data_size(memory.total_bytes_high)
    yield "memory", f"about {data_size(memory.total_bytes)} during an update ({low} to {high})"
    for part in memory.parts:
        yield "", f"{part.label}: {data_size(part.bytes)}, {part.formula}"


RUN_COLUMNS: tuple[Shown, ...] = (
    texts("run", lambda row: quoted(row.name, _LONGEST)),
    texts("environment", lambda row: quoted(row.env), 3),
    texts("algorithm", lambda row: quoted(row.algorithm), 6),
    texts("state", lambda row: Cell(row.state, tone=_TONES.get(row.state, "plain")), 1),
    right("steps", lambda row: short(row.env_steps) + (f" of {short(row.total_steps)}" if row.total_steps else ""), 2),
    exact("return", lambda row: row.last_return, "{:+.2f}".format, unknown=""),
    exact("steps/s", lambda row: row.steps_per_sec, short, 7, ""),
    exact("remaining", lambda row: row.seconds_left, clock, 8, ""),
    exact("size", lambda row: row.size, data_size, 5),
    exact("age", lambda row: row.age, age, 4, ""),
)
"""Columns of a list of runs, in the terminal and on the board; a narrow terminal drops those of the highest rank."""


def run_list(found: ListResult, filtered: bool = False) -> Document:
    """Show a row per run; `filtered` says that only some runs of the folder were asked for."""
    if not found.runs:
        why = "no run matches" if filtered else "hmx train --preset gumbel creates one"
        return Document("", (Paragraph(f"no runs in {found.root}: {why}"),))
    return Document("", (table_of(found.runs, RUN_COLUMNS),))


def record_head(names: Sequence[str]) -> str:
    """Return the line above the lines of records, with the last parts of the metrics' names."""
    heads = ("steps", "seed", *(quoted(name).rpartition("/")[2] for name in names))
    return "  ".join(head.rjust(width) for head, width in zip(heads, _widths(names), strict=True)) + "\n"


def record_line(record: Mapping[str, object], names: Sequence[str]) -> str:
    """Return one record as a line: steps, seed, and the metrics of these names."""
    values = [record.get(name) for name in ("env_steps", "seed", *names)]
    cells = [f"{value:,}" if isinstance(value, int) else _metric(value) for value in values]
    return "  ".join(cell.rjust(width) for cell, width in zip(cells, _widths(names), strict=True)) + "\n"


def _metric(value: object) -> str:
    return number(value, 4) if isinstance(value, float) else UNKNOWN


def _widths(names: Sequence[str]) -> list[int]:
    return [13, 4, *(max(len(quoted(name).rpartition("/")[2]), 9) for name in names)]


def verification(found: VerifyResult) -> Document:
    """Show the damaged or missing files, or that there are none."""
    columns = (Column("", "left"), Column("", "left"))
    shown: list[tuple[Tone, tuple[Damage, ...]]] = [("bad", found.damage), ("faint", found.notes)]
    rows = [
        Row((Cell(quoted(row.path, _LONGEST), tone=tone), quoted(" ".join(row.what.split()), _LONGEST)))
        for tone, damage in shown
        for row in damage
    ]
    rows += [] if found.replay is None else [_stretch(stretch) for stretch in found.replay.stretches]
    intact = ", ".join(str(update) for update in found.intact) or "none"
    state = "damaged" if found.damage else "intact"
    text = f"{quoted(str(found.run), _LONGEST)}: {state}; intact checkpoints: {intact}"
    if found.replay is not None:
        text += f"; replayed {len(found.replay.stretches)} of {found.replay.of} stretches (--seed {found.replay.seed})"
    end = Paragraph(text)
    return Document("", (Table(columns, tuple(rows)), end) if rows else (end,))


def _stretch(stretch: Stretch) -> Row:
    texts: dict[str, tuple[Tone, str]] = {
        "equal": ("good", "equal"),
        "different": ("bad", f"different: {quoted(stretch.quantity, _LONGEST)} of update {stretch.update}"),
        "not replayed": ("warning", f"cannot replay: {quoted(' '.join(stretch.reason.split()), _LONGEST)}"),
    }
    tone, text = texts[stretch.outcome]
    return Row((f"updates {stretch.first} to {stretch.last}", Cell(text, tone=tone)))


def resumption(planned: ResumePlan, parent: Path | None = None) -> Document:
    """Show the range in which a run would be resumed, or forked from `parent`, and the changes."""
    rows = [
        *([("fork of", quoted(str(parent), _LONGEST))] if parent is not None else []),
        ("run", quoted(str(planned.run), _LONGEST)),
        ("from", f"update {planned.update:,}, {planned.env_steps:,} steps per seed"),
        ("to", f"update {planned.total_updates:,}, {planned.total_env_steps:,} steps per seed"),
    ]
    for key, (before, after) in planned.changes.items():
        rows.append(("change", quoted(f"{key}: {show(before)} -> {show(after)}", _LONGEST)))
    return Document("", (facts((*rows, ("device", planned.device))),))


def synchronisation(done: SyncResult) -> Document:
    """Show the number of records sent, and their destination."""
    sent = f"{counted(done.sent, 'record')} to the project {quoted(done.project)}; {done.there:,} already there"
    runs = ((f"seed {run.seed}", quoted(run.url or run.id, _LONGEST)) for run in done.wandb_runs)
    return Document("", (facts((("run", quoted(str(done.run), _LONGEST)), ("sent", sent), *runs)),))


def on_hub(done: HubResult, then: str) -> Document:
    """Show where the files of a run on the Hugging Face Hub are, and what to do next."""
    files = f"{counted(len(done.files), 'file')}, {data_size(done.size)}"
    rows = [("model", done.url or done.repo), ("folder", quoted(str(done.folder), _LONGEST)), ("files", files)]
    return Document("", (facts((*rows, *([("next", then)] if then else []))),))


def _listed(name: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield a row per text; only the first has the name."""
    for place, text in enumerate(texts):
        yield "" if place else name, text
