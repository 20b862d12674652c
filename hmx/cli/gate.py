"""Keep a change only if it helps: pairs of runs on the same seeds, until they decide."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli import completion
from hmx.cli.boundary import say
from hmx.cli.options import Quiet, Sets, Start, Typed, argument, ask, flagged, switch, with_options
from hmx.cli.output import Outputs, ReportOutputs, write_outputs
from hmx.config.option import CONFIG_PANEL
from hmx.errors import ExitCode
from hmx.gates.records import PANEL, GateRequest

if TYPE_CHECKING:
    from hmx.runs.sinks import Sink


GateArgument = Annotated[
    str, argument("GATE", "A gate: its name below gates/, or the path of its folder.", completion.gate_names)
]
OtherTrainer = Annotated[
    list[str] | None,
    argument("COMMAND", "Command of another trainer, after --, with {seed} and {file}.", completion.nothing),
]
_FIXED = ("run.name", "run.root", "run.seed", "run.num_seeds", "run.total_steps")  # of both sides


@dataclass(frozen=True)
class TryOptions:
    """How to try a change."""

    source: Annotated[Path | None, ask("--source", "FOLDER", "Train with another checkout of hmx.", CONFIG_PANEL)] = (
        None
    )
    abandon: Annotated[
        bool, switch("--abandon", "End the attempt that has no verdict; the pair that has begun counts as lost.", PANEL)
    ] = False
    quiet: Quiet = False


@with_options([field for field in flagged() if field.key != "run.name"])
def new(
    typed: Typed,
    request: GateRequest,
    baseline: Start,
    gate: Annotated[str, argument("GATE", "Name below gates/, or path of the folder.", completion.nothing)],
    command: OtherTrainer = None,
    *,
    outputs: Outputs,
) -> None:
    """Make a gate: the baseline that changes are compared with, what they must improve, and how sure that must be.

    The baseline is a configuration, or a command of another trainer, which writes one JSON or CSV file per seed.

    Example: hmx gate new faster --preset control --env cartpole-discrete --at 20k

    Example: hmx gate new mine -- python train.py --seed {seed} --out {file}
    """
    from hmx.gates import report as reports
    from hmx.gates.campaign import new_gate
    from hmx.gates.records import PLACES

    loaded = baseline.load(typed) if not command or typed or baseline != Start() else None
    made = new_gate(PLACES.place(gate), request, loaded, command or ())
    found = reports.gate_status(made)
    write_outputs(found.to_json(), reports.status(found), outputs)


@with_options([field for field in flagged() if field.key not in _FIXED])
def try_(
    typed: Typed,
    options: TryOptions,
    gate: GateArgument,
    command: OtherTrainer = None,
    sets: Sets = None,
    *,
    outputs: Outputs,
) -> None:
    """Try a change: train it and the baseline on the same seeds, pair by pair, until the verdict is clear.

    A change is an option, your own code, another checkout of hmx, or a command of another trainer. An equal program is
    answered at once, without training. All attempts share one error budget. Ctrl-C stops after a checkpoint; without a
    change, the command continues. Exits with code 0 if the change is kept, and with 4 if it is not.

    Example: hmx gate try faster --lr 3e-3

    Example: hmx gate try faster --algo ./my_ppo.py

    Example: hmx gate try faster --source ../hmx-branch

    Example: hmx gate try mine -- python train2.py --seed {seed} --out {file}
    """
    from rich.console import Console

    from hmx.console.panel import ConsoleSink
    from hmx.gates.campaign import Change, try_change
    from hmx.gates.records import find_gate
    from hmx.gates.report import attempt_facts, gate_status, verdict
    from hmx.records.plain import plain_object

    change = Change(sets or (), typed, options.source, command or (), options.abandon)
    console = Console(stderr=True, highlight=False)
    shown = console.is_terminal and not options.quiet

    @contextlib.contextmanager
    def show(text: str, outside: bool) -> Iterator[Sequence[Sink]]:
        with console.status(text) if shown and outside else contextlib.nullcontext():
            yield [ConsoleSink(console, title=text)] if shown else []

    tell = (lambda line: None) if options.quiet else partial(say, "pair")
    now, attempt = try_change(find_gate(gate), change, tell=tell, show=show, command_line=["hmx", *sys.argv[1:]])
    found, status = attempt_facts(now, attempt), gate_status(now)
    body = {"schema": status.schema_number, **plain_object(found), "next": plain_object(status.next)}
    write_outputs(body, verdict(found, status.next), outputs)
    if found.verdict != "keep":
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


def status(gate: GateArgument, outputs: Outputs) -> None:
    """Show all attempts with their verdicts, the error budget that is left, and what to do next.

    Example: hmx gate status faster
    """
    from hmx.gates import report as reports
    from hmx.gates.records import find_gate

    found = reports.gate_status(find_gate(gate))
    write_outputs(found.to_json(), reports.status(found), outputs)


def report(gate: GateArgument, outputs: ReportOutputs) -> None:
    """Report on all attempts, with the evidence of each after each of its pairs.

    Example: hmx gate report faster --html faster.html
    """
    from hmx.gates import report as reports
    from hmx.gates.records import find_gate

    known = find_gate(gate)
    found = reports.gate_status(known)
    write_outputs(found, reports.status(found, known), outputs, reports.table(found))


def adopt(
    gate: GateArgument,
    attempt: Annotated[int, argument("ATTEMPT", "Number of an attempt whose verdict is keep.", completion.nothing)],
    outputs: Outputs,
) -> None:
    """Make a kept change the baseline of the next attempts.

    Example: hmx gate adopt faster 7
    """
    from hmx.gates import records
    from hmx.gates import report as reports

    found = reports.gate_status(records.adopt(records.find_gate(gate), attempt))
    write_outputs(found.to_json(), reports.status(found), outputs)


def verify(gate: GateArgument, outputs: Outputs) -> None:
    """Compute every pair, level and verdict again from the runs. Exits with code 3 if anything differs.

    Example: hmx gate verify faster
    """
    from hmx.gates.records import find_gate
    from hmx.gates.report import verification
    from hmx.gates.verify import verify_gate

    found = verify_gate(find_gate(gate))
    write_outputs(found.to_json(), verification(found), outputs)
    if found.differences:
        raise typer.Exit(int(ExitCode.ARTEFACT))


COMMANDS = (new, try_, status, report, adopt, verify)
