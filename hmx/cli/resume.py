"""`hmx resume`."""

from __future__ import annotations

from hmx.cli.options import DryRun, Json, Quiet, RunArgument, Sets, Typed, flagged, with_devices, with_options
from hmx.runs.cluster.hosts import Hosts


@with_options(flagged(), "the run's own", changing=True)
def resume(
    run: RunArgument,
    typed: Typed,
    hosts: Hosts,
    sets: Sets = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Resume a run from its latest intact checkpoint.

    The result is bit for bit the same as without the interruption. Options apply from the checkpoint on and replace
    the run's own values; --set changes any key that the saved state does not depend on. Changes are recorded in the
    run's meta.json.

    Example: hmx resume corridor-ppo-s0-001 --steps 2M
    """
    from hmx.cli.training import dry_resume, resume_run

    changes = with_devices(typed, hosts)
    if dry_run:
        dry_resume(run, changes=changes, sets=sets or (), json=json)
    else:
        resume_run(run, hosts, changes=changes, sets=sets or (), json=json, quiet=quiet)
