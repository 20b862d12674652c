"""`hmx evaluate`."""

from __future__ import annotations

from typing import Annotated

import typer

from hmx.cli import completion
from hmx.cli.options import MAX_SEED, Checkpoint, Json, Quiet, RunArgument


def evaluate(
    run: RunArgument,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "-n", metavar="N", help="Episodes per policy (default: those of the run)."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="Policy to play: random, sampled or greedy; repeatable (default: sampled and greedy).",
            autocompletion=completion.offer(("random", "sampled", "greedy")),
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, max=MAX_SEED, help="Seed (default: the seed of the run)."),
    ] = None,
    checkpoint: Checkpoint = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Evaluate an agent over many episodes.

    Plays with the most probable action and with sampled actions. Every figure has a 95 % confidence interval.

    Example: hmx evaluate hackmatrix-ppo-s0-001 --episodes 2000 --policy sampled
    """
    from rich.console import Console

    from hmx.cli.boundary import print_json, say
    from hmx.cli.progress import progress
    from hmx.cli.render.terminal import print_document
    from hmx.jobs.evaluate import evaluate as job
    from hmx.reports.summaries import evaluation

    with progress(quiet) as report:
        found = job(
            run,
            episodes=episodes,
            policies=policies or ("sampled", "greedy"),
            seed=seed,
            checkpoint=checkpoint,
            progress=report,
        )
    for warning in found.warnings:
        say("warning", warning)
    if json:
        print_json(found.to_json())
    else:
        print_document(evaluation(found), Console(highlight=False))
