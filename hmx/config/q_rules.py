"""Q-learning: which options each algorithm reads, the sizes that follow, and what is wrong or perhaps not meant."""

from __future__ import annotations

import math
from collections.abc import Iterator

from hmx.config.coerce import show
from hmx.config.env_facts import env_facts, facts_known
from hmx.config.fields import FIELDS, get
from hmx.config.problem import Problem
from hmx.config.schema import Config

SECTIONS = ("dqn", "replay", "score")
"""The tables that only Q-learning reads."""

PPO_ONLY: tuple[str, ...] = (
    "env.reset_on_done", "env.full_reset_every", "env.world_state", "net.value_hidden", "net.gain_policy",
    "net.gain_value", "net.std", "net.std_min", "algo.obs_norm", "algo.obs_norm_update", "algo.obs_norm_ddof",
    "algo.obs_norm_clip",
    "algo.reward_scale", "algo.advantage_when", "algo.gae_axis", "algo.episode_end", "algo.value_forward",
    "algo.vf_half", "algo.entropy", "net.shared_torso", "net.rnn", "net.rnn_hidden", "algo.bptt_horizon",
    "algo.update_epochs", "algo.num_minibatches", "algo.gae_lambda", "algo.advantage", "algo.vtrace_rho_clip",
    "algo.vtrace_c_clip", "algo.row_end", "algo.norm_adv", "algo.clip_eps", "algo.clip_schedule", "algo.clip_end",
    "algo.clip_vf_eps", "algo.clip_vf_schedule", "algo.clip_vf_end", "algo.vf_coef", "algo.ent_coef",
    "algo.ent_schedule", "algo.ent_end", "algo.prio_alpha", "algo.prio_beta0", "algo.prio_weights",
    "algo.prio_weight_clip", "algo.value_target", "algo.auto_scale",
)  # fmt: skip
"""Options outside these tables that Q-learning does not read."""

_MOST_JOINT_ACTIONS = 4096
_LOW_COVERAGE = 0.1
_LOW_RATIO = 0.05
_SIZE_KEYS = (
    "env.id", "env.num_envs", "env.num_agents", "algo.num_steps", "dqn.n_step", "dqn.learn_starts", "replay.capacity",
    "score.every", "score.transitions", "score.coverage", "score.chunk", "run.total_steps",
)  # fmt: skip


def ignored(cfg: Config) -> tuple[str, ...]:
    """The keys that the algorithm of this configuration does not read."""
    if cfg.algo.name == "dqn":
        return PPO_ONLY
    return tuple(key for key, field in FIELDS.items() if field.section in SECTIONS)


def not_read(cfg: Config) -> Iterator[Problem]:
    """A problem for every key that the algorithm does not read and that is not at its default.

    Going by the value and not by its origin, a run.toml, which holds every key, says the same as what it was made of.
    """
    for key in ignored(cfg):
        default = FIELDS[key].default
        if get(cfg, key) != default:
            words = f"{cfg.algo.name} does not read it"
            yield Problem("not_read", (key,), words, f"{key}={show(default)}")


def replay_ratio(cfg: Config) -> float:
    """How many times a transition is trained on, on average, once learning has started."""
    return cfg.dqn.gradient_steps * cfg.dqn.batch_size / (cfg.env.num_envs * cfg.algo.num_steps)


