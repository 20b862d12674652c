"""Derive the sizes of a run from its configuration, scale it to a large batch, and find sizes that split evenly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config.divisors import nearest_ratio
from hmx.config.fields import replace
from hmx.config.schema import ALGORITHMS, Config, PpoConfig


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
    gradient_steps_per_update: int  # 0 where the algorithm is the user's own
    num_updates: int  # whole updates that reach run.total_steps, see `num_updates`
    gradient_steps: int  # over the whole run
    total_env_steps: int  # that will run: num_updates x batch_size, at least run.total_steps
    updates_per_chunk: int  # at most run.updates_per_chunk
    steps_per_chunk: int  # of a full chunk
    num_chunks: int  # the last one may be shorter
    num_checkpoints: int  # written during the run, kept or not
    all_env_steps: int  # over all seeds


def derive(cfg: Config) -> Derived:
    """Compute the sizes of a run; the configuration must have no `problems`."""
    batch = cfg.env.num_envs * cfg.algo.num_steps
    agent_steps, length = batch * cfg.env.num_agents, horizon(cfg)
    is_dqn, is_own = cfg.algo.name == "dqn", cfg.algo.name not in ALGORITHMS
    minibatches = 1 if is_own else cfg.ppo.num_minibatches
    minibatch = cfg.dqn.batch_size * cfg.env.num_agents if is_dqn else agent_steps // minibatches
    per_update = cfg.dqn.gradient_steps if is_dqn else 0 if is_own else cfg.ppo.update_epochs * minibatches
    updates = num_updates(cfg)
    per_chunk = min(cfg.run.updates_per_chunk, updates)
    chunks = _ceil_div(updates, per_chunk)
    return Derived(
        batch_size=batch,
        agent_steps=agent_steps,
        horizon=length,
        segments=agent_steps // length,
        minibatch_segments=minibatch // length,
        minibatch_size=minibatch,
        gradient_steps_per_update=per_update,
        num_updates=updates,
        gradient_steps=per_update * (max(updates - first_learning_update(cfg), 0) if is_dqn else updates),
        total_env_steps=updates * batch,
        updates_per_chunk=per_chunk,
        steps_per_chunk=per_chunk * batch,
        num_chunks=chunks,
        num_checkpoints=_ceil_div(chunks, cfg.run.checkpoint_every),
        all_env_steps=updates * batch * cfg.run.num_seeds,
    )


def num_updates(cfg: Config) -> int:
    """Compute the updates that reach `run.total_steps`, rounded up once or, as Brax does, in every epoch.

    Brax's training runs `ceil(steps / (epochs x batch))` updates in each of
    `max(evals - 1, 1) x max(resets per eval, 1)` epochs, and so overshoots small budgets (brax/training/agents/ppo).
    """
    epochs = cfg.run.budget_epochs if cfg.run.budget == "brax" else 1
    return epochs * _ceil_div(cfg.run.total_steps, epochs * cfg.env.num_envs * cfg.algo.num_steps)


def horizon(cfg: Config) -> int:
    """Return the steps per training sequence: as configured, else a whole rollout if recurrent and 1 if not."""
    return cfg.ppo.bptt_horizon or (1 if cfg.net.rnn == "none" else cfg.algo.num_steps)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def value_weight(ppo: PpoConfig) -> float:
    """Return the weight of the value loss, which is half the mean squared error (or the cross-entropy of two_hot)."""
    return ppo.vf_coef if ppo.vf_half else 2.0 * ppo.vf_coef


def replay_ratio(cfg: Config) -> float:
    """Compute how many times a transition is trained on, on average, once learning has started."""
    return cfg.dqn.gradient_steps * cfg.dqn.batch_size / (cfg.env.num_envs * cfg.algo.num_steps)


def scoring_rounds(cfg: Config) -> tuple[int, int]:
    """Compute the rounds of a scoring pass, and the positions scored in parallel in each, at most `score.chunk`."""
    score, wanted = cfg.score, cfg.score.transitions
    if score.coverage:
        wanted = math.ceil(score.coverage * score.every * cfg.env.num_envs * cfg.algo.num_steps)
    rounds = _ceil_div(wanted, score.chunk)
    return rounds, _ceil_div(wanted, rounds)


def scored_per_pass(cfg: Config) -> int:
    """Compute the transitions scored per pass: those asked for, rounded up to equal rounds."""
    return math.prod(scoring_rounds(cfg))


def expected_coverage(cfg: Config) -> float:
    """Compute the scores per transition over its life; the capacity cancels out."""
    return scored_per_pass(cfg) / (cfg.score.every * cfg.env.num_envs * cfg.algo.num_steps)


def first_learning_update(cfg: Config) -> int:
    """Compute the first update (from 0) with gradient steps: the buffer then holds `dqn.learn_starts`."""
    return _ceil_div(cfg.dqn.learn_starts, cfg.env.num_envs * cfg.algo.num_steps) - 1


MINIBATCH = 8192
MIN_EPOCHS = 2


def auto_scale(cfg: Config, origins: Mapping[str, str] | None = None) -> tuple[Config, list[str]]:
    """Fit minibatches, epochs and learning rate to the batch.

    If minibatches have more than 8,192 steps, their number grows to the divisor of the sequences that brings them
    closest to 8,192 steps. If it grows by a factor f, epochs become max(2, epochs // f), and the learning rate is
    divided by the growth of gradient steps per update. Small batches stay as they are.

    Args:
        cfg: as given. Invalid values leave it unchanged; `rules.problems` finds them.
        origins: where each value came from; only values of defaults and presets are changed.

    Returns:
        The scaled configuration, and one line `key: old -> new, why` for each change.
    """
    algo, ppo = cfg.algo, cfg.ppo
    if min(cfg.env.num_envs, cfg.env.num_agents, algo.num_steps, ppo.num_minibatches, ppo.update_epochs) < 1:
        return cfg, []
    batch, length = cfg.env.num_envs * cfg.env.num_agents * algo.num_steps, horizon(cfg)
    if length < 1 or algo.num_steps % length:
        return cfg, []
    if not _ours(origins, "ppo.num_minibatches") or batch <= MINIBATCH * ppo.num_minibatches:
        return cfg, []
    minibatches = nearest_ratio(batch // length, batch / MINIBATCH)
    if minibatches <= ppo.num_minibatches:
        return cfg, []
    epochs = min(ppo.update_epochs, max(MIN_EPOCHS, ppo.update_epochs // (minibatches // ppo.num_minibatches)))
    if not _ours(origins, "ppo.update_epochs"):
        epochs = ppo.update_epochs
    growth = minibatches * epochs / (ppo.num_minibatches * ppo.update_epochs)
    rate = algo.learning_rate / growth if growth > 1 and _ours(origins, "algo.learning_rate") else algo.learning_rate
    sizes = f"minibatches of {batch // minibatches:,} of {batch:,} steps"
    changes: list[tuple[str, Any, Any, str]] = [
        ("ppo.num_minibatches", ppo.num_minibatches, minibatches, sizes),
        ("ppo.update_epochs", ppo.update_epochs, epochs, f"fewer epochs for more minibatches, at least {MIN_EPOCHS}"),
        ("algo.learning_rate", algo.learning_rate, rate, f"{growth:g} times as many gradient steps per update"),
    ]
    changes = [change for change in changes if change[1] != change[2]]
    lines = [f"{key}: {old} -> {new}, {why}" for key, old, new, why in changes]
    return replace(cfg, {key: new for key, _, new, _ in changes}), lines


def _ours(origins: Mapping[str, str] | None, key: str) -> bool:
    origin = (origins or {}).get(key, "default")
    return origin == "default" or origin.startswith("preset ")
