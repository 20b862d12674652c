"""Decide an attempt by its pairs."""

from __future__ import annotations

from collections.abc import Sequence

from hmx.errors import counted
from hmx.gates.records import Attempt, GateVerdict, Ledger, Outcome, SeedPair
from hmx.stats.evidence import e_value

WORSE = 20.0  # e-value at which a change is worse; that keeps nothing, so it costs no error budget


def decide(gate: Ledger, attempt: Attempt, pairs: Sequence[SeedPair], looked_at: int = 0) -> GateVerdict | None:
    """Return the verdict of an attempt by the pairs so far; None if more pairs are needed.

    It looks after each pair but the first `looked_at`, which did not decide; pairs after the decisive one do not count.
    """
    needed, most = 1 / attempt.level, gate.settings.max_seeds
    found = differences(gate, pairs)
    for count in range(looked_at + 1, len(pairs) + 1):
        seen, left = found[:count], most - count
        wins, ties = sum(one > 0 for one in seen), sum(one == 0 for one in seen)
        score = f"the candidate won {wins} of {counted(count, 'pair')}" + f", {ties} equal" * bool(ties)
        outcome: Outcome | None = (
            "keep" if e_value(seen) >= needed
            else "worse" if e_value([-one for one in seen]) >= WORSE
            else "undecided" if not left
            else "not shown" if e_value(seen, left) < needed
            else None
        )  # fmt: skip
        if outcome is not None:
            return verdict_of(gate, pairs[:count], outcome, score)
    return None


def verdict_of(
    gate: Ledger, pairs: Sequence[SeedPair], outcome: Outcome, reason: str, lost: bool = False
) -> GateVerdict:
    """Return a verdict with the evidence of its pairs, and of a run that was `lost`: a loss larger than all others.

    Otherwise an attempt could end whenever its next pair looks bad, and only pairs that look good would count.
    """
    seen, more = differences(gate, pairs), lost * gate.settings.seeds
    return GateVerdict(
        outcome=outcome, reason=reason, pairs=tuple(pairs), lost=lost, e_value=e_value(seen, -more),
        e_worse=e_value([-one for one in seen], more),
    )  # fmt: skip


def differences(gate: Ledger, pairs: Sequence[SeedPair]) -> list[float]:
    """Return by how much the candidate is better in each pair."""
    sign = 1 if gate.settings.objective.maximize else -1
    return [sign * (pair.candidate - pair.baseline) for pair in pairs]
