"""The entry of Q-learning in the registry; imports no JAX."""

from __future__ import annotations

from hmx.algos.dqn import checks
from hmx.algos.dqn.sizes import first_learning_update, replay_ratio
from hmx.config.schema import Config
from hmx.registry.algorithms import AlgorithmEntry, GradientSteps, PartName


def gradient_steps(cfg: Config) -> GradientSteps:
    """Return the size and the number of batches, which begin once the buffer holds enough."""
    first = first_learning_update(cfg.dqn.learn_starts, cfg.env.num_envs * cfg.algo.num_steps)
    return GradientSteps(cfg.dqn.batch_size * cfg.env.num_agents, cfg.dqn.gradient_steps, max(first, 0))


def advice(cfg: Config, part: PartName) -> str:
    """Say what makes learning faster."""
    if part != "learning":
        return ""
    return (
        f"Use fewer gradient steps per update (dqn.gradient_steps is {cfg.dqn.gradient_steps}) or smaller batches "
        f"(dqn.batch_size is {cfg.dqn.batch_size}); these change what an agent learns from a step."
    )


ENTRY = AlgorithmEntry(
    name="dqn",
    make="hmx.algos.dqn.update:make_dqn",
    gradient_steps=gradient_steps,
    policy_outputs="hmx.algos.policy_outputs:of_dqn",
    schedules=("learning_rate",),
    advice=advice,
    check=checks.check,
    warn=checks.warn,
    evaluated_by="greedy",
    linear=("epsilon", "is_beta"),
    replay_ratio=replay_ratio,
    reporter="hmx.algos.dqn.gradients:make_q_reporter",
)
