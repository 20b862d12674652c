"""Small evaluations while a run trains, as metrics of the update that each precedes.

Each plays a fixed number of whole episodes, and every one counts. Means of training episodes cannot show the first
games: until all of them have ended, only the short ones are known.
"""

from __future__ import annotations

from collections.abc import Callable

from hmx.algos.types import TrainState
from hmx.jobs.evaluate import make_player
from hmx.jobs.evaluation import RANDOM, PolicyStats
from hmx.records.curves import EVALUATED, EVALUATED_HIGH, EVALUATED_LOW, UNTRAINED
from hmx.runs.loop import Record, Reports
from hmx.runs.session import Session
from hmx.runs.signals import SignalGuard, StopWaiting

_EPISODES, _SEARCHED = 64, 16  # at most; a search costs about as much per step as training by search
_LENGTH = 1000  # steps that an episode may take in any case


def make_evaluations(
    session: Session, guard: SignalGuard, warn: Callable[[str], None] = lambda text: None
) -> tuple[Reports, ...]:
    """Build the evaluations of a run; nothing if its configuration has none.

    An evaluation of the policy that judges the run at its end takes at most `_LENGTH` steps per episode, or as many
    steps as the training between two evaluations. It has no value if an episode has not ended by then. All have the
    same keys, from the stream of evaluations, so nothing else in the run changes. A signal ends one without a value.
    """
    run, updates = session.cfg.run, session.sizes.num_updates
    if not (run.evaluations and run.eval_episodes) or session.env.spec.simulator is not None:
        return ()
    name, simulations = session.task.algorithm.evaluated_by, session.task.simulations
    episodes = min(run.eval_episodes, _SEARCHED if name == "search" else _EPISODES)
    play = make_player(session, episodes, simulations, session.cfg.reward, (RANDOM, name))
    longest = max(_LENGTH, session.sizes.total_env_steps // run.evaluations // episodes)
    untrained: list[PolicyStats] = []

    def stop_if_asked(phase: str, done: int, total: int, /, rate: float = 0.0) -> None:
        if guard.requested is not None:
            raise StopWaiting

    def play_untrained(state: TrainState) -> None:
        untrained[:] = untrained or play(state, RANDOM, run.seed, stop_if_asked, longest)

    def measure(state: TrainState, update: int) -> list[Record]:
        play_untrained(state)
        rows = play(state, name, run.seed, stop_if_asked, longest)
        if any(row.unfinished for row in (*untrained, *rows)):
            warn(f"evaluations have no value: an episode did not end within {longest:,} steps")
        return [_record(row, untrained[0]) for row in rows]

    before = {i * updates // run.evaluations + 1 for i in range(run.evaluations)}
    return (Reports(before, measure, "evaluating", "the agent", "an evaluation", play_untrained),)


def _record(row: PolicyStats, untrained: PolicyStats) -> Record:
    """Return the metrics of an agent; a policy with an episode that did not end has none."""
    found: Record = {"eval/episodes": row.episodes}
    if not untrained.unfinished:
        found[UNTRAINED] = untrained.return_mean
    if not row.unfinished:
        found |= {EVALUATED: row.return_mean, "eval/length": row.length_mean or 0.0}
        if row.return_interval is not None:
            found |= {EVALUATED_LOW: row.return_interval.low, EVALUATED_HIGH: row.return_interval.high}
    return found
