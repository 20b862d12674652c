"""`hmx train`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli.options import Execution, Full, Start, Typed, flagged, switch, with_devices, with_options
from hmx.cli.output import Outputs
from hmx.config.option import RUN_PANEL
from hmx.runs.cluster.hosts import Hosts


@with_options(flagged())
def train(
    *,  # in the order of the help: what to train first
    start: Start,
    typed: Typed,
    hosts: Hosts,
    force: Annotated[bool, switch("--force", "Replace a run of the same name.", RUN_PANEL)] = False,
    execution: Execution,
    full: Full = False,
    outputs: Outputs,
) -> None:
    """Train an agent.

    Without options, trains on HackMatrix for about five minutes on a laptop and compares the trained agent with random
    play. Ctrl-C saves a checkpoint and stops; hmx resume continues from there.

    Example: hmx train --env corridor --steps 200k --seed 1
    """
    task = start.bound(with_devices(typed, hosts))
    from hmx.cli.training import dry, run

    if execution.dry_run:
        dry(task, force=force, outputs=outputs, full=full)
    else:
        run(task, hosts, force=force, outputs=outputs, quiet=execution.quiet)
