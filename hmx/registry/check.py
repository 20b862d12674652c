"""Find everything that is wrong, or perhaps unintended, in a configuration, by asking its parts.

What only one algorithm or environment needs is in the `check` and `warn` of its entry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hmx.config.codec import EARLIER_DEFAULTS
from hmx.config.coerce import BadValue, check_range, coerce, show
from hmx.config.fields import FIELDS, OWN_SECTIONS, Field, own_key, replace, values_of
from hmx.config.names import clean_run_name, is_run_name
from hmx.config.option import ALGORITHMS
from hmx.config.problem import Problem, error, fix
from hmx.config.references import is_reference
from hmx.config.schedules import SCHEDULED
from hmx.config.schema import ENTRIES, ENV_IDS, NET_KINDS, AlgoConfig, Config, EnvConfig, NetConfig, RunConfig
from hmx.errors import HmxError, counted, nearest
from hmx.registry import environments, user_code
from hmx.registry.algorithms import AlgorithmEntry, built_in, find_algorithm
from hmx.registry.derive import Derived, derive
from hmx.registry.environments import EXTRAS, EnvSource, features_of, find_environment, find_source
from hmx.registry.sizes import Sizes
from hmx.registry.workers import simulator_problems

_SIZE_KEYS = (
    "run.total_steps", "env.num_envs", "env.num_agents", "net.rnn", "algo.num_steps", "ppo.num_minibatches",
    "ppo.bptt_horizon",
)  # fmt: skip


def problems(cfg: Config, sizes: Sizes | None) -> list[Problem]:
    """Find all problems that prevent the configuration from running, each with values that work.

    Rules that need several values are applied only where each of those is valid on its own.

    Args:
        cfg: the configuration.
        sizes: of its environment; None if they are not known yet; rules that need them are then skipped.
    """
    values = values_of(cfg)
    single = [problem for key, field in FIELDS.items() for problem in _value_problems(field, values[key])]
    bad = {key for problem in single for key in problem.keys}
    entry, source = find_algorithm(cfg.algo.name), find_source(cfg.env.id)
    environment = find_environment(cfg.env.id)
    simulated = None if sizes is None else sizes.simulated
    if environment is not None and environment.simulated:
        simulated = True
    together = [
        *_environment(cfg.env, cfg.net.kind, cfg.starts.share, source),
        *_schedules(values),
        *_own_code(values, entry, source),
        *_agents(cfg.env),
        *(() if simulated is None else simulator_problems(cfg.env, cfg.run, simulated)),
        *_run_folder(cfg.run),
        *_rollback(cfg.run),
        *_reports(cfg.run),
        *_networks(cfg.algo, cfg.net, cfg.env, sizes),
        *entry.check(cfg, sizes, bad),
        *_not_read(entry, values),
    ]
    together = [problem for problem in together if not bad.intersection(problem.keys)]
    if not bad.intersection(_SIZE_KEYS):
        together += _too_short(cfg, entry)
    return single + together


def warnings(cfg: Config, sizes: Sizes | None) -> list[Problem]:
    """Find settings that run but may be unintended; the configuration must have no `problems`."""
    entry, environment = find_algorithm(cfg.algo.name), find_environment(cfg.env.id)
    unlimited = sizes is not None and sizes.max_steps == 0
    undamped = cfg.algo.gamma == 1.0 and (entry.replays or cfg.ppo.gae_lambda == 1.0)
    return [
        *_rounded_up(cfg.run, derive(cfg)),
        *(_unlimited(undamped) if unlimited else ()),
        *(_statistics(sizes.statistics) if sizes is not None and sizes.statistics else ()),
        *(environment.warn(cfg) if environment else ()),
        *_of_other_environments(cfg.env.id, values_of(cfg)),
        *_value_torso(cfg.net),
        *(_flat_image(cfg.net, cfg.env) if sizes is not None and sizes.image else ()),
        *entry.warn(cfg),
    ]


def check(cfg: Config, sizes: Sizes | None, origins: Mapping[str, str] | None = None) -> None:
    """Raise one `HmxError` that lists every problem, with the origin of each value if it is in `origins`."""
    if unfit := problems(cfg, sizes):
        raise error_of(unfit, values_of(cfg), origins)


def known_problems(cfg: Config) -> list[Problem]:
    """Find the problems that are known without building the environment."""
    return problems(cfg, environments.known_sizes(cfg.env))


def known_warnings(cfg: Config) -> list[Problem]:
    """Find the warnings that are known without building the environment."""
    return warnings(cfg, environments.known_sizes(cfg.env))


def error_of(unfit: Sequence[Problem], values: Mapping[str, Any], origins: Mapping[str, str] | None = None) -> HmxError:
    """Make one error of all problems, with the value of each key and its origin."""
    return error(unfit, {key: show(values[key]) for key in FIELDS}, origins)


def needs_discrete(sizes: Sizes | None, what: str) -> Iterator[Problem]:
    """Refuse continuous actions for `what`, where the sizes are known."""
    if sizes and sizes.action_dim:
        words = f"its actions are continuous, but {what} needs discrete ones"
        yield Problem("continuous", ("env.id", "algo.name"), words, fix("algo.name", "ppo"))


def _value_problems(field: Field, value: Any) -> Iterator[Problem]:
    for code, check_value in (("value", coerce), ("range", check_range)):
        try:
            check_value(field, value)
        except BadValue as bad:
            yield Problem(code, (field.key,), bad.message, fix(field.key, bad.works))
            return


def _not_read(entry: AlgorithmEntry, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Find the keys that the algorithm does not read and that are not at their defaults.

    The value decides, not its origin, so a run.toml, which contains every key, has no such problems either.
    """
    if entry.own:
        return
    chosen = entry.name != FIELDS["algo.name"].default
    for key, field in FIELDS.items():
        if not field.read_by(entry.name) and values[key] != field.default:
            reader = None if chosen or field.section not in ALGORITHMS else field.section
            fixes = fix("algo.name", reader) + fix(key, field.default)
            yield Problem("not_read", (key,), f"{entry.name} does not read it", fixes)


