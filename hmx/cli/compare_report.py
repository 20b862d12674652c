"""A comparison as headings, lines and tables, from what `hmx compare --json` prints; every format is made of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from hmx.cli.console import clock
from hmx.reports.quantities import scaled

Found = Mapping[str, Any]
Kind = Literal["plain", "good", "caution", "stop", "faint"]

EFFECT = "in effect"
_SAME = "the same: nothing here makes use of the difference"
_HEADS = 40  # letters that the names of sides may take above a table
MOST_SIDE_BY_SIDE = 12  # sides whose every pair is shown; beyond, each with the first


@dataclasses.dataclass(frozen=True)
class Heading:
    """The title of a part."""

    text: str
    depth: int = 1


@dataclasses.dataclass(frozen=True)
class Line:
    """A sentence."""

    text: str
    kind: Kind = "plain"


@dataclasses.dataclass(frozen=True)
class Grid:
    """A table; a row with a single cell is a heading within it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: bool = True  # whether all columns but the first hold figures
    name: str = ""  # what it is, for a place to put a drawing
    prose: bool = False  # whether the last column is a sentence
    sides: bool = False  # whether all columns but the first are sides, which a narrow place may show a few at a time


Block = Heading | Line | Grid


def blocks(found: Found) -> Iterator[Block]:
    """The whole report, in the order in which it should be read."""
    yield from _what(found)
    yield from _config(found)
    for task in found["tasks"]:
        yield from _task(task, found)
    yield from _overall(found)
    yield from _speed(found)
    yield from _diagnostics(found)
    yield from _losses(found)


def figure(value: float | None, digits: int = 4) -> str:
    """A number with as many digits that count."""
    if value is None:
        return "-"
    if abs(value) >= 10**digits - 0.5:
        return f"{value:,.0f}"
    return f"{value:.{digits}g}".replace("e-0", "e-").replace("e+0", "e")


def interval(found: Found | None, sign: str = "") -> str:
    """An estimate with its interval, where there is one: as many decimals as its width makes sense of.

    Args:
        found: value and ends.
        sign: `+` shows one also where it is positive.
    """
    if found is None or found["value"] is None:
        return "-"
    width = 0.0 if found["low"] is None else found["high"] - found["low"]
    if width <= 0:
        shown = [f"{sign if v > 0 else ''}{figure(v)}" for v in found.values() if v is not None]
    else:
        decimals = min(max(1 - math.floor(math.log10(width / 2)), 0), 12)
        shown = [f"{v if round(v, decimals) else 0.0:{sign},.{decimals}f}" for v in found.values()]
    return shown[0] if len(shown) == 1 else f"{shown[0]} [{shown[1]}, {shown[2]}]"


def title(found: Found) -> str:
    """What is compared, in a line."""
    return "Comparison of " + ", ".join(_both(side) for side in found["sides"])


def _both(side: Found) -> str:
    return side["letter"] if side["name"] == side["letter"] else f"{side['letter']} {side['name']}"


def _columns(found: Found, letters: Sequence[str]) -> tuple[str, ...]:
    """Heads of columns; where there are many sides or their names are long, their letters alone."""
    sides = [side for side in found["sides"] if side["letter"] in letters]
    brief = sum(len(side["name"]) + 2 for side in sides) > _HEADS
    return tuple(side["letter"] if brief else _both(side) for side in sides)


def _what(found: Found) -> Iterator[Block]:
    yield Heading("What is compared")
    sides = found["sides"]
    rows = [
        ("made of", *(_made_of(side) for side in sides)),
        ("environment", *(", ".join(side["tasks"]) for side in sides)),
        ("preset", *(", ".join(dict.fromkeys(m["preset"] for m in side["members"] if m["preset"])) for side in sides)),
        ("seeds", *(_seeds(side) for side in sides)),
        ("steps run", *(_span([m["steps"] for m in _runs(side)]) for side in sides)),
        ("steps asked", *(_span([m["asked_steps"] for m in side["members"] if m["asked_steps"]]) for side in sides)),
        ("state", *(", ".join(dict.fromkeys(m["state"] for m in side["members"] if m["state"])) for side in sides)),
        ("evaluated", *(_episodes(side) for side in sides)),
        *((what, *(", ".join(side[what]) for side in sides)) for what in ("git", "jax", "device")),
    ]
    known = tuple(tuple(cell or "-" for cell in row) for row in rows if any(row[1:]))
    yield Grid(("", *map(_both, sides)), known, right=False, sides=True)
    words = {"block": ("no verdict", "stop"), "caution": ("caution", "caution"), "note": ("note", "faint")}
    for notice in found["notices"]:
        name, kind = words[notice["level"]]
        yield Line(f"{name}: {notice['words']}", kind)  # type: ignore[arg-type]
    if not found["notices"] and found["tasks"]:
        yield Line("Nothing was found that speaks against comparing them.", "good")


