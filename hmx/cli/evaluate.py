"""`hmx evaluate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import Quiet, Sets, argument, ask
from hmx.cli.output import Outputs, write_outputs
from hmx.config.option import MAX_SEED, checkpoint_option, opt, search_option
from hmx.config.problem import parse_sets


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """The amount of play, and the checkpoint."""

    episodes: int | None = opt(
        None, "episodes per policy (default: run.eval_episodes, or 1,000 if that is 0)", ge=1, short="-n", panel=""
    )
    seed: int | None = opt(None, "seed; that of the run by default", ge=0, le=MAX_SEED, panel="")
    checkpoint: int | None = checkpoint_option("")
    search: int | None = search_option("")


def evaluate(
    options: EvaluateOptions,
    run: Annotated[
        Path | None,
        argument("RUN", "A run: its name below runs/, or the path of its folder. Not needed for random."),
    ] = None,
    policies: Annotated[
        list[str] | None,
        ask(
            "--policy",
            "NAME",
            "Policy to play: random, sampled, greedy or search; repeatable "
            "(default: sampled and greedy; greedy and search with --search).",
            autocompletion=completion.offer(("random", "sampled", "greedy", "search")),
        ),
    ] = None,
    sets: Sets = None,
    quiet: Quiet = False,
    *,
    outputs: Outputs,
) -> None:
    """Evaluate an agent over many episodes.

    Plays with the most probable action and with sampled actions. With --search N it also looks ahead: it simulates N
    steps before each action. Figures have 95 % confidence intervals; those of returns that rest on fewer than 10 wins
    cover less. --set changes a setting for this evaluation only, such as a rule of the environment. Returns have the
    default reward weights of HackMatrix, whatever the run was trained with.

    Example: hmx evaluate hackmatrix-ppo-s0-001 --episodes 2000 --policy sampled

    Example: hmx evaluate hackmatrix-ppo-s0-001 --episodes 100 --search 32

    Example: hmx evaluate champion --episodes 200 --set env.rules=original
    """
    from hmx.cli.boundary import say
    from hmx.console.progress import progress
    from hmx.reports.summaries import evaluation

    changes = parse_sets(sets or ())
    with progress(quiet) as report:
        from hmx.jobs.evaluate import evaluate as job

        found = job(run, **vars(options), policies=policies, changes=changes, progress=report)
    for warning in found.warnings:
        say("warning", warning)
    write_outputs(found.to_json(), evaluation(found), outputs)
