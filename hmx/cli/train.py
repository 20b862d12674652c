"""`hmx train` and `hmx resume`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli.options import (
    ConfigFile,
    DryRun,
    Full,
    Json,
    Preset,
    Quiet,
    RunArgument,
    Sets,
    Typed,
    configure,
    flagged,
    switch,
    with_options,
)
from hmx.config.coerce import show
from hmx.config.fields import fields_of
from hmx.config.option import RUN_PANEL
from hmx.errors import HmxError
from hmx.runs.cluster.hosts import Hosts


@with_options(flagged())
def train(
    typed: Typed,
    hosts: Hosts,
    preset: Preset = None,
    config: ConfigFile = None,
    sets: Sets = None,
    force: Annotated[bool, switch("--force", "Replace a run of the same name.", RUN_PANEL)] = False,
    dry_run: DryRun = False,
    full: Full = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train an agent.

    Without options, trains on HackMatrix for about five minutes on a laptop and compares the trained agent with random
    play. Ctrl-C saves a checkpoint and stops; hmx resume continues from there.

    Example: hmx train --env corridor --steps 200k --seed 1
    """
    loaded = configure(_with_devices(typed, hosts), sets, config, preset)
    from hmx.cli.training import dry, run

    if dry_run:
        dry(loaded, force=force, json=json, full=full)
    else:
        run(loaded, hosts, force=force, json=json, quiet=quiet)


@with_options(flagged("run.total_steps", "run.on_nonfinite", "run.devices", "run.grad_report_every"), "the run's own")
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

    changes = _with_devices(typed, hosts)
    if dry_run:
        dry_resume(run, changes=changes, sets=sets or (), json=json)
    else:
        resume_run(run, hosts, changes=changes, sets=sets or (), json=json, quiet=quiet)


def _with_devices(typed: Typed, hosts: Hosts) -> Typed:
    """Return the typed configuration, with all devices for several processes; refuse contradictions."""
    if not hosts.distributed:
        for flag, field in fields_of(Hosts).items():
            if (value := getattr(hosts, field.name)) != field.default:
                raise HmxError(f"{flag} requires --distributed", f"--distributed {flag} {show(value)}")
        return typed
    devices = typed.get("run.devices")
    if devices not in (None, "all", "0"):
        message = f"--devices {devices} cannot be combined with --distributed, which uses all devices"
        raise HmxError(message, "leave --devices out")
    return {**typed, "run.devices": "all"}