def rounds_per_pass(cfg: Config) -> int:
    """How many times a scoring pass plays `positions_per_round` positions side by side."""
    return -(-_wanted_per_pass(cfg) // cfg.score.chunk)


def positions_per_round(cfg: Config) -> int:
    """Positions scored side by side, at most `score.chunk`."""
    return -(-_wanted_per_pass(cfg) // rounds_per_pass(cfg))


def scored_per_pass(cfg: Config) -> int:
    """Transitions scored per pass: what was asked for, rounded up to equal rounds."""
    return rounds_per_pass(cfg) * positions_per_round(cfg)


def _wanted_per_pass(cfg: Config) -> int:
    if not cfg.score.coverage:
        return cfg.score.transitions
    return math.ceil(cfg.score.coverage * cfg.score.every * cfg.env.num_envs * cfg.algo.num_steps)


def expected_coverage(cfg: Config) -> float:
    """Scores per transition over its life; the capacity cancels out."""
    return scored_per_pass(cfg) / (cfg.score.every * cfg.env.num_envs * cfg.algo.num_steps)


def first_learning_update(cfg: Config) -> int:
    """The number (from 0) of the first update with gradient steps: the buffer then holds `dqn.learn_starts`."""
    return -(-cfg.dqn.learn_starts // (cfg.env.num_envs * cfg.algo.num_steps)) - 1


def problems(cfg: Config, bad: set[str]) -> Iterator[Problem]:
    """What keeps Q-learning from running; rules of sizes only where no key in `bad` takes part."""
    if facts_known(cfg.env) and env_facts(cfg.env).action_dim:
        words = "its actions are continuous, and Q-learning chooses among a few"
        yield Problem("continuous", ("env.id", "algo.name"), words, "algo.name=ppo")
    if cfg.algo.grad_clip == "per_network":
        words = "Q-learning has one network"
        yield Problem("one_network", ("algo.grad_clip", "algo.name"), words, "algo.grad_clip=joint")
    yield from _score_problems(cfg)
    if bad.isdisjoint(_SIZE_KEYS):
        yield from _buffer_problems(cfg)
        if cfg.score.every:
            yield from _pass_problems(cfg)


def _buffer_problems(cfg: Config) -> Iterator[Problem]:
    capacity, envs = cfg.replay.capacity, cfg.env.num_envs
    steps = max(cfg.algo.num_steps, cfg.dqn.n_step)
    if capacity < envs * steps:
        words = f"fewer transitions than {envs:,} environments x {steps:,} steps = {envs * steps:,}"
        keys = ("replay.capacity", "env.num_envs", "algo.num_steps", "dqn.n_step")
        yield Problem("buffer_small", keys, words, f"replay.capacity={envs * steps}")
    elif capacity % envs:
        below = capacity // envs * envs
        words = f"not a multiple of {envs:,} environments"
        works = f"replay.capacity={below} or replay.capacity={below + envs}"
        yield Problem("buffer_split", ("replay.capacity", "env.num_envs"), words, works)
    if cfg.dqn.learn_starts > capacity:
        words = f"the buffer never holds more than {capacity:,}, so learning would never start"
        yield Problem("never_starts", ("dqn.learn_starts", "replay.capacity"), words, f"dqn.learn_starts={capacity}")


def _score_problems(cfg: Config) -> Iterator[Problem]:
    score = cfg.score
    if not score.every:
        if cfg.replay.mixing in ("additive", "multiplicative"):
            words = "replay by consequence needs scores, and nothing is scored"
            yield Problem("no_scores", ("replay.mixing", "score.every"), words, "score.every=8 or replay.mixing=td")
        return
    if score.continuation == "greedy" and (score.aggregate == "policy" or score.actions == "topk"):
        which = "score.aggregate" if score.aggregate == "policy" else "score.actions"
        words = "needs the probabilities of the policy, and a greedy one gives alternatives none"
        yield Problem("no_probs", (which, "score.continuation"), words, "score.continuation=softmax")
    if score.continuation == "softmax" and score.parameter == 0:
        words = "a softmax of temperature 0 cannot be sampled"
        yield Problem("parameter", ("score.parameter", "score.continuation"), words, "score.continuation=greedy")
    if score.continuation == "epsilon" and score.parameter > 1:
        keys = ("score.parameter", "score.continuation")
        yield Problem("parameter", keys, "epsilon is a probability", "score.parameter=0.1")


def _pass_problems(cfg: Config) -> Iterator[Problem]:
    number = scored_per_pass(cfg)
    if number > cfg.replay.capacity:
        key = "score.coverage" if cfg.score.coverage else "score.transitions"
        words = f"{number:,} transitions per pass are more than the buffer holds, {cfg.replay.capacity:,}"
        works = f"{key}={0.25 if cfg.score.coverage else cfg.replay.capacity}"
        yield Problem("pass_large", (key, "replay.capacity"), words, works)
    if cfg.score.actions == "all" and facts_known(cfg.env):
        joint = env_facts(cfg.env).num_actions ** cfg.env.num_agents
        if joint > _MOST_JOINT_ACTIONS:
            words = f"{cfg.env.num_agents} agents have {joint:,} joint actions, too many to try all"
            yield Problem("joint_actions", ("score.actions", "env.num_agents"), words, "score.actions=single")


def warnings(cfg: Config) -> Iterator[Problem]:
    """What will run, but perhaps not as meant."""
    updates = -(-cfg.run.total_steps // (cfg.env.num_envs * cfg.algo.num_steps))
    if first_learning_update(cfg) >= updates:
        words = "the run ends before the buffer holds that much: nothing is learned"
        works = f"dqn.learn_starts={max(cfg.run.total_steps // 20, 1)}"
        yield Problem("no_learning", ("dqn.learn_starts", "run.total_steps"), words, works)
    if replay_ratio(cfg) < _LOW_RATIO:
        words = f"a transition is trained on {replay_ratio(cfg):.4f} times on average"
        wanted = math.ceil(cfg.env.num_envs * cfg.algo.num_steps / cfg.dqn.batch_size)
        keys = ("dqn.gradient_steps", "dqn.batch_size", "env.num_envs", "algo.num_steps")
        yield Problem("ratio_low", keys, words, f"algo.num_steps=4 or dqn.gradient_steps={wanted}")
    if not cfg.score.every:
        return
    if cfg.replay.mixing in ("uniform", "td"):
        words = "scores are computed and logged, but draw nothing"
        works = "replay.mixing=additive or score.every=0"
        yield Problem("scores_unused", ("score.every", "replay.mixing"), words, works)
    elif expected_coverage(cfg) < _LOW_COVERAGE:
        words = f"a transition is scored {expected_coverage(cfg):.3f} times on average before it is overwritten"
        yield Problem("coverage_low", ("score.every", "score.transitions"), words, "score.coverage=0.25")
