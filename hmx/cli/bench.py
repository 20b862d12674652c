"""`hmx bench`."""

from __future__ import annotations

from hmx.cli.options import SIZE_OPTIONS, Quiet, Start, Typed, with_options
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.reports.bench.request import BenchRequest


@with_options(SIZE_OPTIONS)
def bench(request: BenchRequest, typed: Typed, start: Start, quiet: Quiet = False, *, outputs: ReportOutputs) -> None:
    """Measure how fast a configuration trains on this machine, and what takes the time.

    Measures compiling, the environment, acting, whole updates, saving and logging in turn for about a minute, names the
    bottleneck and suggests a number of environments.

    Example: hmx bench --preset quick --json

    """
    from hmx.console.progress import progress

    task = start.bound(typed)

    from hmx.reports.bench.document import document, values

    with progress(quiet) as report:
        from hmx.reports.bench.job import bench as job

        findings = job(task, request, report)
    write_outputs(findings, document(findings), outputs, values(findings), findings.warnings)