def _schedules(values: Mapping[str, Any]) -> Iterator[Problem]:
    for name, at in SCHEDULED.items():
        if values[at.schedule] == "exponential" and values[at.end] > 1.0:
            words = f"an exponential schedule only falls, but {name} would end above its start"
            works = fix(at.schedule, "linear") + fix(at.end, 1.0)
            yield Problem("schedule_rises", (at.end, at.schedule), words, works)


def _run_folder(run: RunConfig) -> Iterator[Problem]:
    if run.name and not is_run_name(run.name):
        words = "must be 1 to 100 letters, digits, dots, dashes or underscores, and start with a letter or digit"
        yield Problem("run_name", ("run.name",), words, fix("run.name", clean_run_name(run.name)))
    if not run.root:
        yield Problem("run_root", ("run.root",), "must name a folder", fix("run.root", "runs"))


def _environment(env: EnvConfig, net_kind: str, start_share: float, source: EnvSource | None) -> Iterator[Problem]:
    """Find an environment that does not exist, and what the chosen one does not offer."""
    entry = find_environment(env.id)
    if source is None and not env.sha256:  # a package that registered it may not be installed here
        near = nearest(env.id, ENV_IDS)
        extra = env.id.rstrip("/")
        own = f"that of an extra is {extra}/NAME" if extra in EXTRAS else "your own is ./FILE.py or package.module:make"
        words = f"no such environment; hmx envs lists all, and {own}"
        if env.id.startswith((".", "/")):
            yield Problem("unknown_env", ("env.id",), "a file ends in .py", fix("env.id", f"{env.id}.py"))
        elif near:
            yield Problem("unknown_env", ("env.id",), "no such environment", fix("env.id", near))
        else:
            yield Problem("unknown_env", ("env.id",), words, fix("env.id", ENV_IDS[0]))
    elif source is not None and source.origin == "extra" and entry is None:
        known = environments.names_in(source.target)
        near, words = nearest(env.id.partition("/")[2], known), "no such environment"
        if near is None:
            words += f"; {source.target} has {counted(len(known), 'environment')}, such as {', '.join(known[:3])}"
        yield Problem("unknown_env", ("env.id",), words, fix("env.id", f"{source.target}/{near or known[0]}"))
    elif net_kind == "cells" and "cells" not in features_of(env):
        words = "the cells network reads only packed or counted observations of HackMatrix"
        yield Problem("net_kind", ("net.kind", "env.id", "env.obs"), words, fix("net.kind", "mlp"))
    starts = FIELDS["starts.share"]
    if start_share and not starts.of_env(env.id):
        words = f"{env.id} has no later stages to begin in; only {', '.join(starts.envs)} has"
        yield Problem("starts_env", ("starts.share", "env.id"), words, fix("starts.share", 0))
    elif start_share and env.reset_on_done != "fresh":
        words, works = "both decide how the next episode begins", fix("env.reset_on_done", "fresh")
        yield Problem("starts_reset", ("starts.share", "env.reset_on_done"), words, works)
    if env.world_state and not FIELDS["env.world_state"].of_env(env.id):
        words = "only SMAX has a world state"
        yield Problem("world_state", ("env.world_state", "env.id"), words, fix("env.world_state", False))


