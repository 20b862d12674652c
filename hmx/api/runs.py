"""Train, resume, evaluate and compare from Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from hmx.api.configs import Settings, resolve
from hmx.api.hints import for_python
from hmx.console.panel import ConsoleSink
from hmx.console.progress import ProgressLog
from hmx.gates import report as gates
from hmx.gates.report import AttemptFacts, GateStatus
from hmx.gates.verify import GateVerification
from hmx.jobs import evaluate as evaluating
from hmx.jobs import fork as forking
from hmx.jobs import resume as resuming
from hmx.jobs import train as training
from hmx.jobs.evaluation import EvaluateResult
from hmx.jobs.requests import ForkRequest
from hmx.jobs.rollback import rolled_back
from hmx.jobs.train import TrainResult
from hmx.records.paths import DEFAULT_ROOT
from hmx.registry.load import bind
from hmx.registry.trust import trusting
from hmx.render.terminal import print_document
from hmx.reports import summaries
from hmx.reports.check_env import document as checks
from hmx.reports.check_env.findings import CheckEnvFindings
from hmx.reports.compare import document as comparisons
from hmx.reports.compare import job as comparing
from hmx.reports.compare.findings import CompareFindings
from hmx.reports.compare.request import CompareRequest
from hmx.reports.doctor.job import HealthSink
from hmx.runs.sinks import Sink
from hmx.study import summaries as study_summaries
from hmx.study.report import document as studies
from hmx.study.report.findings import StudyFindings
from hmx.study.status import StudyStatus
from hmx.study.verify import StudyVerification

__all__ = ["compare", "evaluate", "fork", "resume", "show", "train"]

evaluate = for_python(evaluating.evaluate)
evaluate.__module__ = __name__  # where pickle finds it


@for_python
def train(
    settings: Settings | None = None,
    *,
    preset: str | None = None,
    force: bool = False,
    progress: bool = True,
    sinks: Sequence[Sink] = (),
    trust: bool = False,
) -> TrainResult:
    """Train a new run in its own folder.

    Ctrl-C, or "interrupt" in a notebook, stops after a checkpoint; the result then has the state `interrupted`.
    A finding that ends the run (`run.on_finding`) gives that state too, and `finding` says why. After rollbacks, the
    result is that of the last of its `branches`.

    Args:
        settings: a configuration, or the values that differ from the defaults (or from the preset), by dotted key; see
            `hmx.load_config`.
        preset: see `hmx.load_config`.
        force: whether a run of the same name is deleted first.
        progress: whether to show progress: a panel in a terminal, lines elsewhere.
        sinks: receivers of records in addition to the local file; a rollback starts them again.
        trust: whether to run code that a configuration from a file names.

    Raises:
        HmxError: the configuration cannot run, or the run exists; nothing has been written then. Or memory, disk or
            numbers fail later.
    """
    task = bind(resolve(settings or {}, preset))
    with trusting(trust):
        return _followed(lambda sinks: training.train(task, sinks=sinks, force=force), progress, sinks)


@for_python
def resume(
    run: str | Path,
    changes: Mapping[str, object] | None = None,
    *,
    root: str | Path = DEFAULT_ROOT,
    progress: bool = True,
    sinks: Sequence[Sink] = (),
    trust: bool = False,
) -> TrainResult:
    """Resume a run from its latest intact checkpoint.

    Args:
        run: name or path of the run.
        changes: new values by dotted key, such as `{"run.total_steps": 2_000_000}`.
        root: runs folder, for a name.
        progress: see `hmx.train`.
        sinks: see `hmx.train`.
        trust: whether to run code that the run names.

    Raises:
        HmxError: a change that the state forbids, a finished run, or no intact checkpoint.
    """
    with trusting(trust):
        return _followed(lambda sinks: resuming.resume(run, changes=changes, sinks=sinks, root=root), progress, sinks)


@for_python
def fork(
    run: str | Path,
    changes: Mapping[str, object] | None = None,
    *,
    at: int | None = ForkRequest.at,
    name: str = ForkRequest.name,
    root: str | Path = DEFAULT_ROOT,
    progress: bool = True,
    sinks: Sequence[Sink] = (),
    trust: bool = False,
) -> TrainResult:
    """Continue a run from the exact state at a checkpoint as a new run, with changed settings.

    Args:
        run: name or path of the run, which stays as it is.
        changes: new values by dotted key, such as `{"algo.learning_rate": 1e-4}`.
        at: update of the checkpoint; None takes the newest intact one.
        name: name of the new run; "" for one made from the name of the run and a number.
        root: runs folder, for a name.
        progress: see `hmx.train`.
        sinks: see `hmx.train`.
        trust: whether to run code that the run names.

    Raises:
        HmxError: a change that the state forbids, a name that is taken, or no such intact checkpoint.
    """
    request = ForkRequest(at=at, name=name)
    with trusting(trust):
        start = partial(forking.fork, run, request, changes=changes, root=root)
        return _followed(lambda sinks: start(sinks=sinks), progress, sinks)


@for_python
def compare(
    *sides: str | Path, metric: str = CompareRequest.metric, root: str | Path = DEFAULT_ROOT
) -> CompareFindings:
    """Compare two or more runs or folders of runs, as `hmx compare` does; no code of a run is loaded.

    Args:
        sides: `[NAME=]PATH[,PATH...]` each.
        metric: the one to compare, or `evaluation`.
        root: runs folder, for names.

    Raises:
        HmxError: an invalid side, or one that does not exist.
    """
    request = CompareRequest(sides=tuple(str(side) for side in sides), metric=metric, root=Path(root))
    return comparing.compare(request)


def show(
    result: TrainResult
    | EvaluateResult
    | CompareFindings
    | CheckEnvFindings
    | StudyFindings
    | StudyStatus
    | StudyVerification
    | AttemptFacts
    | GateStatus
    | GateVerification,
) -> None:
    """Print a result as the command line does."""
    if isinstance(result, TrainResult):
        document = summaries.training(result, str)
    elif isinstance(result, EvaluateResult):
        document = summaries.evaluation(result)
    elif isinstance(result, CheckEnvFindings):
        document = checks.document(result)
    elif isinstance(result, StudyFindings):
        document = studies.document(result)
    elif isinstance(result, StudyStatus):
        document = study_summaries.status(result)
    elif isinstance(result, StudyVerification):
        document = study_summaries.verification(result)
    elif isinstance(result, AttemptFacts):
        document = gates.verdict(result)
    elif isinstance(result, GateStatus):
        document = gates.status(result)
    elif isinstance(result, GateVerification):
        document = gates.verification(result)
    else:
        document = comparisons.document(result)
    width = None if _in_terminal() else 100
    # Rich would display an empty box in a notebook before the text.
    print_document(document, Console(file=sys.stdout, highlight=False, width=width, force_jupyter=False))


def _followed(start: Callable[[list[Sink]], TrainResult], progress: bool, sinks: Sequence[Sink]) -> TrainResult:
    """Train, and follow the rollbacks of the run; each branch has progress of its own."""

    def all_sinks() -> list[Sink]:
        return [*_own_sinks(progress), *sinks]

    return rolled_back(start(all_sinks()), all_sinks)


def _own_sinks(progress: bool) -> list[Sink]:
    if not progress:
        return [HealthSink()]
    if _in_terminal():
        return [ConsoleSink(Console(stderr=True, highlight=False)), HealthSink()]
    return [ProgressLog(sys.stdout if "ipykernel" in sys.modules else sys.stderr), HealthSink()]


def _in_terminal() -> bool:
    return os.isatty(2) and "ipykernel" not in sys.modules
