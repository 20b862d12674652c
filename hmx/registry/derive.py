"""Derive the sizes of a run from its configuration."""

from __future__ import annotations

from typing import NamedTuple

from hmx.config.learning import PpoConfig
from hmx.config.schema import Config, NetConfig, RunConfig
from hmx.registry.algorithms import find_algorithm


class Derived(NamedTuple):
    """Sizes of a run, per seed; an update is one rollout and its gradient steps.

    `steps` are environment steps. An agent step is one step of one agent: `env.num_agents` times as many.
    """

    batch_size: int  # steps per update = env.num_envs x algo.num_steps
    agent_steps: int  # per update
    horizon: int  # steps per training sequence
    segments: int  # training sequences per update
    minibatch_segments: int  # sequences per gradient step
    minibatch_size: int  # agent steps per gradient step
    gradient_steps_per_update: int  # 0 if the algorithm is the user's own
    num_updates: int  # whole updates that reach run.total_steps, see `num_updates`
    gradient_steps: int  # over the whole run
    total_env_steps: int  # that will run: num_updates x batch_size, at least run.total_steps
    updates_per_chunk: int  # at most run.updates_per_chunk
    steps_per_chunk: int  # of a full chunk
    num_chunks: int  # the last one may be shorter
    num_checkpoints: int  # written during the run, kept or not


def derive(cfg: Config) -> Derived:
    """Compute the sizes of a run; the configuration must have no `problems`."""
    batch = cfg.env.num_envs * cfg.algo.num_steps
    agent_steps, length = batch * cfg.env.num_agents, horizon(cfg.net, cfg.ppo, cfg.algo.num_steps)
    steps = find_algorithm(cfg.algo.name).gradient_steps(cfg)
    minibatch = steps.minibatch_size
    updates = num_updates(cfg.run, batch)
    per_chunk = min(cfg.run.updates_per_chunk, updates)
    chunks = _ceil_div(updates, per_chunk)
    return Derived(
        batch_size=batch,
        agent_steps=agent_steps,
        horizon=length,
        segments=agent_steps // length,
        minibatch_segments=minibatch // length,
        minibatch_size=minibatch,
        gradient_steps_per_update=steps.per_update,
        num_updates=updates,
        gradient_steps=steps.per_update * max(updates - steps.first_update, 0),
        total_env_steps=updates * batch,
        updates_per_chunk=per_chunk,
        steps_per_chunk=per_chunk * batch,
        num_chunks=chunks,
        num_checkpoints=_ceil_div(chunks, cfg.run.checkpoint_every),
    )


def num_updates(run: RunConfig, batch: int) -> int:
    """Compute the updates of `batch` steps for `run.total_steps`, rounded up once or, as Brax does, in every epoch.

    Brax's training runs `ceil(steps / (epochs x batch))` updates in each of
    `max(evals - 1, 1) x max(resets per eval, 1)` epochs, and so overshoots small budgets (brax/training/agents/ppo).
    """
    epochs = run.budget_epochs if run.budget == "brax" else 1
    return epochs * _ceil_div(run.total_steps, epochs * batch)


def horizon(net: NetConfig, ppo: PpoConfig, num_steps: int) -> int:
    """Return the steps per training sequence: as configured, or a whole rollout if recurrent and 1 otherwise."""
    return ppo.bptt_horizon or (1 if net.rnn == "none" else num_steps)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)
