"""A gradient report for eyes: who drives the update, how sure that is, and what pulls against what."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from hmx.cli.console import short
from hmx.cli.spark import sparkline

Report = Mapping[str, Any]  # one of the `reports` of `hmx grad-report --json`

COMPONENTS = ("task", "td", "entropy", "kl", "value", "total")
_BLOCKS = " ▏▎▍▌▋▊▉█"
_BAR = 12
_FLAGS = {"no signal": "no signal", "fewer than 8 groups": "few groups"}


def number(value: float | None) -> str:
    """Three significant digits, two and an exponent below .01; a dash for what is not known."""
    if value is None:
        return "-"
    if value == 0:
        return "0"
    if 0.01 <= abs(value) < 1e5:
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def percent(value: float | None) -> str:
    """A share in per cent."""
    return "-" if value is None else f"{round(value, 2) + 0.0:.0%}"


def cosine(value: float | None) -> str:
    """Two decimals and a sign."""
    return "-" if value is None else f"{value:+.2f}"


def bar(share: float | None, width: int = _BAR, ascii_only: bool = False) -> str:
    """A share of 1 as a bar of at most `width` characters; nothing for what is not positive."""
    filled = min(max(share or 0.0, 0.0), 1.0) * width
    if ascii_only:
        return "#" * round(filled)
    whole, rest = divmod(round(filled * 8), 8)
    return "█" * whole + (_BLOCKS[rest] if rest else "")


class Fitting:
    """The first of several tables that fits, from the richest to the poorest; the last where none does."""

    def __init__(self, build: Callable[[int, bool], Table], levels: int) -> None:
        self._build, self._levels = build, levels

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """One table."""
        for level in range(self._levels):
            table = self._build(level, options.ascii_only)
            if Measurement.get(console, options.update(width=10_000), table).maximum <= options.max_width:
                break
        yield table


def main(report: Report) -> str:
    """The component that learns: `task`, or of Q-learning `td`."""
    first: str = next(iter(report["coefs"]))
    return first


def shown_components(report: Report) -> list[str]:
    """Components that have a gradient, and their total where it is another thing than the only one."""
    rows, only = [*report["buckets"], report["all"]], len(report["coefs"]) == 1
    names = [name for name in COMPONENTS if name in report["all"]["norm"] and not (only and name == "total")]
    return [name for name in names if only or any(row["norm"][name] for row in rows)]


def norms(report: Report) -> RenderableType:
    """A row per bucket: norms with what they may vary by, and shares of the update."""
    rows = [*report["buckets"], report["all"]]
    shown = shown_components(report)
    by, scores = report["spec"]["by"], {group["id"]: group["score"] for group in report["groups"]}

    def ranked_by(row: Report) -> str:
        known = [scores[g] for g in row["group_ids"] if scores[g] is not None]
        return number(sum(known) / len(known)) if known else "-"

    raw_kl = "kl" not in shown and any(row["raw"].get("kl") for row in rows)  # of weight 0, but measured

    def build(level: int, ascii_only: bool) -> Table:
        def norm(row: Report, name: str) -> str:
            interval = row["interval"][name] if level < 1 and name in (main(report), "total") else None
            return number(row["norm"][name]) + (f" ± {number(interval[1] - row['norm'][name])}" if interval else "")

        columns: list[tuple[str, Callable[[Report], str], bool]] = [
            ("groups", lambda row: str(row["n_groups"]), level < 5),
            ("steps", lambda row: f"{row['n_tokens']:,}", level < 4),
            (by, ranked_by, by != "reward_std"),
            ("std", lambda row: number(row["reward_std"]["mean"]), True),
            *((name, partial(norm, name=name), name != "entropy" or level < 6) for name in shown),
            ("kl, raw", lambda row: number(row["raw"]["kl"]), raw_kl),
            ("share", lambda row: percent(row["share"]), True),
            ("", lambda row: bar(row["share"], ascii_only=ascii_only), level < 2),
        ]
        return _table("bucket", rows, columns, wide=level < 3)

    return Fitting(build, 7)


def replayed(report: Report) -> RenderableType:
    """A row per bucket of stored transitions: how many, how often they are drawn, and what they make of the update."""
    rows, by = [*report["buckets"], report["all"]], report["spec"]["by"]

    def norm(row: Report, level: int) -> str:
        interval = row["interval"]["td"] if level < 1 else None
        return number(row["norm"]["td"]) + (f" ± {number(interval[1] - row['norm']['td'])}" if interval else "")

    def build(level: int, ascii_only: bool) -> Table:
        columns: list[tuple[str, Callable[[Report], str], bool]] = [
            ("transitions", lambda row: f"{row['n_tokens']:,}", level < 4),
            (by, lambda row: number(row["score"]["mean"]), by != "td"),
            ("TD error", lambda row: number(row["replay"]["td_error"]), True),
            ("td", lambda row: norm(row, level), True),
            ("share", lambda row: percent(row["share"]), True),
            ("draws", lambda row: percent(row["replay"]["draws"]), True),
            ("replayed", lambda row: percent(row["replay"]["share"]), True),
            ("", lambda row: bar(row["replay"]["share"], ascii_only=ascii_only), level < 2),
        ]
        return _table("bucket", rows, columns, wide=level < 3)

    return Fitting(build, 5)


def angles(report: Report) -> RenderableType:
    """A row per bucket: what opposes what, and what stands out from noise."""
    rows = [*report["buckets"], report["all"]]
    crossed = any(row["crossfit"] for row in rows)
    acted = any(row["rv_action"] is not None for row in rows)
    learns = main(report)
    several = len(report["coefs"]) > 1

    def scale(row: Report) -> str:
        noise = row["gns"][learns]
        return number(noise["scale"]) if noise["scale"] is not None else _FLAGS.get(noise["flag"], "-")

    def build(level: int, ascii_only: bool) -> Table:
        columns: list[tuple[str, Callable[[Report], str], bool]] = [
            ("task·value", lambda row: cosine(row["cos"][learns].get("value")), several),
            ("task·ent", lambda row: cosine(row["cos"][learns].get("entropy")), several and level < 2),
            (f"{learns}·all", lambda row: cosine(row["cos_all"][learns]), level < 3),
            ("noise scale", scale, True),
            ("SNR", lambda row: number(row["gns"][learns]["snr"]), True),
            ("cross-fit", lambda row: number((row["crossfit"] or {}).get(learns)), crossed),
            ("acted std", lambda row: number(row["rv_action"]), acted),
        ]
        return _table("bucket", rows, columns, wide=level < 1)

    return Fitting(build, 4)


def shares(report: Report, ascii_only: bool = False) -> RenderableType:
    """A line per component of the whole update."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    for name, share in report["all"]["component_share"].items():
        if report["all"]["norm"][name]:
            grid.add_row(Text(name), Text(percent(share), justify="right"), bar(share, 24, ascii_only))
    return grid


