"""A process of a run that another one leads: it computes its part, and reads and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config import codec
from hmx.config.coerce import show
from hmx.config.schema import Config
from hmx.errors import HmxError
from hmx.jobs.grad_training import make_reports
from hmx.records.layout import RunPaths
from hmx.runs import devices
from hmx.runs.cluster.group import Group
from hmx.runs.loop import LoopResult
from hmx.runs.session import Session, follower, open_session, run_updates
from hmx.runs.signals import SignalGuard
from hmx.runs.sinks import Fanout


class Followed(NamedTuple):
    """A run, as a process knows it that took part."""

    session: Session
    paths: RunPaths
    done: LoopResult
    first: int


def agree(group: Group, asked: Mapping[str, Any]) -> None:
    """Holds that all processes were asked for the same, or says what they were asked for instead.

    Args:
        group: the processes.
        asked: plain values by name.

    Raises:
        HmxError: a process was asked for something else; the names are told.
    """
    if group.count == 1:
        return
    for index, text in enumerate(group.collect(json.dumps(asked, sort_keys=True).encode())):
        other = json.loads(text)
        unlike = [
            f"  {name}: {show(other.get(name))} there, {show(asked.get(name))} here"
            for name in sorted(asked.keys() | other.keys())
            if json.dumps(other.get(name)) != json.dumps(asked.get(name))
        ]
        if unlike:
            who = f"process {index} on {group.names[index]} was started with other options than process 0:"
            raise HmxError("\n".join([who, *unlike[:8]]), "start all processes with the same command but --process-id")


def lead(group: Group, cfg: Config, paths: RunPaths, first: int) -> None:
    """Tells the processes that follow which run it is, and from which update it goes."""
    group.hint = (
        f"hmx resume {paths.argument} --distributed goes on from the last checkpoint, with any number of processes "
        "whose devices divide env.num_envs; without --distributed, on this machine alone"
    )
    told = {
        "config": codec.to_dict(cfg),
        "root": str(paths.root),
        "name": paths.name,
        "first": first,
        "hint": group.hint,
    }
    group.share(json.dumps(told).encode())


def follow(group: Group) -> Followed:
    """Takes part in the run of process 0 until that has ended it.

    Raises:
        HmxError: the run failed there, or a process is gone.
        StopNow: a second signal.
    """
    told = json.loads(bytes(group.share()))
    cfg, paths, first = codec.from_dict(told["config"]), RunPaths(told["root"], told["name"]), int(told["first"])
    group.hint = told["hint"]
    session, fanout = open_session(cfg), Fanout([])
    saver = follower(devices.make_mesh(cfg))
    with SignalGuard() as guard:
        done = run_updates(session, paths, None, first, fanout, guard, saver, make_reports(session), group)
        group.wait_for_end()
    return Followed(session, paths, done, first)
