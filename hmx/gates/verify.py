"""`hmx gate verify`: compute every verdict of a gate again from its runs."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from hmx.errors import HmxError
from hmx.gates.records import Attempt, Ledger, decide, read_gate, verdict_of
from hmx.gates.worker import has_measured, recorded_pairs, same_states, values
from hmx.records import meta
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
        failed = attempt.verdict is not None and attempt.verdict.outcome == "failed"  # its runs may be damaged
        for paths in () if failed or attempt.program.command else map(attempt.run, _seeds(attempt)):
            runs += paths.exists()
            found += damages(paths, f"{where}, run {paths.name}") if paths.exists() else ()
        if attempt.number:
            found += [(where, text) for text in _differences(gate, attempt)]
    found = found or list(_deleted(gate))
    return GateVerification(
        gate=gate.folder, attempts=len(gate.attempts) - 1, runs=runs, differences=tuple(found),
        pairs=sum(len(one.verdict.pairs) for one in gate.attempts if one.verdict),
    )  # fmt: skip


def _seeds(attempt: Attempt) -> list[int]:
    """Return the first seeds of the runs of an attempt."""
    return sorted(int(name) for name in names_of(attempt.run(0).root) if _SEED.fullmatch(name))


def _deleted(gate: Ledger) -> Iterator[Difference]:
    """Yield the runs that no attempt has used: the last attempts may have been deleted, with their verdicts."""
    for attempt in gate.attempts:
        users = (one for one in gate.attempts[1:] if attempt.number in (one.baseline, one.number))
        for seed in sorted(set(_seeds(attempt)).difference(*map(gate.seeds_of, users)))[:1]:
            yield f"attempt {attempt.number}", f"no attempt has used its run {seed:04d}: was an attempt deleted?"


def _differences(gate: Ledger, attempt: Attempt) -> Iterator[str]:
    """Yield how an attempt differs from what earlier ones and its runs say."""
    before, verdict = dataclasses.replace(gate, attempts=gate.attempts[: attempt.number]), attempt.verdict
    if attempt.level != before.levels[-1]:
        yield "its level is not what the error budget allows"
    if attempt.first_seed < before.next_seed:
        yield "earlier verdicts have seen its seeds"
    if verdict is None:
        return
    if verdict.outcome == "same" and _seeds(attempt):
        yield "it has runs, but its verdict is same"
    again = tuple(recorded_pairs(gate, attempt, len(verdict.pairs)))
    if again != verdict.pairs:
        other = next((a.seed for a, b in zip(verdict.pairs, again, strict=False) if a != b), None)
        yield "its runs lack pairs of its verdict" if other is None else f"its runs give another pair for seed {other}"
        return
    decided = decide(gate, attempt, again)
    if decided is None and verdict.outcome not in ("undecided", "failed", "same", "same results"):
        yield f"its pairs do not decide, but its verdict is {verdict.outcome}"
    elif decided is not None and verdict.outcome != decided.outcome:
        yield f"its pairs say {decided.outcome}, but its verdict is {verdict.outcome}"
    elif (e_value := verdict_of(gate, again, verdict.outcome, "", verdict.lost).e_value) != verdict.e_value:
        yield f"its e-value is {e_value:.4g}, not {verdict.e_value:.4g}"
    next_seed = attempt.first_seed + len(again)
    ends = {"undecided": decided is None, "failed": bool(again) or has_measured(gate, attempt, next_seed)}
    if verdict.lost != ends.get(verdict.outcome, False):
        yield "it must not count a lost pair" if verdict.lost else "it must count the pair after its last one as lost"
    if verdict.outcome == "failed" and _is_complete(gate, attempt, next_seed):
        yield f"its run of seed {next_seed} has not failed"
    first = [gate.attempts[number].run(attempt.first_seed) for number in (attempt.baseline, attempt.number)]
    if verdict.outcome == "same results" and not same_states(*first):
        yield "the states of its first seeds differ from the baseline's"


def _is_complete(gate: Ledger, attempt: Attempt, seed: int) -> bool:
    """Return whether the run of a seed has ended and has a metric."""
    with contextlib.suppress(HmxError):
        known = meta.find(attempt.run(seed).meta)
        return bool(values(gate, attempt, seed)) and (known is None or known.state == "finished")
    return False
