"""Find everything that is wrong, or perhaps unintended, in a configuration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hmx.config.coerce import BadValue, check_range, coerce, show
from hmx.config.divisors import neighbours
from hmx.config.fields import FIELDS, OWN_SECTIONS, Field, own_key, values_of
from hmx.config.names import clean_run_name, is_run_name
from hmx.config.option import ON_POLICY, REPORTED
from hmx.config.problem import Problem, error, fix
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import ALGORITHMS, ENV_IDS, NET_KINDS, Config
from hmx.errors import HmxError, counted, nearest
from hmx.registry import derive, user_code
from hmx.registry.env_facts import (
    EXTRAS,
    SCENARIOS,
    SEVERAL_AGENTS,
    SMAX,
    EnvFacts,
    EnvSource,
    env_facts,
    facts_known,
    find_source,
    is_unlimited,
    scenario,
)

_SIZE_KEYS = (
    "run.total_steps", "env.num_envs", "env.num_agents", "net.rnn", "algo.num_steps", "ppo.num_minibatches",
    "ppo.bptt_horizon",
)  # fmt: skip
_MOST_JOINT_ACTIONS = 4096
_LOW_COVERAGE = 0.1
_LOW_RATIO = 0.05
_Q_SIZE_KEYS = (
    "env.id", "env.num_envs", "env.num_agents", "algo.num_steps", "dqn.n_step", "dqn.learn_starts", "replay.capacity",
    "score.every", "score.transitions", "score.coverage", "score.chunk", "run.total_steps",
)  # fmt: skip

BUGS = {
    "ppo.gae_axis": ("batch", "advantages are summed over unrelated sequences"),
    "ppo.episode_end": ("leak", "the advantage of a truncated episode leaks into the next one"),
}
"""Key -> the value that reproduces a known bug of another implementation, and what the bug does."""

_PLAIN = {"ppo.advantage_when": "rollout", "ppo.gae_axis": "time", "ppo.episode_end": "bootstrap"}


def problems(cfg: Config) -> list[Problem]:
    """Find everything that keeps the configuration from running, each with values that work.

    Rules that need several values are applied only where each of those is valid on its own.
    """
    values = values_of(cfg)
    found = [p for key, field in FIELDS.items() for p in _value_problems(field, values[key])]
    bad = {key for p in found for key in p.keys}
    together = [*_names(cfg, values), *_variants(cfg, values), *_not_read(cfg.algo.name, values)]
    if cfg.algo.name == "dqn":
        together += _q_learning(cfg, bad)
    if cfg.algo.name == "gumbel":
        together += _searched(cfg)
    found += [p for p in together if not bad.intersection(p.keys)]
    if not bad.intersection(_SIZE_KEYS):
        found += _sizes(cfg)
    return found


def warnings(cfg: Config) -> list[Problem]:
    """Find what will run, but perhaps not as intended; the configuration must have no `problems`."""
    return list(_warnings(cfg, derive.derive(cfg)))


def check(cfg: Config, origins: Mapping[str, str] | None = None) -> None:
    """Raise one `HmxError` that lists every problem, with the origin of each value where `origins` knows it."""
    if found := problems(cfg):
        raise error_of(found, cfg, origins)


def error_of(found: Sequence[Problem], cfg: Config, origins: Mapping[str, str] | None = None) -> HmxError:
    """Make one error of all problems, with the value of each key in `cfg` and its origin."""
    values = values_of(cfg)
    return error(found, {key: show(values[key]) for key in FIELDS}, origins)


def _value_problems(field: Field, value: Any) -> Iterator[Problem]:
    for code, check_value in (("value", coerce), ("range", check_range)):
        try:
            check_value(field, value)
        except BadValue as bad:
            yield Problem(code, (field.key,), bad.message, fix(field.key, bad.works))
            return


def _not_read(algorithm: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Find the keys that the algorithm does not read and that are not at their defaults.

    Going by the value and not by its origin, a run.toml, which holds every key, has no such problems either.
    """
    for key, field in FIELDS.items() if algorithm in ALGORITHMS else ():
        if not field.read_by(algorithm) and values[key] != field.default:
            chosen = algorithm != FIELDS["algo.name"].default
            reader = None if chosen or field.section not in ALGORITHMS else field.section
            fixes = fix("algo.name", reader) + fix(key, field.default)
            yield Problem("not_read", (key,), f"{algorithm} does not read it", fixes)


