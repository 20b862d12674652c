"""`hmx score-buffer`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Execution, argument, ask, switch
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.config.option import OUTPUT_PANEL
from hmx.reports.score_buffer.request import POSITIONS, ScoreRequest

PathArgument = Annotated[Path, argument("PATH", "A saved buffer, a run, its checkpoint folder, or a checkpoint.")]
CheckpointRun = Annotated[
    Path | None,
    ask(
        "--checkpoint",
        "RUN",
        "Run or checkpoint whose policy plays from the positions of a saved buffer.",
        POSITIONS,
        autocompletion=completion.run_names,
    ),
]
Out = Annotated[
    Path | None,
    ask("--out", "FOLDER", "Folder of the results (reports/scores of the run, or beside the buffer).", OUTPUT_PANEL),
]
Strict = Annotated[
    bool, switch("--strict", "Exit with code 4 if scores are noisy, tie, or cover too little.", OUTPUT_PANEL)
]


def score_buffer(
    path: PathArgument,
    request: ScoreRequest,
    checkpoint: CheckpointRun = None,
    out: Out = None,
    strict: Strict = False,
    *,
    execution: Execution,
    outputs: ReportOutputs,
) -> None:
    """Score how much decisions mattered.

    Takes positions from a replay buffer, or collects some, tries every action in each of them and continues with the
    policy. The score is the distance between the returns of the action taken and those of its alternatives. Ctrl-C
    keeps the scores so far; the same command continues.

    Example: hmx score-buffer hackmatrix-dqn-s0-001 --rollouts 64 --html scores.html
    """
    from hmx.console.progress import progress

    if execution.dry_run:
        from hmx.reports.score_buffer import document, job

        plan = job.dry_run(path, checkpoint=checkpoint, request=request, out=out)
        write_outputs(plan, document.plan_document(plan), outputs)
        return
    with progress(execution.quiet) as report:
        from hmx.reports.score_buffer import document, job
        from hmx.reports.score_buffer.findings import check_gates

        found = job.score_buffer(path, checkpoint=checkpoint, request=request, out=out, progress=report)
    table = None if outputs.csv is None else document.table(found)
    write_outputs(found, document.document(found), outputs, table, found.warnings)
    if strict:
        check_gates(found)
