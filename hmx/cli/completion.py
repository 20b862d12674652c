"""What Tab offers; nothing here may import JAX, or Tab would take two seconds."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.config import presets
from hmx.config.coerce import show
from hmx.config.fields import FIELDS
from hmx.config.schema import ENV_IDS

Choice = tuple[str, str]


def environments(incomplete: str) -> list[str]:
    """Environment ids."""
    return [name for name in ENV_IDS if name.startswith(incomplete)]


def preset_names(incomplete: str) -> list[Choice]:
    """Presets and what they are for."""
    return [(name, presets.summary(name)) for name in presets.names() if name.startswith(incomplete)]


def wandb_modes(incomplete: str) -> list[str]:
    """The choices of `run.wandb`."""
    return [str(choice) for choice in FIELDS["run.wandb"].choices if str(choice).startswith(incomplete)]


def algorithms(incomplete: str) -> list[str]:
    """The choices of `algo.name`."""
    return [str(choice) for choice in FIELDS["algo.name"].choices if str(choice).startswith(incomplete)]


def nonfinite_modes(incomplete: str) -> list[str]:
    """The choices of `run.on_nonfinite`."""
    return [str(choice) for choice in FIELDS["run.on_nonfinite"].choices if str(choice).startswith(incomplete)]


def settings(incomplete: str) -> list[Choice]:
    """`section.key=`, and after the equals sign the values of a closed choice or the default."""
    return list(_settings(incomplete))


def _settings(incomplete: str) -> Iterator[Choice]:
    key, equals, start = incomplete.partition("=")
    if not equals:
        for field in FIELDS.values():
            if field.key.startswith(incomplete):
                yield f"{field.key}=", f"{field.doc} (default {show(field.default) or 'empty'})"
    elif key in FIELDS:
        field = FIELDS[key]
        values = [show(choice) for choice in field.choices]
        if field.kind == "bool":
            values = ["true", "false"]
        elif not values:
            values = [show(field.default)]
        yield from ((f"{key}={value}", field.doc) for value in values if value.startswith(start))


def run_names(incomplete: str) -> list[str]:
    """The runs below `runs/`, by name."""
    from hmx.records.layout import list_runs

    return [name for name in list_runs() if name.startswith(incomplete)]


def sides(incomplete: str) -> list[str]:
    """Runs and presets."""
    return [*run_names(incomplete), *(name for name in presets.names() if name.startswith(incomplete))]


def metrics(incomplete: str) -> list[Choice]:
    """Metrics and what they are."""
    from hmx.records.metrics_table import METRICS

    rows = [(row.name, row.help) for row in METRICS.values()]
    return [row for row in [*rows, ("evaluation", "return of the evaluation")] if row[0].startswith(incomplete)]