def _names(cfg: Config, values: Mapping[str, Any]) -> Iterator[Problem]:
    source = find_source(cfg.env.id)
    if source is None and not cfg.env.sha256:  # a package that registered it may not be installed here
        near = nearest(cfg.env.id, ENV_IDS)
        others = ", ".join(f"{extra}/NAME" for extra in EXTRAS)
        words = (
            f"no such environment; choose from {', '.join(ENV_IDS)}, with optional extras {others}, or your own: "
            "./FILE.py or package.module:make"
        )
        yield Problem("unknown_env", ("env.id",), words, fix("env.id", near or ENV_IDS[0]))
    elif cfg.env.id.startswith(SMAX) and not scenario(cfg.env.id):
        near = nearest(cfg.env.id.removeprefix(SMAX), SCENARIOS) or "3m"
        words = f"no such scenario; SMAX has {', '.join(SCENARIOS)}"
        yield Problem("unknown_env", ("env.id",), words, fix("env.id", f"{SMAX}{near}"))
    elif cfg.net.kind == "cells" and (cfg.env.id != "hackmatrix" or cfg.env.obs != "packed"):
        words = "the cells network reads only packed observations of HackMatrix"
        yield Problem("net_kind", ("net.kind", "env.id", "env.obs"), words, fix("net.kind", "mlp"))
    if cfg.starts.share and cfg.env.id != "hackmatrix":
        words = f"{cfg.env.id} has no later stages to begin in; only hackmatrix has"
        yield Problem("starts_env", ("starts.share", "env.id"), words, fix("starts.share", 0))
    elif cfg.starts.share and cfg.env.reset_on_done != "fresh":
        words, works = "both decide how the next episode begins", fix("env.reset_on_done", "fresh")
        yield Problem("starts_reset", ("starts.share", "env.reset_on_done"), words, works)
    for name, at in SCHEDULED.items():
        if values[at.schedule] == "exponential" and values[at.end] > 1.0:
            words = f"an exponential schedule only falls, but {name} would end above its start"
            works = fix(at.schedule, "linear") + fix(at.end, 1.0)
            yield Problem("schedule_rises", (at.end, at.schedule), words, works)
    yield from _parts(cfg, values, source)
    if cfg.run.name and not is_run_name(cfg.run.name):
        words = "must be 1 to 100 letters, digits, dots, dashes or underscores, and start with a letter or digit"
        yield Problem("run_name", ("run.name",), words, fix("run.name", clean_run_name(cfg.run.name)))
    if not cfg.run.root:
        yield Problem("run_root", ("run.root",), "must name a folder", fix("run.root", "runs"))


def _parts(cfg: Config, values: Mapping[str, Any], source: EnvSource | None) -> Iterator[Problem]:
    """Find a network or algorithm that does not exist, and what the chosen parts do not allow."""
    for key, name, known in (("net.kind", cfg.net.kind, NET_KINDS), ("algo.name", cfg.algo.name, ALGORITHMS)):
        if name in known or user_code.is_reference(name):
            continue
        installed = tuple(point.name for point in user_code.registered(key)) if key == "algo.name" else ()
        if name not in installed:
            words = f"is not one of {', '.join((*known, *installed))}, or a file of your own such as ./my.py"
            yield Problem("value", (key,), words, fix(key, nearest(name, (*known, *installed)) or known[0]))
    if cfg.algo.name not in REPORTED and cfg.run.grad_report_every:
        words = f"gradient reports are of {' and '.join(REPORTED)}"
        yield Problem("own_reports", ("run.grad_report_every", "algo.name"), words, fix("run.grad_report_every", 0))
    own = {"env": source is None or source.own}
    own |= {"net": user_code.is_reference(cfg.net.kind), "algo": cfg.algo.name not in ALGORITHMS}
    for section, key in OWN_SECTIONS.items():
        if (my := getattr(cfg, section).my) and not own[section]:
            keys = tuple(own_key(section, name) for name, _ in my)
            yield Problem("no_options", (*keys, key), f"{values[key]} declares no options of its own")
    env, keys, units = cfg.env, ("env.num_agents", "env.id"), scenario(cfg.env.id)
    if units and env.num_agents != units[0]:
        yield Problem("num_agents", keys, f"{env.id} has {counted(units[0], 'agent')}", fix("env.num_agents", units[0]))
    alone = source is not None and not source.own and not env.id.startswith(SMAX) and env.id not in SEVERAL_AGENTS
    if env.num_agents > 1 and alone:
        words = f"{env.id} has one agent; only {', '.join(SEVERAL_AGENTS)} and smax have several"
        yield Problem("num_agents", keys, words, fix("env.num_agents", 1))


