"""The inputs of `hmx compute-config` and their source: what `hmx train` runs by default, a preset, a file or a run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hmx.config.fields import FIELDS
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.errors import HmxError
from hmx.records.layout import find_run
from hmx.registry.check import known_problems
from hmx.registry.derive import Derived, derive
from hmx.registry.environments import find_environment
from hmx.registry.load import Loaded, load, read_file
from hmx.registry.workers import worker_plan
from hmx.reports.compute_config.inputs import BatchInputs
from hmx.reports.compute_config.trainer import config_of, inputs_of
from hmx.runs.memory_parts import Memory

METTA = "metta"
"""The preset whose inputs are those of the Metta training equations, and whose hyperparameters go with them."""

EQUATIONS = "the Metta training equations"
"""The source if inputs are named, and no configuration."""

DEFAULTS = "hmx train"
ENV_KEY = "env.id"
TABLE = "batch"

SIZE_KEYS = {
    "env.num_envs", "env.num_agents", "env.num_workers", "env.envs_per_worker", "env.async_factor",
    "algo.num_steps", "ppo.bptt_horizon", "ppo.num_minibatches", "ppo.update_epochs", "run.total_steps",
}  # fmt: skip
"""The configuration keys of `hmx train` that the inputs determine."""


@dataclass(frozen=True, kw_only=True)
class SizesSource:
    """The inputs that options override, and all other values that the sizes depend on."""

    name: str
    inputs: Mapping[str, object]  # missing ones take their defaults
    trainer: Config | None  # configuration of `hmx train` that the inputs come from, if any
    hypers: Config  # the same, or only hyperparameters, environment and network
    workers: bool = False  # whether worker processes step the environments
    memory: Callable[[Config], Memory | None] | None = None  # of configurations of `hmx train`
    notes: tuple[str, ...] = ()

    def trained(self, inputs: BatchInputs) -> Config:
        """Return the configuration of `hmx train` with other inputs, see `config_of`."""
        return config_of(inputs, self.hypers, self.workers)


def read_source(
    preset: str | None = None,
    config: str | Path | None = None,
    run: str | Path | None = None,
    sets: Iterable[str] = (),
    flags: Mapping[str, object] | None = None,
    named: Iterable[str] = (),
) -> SizesSource:
    """Read the named source; refuse algorithms that replay.

    Without a run, a file, a preset or an environment it is what `hmx train` runs by default or, if any input is
    named, the Metta training equations.

    Args:
        preset: Name of a preset; `metta` stands for the equations.
        config: File of `hmx train`, or one with a table `[batch]` of inputs.
        run: Name or path of a run.
        sets: Options of `hmx train` as `KEY=VALUE`, see `hmx.registry.load.load`.
        flags: Options of `hmx train` by key.
        named: Names of the inputs that will override those of the source.
    """
    sets, flags, named = tuple(sets), flags or {}, tuple(named)
    if run is not None:
        for option, value in (("--preset", preset), ("--config", config)):
            if value is not None:
                raise HmxError(f"cannot combine a run with {option}: a run has its own configuration", "leave one out")
        paths = find_run(run)
        given = load(file=paths.config, environ={}, sets=sets, flags=flags, check=False)
        return _of_trainer(f"run {paths.name}", given)
    file = None if config is None else Path(config)
    table = None if file is None else _table(file)
    name = " and ".join([f"preset {preset}"] * (preset is not None) + [str(file)] * (file is not None))
    other_env = ENV_KEY in flags or any(text.partition("=")[0].strip() == ENV_KEY for text in sets)
    by_name = bool(named) and preset is None and file is None and not other_env
    equations = by_name or (preset == METTA and file is None) or (table is not None and preset in (None, METTA))
    if not equations:
        trained = None if table is not None else file
        loaded = load(preset=preset, file=trained, sets=sets, flags=flags, check=False)
        source = _of_trainer(name or DEFAULTS, loaded)
    else:
        if sets or flags:
            raise _mixed(name, named, sets, flags)
        hypers = load(preset=METTA, environ={}, check=False).config
        notes = (_relation(derive(hypers), hypers.env, hypers.ppo.num_minibatches),) if preset else ()
        if by_name:
            notes = ("hmx compute-config without these inputs, or with --env, sizes hmx train",)
        source = SizesSource(name=name or EQUATIONS, inputs={}, trainer=None, hypers=hypers, workers=True, notes=notes)
    return replace(source, inputs={**source.inputs, **(table or {})})


def _mixed(name: str, named: Iterable[str], sets: Iterable[str], flags: Mapping[str, object]) -> HmxError:
    """Return the error about inputs of the equations beside options of `hmx train`, which have other sizes."""
    trained = ", ".join([*(FIELDS[key].flag for key in flags), *(f"--set {text}" for text in sets)])
    inputs = ", ".join(f"--{each.replace('_', '-')}" for each in named)
    if name:
        message = f"cannot combine {trained} of hmx train with {name}, which has the sizes of {EQUATIONS}"
        return HmxError(message, f"leave out {trained}, or give sizes such as --num-agents and --batch-size")
    message = f"cannot combine {inputs}, of {EQUATIONS}, with {trained}, of hmx train"
    return HmxError(message, f"leave out {trained} for the equations, or name an environment for hmx train with --env")


def _of_trainer(name: str, task: Loaded) -> SizesSource:
    cfg, entry = task.config, task.algorithm
    if entry.replays:
        raise HmxError(
            f"cannot compute batch sizes for {name}: {entry.name} draws its batches from a replay buffer",
            "hmx train --dry-run with the same options shows its sizes, its replay ratio and its memory",
        )
    if entry.own:
        raise HmxError(
            f"cannot compute batch sizes for {name}: {entry.name} is not part of hmx, so its sizes are not known",
            "hmx train --dry-run with the same options shows its memory",
        )
    broken = {key for p in known_problems(cfg) if p.code in ("value", "range") for key in p.keys}
    if SIZE_KEYS & broken:
        return SizesSource(name=name, inputs={}, trainer=cfg, hypers=cfg)
    plan = worker_plan(cfg.env) if _has_workers(cfg.env, cfg.reward) else None
    if plan is not None and not entry.simulators:  # it steps copies, all in one forward pass
        plan = plan._replace(num_groups=1)
    return SizesSource(
        name=name,
        inputs=vars(inputs_of(cfg, plan)),
        trainer=cfg,
        hypers=cfg,
        workers=plan is not None,
        memory=_ask_memory,
    )


def _has_workers(cfg: EnvConfig, weights: RewardWeights) -> bool:
    """Return whether worker processes step the environment; user code that cannot be built has none."""
    if (entry := find_environment(cfg.id)) is not None:
        return entry.simulated
    from hmx.envs.registry import make_env  # imports JAX

    try:
        return make_env(cfg, weights).spec.simulator is not None
    except HmxError:
        return False


def _ask_memory(cfg: Config) -> Memory | None:
    from hmx.runs.memory import run_memory  # imports JAX
    from hmx.runs.session import open_session

    return run_memory(open_session(cfg))


def _table(file: Path) -> dict[str, object] | None:
    """Return the inputs of a file with a table `[batch]`; None for any other file."""
    values, _ = read_file(file)
    prefix = f"{TABLE}."
    if not any(key.startswith(prefix) for key in values):
        return None
    if others := [key for key in values if not key.startswith(prefix)]:
        raise HmxError(
            f"cannot read {file}: {others[0]} beside the table [{TABLE}]",
            f"put inputs into [{TABLE}], or a configuration of hmx train into its own file",
        )
    return {key.removeprefix(prefix): value for key, value in values.items()}


def _relation(sizes: Derived, env: EnvConfig, minibatches: int) -> str:
    return (
        f"hmx train --preset {METTA} has the same hyperparameters, sequences of {sizes.horizon} steps and "
        f"{minibatches} minibatches, but {env.num_envs:,} environments with {env.num_agents} agent "
        f"each: {sizes.agent_steps:,} agent steps per update"
    )
