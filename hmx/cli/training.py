"""What `train` and `resume` have in common: the sinks for eyes and programs, and how the end is told."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.console import Console

from hmx.cli import run_tables, tables
from hmx.cli.boundary import print_json, say
from hmx.cli.console import ConsoleSink, JsonSink
from hmx.cli.hosts import Hosts, joined
from hmx.config import derive
from hmx.config.env_facts import facts_known
from hmx.config.textfile import quoted
from hmx.errors import HmxError
from hmx.sizing.q_memory import q_memory

if TYPE_CHECKING:
    from hmx.config.load import Loaded
    from hmx.config.schema import Config
    from hmx.jobs.train import TrainResult
    from hmx.runs.cluster.group import Group
    from hmx.runs.sinks import Sink


def run(loaded: Loaded, hosts: Hosts, *, force: bool, json: bool) -> None:
    """Trains, tells, and ends with the exit code of the signal that stopped it, if one did."""
    from hmx.jobs.train import train

    def start(sinks: Sequence[Sink], group: Group) -> TrainResult:
        if group.leads:
            _announce(loaded.config)
        return train(
            loaded.config,
            origins=loaded.origins,
            sinks=sinks,
            force=force,
            command_line=_command_line(),
            group=group,
        )

    _carry_out(start, hosts, json)


def _announce(cfg: Config) -> None:
    """The memory of a run with a buffer, before it is allocated."""
    if cfg.algo.name == "dqn" and not derive.problems(cfg) and facts_known(cfg.env):
        from hmx.runs.device_memory import memory_problem

        if problem := memory_problem(cfg):
            raise problem
        memory = q_memory(cfg)
        parts = {part.key: part for part in memory.parts}
        stored = parts["replay_bytes"].bytes + parts["replay_states_bytes"].bytes
        say("memory", f"{tables.data_size(memory.total)}, {tables.data_size(stored)} of it for the replay buffer")


Changes = Mapping[str, str | None]  # dotted key -> text; None where the option was not given


def go_on(run_name: Path, hosts: Hosts, *, changes: Changes, sets: Iterable[str], json: bool) -> None:
    """Resumes, tells, and ends likewise."""
    from hmx.jobs.resume import resume

    wanted = _together(changes, sets)

    def start(sinks: Sequence[Sink], group: Group) -> TrainResult:
        return resume(run_name, changes=wanted, sinks=sinks, command_line=_command_line(), group=group)

    _carry_out(start, hosts, json)


def dry_resume(run_name: Path, *, changes: Changes, sets: Iterable[str], json: bool) -> None:
    """Says what a resumption would be."""
    from hmx.jobs.resume import plan

    planned = plan(run_name, changes=_together(changes, sets))
    if json:
        print_json(planned.to_json())
        return
    Console(highlight=False).print(run_tables.resumption(planned))
    for warning in planned.warnings:
        say("warning", warning)


def _together(changes: Changes, sets: Iterable[str]) -> dict[str, str]:
    """The changes of all options; one of its own wins over --set."""
    wanted = {}
    for text in sets:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            given = quoted(text) or '""'
            raise HmxError(f"--set {given}: must read section.key=value", "--set run.total_steps=1000000")
        wanted[key.strip()] = value
    return wanted | {key: value for key, value in changes.items() if value is not None}


def dry(loaded: Loaded, *, force: bool, json: bool) -> None:
    """Says what would be done."""
    from hmx.jobs.train import plan

    planned = plan(loaded.config, origins=loaded.origins)
    if json:
        print_json(planned.to_json())
        return
    Console(highlight=False).print(tables.plan(planned))
    for warning in planned.warnings:
        say("warning", warning)
    if planned.exists and not force:
        say(
            "warning",
            f"{planned.run} is there already: train would refuse",
            f"hmx resume {planned.run.name}, or --force",
        )


def _carry_out(start: Callable[[Sequence[Sink], Group], TrainResult], hosts: Hosts, json: bool) -> None:
    eyes = Console(stderr=True, highlight=False)
    with joined(hosts) as group:
        # A sink for eyes shows warnings as they come; without one they are told at the end.
        stream = JsonSink() if json else None
        sinks: list[Sink] = [*([ConsoleSink(eyes)] if eyes.is_terminal else []), *([stream] if stream else [])]
        result = start(sinks if group.leads else [], group)
        if group.leads:
            if not eyes.is_terminal:
                for warning in result.warnings:
                    say("warning", warning)
            if stream is not None:
                stream.emit("result", result.to_json())
            _tell(result, Console(stderr=json, highlight=False))
    if result.signum is not None:
        raise typer.Exit(128 + result.signum)


def _tell(result: TrainResult, console: Console) -> None:
    if result.state == "interrupted":
        say("stopped", f"after update {result.updates:,} of {result.total_updates:,}; the checkpoint is complete", "")
        say("go on", result.resume_command)
        return
    console.print(tables.result(result))


def _command_line() -> list[str]:
    return ["hmx", *sys.argv[1:]]
