"""The figures of a comparison by name, for conditions and for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hmx.reports.compare.overall import Overall
from hmx.reports.compare.speed import Speed
from hmx.reports.compare.tasks import Pair, Scores, Task
from hmx.stats.aggregates import Estimate

Rows = Iterator[tuple[str, float | None]]
Diagnostics = Mapping[str, Mapping[str, Mapping[str, Sequence[float | None]]]]


def figures(
    tasks: Sequence[Task], overall: Overall, speeds: Sequence[Speed], diagnostics: Diagnostics
) -> dict[str, float | None]:
    """Every figure by its name: `iqm(A, corridor)`; where there is one task, also without it: `iqm(A)`.

    Args:
        tasks: each on its own.
        overall: all of them together.
        speeds: by task and side.
        diagnostics: task -> metric -> letter -> values, the last of which counts.
    """
    found: dict[str, float | None] = {}
    for task in tasks:
        for side in task.sides:
            found.update(_spread(task, len(tasks), side.letter, _of_side(side)))
        for pair in task.pairs:
            for one, other, values in _both_ways(pair):
                found.update(
                    {
                        f"{name}({arguments}, {task.name})": value
                        for name, arguments, value in _named(one, other, values)
                    }
                )
                if len(tasks) == 1:
                    found.update(
                        {f"{name}({arguments})": value for name, arguments, value in _named(one, other, values)}
                    )
    for row in speeds:
        task = next(task for task in tasks if task.name == row.task)
        found.update(_spread(task, len(tasks), row.letter, {"speed": row.steps_per_sec, "startup": row.startup}))
    for task in tasks:
        for metric, rows in diagnostics.get(task.name, {}).items():
            for letter, values_ in rows.items():
                name = metric.rpartition("/")[2]
                found.update(_spread(task, len(tasks), letter, {name: values_[-1]}))
    found.update(_of_overall(overall))
    return found


def _spread(task: Task, tasks: int, letter: str, values: Mapping[str, float | None]) -> dict[str, float | None]:
    out = {}
    for name, value in values.items():
        name, _, more = name.partition("|")
        arguments = f"{letter}, {more}" if more else letter
        out[f"{name}({arguments}, {task.name})"] = value
        if tasks == 1:
            out[f"{name}({arguments})"] = value
    return out


def _of_side(side: Scores) -> dict[str, float | None]:
    values: dict[str, float | None] = {
        "seeds": float(len(side.finals)),
        "steps": float(side.end),
        "final": side.mean,
        "std": side.std,
        **_three("iqm", side.iqm),
        **_three("auc", side.area),
        **_three("evaluated", side.evaluated),
    }
    for row in side.thresholds:
        values |= {
            f"reached|{row.value:g}": row.reached / row.of,
            f"steps_to|{row.value:g}": row.steps,
            f"seconds_to|{row.value:g}": row.seconds,
        }
    return values


def _three(name: str, found: Estimate | None) -> dict[str, float | None]:
    value, low, high = found if found is not None else (None, None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _both_ways(pair: Pair) -> Iterator[tuple[str, str, dict[str, float | None]]]:
    for one, other, turned in ((pair.a, pair.b, False), (pair.b, pair.a, True)):
        values = {
            **_three("P", _turn(pair.improvement, 1.0) if turned else pair.improvement),
            **_three("difference", _turn(pair.difference, 0.0) if turned else pair.difference),
            **_three("paired", _turn(pair.paired, 0.0) if turned else pair.paired),
            "chance": pair.chance,
            "better": float(pair.better == one),
        }
        yield one, other, values


def _turn(found: Estimate | None, total: float) -> Estimate | None:
    """The figure from the other side's point of view."""
    if found is None:
        return None
    low, high = (None if end is None else total - end for end in (found.high, found.low))
    return Estimate(total - found.value, low, high)


def _named(one: str, other: str, values: Mapping[str, float | None]) -> Iterator[tuple[str, str, float | None]]:
    for name, value in values.items():
        yield name, f"{one}>{other}" if name.partition("_")[0] == "P" else f"{one}, {other}", value


def _of_overall(overall: Overall) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for side in overall.sides:
        for name, figure in (("score", side.iqm), ("median", side.median), ("mean", side.mean), ("gap", side.gap)):
            found.update({f"{key}({side.letter})": number for key, number in _three(name, figure).items()})
    for pair in overall.pairs:
        for one, other, values in _both_ways(pair):
            for name, arguments, value in _named(one, other, values):
                if name.startswith(("P", "better", "chance")):
                    found[f"{name}({arguments})"] = value
                elif name.startswith("difference"):
                    found[f"score_{name}({arguments})"] = value
    return found
