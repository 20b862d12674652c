"""The review as a document: a verdict per game, then its decisions with their positions."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from hmx.envs.pictures import picture
from hmx.errors import counted
from hmx.render.blocks import Aside, Block, Document, Heading, Paragraph, Table, exact_table
from hmx.render.numbers import numbers, right, shown, table_of, texts
from hmx.render.quantities import number
from hmx.reports.review.findings import GameReview, KeyDecision, ReviewedAction, ReviewFindings, range_text


def document(found: ReviewFindings) -> Document:
    """Build the review."""
    hidden = ", and what the player could not see was drawn again" if found.redrawn else ""
    blocks: list[Block] = [Paragraph(f"Warning: {warning}.", "warning") for warning in found.warnings]
    for game in found.games:
        blocks += _game(game)
    blocks.append(
        Paragraph(
            f"The agent of {found.agent} (checkpoint {found.checkpoint}) played on after each action, with the same "
            f"random numbers for all actions of a decision{hidden}. Returns are discounted as in its training. "
            "A blunder is a decision whose whole interval is above 0. In 95 % of games the intervals of all "
            "alternatives named above the tables are right, also where rewards are rare, unless no rollout nearby met "
            "a reward.",
            "faint",
        )
    )
    return Document(f"Review of {found.source} ({found.env})", tuple(blocks))


def table(found: ReviewFindings) -> Table:
    """Build the values of `--csv`: a row per action of every decision that is shown."""
    names = ("game", "step", "action", "played", "advised", "return", "gain", "gain_low", "gain_high", "wins")
    rows = (
        (game.name, decision.step, one.action, one.played, one.advised, one.returns, one.gain, *one.gain_interval,
         one.wins)
        for game in found.games for decision in game.decisions for one in decision.actions
    )  # fmt: skip
    return exact_table(names, rows)


def _game(game: GameReview) -> Iterator[Block]:
    yield Heading(f"{game.name}: {game.outcome} after {counted(game.steps, 'move')}, return {number(game.total)}")
    yield Paragraph(game.verdict, "warning" if game.blunders else "good")
    if game.decisions:
        yield _summary(game.decisions)
    for decision in game.decisions:
        yield Aside((picture(decision.state), *_decision(decision)))


def _summary(decisions: tuple[KeyDecision, ...]) -> Table:
    def wins(decision: KeyDecision) -> str:
        played, best = decision.action(decision.played).wins, decision.action(decision.best).wins
        return "" if played is None or best is None else f"{100 * played:.0f} to {100 * best:.0f} %"

    columns = [
        right("step", lambda one: str(one.step)), texts("played", attrgetter("played")),
        texts("alternative", attrgetter("best")), texts("agent", attrgetter("advised")),
        *shown(numbers(KeyDecision), "gain"), right(decisions[0].level_text, lambda one: range_text(one.gain_interval)),
        right("wins", wins),
    ]  # fmt: skip
    note = "gain: mean return of the alternative minus that of the action played; wins: of the one played, and of it."
    return table_of(decisions, columns, note=note, tone=lambda one: "warning" if one.blunder else "plain")


def _decision(decision: KeyDecision) -> Iterator[Heading | Paragraph | Table]:
    kind = "blunder" if decision.blunder else "no clear difference"
    yield Heading(f"Step {decision.step}: {decision.played} ({kind})", 2)
    yield Paragraph(
        f"{decision.best} gains {decision.gain:+.2f} ({range_text(decision.gain_interval)}) in return. "
        f"The agent would play {decision.advised}.{_why_not_the_highest(decision)}"
    )
    columns = [
        texts("action", lambda one: one.action + " (played)" * one.played), *shown(numbers(ReviewedAction), "returns"),
        *shown(numbers(ReviewedAction), "gain"),
        right(decision.level_text, lambda one: "" if one.played else range_text(one.gain_interval)),
    ]  # fmt: skip
    if any(one.wins is not None for one in decision.actions):
        columns += shown(numbers(ReviewedAction), "wins", "wins_interval")
    yield table_of(decision.actions, columns, tone=lambda one: "strong" if one.played else "plain")


def _why_not_the_highest(decision: KeyDecision) -> str:
    highest = max((one for one in decision.actions if not one.played), key=attrgetter("returns"))
    if highest.returns <= decision.action(decision.best).returns:
        return ""
    chosen = f"earlier rollouts chose {decision.best}, so that no choice biases the gain"
    return f" {highest.action} has a higher mean in the rollouts below: {chosen}."
