"""`hmx export`."""

from __future__ import annotations

from hmx.cli.boundary import print_json, say
from hmx.cli.options import Json, RunArgument
from hmx.jobs.requests import PolicyRequest


def export(
    run: RunArgument,
    request: PolicyRequest,
    json: Json = False,
) -> None:
    """Export the policy of a run, to use it without hmx.

    StableHLO and ONNX files are functions of observations that return actions and values: normalisation is inside, the
    hidden state of a recurrent policy is an input and an output, and continuous actions are in the units of the
    environment. safetensors files hold the weights. contract.json beside the file describes all inputs and outputs.
    The file is compared with the policy on 1,000 random inputs, and written only if they agree. docs/export.md shows
    how to load each.

    Example: hmx export hackmatrix-ppo-s0-001 --to onnx --output policy.onnx
    """
    from hmx.errors import counted
    from hmx.jobs.export_policy import export_policy
    from hmx.render.quantities import data_size

    done = export_policy(run, request)
    for warning in done.warnings:
        say("warning", warning)
    if json:
        print_json(done.to_json())
    else:
        tested = done.agreement
        inputs = f"{tested.inputs:,} random inputs" + (f" in {tested.sequences} sequences" if tested.sequences else "")
        difference = f"largest difference {tested.largest_difference:.2g} ({tested.output})"
        say("agrees", f"with the policy on {inputs}; {difference}")
        if tested.other_actions:
            say("note", f"it chooses another action for {counted(tested.other_actions, 'input')}, between equal ones")
        say("wrote", f"{done.output} ({data_size(done.size)}), the policy after update {done.update:,}")
        say("wrote", f"{done.contract}, which describes its inputs and outputs")
