"""`hmx resume`."""

from __future__ import annotations

import sys
from functools import partial

from hmx.cli.options import Execution, RunArgument, Sets, Typed, flagged, with_devices, with_options
from hmx.cli.output import Outputs
from hmx.config.problem import parse_sets
from hmx.config.textfile import quoted
from hmx.runs.cluster.hosts import Hosts


@with_options(flagged(), "the run's own", changing=True)
def resume(
    run: RunArgument,
    typed: Typed,
    hosts: Hosts,
    sets: Sets = None,
    *,
    execution: Execution,
    outputs: Outputs,
) -> None:
    """Resume a run from its latest intact checkpoint.

    The result is bit for bit the same as without the interruption. Options apply from the checkpoint on and replace
    the run's own values; --set changes any key that the saved state does not depend on. Changes are recorded in the
    run's meta.json.

    Example: hmx resume corridor-ppo-s0-001 --steps 2M
    """
    from hmx.cli.training import announce, execute, show_plan

    changes = {**parse_sets(sets or ()), **with_devices(typed, hosts)}
    if execution.dry_run:
        from hmx.jobs.resume import plan

        show_plan(plan(run, changes=changes), outputs)
        return
    announce(f"resuming {quoted(str(run), 100)}", hosts, execution.quiet)
    from hmx.jobs.resume import resume as job  # imports JAX, which takes seconds

    execute(partial(job, run, changes=changes, command_line=["hmx", *sys.argv[1:]]), hosts, outputs, execution.quiet)
