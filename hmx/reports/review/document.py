"""The review as a document: a verdict per game, then its decisions with their positions."""

from __future__ import annotations

from collections.abc import Iterator

from hmx.envs.pictures import picture
from hmx.errors import counted
from hmx.render.blocks import Aside, Block, Cell, Column, Document, Heading, Paragraph, Row, Table
from hmx.render.quantities import number
from hmx.reports.review.findings import GameReview, KeyDecision, ReviewedAction, ReviewFindings
from hmx.stats.intervals import Interval


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
    rows = tuple(
        Row(tuple(Cell(str(value), value) for value in _values(game, decision, action)))
        for game in found.games
        for decision in game.decisions
        for action in decision.actions
    )
    return Table(tuple(Column(name, "left" if name in ("game", "action") else "right") for name in names), rows)


def _values(game: GameReview, decision: KeyDecision, one: ReviewedAction) -> tuple[str | int | float, ...]:
    wins = "" if one.wins is None else one.wins
    interval = one.gain_interval
    gain = one.gain, interval.low, interval.high
    return game.name, decision.step, one.action, one.played, one.advised, one.returns, *gain, wins


def _game(game: GameReview) -> Iterator[Block]:
    yield Heading(f"{game.name}: {game.outcome} after {counted(game.steps, 'move')}, return {number(game.total)}")
    yield Paragraph(game.verdict, "warning" if game.blunders else "good")
    if game.decisions:
        yield _summary(game.decisions)
    for decision in game.decisions:
        yield Aside((picture(decision.state), *_decision(decision)))


def _summary(decisions: tuple[KeyDecision, ...]) -> Table:
    columns = (Column("step"), Column("played", "left"), Column("alternative", "left"), Column("agent", "left"),
               Column("gain"), Column(_level(decisions[0])), Column("wins"))  # fmt: skip
    rows = []
    for decision in decisions:
        played, best = (next(one for one in decision.actions if one.action == name)
                        for name in (decision.played, decision.best))  # fmt: skip
        wins = "" if played.wins is None or best.wins is None else f"{100 * played.wins:.0f} to {100 * best.wins:.0f} %"
        cells = (str(decision.step), decision.played, decision.best, decision.advised, f"{decision.gain:+.2f}",
                 _range(decision.gain_interval), wins)  # fmt: skip
        rows.append(Row(cells, tone="warning" if decision.blunder else "plain"))
    note = "gain: mean return of the alternative minus that of the action played; wins: of the one played, and of it."
    return Table(columns, tuple(rows), note=note)


def _decision(decision: KeyDecision) -> Iterator[Heading | Paragraph | Table]:
    kind = "blunder" if decision.blunder else "no clear difference"
    yield Heading(f"Step {decision.step}: {decision.played} ({kind})", 2)
    yield Paragraph(
        f"{decision.best} gains {_with_interval(decision.gain, decision.gain_interval)} in return. "
        f"The agent would play {decision.advised}.{_why_not_the_best(decision)}"
    )
    has_wins = any(action.wins is not None for action in decision.actions)
    columns = [Column("action", "left"), Column("return"), Column("gain"), Column(_level(decision))]
    if has_wins:
        columns += [Column("wins"), Column("95 %")]
    rows = []
    for action in decision.actions:
        cells = [action.action + (" (played)" if action.played else ""), number(action.returns)]
        cells += ["", ""] if action.played else [f"{action.gain:+.2f}", _range(action.gain_interval)]
        if action.wins is not None and action.wins_interval is not None:
            low, high = (100 * bound for bound in action.wins_interval)
            cells += [f"{100 * action.wins:.0f} %", f"{low:.0f} to {high:.0f}"]
        rows.append(Row(tuple(cells), tone="strong" if action.played else "plain"))
    yield Table(tuple(columns), tuple(rows))


def _why_not_the_best(decision: KeyDecision) -> str:
    best = next(action.action for action in decision.actions if not action.played)
    if best == decision.best:
        return ""
    return (
        f" {best} has a higher mean below: earlier rollouts chose {decision.best}, so that no choice biases its gain."
    )


def _level(decision: KeyDecision) -> str:
    return f"{100 * decision.level:.1f} %"


def _with_interval(gain: float, interval: Interval) -> str:
    return f"{gain:+.2f} ({_range(interval)})"


def _range(interval: Interval) -> str:
    return f"{interval.low:+.2f} to {interval.high:+.2f}"
