"""The plots of a gradient report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from hmx.algos.gradients.measures import TOTAL
from hmx.algos.gradients.results import BucketReport, GradReport
from hmx.render.blocks import Axis, Plot, Series
from hmx.reports.grad_report.findings import CheckpointReport

COLOURS = {"task": 0, "td": 0, "value": 1, "entropy": 2, "kl": 3, TOTAL: 7}
"""Component -> index into the palette, in the order in which components are shown."""

RANKS = {"td": "TD error", "reward_std": "return std"}  # readable names of the values that rank groups

SHARES = "projection on the whole update; shares add up to 100%, and one below 0% works against the update."

Pick = Callable[[BucketReport], float | None]


def main_component(report: GradReport) -> str:
    """Return the component that learns: `task` of PPO, `td` of Q-learning."""
    return next(iter(report.coefs))


def components(report: GradReport) -> list[str]:
    """Return the components that have a gradient, and their total if the loss has several."""
    rows, several = (*report.buckets, report.whole), len(report.coefs) > 1
    found = [name for name in COLOURS if name in report.whole.components and (several or name != TOTAL)]
    return [name for name in found if not several or any(row.components[name].norm for row in rows)]


def label(bucket: str) -> str:
    """Return the name of a bucket for a reader: 1 for `bucket_1`."""
    return bucket.removeprefix("bucket_")


def over_time(reports: Sequence[CheckpointReport]) -> Iterator[Plot]:
    """Yield the values of all checkpoints against environment steps."""
    names = [name for name in COLOURS if any(name in components(report) for report in reports)]
    stored = reports[-1].replay is not None
    same = (
        "The buffer is that of each checkpoint, or the saved one." if stored else "All checkpoints use the same starts."
    )
    yield _curves(reports, "Norms over training", Axis("gradient norm"), _norms(names), same)
    if len(reports[-1].coefs) > 1:
        shares = {name: _share_of(name) for name in names if name != TOTAL}
        axis = Axis("share", format="percent")
        yield _curves(reports, "Components of the update over training", axis, shares, f"Share: {SHARES}")
        cosine: dict[str, Pick] = {"task·value": lambda row: row.cos["task"]["value"]}
        caption = "Cosine between their gradients; below 0 they oppose each other."
        yield _curves(reports, "Task against value over training", Axis("cosine"), cosine, caption)
    if stored:
        errors: dict[str, Pick] = {"TD error": lambda row: row.td_error}
        caption = "Values of the measured transitions, by the networks of each checkpoint."
        yield _curves(reports, "TD error over training", Axis("mean TD error"), errors, caption)
    else:
        stds: dict[str, Pick] = {"return std": lambda row: row.reward_std.mean}
        caption = "Standard deviation of the returns from one start state, mean over start states."
        yield _curves(reports, "Return std over training", Axis("mean return std"), stds, caption)


def _norms(names: Sequence[str]) -> dict[str, Pick]:
    return {name: lambda row, name=name: row.components[name].norm for name in names}  # type: ignore[misc]


def _share_of(name: str) -> Pick:
    return lambda row: row.components[name].share


def _curves(reports: Sequence[CheckpointReport], title: str, y: Axis, picks: Mapping[str, Pick], caption: str) -> Plot:
    steps = tuple(float(report.env_steps) for report in reports)
    lines = [
        Series(name, steps, tuple(pick(report.whole) for report in reports), colour=COLOURS.get(name, 7))
        for name, pick in picks.items()
    ]
    return Plot(title, Axis("environment steps", format="count"), y, tuple(lines), caption)


def by_bucket(report: GradReport) -> Iterator[Plot]:
    """Yield the values of every bucket."""
    rows = (*report.buckets, report.whole)
    names = components(report)
    caption = "Weighted as in the loss, mean over steps, before clipping. Error bars are 95% intervals."
    bars = {name: (COLOURS[name], pick) for name, pick in _norms(names).items()}
    yield _bars("Norms by bucket", Axis("gradient norm"), rows, bars, caption, grouped=True, intervals=True)
    yield slopes(report)
    if len(report.coefs) > 1:
        bars = {name: (COLOURS[name], _share_of(name)) for name in names if name != TOTAL}
        caption = "Projections on the total gradient of each bucket; they add up to 100%, one below 0% opposes it."
        yield _bars("Components by bucket", Axis("share", format="percent"), rows, bars, caption)
        return
    bars = {"steps" if report.replay is None else "transitions": (7, lambda row: row.weight)}
    if report.replay is not None:
        bars["draws"] = (6, lambda row: row.draws)
    bars["update"] = (0, lambda row: row.share)
    if report.replay is not None:
        bars["update, replayed"] = (1, lambda row: row.replayed_share)
    axis = Axis("share", format="percent")
    yield _bars("Origin of the update", axis, report.buckets, bars, f"Update: {SHARES}", grouped=True)


def _bars(
    title: str,
    y: Axis,
    rows: Sequence[BucketReport],
    bars: Mapping[str, tuple[int, Pick]],
    caption: str,
    grouped: bool = False,
    intervals: bool = False,
) -> Plot:
    """Return bars per bucket; `bars` are colour and value by name."""
    places = tuple(float(place) for place in range(len(rows)))
    series = []
    for name, (colour, pick) in bars.items():
        ends = [row.components[name].interval or (None, None) for row in rows] if intervals else []
        low, high = (tuple(end) for end in zip(*ends, strict=True)) if ends else ((), ())
        series.append(Series(name, places, tuple(map(pick, rows)), "bars", low, high, colour))
    labels = tuple(label(row.name) for row in rows)
    return Plot(title, Axis("bucket"), y, tuple(series), caption, categories=labels, grouped=grouped)


def slopes(report: GradReport) -> Plot:
    """Plot the norm of the main component against the return std, or the value that ranks transitions (log scales)."""
    main, stored = main_component(report), report.replay is not None
    by = RANKS.get(report.rank, report.rank) if stored else RANKS["reward_std"]
    rows = [
        (x, row.components[main].norm, (row.crossfit or {}).get(main), label(row.name))
        for row in report.buckets
        if (x := (row.score if stored else row.reward_std).mean) and x > 0 and row.components[main].norm
    ]
    title, x_axis = f"{main} norm against {by}", Axis(f"mean {by}", "log")
    if not rows:
        caption = f"Not drawn: no bucket has both a {by} above 0 and a gradient."
        return Plot(title, x_axis, Axis(f"{main} norm", "log"), (), caption)
    xs, ys, crossed, tags = zip(*rows, strict=True)
    heights = [y for y in (*ys, *crossed) if y]
    guides = [
        Series(
            f"slope {power}", (min(xs), xs[-1]), (ys[-1] * (min(xs) / xs[-1]) ** power, ys[-1]), colour=-1, dashed=True
        )
        for power in (1, 2)
    ]
    dots = [Series(main, xs, ys, "dots", tags=tags)]
    caption = "A dot per bucket. Dashed: slopes 1 and 2 through the last bucket."
    if any(crossed):
        dots.append(Series(f"{main}, cross-fitted", xs, crossed, "dots", dashed=True))
        caption += " Hollow: ranked by one half of each group, measured on the other half; compare slopes, not levels."
    y_axis = Axis(f"{main} norm", "log", low=min(heights) / 1.5, high=max(heights) * 1.5)
    return Plot(title, x_axis, y_axis, (*(guides if len(rows) > 1 else ()), *dots), caption)
