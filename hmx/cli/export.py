"""`hmx export`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hmx.cli.boundary import print_json, say
from hmx.cli.options import Json, RunArgument, ask, with_options
from hmx.config.option import OUTPUT_PANEL
from hmx.jobs.requests import PolicyRequest


@with_options()
def export(
    run: RunArgument,
    request: PolicyRequest,
    output: Annotated[
        Path | None,
        ask("--output", "FILE", "File to write (default: policy.FORMAT in the reports of the run).", OUTPUT_PANEL),
    ] = None,
    json: Json = False,
) -> None:
    """Export the policy of a run, to use it without hmx.

    StableHLO and ONNX files are functions of observations and action masks that return action probabilities and values;
    safetensors files hold the weights. docs/export.md shows how to load each.

    Example: hmx export hackmatrix-ppo-s0-001 --to onnx --output policy.onnx
    """
    from hmx.jobs.export_policy import export_policy
    from hmx.render.quantities import data_size

    done = export_policy(run, request, output)
    for warning in done.warnings:
        say("warning", warning)
    if json:
        print_json(done.to_json())
    else:
        say("wrote", f"{done.output} ({data_size(done.size)}), the policy after update {done.update:,}")
