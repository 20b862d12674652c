"""The batch equations: from twelve inputs to every size, what is wrong with them, and what would be right."""

from __future__ import annotations

from hmx.config import derive
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.sizing.cautions import cautions, low_use, remedies
from hmx.sizing.derived import derive_batch, expected_coverage, mixed_rows, total_agents
from hmx.sizing.fit import exact_fit, is_exact, nearest_valid
from hmx.sizing.formulas import FORMULAS, Formula
from hmx.sizing.inputs import INPUT_FIELDS, LIMIT, BatchInputs, BatchProblem, InputField, read_inputs
from hmx.sizing.repairs import repairs, suggestions
from hmx.sizing.rules import violations

__all__ = [
    "FORMULAS", "INPUT_FIELDS", "LIMIT", "BatchInputs", "BatchProblem", "Formula", "InputField", "batch_notes",
    "batch_problems", "batch_warnings", "config_of", "derive_batch", "exact_fit", "expected_coverage", "inputs_of",
    "is_exact", "mixed_rows", "nearest_valid", "read_inputs", "suggestions",
]  # fmt: skip


def batch_problems(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> list[BatchProblem]:
    """Every rule that the inputs violate, in the order of a report.

    A single value that repairs the whole configuration repairs each problem, so all of them have the same `fixes`;
    there are none where two problems have no field in common, and `nearest_valid` knows what to change then.

    Args:
        inputs: whole numbers from 1.
        bootstrap_rows: whether the value of the step after a row is known too, as in this project's trainer, so that
            a row of one step can teach and is no error.
    """
    found = list(violations(inputs, bootstrap_rows=bootstrap_rows))
    nearest = repairs(inputs, bootstrap_rows=bootstrap_rows) if found else []
    pairs = ((r.field, value) for r in nearest for value in (r.below, r.above))
    fixes = tuple((field, value) for field, value in pairs if value is not None)
    return [BatchProblem(*finding, fixes) for finding in found]


def batch_warnings(inputs: BatchInputs, *, bootstrap_rows: bool = False) -> list[BatchProblem]:
    """What will run, but perhaps not as meant; `fixes` avoid it and violate no rule.

    An overshoot that takes a new batch and a new minibatch has no single fix: `exact_fit` gives both.

    Args:
        inputs: whole numbers from 1.
        bootstrap_rows: as for `batch_problems`.
    """
    found = cautions(inputs, bootstrap_rows=bootstrap_rows)
    return [BatchProblem(*f, remedies(inputs, f.code, bootstrap_rows=bootstrap_rows)) for f in found]


def batch_notes(inputs: BatchInputs) -> list[BatchProblem]:
    """Remarks of less weight than a warning: a forward pass far below its target."""
    found = low_use(inputs)
    return [BatchProblem(*found)] if found else []


def inputs_of(cfg: Config) -> BatchInputs:
    """A trainer configuration as batch inputs; all environments step in one process and one forward pass.

    Per seed. `total_timesteps` are agent steps. The size of an observation stays at its default, since the inputs know
    only grids.
    """
    agents = cfg.env.num_envs * cfg.env.num_agents
    batch = agents * cfg.algo.num_steps
    asked = cfg.run.total_steps
    if cfg.run.budget == "brax":  # the inputs round up once only
        asked = derive.num_updates(cfg) * cfg.env.num_envs * cfg.algo.num_steps
    return BatchInputs(
        num_agents=cfg.env.num_agents,
        num_workers=1,
        batch_size=batch,
        minibatch_size=batch // cfg.algo.num_minibatches,
        bptt_horizon=derive.horizon(cfg),
        update_epochs=cfg.algo.update_epochs,
        forward_pass_minibatch_target_size=agents,
        async_factor=1,
        total_timesteps=asked * cfg.env.num_agents,
        world_size=1,
    )


def config_of(inputs: BatchInputs, base: Config) -> Config:
    """The trainer configuration with the same agents, rows and minibatches, all else as in `base`.

    Args:
        inputs: that violate no rule and fit exactly (`is_exact`, `nearest_valid`).
        base: everything that the inputs do not say.

    Returns:
        A configuration whose `inputs_of` has the same batch, minibatch, horizon, rows and minibatches. It runs at
        least one update, even where `total_timesteps` is less.
    """
    agents = total_agents(inputs)
    steps = inputs.bptt_horizon * (inputs.batch_size // inputs.bptt_horizon // agents)
    envs = agents // inputs.num_agents
    return replace(
        base,
        {
            "run.total_steps": max(inputs.total_timesteps // inputs.num_agents, envs * steps),
            "env.num_envs": envs,
            "env.num_agents": inputs.num_agents,
            "algo.num_steps": steps,
            "algo.bptt_horizon": inputs.bptt_horizon,
            "algo.num_minibatches": inputs.batch_size // inputs.minibatch_size,
            "algo.update_epochs": inputs.update_epochs,
        },
    )
