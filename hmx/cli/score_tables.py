"""A report on consequence scores for eyes: how they are spread, how sure they are, what they agree with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from hmx.cli.console import clock, short
from hmx.cli.grad_tables import bar, number, percent

Report = Mapping[str, Any]  # what `hmx score-buffer --json` prints

_UNITS = {"w1": "reward", "dmean": "reward", "tv": "share", "js": "nats", "tv_bins": "share", "js_bins": "nats"}


def render(found: Report, ascii_only: bool = False) -> RenderableType:
    """The whole answer."""
    parts: list[RenderableType] = [Text(head(found)), Text(), facts(found), Text(), histogram(found, ascii_only)]
    if found["top"]:
        parts += [Text(), top(found)]
    parts += [Text(f"results in {found['out']}", "dim")]
    parts += [Text(found["finding"][:1].upper() + found["finding"][1:], "bold")]
    return Group(*parts)


def head(found: Report) -> str:
    """One line on what was scored, and how."""
    options, horizon = found["options"], found["horizon"]
    policy = options["policy"]
    if policy != "greedy":
        policy += f" {options['policy_parameter']:g}"
    where = "collected by playing" if found["buffer"]["collected"] else f"of {found['buffer']['size']:,}"
    return (
        f"{found['path']} ({found['env']}): {found['positions']:,} positions {where}; "
        f"{options['rollouts']} rollouts per action, {horizon['steps']} steps, {policy}, {options['metric']}, "
        f"{options['aggregate']} over {options['actions']} actions"
    )


def facts(found: Report) -> Table:
    """A line per figure."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    for name, text in _facts(found):
        grid.add_row(name, text)
    return grid


def _facts(found: Report) -> Iterator[tuple[str, str]]:
    scores, noise, rollouts = found["scores"], found["noise"], found["rollouts"]
    q, unit = scores["quantiles"], _UNITS[found["options"]["metric"]]
    yield "score", f"median {number(q['p50'])}, 95 % below {number(q['p95'])}, largest {number(q['p100'])} ({unit})"
    gini = f", Gini {number(scores['gini'])}" if scores["gini"] is not None else ""
    yield "spread", f"{percent(scores['zero_share'])} are 0, {scores['distinct']:,} different values{gini}"
    reliability = noise["reliability"]
    yield (
        "noise",
        f"split-half reliability {'not known' if reliability is None else f'{reliability:.2f}'}, standard error "
        f"{number(noise['standard_error'])}, the action taken against itself {number(noise['null'])}",
    )
    yield "TD error", agreement(found["td"])
    if found["td_fresh"] is not None:
        yield "TD error now", agreement(found["td_fresh"])
    yield found["proxy"]["kind"], agreement(found["proxy"])
    middle = found["stakes"]["middle_share"]
    if middle is not None:
        yield "stakes", f"{percent(middle)} of the positions between 5 and 50 % of the largest spread of returns"
    before, after = found["replay"]["before"], found["replay"]["after"]
    low, high = after["is_weights"]
    yield (
        "replay",
        f"effective sample size {percent(before['ess'])} before, {percent(after['ess'])} after; importance weights "
        f"{number(low)} to {number(high)}",
    )
    coverage = found["coverage"]
    age = coverage["staleness"]
    stale = "" if age is None else f", half of the scores older than {age['p50']:,.0f} transitions"
    yield "coverage", f"{coverage['before']:.1%} of the buffer before, {coverage['after']:.1%} after{stale}"
    yield (
        "rollouts",
        f"{percent(rollouts['ended_share'])} ended, {percent(rollouts['cut_share'])} cut by the horizon; "
        f"{number(rollouts['mean_steps'])} steps on average",
    )
    cost = found["cost"]
    speed = "" if cost["steps_per_second"] is None else f", {short(cost['steps_per_second'])} per second"
    yield (
        "cost",
        f"{short(cost['env_steps'])} environment steps in {clock(cost['seconds'])}{speed}; compiling took "
        f"{clock(cost['compile_seconds'])}",
    )


def agreement(found: Report) -> str:
    """A rank correlation and its interval."""
    if found["spearman"] is None:
        return "all are equal, or all scores are"
    text = f"Spearman {found['spearman']:+.2f}"
    if found["interval"]:
        text += f" ({found['interval'][0]:+.2f} to {found['interval'][1]:+.2f})"
    return text


def histogram(found: Report, ascii_only: bool) -> Table:
    """How many scores are 0, and how many in each third of a decade."""
    counted = found["scores"]["histogram"]
    rows = [("0", counted["zero"])] if counted["zero"] else []
    rows += [(f"{number(row['low'])} to {number(row['high'])}", row["count"]) for row in counted["bins"]]
    most = max((count for _, count in rows), default=1)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", justify="right", no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(no_wrap=True)
    for name, count in rows:
        grid.add_row(name, f"{count:,}", bar(count / most, 24, ascii_only))
    return grid


def top(found: Report) -> Table:
    """The most consequential positions."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("slot", "times", "score", "±", "|TD|", "taken", "best other", "gap"):
        table.add_column(name, justify="left" if name in ("taken", "best other") else "right", overflow="fold")
    for row in found["top"]:
        table.add_row(
            str(row["index"]),
            str(row["times"]),
            number(row["score"]),
            number(row["error"]),
            number(row["td_error"]),
            row["taken"],
            row["best"],
            f"{'+' if row['gap'] > 0 else ''}{number(row['gap'])}",
        )
    return table


def plan(planned: Mapping[str, Any]) -> Table:
    """What `--dry-run` shows."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column()
    bound = " at most" if planned["is_bound"] else ""
    grid.add_row("positions", f"{planned['positions']:,} of {planned['size']:,}")
    grid.add_row("each", f"{planned['actions']} actions, and one twice, x {planned['rollouts']} rollouts")
    grid.add_row("horizon", f"{planned['horizon']:,} steps{bound}")
    grid.add_row("cost", f"{planned['env_steps']:,} environment steps at most; rollouts end with their episodes")
    grid.add_row("results", str(planned["out"]))
    return grid
