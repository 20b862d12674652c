"""Studies from Python: many runs that search for good options."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hmx.api.configs import NO_VALUES, Settings, resolve
from hmx.api.hints import for_python, in_python
from hmx.config.fields import fields_of
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.registry.load import read_request
from hmx.study import create, worker
from hmx.study import status as statuses
from hmx.study.best import best_trial
from hmx.study.folder import read_study as read
from hmx.study.plan import first_rung
from hmx.study.records import Study
from hmx.study.report.findings import StudyFindings
from hmx.study.report.job import study_report as report
from hmx.study.request import STUDIES, AddRequest, SearchRequest
from hmx.study.space import space_texts
from hmx.study.status import StudyStatus
from hmx.study.summaries import step_line
from hmx.study.verify import StudyVerification
from hmx.study.verify import verify_study as verify
from hmx.study.worker import WorkResult, WorkStep

__all__ = [
    "best_config",
    "extend_study",
    "new_study",
    "read_study",
    "run_study",
    "study_report",
    "study_status",
    "verify_study",
]


@for_python
def new_study(
    study: str | Path,
    space: Mapping[str, str | Sequence[object]],
    settings: Settings | None = None,
    *,
    preset: str | None = None,
    search: Mapping[str, object] = NO_VALUES,
) -> Study:
    """Make a study: a folder in which any number of workers train the trials.

    Args:
        study: a name below `studies/`, or the path of a folder.
        space: what to vary, by key: a range such as `"1e-4..1e-2:log"`, or a list of choices.
        settings: what trials start from, see `hmx.train`.
        preset: see `hmx.load_config`.
        search: options of `hmx study new` by name, such as `{"trials": 30, "confirm_top": 5}`.

    Raises:
        HmxError: an option, a range or the configuration is not valid, or there is a study; nothing has been written.
    """
    loaded = resolve(settings or {}, preset)
    flags = {f"--{name.replace('_', '-')}": value for name, value in search.items()}
    if unknown := flags.keys() - fields_of(SearchRequest):
        raise HmxError(f"unknown option {min(unknown)[2:]}", "hmx study new --help lists the options of a search")
    request = read_request(SearchRequest, flags)
    return _noted(create.new_study(create.study_place(study), {create.BASE: loaded}, space_texts(space), request))


@for_python
def run_study(study: str | Path, *, progress: bool = True, other_versions: bool = False) -> WorkResult:
    """Train the trials of a study until nothing is left to do; other processes may do the same at the same time.

    Ctrl-C stops after a checkpoint; the result then has the signal.

    Args:
        study: name or path.
        progress: whether to write a line for each result.
        other_versions: whether to work although the study was made with other package versions.

    Raises:
        HmxError: the study is damaged, the disk is full, or a run fails.
    """

    def tell(step: WorkStep) -> None:
        stream = sys.stdout if "ipykernel" in sys.modules else sys.stderr
        stream.write(f"{step_line(step)}\n")

    shown: Callable[[WorkStep], None] = tell if progress else worker.ignore
    return worker.work(create.find_study(study), tell=shown, other_versions=other_versions)


@for_python
def read_study(study: str | Path) -> Study:
    """Read a study with all trials, results and decisions.

    Raises:
        HmxError: there is no such study, or one of its files is damaged.
    """
    return read(create.find_study(study))


@for_python
def study_status(study: str | Path) -> StudyStatus:
    """Return the state of all trials, the work that is left, and the best trials; errors as of `read_study`."""
    return statuses.study_status(create.find_study(study))


@for_python
def study_report(study: str | Path, root: str | Path = STUDIES) -> StudyFindings:
    """Report on a study, as `hmx study report` does; `hmx.show` prints the result.

    Args:
        study: its name, or the path of its folder.
        root: folder of the studies, for names.

    Raises:
        HmxError: there is no such study, or one of its files is damaged.
    """
    return report(create.find_study(study, root))


@for_python
def extend_study(
    study: str | Path,
    *,
    trials: int = AddRequest.trials,
    space: Mapping[str, str | Sequence[object]] | None = None,
    confirm: int = AddRequest.confirm,
) -> Study:
    """Extend a study by further trials, options to vary, or fresh seeds for the best; errors as of `new_study`."""
    request = AddRequest(trials=trials, confirm=confirm)
    return _noted(create.add_to_study(create.find_study(study), space_texts(space or {}), request))


def _noted(study: Study) -> Study:
    """Return a study, and warn if a first rung may be too short for a value."""
    if short := first_rung(study):
        warnings.warn(in_python(str(short), new_study), stacklevel=4)
    return study


@for_python
def verify_study(study: str | Path) -> StudyVerification:
    """Make every decision of a study again, and compute every result again; errors as of `read_study`."""
    return verify(create.find_study(study))


@for_python
def best_config(study: str | Path) -> Config:
    """Return the configuration of the best trial: on fresh seeds if those are known, otherwise of the search.

    Raises:
        HmxError: no trial has a result yet, or see `read_study`.
    """
    return best_trial(create.find_study(study)).config
