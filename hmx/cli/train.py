"""`hmx train`."""

from __future__ import annotations

from typing import Annotated

from hmx.cli import completion
from hmx.cli.hosts import Coordinator, Distributed, Hosts, JoinTimeout, NumProcesses, ProcessId
from hmx.cli.options import (
    CONFIG_PANEL,
    OUTPUT_PANEL,
    RUN_PANEL,
    ConfigFile,
    DryRun,
    Json,
    Preset,
    Sets,
    configure,
    doc,
    flag,
    switch,
)

Text = str | None


def train(
    name: Annotated[Text, flag("--name", "run.name", "NAME", panel=RUN_PANEL)] = None,
    steps: Annotated[Text, flag("--steps", "run.total_steps", "N", panel=RUN_PANEL)] = None,
    seed: Annotated[Text, flag("--seed", "run.seed", "N", panel=RUN_PANEL)] = None,
    seeds: Annotated[Text, flag("--seeds", "run.num_seeds", "N", panel=RUN_PANEL)] = None,
    eval_episodes: Annotated[Text, flag("--eval-episodes", "run.eval_episodes", "N", panel=RUN_PANEL)] = None,
    on_nonfinite: Annotated[
        Text,
        flag(
            "--on-nonfinite",
            "run.on_nonfinite",
            "MODE",
            panel=RUN_PANEL,
            autocompletion=completion.nonfinite_modes,
        ),
    ] = None,
    devices: Annotated[Text, flag("--devices", "run.devices", "N|all", panel=RUN_PANEL)] = None,
    grad_report_every: Annotated[
        Text, flag("--grad-report-every", "run.grad_report_every", "N", panel=RUN_PANEL)
    ] = None,
    force: Annotated[bool, switch("--force", "Replace a run of the same name.", RUN_PANEL)] = False,
    algo: Annotated[Text, flag("--algo", "algo.name", "NAME", autocompletion=completion.algorithms)] = None,
    save_buffer: Annotated[bool, switch("--save-buffer", doc("replay.save"), RUN_PANEL)] = False,
    env: Annotated[Text, flag("--env", "env.id", "ID", autocompletion=completion.environments)] = None,
    num_envs: Annotated[Text, flag("--num-envs", "env.num_envs", "N")] = None,
    learning_rate: Annotated[Text, flag("--lr", "algo.learning_rate", "X")] = None,
    auto_scale: Annotated[bool, switch("--auto-scale", doc("algo.auto_scale"), CONFIG_PANEL)] = False,
    preset: Preset = None,
    config: ConfigFile = None,
    sets: Sets = None,
    wandb: Annotated[
        Text, flag("--wandb", "run.wandb", "MODE", panel=OUTPUT_PANEL, autocompletion=completion.wandb_modes)
    ] = None,
    distributed: Distributed = False,
    coordinator: Coordinator = None,
    num_processes: NumProcesses = None,
    process_id: ProcessId = None,
    join_timeout: JoinTimeout = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Train an agent.

    Without options it trains on HackMatrix, about five minutes on a laptop, and ends with a table of the trained agent
    beside a random one. Ctrl-C stops after a checkpoint; hmx resume goes on from there.
    """
    hosts = Hosts(distributed, coordinator, num_processes, process_id, join_timeout)
    hosts.check(devices)
    loaded = configure(
        {
            "run.name": ("--name", name),
            "run.total_steps": ("--steps", steps),
            "run.seed": ("--seed", seed),
            "run.num_seeds": ("--seeds", seeds),
            "run.eval_episodes": ("--eval-episodes", eval_episodes),
            "run.on_nonfinite": ("--on-nonfinite", on_nonfinite),
            "run.devices": ("--distributed" if distributed else "--devices", hosts.devices(devices)),
            "algo.name": ("--algo", algo),
            "run.grad_report_every": ("--grad-report-every", grad_report_every),
            "replay.save": ("--save-buffer", save_buffer or None),
            "env.id": ("--env", env),
            "env.num_envs": ("--num-envs", num_envs),
            "algo.learning_rate": ("--lr", learning_rate),
            "algo.auto_scale": ("--auto-scale", auto_scale or None),
            "run.wandb": ("--wandb", wandb),
        },
        sets,
        config,
        preset,
    )
    from hmx.cli.training import dry, run

    if dry_run:
        dry(loaded, force=force, json=json)
    else:
        run(loaded, hosts, force=force, json=json)