def _sizes(cfg: Config) -> Iterator[Problem]:
    steps = cfg.algo.num_steps
    if cfg.algo.name in ON_POLICY:
        yield from _sequences(cfg)
    batch = cfg.env.num_envs * steps
    if cfg.run.total_steps < batch:
        works = fix("run.total_steps", batch)
        fewer = cfg.run.total_steps // steps
        sequences = fewer * cfg.env.num_agents * (steps // derive.horizon(cfg))
        if fewer and (cfg.algo.name not in ON_POLICY or sequences % cfg.ppo.num_minibatches == 0):
            works += fix("env.num_envs", fewer)
        words = f"fewer steps than one update takes: {cfg.env.num_envs:,} x {steps:,} = {batch:,}"
        yield Problem("too_short", ("run.total_steps", "env.num_envs", "algo.num_steps"), words, works)


def _sequences(cfg: Config) -> Iterator[Problem]:
    length, steps = derive.horizon(cfg), cfg.algo.num_steps
    envs, minibatches, per_env = cfg.env.num_envs, cfg.ppo.num_minibatches, cfg.env.num_agents * (steps // length)
    sequences = envs * per_env
    if steps % length:
        whole = [n for n in (steps // length * length, -(-steps // length) * length) if n]
        works = fix("ppo.bptt_horizon", *neighbours(steps, length)) + fix("algo.num_steps", *whole)
        words = f"{steps:,} steps per agent do not split into sequences of {length:,} steps"
        yield Problem("row_split", ("ppo.bptt_horizon", "algo.num_steps"), words, works)
    elif sequences % minibatches:
        unit = minibatches // math.gcd(per_env, minibatches)
        fewer = envs // unit * unit
        works = fix("ppo.num_minibatches", *neighbours(sequences, minibatches))
        works += fix("env.num_envs", fewer) if fewer else ()
        what = "steps" if length == 1 else f"sequences of {length:,} steps"
        words = f"{envs:,} x {per_env:,} = {sequences:,} {what} do not split into {minibatches:,} equal minibatches"
        yield Problem("batch_split", ("ppo.num_minibatches", "env.num_envs", "algo.num_steps"), words, works)
    if length == 1 and cfg.ppo.row_end != "bootstrap":
        words = "leaves out the last step of a sequence, but sequences have only one step"
        works = fix("ppo.row_end", "bootstrap") + fix("ppo.bptt_horizon", steps)
        yield Problem("row_end", ("ppo.row_end", "ppo.bptt_horizon"), words, works)


def _warnings(cfg: Config, sizes: derive.Derived) -> Iterator[Problem]:
    asked, real = cfg.run.total_steps, sizes.total_env_steps
    if real != asked:
        words = f"{sizes.num_updates:,} updates of {sizes.batch_size:,} steps will run, {real:,} steps in total"
        exact = cfg.run.budget == "exact"
        other = fix("run.total_steps", real - sizes.batch_size) if exact else fix("run.budget", "exact")
        yield Problem("rounded_up", ("run.total_steps",), words, fix("run.total_steps", real) + other)
    unlimited = is_unlimited(cfg.env)
    if unlimited:
        words = "episodes have no step limit, so an agent that makes no progress never ends one"
        yield Problem("no_limit", ("env.max_steps",), words, fix("env.max_steps", 1000))
    undamped = cfg.algo.gamma == 1.0 and (cfg.algo.name == "dqn" or cfg.ppo.gae_lambda == 1.0)
    if undamped and unlimited:
        words = "without discount, lambda and step limit, returns may grow without bound"
        yield Problem("unbounded", ("algo.gamma", "ppo.gae_lambda"), words, fix("algo.gamma", 0.99))
    if cfg.algo.name == "dqn":
        yield from _q_warnings(cfg)
    if cfg.algo.name == "ppo":
        yield from _ppo_warnings(cfg, sizes)
    if cfg.net.value_hidden and cfg.net.shared_torso:
        words = "has no effect without a separate value torso"
        yield Problem("value_hidden", ("net.value_hidden", "net.shared_torso"), words, fix("net.shared_torso", False))
    values = values_of(cfg)
    for key, (value, what) in BUGS.items():
        if values[key] == value:
            yield Problem("known_bug", (key,), f"reproduces a known bug: {what}", fix(key, FIELDS[key].default))


def _ppo_warnings(cfg: Config, sizes: derive.Derived) -> Iterator[Problem]:
    if cfg.ppo.norm_adv and sizes.minibatch_size == 1:
        words = "a minibatch of one step has standard deviation 0, so every advantage becomes 0"
        yield Problem("norm_one", ("ppo.norm_adv", "ppo.num_minibatches"), words, fix("ppo.norm_adv", False))
    if cfg.env.id == "recall" and 0 < cfg.env.max_steps <= cfg.env.recall_delay:
        words = "episodes are truncated before the question comes"
        yield Problem("no_question", ("env.max_steps", "env.recall_delay"), words, fix("env.max_steps", 1000))
    if cfg.net.rnn != "none" and sizes.horizon == 1:
        words = "with sequences of one step, no gradient reaches earlier steps, so nothing is learned to be remembered"
        yield Problem("no_bptt", ("ppo.bptt_horizon", "net.rnn"), words, fix("ppo.bptt_horizon", 0))
    if cfg.ppo.prio_alpha and 4 * sizes.minibatch_segments > sizes.segments:
        words = "sampling more than a quarter of the sequences without replacement hardly prefers any"
        keys = ("ppo.prio_alpha", "ppo.num_minibatches")
        yield Problem("prio_coarse", keys, words, fix("ppo.num_minibatches", 4))


def _variants(cfg: Config, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Find switches that contradict each other; each value must be valid on its own."""
    algo, ppo, net = cfg.algo, cfg.ppo, cfg.net
    is_plain = all(values[key] == value for key, value in _PLAIN.items())
    needed = ", ".join(f"{key}={value}" for key, value in _PLAIN.items())
    if ppo.advantage == "vtrace" and not is_plain:
        yield Problem("vtrace_plain", ("ppo.advantage", *_PLAIN), f"vtrace needs {needed}", fix("ppo.advantage", "gae"))
    if ppo.row_end != "bootstrap" and not (is_plain and ppo.advantage != "brax"):
        words = f"sequences that do not end in a bootstrap need {needed}, and not Brax's advantage"
        keys = ("ppo.row_end", "ppo.advantage", *_PLAIN)
        yield Problem("row_end_plain", keys, words, fix("ppo.row_end", "bootstrap"))
    if ppo.advantage_when == "minibatch":
        works = fix("ppo.advantage_when", "rollout")
        if ppo.value_forward == "shift" and ppo.episode_end in ("bootstrap", "leak"):
            keys = ("ppo.value_forward", "ppo.advantage_when", "ppo.episode_end")
            words = "the step after a truncation is of the next episode, so the last observation needs its own value"
            yield Problem("shift_cut", keys, words, fix("ppo.value_forward", "both") + works)
        if ppo.value_forward == "both" and net.rnn != "none":
            keys = ("ppo.value_forward", "ppo.advantage_when", "net.rnn")
            words = "a recurrent network can only evaluate steps in their order"
            yield Problem("both_memory", keys, words, works)
    if ppo.advantage_scale != "reward" and (ppo.advantage == "vtrace" or ppo.advantage_when == "minibatch"):
        words = "advantages recomputed in every minibatch are in units of reward"
        keys = ("ppo.advantage_scale", "ppo.advantage", "ppo.advantage_when")
        yield Problem("scale_recomputed", keys, words, fix("ppo.advantage_scale", "reward"))
    if algo.grad_clip == "per_network" and net.shared_torso:
        words = "policy and value share layers, so there is only one network to clip"
        works = fix("net.shared_torso", False) + fix("algo.grad_clip", "joint")
        yield Problem("clip_shared", ("algo.grad_clip", "net.shared_torso"), words, works)
    if ppo.value_target == "two_hot" and not ppo.vf_half:
        words = "the loss of a two_hot value is a cross-entropy, without a factor of one half to omit"
        yield Problem("half_two_hot", ("ppo.vf_half", "ppo.value_target"), words, fix("ppo.vf_half", True))
    if ppo.value_target == "two_hot" and ppo.clip_vf_eps > 0:
        words = "a two_hot value cannot be clipped"
        yield Problem("clip_two_hot", ("ppo.clip_vf_eps", "ppo.value_target"), words, fix("ppo.clip_vf_eps", 0))
    if cfg.env.world_state and not scenario(cfg.env.id):
        words = "only SMAX has a world state"
        yield Problem("world_state", ("env.world_state", "env.id"), words, fix("env.world_state", False))
    elif cfg.env.world_state and net.shared_torso:
        words = "a world state that only the value network sees needs a separate value network"
        yield Problem("world_shared", ("env.world_state", "net.shared_torso"), words, fix("net.shared_torso", False))
    if ppo.obs_norm != "none" and cfg.env.id == "hackmatrix" and cfg.env.obs == "packed":
        words = "packed observations are words of bits, which cannot be normalised"
        works = fix("ppo.obs_norm", "none") + fix("env.obs", "flat")
        yield Problem("norm_packed", ("ppo.obs_norm", "env.obs"), words, works)


def _discrete(facts: EnvFacts | None, what: str) -> Iterator[Problem]:
    if facts and facts.action_dim:
        words = f"its actions are continuous, but {what} needs discrete ones"
        yield Problem("continuous", ("env.id", "algo.name"), words, fix("algo.name", "ppo"))


def _searched(cfg: Config) -> Iterator[Problem]:
    """Find what keeps a search from running."""
    yield from _discrete(env_facts(cfg.env) if facts_known(cfg.env) else None, "a search")
    if cfg.env.num_agents > 1:
        words = "a search needs an environment with one agent"
        yield Problem("several_agents", ("env.num_agents", "algo.name"), words, fix("algo.name", "ppo"))
    if cfg.ppo.obs_norm == "env":
        words = "a search simulates steps, which do not normalise observations"
        yield Problem("searched_obs", ("ppo.obs_norm", "algo.name"), words, fix("ppo.obs_norm", "network"))


def _q_learning(cfg: Config, bad: set[str]) -> Iterator[Problem]:
    """Find what keeps Q-learning from running; size rules only where no key in `bad` takes part."""
    facts = env_facts(cfg.env) if facts_known(cfg.env) else None
    yield from _discrete(facts, "Q-learning")
    if cfg.algo.grad_clip == "per_network":
        words = "Q-learning has only one network"
        yield Problem("one_network", ("algo.grad_clip", "algo.name"), words, fix("algo.grad_clip", "joint"))
    yield from _score_problems(cfg)
    if not bad.isdisjoint(_Q_SIZE_KEYS):
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
    if not cfg.score.every:
        return
    number = derive.scored_per_pass(cfg)
    if number > cfg.replay.capacity:
        key = "score.coverage" if cfg.score.coverage else "score.transitions"
        words = f"{number:,} transitions per pass are more than the buffer holds, {cfg.replay.capacity:,}"
        works = fix(key, 0.25 if cfg.score.coverage else cfg.replay.capacity)
        yield Problem("pass_large", (key, "replay.capacity"), words, works)
    if cfg.score.actions == "all" and facts:
        joint = facts.num_actions**cfg.env.num_agents
        if joint > _MOST_JOINT_ACTIONS:
            words = f"{cfg.env.num_agents} agents have {joint:,} joint actions, too many to try all"
            works = fix("score.actions", "single")
            yield Problem("joint_actions", ("score.actions", "env.num_agents"), words, works)


def _score_problems(cfg: Config) -> Iterator[Problem]:
    score = cfg.score
    if not score.every:
        if cfg.replay.mixing in ("additive", "multiplicative"):
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


def _q_warnings(cfg: Config) -> Iterator[Problem]:
    """Find what will run, but perhaps not as intended."""
    updates = -(-cfg.run.total_steps // (cfg.env.num_envs * cfg.algo.num_steps))
    if derive.first_learning_update(cfg) >= updates:
        words = "the run ends before the buffer holds that many transitions, so nothing is learned"
        works = fix("dqn.learn_starts", max(cfg.run.total_steps // 20, 1))
        yield Problem("no_learning", ("dqn.learn_starts", "run.total_steps"), words, works)
    if derive.replay_ratio(cfg) < _LOW_RATIO:
        words = f"a transition is trained on {derive.replay_ratio(cfg):.4f} times on average"
        wanted = math.ceil(cfg.env.num_envs * cfg.algo.num_steps / cfg.dqn.batch_size)
        keys = ("dqn.gradient_steps", "dqn.batch_size", "env.num_envs", "algo.num_steps")
        yield Problem("ratio_low", keys, words, fix("algo.num_steps", 4) + fix("dqn.gradient_steps", wanted))
    if not cfg.score.every:
        return
    if cfg.replay.mixing in ("uniform", "td"):
        words = "scores are computed and logged, but sampling does not use them"
        works = fix("replay.mixing", "additive") + fix("score.every", 0)
        yield Problem("scores_unused", ("score.every", "replay.mixing"), words, works)
    elif derive.expected_coverage(cfg) < _LOW_COVERAGE:
        words = f"a transition is scored {derive.expected_coverage(cfg):.3f} times on average before it is overwritten"
        yield Problem("coverage_low", ("score.every", "score.transitions"), words, fix("score.coverage", 0.25))
