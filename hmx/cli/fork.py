"""`hmx fork`."""

from __future__ import annotations

from hmx.cli.options import DryRun, Json, Quiet, RunArgument, Sets, Typed, flagged, with_devices, with_options
from hmx.config.fields import FIELDS
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
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Continue a run from a checkpoint as a new run, with changed settings.

    The new run starts from the exact state at the checkpoint: network, optimiser, statistics, environments, replay
    buffer and random numbers. Options and --set apply from there on, and the new run's meta.json records them. The run
    itself stays as it is; without changes, both are equal bit for bit. Settings that the shapes of the state depend on
    cannot change: hmx train --init-from starts a new run from the network only.

    Example: hmx fork corridor-ppo-s0-001 --at 40 --lr 1e-4

    Example: hmx fork corridor-ppo-s0-001 --name less-slip --set env.slip=0.05
    """
    from hmx.cli.training import dry_fork, fork_run

    changes = with_devices(typed, hosts)
    if dry_run:
        dry_fork(run, request, changes=changes, sets=sets or (), json=json)
    else:
        fork_run(run, request, hosts, changes=changes, sets=sets or (), json=json, quiet=quiet)