def _runs(side: Found) -> list[Found]:
    return [member for member in side["members"] if member["kind"] in ("run", "metrics")]


def _made_of(side: Found) -> str:
    members = side["members"]
    if len(members) == 1:
        return f"{members[0]['kind']} {members[0]['path']}"
    kinds = list(dict.fromkeys(member["kind"] for member in members))
    return f"{len(members)} {'runs' if kinds == ['run'] else ' and '.join(kinds)}: {members[0]['path']} ..."


def _seeds(side: Found) -> str:
    numbers = [seed for member in side["members"] for seed in member["seeds"]]
    named = sorted({seed for seed in numbers if seed is not None})
    if not numbers:
        return ""
    shown = f"{named[0]} to {named[-1]}" if len(named) > 3 and named[-1] - named[0] == len(named) - 1 else _list(named)
    return f"{len(numbers)}" + (f": {shown}" if named else "")


def _list(values: Sequence[Any]) -> str:
    return ", ".join(map(str, values[:6])) + (" ..." if len(values) > 6 else "")


def _span(values: Sequence[int | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{min(known):,}" if min(known) == max(known) else f"{min(known):,} to {max(known):,}"


def _episodes(side: Found) -> str:
    counts = sorted({m["evaluated_episodes"] for m in side["members"] if m["evaluated_episodes"]})
    policies = sorted({m["evaluated_policy"] for m in side["members"] if m["evaluated_policy"]})
    return ", ".join([f"{_list(counts)} episodes", *policies]) if counts else ""


def _config(found: Found) -> Iterator[Block]:
    rows = found["config"]
    if (
        sum(any(m["asked_steps"] is not None or m["kind"] != "metrics" for m in s["members"]) for s in found["sides"])
        < 2
    ):
        return
    yield Heading("Where the configurations differ")
    if not rows:
        yield Line("They are the same, but for names and seeds.")
        return
    lines: list[tuple[str, ...]] = []
    for group in rows:
        title_ = f"{group['row']} {group['title']}".strip()
        lines.append((title_ + (", with a known bug" if group["bug"] else ""),))
        for row in group["differences"]:
            # What a documented row comes to says more than what its keys are for.
            doc = "" if group["row"] else row["doc"]
            lines.append((row["key"], *(value or "-" for value in row["values"]), doc))
        if group["row"]:
            known = {effect for effect in group["effects"] if effect}
            lines.append((EFFECT, *(effect or "-" for effect in group["effects"]), _SAME if len(known) == 1 else ""))
    yield Grid(
        ("", *(side["letter"] for side in found["sides"]), "what it means"), tuple(lines), right=False, prose=True
    )


def _task(task: Found, found: Found) -> Iterator[Block]:
    yield Heading(task["name"])
    metric = "return of the evaluation that ended each run" if found["metric"] == "evaluation" else found["metric"]
    words = f"{metric}; compared up to {task['end']:,} steps"
    if found["metric"] != "evaluation":
        words += f", final is the mean of the last {task['window']:,.0f}"
    yield Line(words)
    if task["limited_by"]:
        yield Line(f"{task['limited_by']} ends first", "faint")
    sides = task["sides"]
    rows: list[tuple[str, ...]] = [
        ("seeds", *(_with_value(side) for side in sides)),
        ("final, mean ± std", *(_spread(side) for side in sides)),
        ("final, IQM", *(interval(side["iqm"]) for side in sides)),
        ("area under the curve", *(interval(side["area"]) for side in sides)),
    ]
    if found["metric"] != "evaluation" and any(side["evaluated"] for side in sides):
        rows.append(("evaluation, IQM", *(interval(side["evaluated"]) for side in sides)))
    for i, threshold in enumerate(sides[0]["thresholds"]):
        rows.append((f"steps to {threshold['value']:g}", *(_reached(side["thresholds"][i], "steps") for side in sides)))
        rows.append(
            (f"time to {threshold['value']:g}", *(_reached(side["thresholds"][i], "seconds") for side in sides))
        )
    yield Grid(
        ("", *_columns(found, [side["letter"] for side in sides])), tuple(rows), name=f"task {task['name']}", sides=True
    )
    yield from _pairs(_shown(task["pairs"], len(sides)), found)


def _shown(pairs: Sequence[Found], sides: int) -> Sequence[Found]:
    return pairs if sides <= MOST_SIDE_BY_SIDE else pairs[: sides - 1]


def _with_value(side: Found) -> str:
    missing = sum(value is None for value in side["finals"])
    return f"{len(side['finals'])}" + (f", {missing} without a value" if missing else "")


def _spread(side: Found) -> str:
    if side["mean"] is None:
        return "-"
    if not side["std"]:
        return figure(side["mean"]) + ("" if side["std"] is None else " ± 0")
    decimals = min(max(1 - math.floor(math.log10(side["std"])), 0), 12)
    return f"{side['mean']:,.{decimals}f} ± {side['std']:,.{decimals}f}"


def _reached(threshold: Found, what: str) -> str:
    value, missed = threshold[what], threshold["of"] - threshold["reached"]
    if value is None:
        return f"not reached {missed}/{threshold['of']}"
    shown = f"{value:,.0f}" if what == "steps" else duration(value)
    return shown + (f" (not reached {missed}/{threshold['of']})" if missed else "")


def duration(seconds: float) -> str:
    """Seconds below a minute, and longer ones as a clock shows them."""
    return f"{figure(seconds, 3)} s" if seconds < 60 else clock(seconds)


def _pairs(pairs: Sequence[Found], found: Found) -> Iterator[Block]:
    if not pairs:
        return
    shared = any(pair["paired"] for pair in pairs)
    rows = tuple(
        (
            f"{pair['a']} against {pair['b']}",
            interval(pair["improvement"]),
            interval(pair["difference"], sign="+"),
            *([f"{interval(pair['paired'], sign='+')} of {pair['shared']}"] if shared else []),
            "-" if pair["chance"] is None else f"{pair['chance']:.2g}",
        )
        for pair in pairs
    )
    first = "P(first higher)" if found["direction"] == "none" else "P(first better)"
    columns = ("", first, "difference of IQM", *(["same seeds"] if shared else []), "by chance")
    yield Grid(columns, rows)
    for pair in pairs:
        kind: Kind = "good" if pair["better"] else "stop" if pair["words"].startswith("no verdict") else "plain"
        yield Line(f"{pair['a']} against {pair['b']}: {pair['words']}", kind)


def _overall(found: Found) -> Iterator[Block]:
    overall = found["overall"]
    if len(found["tasks"]) == 0:
        return
    yield Heading("Over all tasks")
    if not overall["sides"]:
        yield Line(f"Nothing to put together: {overall['words']}.")
        return
    for task, scale in overall["ranges"].items():
        ends = f"0 is {figure(scale['low'])}, 1 is {figure(scale['high'])}"
        yield Line(f"scale of {task}: {ends} ({scale['source']})", "faint")
    sides = overall["sides"]
    columns = ("", *_columns(found, [side["letter"] for side in sides]))
    words = {"iqm": "IQM", "median": "median of tasks", "mean": "mean", "gap": "optimality gap"}
    rows = [(words[key], *(interval(side[key]) for side in sides)) for key in words]
    for tau in (0.25, 0.5, 0.75, 0.9, 0.95):
        at = overall["taus"].index(tau)
        rows.append((f"runs above {tau:g}", *(f"{side['profile'][at]:.0%}" for side in sides)))
    yield Grid(columns, tuple(rows), name="overall", sides=True)
    yield from _pairs(_shown(overall["pairs"], len(sides)), found)


def _speed(found: Found) -> Iterator[Block]:
    rows = found["speed"]
    if not rows:
        return
    yield Heading("Speed and memory")
    yield Grid(
        ("", "steps/s", "updates/s", "training", "start to first update", "computed memory", "device"),
        tuple(
            (
                f"{row['letter']} {row['task']}",
                figure(row["steps_per_sec"]),
                figure(row["updates_per_sec"]),
                "-" if row["seconds"] is None else duration(row["seconds"]),
                "-" if row["startup"] is None else duration(row["startup"]),
                "-" if row["memory"] is None else scaled(row["memory"], 1024),
                row["device"] or "-",
            )
            for row in rows
        ),
    )
    yield Line(
        "Steps are over all seeds of a run, without compilation, saving and evaluation. The start includes compiling, "
        "unless that was cached. Memory follows from the configuration; it is not measured.",
        "faint",
    )


def _diagnostics(found: Found) -> Iterator[Block]:
    at = " → ".join(f"{share:.0%}" for share in found["diagnostics"]["at"])
    tasks = found["diagnostics"]["tasks"]
    if any(tasks.values()):
        yield Heading("Diagnostics at matched steps")
        yield Line(f"Means over seeds at {at} of the steps that are compared.", "faint")
    for task, metrics in tasks.items():
        if not metrics:
            continue
        letters = list(next(iter(metrics.values())))
        rows = tuple(
            (name.removeprefix("train/"), *(" → ".join(figure(v, 3) for v in values[letter]) for letter in letters))
            for name, values in metrics.items()
        )
        yield Grid((task, *_columns(found, letters)), rows, sides=True)
    for line in found["findings"]:
        yield Line(line, "caution")


def _losses(found: Found) -> Iterator[Block]:
    impl = found["impl"]
    if impl is None:
        return
    yield Heading("One batch through every loss")
    first = next(side for side in found["sides"] if side["letter"] == impl["network"])
    yield Line(
        f"{impl['num_envs']} environments of {impl['env']}, {impl['num_steps']} steps each, played with the network of "
        f"{_both(first)} as it is drawn ({impl['parameters']:,} parameters). Episodes are cut after "
        f"{impl['cut_after']} steps: {impl['cut_frac']:.1%} of the steps are cut, {impl['ended_frac']:.1%} terminate."
    )
    words = (
        "Every side has this environment and network; deviations, rewards, advantages, targets, weights and clips are "
        "its own. Observations are not normalised."
    )
    yield Line(words, "faint")
    columns = ("", *_columns(found, [side["letter"] for side in impl["sides"]]))
    for i, steps in enumerate(impl["gradient_steps"]):
        moments = [side["moments"][i] for side in impl["sides"]]
        title_ = "at the first gradient step" if not steps else f"after {steps} gradient steps of {first['letter']}"
        yield Grid((title_, *columns[1:]), tuple(_loss_rows(moments, impl["components"])), sides=True)


def _loss_rows(moments: Sequence[Found], components: Sequence[str]) -> Iterator[tuple[str, ...]]:
    def row(name: str, values: Sequence[float | None]) -> tuple[str, ...]:
        return (name, *(figure(value) for value in values))

    for name in ("advantage", "target"):
        yield (f"{name}, mean ± std", *(f"{figure(m[name][0])} ± {figure(m[name][1])}" for m in moments))
    yield row("advantages, correlation", [m["correlation"] for m in moments])
    yield row("largest |ratio - 1|", [m["ratio_error"] for m in moments])
    yield row("clipped share", [m["clip_frac"] for m in moments])
    for name in components:
        yield (name,)
        if name in moments[0]["raw"]:
            yield row("  loss" if name != "entropy" else "  nats", [m["raw"][name] for m in moments])
        yield row("  in the total" if name != "total" else "  loss", [m["weighted"][name] for m in moments])
        yield row("  norm of the gradient", [m["norm"][name] for m in moments])
        yield row("  cosine of the gradient", [m["cosine"][name] for m in moments])
