"""What follows from a configuration: sizes, counts, and everything that is wrong with it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from hmx.config import q_rules, smax_facts, switches
from hmx.config.coerce import BadValue, coerce, show
from hmx.config.divisors import neighbours
from hmx.config.env_facts import EXTRAS, extra_of, own_agents, step_limit
from hmx.config.fields import FIELDS, get
from hmx.config.hypers import SCHEDULED
from hmx.config.limits import LIMITS
from hmx.config.names import clean_run_name, is_run_name, nearest
from hmx.config.problem import Problem, error
from hmx.config.schema import ENV_IDS, Config

SEVERAL_AGENTS = ("rendezvous",)
"""The environments with as many agents as the configuration says."""


class Derived(NamedTuple):
    """Sizes of a run, per seed; an update is one rollout and its gradient steps.

    `steps` are environment steps. An agent step is one step of one agent: `env.num_agents` times as many.
    """

    batch_size: int  # steps per update = env.num_envs x algo.num_steps
    agent_steps: int  # per update
    horizon: int  # agent steps of a training row
    segments: int  # training rows per update
    minibatch_segments: int  # rows per gradient step
    minibatch_size: int  # agent steps per gradient step
    gradient_steps_per_update: int
    num_updates: int  # whole updates that reach run.total_steps, see `num_updates`
    gradient_steps: int  # over the whole run
    total_env_steps: int  # that really run: num_updates x batch_size, at least run.total_steps
    updates_per_chunk: int  # at most run.updates_per_chunk
    steps_per_chunk: int  # of a full chunk
    num_chunks: int  # the last one may be shorter
    num_checkpoints: int  # written over the run, whether kept or not
    all_env_steps: int  # over all seeds


def derive(cfg: Config) -> Derived:
    """The sizes of a run; the configuration must have no `problems`."""
    batch = cfg.env.num_envs * cfg.algo.num_steps
    agent_steps, length = batch * cfg.env.num_agents, horizon(cfg)
    is_dqn = cfg.algo.name == "dqn"
    minibatches = cfg.algo.num_minibatches
    minibatch = cfg.dqn.batch_size * cfg.env.num_agents if is_dqn else agent_steps // minibatches
    per_update = cfg.dqn.gradient_steps if is_dqn else cfg.algo.update_epochs * minibatches
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
        gradient_steps=per_update * (max(updates - q_rules.first_learning_update(cfg), 0) if is_dqn else updates),
        total_env_steps=updates * batch,
        updates_per_chunk=per_chunk,
        steps_per_chunk=per_chunk * batch,
        num_chunks=chunks,
        num_checkpoints=_ceil_div(chunks, cfg.run.checkpoint_every),
        all_env_steps=updates * batch * cfg.run.num_seeds,
    )


def num_updates(cfg: Config) -> int:
    """Updates of a run: the fewest that reach `run.total_steps`, rounded up once or, as Brax does, in every epoch.

    Brax's training runs `ceil(steps / (epochs x batch))` updates in each of
    `max(evals - 1, 1) x max(resets per eval, 1)` epochs, and so overshoots small budgets (brax/training/agents/ppo).
    """
    epochs = cfg.run.budget_epochs if cfg.run.budget == "brax" else 1
    return epochs * _ceil_div(cfg.run.total_steps, epochs * cfg.env.num_envs * cfg.algo.num_steps)


def horizon(cfg: Config) -> int:
    """Steps of one agent in a training row: what was asked for, else whole rollouts with a memory and 1 without."""
    return cfg.algo.bptt_horizon or (1 if cfg.net.rnn == "none" else cfg.algo.num_steps)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


_SIZE_KEYS = (
    "run.total_steps", "env.num_envs", "env.num_agents", "net.rnn", "algo.num_steps", "algo.num_minibatches",
    "algo.bptt_horizon",
)  # fmt: skip


def problems(cfg: Config) -> list[Problem]:
    """Everything that keeps the configuration from running, each with values that work.

    Rules that need several values are applied only where each of those is fit on its own.
    """
    found = [*_types(cfg)]
    bad = {key for p in found for key in p.keys}
    found += _ranges(cfg, bad)
    bad = {key for p in found for key in p.keys}
    found += [p for p in (*_names(cfg), *switches.problems(cfg)) if not bad.intersection(p.keys)]
    found += [p for p in q_rules.not_read(cfg) if not bad.intersection(p.keys)]
    if cfg.algo.name == "dqn":
        found += [p for p in q_rules.problems(cfg, bad) if not bad.intersection(p.keys)]
    if not bad.intersection(_SIZE_KEYS):
        found += _sizes(cfg)
    return found


def warnings(cfg: Config) -> list[Problem]:
    """What will run, but perhaps not as meant; the configuration must have no `problems`."""
    return [*_length_warnings(cfg), *_other_warnings(cfg), *switches.warnings(cfg)]


def check(cfg: Config, origins: Mapping[str, str] | None = None) -> None:
    """Raises one `HmxError` that lists every problem, with the origin of each value where `origins` tells it."""
    if found := problems(cfg):
        raise error(found, {key: show(get(cfg, key)) for key in FIELDS}, origins)


def _types(cfg: Config) -> Iterator[Problem]:
    for key, field in FIELDS.items():
        try:
            coerce(field, get(cfg, key))
        except BadValue as bad:
            yield Problem("value", (key,), bad.message, bad.suggestion)


def _ranges(cfg: Config, bad: set[str]) -> Iterator[Problem]:
    for key, limit in LIMITS.items():
        if key in bad:
            continue
        value = get(cfg, key)
        values: tuple[Any, ...] = value if isinstance(value, tuple) else (value,)
        if not values and FIELDS[key].default:
            yield Problem("range", (key,), "needs at least one width", f"{key}={show(FIELDS[key].default)}")
        elif not all(limit.holds(v) for v in values):
            works = tuple(v if limit.holds(v) else limit.near(v) for v in values)
            yield Problem("range", (key,), f"must be {limit.words}", f"{key}={show(works)}")


def _names(cfg: Config) -> Iterator[Problem]:
    if cfg.env.id not in ENV_IDS and not extra_of(cfg.env.id):
        near = nearest(cfg.env.id, ENV_IDS)
        others = ", ".join(f"{extra}/NAME" for extra in EXTRAS)
        words = f"no such environment; known are {', '.join(ENV_IDS)}, and with optional extras {others}"
        yield Problem("unknown_env", ("env.id",), words, f"env.id={near or ENV_IDS[0]}")
    elif unknown := smax_facts.unknown(cfg.env.id):
        yield unknown
    elif cfg.net.kind == "cells" and (cfg.env.id != "hackmatrix" or cfg.env.obs != "packed"):
        yield Problem(
            "net_kind",
            ("net.kind", "env.id", "env.obs"),
            "the cells network reads HackMatrix's packed board only",
            "net.kind=mlp",
        )
    for name, (schedule, end) in SCHEDULED.items():
        if getattr(cfg.algo, schedule) == "exponential" and getattr(cfg.algo, end) > 1.0:
            words = f"an exponential schedule only falls, and {name} would end above its start"
            works = f"algo.{schedule}=linear or algo.{end}=1.0"
            yield Problem("schedule_rises", (f"algo.{end}", f"algo.{schedule}"), words, works)
    yield from _agents(cfg)
    if cfg.algo.clip_vf_eps > 0 and cfg.algo.value_target == "two_hot":
        keys = ("algo.clip_vf_eps", "algo.value_target")
        yield Problem("clip_two_hot", keys, "a two_hot value cannot be clipped", "algo.clip_vf_eps=0")
    if cfg.run.name and not is_run_name(cfg.run.name):
        words = "must be 1 to 100 letters, digits, dots, dashes or underscores, the first a letter or digit"
        yield Problem("run_name", ("run.name",), words, f"run.name={clean_run_name(cfg.run.name)}")
    if not cfg.run.root:
        yield Problem("run_root", ("run.root",), "must name a folder", "run.root=runs")


def _agents(cfg: Config) -> Iterator[Problem]:
    keys, fixed = ("env.num_agents", "env.id"), own_agents(cfg.env.id)
    if fixed and cfg.env.num_agents != fixed:
        yield Problem("num_agents", keys, f"{cfg.env.id} has {fixed} agents", f"env.num_agents={fixed}")
    known = cfg.env.id in ENV_IDS or (extra_of(cfg.env.id) and not cfg.env.id.startswith(smax_facts.PREFIX))
    if cfg.env.num_agents > 1 and known and cfg.env.id not in SEVERAL_AGENTS:
        words = f"{cfg.env.id} has one agent; several have {', '.join(SEVERAL_AGENTS)}, and those of smax"
        yield Problem("num_agents", keys, words, "env.num_agents=1")


def _sizes(cfg: Config) -> Iterator[Problem]:
    steps = cfg.algo.num_steps
    if cfg.algo.name == "ppo":
        yield from _rows(cfg)
    batch = cfg.env.num_envs * steps
    if cfg.run.total_steps < batch:
        works = [f"run.total_steps={batch}"]
        fewer = cfg.run.total_steps // steps
        rows = fewer * cfg.env.num_agents * (steps // horizon(cfg))
        if fewer and (cfg.algo.name == "dqn" or rows % cfg.algo.num_minibatches == 0):
            works.append(f"env.num_envs={fewer}")
        words = f"fewer steps than one update takes: {cfg.env.num_envs:,} x {steps:,} = {batch:,}"
        yield Problem("too_short", ("run.total_steps", "env.num_envs", "algo.num_steps"), words, " or ".join(works))


def _rows(cfg: Config) -> Iterator[Problem]:
    length, steps = horizon(cfg), cfg.algo.num_steps
    if steps % length:
        works = [f"algo.bptt_horizon={n}" for n in neighbours(steps, length)]
        works += [f"algo.num_steps={n}" for n in (steps // length * length, _ceil_div(steps, length) * length) if n]
        words = f"{steps:,} steps of each agent do not split into rows of {length:,}"
        yield Problem("row_split", ("algo.bptt_horizon", "algo.num_steps"), words, " or ".join(works))
    else:
        yield from _minibatches(cfg, steps // length)
    if length == 1 and cfg.algo.row_end != "bootstrap":
        words = "the last step of a row is not learned from, and rows of one step have no other"
        mended = f"algo.row_end=bootstrap or algo.bptt_horizon={steps}"
        yield Problem("row_end", ("algo.row_end", "algo.bptt_horizon"), words, mended)


def _minibatches(cfg: Config, rows_per_agent: int) -> Iterator[Problem]:
    envs, minibatches = cfg.env.num_envs, cfg.algo.num_minibatches
    per_env = cfg.env.num_agents * rows_per_agent
    rows = envs * per_env
    if rows % minibatches == 0:
        return
    works = [f"algo.num_minibatches={n}" for n in neighbours(rows, minibatches)]
    unit = minibatches // math.gcd(per_env, minibatches)
    fewer = envs // unit * unit
    works += [f"env.num_envs={fewer}"] if fewer else []
    what = "steps" if horizon(cfg) == 1 else f"rows of {horizon(cfg):,} steps"
    words = f"{envs:,} x {per_env:,} = {rows:,} {what} do not split into {minibatches:,} equal minibatches"
    keys = ("algo.num_minibatches", "env.num_envs", "algo.num_steps")
    yield Problem("batch_split", keys, words, " or ".join(works))


def _length_warnings(cfg: Config) -> Iterator[Problem]:
    sizes = derive(cfg)
    asked, real = cfg.run.total_steps, sizes.total_env_steps
    if real != asked:
        words = f"{sizes.num_updates:,} updates of {sizes.batch_size:,} steps are {real:,}: that many will run"
        works = f"run.total_steps={real} or run.total_steps={real - sizes.batch_size}"
        if cfg.run.budget == "brax":
            works = f"run.total_steps={real} or run.budget=exact"
        yield Problem("rounded_up", ("run.total_steps",), words, works)
    if step_limit(cfg.env) == 0:
        words = "episodes have no step limit, so one that stalls never ends"
        yield Problem("no_limit", ("env.max_steps",), words, "env.max_steps=1000")
    undamped = cfg.algo.gamma == 1.0 and (cfg.algo.name == "dqn" or cfg.algo.gae_lambda == 1.0)
    if undamped and step_limit(cfg.env) == 0:
        words = "no discount, no lambda and no step limit: returns may grow without bound"
        yield Problem("unbounded", ("algo.gamma", "algo.gae_lambda"), words, "algo.gamma=0.99")


def _other_warnings(cfg: Config) -> Iterator[Problem]:
    if cfg.algo.name == "dqn":
        yield from q_rules.warnings(cfg)
        return
    sizes = derive(cfg)
    if cfg.algo.norm_adv and sizes.minibatch_size == 1:
        words = "a minibatch of one step has no spread to normalise by: every advantage becomes 0"
        yield Problem("norm_one", ("algo.norm_adv", "algo.num_minibatches"), words, "algo.norm_adv=false")
    if cfg.env.id == "recall" and 0 < cfg.env.max_steps <= cfg.env.recall_delay:
        words = "episodes are cut before the question comes"
        yield Problem("no_question", ("env.max_steps", "env.recall_delay"), words, "env.max_steps=1000")
    if cfg.net.rnn != "none" and sizes.horizon == 1:
        words = "rows of one step: the gradient never reaches an earlier step, so nothing is learned to be remembered"
        yield Problem("no_bptt", ("algo.bptt_horizon", "net.rnn"), words, "algo.bptt_horizon=0")
    if cfg.algo.prio_alpha and 4 * sizes.minibatch_segments > sizes.segments:
        words = "a draw without replacement of more than a quarter of the rows hardly prefers any"
        yield Problem("prio_coarse", ("algo.prio_alpha", "algo.num_minibatches"), words, "algo.num_minibatches=4")
