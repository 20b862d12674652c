"""The report on consequence scores as a document: the verdict first, then scores, comparisons and positions."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from hmx.envs.pictures import picture
from hmx.errors import counted
from hmx.render.blocks import (
    Aside,
    Axis,
    Block,
    Document,
    Heading,
    Paragraph,
    Plot,
    Reference,
    Series,
    Table,
    exact_table,
    facts,
)
from hmx.render.numbers import numbers, shown, table_of, texts
from hmx.render.quantities import count, duration, number, percent, short
from hmx.reports.score_buffer.findings import ScoreFindings, ScorePlan, TopPosition, TriedAction, gap_text, sentences
from hmx.stats.ranks import Correlation, ranks

_UNITS = {"w1": "reward", "dmean": "reward", "tv": "share", "js": "nats", "tv_bins": "share", "js_bins": "nats"}
_COLUMNS = {
    "index": "slot", "birth": "birth", "score": "score", "bias": "bias", "c_w1": "w1", "c_dmean": "dmean",
    "c_tv": "tv", "c_js": "js", "spread": "spread", "null": "null", "proxy": "proxy", "td_error": "td_error",
    "ended": "ended", "steps": "steps",
}  # fmt: skip
"""Columns of `--csv`: name in the score file -> name of the column."""


def document(found: ScoreFindings) -> Document:
    """Build the report."""
    verdict, *rest = sentences(found)
    trusted = found.gates[0].passed
    blocks: list[Block] = [Paragraph(verdict, "good" if trusted else "warning" if rest else "strong")]
    if rest:
        blocks.append(Paragraph(" ".join(rest)))
    blocks += [Paragraph(f"Warning: {warning}.", "warning") for warning in found.warnings]
    blocks += [Paragraph(f"Fails --strict: {gate}.", "warning") for gate in found.failed]
    blocks += [Paragraph(_subject(found), "faint"), facts(tuple(_fact_rows(found))), _histogram(found)]
    blocks.append(Aside(tuple(_comparisons(found))))
    if found.top:
        blocks += [Heading("Most consequential positions"), _top(found)]
        blocks += [Aside((picture(row.state), *_position(place, row))) for place, row in enumerate(found.top, 1)]
    blocks.append(Paragraph(f"Results are in {found.out}.", "faint"))
    return Document(f"Consequence scores of {found.path}", tuple(blocks))


def plan_document(plan: ScorePlan) -> Document:
    """Build the answer of `--dry-run`."""
    at_most = " at most" if plan.is_bound else ""
    rows = (
        ("cost", f"{plan.env_steps:,} environment steps at most; rollouts stop when their episodes end"),
        ("positions", f"{plan.positions:,} of {plan.size:,}"),
        ("each", f"{plan.actions} actions, and one twice, with {counted(plan.rollouts, 'rollout')}"),
        ("horizon", f"{counted(plan.horizon, 'step')}{at_most}"),
        ("results", str(plan.out)),
    )
    return Document("", (facts(rows),))


def table(found: ScoreFindings) -> Table:
    """Build the values of `--csv`: a row per position that was scored."""
    columns = {name: found.columns[key].tolist() for key, name in _COLUMNS.items()}
    return exact_table(columns, zip(*columns.values(), strict=True))


def _subject(found: ScoreFindings) -> str:
    options, policy = found.options, found.policy
    kind = policy.kind if policy.kind == "greedy" else f"{policy.kind} ({policy.parameter:g})"
    origin = "collected by playing" if found.buffer.collected else f"of {found.buffer.size:,} in the buffer"
    return (
        f"{found.env}: {counted(found.positions, 'position')} {origin}. {counted(options.rollouts, 'rollout')} of "
        f"{counted(options.horizon, 'step')} per action by the {kind} policy of {policy.run}, update "
        f"{policy.update:,}. {options.metric}, "
        f"{options.aggregate} over {options.actions} actions{', corrected for noise' if options.corrected else ''}."
    )


def _fact_rows(found: ScoreFindings) -> Iterator[tuple[str, str]]:
    scores, noise, rollouts, cost = found.scores, found.noise, found.rollouts, found.cost
    q, unit = scores.quantiles, _UNITS[found.options.metric]
    yield "score", f"median {number(q['p50'])}, 95% below {number(q['p95'])}, largest {number(q['p100'])} ({unit})"
    gini = "" if scores.gini is None else f", Gini coefficient {number(scores.gini)}"
    yield "distribution", f"{percent(scores.zero_share)} are 0, {scores.distinct:,} different values{gini}"
    reliability = "unknown" if noise.reliability is None else f"{noise.reliability:.2f}"
    yield "reliability", f"{reliability} (rank correlation of the two halves of the rollouts)"
    included = "subtracted" if found.options.corrected else "included"
    yield "standard error", f"{number(noise.standard_error)}; bias from noise {number(noise.bias)}, {included}"
    yield "null", f"{number(noise.null)}: the action taken against itself with other random numbers"
    yield "TD error", _agreement(found.td)
    if found.td_fresh is not None:
        yield "TD error now", _agreement(found.td_fresh)
    yield found.proxy.kind, _agreement(found.proxy.correlation)
    if found.stakes.middle_share is not None:
        share = percent(found.stakes.middle_share)
        yield "stakes", f"{share} of the positions between 5 and 50% of the largest spread of returns"
    before, after = found.replay_before, found.replay_after
    yield (
        "replay",
        f"effective sample size {percent(before.ess)} before, {percent(after.ess)} after; importance weights "
        f"{number(after.is_weight_min)} to {number(after.is_weight_max)}",
    )
    coverage = found.coverage
    age = "" if coverage.staleness_p50 is None else f"; median age {count(coverage.staleness_p50)} transitions"
    yield "coverage", f"{percent(coverage.before, 1)} of the buffer before, {percent(coverage.after, 1)} after{age}"
    yield (
        "rollouts",
        f"{percent(1 - rollouts.truncated_share)} ended, {percent(rollouts.truncated_share)} truncated; "
        f"{number(rollouts.mean_steps)} steps on average",
    )
    speed = "" if cost.steps_per_second is None else f", {short(cost.steps_per_second)} per second"
    yield (
        "cost",
        f"{short(cost.env_steps)} environment steps in {duration(cost.seconds)}{speed}; compiled in "
        f"{duration(cost.compile_seconds)}",
    )


def _agreement(found: Correlation) -> str:
    if found.value is None:
        return "all values are equal, or all scores"
    between = "" if found.low is None or found.high is None else f" [{found.low:+.2f}, {found.high:+.2f}]"
    return f"Spearman {found.value:+.2f}{between}"


def _histogram(found: ScoreFindings) -> Plot:
    names = ["0", *(f"{number(bin.low)} to {number(bin.high)}" for bin in found.scores.bins)]
    counts = (float(found.scores.zeros), *(float(bin.count) for bin in found.scores.bins))
    places = tuple(float(i) for i in range(len(names)))
    return Plot(
        "Distribution of scores",
        Axis("score"),
        Axis("positions", format="count", low=0.0),
        (Series("", places, counts, "bars"),),
        "Bins of equal ratio, three per decade; scores of 0 have a bar of their own.",
        categories=tuple(names),
    )


def _comparisons(found: ScoreFindings) -> Iterator[Plot]:
    """Yield the ranks of scores against those of TD errors and of the baseline without rollouts."""
    pairs = (
        ("TD errors", "|TD error|", [point.td_error for point in found.points], found.td),
        (found.proxy.kind, found.proxy.kind, [point.proxy for point in found.points], found.proxy.correlation),
    )
    scores = [point.score for point in found.points]
    for colour, (title, label, values, agreement) in enumerate(pairs, 1):
        known = len(set(values)) > 1 and len(set(scores)) > 1
        hover = tuple(f"score {number(s)}, {label} {number(v)}" for s, v in zip(scores, values, strict=True))
        dots = Series(
            "", tuple(ranks(values).tolist()), tuple(ranks(scores).tolist()), "dots", colour=colour, labels=hover
        )
        yield Plot(
            f"Scores against {title}",
            Axis(f"rank of {label}", low=0.0, high=float(len(scores) + 1)),
            Axis("rank of score", low=0.0, high=float(len(scores) + 1)),
            (dots,) if known else (),
            f"{_agreement(agreement)}." if known else "All values are equal.",
            (Reference("diagonal"),) if known else (),
        )


def _top(found: ScoreFindings) -> Table:
    *columns, gap = shown(numbers(TopPosition))
    columns += [texts("taken", attrgetter("taken")), texts("best alternative", attrgetter("best")), gap]
    return table_of(found.top, columns, note="gap: mean return of the best alternative minus that of the action taken.")


def _position(place: int, row: TopPosition) -> Iterator[Paragraph | Heading | Table]:
    """Yield the text next to the picture of a position."""
    often = f", {row.times} times" if row.times > 1 else ""
    yield Heading(f"{place}. Score {number(row.score)}, slot {row.slot}{often}", 2)
    alternative = f"Best alternative: {row.best}, {gap_text(row.gap)} in mean return."
    yield Paragraph(f"Taken: {row.taken}. {alternative} |TD error| {number(row.td_error)}.")
    columns = [texts("action", attrgetter("action")), *shown(numbers(TriedAction))]
    yield table_of(row.actions, columns, tone=lambda action: "strong" if action.taken else "plain")
