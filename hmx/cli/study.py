"""Search for good options with many runs, by any number of workers on any number of hosts."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli import completion
from hmx.cli.boundary import print_json, say, write_report
from hmx.cli.options import (
    Execution,
    Json,
    Preset,
    Sets,
    Start,
    Typed,
    argument,
    ask,
    flagged,
    switch,
    with_options,
)
from hmx.cli.output import Outputs, ReportOutputs, write_outputs
from hmx.config.option import CONFIG_PANEL, OUTPUT_PANEL
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted
from hmx.study.cluster import ClusterRequest
from hmx.study.request import SEARCH_PANEL, AddRequest, SearchRequest

if TYPE_CHECKING:
    from hmx.registry.load import Loaded
    from hmx.runs.sinks import Sink
    from hmx.study.cluster import ClusterFile
    from hmx.study.worker import WorkResult, WorkStep


StudyArgument = Annotated[
    Path, argument("STUDY", "A study: its name below studies/, or the path of its folder.", completion.study_names)
]
Space = Annotated[
    list[str] | None,
    ask(
        "--space",
        "KEY=VALUES",
        "Option to vary (repeatable): a range KEY=LOW..HIGH, with :log for a logarithmic one, or choices KEY=A|B|C.",
        SEARCH_PANEL,
        autocompletion=completion.spaces,
    ),
]


@with_options([field for field in flagged() if field.key != "run.name"])
def new(
    *,  # in the order of the help: what to vary first
    study: Annotated[Path, argument("STUDY", "Name below studies/, or path of the folder.", completion.nothing)],
    space: Space = None,
    request: SearchRequest,
    preset: Preset = None,
    config: Annotated[
        list[Path] | None,
        ask("--config", "FILE", "Start from a configuration file; several are compared as a choice.", CONFIG_PANEL),
    ] = None,
    sets: Sets = None,
    typed: Typed,
    execution: Execution,
    outputs: Outputs,
) -> None:
    """Make a study: what to vary, what to optimise, and how to search.

    Each trial is an ordinary run below STUDY/trials. By default, values are spread evenly over the space, one third of
    the trials continues to three times as many steps (successive halving), and the best three run again on fresh seeds.
    hmx study work trains.

    Example: hmx study new lr --preset control --space algo.learning_rate=1e-4..1e-2:log

    Example: hmx study new seeds --preset control --seeds 5 --space 'algo.gamma=0.9|0.99'
    """
    from hmx.study import summaries
    from hmx.study.create import new_study, plan_study, study_place
    from hmx.study.plan import measure_speed, plan_of

    folder = study_place(study)
    configs, speed = _configs(typed, sets, config or [], preset), None
    if execution.dry_run:
        from hmx.console.progress import status

        made = plan_study(folder, configs, space or (), request)
        with status("measuring the speed of training", execution.quiet):
            speed = measure_speed(made)
    else:
        made = new_study(folder, configs, space or (), request)
    found = plan_of(made, speed)
    write_outputs({"trials": made.settings.trials, **found.to_json()}, summaries.plan(found), outputs)
    if not execution.dry_run and not outputs.json:
        say("wrote", f"{made.folder}: {counted(made.settings.trials, 'trial')}")
        say("train with", f"hmx study work {shlex.quote(str(study))}")


def _configs(typed: Typed, sets: list[str] | None, files: Sequence[Path], preset: str | None) -> dict[str, Loaded]:
    """Load what trials start from: one configuration, or several files by their names."""
    from hmx.study.create import BASE

    if len(files) < 2:
        file = files[0] if files else None
        return {BASE: Start(preset, file, sets).load(typed)}
    names = [file.name.removesuffix(".toml") for file in files]
    if len(set(names)) < len(names):
        raise HmxError(f"two configurations have the same name: {', '.join(names)}", "rename one of the files")
    return {name: Start(preset, file, sets).load(typed) for name, file in zip(names, files, strict=True)}


def work(
    request: ClusterRequest,
    study: StudyArgument,
    other_versions: Annotated[
        bool,
        switch("--other-versions", "Work although the study was made with other package versions.", SEARCH_PANEL),
    ] = False,
    json: Json = False,
    *,
    execution: Execution,
) -> None:
    """Train the trials of a study until nothing is left to do.

    Start as many workers as you like, on any host that shares the folder; one per core is a good number. Kill any of
    them: another one resumes its trial from the last checkpoint. Ctrl-C saves a checkpoint and stops. Exits with code 4
    if nothing is left to do and the study has failed: it has no value to choose by.

    With --slurm or --kubernetes it writes a file that starts workers on a cluster, and trains nothing itself.

    Example: hmx study work lr

    Example: hmx study work lr --slurm 40 --time 2h --submit
    """
    from hmx.study.cluster import cluster_file, write
    from hmx.study.create import find_study

    folder = find_study(study)
    quiet = execution.quiet
    file = cluster_file(folder, request, other_versions)
    if file is not None:
        _show_file(file if execution.dry_run else write(file, request.submit), request.submit, execution.dry_run, json)
        return
    if execution.dry_run:
        raise HmxError("--dry-run requires --slurm or --kubernetes", "hmx study status STUDY shows what is left to do")
    if not quiet:
        say("starting", f"a worker of {folder}")
    from rich.console import Console

    from hmx.console.panel import ConsoleSink
    from hmx.study.worker import work as job  # imports JAX, which takes seconds

    console = Console(stderr=True, highlight=False)

    def sinks() -> Sequence[Sink]:
        return [] if quiet or not console.is_terminal else [ConsoleSink(console)]

    tell = partial(_tell, json, quiet)
    done = job(folder, tell=tell, sinks=sinks, other_versions=other_versions, command_line=["hmx", *sys.argv[1:]])
    if json:
        print_json({"kind": "result", **done.to_json()})
    _end(folder, done, quiet)


def _end(folder: Path, done: WorkResult, quiet: bool) -> None:
    """Say how the work has ended; exit with 128 and the signal, or with 4 if the study has failed."""
    if done.signum is not None:
        say("stopped", f"after {counted(done.trained, 'result')}; hmx study work {shlex.quote(str(folder))} continues")
        raise typer.Exit(128 + done.signum)
    now = done.standing
    if now.state == "failed":
        raise HmxError(
            f"{folder} has failed: {now.reason}", f"{now.next.text}: {now.next.command}", ExitCode.CHECK_FAILED
        )
    if not quiet:
        say(now.state, f"{folder}: {now.reason}; this worker wrote {counted(done.trained, 'result')}")
        say("next", f"{now.next.text}: {now.next.command}")


def _tell(json: bool, quiet: bool, step: WorkStep) -> None:
    """Say what a worker has done."""
    from hmx.records.plain import plain_object
    from hmx.study.summaries import step_line

    if json:
        print_json(plain_object(step))
    if not quiet:
        say(step.kind, step_line(step))


def _show_file(file: ClusterFile, submitted: bool, dry_run: bool, json: bool) -> None:
    """Show a file that starts workers on a cluster, or say where it is and how to submit it."""
    if json:
        print_json(file.to_json())
    elif dry_run:
        sys.stdout.write(file.text)
    else:
        say("wrote", str(file.file))
        say("submitted" if submitted else "submit with", file.answer or shlex.join(file.command))


def status(study: StudyArgument, outputs: Outputs) -> None:
    """Show the state of all trials, what is left, what to do next, and the trials that lead.

    Example: hmx study status lr
    """
    from hmx.study import summaries
    from hmx.study.create import find_study
    from hmx.study.status import study_status

    found = study_status(find_study(study))
    write_outputs(found.to_json(), summaries.status(found), outputs)


def report(study: StudyArgument, outputs: ReportOutputs) -> None:
    """Report which configuration is best, how sure that is, which options matter, and what to do next.

    Reports the best configurations in the search and on fresh seeds, the importance of each option with its
    uncertainty, and all results. Changes nothing.

    Example: hmx study report lr

    Example: hmx study report lr --html lr.html --csv trials.csv
    """
    from hmx.study.create import find_study
    from hmx.study.report.document import document
    from hmx.study.report.job import study_report
    from hmx.study.report.numbers import table

    findings = study_report(find_study(study))
    write_outputs(findings, document(findings), outputs, table(findings), findings.warnings)


def best(
    study: StudyArgument,
    config: Annotated[
        Path | None, ask("--config", "FILE", "Write its configuration, for hmx train --config.", OUTPUT_PANEL)
    ] = None,
    force: Annotated[bool, switch("--force", "Replace another configuration.", OUTPUT_PANEL)] = False,
    *,
    outputs: Outputs,
) -> None:
    """Show the best trial of a finished study, and write its configuration.

    The best is that with the best objective on fresh seeds. A study without fresh seeds has the first of its search.

    Example: hmx study best lr --config best.toml
    """
    from hmx.config.codec import to_toml
    from hmx.study import summaries
    from hmx.study.best import best_trial
    from hmx.study.create import find_study

    found = best_trial(find_study(study))
    if config is not None:
        text = to_toml(found.config)
        if config.is_file() and not force and config.read_bytes() != text.encode():
            hint = "choose another name, or replace it with --force"
            raise HmxError(f"{quoted(str(config))} is another configuration", hint)
        write_report(config, text)
    write_outputs(found.to_json(), summaries.best(found), outputs)
    if config is not None:
        say("wrote", str(config))
        say("train with", f"hmx train --config {shlex.quote(str(config))}")
    elif not outputs.json:
        say("next", f"{found.standing.next.text}: {found.standing.next.command}")


def add(request: AddRequest, study: StudyArgument, space: Space = None, *, outputs: Outputs) -> None:
    """Extend a study by further trials, by options to vary, or by fresh seeds for its best trials.

    Running workers notice it; start one if all have ended.

    Example: hmx study add lr --trials 40

    Example: hmx study add lr --trials 20 --space ppo.ent_coef=0..0.05

    Example: hmx study add lr --confirm 10
    """
    from hmx.study import summaries
    from hmx.study.create import add_to_study, find_study
    from hmx.study.plan import plan_of

    extended = add_to_study(find_study(study), space or (), request)
    found = plan_of(extended)
    write_outputs({"trials": extended.settings.trials, **found.to_json()}, summaries.plan(found), outputs)
    if not outputs.json:
        say("extended", f"{extended.folder} to {counted(extended.settings.trials, 'trial')}")
        say("train with", f"hmx study work {shlex.quote(str(study))}")


def verify(study: StudyArgument, outputs: Outputs) -> None:
    """Make every decision of a study again, and compute every result again.

    The sampler must propose the same values, and the metrics must give the same results. Changes nothing. Exits with
    code 3 if anything differs.

    Example: hmx study verify lr
    """
    from hmx.study import summaries
    from hmx.study.create import find_study
    from hmx.study.verify import verify_study

    found = verify_study(find_study(study))
    write_outputs(found.to_json(), summaries.verification(found), outputs)
    if found.differences:
        raise typer.Exit(int(ExitCode.ARTEFACT))


COMMANDS = (new, work, status, report, best, add, verify)
