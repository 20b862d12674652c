"""Completion on Tab; nothing here may import JAX, which takes two seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import typer

from hmx.config import presets
from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.errors import HmxError

Choice = tuple[str, str]


def offer(values: Iterable[str]) -> Callable[[str], list[str]]:
    """Make a function that offers the values of an option."""

    def offered(incomplete: str) -> list[str]:
        return [value for value in values if value.startswith(incomplete)]

    return offered


def preset_names(incomplete: str) -> list[Choice]:
    """Offer presets with their purposes."""
    return _described(((name, presets.summary(name)) for name in presets.names()), incomplete)


def _described(rows: Iterable[Choice], incomplete: str) -> list[Choice]:
    return [row for row in rows if row[0].startswith(incomplete)]


def settings(incomplete: str) -> list[Choice]:
    """Offer `section.key=`, and after the equals sign the values of the key, or its default."""
    key, equals, _ = incomplete.partition("=")
    if not equals:
        rows = [(f"{key}=", f"{f.doc} (default {show(f.default) or 'empty'})") for key, f in FIELDS.items()]
    else:
        field = FIELDS.get(key)
        rows = [(f"{key}={value}", field.doc) for value in field.values or (show(field.default),)] if field else []
    return _described(rows, incomplete)


def run_names(incomplete: str) -> list[str]:
    """Offer the names of the runs below `runs/`."""
    from hmx.records.layout import list_runs

    return offer(list_runs())(incomplete)


def nothing(incomplete: str) -> list[str]:
    """Offer nothing, for a new name."""
    return []


def study_names(incomplete: str) -> list[str]:
    """Offer the names of the studies below `studies/`."""
    from hmx.study.create import list_studies

    return offer(list_studies())(incomplete)


def gate_names(incomplete: str) -> list[str]:
    """Offer the names of the gates below `gates/`."""
    from hmx.gates.records import PLACES

    return offer(PLACES.names())(incomplete)


def spaces(incomplete: str) -> list[Choice]:
    """Offer `section.key=`, and after the equals sign the choices of the key, or an example of a range."""
    key, equals, _ = incomplete.partition("=")
    field = FIELDS.get(key)
    if not equals or field is None:
        return settings(incomplete)
    example = "|".join(field.values) or f"{show(field.default)}..{show(field.default)}"
    return _described([(f"{key}={example}", field.doc)], incomplete)


def checkpoints(ctx: typer.Context, incomplete: str) -> list[str]:
    """Offer the checkpoints of the run that the command line names, the latest first."""
    from hmx.records.layout import find_run

    # The run is not a parameter yet if the option to complete is the last word.
    run = ctx.params.get("run") or ctx.params.get("path") or next(iter(ctx.args), "")
    try:
        folders = find_run(run).checkpoints.glob("[0-9]*")
        updates = sorted((int(folder.name) for folder in folders if folder.name.isdigit()), reverse=True)
    except (HmxError, OSError):
        return []
    return offer([str(update) for update in updates])(incomplete)


def sides(incomplete: str) -> list[str]:
    """Offer runs and presets."""
    return [*run_names(incomplete), *offer(presets.names())(incomplete)]


def health_rules(incomplete: str) -> list[Choice]:
    """Offer the rules of `hmx doctor` with their findings."""
    from hmx.reports.doctor.rules import RULES

    return _described([*((rule.name, rule.title) for rule in RULES), ("any", "every rule that warns")], incomplete)


def metrics(incomplete: str) -> list[Choice]:
    """Offer metrics with their descriptions."""
    from hmx.records.metrics_table import METRICS

    rows = ((row.name, row.help) for row in METRICS.values())
    return _described([*rows, ("evaluation", "return of the evaluation")], incomplete)
