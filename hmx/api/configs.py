"""Configurations and metrics, without JAX."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from hmx.api.hints import for_python
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.records import jsonl
from hmx.records.layout import find_run
from hmx.records.paths import DEFAULT_ROOT
from hmx.registry import user_code
from hmx.registry.load import Loaded, load

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Config", "load_config", "load_metrics", "resolve"]

Settings = Config | Mapping[str, object]
"""A configuration, or the values that differ from the defaults, by dotted key."""

NO_VALUES: Mapping[str, object] = MappingProxyType({})
_COUNTERS = ("update", "env_steps", "seed")


@for_python
def load_config(
    values: Mapping[str, object] | None = None, *, preset: str | None = None, file: str | Path | None = None
) -> Config:
    """Load and check a configuration; later layers win: defaults, preset, file, `HMX_*` variables, values.

    Args:
        values: value by dotted key, such as `{"env.id": "corridor", "run.seed": 1}`. A function stands for your own
            environment, network or algorithm.
        preset: one that `hmx presets` lists.
        file: a configuration file, or a run folder.

    Raises:
        HmxError: lists every problem.
    """
    return resolve(values or {}, preset, file).config


def resolve(
    settings: Settings, preset: str | None = None, file: str | Path | None = None, check: bool | Collection[str] = True
) -> Loaded:
    """Return a configuration with the origin of every value; arguments and errors as of `load_config`.

    `check` names sections if only their own rules matter, and not those of training, such as how a batch splits.
    """
    if isinstance(settings, Config):
        if preset is not None:
            raise HmxError("cannot combine a whole configuration with a preset", "give the preset to load_config")
        return Loaded(settings)
    values = {key: user_code.adopt(value) if callable(value) else value for key, value in settings.items()}
    return load(preset=preset, file=file, values=values, check=check)


@for_python
def load_metrics(run: str | Path, root: str | Path = DEFAULT_ROOT) -> dict[str, np.ndarray]:
    """Read the metrics of a run as columns, with one row per update and seed.

    Args:
        run: name or path of the run.
        root: runs folder, for a name.

    Returns:
        Arrays by name: `update`, `env_steps` and `seed` are int64, all others float64 with nan if an update has no
        data. docs/metrics.md lists the names.

    Raises:
        HmxError: there is no such run, or its metrics are damaged.
    """
    import numpy as np

    records = list(jsonl.read(find_run(run, root).metrics))
    numbers = {key for record in records for key, value in record.items() if isinstance(value, int | float)}
    columns = [*_COUNTERS, *sorted(numbers.difference(_COUNTERS))]
    return {
        name: np.array(
            [record.get(name, 0 if name in _COUNTERS else None) for record in records],
            np.int64 if name in _COUNTERS else np.float64,
        )
        for name in columns
    }
