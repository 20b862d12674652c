"""Read metrics of other programs: event files, CSV exports of Weights & Biases, SB3 monitors.

Formats: event files are read by TensorBoard itself. The CSV of a W&B panel has a column `RUN - METRIC` per run, that of
a run's history a column per metric. A monitor file of Stable-Baselines3 has a JSON comment, then `r,l,t` per episode.
"""

from __future__ import annotations

import csv
import itertools
import json
import math
import os
from collections.abc import Iterator, Sequence, Set
from pathlib import Path
from types import MappingProxyType

from hmx.config.extras import needed
from hmx.config.files import open_limited, words
from hmx.errors import ExitCode, HmxError
from hmx.records.curves import NO_RECORDS, AgentCurves, MetricCurves, damage

MAX_BYTES = 1 << 28  # of a CSV file
MAX_EVENTS = 1 << 33  # bytes of an event file
MAX_LINE = 1 << 22  # characters
MAX_COLUMNS = 10_000
MAX_VALUES = 5_000_000  # of a file; they take about 1 GB
MAX_DAMAGED = 10_000  # lines

_EVENTS, _MONITOR = "events.out.tfevents.", "monitor.csv"
_RETURN, _LENGTH = "train/mean_episode_return", "train/mean_episode_length"
THEIR_NAMES = MappingProxyType({
    "sb3": {
        "rollout/ep_rew_mean": _RETURN, "rollout/ep_len_mean": _LENGTH, "train/clip_fraction": "train/clip_frac",
    },
    "cleanrl": {
        "charts/episodic_return": _RETURN, "charts/episodic_length": _LENGTH, "losses/approx_kl": "train/approx_kl",
        "losses/clipfrac": "train/clip_frac", "losses/entropy": "train/entropy",
        "losses/explained_variance": "train/explained_variance", "losses/q_values": "train/q_value",
    },
})  # fmt: skip
"""Library -> its name of a metric -> that of hmx, where both mean the same."""
_ALIASES = {theirs: ours for names in THEIR_NAMES.values() for theirs, ours in names.items()}
# Not the speed: SB3 and CleanRL log its mean since the start.
_STEPS = (
    "env_steps",
    "train/env_steps",
    "time/total_timesteps",
    "global_step",
    "Step",
    "_step",
)  # columns, the best first
_SPREADS = ("__MIN", "__MAX")  # further columns of a grouped panel
_HINT = "expected a TensorBoard event file, a CSV export of Weights & Biases, or a monitor.csv of SB3"


_Points = dict[int, dict[str, object]]  # environment steps -> metric -> value
_Read = tuple[dict[str, _Points], list[int]]  # curves by the name of the run, "" if there is one; damaged lines


def is_imported(path: Path) -> bool:
    """Return whether a file or folder has metrics of another program, by its name."""
    if path.is_dir():
        return any(_in_folder(child) for child in path.iterdir() if child.is_file())
    return path.name.startswith(_EVENTS) or path.suffix == ".csv"


def read_imported(path: Path, names: Set[str] | None = None) -> MetricCurves:
    """Read the curves of a file, or of the event or monitor files of a folder, which are one run.

    Agents have no seeds, and times are unknown. Metrics that hmx has too also get the names that hmx gives them.
    Refuses CSV files of another kind, and event files if TensorBoard is not installed.
    """
    try:
        curves, damaged = _read(path)
    except csv.Error as problem:
        raise HmxError(f"cannot read {path}: {problem}", _HINT, ExitCode.ARTEFACT) from None
    except OSError as problem:
        return MetricCurves((), warnings=(f"cannot read its metrics: {words(problem)}",))
    agents = tuple(_agent(run, curve, names) for run, curve in curves.items())
    return MetricCurves(agents, warnings=(*damage(damaged), *(() if agents else (NO_RECORDS,))))


def _agent(run: str, curve: _Points, names: Set[str] | None) -> AgentCurves:
    agent = AgentCurves(None, names, run)
    for steps, values in curve.items():
        agent.add(steps, values | {ours: values[theirs] for theirs, ours in _ALIASES.items() if theirs in values})
    return agent


def _read(path: Path) -> _Read:
    files = [child for child in sorted(path.iterdir()) if _in_folder(child)] if path.is_dir() else [path]
    if any(file.name.startswith(_EVENTS) for file in files):
        for file in files:
            os.close(open_limited(file.resolve(), MAX_EVENTS))  # a pipe would block TensorBoard
        return {"": _read_events(path)}, []
    if any(file.name.endswith(_MONITOR) or next(_lines(file), "").startswith("#") for file in files):
        return _read_monitors(files)
    return _read_wandb(path)


