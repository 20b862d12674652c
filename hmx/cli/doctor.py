"""`hmx doctor`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import argument, ask
from hmx.cli.output import ReportOutputs, write_outputs

RunOrLog = Annotated[
    Path,
    argument(
        "RUN", "A run, or a log of another program: TensorBoard event files, a CSV of Weights & Biases, a monitor.csv."
    ),
]
FailOn = Annotated[
    list[str] | None,
    ask(
        "--fail-on",
        "RULE",
        "Exit with code 4 if the run breaks this rule; any stands for every rule that warns (repeatable).",
        "Check",
        autocompletion=completion.health_rules,
    ),
]


def doctor(run: RunOrLog, fail_on: FailOn = None, *, outputs: ReportOutputs) -> None:
    """Check a run for what often goes wrong, and say what to try.

    Looks for a missing learning signal, policies that collapse or stay random, updates that are too large, useless
    value functions, exploding gradients, inactive masks and more: what looks wrong, and since which step. `hmx train`
    checks the same rules and warns once for each. Changes nothing, and works while the run trains. A log of another
    program is checked by the rules whose metrics it has.

    Example: hmx doctor hackmatrix-ppo-s0-001

    Example: hmx doctor logs/PPO_1

    Example: hmx doctor hackmatrix-ppo-s0-001 --fail-on any --json
    """
    from hmx.reports.doctor.document import document, table
    from hmx.reports.doctor.job import doctor as job
    from hmx.reports.doctor.job import failure

    findings = job(run, fail_on or ())
    write_outputs(findings, document(findings), outputs, table(findings))
    if findings.failed:
        raise failure(findings)
