"""Common parts of `train`, `resume` and `fork`: sinks, progress, several processes, and the final report."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from hmx.cli.boundary import pasteable, say
from hmx.cli.output import Outputs, write_documents, write_outputs
from hmx.config.textfile import printable
from hmx.console.panel import ConsoleSink, JsonSink
from hmx.console.progress import ProgressLog
from hmx.errors import HmxError, counted
from hmx.records.paths import RunPaths
from hmx.render.quantities import short
from hmx.render.terminal import print_document
from hmx.reports import summaries
from hmx.reports.doctor.job import HealthSink
from hmx.runs.cluster.hosts import Hosts

if TYPE_CHECKING:
    from hmx.jobs.resume import ResumePlan
    from hmx.jobs.train import TrainResult
    from hmx.registry.load import Loaded
    from hmx.runs.cluster.group import Group
    from hmx.runs.sinks import Sink

Start = Callable[..., "TrainResult"]
"""Takes `sinks` and `group`."""


def run(task: Loaded, hosts: Hosts, *, force: bool, outputs: Outputs, quiet: bool = False) -> None:
    """Train a new run, and exit with the code of the signal that stopped it, if any."""
    cfg = task.config
    size = f"{counted(cfg.env.num_envs, 'environment')}, {short(cfg.run.total_steps)} steps"
    if not quiet and hosts.writes:
        say("starting", f"training {cfg.env.id} with {cfg.algo.name}: {size}")
    from hmx.jobs.train import train  # imports JAX, which takes seconds

    command_line = ["hmx", *sys.argv[1:]]

    def start(sinks: Sequence[Sink], group: Group) -> TrainResult:
        return train(task, sinks=sinks, force=force, command_line=command_line, group=group)

    execute(start, hosts, outputs, quiet)


def announce(text: str, hosts: Hosts, quiet: bool) -> None:
    """Say what starts, before JAX is imported."""
    if not quiet and hosts.writes:
        say("starting", text)


def show_plan(planned: ResumePlan, outputs: Outputs, parent: Path | None = None) -> None:
    """Show the plan of `resume`, or that of `fork`, with the `parent`."""
    write_outputs(planned.to_json(), summaries.resumption(planned, parent), outputs)
    for warning in () if outputs.json else planned.warnings:
        say("warning", warning)


def dry(task: Loaded, *, force: bool, outputs: Outputs, full: bool = False) -> None:
    """Show the plan of `train`: settings that differ from the defaults, or every value if `full`."""
    from hmx.jobs.plan import plan

    planned = plan(task)
    write_outputs(planned.to_json(), summaries.plan(planned, full), outputs)
    for warning in () if outputs.json else planned.warnings:
        say("warning", warning)
    if planned.exists and not force and not outputs.json:
        paths = RunPaths(planned.run.parent, planned.run.name)
        hint = f"resume it with hmx resume {paths.argument}, or replace it with --force"
        say("warning", f"run {planned.run} already exists, so train would refuse", hint)


def execute(start: Start, hosts: Hosts, outputs: Outputs, quiet: bool) -> None:
    """Train with sinks of the command line, and exit with the code of the signal that stopped it, if any."""
    console = Console(stderr=True, highlight=False)
    with _joined(hosts) as group:
        stream = JsonSink() if outputs.json else None

        def sinks() -> list[Sink]:
            shown: list[Sink] = []
            if not quiet:
                shown = [ConsoleSink(console) if console.is_terminal else ProgressLog()]
            return [*shown, HealthSink(), *([stream] if stream else [])]

        result = start(sinks=sinks() if group.is_coordinator else [], group=group)
        if result.finding is not None:
            from hmx.jobs.rollback import rolled_back

            result = rolled_back(result, sinks, ["hmx", *sys.argv[1:]])
        if group.is_coordinator:
            for warning in result.warnings if quiet else ():
                say("warning", warning)
            if stream is not None:
                stream.emit("result", result.to_json())
            from hmx.cli.report import write_page

            _show_end(result, outputs, quiet, write_page(result.run))
    if result.finding is not None:
        from hmx.jobs.healthy import failure

        raise failure(RunPaths(result.run.parent, result.run.name), result.finding, result.updates)
    if result.signum is not None:
        raise typer.Exit(128 + result.signum)


def _show_end(result: TrainResult, outputs: Outputs, quiet: bool, page: Path | None) -> None:
    if result.finding is not None:
        return
    if result.state == "interrupted":
        say("stopped", f"after update {result.updates:,} of {result.total_updates:,}; the checkpoint is complete")
        say("resume with", result.resume_command)
        return
    document = summaries.training(result, pasteable, page)
    write_documents(document, outputs)
    if outputs.md is None and not (quiet and outputs.json):
        print_document(document, Console(stderr=outputs.json, highlight=False))


@contextlib.contextmanager
def _joined(hosts: Hosts) -> Iterator[Group]:
    """Join the processes of the run until it ends; a single process joins none."""
    if not hosts.distributed:
        from hmx.runs.cluster.group import ALONE

        yield ALONE
        return
    from hmx.runs.cluster.rendezvous import join

    with join(hosts, on_lost=_end) as group, _clean_stdout() if group.count > 1 else contextlib.nullcontext():
        yield group


@contextlib.contextmanager
def _clean_stdout() -> Iterator[None]:
    """Redirect output of the library that connects processes to stderr, since stdout is for data."""
    sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # there is none
        yield
        return
    own, sys.stdout = sys.stdout, os.fdopen(kept, "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os.dup2(kept, 1)
        sys.stdout.close()
        sys.stdout = own


def _end(problem: HmxError) -> None:
    """Process 0 is gone: the message must be printed before JAX ends this process, so it is printed directly."""
    text = f"error: {printable(problem.message)}\n\nhint: {printable(problem.hint)}\n"
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
    os._exit(int(problem.exit_code))
