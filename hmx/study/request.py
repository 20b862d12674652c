"""The options of `hmx study new` and `hmx study add`; imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

from hmx.config.option import MAX_SEED, opt
from hmx.records.curves import RETURN
from hmx.study.records import (
    MAX_BATCH,
    MAX_ETA,
    MAX_KILLS,
    MAX_RUNGS,
    MAX_SEEDS,
    MAX_TOP,
    MAX_TRIALS,
    Measure,
    Objective,
    Sampler,
    StudySettings,
)

SEARCH_PANEL, OBJECTIVE_PANEL = "Search", "Objective"
STUDIES = "studies"  # folder of the studies, for names
DEFAULT_TRIALS = 40


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """How to search, and what to optimise."""

    trials: int | None = opt(
        None, f"trials to run; all points of a grid, otherwise {DEFAULT_TRIALS}", "trials", ge=1, le=MAX_TRIALS,
        panel=SEARCH_PANEL,
    )  # fmt: skip
    sampler: Sampler | None = opt(
        None,
        "how values are chosen; tpe, cmaes and gp need the extra study. Default: grid if every option has choices only",
        panel=SEARCH_PANEL,
    )
    sampler_seed: int = opt(0, "seed of the sampler", ge=0, le=MAX_SEED, panel=SEARCH_PANEL)
    rungs: int | None = opt(
        None, "lengths at which trials compete, each eta times the one before; 1 trains all to the end (default: 1 for "
        "a grid, otherwise 3)", "rungs", ge=1, le=MAX_RUNGS, panel=SEARCH_PANEL,
    )  # fmt: skip
    eta: int = opt(
        StudySettings.eta, "one of so many trials continues to the next rung", ge=2, le=MAX_ETA, panel=SEARCH_PANEL
    )
    synchronous: bool = opt(
        False, "decide only when all results of a rung or batch are known: equal studies then have equal files",
        panel=SEARCH_PANEL,
    )  # fmt: skip
    batch: int = opt(
        StudySettings.batch, "with --synchronous: trials that tpe, cmaes or gp propose from the same results", "trials",
        ge=1, le=MAX_BATCH, panel=SEARCH_PANEL,
    )  # fmt: skip
    confirm: int = opt(
        10, "fresh seeds on which the best configurations run again; 0 for none", "seeds", ge=0, le=MAX_SEEDS,
        panel=SEARCH_PANEL,
    )  # fmt: skip
    confirm_top: int = opt(3, "number of configurations to confirm", ge=1, le=MAX_TOP, panel=SEARCH_PANEL)
    max_kills: int = opt(
        StudySettings.max_kills, "killed workers in a row, without progress of the trial, after which it fails; 0 for "
        "no bound, where workers are often killed for other reasons", "workers", ge=0, le=MAX_KILLS, panel=SEARCH_PANEL,
    )  # fmt: skip
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

    trials: int = opt(0, "number of further trials; new points of a grid count by themselves", "trials", ge=0,
        le=MAX_TRIALS, panel=SEARCH_PANEL)  # fmt: skip
    confirm: int = opt(
        0, "fresh seeds on which the best trials run again, for a study without such seeds", "seeds", ge=0,
        le=MAX_SEEDS, panel=SEARCH_PANEL,
    )  # fmt: skip
