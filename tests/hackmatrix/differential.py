"""Random positions, every legal action: whatever the compiled game does must be among the model's outcomes.

    python tests/hackmatrix/differential.py --steps 100000 --seed 7

Each position is also played on, so that histories, schedules, later stages and entities the game itself made are met.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from compiled import RULES, load
from oracle import from_dict, legal, outcomes
from oracle_state import Position
from positions import at_the_exit, scenarios
from probe import BATCH, Judge, join, probe, take

SLOTS = 96


@dataclass
class Report:
    """What was compared."""

    steps: int = 0
    skipped: int = 0  # too many outcomes to list
    actions: Counter[int] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    mismatches: list[str] = field(default_factory=list)


class Walk:
    """A pool of games, each known both ways."""

    def __init__(self, seed: int, max_enemies: int = 6) -> None:
        self.rng = random.Random(seed)
        self.seed, self.max_enemies = seed, max_enemies
        self.report = Report()
        self.positions: list[Position] = []
        self.pool: Any = None
        self.rounds = 0

    def refill(self) -> None:
        """New positions in the place of those that ended."""
        fresh = scenarios(self.rng.randrange(2**32), SLOTS - len(self.positions), self.max_enemies)
        fresh[::8] = [at_the_exit(self.rng, last_stage=8) for _ in fresh[::8]]
        if fresh:
            state = load(fresh)
            self.pool = take(state, range(len(fresh))) if self.pool is None else join(self.pool, state)
            self.positions += [from_dict(s, undo_depth=RULES.undo_depth) for s in fresh]

    def branches(self) -> list[tuple[int, int]]:
        """(position, action) pairs, as many as fit: every legal action, now and then one that is not."""
        pairs: list[tuple[int, int]] = []
        for i, pos in enumerate(self.positions):
            actions = legal(pos)
            if self.rng.random() < 0.1:
                actions.append(self.rng.choice([a for a in range(28) if a not in actions] or [0]))
            if len(pairs) + len(actions) > BATCH:
                break
            pairs += [(i, a) for a in actions]
        return pairs

    def round(self) -> None:
        """One step of every branch; each position goes on along one of them."""
        self.refill()
        pairs = self.branches()
        self.rounds += 1
        seen = probe(take(self.pool, [i for i, _ in pairs]), [a for _, a in pairs], self.seed * 100_003 + self.rounds)
        judge = Judge(seen)
        going: dict[int, list[tuple[int, Position]]] = {}
        for k, (i, action) in enumerate(pairs):
            follow = self._judge(judge, k, self.positions[i], action)
            going.setdefault(i, []).extend([(k, follow)] if follow else [])
        # Games that last would crowd out new positions: some are dropped on the way.
        chosen = [self.rng.choice(options) for options in going.values() if options and self.rng.random() < 0.93]
        waiting = [i for i in range(len(self.positions)) if i > pairs[-1][0]]
        self.pool = join(take(self.pool, waiting), take(seen.after, [k for k, _ in chosen]))
        self.positions = [self.positions[i] for i in waiting] + [pos for _, pos in chosen]

    def _judge(self, judge: Judge, k: int, before: Position, action: int) -> Position | None:
        found = outcomes(before, action)
        if found is None:
            self.report.skipped += 1
            return None
        verdict = judge.verdict(k, found)
        self.report.steps += 1
        self.report.actions[action] += 1
        if verdict.problems:
            self.report.mismatches.append(f"action {action} from {before}\n    {verdict.problems}")
            return None
        assert verdict.outcome is not None
        self._note(before, verdict.outcome)
        return None if verdict.outcome.done else verdict.outcome.position

    def _note(self, before: Position, outcome: Any) -> None:
        """What kinds of situation were met."""
        pos = outcome.position
        stacked = len({e.cell for e in pos.enemies}) < len(pos.enemies)
        happened = {
            "death": outcome.counts["died"],
            "victory": outcome.counts["victory"],
            "new stage": outcome.new_stage,
            "invalid": not outcome.valid,
            "scheduled": outcome.scheduled,
            "siphon spawns": outcome.siphoned,
            "stacked enemies": stacked,
            "player on a block": pos.blocked(pos.cell),
            "step skipped": before.step_active and not pos.step_active,
            "full history": len(pos.history) == RULES.undo_depth,
        }
        self.report.notes.update(name for name, true in happened.items() if true)


def run(seed: int, steps: int, max_enemies: int = 6) -> Report:
    """Compares at least this many steps."""
    walk = Walk(seed, max_enemies)
    while walk.report.steps < steps and not walk.report.mismatches:
        walk.round()
    return walk.report


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-enemies", type=int, default=6)
    options = parser.parse_args()
    result = run(options.seed, options.steps, options.max_enemies)
    print(f"{result.steps} steps, {result.skipped} skipped, {dict(result.notes)}")
    print(f"actions {dict(sorted(result.actions.items()))}")
    print("\n".join(result.mismatches[:5]) or "no mismatch")
    raise SystemExit(bool(result.mismatches))
