"""`hmx evaluate`."""

from __future__ import annotations

import contextlib
from typing import Annotated

import typer

from hmx.cli.options import MAX_SEED, Checkpoint, Json, RunArgument


def _policies(incomplete: str) -> list[str]:
    return [name for name in ("random", "sampled", "greedy") if name.startswith(incomplete)]


def evaluate(
    run: RunArgument,
    episodes: Annotated[
        int | None,
        typer.Option("--episodes", "-n", metavar="N", help="Episodes per policy; the run's own number by default."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        typer.Option(
            "--policy",
            metavar="NAME",
            help="random, sampled or greedy; may be repeated (default sampled and greedy).",
            autocompletion=_policies,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, max=MAX_SEED, help="Seed of the evaluation; the run's by default."),
    ] = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
) -> None:
    """Measure an agent over many episodes.

    Plays with the best action and with sampled ones, and gives every figure with a 95 % confidence interval.
    """
    from rich.console import Console

    from hmx.cli import tables
    from hmx.cli.boundary import print_json, say
    from hmx.jobs.evaluate import evaluate as job

    eyes = Console(stderr=True)
    with eyes.status("compiling and playing") if eyes.is_terminal else contextlib.nullcontext():
        found = job(
            run, episodes=episodes, policies=policies or ("sampled", "greedy"), seed=seed, checkpoint=checkpoint
        )
    for warning in found.warnings:
        say("warning", warning)
    if json:
        print_json(found.to_json())
    else:
        Console(highlight=False).print(tables.evaluation(found))
