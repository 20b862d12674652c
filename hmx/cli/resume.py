"""`hmx resume`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli import completion
from hmx.cli.options import RUN_PANEL, DryRun, Json, RunArgument, Sets, ask


def resume(
    run: RunArgument,
    steps: Annotated[
        str | None,
        ask("--steps", "N", "Environment steps per seed at which the run ends, in place of its own figure.", RUN_PANEL),
    ] = None,
    on_nonfinite: Annotated[
        str | None,
        ask(
            "--on-nonfinite",
            "MODE",
            "From here on, stop at an update whose numbers are not finite, or skip what it would teach.",
            RUN_PANEL,
            autocompletion=completion.nonfinite_modes,
        ),
    ] = None,
    devices: Annotated[
        str | None,
        ask(
            "--devices",
            "N|all",
            "Devices to spread the environments over from here on, whatever number they were on before.",
            RUN_PANEL,
        ),
    ] = None,
    grad_report_every: Annotated[
        str | None,
        ask("--grad-report-every", "N", "From here on, updates between two gradient reports; 0 for none.", RUN_PANEL),
    ] = None,
    sets: Sets = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Go on with a run from its last intact checkpoint.

    The result is bit for bit that of a run that never stopped. What the state does not depend on may be changed with
    --set; each change is noted in the run's meta.json.
    """
    from hmx.cli.training import dry_resume, go_on

    changes = {
        "run.total_steps": steps,
        "run.on_nonfinite": on_nonfinite,
        "run.devices": "0" if devices == "all" else devices,
        "run.grad_report_every": grad_report_every,
    }
    (dry_resume if dry_run else go_on)(run, changes=changes, sets=sets or (), json=json)
