"""The entry of PPO in the registry; imports no JAX."""

from __future__ import annotations

from hmx.algos.ppo import checks
from hmx.algos.ppo.aspects import aspects
from hmx.config.schema import Config
from hmx.registry.algorithms import AlgorithmEntry, GradientSteps, PartName


def gradient_steps(cfg: Config) -> GradientSteps:
    """Return the size and the number of minibatches."""
    agent_steps = cfg.env.num_envs * cfg.algo.num_steps * cfg.env.num_agents
    minibatches = cfg.ppo.num_minibatches
    return GradientSteps(agent_steps // minibatches, cfg.ppo.update_epochs * minibatches)


def advice(cfg: Config, part: PartName) -> str:
    """Say what makes learning faster."""
    if part != "learning":
        return ""
    return (
        f"Use fewer epochs (ppo.update_epochs is {cfg.ppo.update_epochs}) or fewer, larger minibatches "
        f"(ppo.num_minibatches is {cfg.ppo.num_minibatches}); these change what an agent learns from a step."
    )


ENTRY = AlgorithmEntry(
    name="ppo",
    make="hmx.algos.ppo.update:make_ppo",
    gradient_steps=gradient_steps,
    policy_outputs="hmx.algos.policy_outputs:of_ppo",
    schedules=("learning_rate", "clip_eps", "ent_coef", "clip_vf_eps", "start_share", "ref_kl_coef"),
    advice=advice,
    check=checks.check,
    warn=checks.warn,
    aspects=aspects,
    simulators=True,
    reporter="hmx.algos.ppo.gradients:make_ppo_reporter",
)
