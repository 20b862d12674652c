"""`hmx review`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli.options import Quiet, argument
from hmx.cli.output import ReportOutputs, write_outputs
from hmx.reports.review.request import ReviewRequest

SourceArgument = Annotated[
    Path, argument("GAME", "A game that hmx play has saved, or a run: its agent's games are played and reviewed.")
]


def review(source: SourceArgument, request: ReviewRequest, *, outputs: ReportOutputs, quiet: Quiet = False) -> None:
    """Review games: which decisions mattered, and what the alternatives were worth.

    Tries every action of every decision in rollouts with the same random numbers, in which an agent plays on. What the
    player could not see is drawn again, where the environment offers it. Fresh rollouts of the decisions that seem to
    matter give the gains and their intervals.

    Example: hmx review games/hackmatrix-s0-001.json --html review.html

    Example: hmx review champion --episodes 3
    """
    from hmx.console.progress import progress

    with progress(quiet) as report:
        from hmx.reports.review import document, job

        if source.suffix == ".json":
            from functools import partial

            from hmx.play import saved_games

            saved = saved_games.read(source)
            replay = partial(saved_games.replayed, saved, source.name)
            found = job.review_game(
                str(source), saved.rules, saved.undo_depth, replay, request=request, progress=report
            )
        else:
            found = job.review_run(source, request=request, progress=report)
    table = None if outputs.csv is None else document.table(found)
    write_outputs(found, document.document(found), outputs, table, found.warnings)
