"""A gradient report as a document, and its values as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from hmx.algos.gradients.buckets import ALL
from hmx.algos.gradients.measures import TOTAL, Component, Cosines
from hmx.algos.gradients.results import BucketReport, GradReport
from hmx.errors import counted
from hmx.render.blocks import Aside, Block, Cell, Column, Document, Paragraph, Row, Table, exact_table
from hmx.render.numbers import Shown, exact, right, table_of, texts
from hmx.render.quantities import number, percent, short, signed
from hmx.reports.grad_report import figures
from hmx.reports.grad_report.figures import COLOURS, RANKS, SHARES, components, label, main_component
from hmx.reports.grad_report.findings import CheckpointReport, GradFindings, NormRatios


def document(findings: GradFindings) -> Document:
    """Build the report: the verdict, then the newest checkpoint in full, and the trend if there are several."""
    report = findings.reports[-1]
    title = f"Gradient report: {findings.path}, checkpoint {report.update}"
    return Document(title, tuple(_blocks(findings, report)))


def _blocks(findings: GradFindings, report: CheckpointReport) -> Iterator[Block]:
    yield Paragraph(report.verdict, "strong")
    yield Paragraph(_measured(findings, report))
    for warning in (*findings.warnings, *report.warnings):
        yield Paragraph(f"Warning: {warning}.", "warning")
    if len(findings.reports) > 1:
        yield _trend(findings.reports)
        plots = tuple(figures.over_time(findings.reports))
        yield from plots[:2]
        if plots[2:]:
            yield Aside(plots[2:])
    yield _replayed(report) if report.replay else _norms(report)
    yield _angles(report)
    if len(report.coefs) > 1:
        yield _component_shares(report)
    if findings.compare:
        yield _ratios(findings.compare)
    for note in report.notes:
        yield Paragraph(f"{note[:1].upper()}{note[1:]}.", "faint")
    yield Aside((*figures.by_bucket(report), *_matrices(report)))


def _measured(findings: GradFindings, report: CheckpointReport) -> str:
    request, whole, agent = report.request, report.whole, findings.request.agent
    place = f"{findings.env}, {report.env_steps:,} training steps" + (f", agent {agent}" if agent else "")
    if report.replay:
        error = number(whole.td_error)
        return f"{place}: {whole.steps:,} of {report.stored:,} stored transitions, mean TD error {error}."
    kind = f" of {report.stored:,} stored" if report.stored else " start"
    epsilon = "" if report.epsilon is None else f" with epsilon {number(report.epsilon)}"
    episodes = f"{counted(request.per_group, 'episode')} each{epsilon}, mean return {signed(whole.return_mean)}"
    return f"{place}: {request.groups}{kind} states, {episodes}, seed {findings.seed}."


def _by_bucket(report: GradReport, columns: Iterable[Shown], title: str, note: str) -> Table:
    rows = (*report.buckets, report.whole)
    first = texts("bucket", lambda row: label(row.name))
    return table_of(rows, [first, *columns], title, note, lambda row: "strong" if row is report.whole else "plain")


def _cosines_of(name: str, value: Callable[[Any], float | None], rank: int = 0) -> Shown:
    return right(name, lambda row: _cosine(value(row)), rank)


def _cosine(value: float | None) -> Cell:
    return Cell(signed(value), value, shade=value)


_STEPS = right("steps", lambda row: f"{row.steps:,}", 5)


def _norm_columns(name: str, interval: bool = True) -> Iterator[Shown]:
    """Yield the norm of a component, and half of its interval."""

    def half(row: BucketReport) -> Cell:
        part = row.components[name]
        return Cell("" if part.interval is None else f"± {number(part.interval.high - part.norm, 2)}")

    yield exact(name, lambda row: row.components[name].norm)
    if interval:
        yield right("", half, 4)


def _share_columns(name: str, share: Callable[[BucketReport], float | None]) -> Iterator[Shown]:
    """Yield a share of the update, and its bar."""
    yield exact(name, share, percent)
    yield texts("", lambda row: Cell("", share(row), bar=share(row)), 3)


def _norms(report: GradReport) -> Table:
    main, names, ranked = main_component(report), components(report), RANKS.get(report.rank, report.rank)
    raw_kl = "kl" not in names and any(_raw_kl(row) for row in (*report.buckets, report.whole))
    columns = [right("groups", lambda row: str(len(row.groups)), 6), _STEPS]
    columns += [exact(ranked, lambda row: row.score.mean)] if report.rank != "reward_std" else []
    columns += [exact("return std", lambda row: row.reward_std.mean)]
    columns += [column for name in names for column in _norm_columns(name, name in (main, TOTAL))]
    columns += [exact("kl, raw", _raw_kl)] if raw_kl else []
    columns += _share_columns("share", lambda row: row.share)
    note = (
        f"A bucket holds start states, ranked by {ranked} from low (1) to high. Norms: of a bucket's mean gradient "
        f"per step, weighted as in the loss, before clipping; ± is half a 95% interval. Share: {SHARES}"
    )
    return _by_bucket(report, columns, "Gradient norms by bucket", note)


def _raw_kl(row: BucketReport) -> float | None:
    """Return the norm of the KL gradient without its weight, which may be 0."""
    return row.components["kl"].raw if "kl" in row.components else None


def _replayed(report: GradReport) -> Table:
    """Build a row per bucket of stored transitions, with their share of draws and of the update."""
    ranked = RANKS.get(report.rank, report.rank)
    columns = [(replace(_STEPS[0], name="transitions"), _STEPS[1])]
    columns += [exact(ranked, lambda row: row.score.mean)] if report.rank != "td" else []
    columns += [exact("TD error", lambda row: row.td_error), *_norm_columns("td")]
    columns += [exact("share", lambda row: row.share, percent), exact("draws", lambda row: row.draws, percent)]
    columns += _share_columns("replayed", lambda row: row.replayed_share)
    note = (
        f"A bucket holds transitions, ranked by {ranked} from low (1) to high. Draws: share of what replay draws. "
        f"Share and replayed: of the update if all are drawn equally often, and as replay draws them; {SHARES}"
    )
    return _by_bucket(report, columns, "Gradient norms by bucket", note)


def _angles(report: GradReport) -> Table:
    main, crossfit = main_component(report), report.request.crossfit
    acted = report.whole.acted_std is not None

    def scale(row: BucketReport) -> Cell:
        noise = row.components[main].noise
        return Cell(noise.flag.replace("fewer than", "<") if noise.scale is None else number(noise.scale), noise.scale)

    columns = []
    if len(report.coefs) > 1:
        columns += [_cosines_of("task·value", lambda row: row.cos[main].get("value"))]
        columns += [_cosines_of("task·entropy", lambda row: row.cos[main].get("entropy"), 3)]
    columns += [
        _cosines_of(f"{main}·{ALL}", lambda row: row.components[main].cos_all, 2),
        right("noise scale", scale),
        exact("SNR", lambda row: row.components[main].noise.snr, rank=1),
    ]
    columns += [exact("cross-fit", lambda row: (row.crossfit or {}).get(main))] if crossfit else []
    columns += [exact("acted std", lambda row: row.acted_std)] if acted else []
    note = (
        f"a·b: cosine between two gradients, below 0 they oppose each other; {main}·{ALL}: between a bucket and all. "
        f"Noise scale: number of groups at which noise equals signal in the {main} gradient. SNR: signal over noise."
        + " Cross-fit: norm where one half of each group ranks it and the other half is measured." * crossfit
        + " Acted std: return std with common random keys, so that actions alone cause it." * acted
    )
    return _by_bucket(report, columns, "Angles and noise", note)


def _component_shares(report: GradReport) -> Table:
    shares = [(name, part.share) for name, part in report.whole.components.items() if name != TOTAL and part.norm]
    columns = [texts("component", lambda row: row[0]), exact("share", lambda row: row[1], percent)]
    columns.append(texts("", lambda row: Cell("", row[1], bar=row[1]), 1))
    return table_of(shares, columns, "Components of the update")


def _ratios(compared: NormRatios) -> Table:

    def ratio(value: float | None) -> Cell:
        return Cell("-" if value is None else f"× {number(value)}", value)

    names = [name for name in COLOURS if any(name in row for row in compared.norm_ratio.values())]
    rows = [Row((label(name), *(ratio(row.get(c)) for c in names))) for name, row in compared.norm_ratio.items()]
    columns = (Column("bucket", "left"), *map(Column, names))
    return Table(columns, tuple(rows), f"Norms divided by those of {compared.other}")


def _trend(reports: Sequence[CheckpointReport]) -> Table:
    main, several = main_component(reports[-1]), len(reports[-1].coefs) > 1
    columns = [right("update", lambda report: str(report.update))]
    columns += [exact("steps", lambda report: report.env_steps, short)]
    if reports[-1].replay is None:
        columns += [exact("return", lambda report: report.whole.return_mean)]
        columns += [exact("return std", lambda report: report.whole.reward_std.mean, rank=5)]
    else:
        columns += [exact("TD error", lambda report: report.whole.td_error)]
    for name, rank in ((main, 0), *((("entropy", 4), ("value", 0), (TOTAL, 0)) if several else ())):
        columns += [exact(name, partial(_norm, name), rank=rank)]
    if several:
        columns += [_cosines_of("task·value", lambda report: report.whole.cos["task"]["value"], 3)]
        columns += [exact("value share", lambda report: report.whole.components["value"].share, percent, 6)]
    else:
        columns += [exact("noise scale", lambda report: report.whole.components[main].noise.scale, rank=3)]
    return table_of(reports, columns, "All checkpoints")


def _norm(name: str, report: GradReport) -> float:
    return report.whole.components[name].norm


def _matrices(report: GradReport) -> Iterator[Table]:
    """Yield cosines between components and between buckets, and the distribution of the gradient over the network."""
    main, names = main_component(report), [n for n in components(report) if report.whole.components[n].norm]
    if len(report.coefs) > 1:
        yield _cosines("Cosines between components", names, report.whole.cos)
    buckets = [bucket.name for bucket in report.buckets]
    yield _cosines(f"Cosines between buckets ({main})", buckets, report.cos[main])
    parts = [report.whole.components[name] for name in names]
    layers = report.whole.components[TOTAL].layers
    rows = tuple(Row((layer, *(_layer_share(part, layer) for part in parts))) for layer in layers)
    columns = (Column("layer", "left"), *map(Column, names))
    yield Table(columns, rows, "Layers of the network", "Share of the squared norm of each component, all buckets.")


def _cosines(title: str, names: Sequence[str], cos: Cosines) -> Table:
    rows = [Row((label(a), *(_cosine(1.0 if a == b else cos[a][b]) for b in names))) for a in names]
    columns = (Column("", "left"), *(Column(label(name)) for name in names))
    return Table(columns, tuple(rows), title, "Red: same direction. Blue: opposed.")


def _layer_share(part: Component, layer: str) -> Cell:
    share = (part.layers[layer] / part.norm) ** 2
    return Cell(percent(share), share, shade=-share)


def values(findings: GradFindings) -> Table:
    """Build the table of all values: a row per checkpoint, bucket and component; unknown values are empty."""
    rows = [
        _values(report, row, name, part)
        for report in findings.reports
        for row in (*report.buckets, report.whole)
        for name, part in row.components.items()
    ]
    return exact_table(rows[0], (row.values() for row in rows))


def _values(report: CheckpointReport, row: BucketReport, name: str, part: Component) -> dict[str, str | float | None]:
    """Return the values of a component by the names of their columns."""
    low, high = part.interval or (None, None)
    noise, share = part.noise, None if name == TOTAL else part.share
    return {
        "update": report.update, "env_steps": report.env_steps, "bucket": row.name, "component": name,
        "groups": len(row.groups), "samples": row.samples, "steps": row.steps, "weight": row.weight,
        "bucket_share": row.share, "reward_std_mean": row.reward_std.mean, "return_mean": row.return_mean,
        "norm": part.norm, "low": low, "high": high, "raw": part.raw, "sum_norm": part.sum_norm,
        "per_sample": part.per_sample, "loss": part.loss, "component_share": share, "cos_all": part.cos_all,
        "crossfit": (row.crossfit or {}).get(name), "signal": noise.signal, "trace": noise.trace,
        "noise_scale": noise.scale, "snr": noise.snr, "score_mean": row.score.mean, "draws": row.draws,
        "replay_share": row.replayed_share, "replay_norm": row.replayed_norm,
    }  # fmt: skip