Figure = tuple[str, Callable[[Report], float | None], Callable[[float | None], str], int]


def trend(reports: Sequence[Report]) -> RenderableType:
    """A row per checkpoint, and a curve of each figure."""
    learns, of_episodes = main(reports[-1]), not reports[-1]["spec"]["replay"]
    several = len(reports[-1]["coefs"]) > 1
    known: list[tuple[bool, Figure]] = [
        (of_episodes, ("return", lambda row: row["return_mean"], number, 9)),
        (of_episodes, ("std", lambda row: row["reward_std"]["mean"], number, 3)),
        (not of_episodes, ("TD error", lambda row: row["replay"]["td_error"], number, 9)),
        (True, (learns, lambda row: row["norm"][learns], number, 9)),
        (several, ("entropy", lambda row: row["norm"]["entropy"], number, 4)),
        (several, ("value", lambda row: row["norm"]["value"], number, 9)),
        (several, ("total", lambda row: row["norm"]["total"], number, 9)),
        (several, ("task·value", lambda row: row["cos"]["task"]["value"], cosine, 5)),
        (several, ("value share", lambda row: row["component_share"]["value"], percent, 2)),
        (not several, ("noise scale", lambda row: row["gns"][learns]["scale"], number, 5)),
    ]
    figures = [figure for there, figure in known if there]

    def build(level: int, ascii_only: bool) -> Table:
        chosen = [figure for figure in figures if level < figure[3]]
        table = _empty("update", ["steps", *(name for name, *_ in chosen)], wide=level < 1)
        for report in reports:
            point = report["checkpoint"]
            cells = [show(pick(report["all"])) for _, pick, show, _ in chosen]
            table.add_row(str(point["update"]), short(point["env_steps"]), *cells)
        if len(reports) > 2:
            columns = [[pick(report["all"]) for report in reports] for _, pick, _, _ in chosen]
            curves = [sparkline([v for v in column if v is not None], 6, ascii_only) for column in columns]
            table.add_row("", "", *curves, style="cyan")
        return table

    return Fitting(build, 6)