def _own_code(values: Mapping[str, Any], entry: AlgorithmEntry, source: EnvSource | None) -> Iterator[Problem]:
    """Find a network or algorithm that does not exist, and what the chosen ones do not allow."""
    for key, known in (("net.kind", NET_KINDS), ("algo.name", ALGORITHMS)):
        name = values[key]
        if name in known or is_reference(name):
            continue
        installed = tuple(point.name for point in user_code.registered(key)) if key == "algo.name" else ()
        if name not in installed:
            words = f"is not one of {', '.join((*known, *installed))}, or a file of your own such as ./my.py"
            yield Problem("value", (key,), words, fix(key, nearest(name, (*known, *installed)) or known[0]))
    if not entry.reporter and values["run.grad_report_every"]:
        words = f"gradient reports are of {reported()}"
        yield Problem("own_reports", ("run.grad_report_every", "algo.name"), words, fix("run.grad_report_every", 0))
    own = {"env": source is None or source.own, "net": is_reference(values["net.kind"]), "algo": entry.own}
    for section, key in OWN_SECTIONS.items():
        keys = tuple(name for name in values if name.startswith(own_key(section, "")))
        if keys and not own[section]:
            yield Problem("no_options", (*keys, key), f"{values[key]} declares no options of its own")


def _rollback(run: RunConfig) -> Iterator[Problem]:
    """Refuse to take agents that learn back with one that does not."""
    if run.on_finding == "rollback" and run.num_seeds > 1:
        words = "a rollback is of a single agent"
        yield Problem(
            "rollback",
            ("run.on_finding", "run.num_seeds"),
            words,
            fix("run.num_seeds", 1) + fix("run.on_finding", "stop"),
        )


def _reports(run: RunConfig) -> Iterator[Problem]:
    """Find more buckets than start states to fill them."""
    groups, buckets = run.grad_report_groups, run.grad_report_buckets
    if buckets > groups:
        words = f"{counted(groups, 'start state')} cannot fill {buckets:,} buckets"
        works = fix("run.grad_report_buckets", groups) + fix("run.grad_report_groups", buckets)
        yield Problem("report_buckets", ("run.grad_report_buckets", "run.grad_report_groups"), words, works)


def reported() -> str:
    """Return the names of the algorithms whose gradients hmx reports on."""
    return " and ".join(entry.name for entry in built_in() if entry.reporter)


def _agents(env: EnvConfig) -> Iterator[Problem]:
    entry = find_environment(env.id)
    if entry is None or env.num_agents == (entry.num_agents or env.num_agents):
        return
    words = f"{env.id} has {counted(entry.num_agents, 'agent')}"
    if entry.num_agents == 1:
        several = dict.fromkeys(other.id.partition("/")[0] for other in ENTRIES if other.num_agents != 1)
        words = f"{env.id} has one agent; only {' and '.join(several)} have several"
    yield Problem("num_agents", ("env.num_agents", "env.id"), words, fix("env.num_agents", entry.num_agents))


def _networks(algo: AlgoConfig, net: NetConfig, env: EnvConfig, sizes: Sizes | None) -> Iterator[Problem]:
    """Find what one network for policy and value rules out, and a network that cannot read the observations."""
    if algo.grad_clip == "per_network" and net.shared_torso:
        words = "policy and value share layers, so there is only one network to clip"
        works = fix("net.shared_torso", False) + fix("algo.grad_clip", "joint")
        yield Problem("clip_shared", ("algo.grad_clip", "net.shared_torso"), words, works)
    if env.world_state and net.shared_torso:
        words = "a world state that only the value network sees needs a separate value network"
        yield Problem("world_shared", ("env.world_state", "net.shared_torso"), words, fix("net.shared_torso", False))
    elif sizes is not None and sizes.value_only and net.shared_torso:
        words = f"{env.id} shows numbers that only the value network reads, so it needs a separate one"
        yield Problem("critic_shared", ("net.shared_torso", "env.id"), words, fix("net.shared_torso", False))
    if sizes is not None and net.kind == "cnn" and not sizes.image:
        words = f"a cnn reads images (docs/environments.md), and {env.id} shows none"
        yield Problem("net_kind", ("net.kind", "env.id"), words, fix("net.kind", "mlp"))


