"""`hmx grad-report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli.options import Quiet, argument
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.reports.grad_report.request import GradReportRequest

PathArgument = Annotated[Path, argument("RUN", "A run, its checkpoint folder, or a checkpoint.")]


def grad_report(path: PathArgument, request: GradReportRequest, outputs: ReportOutputs, quiet: Quiet = False) -> None:
    """Show which episodes and which losses drive the gradient.

    Plays several episodes from each of several start states, ranks the start states by the standard deviation of
    their returns, and decomposes the training gradient: by bucket, by loss component and by layer, with its noise and
    its conflicts. The newest report is kept in the folder of the run, and hmx report shows it.

    Example: hmx grad-report RUN --all-checkpoints --html report.html
    """
    from hmx.console.progress import progress

    with progress(quiet) as report:
        from hmx.reports.grad_report.document import document, values
        from hmx.reports.grad_report.job import grad_report as job

        findings = job(path, request, progress=report)
    warnings = (*findings.warnings, *findings.reports[-1].warnings)
    write_outputs(findings, document(findings), outputs, values(findings), warnings)
