"""The results of `hmx study` as documents and lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from hmx.config.coerce import show
from hmx.config.textfile import quoted
from hmx.errors import counted
from hmx.records.plain import JsonValue
from hmx.render.blocks import Block, Document, Heading, Paragraph, Table, facts
from hmx.render.numbers import right, table_of, texts
from hmx.render.quantities import UNKNOWN, duration, interval, number, short
from hmx.reports.compare.request import EVALUATION
from hmx.study.records import CONFIG_KEY, Objective, Parameter
from hmx.study.request import DEFAULT_CONFIRM
from hmx.study.space import text_of
from hmx.study.state import Advice, Standing

if TYPE_CHECKING:  # importing the worker imports JAX
    from hmx.study.best import BestTrial
    from hmx.study.plan import StudyPlan
    from hmx.study.status import RankedTrial, RunningTask, StudyStatus
    from hmx.study.verify import Difference, StudyVerification
    from hmx.study.worker import WorkStep

_ORDER = ("finished", "paused", "running", "waiting", "failed", "refused")
_MEASURES = {
    "final": "mean of the last tenth", "auc": "area under the curve", "steps_to": "steps",
    "cpu_seconds_to": "CPU seconds",
}  # fmt: skip
_LONGEST = 160  # characters of a reason


def objective_text(objective: Objective) -> str:
    """Describe an objective, such as `mean of the last tenth of train/mean_episode_return, higher is better`."""
    if objective.metric == EVALUATION:
        return "mean return of the evaluation at the end of each run, higher is better"
    if objective.threshold is not None:
        way = "at least" if objective.maximize else "at most"
        what = _MEASURES[objective.measure]
        return f"{what} until {objective.metric} is {way} {objective.threshold:g}, lower is better"
    better = "higher" if objective.maximize else "lower"
    return f"{_MEASURES[objective.measure]} of {objective.metric}, {better} is better"


def values_text(values: Mapping[str, JsonValue]) -> str:
    """Write the values of a trial as `key=value`, separated by spaces."""
    return " ".join(f"{key}={value_text(value)}" for key, value in values.items())


def value_text(value: JsonValue) -> str:
    """Write a value as `--set` reads it; a dash for none."""
    if value is None:
        return UNKNOWN
    if isinstance(value, float):
        return f"{value:.4g}"
    return show(tuple(value) if isinstance(value, list) else value)


def status(found: StudyStatus) -> Document:
    """Show the state of a study and its best trials."""
    states = [f"{found.states[name]} {name}" for name in _ORDER if name in found.states]
    proposed = sum(count for name, count in found.states.items() if name != "refused")
    rows = [
        (
            "trials",
            f"{proposed:,} of {found.settings.trials:,} proposed" + (f": {', '.join(states)}" if states else ""),
        ),
        ("objective", objective_text(found.settings.objective)),
    ]
    if len(found.rungs) > 1:
        rows.append(("rungs", ", ".join(f"{count:,} at rung {rung}" for rung, count in enumerate(found.rungs))))
    if found.confirmations:
        rows.append(("confirmed", f"{found.confirmed} of {found.confirmations} on fresh seeds"))
    rows.append(("steps", f"{short(found.steps_done)} of about {short(found.steps_expected)}"))
    now = found.standing
    if found.cpu_seconds:
        decided = now.state in ("finished", "failed") or found.cpu_seconds_left is None
        left = "" if decided else f", about {_hours(found.cpu_seconds_left or 0)} left"
        rows.append(("processor time", _hours(found.cpu_seconds) + left))
    blocks: list[Block] = [*state_lines(now), facts(tuple(rows)), *next_step(now.next)]
    if found.leading:
        blocks += [Heading("Best" if now.confirmed else "Leading the search", 2), _ranking(found.leading)]
    if found.running:
        blocks += [Heading("Running", 2), _running(found.running)]
    for name, reasons in (("refused", found.refused), ("failed", found.failed)):
        blocks += [
            Paragraph(f"{name}, {counted(count, 'trial')}: {quoted(' '.join(why.split()), _LONGEST)}", "warning")
            for why, count in reasons.items()
        ]
    return Document(f"Study {found.study.name}, {now.state}", tuple(blocks))


def state_lines(now: Standing) -> Iterator[Paragraph]:
    """Say why a study is in its state, and what speaks against its choice."""
    yield Paragraph(f"{now.reason[:1].upper()}{now.reason[1:]}.", "warning" if now.state == "failed" else "plain")
    if now.caution:
        yield Paragraph(f"Warning: {now.caution}.", "warning")


def next_step(*steps: Advice) -> Iterator[Block]:
    """Yield what to do next, with its commands."""
    yield Heading("Next", 2)
    for one in steps:
        yield Paragraph(f"{one.text[:1].upper()}{one.text[1:]}.")
        yield Paragraph(one.command, "command")


def _running(tasks: Sequence[RunningTask]) -> Table:
    columns = [
        texts("trial", lambda task: f"{task.trial}{', confirmation' if task.confirms else ''}"),
        texts("rung", lambda task: str(task.rung)), texts("update", lambda task: f"{task.update:,}"),
        texts("where", lambda task: f"process {task.pid} on {quoted(task.host)}"),
        texts("since", lambda task: quoted(task.since)),
    ]  # fmt: skip
    return table_of(tasks, columns)


def best(found: BestTrial) -> Document:
    """Show the best trial."""
    trial = found.best
    rows = [
        ("trial", f"{trial.trial}, {found.run}"),
        ("objective", interval(trial.objective, trial.low, trial.high)),
        *([("confirmed", f"{_confirmed(trial)} on fresh seeds")] if trial.confirmed is not None else []),
        *((key, value_text(value)) for key, value in trial.values.items()),
    ]
    title = "Best trial" if found.standing.confirmed else "First trial of the search"
    return Document(f"{title} of {found.study.name}", (*state_lines(found.standing), facts(tuple(rows))))


def _ranking(best: Sequence[RankedTrial]) -> Table:
    columns = [right("trial", lambda trial: str(trial.trial)), right("rung", lambda trial: str(trial.rung), 1)]
    columns += [right("objective", lambda trial: interval(trial.objective, trial.low, trial.high))]
    if any(trial.confirmed is not None for trial in best):
        columns += [right("confirmed", _confirmed)]
    return table_of(best, [*columns, texts("values", lambda trial: values_text(trial.values))])


def _confirmed(trial: RankedTrial) -> str:
    return interval(trial.confirmed, trial.confirmed_low, trial.confirmed_high)


def _hours(seconds: float) -> str:
    return duration(seconds) if seconds < 7200 else f"{seconds / 3600:,.1f} hours"


def plan(planned: StudyPlan) -> Document:
    """Show what a study would run."""
    settings = planned.settings
    rows = [
        ("trials", f"{settings.trials:,}, proposed by {settings.sampler}"),
        ("objective", objective_text(settings.objective)),
        ("seeds", f"{planned.seeds} per trial, side by side"),
        *((f"rung {rung.rung}", f"about {counted(rung.trials, 'trial')} to {short(rung.env_steps)} steps")
          for rung in planned.rungs),
        ("confirmation", f"{counted(planned.confirmations, 'trial')} on {counted(settings.confirm_seeds, 'fresh seed')}"
         if planned.confirmations else f"none; --confirm {DEFAULT_CONFIRM} asks for it"),
        ("steps", f"about {short(planned.search_steps)} to search, {short(planned.confirm_steps)} to confirm, over all "
         "seeds"),
    ]  # fmt: skip
    if planned.cpu_seconds is not None:
        speed = f"at {short(planned.steps_per_cpu_second or 0)} steps per processor second, measured here"
        rows.append(("processor time", f"about {_hours(planned.cpu_seconds)}, {speed}"))
    warnings = (Paragraph(f"Warning: {why}.", "warning") for why in planned.warnings)
    blocks: tuple[Block, ...] = (facts(tuple(rows)), *warnings, Heading("Space", 2), _space(settings.space))
    return Document(f"Study {planned.study.name}: plan", blocks)


def _space(space: Sequence[Parameter]) -> Table:
    key = texts("", lambda one: "configuration" if one.key == CONFIG_KEY else one.key)
    return table_of(space, [key, texts("", text_of)])


def step_line(step: WorkStep) -> str:
    """Return the line of a step."""
    where = f"trial {step.trial}"
    values = values_text(step.values)
    match step.kind:
        case "waiting":
            return step.message
        case "refused":
            return f"{where} refused: {quoted(' '.join(step.message.split()), _LONGEST)} ({values})"
        case "failed":
            return f"{where} failed at update {step.update:,}: {quoted(' '.join(step.message.split()), _LONGEST)}"
        case "promoted":
            return f"{where} promoted to rung {step.rung}"
        case "confirmed":
            return f"{where} confirmed: {number(step.objective, 4)} on fresh seeds"
    return f"{where} rung {step.rung}: {number(step.objective, 4)} ({values})"


def verification(found: StudyVerification) -> Document:
    """Show what was checked, and every difference."""
    rows = (
        ("proposals", f"{found.proposals:,} asked again"),
        ("promotions", f"{found.promotions:,} decided again"),
        ("results", f"{found.results:,} computed again from the metrics"),
        ("runs", f"{found.runs:,} verified"),
    )
    return checked(f"Study {found.study.name}", rows, found.differences)


def checked(name: str, rows: tuple[tuple[str, str], ...], differences: Sequence[Difference]) -> Document:
    """Show what was checked of a study or gate, and every difference."""
    blocks: list[Block] = [facts(rows)]
    blocks += [Paragraph(f"{place}: {why}", "bad") for place, why in differences]
    verdict = "differs from its record" if differences else "matches its record"
    return Document(f"{name} {verdict}", tuple(blocks))