def _in_folder(path: Path) -> bool:
    return path.name.startswith(_EVENTS) or path.name.endswith(_MONITOR)


def _read_events(path: Path) -> _Points:
    with needed("tensorboard", f"reading {path}"):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        from tensorboard.util.tensor_util import make_ndarray
    events = EventAccumulator(str(path), {"scalars": 0, "tensors": 0}).Reload()
    curve: _Points = {}
    tags = events.Tags()
    for tag in tags["scalars"]:
        for event in events.Scalars(tag):
            curve.setdefault(int(event.step), {})[tag] = float(event.value)
    for tag in tags["tensors"]:
        if events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars":
            for event in events.Tensors(tag):
                curve.setdefault(int(event.step), {})[tag] = float(make_ndarray(event.tensor_proto).item())
    return curve


def _lines(path: Path) -> Iterator[str]:
    with open(open_limited(path, MAX_BYTES), encoding="utf-8-sig", errors="replace", newline="") as file:
        while line := file.readline(MAX_LINE):
            if len(line) == MAX_LINE:
                raise HmxError(
                    f"cannot read {path}: a line has {MAX_LINE:,} characters or more", _HINT, ExitCode.ARTEFACT
                )
            yield line.replace("\0", "")


def _check_size(path: Path, values: int, damaged: int) -> None:
    """Refuse a file (exit code 3) that would take all memory, or that is mostly damaged."""
    if values > MAX_VALUES:
        hint = "export fewer columns, or fewer steps"
        raise HmxError(f"cannot read {path}: it has more than {MAX_VALUES:,} values", hint, ExitCode.ARTEFACT)
    if damaged > MAX_DAMAGED:
        raise HmxError(f"cannot read {path}: more than {MAX_DAMAGED:,} damaged lines", _HINT, ExitCode.ARTEFACT)


def _read_monitors(files: Sequence[Path]) -> _Read:
    """Read episodes in the order of their ends; the steps of all environments count."""
    episodes: list[tuple[float, float, float]] = []  # end, length, return
    damaged: list[int] = []
    for file in files:
        lines = _lines(file)
        try:
            began = float(json.loads(next(lines).removeprefix("#"))["t_start"])
        except (StopIteration, ValueError, KeyError, TypeError, RecursionError):
            raise HmxError(f"{file} is not a monitor file of SB3: no t_start", _HINT, ExitCode.ARTEFACT) from None
        for number, row in enumerate(csv.DictReader(lines), 3):
            values = [_number(row.get(name)) for name in ("t", "l", "r")]
            if None in values or not 1 <= (values[1] or 0) < 2**31:
                damaged.append(number)
            else:
                end, length, total = (value or 0.0 for value in values)
                episodes.append((began + end, length, total))
            _check_size(file, 2 * len(episodes), len(damaged))
    episodes.sort(key=lambda episode: episode[0])
    steps = itertools.accumulate(int(length) for _, length, _ in episodes)
    curve: _Points = {
        step: {_RETURN: total, _LENGTH: length} for step, (_, length, total) in zip(steps, episodes, strict=True)
    }
    return {"": curve}, damaged


def _read_wandb(path: Path) -> _Read:
    reader = csv.DictReader(_lines(path))
    columns = [name for name in reader.fieldnames or () if name]
    steps = next((name for name in _STEPS if name in columns), None)
    if steps is None:
        message = f"{path} is not a CSV export of Weights & Biases: no column {', '.join(_STEPS)}"
        raise HmxError(message, _HINT, ExitCode.ARTEFACT)
    if len(columns) > MAX_COLUMNS:
        hint = "export fewer runs or metrics"
        raise HmxError(f"cannot read {path}: it has more than {MAX_COLUMNS:,} columns", hint, ExitCode.ARTEFACT)
    places = {
        name: (name.rpartition(" - ")[0], name.rpartition(" - ")[2])
        for name in columns
        if name != steps and not name.endswith(_SPREADS)
    }
    curves: dict[str, _Points] = {}
    damaged: list[int] = []
    values = 0
    for number, row in enumerate(reader, 2):
        _check_size(path, values, len(damaged))
        step = _number(row.get(steps))
        if step is None or not 0 <= step < 2**53:
            damaged.append(number)
            continue
        for column, (run, metric) in places.items():
            value = _number(row.get(column))
            if value is not None:
                curves.setdefault(run, {}).setdefault(int(step), {})[metric] = value
                values += 1
    return curves, damaged


def _number(text: str | None) -> float | None:
    """Return the number in a cell, NaN included; None if there is none."""
    try:
        value = float(text or "")
    except (ValueError, TypeError):
        return None
    return math.nan if math.isinf(value) else value
