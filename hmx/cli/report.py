"""`hmx report`, and the page that a run gets when it ends."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from hmx.cli.options import Quiet, argument, switch
from hmx.cli.output import STDOUT, FigureOutputs, write_outputs
from hmx.config.option import OUTPUT_PANEL
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, one_line
from hmx.render.blocks import opening
from hmx.reports.report.request import ReportRequest

if TYPE_CHECKING:
    from hmx.reports.report.findings import RunFindings

PAGE = "report.html"

Runs = Annotated[list[Path], argument("RUN", "One run or several: names below runs/, or paths of their folders.")]


def report(
    runs: Runs,
    request: ReportRequest,
    outputs: FigureOutputs,
    force: Annotated[bool, switch("--force", "Replace files that exist.", OUTPUT_PANEL)] = False,
    quiet: Quiet = False,
) -> None:
    """Show a run, or several, on one page with learning curves and episodes.

    Writes one HTML file that needs no network: curves with their intervals, reward terms, actions, losses, the
    configuration, the evaluation, and episodes that play on the page. Without --html, writes reports/report.html in
    the folder of the first run, and replaces an older page; --md - prints the text. A run that ends writes such a page
    without episodes. With --figure alone, only draws the return.

    Example: hmx report hackmatrix-ppo-s0-001

    Example: hmx report runs/one runs/other --html both.html

    Example: hmx report hackmatrix-ppo-s0-001 --figure return.pdf
    """
    from hmx.console.progress import progress

    _check(outputs, force)
    only_figure = outputs.files == [outputs.figure] and not outputs.printed
    with progress(quiet or outputs.json or only_figure) as shown:
        from hmx.reports.report.document import document, values
        from hmx.reports.report.figures import learning_curve
        from hmx.reports.report.job import run_report

        episodes = 0 if only_figure else request.num_episodes
        findings = run_report(replace(request, runs=tuple(map(str, runs)), num_episodes=episodes), shown)
    if outputs.figure is not None:
        outputs.draw([learning_curve(findings)])
    whole = document(findings)
    if outputs.on_console:
        from hmx.render.terminal import print_document

        print_document(opening(whole))
    if not only_figure:
        outputs = replace(outputs, html=outputs.html or default_page(findings))
    warnings = [f"{run.name}: {warning}" for run in findings.runs for warning in run.warnings]
    write_outputs(findings, whole, outputs, values(findings), warnings)
    damaged = [run.name for run in findings.runs if run.damaged]
    if damaged:
        message = f"{', '.join(map(quoted, damaged))}: the page shows only what could be read of the run"
        raise HmxError(message, f"hmx runs verify {shlex.quote(damaged[0])} lists the damage", ExitCode.ARTEFACT)


def _check(outputs: FigureOutputs, force: bool) -> None:
    """Refuse files that exist, and an HTML file with another ending."""
    if outputs.html not in (None, STDOUT) and outputs.html.suffix.lower() not in (".html", ".htm"):
        raise HmxError(
            f"cannot write the page {quoted(str(outputs.html))}: expected a name that ends in .html",
            f"--html {shlex.quote(str(outputs.html.with_suffix('.html')))}, or --md and --csv for other formats",
        )
    for file in outputs.files:
        if file.is_file() and not force:
            raise HmxError(f"{quoted(str(file))} already exists", "choose another name, or replace it with --force")


def default_page(findings: RunFindings) -> Path:
    """Return the page in the folder of the first run; the folder is made."""
    from hmx.config.files import make_folder, words

    run = findings.runs[0]
    name = PAGE if len(findings.runs) == 1 else f"report-of-{len(findings.runs)}-runs.html"
    folder = run.path / "reports"
    try:
        make_folder(folder)
    except OSError as problem:
        message = f"cannot write the page in {quoted(str(folder))}: {words(problem)}"
        raise HmxError(message, "choose another place: --html page.html") from None
    return folder / name


def write_page(run: Path) -> Path | None:
    """Write the page of a finished run; on failure, warn and return None."""
    from hmx.cli.boundary import say, write_report
    from hmx.records.paths import RunPaths
    from hmx.render.html import page
    from hmx.reports.report.document import document
    from hmx.reports.report.job import run_report

    try:
        findings = run_report(ReportRequest(runs=(str(run),), root=run.parent, num_episodes=0))
        file = default_page(findings)
        write_report(file, page(document(findings)))
    except Exception as problem:  # the run is complete without its page
        message = problem.message if isinstance(problem, HmxError) else one_line(f"{type(problem).__name__}: {problem}")
        say(
            "warning",
            f"the page of the run was not written: {message}",
            f"hmx report {RunPaths(run.parent, run.name).argument}",
        )
        return None
    return file
