"""`hmx grad-report`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from hmx.cli import completion
from hmx.cli.options import MAX_SEED, OUTPUT_PANEL, Checkpoint, Json, ask, switch

_PROBE, _MEASURE = "Probe", "Measure"


PathArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RUN",
        help="A run, its folder of checkpoints, or a checkpoint.",
        show_default=False,
        autocompletion=completion.run_names,
    ),
]
AllCheckpoints = Annotated[bool, switch("--all-checkpoints", "Every checkpoint, and the trend.", "Options")]
Agent = Annotated[int, ask("--agent", "N", "Which of several agents trained side by side.")]
Groups = Annotated[int, ask("--groups", "N", "Start states.", _PROBE)]
PerGroup = Annotated[int, ask("--per-group", "N", "Episodes from each.", _PROBE)]
Keys = Annotated[
    str,
    ask(
        "--keys",
        "KIND",
        "Chance within a group: independent, common, or both, which tells what actions alone decide.",
        _PROBE,
    ),
]
MaxLength = Annotated[
    int,
    ask(
        "--max-length",
        "STEPS",
        "Longest episode, rounded up; the environment's own limit by default.",
        _PROBE,
        show_default=False,
    ),
]
FromBuffer = Annotated[
    Path | None,
    ask(
        "--from-buffer",
        "FILE",
        "Start episodes in the states of a saved buffer; with --replay, measure its transitions.",
        _PROBE,
    ),
]
Replay = Annotated[
    bool,
    switch(
        "--replay",
        "Measure stored transitions instead of episodes: those of the checkpoint's replay buffer, or of a saved one.",
        _PROBE,
    ),
]
Seed = Annotated[
    int | None, ask("--seed", "N", "Seed of the probe; the run's by default.", _PROBE, min=0, max=MAX_SEED)
]
Buckets = Annotated[int, ask("--buckets", "N", "Buckets of groups.", _MEASURE)]
By = Annotated[
    str | None,
    ask(
        "--by",
        "FIGURE",
        "What ranks the groups: reward_std, return, length, level, td or consequence; with --replay also priority and "
        "age. By default reward_std, with --replay td.",
        _MEASURE,
        show_default=False,
    ),
]
RankZeros = Annotated[
    bool, switch("--rank-zeros", "Rank groups without variance too, instead of a bucket of their own.", _MEASURE)
]
Crossfit = Annotated[bool, switch("--crossfit", "Also rank by one half of each group and measure the other.", _MEASURE)]
Advantage = Annotated[
    str,
    ask(
        "--advantage",
        "KIND",
        "Of the task component: trainer, or the return against the group's: group, group-std.",
        _MEASURE,
    ),
]
Reference = Annotated[
    int | None,
    ask(
        "--reference",
        "UPDATE",
        "Checkpoint that KL is measured from; by default the policy itself, where it is 0.",
        _MEASURE,
    ),
]
Kl = Annotated[str, ask("--kl", "KIND", "How KL is computed: analytic, or an estimate: k1, k2, k3, abs.", _MEASURE)]
KlCoef = Annotated[float, ask("--kl-coef", "X", "Weight of KL.", _MEASURE)]
Compare = Annotated[
    Path | None,
    ask("--compare", "OTHER", "Norms by those of another run or checkpoint, or of a saved JSON report.", _MEASURE),
]
HtmlFile = Annotated[Path | None, ask("--html", "FILE", "Write a page with drawings.", OUTPUT_PANEL)]
CsvFile = Annotated[Path | None, ask("--csv", "FILE", "Write a table of all figures.", OUTPUT_PANEL)]


def grad_report(
    path: PathArgument,
    checkpoint: Checkpoint = None,
    all_checkpoints: AllCheckpoints = False,
    agent: Agent = 0,
    groups: Groups = 64,
    per_group: PerGroup = 8,
    keys: Keys = "independent",
    max_length: MaxLength = 0,
    from_buffer: FromBuffer = None,
    replay: Replay = False,
    seed: Seed = None,
    buckets: Buckets = 4,
    by: By = None,
    rank_zeros: RankZeros = False,
    crossfit: Crossfit = False,
    advantage: Advantage = "trainer",
    reference: Reference = None,
    kl: Kl = "analytic",
    kl_coef: KlCoef = 0.0,
    compare: Compare = None,
    html: HtmlFile = None,
    csv: CsvFile = None,
    json: Json = False,
) -> None:
    """Show which episodes and which losses drive the gradient.

    Plays several episodes from each of several starts, ranks the starts by how much their returns vary, and takes the
    training gradient apart: by bucket, by loss component and by layer, with its noise and its conflicts. Only reads.
    """
    from rich.console import Console

    from hmx.analysis.spec import Spec
    from hmx.cli import grad_plot, grad_tables
    from hmx.cli.boundary import check_reports, print_json, say, write_report
    from hmx.cli.grad_csv import table
    from hmx.reports.gradients.job import grad_report as job

    spec = Spec(
        groups=groups, per_group=per_group, buckets=buckets, by=by or ("td" if replay else "reward_std"),
        advantage=advantage, keys=keys, replay=replay, max_length=max_length, rank_zeros=rank_zeros,
        crossfit=crossfit, kl=kl, kl_coef=kl_coef,
    )  # fmt: skip
    check_reports(html, csv)
    eyes = Console(stderr=True)
    with eyes.status("compiling and playing") if eyes.is_terminal else contextlib.nullcontext():
        result = job(
            path, spec=spec, checkpoint=checkpoint, all_checkpoints=all_checkpoints, reference=reference,
            from_buffer=from_buffer, agent=agent, seed=seed, compare=compare,
        )  # fmt: skip
    found = result.to_json()
    for warning in (*found["warnings"], *found["reports"][-1]["warnings"]):
        say("warning", warning)
    for file, text in ((html, grad_plot.page), (csv, table)):
        if file is not None:
            write_report(file, text(found))
    if json:
        print_json(found)
        return
    console = Console(highlight=False)
    console.print(grad_tables.render(found, console.options.ascii_only))