def ratios(compared: Mapping[str, Any]) -> RenderableType:
    """Norms by those of another report."""
    names = [name for name in COMPONENTS if any(name in row for row in compared["norm_ratio"].values())]
    table = _empty("bucket", names, wide=False)
    for bucket, row in compared["norm_ratio"].items():
        table.add_row(bucket, *("-" if row.get(c) is None else f"× {number(row[c])}" for c in names))
    return table


def render(found: Mapping[str, Any], ascii_only: bool = False) -> RenderableType:
    """The whole answer: the newest checkpoint in full, and the way there if several were asked for."""
    reports = found["reports"]
    report = reports[-1]
    point = report["checkpoint"]
    head = f"{found['path']}, checkpoint {point['update']} ({point['env_steps']:,} steps): {about(report)}"
    parts: list[RenderableType] = [Text(head)]
    if len(reports) > 1:
        parts.append(trend(reports))
    parts += [replayed(report) if report["spec"]["replay"] else norms(report), angles(report)]
    if len(report["coefs"]) > 1:
        parts += [Text("parts of the update"), shares(report, ascii_only)]
    if found["compare"]:
        parts += [Text(f"\nnorms by those of {found['compare']['other']}"), ratios(found["compare"])]
    parts += [Text(note, "dim") for note in report["notes"]]
    parts += [Text(report["finding"][:1].upper() + report["finding"][1:], "bold")]
    return Group(*parts)


def about(report: Report) -> str:
    """What was measured, in a few words."""
    spec, source, whole = report["spec"], report["source"], report["all"]
    if source["kind"] == "replay":
        error = number(whole["replay"]["td_error"])
        return f"{whole['n_tokens']:,} of {source['transitions']:,} stored transitions, mean TD error {error}"
    stored = source["kind"] == "buffer"
    starts = (
        f"{spec['groups']} of {source['transitions']:,} stored states" if stored else f"{spec['groups']} start states"
    )
    explores = "" if source["epsilon"] is None else f" with epsilon {number(source['epsilon'])}"
    return f"{starts}, {spec['per_group']} episodes each{explores}, mean return {whole['return_mean']:+.2f}"


def _table(
    first: str, rows: Sequence[Report], columns: Sequence[tuple[str, Callable[[Report], str], bool]], wide: bool
) -> Table:
    """A row per bucket, the last of which is the whole; a column is a name, its cells, and whether it is shown."""
    shown = [(name, cell) for name, cell, there in columns if there]
    table = _empty(first, [name for name, _ in shown], wide)
    for row in rows:
        table.add_row(row["name"], *(cell(row) for _, cell in shown), style="bold" if row is rows[-1] else "")
    return table


def _empty(first: str, columns: Sequence[str], wide: bool) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 2 if wide else 1, 0, 0))
    table.add_column(first, no_wrap=True)
    for name in columns:
        # only the bar has no name
        table.add_column(name, justify="right" if name else "left", no_wrap=True)
    return table
