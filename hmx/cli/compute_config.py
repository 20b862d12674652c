"""`hmx compute-config`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hmx.cli import completion
from hmx.cli.options import CONFIG_PANEL, OUTPUT_PANEL, ask, switch
from hmx.sizing.inputs import INPUT_FIELDS

SIZES_PANEL = "Sizes"
QUESTIONS_PANEL = "Questions"

Text = str | None


def size(name: str) -> Any:
    """An option that sets one input; its value is judged together with all others."""
    field = INPUT_FIELDS[name]
    words = f"{field.doc[:1].upper()}{field.doc[1:]} (default {field.default:,})."
    return ask(f"--{name.replace('_', '-')}", "N", words, SIZES_PANEL)


def _fields(incomplete: str) -> list[str]:
    return [f"{name}=" for name in INPUT_FIELDS if f"{name}=".startswith(incomplete)]


Run = Annotated[
    Path | None,
    typer.Argument(metavar="RUN", help="Start from the configuration of a run.", autocompletion=completion.run_names),
]
# The full name of this input does not fit into the help of a terminal of 80 columns.
_TARGET = INPUT_FIELDS["forward_pass_minibatch_target_size"]
Target = Annotated[
    Text,
    ask(
        "--forward-target",
        "N",
        f"Agents in one forward pass, in full --{_TARGET.name.replace('_', '-')} (default {_TARGET.default:,}).",
        SIZES_PANEL,
    ),
]
TargetInFull = Annotated[Text, typer.Option(f"--{_TARGET.name.replace('_', '-')}", hidden=True)]
Preset = Annotated[
    Text,
    ask(
        "--preset",
        "NAME",
        "Start from a preset of hmx train; metta has the published sizes.",
        CONFIG_PANEL,
        autocompletion=completion.preset_names,
    ),
]
Config = Annotated[
    Path | None,
    ask(
        "--config",
        "FILE",
        "Start from a configuration file of hmx train, or from one with a table `batch` of sizes.",
        CONFIG_PANEL,
    ),
]
Sps = Annotated[
    list[str] | None,
    ask("--sps", "N,...", "Agent steps per second: how long the run would take; may be repeated.", QUESTIONS_PANEL),
]
GpuMem = Annotated[
    Text, ask("--gpu-mem", "SIZE", "Memory of the device, as 80GB or 80GiB: whether the run fits.", QUESTIONS_PANEL)
]
Parameters = Annotated[
    Text,
    ask(
        "--parameters", "N", "Parameters of the network, where none is configured (default 1,000,000).", QUESTIONS_PANEL
    ),
]
Sweep = Annotated[
    Text, ask("--sweep", "INPUT=N,...", "Compare several values of one input.", QUESTIONS_PANEL, autocompletion=_fields)
]
Explain = Annotated[bool, switch("--explain", "Show how each value is computed.", OUTPUT_PANEL)]
Fix = Annotated[
    bool, switch("--fix", "Print the nearest valid configuration as TOML, for hmx train --config.", OUTPUT_PANEL)
]
Csv = Annotated[bool, switch("--csv", "Print comma-separated values.", OUTPUT_PANEL)]
Json = Annotated[bool, switch("--json", "Print one JSON object; with --sweep a list of them.", OUTPUT_PANEL)]


def compute_config(
    run: Run = None,
    num_agents: Annotated[Text, size("num_agents")] = None,
    num_workers: Annotated[Text, size("num_workers")] = None,
    batch_size: Annotated[Text, size("batch_size")] = None,
    minibatch_size: Annotated[Text, size("minibatch_size")] = None,
    bptt_horizon: Annotated[Text, size("bptt_horizon")] = None,
    update_epochs: Annotated[Text, size("update_epochs")] = None,
    forward_target: Target = None,
    forward_pass_minibatch_target_size: TargetInFull = None,
    async_factor: Annotated[Text, size("async_factor")] = None,
    total_timesteps: Annotated[Text, size("total_timesteps")] = None,
    world_size: Annotated[Text, size("world_size")] = None,
    obs_width: Annotated[Text, size("obs_width")] = None,
    obs_height: Annotated[Text, size("obs_height")] = None,
    preset: Preset = None,
    config: Config = None,
    sps: Sps = None,
    gpu_mem: GpuMem = None,
    parameters: Parameters = None,
    sweep: Sweep = None,
    explain: Explain = False,
    fix: Fix = False,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """Work out the sizes of a run before starting it.

    Prints what follows from agents, workers, batch, minibatch and horizon: environments, rows, updates, memory,
    schedules and time. What cannot run is refused, with values that can. Without RUN, --preset or --config it starts
    from the defaults of the Metta training equations.
    """
    given = {name: value for name, value in locals().items() if name in INPUT_FIELDS}
    from hmx.cli import computing

    computing.refuse_together(
        {"--sweep": sweep is not None, "--explain": explain, "--fix": fix, "--csv": csv, "--json": json}
    )
    options = computing.options(given, forward_target)
    asks = computing.asks(sps or (), gpu_mem, parameters)
    source = computing.source(preset, config, run)
    if fix:
        computing.print_fixed(source, options)
    elif sweep is not None:
        computing.print_sweep(source, sweep, options, asks, csv=csv, json=json)
    else:
        computing.print_one(source, options, asks, explain=explain, csv=csv, json=json)