def _too_short(cfg: Config, entry: AlgorithmEntry) -> Iterator[Problem]:
    """Find a run that is shorter than one update."""
    envs, steps = cfg.env.num_envs, cfg.algo.num_steps
    batch = envs * steps
    if cfg.run.total_steps >= batch:
        return
    works = fix("run.total_steps", batch)
    fewer = cfg.run.total_steps // steps
    smaller = entry.check(replace(cfg, {"env.num_envs": fewer}), None, ()) if fewer else ()
    if fewer and not any("env.num_envs" in problem.keys for problem in smaller):
        works += fix("env.num_envs", fewer)
    words = f"fewer steps than one update takes: {envs:,} x {steps:,} = {batch:,}"
    if cfg.run.budget == "brax":
        words += "; for a small start with Brax, take --preset sound in place of --preset brax"
    yield Problem("too_short", ("run.total_steps", "env.num_envs", "algo.num_steps"), words, works)


def _rounded_up(run: RunConfig, derived: Derived) -> Iterator[Problem]:
    asked, real = run.total_steps, derived.total_env_steps
    if real != asked:
        words = f"{derived.num_updates:,} updates of {derived.batch_size:,} steps will run, {real:,} steps in total"
        exact = run.budget == "exact"
        other = fix("run.total_steps", real - derived.batch_size) if exact else fix("run.budget", "exact")
        yield Problem("rounded_up", ("run.total_steps",), words, fix("run.total_steps", real) + other)


def _unlimited(undamped: bool) -> Iterator[Problem]:
    words = "episodes have no step limit, so an agent that makes no progress never ends one"
    yield Problem("no_limit", ("env.max_steps",), words, fix("env.max_steps", 1000))
    if undamped:
        words = "without discount, lambda and step limit, returns may grow without bound"
        yield Problem("unbounded", ("algo.gamma", "ppo.gae_lambda"), words, fix("algo.gamma", 0.99))


def _statistics(wrappers: Sequence[str]) -> Iterator[Problem]:
    several = len(wrappers) > 1
    words = (
        f"its {'wrappers' if several else 'wrapper'} {' and '.join(wrappers)} {'keep' if several else 'keeps'} running "
        "statistics that outlive an episode: those of training are not saved, evaluation starts without them, and "
        f"rewards that they scale are in other units; make it without {'them' if several else 'it'}, and set "
        "ppo.obs_norm=network for observations, ppo.value_target=return_norm or ppo.reward_scale for rewards"
    )
    yield Problem("statistics", ("env.id",), words)


def _flat_image(net: NetConfig, env: EnvConfig) -> Iterator[Problem]:
    if net.kind == "mlp":
        words = f"an mlp reads an image of {env.id} as a list of numbers, and does not know which are neighbours"
        yield Problem("flat_image", ("net.kind", "env.id"), words, fix("net.kind", "cnn"))


def _of_other_environments(env_id: str, values: Mapping[str, Any]) -> Iterator[Problem]:
    """Find the keys that the environment does not read and that are not at their defaults, today's or earlier ones."""
    for key, field in FIELDS.items():
        _, earlier = EARLIER_DEFAULTS.get(key, (0, field.default))
        if not field.of_env(env_id) and values[key] not in (field.default, earlier):
            fixes = fix("env.id", field.envs[0]) + fix(key, field.default)
            yield Problem("not_read_by_env", (key,), f"{env_id} does not read it", fixes)


def _value_torso(net: NetConfig) -> Iterator[Problem]:
    if net.value_hidden and net.shared_torso:
        words = "has no effect without a separate value torso"
        yield Problem("value_hidden", ("net.value_hidden", "net.shared_torso"), words, fix("net.shared_torso", False))
