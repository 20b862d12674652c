"""`hmx gate verify`: compute every verdict of a gate again from its runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import HmxError
from hmx.gates.records import Attempt, Ledger, SeedPair, read_gate
from hmx.gates.worker import decide, values, verdict_of
from hmx.records.plain import JsonResult, ShortRepr
from hmx.records.verify import Damage, verify
from hmx.study.verify import Difference


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class GateVerification(ShortRepr, JsonResult):
    """Whether a gate matches its record."""

    gate: Path
    attempts: int
    pairs: int  # computed again
    runs: int  # verified as by `hmx runs verify`
    differences: tuple[Difference, ...]


def verify_gate(gate: Ledger) -> GateVerification:
    """Compute levels, pairs and verdicts again; differences are the result, not an error."""
    gate = read_gate(gate.folder)
    found: list[Difference] = []
    levels, pairs, runs = iter(gate.levels), 0, 0
    for attempt in gate.attempts:
        where = f"attempt {attempt.number}"
        for run in sorted(attempt.run(0).root.glob("[0-9]*")) if not attempt.program.command else ():
            runs += 1
            found += [(f"{where}, run {run.name}/{one.path}", one.what) for one in _damage(attempt, run)]
        verdict = attempt.verdict
        if verdict is None:
            continue
        pairs += len(verdict.pairs)
        if not verdict.pairs:
            continue
        if attempt.level != next(levels):
            found.append((where, "its level is not what the error budget allows"))
        found += [(where, text) for text in _check_pairs(gate, attempt)]
    count = len(gate.attempts) - 1
    return GateVerification(gate=gate.folder, attempts=count, pairs=pairs, runs=runs, differences=tuple(found))


def recorded_pairs(gate: Ledger, attempt: Attempt) -> list[SeedPair]:
    """Return the pairs whose runs are complete, from the first seed on without a gap."""
    pairs: list[SeedPair] = []
    while len(pairs) < gate.settings.max_seeds:
        seed = attempt.first_seed + len(pairs)
        try:
            both = [values(gate, one, seed) for one in (gate.attempts[attempt.baseline], attempt)]
        except HmxError:
            break
        more = enumerate(zip(*both, strict=True))
        pairs += [SeedPair(seed=seed + i, baseline=before, candidate=after) for i, (before, after) in more]
    return pairs


def _check_pairs(gate: Ledger, attempt: Attempt) -> Iterator[str]:
    """Yield how a verdict differs from what its runs say."""
    verdict = attempt.verdict
    assert verdict is not None
    again = tuple(recorded_pairs(gate, attempt)[: len(verdict.pairs)])
    if again != verdict.pairs:
        other = next((a.seed for a, b in zip(verdict.pairs, again, strict=False) if a != b), None)
        yield "its runs lack pairs of its verdict" if other is None else f"its runs give another pair for seed {other}"
        return
    decided = decide(gate, attempt, again)
    if decided is None:  # it was abandoned, or failed after some pairs
        decided = verdict_of(gate, again, verdict.outcome, verdict.reason)
        if verdict.outcome not in ("undecided", "failed"):
            yield f"its pairs do not decide, but its verdict is {verdict.outcome}"
    if decided.outcome != verdict.outcome and verdict.outcome != "failed":
        yield f"its pairs say {decided.outcome}, but its verdict is {verdict.outcome}"
    elif decided.e_value != verdict.e_value:
        yield f"its e-value is {decided.e_value:.4g}, not {verdict.e_value:.4g}"


def _damage(attempt: Attempt, run: Path) -> tuple[Damage, ...]:
    paths = attempt.run(int(run.name))
    return verify(paths).damage if paths.exists() else ()
