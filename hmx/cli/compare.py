"""`hmx compare`."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Quiet, argument
from hmx.cli.output import FigureOutputs, write_outputs
from hmx.reports.compare.request import CompareRequest

Sides = Annotated[
    list[str] | None,
    argument(
        "SIDE",
        "Two or more: a run, a folder of runs, a metrics file, a configuration or a preset. NAME=PATH,PATH names "
        "a side and joins runs.",
        completion.sides,
    ),
]


def compare(sides: Sides = None, quiet: Quiet = False, *, request: CompareRequest, outputs: FigureOutputs) -> None:
    """Compare runs: how they differ, and which is better.

    Reports the verdict, where the configurations differ, the results on every environment with intervals over seeds,
    and speed. Changes nothing.

    Example: hmx compare runs/one runs/another --html comparison.html

    Example: hmx compare runs/one runs/another --figure curves.pdf
    """
    from hmx.console.progress import status
    from hmx.reports.compare.conditions import failure
    from hmx.reports.compare.document import document, learning_curves
    from hmx.reports.compare.job import compare as job
    from hmx.reports.compare.numbers import table

    with status("compiling and computing", quiet or not request.impl):
        findings = job(replace(request, sides=tuple(sides or ())))
    if outputs.figure is not None:
        outputs.draw(learning_curves(findings))
    write_outputs(findings, document(findings), outputs, table(findings))
    if findings.failed:
        raise failure(findings.failed)
