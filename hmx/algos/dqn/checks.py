"""Find what keeps Q-learning from running, or runs otherwise than intended, in a configuration; no JAX."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator

from hmx.algos.dqn.sizes import expected_coverage, first_learning_update, replay_ratio, scored_per_pass
from hmx.config.learning import DqnConfig, ReplayConfig, ScoreConfig
from hmx.config.problem import Problem, fix
from hmx.config.schema import Config
from hmx.registry.check import needs_discrete
from hmx.registry.sizes import Sizes

_MOST_JOINT_ACTIONS = 4096
_LOW_COVERAGE = 0.1
_LOW_RATIO = 0.05
_Q_SIZE_KEYS = (
    "env.id", "env.num_envs", "env.num_agents", "algo.num_steps", "dqn.n_step", "dqn.learn_starts", "dqn.batch_size",
    "replay.capacity", "score.every", "score.transitions", "score.coverage", "score.chunk", "run.total_steps",
)  # fmt: skip


def check(cfg: Config, sizes: Sizes | None, bad: Collection[str]) -> Iterator[Problem]:
    """Find problems that prevent Q-learning; size rules apply only if they involve no key in `bad`."""
    yield from needs_discrete(sizes, "Q-learning")
    if sizes is not None and sizes.value_only:
        words = "its observations have a part for a critic, and Q-learning has no separate one"
        yield Problem("no_critic", ("env.id", "algo.name"), words, fix("algo.name", "ppo"))
    if cfg.algo.grad_clip == "per_network":
        words = "Q-learning has only one network"
        yield Problem("one_network", ("algo.grad_clip", "algo.name"), words, fix("algo.grad_clip", "joint"))
    yield from score_problems(cfg.score, cfg.replay)
    if set(bad).intersection(_Q_SIZE_KEYS):
        return
    capacity, envs = cfg.replay.capacity, cfg.env.num_envs
    steps = max(cfg.algo.num_steps, cfg.dqn.n_step)
    if capacity < envs * steps:
        words = f"fewer transitions than {envs:,} environments x {steps:,} steps = {envs * steps:,}"
        keys = ("replay.capacity", "env.num_envs", "algo.num_steps", "dqn.n_step")
        yield Problem("buffer_small", keys, words, fix("replay.capacity", envs * steps))
    elif capacity % envs:
        below = capacity // envs * envs
        words = f"not a multiple of {envs:,} environments"
        works = fix("replay.capacity", below, below + envs)
        yield Problem("buffer_split", ("replay.capacity", "env.num_envs"), words, works)
    if cfg.dqn.learn_starts > capacity:
        words = f"the buffer never holds more than {capacity:,}, so learning would never start"
        works = fix("dqn.learn_starts", capacity)
        yield Problem("never_starts", ("dqn.learn_starts", "replay.capacity"), words, works)
    yield from _batch_problems(cfg.dqn, cfg.replay)
    if not cfg.score.every:
        return
    number = scored_per_pass(cfg.score, envs * cfg.algo.num_steps)
    if number > cfg.replay.capacity:
        key = "score.coverage" if cfg.score.coverage else "score.transitions"
        words = f"{number:,} transitions per pass are more than the buffer holds, {cfg.replay.capacity:,}"
        works = fix(key, 0.25 if cfg.score.coverage else cfg.replay.capacity)
        yield Problem("pass_large", (key, "replay.capacity"), words, works)
    if cfg.score.actions == "all" and sizes:
        joint = sizes.num_actions**cfg.env.num_agents
        if joint > _MOST_JOINT_ACTIONS:
            words = f"{cfg.env.num_agents} agents have {joint:,} joint actions, too many to try all"
            works = fix("score.actions", "single")
            yield Problem("joint_actions", ("score.actions", "env.num_agents"), words, works)


def _batch_problems(dqn: DqnConfig, replay: ReplayConfig) -> Iterator[Problem]:
    """Find a buffer with fewer transitions than a batch without replacement needs."""
    batch, held = dqn.batch_size, min(dqn.learn_starts, replay.capacity)
    if replay.replacement or held >= batch:
        return
    words = f"a batch of {batch:,} without replacement needs more transitions than {held:,}"
    keys = ("dqn.batch_size", "replay.replacement", "dqn.learn_starts", "replay.capacity")
    yield Problem("batch_large", keys, words, fix("dqn.batch_size", held) + fix("replay.replacement", True))


def score_problems(score: ScoreConfig, replay: ReplayConfig) -> Iterator[Problem]:
    """Find scoring options that contradict each other, or the mixing of replay."""
    if not score.every:
        if replay.mixing == "additive":
            words = "replay by consequence needs scores, but nothing is scored"
            works = fix("score.every", 8) + fix("replay.mixing", "td")
            yield Problem("no_scores", ("replay.mixing", "score.every"), words, works)
        return
    works = fix("score.continuation", "softmax")
    if score.continuation == "greedy" and (score.aggregate == "policy" or score.actions == "topk"):
        which = "score.aggregate" if score.aggregate == "policy" else "score.actions"
        words = "needs action probabilities, but a greedy policy gives alternatives none"
        yield Problem("no_probs", (which, "score.continuation"), words, works)
    if score.continuation == "softmax" and score.parameter == 0:
        words = "cannot sample from a softmax of temperature 0"
        works = fix("score.continuation", "greedy")
        yield Problem("parameter", ("score.parameter", "score.continuation"), words, works)
    if score.continuation == "epsilon" and score.parameter > 1:
        keys = ("score.parameter", "score.continuation")
        yield Problem("parameter", keys, "epsilon must be a probability", fix("score.parameter", 0.1))


def warn(cfg: Config) -> Iterator[Problem]:
    """Find settings that run but may be unintended."""
    batch = cfg.env.num_envs * cfg.algo.num_steps
    updates = -(-cfg.run.total_steps // batch)
    if first_learning_update(cfg.dqn.learn_starts, batch) >= updates:
        words = "the run ends before the buffer holds that many transitions, so nothing is learned"
        works = fix("dqn.learn_starts", max(cfg.run.total_steps // 20, 1))
        yield Problem("no_learning", ("dqn.learn_starts", "run.total_steps"), words, works)
    if replay_ratio(cfg) < _LOW_RATIO:
        words = f"a transition is trained on {replay_ratio(cfg):.4f} times on average"
        wanted = math.ceil(batch / cfg.dqn.batch_size)
        keys = ("dqn.gradient_steps", "dqn.batch_size", "env.num_envs", "algo.num_steps")
        yield Problem("ratio_low", keys, words, fix("algo.num_steps", 4) + fix("dqn.gradient_steps", wanted))
    if not cfg.score.every:
        return
    if cfg.replay.mixing in ("uniform", "td"):
        words = "scores are computed and logged, but sampling does not use them"
        works = fix("replay.mixing", "additive") + fix("score.every", 0)
        yield Problem("scores_unused", ("score.every", "replay.mixing"), words, works)
    elif (coverage := expected_coverage(cfg.score, batch)) < _LOW_COVERAGE:
        words = f"a transition is scored {coverage:.3f} times on average before it is overwritten"
        yield Problem("coverage_low", ("score.every", "score.transitions"), words, fix("score.coverage", 0.25))
