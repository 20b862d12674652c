"""`hmx gate status` and `hmx gate report`: the ledger of a gate, its error budget, and what to do next."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hmx.errors import counted
from hmx.gates.records import MEANING, Attempt, GateSettings, Ledger, differences
from hmx.records.plain import JsonResult, ShortRepr
from hmx.render.blocks import (
    Axis,
    Block,
    Cell,
    Document,
    Heading,
    Paragraph,
    Plot,
    Reference,
    Series,
    Table,
    Tone,
    exact_table,
    facts,
)
from hmx.render.numbers import num, numbers, shown, signed_estimate, table_of, texts
from hmx.render.quantities import number
from hmx.stats.aggregates import interquartile_mean
from hmx.stats.estimate import Estimate
from hmx.stats.evidence import e_value, power
from hmx.stats.intervals import median, median_interval
from hmx.study.state import Advice
from hmx.study.summaries import checked, next_step, objective_text

if TYPE_CHECKING:  # importing the worker imports JAX
    from hmx.gates.verify import GateVerification


@dataclass(frozen=True, kw_only=True, repr=False)
class AttemptFacts(ShortRepr):
    """An attempt with its evidence."""

    attempt: int
    change: str
    verdict: str  # empty while it is not decided
    reason: str
    baseline: int  # number of the attempt that it was compared with
    adopted: bool
    pairs: int = num("pairs of runs that it used", column="pairs")
    won: int = num("pairs in which the candidate was better", column="won")
    lost: int = num("pairs that had begun, and count as lost without a number")
    difference: Estimate | None = num(
        "median by which the candidate is better, with an interval that holds at 95 % for any distribution if the "
        "number of pairs was fixed; that of a kept change is too large on average", column="difference", rank=2,
    )  # fmt: skip
    e_value: float = num("evidence that the change helps: an e-value", "", "up", "evidence")
    needed: float | None = num("e-value that keeps it; none without a stake", column="needed", rank=2)
    level: float = num("probability that it keeps a change that does not help, at most", column="level", rank=3)


@dataclass(frozen=True, kw_only=True, repr=False)
class GateStatus(ShortRepr, JsonResult):
    """A gate as it is now."""

    gate: Path
    settings: GateSettings
    baseline: int  # number of the attempt that is the baseline
    baseline_value: float | None = num("interquartile mean of the baseline on seeds that did not choose it")
    baseline_seeds: int = num("number of these seeds")
    budget_left: float = num("part of the error budget that is left")
    next_level: float = num("level of the next attempt")
    power: dict[float, float] = num(
        "probability that the next attempt keeps an effect, by its size in standard deviations of the seeds"
    )
    attempts: tuple[AttemptFacts, ...]
    next: Advice


def gate_status(gate: Ledger) -> GateStatus:
    """Return the status of a gate."""
    fresh = {pair.seed: pair.baseline for one in gate.attempts if one.verdict and one.baseline == gate.baseline.number
             for pair in one.verdict.pairs}  # fmt: skip
    value = float(interquartile_mean([list(fresh.values())])) if fresh else None
    return GateStatus(
        gate=gate.folder, settings=gate.settings, baseline=gate.baseline.number, baseline_value=value,
        baseline_seeds=len(fresh), budget_left=gate.left, next_level=gate.levels[-1],
        power={effect: power(effect, gate.levels[-1], gate.settings.max_seeds) for effect in _EFFECTS},
        attempts=tuple(attempt_facts(gate, one) for one in gate.attempts[1:]), next=_advice(gate),
    )  # fmt: skip


def attempt_facts(gate: Ledger, attempt: Attempt) -> AttemptFacts:
    """Return the facts of an attempt."""
    verdict = attempt.verdict
    gains = differences(gate, verdict.pairs) if verdict else []
    ends = median_interval(gains) or (None, None)
    return AttemptFacts(
        attempt=attempt.number, change=attempt.program.text, verdict=verdict.outcome if verdict else "",
        reason=verdict.reason if verdict else "it is not decided yet", baseline=attempt.baseline,
        adopted=bool(attempt.adopted), pairs=len(gains), won=sum(gain > 0 for gain in gains),
        lost=gate.settings.seeds if verdict and verdict.lost else 0,
        difference=Estimate(median(gains), *ends) if gains else None,
        e_value=verdict.e_value if verdict else 1.0, needed=round(1 / attempt.level, 9) if attempt.level else None,
        level=attempt.level,
    )  # fmt: skip


def _advice(gate: Ledger) -> Advice:
    current = gate.baseline
    if gate.open is not None:
        return Advice(f"continue attempt {gate.open.number}", f"hmx gate try {gate.argument}")
    kept = [one for one in gate.attempts if one.verdict and one.verdict.outcome == "keep" and not one.adopted
            and one.baseline == current.number]  # fmt: skip
    if kept:
        number = f"{kept[-1].number}"
        return Advice(f"make attempt {number} the baseline", f"hmx gate adopt {gate.argument} {shlex.quote(number)}")
    if e_value((), gate.settings.max_seeds) * gate.levels[-1] < 1:
        return Advice("the error budget is used up, and no change can be kept: make another", "hmx gate new --help")
    return Advice("try a change", f"hmx gate try {gate.argument} --help")


_EFFECTS = (0.5, 1.0, 2.0)  # in standard deviations of the seeds
_TONES: dict[str, Tone] = {"keep": "good", "worse": "bad", "failed": "bad", "": "strong"}


def status(found: GateStatus, gate: Ledger | None = None) -> Document:
    """Build the ledger as a document; with the gate, also the evidence of each attempt after each of its pairs."""
    series: list[Series] = []
    for one in gate.attempts[1:] if gate else ():
        if gate and one.verdict and (gains := differences(gate, one.verdict.pairs)):
            counts = range(1, len(gains) + 1)
            evidence = [e_value(gains[:count]) * one.level for count in counts]
            name = f"attempt {one.number}: {one.verdict.outcome}"
            series.append(Series(name, tuple(counts), tuple(evidence), colour=len(series)))
    most = max((value for one in series for value in one.y if value is not None), default=0.0)
    part = Axis("share of the evidence needed", "log", high=max(1.0, most))
    kept = Reference("y", 1.0, "keep")
    caption = "The evidence of each attempt after each of its pairs; a change is kept where its line reaches 1."
    plots = [Plot("Evidence", Axis("pairs"), part, tuple(series), caption, (kept,))] if series else []
    meanings = [f"{name}: {MEANING[name]}" for name in MEANING if any(one.verdict == name for one in found.attempts)]
    notes = [Paragraph("; ".join(meanings) + ".", "faint")] if gate and meanings else []
    return Document(f"Gate {found.gate.name}", (*_ledger(found), *plots, *notes))


def _ledger(found: GateStatus) -> Iterator[Block]:
    settings = found.settings
    value = "not known on fresh seeds yet"
    if found.baseline_value is not None:
        value = f"{number(found.baseline_value, 4)} on {counted(found.baseline_seeds, 'fresh seed')}"
    name = f"attempt {found.baseline}" if found.baseline else "the first one"
    budget = f"{found.budget_left:.3g} of {settings.error:g} is left; the next attempt needs an e-value of "
    sizes = " / ".join(f"{effect:g}" for effect in found.power)
    kept = " / ".join(f"{share:.0%}" for share in found.power.values())
    yield facts((
        ("objective", objective_text(settings.objective)),
        ("baseline", f"{name}: {value}"),
        ("error budget", budget + number(1 / found.next_level, 3)),
        ("pairs", f"at most {settings.max_seeds} in an attempt"),
        ("power", f"keeps {kept} of changes that help by {sizes} standard deviations of the seeds"),
    ))  # fmt: skip
    if not found.attempts and found.power[1.0] < 0.5:
        most = next(most for most in (settings.max_seeds << more for more in itertools.count(1))
                    if power(1.0, found.next_level, most) >= 0.5)  # fmt: skip
        few = "most changes that help by one standard deviation will not be kept"
        yield Paragraph(f"Warning: {few}; --max-seeds {most} keeps half of them or more.", "warning")
    if found.attempts:
        yield Heading("Attempts")
        columns = [
            texts("", lambda one: f"{one.attempt}"), texts("change", lambda one: one.change),
            texts("verdict", lambda one: Cell((one.verdict or "open") + " (adopted)" * one.adopted)),
            *shown(numbers(AttemptFacts)),
        ]  # fmt: skip
        yield table_of(found.attempts, columns, tone=lambda one: _TONES.get(one.verdict, "plain"))
    yield from next_step(found.next)


def verdict(found: AttemptFacts, *steps: Advice) -> Document:
    """Build the verdict of an attempt as a document, with what to do next."""
    meaning = next((text for name, text in MEANING.items() if name == found.verdict), "")
    needed = f"; {number(found.needed, 3)} keeps the change" if found.needed else ""
    rows = (
        ("change", found.change),
        ("meaning", meaning if meaning != found.reason else ""),
        ("lost", f"{counted(found.lost, 'pair')} that had begun and gave no number" if found.lost else ""),
        ("median difference", signed_estimate(found.difference) if found.pairs else ""),
        ("e-value", f"{number(found.e_value, 3)}{needed}" if found.pairs or found.lost else ""),
    )
    said = (Paragraph(f"{found.verdict}: {found.reason}.", "strong"), facts(tuple(row for row in rows if row[1])))
    return Document(f"Attempt {found.attempt}", (*said, *(next_step(*steps) if steps else ())))


def table(found: GateStatus) -> Table:
    """Build the table of all attempts, for CSV."""
    names = ["attempt", "change", "verdict", "baseline", *(one.name for one in numbers(AttemptFacts))]
    cells = ([getattr(one, name) for name in names] for one in found.attempts)
    return exact_table(names, ([cell.value if isinstance(cell, Estimate) else cell for cell in row] for row in cells))


def verification(found: GateVerification) -> Document:
    """Show what was checked, and every difference."""
    pairs, runs = f"{found.pairs:,} computed again from the runs", f"{found.runs:,} verified"
    rows = (("attempts", f"{found.attempts:,}"), ("pairs", pairs), ("runs", runs))
    return checked(f"Gate {found.gate.name}", rows, found.differences)
