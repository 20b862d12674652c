"""The options of `hmx study new` and `hmx study add`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import opt, same
from hmx.records.curves import RETURN
from hmx.study.records import MAX_RUNGS, MAX_SEEDS, Measure, Objective, Sampler, StudySettings

SEARCH_PANEL, OBJECTIVE_PANEL = "Search", "Objective"
STUDIES = "studies"  # folder of the studies, for names
DEFAULT_TRIALS, MAX_TRIALS, DEFAULT_CONFIRM = 40, 1_000_000, 10


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """How to search, and what to optimise."""

    trials: int | None = opt(
        None, f"trials to run; all grid points, otherwise {DEFAULT_TRIALS}", "trials", ge=1, le=MAX_TRIALS,
        panel=SEARCH_PANEL,
    )  # fmt: skip
    sampler: Sampler | None = opt(
        None,
        "how values are chosen; tpe, cmaes and gp need the extra study. Default: grid if every option has choices only",
        panel=SEARCH_PANEL,
    )
    sampler_seed: int = same(StudySettings, "sampler_seed", SEARCH_PANEL)
    rungs: int | None = opt(
        None, "lengths at which trials compete, each eta times the one before; 1 trains all to the end (default: 1 for "
        "a grid, otherwise 3)", "rungs", ge=1, le=MAX_RUNGS, panel=SEARCH_PANEL,
    )  # fmt: skip
    eta: int = same(StudySettings, "eta", SEARCH_PANEL)
    synchronous: bool = same(StudySettings, "synchronous", SEARCH_PANEL)
    batch: int = same(StudySettings, "batch", SEARCH_PANEL)
    confirm: int | None = opt(
        None, "fresh seeds on which the best configurations run again; 0 for none (default: "
        f"{DEFAULT_CONFIRM}, or 0 where the search selects nothing, as in a grid of 3)", "seeds", ge=0, le=MAX_SEEDS,
        panel=SEARCH_PANEL,
    )  # fmt: skip
    confirm_top: int = same(StudySettings, "confirm_top", SEARCH_PANEL, default=3, ge=1)
    max_kills: int = same(StudySettings, "max_kills", SEARCH_PANEL)
    metric: str = opt(
        RETURN,
        "metric to optimise, or evaluation: the mean return of --eval-episodes games at the end",
        metavar="METRIC",
        panel=OBJECTIVE_PANEL,
    )
    measure: Measure = opt(
        Objective.measure,
        "number of each seed's curve: mean of the last tenth, area under the curve divided by the steps, or steps or "
        "CPU seconds of training until --threshold",
        panel=OBJECTIVE_PANEL,
    )
    threshold: float | None = opt(None, "value of the metric to reach", panel=OBJECTIVE_PANEL)
    maximize: bool = opt(False, "a higher metric is better (default: as the metric says)", panel=OBJECTIVE_PANEL)
    minimize: bool = opt(False, "a lower metric is better", panel=OBJECTIVE_PANEL)


@dataclass(frozen=True, kw_only=True)
class AddRequest:
    """By how much a study grows."""

    trials: int = opt(0, "number of further trials; new grid points count by themselves", "trials", ge=0,
        le=MAX_TRIALS, panel=SEARCH_PANEL)  # fmt: skip
    confirm: int = same(
        StudySettings, "confirm_seeds", SEARCH_PANEL,
        doc="fresh seeds on which the best trials run again, for a study without such seeds",
    )  # fmt: skip
