"""The batch inputs of a configuration of `hmx train`, and the way back."""

from __future__ import annotations

from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.registry import derive
from hmx.registry.workers import WorkerPlan
from hmx.reports.compute_config.derived import size
from hmx.reports.compute_config.inputs import BatchInputs, TrainerInputs


def inputs_of(cfg: Config, plan: WorkerPlan | None = None) -> TrainerInputs:
    """Return the inputs of a configuration of `hmx train`, per seed.

    The workers of a simulator step its environments by `plan`. Without one, all environments step in one process and in
    one forward pass. `total_timesteps` are agent steps. The size of an observation stays at its default, since the
    inputs describe grids only.
    """
    workers, groups = (plan.num_workers, plan.num_groups) if plan is not None else (1, 1)
    agents = cfg.env.num_envs * cfg.env.num_agents
    batch = agents * cfg.algo.num_steps
    steps = cfg.run.total_steps
    if cfg.run.budget == "brax":  # which rounds up in every epoch
        per_update = cfg.env.num_envs * cfg.algo.num_steps
        steps = derive.num_updates(cfg.run, per_update) * per_update
    return TrainerInputs(
        num_agents=cfg.env.num_agents,
        num_workers=workers,
        batch_size=batch,
        minibatch_size=batch // cfg.ppo.num_minibatches,
        bptt_horizon=derive.horizon(cfg.net, cfg.ppo, cfg.algo.num_steps),
        update_epochs=cfg.ppo.update_epochs,
        forward_pass_minibatch_target_size=agents // groups,
        async_factor=groups,
        total_timesteps=steps * cfg.env.num_agents,
        world_size=1,
    )


def config_of(inputs: BatchInputs, base: Config, workers: bool = False) -> Config:
    """Return a configuration of `hmx train` with the agents, sequences and minibatches of the inputs.

    `inputs` fit exactly and violate no rule (`is_exact`); `base` is everything that they do not
    determine. `workers` says whether worker processes step its environment.

    Returns:
        A configuration whose `inputs_of` has the same batch, minibatch, horizon, sequences and minibatches. It runs for
        at least one update, even if `total_timesteps` is less.
    """
    agents = size(inputs, "total_agents")
    steps = inputs.bptt_horizon * (inputs.batch_size // inputs.bptt_horizon // agents)
    envs = agents // inputs.num_agents
    divided = {"env.num_workers": inputs.num_workers, "env.envs_per_worker": 0, "env.async_factor": inputs.async_factor}
    return replace(
        base,
        {
            "run.total_steps": max(inputs.total_timesteps // inputs.num_agents, envs * steps),
            "env.num_envs": envs,
            "env.num_agents": inputs.num_agents,
            "algo.num_steps": steps,
            "ppo.bptt_horizon": inputs.bptt_horizon,
            "ppo.num_minibatches": inputs.batch_size // inputs.minibatch_size,
            "ppo.update_epochs": inputs.update_epochs,
            **(divided if workers else {}),
        },
    )
