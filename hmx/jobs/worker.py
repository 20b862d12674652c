"""Run the part of a worker in a distributed run: it computes, and reads and writes no files."""

from __future__ import annotations

import json
from collections.abc import Mapping

from hmx.config import codec
from hmx.config.coerce import show
from hmx.errors import HmxError
from hmx.jobs.eval_training import make_evaluations
from hmx.jobs.grad_training import make_reports
from hmx.records.paths import RunPaths
from hmx.runs import devices
from hmx.runs.cluster.group import Group
from hmx.runs.loop import LoopResult
from hmx.runs.session import Session, open_session
from hmx.runs.sinks import SinkGroup
from hmx.runs.training import WORKER, Training


def check_same_config(group: Group, asked: Mapping[str, object]) -> None:
    """Check that all processes were started with the same options (exit code 2)."""
    if group.count == 1:
        return
    for index, text in enumerate(group.gather(json.dumps(asked, sort_keys=True).encode())):
        other = json.loads(text)
        unlike = [
            f"  {name}: {show(other.get(name))} instead of {show(asked.get(name))}"
            for name in sorted(asked.keys() | other.keys())
            if json.dumps(other.get(name)) != json.dumps(asked.get(name))
        ]
        if unlike:
            who = f"process {index} on {group.names[index]} was started with other options than process 0:"
            hint = "start all processes with the same command, except for --process-id"
            raise HmxError("\n".join([who, *unlike[:8]]), hint)


def start_workers(group: Group, session: Session, paths: RunPaths, first: int) -> None:
    """Send the workers the configuration of the run and its first update."""
    group.hint = (
        f"resume from the last checkpoint: hmx resume {paths.argument} --distributed, with any number of processes "
        "whose devices divide env.num_envs; or without --distributed on this machine alone"
    )
    task = {
        "config": codec.to_dict(session.cfg),
        "root": str(paths.root),
        "name": paths.name,
        "first": first,
        "hint": group.hint,
    }
    group.broadcast(json.dumps(task).encode())


def run_worker(group: Group) -> tuple[Training, LoopResult, int]:
    """Compute the part of a worker until the coordinator ends the run; return its view and its first update.

    Raises:
        HmxError: the run failed, or a process is gone.
    """
    task = json.loads(bytes(group.broadcast()))
    cfg, paths, first = codec.from_dict(task["config"]), RunPaths(task["root"], task["name"]), int(task["first"])
    group.hint = task["hint"]
    mesh = devices.make_mesh(cfg.run.devices, cfg.env.num_envs)
    session = open_session(cfg)._replace(mesh=mesh)
    with Training(session, paths, WORKER, SinkGroup([]), group) as training:
        reports = (*make_evaluations(session, training.guard), *make_reports(session))
        done = training.run(None, first, reports)
        group.wait_for_end()
    return training, done, first
