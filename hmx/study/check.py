"""Check that the files of a study fit together, since they may be damaged or come from a stranger.

The bounds are those of `hmx study new`. After these checks, decisions and reports need none.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hmx.config.fields import fields_of
from hmx.config.option import MAX_SEED
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.records.plain import JsonValue
from hmx.study.records import (
    CONFIG_KEY,
    CONFIRMED,
    MAX_NUMBER,
    MAX_RUNGS,
    MAX_SEEDS,
    PROPOSAL,
    Confirmation,
    Parameter,
    RungResult,
    StudySettings,
    Trial,
    promotion_file,
    rung_file,
)

_RANGES = re.compile(r"[0-9]{1,7}(-[0-9]{1,7})?(,[0-9]{1,7}(-[0-9]{1,7})?)*")


def check_settings(settings: StudySettings) -> None:
    """Raise a ValueError that says what settings cannot be those of a study."""
    bounds: dict[str, tuple[int, float | None, float | None]] = {
        "trials": (settings.trials, 0, MAX_NUMBER),
        "the number of rungs": (len(settings.rungs), 1, MAX_RUNGS),
    }
    bounds |= {one.name: (getattr(settings, one.name), one.ge, one.le) for one in fields_of(StudySettings).values()}
    for name, (value, least, most) in bounds.items():
        if least is not None and most is not None and not least <= value <= most:
            raise ValueError(f"{name} must be between {least} and {most:,}, not {value!s:.20}")
    rungs, objective = settings.rungs, settings.objective
    if rungs[0] <= 0 or rungs[-1] != 1 or any(a >= b for a, b in itertools.pairwise(rungs)):
        raise ValueError("rungs must rise from above 0 to 1")
    if (objective.threshold is None) != (objective.measure in ("final", "auc")):
        raise ValueError(f"the measure {objective.measure} and its threshold do not fit")
    if not settings.space:
        raise ValueError("it varies nothing")
    if settings.sampler == "grid":
        if any(one.kind != "choice" for one in settings.space):
            raise ValueError("a grid has no ranges")
        if math.prod(len(one.choices) for one in settings.space) > MAX_NUMBER:
            raise ValueError(f"the grid has more than {MAX_NUMBER:,} points")


def check_history(history: Sequence[StudySettings], configs: Mapping[str, Config], place: Path) -> None:
    """Refuse (exit code 3) revisions of settings that do not follow each other, or lack a configuration."""
    first = history[0]
    for number, settings in enumerate(history, 1):
        labels = {name for one in settings.space if one.key == CONFIG_KEY for name in one.choices}
        if settings.revision != number:
            why = f"revision {number} is missing"
        elif (settings.rungs, settings.eta, settings.objective) != (first.rungs, first.eta, first.objective):
            why = f"revision {number} has other rungs, eta or objective than revision 1"
        elif not labels <= configs.keys():
            why = f"the configuration {min(map(str, labels - configs.keys())):.80} is missing"
        else:
            continue
        raise HmxError(f"{place} is damaged: {why}", "restore its files", ExitCode.ARTEFACT)


def check_trial(trial: Trial, history: Sequence[StudySettings]) -> None:
    """Refuse (exit code 3) a trial that does not fit the settings, or whose results or promotions do not fit it."""
    path = trial.folder / PROPOSAL
    if not 1 <= trial.revision <= len(history):
        raise _damaged(path, f"there is no revision {trial.revision!s:.20} of the settings")
    space = history[trial.revision - 1].space
    if wrong := _unfit(trial.values, space):
        raise _damaged(path, wrong)
    if len(trial.seen) > MAX_RUNGS or not all(_are_ranges(text) for text in trial.seen):
        raise _damaged(path, "it names results that cannot exist")
    _check_results(trial.rungs, trial.folder, len(history[0].rungs))
    for rung, promotion in enumerate(trial.promotions, 1):
        file = promotion_file(trial.folder, rung)
        if promotion.rung != rung or rung >= len(history[0].rungs):
            raise _damaged(file, f"there is no promotion to rung {promotion.rung!s:.20} here")
        if not _are_ranges(promotion.seen):
            raise _damaged(file, "it names results that cannot exist")


def check_confirmation(one: Confirmation, trials: Collection[int]) -> None:
    """Refuse (exit code 3) the confirmation of a trial that does not exist, or on impossible seeds."""
    path = one.folder / CONFIRMED
    if int(one.folder.name) != one.trial or one.trial not in trials:
        raise _damaged(path, f"there is no trial {one.trial!s:.20} to confirm here")
    if not 1 <= len(one.seeds) <= MAX_SEEDS or max(one.seeds) > MAX_SEED or len({*one.seeds}) < len(one.seeds):
        raise _damaged(path, "its seeds are not those of a confirmation")
    if not _are_ranges(one.seen):
        raise _damaged(path, "it names results that cannot exist")
    _check_results(one.rungs, one.folder, 1)
    if one.result and not one.result.failed and len(one.result.per_seed) != len(one.seeds):
        raise _damaged(rung_file(one.folder, 0), f"it has values of {len(one.result.per_seed):,} seeds")


def _check_results(results: Sequence[RungResult], folder: Path, rungs: int) -> None:
    for rung, result in enumerate(results):
        file = rung_file(folder, rung)
        if result.rung != rung or rung >= rungs:
            raise _damaged(file, f"there is no result at rung {result.rung!s:.20} here")
        if len(result.per_seed) > MAX_SEEDS or not (result.per_seed or result.failed):
            raise _damaged(file, f"it has values of {len(result.per_seed):,} seeds")


def _unfit(values: Mapping[str, JsonValue], space: Sequence[Parameter]) -> str:
    """Return why values are none of a space; empty if they are."""
    if values.keys() != {one.key for one in space}:
        return "its options are not those that the study varies"
    for one in space:
        value = values[one.key]
        if one.kind == "choice":
            fits = value in one.choices
        elif isinstance(value, bool) or not isinstance(value, int if one.kind == "int" else int | float):
            fits = False
        else:
            fits = one.low is not None and one.high is not None and one.low <= value <= one.high
        if not fits:
            return f"its value of {one.key:.80} is not one of the study's"
    return ""


def _are_ranges(text: str) -> bool:
    """Return whether a text names numbers as `ranges_of` does: rising ones, and no more than a study has trials."""
    if text and not _RANGES.fullmatch(text):
        return False
    last = 0
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        if not last < int(low) <= int(high or low):
            return False
        last = int(high or low)
    return True


def _damaged(path: Path, why: str) -> HmxError:
    hint = f"restore it, or delete it to have it made again: {path}"
    return HmxError(f"{path} is damaged: {why}", hint, ExitCode.ARTEFACT)
