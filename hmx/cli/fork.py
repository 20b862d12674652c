"""`hmx fork`."""

from __future__ import annotations

import sys
from functools import partial

from hmx.cli.options import Execution, RunArgument, Sets, Typed, flagged, with_devices, with_options
from hmx.cli.output import Outputs
from hmx.config.fields import FIELDS
from hmx.config.problem import parse_sets
from hmx.config.textfile import quoted
from hmx.jobs.requests import ForkRequest
from hmx.runs.cluster.hosts import Hosts

_OPTIONS = [field for field in flagged() if field != FIELDS["run.name"]]  # the new run has a name of its own


@with_options(_OPTIONS, "the run's own", changing=True)
def fork(
    run: RunArgument,
    request: ForkRequest,
    typed: Typed,
    hosts: Hosts,
    sets: Sets = None,
    *,
    execution: Execution,
    outputs: Outputs,
) -> None:
    """Continue a run from a checkpoint as a new run, with changed settings.

    The new run starts from the exact state at the checkpoint: network, optimiser, statistics, environments, replay
    buffer and random numbers. Options and --set apply from there on, and the new run's meta.json records them. The run
    itself stays as it is; without changes, both are equal bit for bit. Settings that the shapes of the state depend on
    cannot change: hmx train --init-from starts a new run from the network only.

    Example: hmx fork corridor-ppo-s0-001 --at 400 --lr 1e-4

    Example: hmx fork corridor-ppo-s0-001 --name less-slip --set env.slip=0.05
    """
    from hmx.cli.training import announce, execute, show_plan

    changes = {**parse_sets(sets or ()), **with_devices(typed, hosts)}
    if execution.dry_run:
        from hmx.jobs.fork import plan

        planned = plan(run, request, changes=changes)
        show_plan(planned, outputs, planned.parent)
        return
    announce(f"forking {quoted(str(run), 100)}", hosts, execution.quiet)
    from hmx.jobs.fork import fork as job  # imports JAX, which takes seconds

    start = partial(job, run, request, changes=changes, command_line=["hmx", *sys.argv[1:]])
    execute(start, hosts, outputs, execution.quiet)
