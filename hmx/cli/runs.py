"""List, show, export, rename, remove, push or pull runs, or check one for damage."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hmx.cli.boundary import print_json, say
from hmx.cli.options import Json, Quiet, RunArgument, argument, ask, switch
from hmx.cli.output import Outputs, write_outputs
from hmx.config.option import OUTPUT_PANEL, opt
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted, nearest
from hmx.jobs.requests import ExportRequest, ListRequest, VerifyRequest
from hmx.records.paths import DEFAULT_ROOT

if TYPE_CHECKING:
    from hmx.records.verify import RunReplay


_TAILED = (
    "train/mean_episode_return", "train/mean_episode_length", "train/entropy", "train/approx_kl", "train/search_kl",
    "train/td_error", "train/steps_per_sec",
)  # fmt: skip

Root = Annotated[Path, typer.Option("--root", metavar="FOLDER", help="Folder of the runs.")]


def list_(request: ListRequest, root: Root = Path(DEFAULT_ROOT), *, outputs: Outputs) -> None:
    """List runs with state, steps, return and size.

    A crashed run is one that was training when its process ended; hmx resume continues it.

    Example: hmx runs list --state crashed

    Example: hmx runs list --match 'corridor-*' --sort return
    """
    from hmx.jobs.runs import list_runs
    from hmx.reports import summaries

    if root != Path(DEFAULT_ROOT) and not root.is_dir():
        raise HmxError(f"there is no folder {root}", "hmx runs list without --root lists runs/", ExitCode.ARTEFACT)
    found = list_runs(root, request)
    chosen = request.match or request.state
    write_outputs(found.to_json(), summaries.run_list(found, filtered=bool(chosen)), outputs)


def show(run: RunArgument, outputs: Outputs) -> None:
    """Show a run: progress, evaluation, newest values, and where its configuration differs from the defaults.

    hmx report also draws the curves, on a page.

    Example: hmx runs show hackmatrix-ppo-s0-001
    """
    from hmx.records.plain import plain_object
    from hmx.reports.report.document import document
    from hmx.reports.report.job import run_report
    from hmx.reports.report.request import ReportRequest

    findings = run_report(ReportRequest(runs=(str(run),), num_episodes=0))
    write_outputs({"schema": findings.schema, **plain_object(findings.runs[0])}, document(findings), outputs)


@dataclass(frozen=True, kw_only=True)
class TailOptions:
    """Which records to show."""

    lines: int = opt(10, "number of records", ge=0, le=100_000, panel="Options")
    follow: bool = opt(False, "also show new records until the run ends", panel=OUTPUT_PANEL)
    metric: tuple[str, ...] = opt((), "metric to show (repeatable)", metavar="METRIC", panel="Options")


def tail(
    options: TailOptions,
    run: RunArgument,
    json: Json = False,
) -> None:
    """Show the last records of a run, one line per update and seed.

    Example: hmx runs tail hackmatrix-ppo-s0-001 --follow

    Example: hmx runs tail hackmatrix-ppo-s0-001 --metric reward/kills
    """
    import sys

    from hmx.jobs.runs import tail as job
    from hmx.reports.summaries import record_head, record_line

    names = options.metric
    _check_metrics(names, {name for record in job(run, 100) for name in record} if names else ())
    headed = False
    for record in job(run, options.lines, options.follow):
        if json:
            print_json(record)
        else:
            names = names or tuple(name for name in _TAILED if name in record)
            sys.stdout.write(("" if headed else record_head(names)) + record_line(record, names))
        sys.stdout.flush()
        headed = True
    if not headed:
        say("warning", f"{run} has no records yet")


def _check_metrics(names: Iterable[str], reported: Collection[str]) -> None:
    """Refuse a metric that neither hmx knows nor the newest records have."""
    from hmx.records.metrics_table import METRICS

    for name in names:
        if name not in METRICS and name not in reported:
            near = nearest(name, [*reported, *METRICS])
            hint = f"did you mean --metric {near}?" if near else "docs/metrics.md lists all metrics"
            raise HmxError(f"the run reports no metric {quoted(name)}", hint)


def rename(
    run: RunArgument, name: Annotated[str, typer.Argument(metavar="NAME", help="New name.", show_default=False)]
) -> None:
    """Rename a run.

    Refuses while the run trains. Weights & Biases keeps the old name; later training appears there as a new run.

    Example: hmx runs rename hackmatrix-ppo-s0-001 baseline
    """
    from hmx.jobs.runs import rename as job

    say("renamed", f"{run} to {job(run, name)}")


def rm(
    runs: Annotated[list[Path], argument("RUN", "Runs: names below runs/, or paths of their folders.")],
    yes: Annotated[bool, switch("--yes", "Do not ask for confirmation.", OUTPUT_PANEL)] = False,
) -> None:
    """Remove runs: their folders with checkpoints, metrics and reports.

    Asks first. Removes nothing if one of the runs is training.

    Example: hmx runs rm hackmatrix-ppo-s0-001
    """
    import sys

    from hmx.jobs.runs import removable, remove
    from hmx.render.quantities import data_size, short

    rows = removable(runs)
    texts = [f"{row.path} ({row.state}, {short(row.env_steps)} steps, {data_size(row.size)})" for row in rows]
    if not yes:
        if not sys.stdin.isatty():
            raise HmxError("cannot ask whether to remove: no terminal to answer", "--yes removes without asking")
        for text in texts:
            say("remove", text)
        typer.confirm("Remove for good?", abort=True, err=True)
    for row, text in zip(rows, texts, strict=True):
        remove([row])
        say("removed", quoted(text, 400))


def export(
    run: RunArgument,
    request: ExportRequest,
    json: Json = False,
) -> None:
    """Export the metrics of a run as CSV or TensorBoard event files.

    A row is one update of one seed; a metric without data is empty. Metrics keep their names. With --names, those that
    Stable-Baselines3 or CleanRL has too have its names, for tools that read its files.

    Example: hmx runs export hackmatrix-ppo-s0-001 --to csv --output metrics.csv

    Example: hmx runs export hackmatrix-ppo-s0-001 --to tensorboard

    Example: hmx runs export hackmatrix-ppo-s0-001 --names sb3 --output progress.csv
    """
    from hmx.jobs.export_metrics import STDOUT, export_metrics

    if json and request.output == STDOUT:
        raise HmxError("cannot print --json and --output - at the same time", "name a file with --output")
    done = export_metrics(run, request)
    if json:
        print_json(done.to_json())
    elif request.output != STDOUT:
        say("wrote", f"{done.output}: {counted(done.records, 'record')}, {counted(len(done.columns), 'column')}")


def verify(run: RunArgument, request: VerifyRequest, quiet: Quiet = False, *, outputs: Outputs) -> None:
    """Check every file of a run for damage.

    Reads the whole run folder and changes nothing. Exits with code 3 if anything is damaged or missing.

    With --replay, it also trains parts of the run again, in a temporary folder, and compares metrics and states bit for
    bit. Exits with code 4 if one differs: numbers, checkpoints or the configuration have changed since. Exits with code
    5 if one cannot be replayed, for example since another kind of processor or other versions made it.

    Example: hmx runs verify hackmatrix-ppo-s0-001

    Example: hmx runs verify hackmatrix-ppo-s0-001 --replay 3
    """
    from hmx.console.progress import progress
    from hmx.jobs.runs import verify as job
    from hmx.records.paths import RunPaths
    from hmx.reports import summaries

    if request.seed is not None and not request.replay:
        raise HmxError("cannot use --seed without --replay", "--replay 3 trains three stretches again")
    with progress(quiet or not request.replay) as report:
        found = job(run, request, report)
    write_outputs(found.to_json(), summaries.verification(found), outputs)
    if found.damage:
        hint = "no checkpoint is intact"
        if found.intact:
            paths = RunPaths(found.run.parent, found.run.name)
            hint = f"hmx resume {paths.argument} continues from checkpoint {found.intact[-1]}, the newest intact one"
        say("error", f"{found.run}: {counted(len(found.damage), 'file')} damaged or missing", hint)
        raise typer.Exit(int(ExitCode.ARTEFACT))
    if found.replay is not None:
        _end_replay(found.run, found.replay)


def _end_replay(run: Path, replay: RunReplay) -> None:
    """Exit with an error if a stretch differs or cannot be replayed."""
    different, unknown = replay.with_outcome("different"), replay.with_outcome("not replayed")
    name, count = quoted(str(run), 400), len(replay.stretches)
    if different:
        first = different[0]
        message = f"{name}: {len(different)} of {count} replayed stretches differ, first in {quoted(first.quantity)}"
        hint = (
            f"metrics, checkpoints or run.toml changed after update {first.first - 1} was trained, or at its checkpoint"
        )
        raise HmxError(f"{message} of update {first.update}", hint, ExitCode.CHECK_FAILED)
    if unknown or not count:
        why = " ".join(unknown[0].reason.split()) if unknown else "it has no updates"
        message = f"cannot replay {len(unknown)} of {count} stretches of {name}: {quoted(why, 400)}"
        raise HmxError(message, "", ExitCode.NOT_CHECKED)


def sync(
    run: RunArgument,
    project: Annotated[
        str | None, typer.Option("--project", metavar="NAME", help="Project name (default: that of the run).")
    ] = None,
    offline: Annotated[
        bool, switch("--offline", "Write files for `wandb sync` below the run folder instead of sending.", OUTPUT_PANEL)
    ] = False,
    *,
    outputs: Outputs,
) -> None:
    """Send the metrics of a run to Weights & Biases.

    For a run that trained without Weights & Biases, or without a network. Records sent before are not sent again.

    Example: hmx runs sync hackmatrix-ppo-s0-001 --project my-project
    """
    from hmx.jobs.sync import sync as job
    from hmx.reports import summaries

    done = job(run, project=project, mode="offline" if offline else "online")
    write_outputs(done.to_json(), summaries.synchronisation(done), outputs)


RepoArgument = Annotated[str, typer.Argument(metavar="OWNER/NAME", help="A model of the Hugging Face Hub.")]


def push(
    run: RunArgument,
    repo: RepoArgument,
    to: Annotated[
        Path | None, ask("--to", "FOLDER", "Only write the files that would be sent to a new folder.", OUTPUT_PANEL)
    ] = None,
    license_id: Annotated[
        str, ask("--license", "ID", "Licence of the model in the Hub's spelling, such as mit; none by default.")
    ] = "",
    private: Annotated[bool, switch("--private", "Make a new model private.", OUTPUT_PANEL)] = False,
    *,
    outputs: Outputs,
) -> None:
    """Publish a run on the Hugging Face Hub, with a model card.

    Sends the configuration, the metrics, the newest intact checkpoint and the evaluation; not the command lines, paths
    of this machine, your code and other reports. Look at the files first: --to FOLDER.

    Example: hmx runs push hackmatrix-ppo-s0-001 me/hackmatrix --to published

    Example: hmx runs push hackmatrix-ppo-s0-001 me/hackmatrix --license mit
    """
    from hmx.jobs.hub import push as job
    from hmx.render.markdown import markdown
    from hmx.reports import summaries
    from hmx.reports.card import model_card

    done = job(run, repo, model_card(run, repo, markdown, license_id), to=to, private=private)
    write_outputs(done.to_json(), summaries.on_hub(done, f"look at {done.folder}/README.md" if to else ""), outputs)


def pull(
    repo: RepoArgument,
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="New folder of the run.", show_default="runs/NAME")
    ] = None,
    revision: Annotated[str | None, ask("--revision", "NAME", "Branch, tag or commit (default: main).")] = None,
    *,
    outputs: Outputs,
) -> None:
    """Fetch a run from the Hugging Face Hub.

    It comes from a stranger: opening it runs no code, and code that it names runs only with --trust-env.

    Example: hmx runs pull me/hackmatrix
    """
    from hmx.jobs.hub import pull as job
    from hmx.records.paths import RunPaths
    from hmx.reports import summaries

    done = job(repo, folder, revision)
    name = RunPaths(done.folder.parent, done.folder.name).argument
    write_outputs(done.to_json(), summaries.on_hub(done, f"hmx watch {name}"), outputs)


COMMANDS = (list_, show, tail, rename, rm, export, verify, sync, push, pull)
