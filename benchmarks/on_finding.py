"""How often `run.on_finding = rollback` saves a run whose policy collapses, and how often it touches a healthy one.

    python benchmarks/on_finding.py [--only collapses|healthy] [--kind NAME ...] [--task NAME ...] [--seeds NUMBER]
                                    [--json]

30 collapses are planted in runs of 200 updates, 10 seeds of each kind, at an update between 40 and 60 % of the run
that depends on the seed. A run is saved if it ends with at least 90 % of the return of the same run without the fault,
as means over the last 20 updates. The faults of these kinds occur once: they are absent after a rollback, as a fault of
the hardware or of a data source. `--kind` also plants one that occurs each time that the run passes the update. 50
healthy runs of the tasks of `doctor_accuracy.py` train to their end; one is touched if a rule would have ended it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from doctor_accuracy import UPDATES, configure, printed  # first: it sets XLA_FLAGS before JAX is imported

from hmx.algos.ppo import update as ppo
from hmx.config import fields
from hmx.config.schema import Config
from hmx.jobs.rollback import rolled_back
from hmx.jobs.train import TrainResult, train
from hmx.records.curves import RETURN, Records
from hmx.records.paths import METRICS
from hmx.registry.load import Loaded, bind
from hmx.reports.doctor.job import HealthSink
from hmx.reports.doctor.monitor import Monitor
from hmx.runs.sinks import Record, RunInfo, Sink

LAST = 20  # updates whose mean return counts
SEEDS = 10  # of each kind
HEALTHY = {
    "pole": 8, "corridor": 8, "lake": 7, "slippery": 5, "pendulum": 5, "replay": 5, "recall": 5, "rendezvous": 5,
    "matrix": 2,
}  # fmt: skip
"""Task -> seeds, each a healthy run."""


class Fault(NamedTuple):
    """Scheduled hyperparameters that are wrong for some updates of a run."""

    name: str
    task: str
    updates: int  # how long
    once: bool  # whether it is absent after a rollback
    change: Callable[[dict[str, float]], dict[str, float]]


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("pole: learning rate 10, once", "pole", 10, True, lambda h: {**h, "learning_rate": 10.0}),
        Fault("pole: learning rate 1, once", "pole", 20, True, lambda h: {**h, "learning_rate": 1.0}),
        Fault("corridor: learning rate 10, once", "corridor", 10, True, lambda h: {**h, "learning_rate": 10.0}),
        Fault(
            "pole: learning rate x 1000, always",
            "pole",
            10,
            False,
            lambda h: {**h, "learning_rate": 1000 * h["learning_rate"]},
        ),
    )
}
SCHEDULED = ppo.scheduled


def planted(fault: Fault, begin: int) -> Any:
    """Plant a fault from an update on."""

    def scheduled(cfg: Config, update: int) -> dict[str, float]:
        hypers = SCHEDULED(cfg, update)
        present = begin <= update < begin + fault.updates and not (fault.once and "-rollback-" in cfg.run.name)
        return fault.change(hypers) if present else hypers

    return mock.patch.object(ppo, "scheduled", scheduled)


def final(result: TrainResult) -> float:
    """Return the mean return of the last updates."""
    found: list[float] = [record[RETURN] for _, record in Records(result.run / METRICS) if RETURN in record]
    return sum(found[-LAST:]) / LAST


def collapses(kinds: list[str], _: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Plant each fault in runs of several seeds, which differ between the kinds, beside runs without it."""
    usual = [name for name, fault in FAULTS.items() if fault.once]
    for number, kind in itertools.product(range(seeds or SEEDS), kinds or usual):
        fault, seed = FAULTS[kind], 1000 * list(FAULTS).index(kind) + number
        begin = random.Random(seed).randrange(2 * UPDATES // 5, 3 * UPDATES // 5)
        with tempfile.TemporaryDirectory() as folder:
            shared: dict[str, Any] = {"run.root": str(Path(folder).resolve()), "run.seed": seed}
            cfg = configure(fault.task, UPDATES, **shared, **{"run.checkpoint_every": 1})
            undisturbed = final(run(fields.replace(cfg, {"run.name": "undisturbed"})))
            with planted(fault, begin):
                warned = final(run(fields.replace(cfg, {"run.name": "warn"})))
                result = run(fields.replace(cfg, {"run.on_finding": "rollback", "run.name": "planted"}))
            end, least = final(result), undisturbed - 0.1 * abs(undisturbed)
            yield {"kind": kind, "seed": seed, "at": begin, "undisturbed": round(undisturbed, 2),
                   "warn": round(warned, 2), "rollback": round(end, 2),
                   "rollbacks": max(len(result.branches) - 1, 0), "state": result.state,
                   "saved": end >= least and result.state == "finished", "collapsed": warned < least}  # fmt: skip


def run(cfg: Config) -> TrainResult:
    """Train, and follow the rollbacks."""
    return rolled_back(train(bind(Loaded(cfg)), sinks=[HealthSink()]), lambda: [HealthSink()])


class Watch(Sink):
    """Note which agents a rule would end, each watched alone."""

    def start(self, info: RunInfo) -> None:
        """Make a monitor for each agent."""
        seed, count = info.config.run.seed, info.num_seeds
        self.monitors = {at: Monitor(info.config) for at in range(seed, seed + count)}
        self.ended: dict[int, str] = {}

    def record(self, record: Record) -> None:
        """Check the rules."""
        seed = int(record["seed"])
        list(self.monitors[seed].add(record))
        found = self.monitors[seed].ending()
        if found is not None:
            self.ended.setdefault(seed, f"{found[0].name} at update {record['update']} ({found[1].evidence})")


def healthy(_: list[str], tasks: list[str], seeds: int) -> Iterator[dict[str, Any]]:
    """Train every task to its end, its agents beside each other."""
    for task, usual in HEALTHY.items():
        if tasks and task not in tasks:
            continue
        watch = Watch()
        with tempfile.TemporaryDirectory() as folder:
            options: dict[str, Any] = {"run.root": str(Path(folder).resolve())}
            train(bind(Loaded(configure(task, UPDATES, seeds or usual, **options))), sinks=[watch])
        yield {"task": task, "runs": seeds or usual, "touched": len(watch.ended), "why": list(watch.ended.values())}


def main() -> None:
    """Print a line per case, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("collapses", "healthy"))
    parser.add_argument("--kind", nargs="*", default=[], choices=FAULTS)
    parser.add_argument("--task", nargs="*", default=[], choices=HEALTHY)
    parser.add_argument("--seeds", type=int, default=0, help="runs of each kind or task, instead of the usual number")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    parts = [part for part in (collapses, healthy) if args.only in (None, part.__name__)]
    rows = printed((part(args.kind, args.task, args.seeds) for part in parts), args.json)
    for kind in dict.fromkeys(row["kind"] for row in rows if "kind" in row):
        found = [row for row in rows if row.get("kind") == kind]
        saved, collapsed = (sum(row[key] for row in found) for key in ("saved", "collapsed"))
        print(f"{kind}: {saved} of {len(found)} saved, {collapsed} collapsed with warn", file=sys.stderr)
    runs = sum(row.get("runs", 0) for row in rows)
    if runs:
        print(f"healthy runs: {sum(row.get('touched', 0) for row in rows)} of {runs} touched", file=sys.stderr)


if __name__ == "__main__":
    main()
