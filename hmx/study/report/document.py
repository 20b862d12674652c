"""The report of a study as a document: the best configuration first, and what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import attrgetter

from hmx.errors import counted
from hmx.render.blocks import Aside, Block, Cell, Document, Heading, Paragraph, Plot, Tone
from hmx.render.numbers import estimate, numbers, right, shown, signed_estimate, table_of, texts
from hmx.render.quantities import duration
from hmx.reports.compare import document as comparisons
from hmx.reports.compare.findings import Outcome
from hmx.reports.compare.sentence import conclusion
from hmx.stats.importance import MIN_TRIALS
from hmx.study.report import figures
from hmx.study.report.findings import Finalist, Judgement, OptionImportance, StudyFindings, TrialFacts
from hmx.study.report.numbers import TRIAL, objective_name, short_names
from hmx.study.summaries import next_step, state_lines, value_text

_SHOWN = 10  # trials of the table
_AGAINST: dict[Outcome, str] = {"better": "worse", "weak evidence": "perhaps worse"}
_TONES: dict[Judgement, Tone] = {
    "matters": "strong", "matters little": "plain", "cannot tell": "faint", "too few trials": "faint",
}  # fmt: skip


def document(findings: StudyFindings) -> Document:
    """Build the report."""
    blocks = [*_result(findings), *next_step(*findings.advice)]
    if findings.finalists and (findings.confirmed or not findings.is_list):
        blocks += _finalists(findings)
    if findings.is_list and findings.comparison is not None:
        blocks += comparisons.document(findings.comparison).blocks
    if findings.ranked:
        blocks += [*_importance(findings), *_trials(findings)]
    if any(trial.objective is not None for trial in findings.trials):
        blocks.append(Aside((Heading("Figures"), *_figures(findings)), beside=False))
    return Document(f"Study {findings.name}", tuple(blocks))


def _result(findings: StudyFindings) -> Iterator[Block]:
    yield Heading("Result")
    yield from state_lines(findings.standing)
    if findings.finalists:
        yield from _best(findings, findings.finalists[0])
    yield Paragraph(_facts(findings), "faint")
    yield from (Paragraph(f"Warning: {why}.", "warning") for why in findings.warnings)


def _best(findings: StudyFindings, best: Finalist) -> Iterator[Block]:
    values = next(trial.values for trial in findings.trials if trial.trial == best.trial)
    names = short_names(values)
    setting = ", ".join(f"{names[key]} {value_text(value)}" for key, value in values.items())
    figure, seeds = (best.confirmed, best.confirmed_seeds) if best.confirmed else (best.tuned, best.tuned_seeds)
    fresh = "fresh " if best.confirmed else ""
    name, first = objective_name(findings.settings.objective), "Best" if best.confirmed else "First"
    yield Paragraph(
        f"{first}: {best.name} ({setting}). {name[:1].upper()}{name[1:]}: {estimate(figure)} over "
        f"{counted(seeds, f'{fresh}seed')}.",
        "strong",
    )
    if findings.pairs and findings.settings.objective.threshold is None:
        yield Paragraph(conclusion(findings.pairs[0]))
    yield _chosen(findings, best)
    if findings.indistinct:
        yield Paragraph(f"Cannot be distinguished from it: {', '.join(findings.indistinct)}.", "warning")
    if worse := [pair.b for pair in findings.pairs if pair.b not in findings.indistinct]:
        yield Paragraph(f"Worse: {', '.join(worse)}.")


def _chosen(findings: StudyFindings, best: Finalist) -> Paragraph:
    """Say how much of the figure is due to choosing it from many."""
    trials = counted(len(findings.ranked), "trial")
    if best.confirmed is None or best.overstated is None:
        text = f"This figure made it the first of {trials}, so it is too optimistic; only fresh seeds show by how much."
        return Paragraph(text, "warning")
    seeds = counted(best.tuned_seeds, "seed")
    rank = 1 + [trial.trial for trial in findings.ranked].index(best.trial)
    text = f"It ranked {rank} of {trials} in the search, with {estimate(best.tuned)} over {seeds}."
    by = f"tuned less confirmed is {signed_estimate(best.overstated)}"
    if best.overstated.excludes_zero and best.overstated.value > 0:
        return Paragraph(f"{text} The search overstated it: {by}.", "warning")
    return Paragraph(f"{text} The difference is within the noise: {by}.")


def _facts(findings: StudyFindings) -> str:
    settings = findings.settings
    done = sum(len(trial.rungs) == len(settings.rungs) for trial in findings.trials)
    texts = [f"{len(findings.trials):,} of {counted(settings.trials, 'trial')} started, {done:,} trained to the end"]
    stopped = sum(0 < len(trial.rungs) < len(settings.rungs) for trial in findings.trials)
    failed = sum(bool(trial.failed) for trial in findings.trials)
    texts += [f"{stopped:,} stopped earlier"] if stopped else []
    texts += [f"{failed:,} failed"] if failed else []
    texts += [f"{findings.refused:,} refused"] if findings.refused else []
    seconds = [trial.cpu_seconds for trial in findings.trials if trial.cpu_seconds]
    fresh = [finalist.confirmed_cpu_seconds for finalist in findings.finalists if finalist.confirmed_cpu_seconds]
    texts += [f"{duration(sum(seconds))} of CPU time"] if seconds else []
    texts += [f"{duration(sum(fresh))} of CPU time on fresh seeds"] if fresh else []
    return f"{'; '.join(texts)}. Environment {findings.task}, sampler {settings.sampler}."


def _finalists(findings: StudyFindings) -> Iterator[Block]:
    yield Heading("The best configurations" if findings.confirmed else "The first of the search")
    first = "best" if findings.confirmed else "first"
    verdicts = {pair.b: _AGAINST.get(pair.verdict.outcome, pair.verdict.outcome) for pair in findings.pairs}
    columns = shown(numbers(Finalist), *([] if findings.confirmed else ["tuned", "cpu_seconds"]))
    against = texts(f"against the {first}", lambda one: verdicts.get(one.name, ""), 1)
    yield table_of(findings.finalists, [texts("", attrgetter("name")), *columns, against], note=_seeds(findings))
    if plots := tuple(figures.curves(findings)):
        yield Aside(plots, beside=False)


def _seeds(findings: StudyFindings) -> str:
    best = findings.finalists[0]
    fresh = f" and {best.confirmed_seeds} fresh ones" if findings.confirmed else ""
    seeds = counted(best.tuned_seeds, "seed")
    return f"Brackets are 95 % intervals over {seeds}{fresh}. Verdicts follow the rules of hmx compare."


def _importance(findings: StudyFindings) -> Iterator[Block]:
    yield Heading("Importance of the options")
    if all(one.judgement == "too few trials" for one in findings.importance):
        yield Paragraph(f"Too few trials: at least {MIN_TRIALS} results are needed.", "faint")
        return
    note = (
        "Share of the variance of the ranks of the trials that an option explains alone: a number by its best cubic, a "
        "choice by the mean of each value. The 95 % interval is over trials; the p-value accounts for the number of "
        "options. The rest is seeds, options that act together, and effects that no cubic follows."
    )
    if findings.settings.sampler not in ("random", "quasi-random", "grid"):
        note += " The sampler chose values from earlier results, so the options are not independent: read with care."
    judged = texts("", lambda one: Cell(one.judgement, tone=_TONES[one.judgement]))
    yield table_of(
        findings.importance, [texts("option", attrgetter("key")), *shown(numbers(OptionImportance)), judged], note=note
    )


def _trials(findings: StudyFindings) -> Iterator[Block]:
    yield Heading("Trials")
    names = short_names(one.key for one in findings.settings.space)
    columns = [texts("trial", lambda trial: f"{trial.trial}"), *shown(TRIAL)]
    columns += [right(name, partial(_setting, key), rank) for rank, (key, name) in enumerate(names.items(), 3)]
    count = len(findings.ranked)
    note = f"The first {_SHOWN} of {count:,}; --csv has all." if count > _SHOWN else ""
    yield table_of(findings.ranked[:_SHOWN], columns, note=note)


def _setting(key: str, trial: TrialFacts) -> str:
    return value_text(trial.values[key])


def _figures(findings: StudyFindings) -> Iterator[Plot]:
    yield figures.results(findings)
    if len(findings.settings.space) > 1:
        yield figures.parallel(findings)
    if (costs := figures.costs(findings)) is not None:
        yield costs
    for one in findings.importance:
        yield figures.option(findings, next(p for p in findings.settings.space if p.key == one.key))
