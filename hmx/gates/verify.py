"""`hmx gate verify`: compute every verdict of a gate again from its runs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from hmx.gates.records import Attempt, Ledger, read_gate
from hmx.gates.verdicts import decide, verdict_of
from hmx.gates.worker import recorded_pairs, same_states
from hmx.records.plain import JsonResult, ShortRepr
from hmx.study.folder import names_of
from hmx.study.verify import Difference, damages

_SEED = re.compile("[0-9]{4,10}")


@dataclasses.dataclass(frozen=True, kw_only=True, repr=False)
class GateVerification(ShortRepr, JsonResult):
    """Whether a gate matches its record."""

    gate: Path
    attempts: int
    pairs: int  # computed again
    runs: int  # verified as by `hmx runs verify`
    differences: tuple[Difference, ...]


def verify_gate(gate: Ledger) -> GateVerification:
    """Compute levels, seeds, pairs and verdicts again; differences are the result, not an error."""
    gate, found, runs = read_gate(gate.folder), list[Difference](), 0
    for attempt in gate.attempts:
        where = f"attempt {attempt.number}"
        for seed in _seeds(attempt):
            paths = attempt.run(seed)
            runs += paths.exists()
            found += damages(paths, f"{where}, run {paths.name}") if paths.exists() else ()
        if attempt.number:
            found += [(where, text) for text in _differences(gate, attempt)]
    return GateVerification(
        gate=gate.folder, attempts=len(gate.attempts) - 1, runs=runs, differences=tuple(found),
        pairs=sum(len(one.verdict.pairs) for one in gate.attempts if one.verdict),
    )  # fmt: skip


def _seeds(attempt: Attempt) -> list[int]:
    """Return the seeds of the runs that an attempt trained with hmx; those of one that failed may be damaged."""
    root, verdict = attempt.run(0).root, attempt.verdict
    unchecked = bool(attempt.program.command) or (verdict is not None and verdict.outcome == "failed")
    return [] if unchecked else sorted(int(name) for name in names_of(root) if _SEED.fullmatch(name))


def _differences(gate: Ledger, attempt: Attempt) -> Iterator[str]:
    """Yield how an attempt differs from what earlier ones and its runs say."""
    before, verdict = gate.before(attempt), attempt.verdict
    if attempt.level != before.levels[-1]:
        yield "its level is not what the error budget allows"
    if attempt.first_seed < before.next_seed:
        yield "earlier verdicts have seen its seeds"
    if verdict is None or verdict.outcome == "same":
        return
    again = tuple(recorded_pairs(gate, attempt, len(verdict.pairs)))
    if again != verdict.pairs:
        other = next((a.seed for a, b in zip(verdict.pairs, again, strict=False) if a != b), None)
        yield "its runs lack pairs of its verdict" if other is None else f"its runs give another pair for seed {other}"
        return
    decided = decide(gate, attempt, again)
    if decided is None and verdict.outcome not in ("undecided", "failed", "same results"):
        yield f"its pairs do not decide, but its verdict is {verdict.outcome}"
    elif decided is not None and verdict.outcome not in (decided.outcome, "failed"):
        yield f"its pairs say {decided.outcome}, but its verdict is {verdict.outcome}"
    elif (e_value := verdict_of(gate, again, verdict.outcome, "").e_value) != verdict.e_value:
        yield f"its e-value is {e_value:.4g}, not {verdict.e_value:.4g}"
    first = [gate.attempts[number].run(attempt.first_seed) for number in (attempt.baseline, attempt.number)]
    if verdict.outcome == "same results" and not same_states(*first):
        yield "the states of its first seeds differ from the baseline's"
