"""`hmx compute-config`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli import completion
from hmx.cli.options import SIZE_OPTIONS, Start, Typed, with_options
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.config.coerce import typed_number
from hmx.config.fields import fields_of
from hmx.errors import ExitCode, HmxError
from hmx.reports.compute_config.inputs import BatchInputs
from hmx.reports.compute_config.request import SizesRequest

if TYPE_CHECKING:
    from hmx.reports.compute_config.findings import SizesFindings

_INPUTS = fields_of(BatchInputs)
_UNREADABLE = {"E_NOT_INT", "E_NOT_POSITIVE", "E_TOO_LARGE", "E_UNKNOWN_FIELD"}

Run = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="Start from the configuration of a run.", autocompletion=completion.run_names),
]
# The full name of this input does not fit into the help of a terminal of 80 columns.
TargetInFull = Annotated[str | None, typer.Option("--forward-pass-minibatch-target-size", hidden=True)]


@with_options((*SIZE_OPTIONS, *_INPUTS.values()), default="that of the configuration")
def compute_config(
    typed: Typed,
    request: SizesRequest,
    run: Run = None,
    target_in_full: TargetInFull = None,
    *,
    start: Start,
    outputs: ReportOutputs,
) -> None:
    """Compute the sizes of a run before starting it.

    Shows what follows from the numbers of agents and environments, the batch, the minibatch and the horizon:
    sequences, updates, memory, schedules and time. Sizes that cannot work are marked and refused, with values that do.
    Inputs such as --num-agents alone size the Metta training equations. Without them, or with a run, a file, a preset
    or --env, the sizes are those of hmx train, whose options it takes. A file may also have a table `batch` of inputs.

    Example: hmx compute-config --num-agents 24

    Example: hmx compute-config --env ./game.py --num-envs 64 --steps 200k
    """
    from hmx.reports.compute_config.document import sweep_document, sweep_table
    from hmx.reports.compute_config.job import compute_sizes, sweep_sizes, swept_input
    from hmx.reports.compute_config.source import read_source

    given = {field.name: typed_number(typed[key]) for key, field in _INPUTS.items() if key in typed}
    if target_in_full is not None:
        if "--forward-target" in typed:
            message = "--forward-target and --forward-pass-minibatch-target-size are the same input"
            raise HmxError(message, "leave one out")
        given["forward_pass_minibatch_target_size"] = typed_number(target_in_full)
    not_swept = {"--full": request.full, "--explain": request.explain}
    for name, chosen in not_swept.items():
        if chosen and request.sweep is not None:
            raise HmxError(f"cannot combine --sweep with {name}", "leave one of them out")
    trained = {key: value for key, value in typed.items() if key not in _INPUTS}
    named = [*given, *([] if request.sweep is None else [swept_input(request.sweep)])]
    source = read_source(start.preset, start.config, run, start.sets or (), trained, named)
    if request.sweep is not None:
        found = sweep_sizes(source, given, request.sweep, request)
        write_outputs(found, sweep_document(found), outputs, sweep_table(found))
    else:
        found_sizes = compute_sizes(source, given, request)
        _write(found_sizes, outputs, request.full, request.explain)


def _write(found: SizesFindings, outputs: ReportOutputs, full: bool, explain: bool) -> None:
    """Write the report; if there are problems, they are marked in it, and then refused."""
    from hmx.reports.compute_config.document import document, problem_text, values_table

    warnings = map(problem_text, found.warnings) if found.valid else ()
    errors = not outputs.on_console  # the console shows them below the report
    write_outputs(found, document(found, full, explain, errors), outputs, values_table(found), warnings)
    if not found.valid:
        raise _refusal(found)


def _refusal(found: SizesFindings) -> HmxError:
    """Return all problems as one error, with the values that repair them."""
    from hmx.reports.compute_config.document import as_options, problem_text

    unreadable = _UNREADABLE.intersection(found.codes["errors"])
    lines = [problem_text(p) if p.code in _UNREADABLE else f"{p.code}: {p.message}" for p in found.errors]
    if found.suggestions:
        ways = as_options(found.suggestions, ", ")
        lines.append(f"fixed by {'any one of ' if len(found.suggestions) > 1 else ''}{ways}")
    number = len(found.errors)
    text = "\n  ".join([f"{number} problems", *lines] if number > 1 else lines)
    if unreadable:
        hint = "sizes are whole numbers from 1 to 2^53 - 1, such as 524_288"
    elif found.suggestions:
        hint = as_options(found.suggestions[:1])
    elif not found.only_sizes:
        hint = "set these keys in the configuration, or with --set"
    else:
        hint = "no single value repairs this: correct the sizes one at a time"
    return HmxError(text, hint, ExitCode.USAGE)
