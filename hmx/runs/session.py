"""Build the environment and the algorithm of a task."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import NamedTuple

from jax.sharding import Mesh

from hmx.algos.build import make_algorithm
from hmx.algos.types import Algorithm, TrainState
from hmx.config.schema import Config
from hmx.envs.protocol import Env, EnvSpec, playable
from hmx.envs.registry import build_env, sizes_of
from hmx.records.own_environment import with_lines
from hmx.records.paths import RunPaths
from hmx.registry.check import check
from hmx.registry.derive import Derived, derive
from hmx.registry.environments import exists, known_sizes
from hmx.registry.load import DEFAULT, Loaded
from hmx.registry.observations import is_image
from hmx.registry.user_code import CodeChanged, complete_options
from hmx.runs.compilation import run_in_calling_thread
from hmx.runs.loop import abstract_state, compile_init, train_keys
from hmx.runs.lowered import LoweredPrograms, lowered_programs
from hmx.runs.programs import Programs, SharedPrograms, program_key


class Session(NamedTuple):
    """The environment, the algorithm and the sizes of a task; nothing is computed or written yet."""

    task: Loaded
    sizes: Derived
    env: Env
    algorithm: Algorithm
    abstract: TrainState  # shapes and dtypes of the state, with an axis of seeds if there are several
    mesh: Mesh | None = None  # the devices that train it; None for one device, or if it is only played
    shared: SharedPrograms | None = None  # with other runs of this process
    lowered: LoweredPrograms | None = None  # on disk, if its programs may be kept there

    @property
    def cfg(self) -> Config:
        """Return the configuration, with every option that the user's code declares."""
        return self.task.config

    def changed(self, values: Mapping[str, object]) -> Session:
        """Return the session with other values by dotted key, which no program depends on."""
        return self._replace(task=self.task.changed(values))


def open_session(cfg: Config, paths: RunPaths | None = None, programs: Programs | None = None) -> Session:
    """Open the task of a configuration as it is; see `open_task`."""
    return open_task(Loaded(cfg), paths, programs)


def open_task(task: Loaded, paths: RunPaths | None = None, programs: Programs | None = None) -> Session:
    """Build the environment and the algorithm of a task, and check its configuration.

    Args:
        task: the configuration, with the origins of its values for error messages.
        paths: the run that it is of; its copy of the user's environment file shows what has changed.
        programs: of earlier runs, which are used where they fit.

    Raises:
        HmxError: the configuration has problems, all of them named; or the user's code has changed, may not run or
            fails.
    """
    try:
        task, env = build_and_check(task)
    except CodeChanged as problem:
        raise with_lines(problem, paths) from None
    return make_session(task, env, programs)


def build_and_check(task: Loaded) -> tuple[Loaded, Env]:
    """Build the environment of a task, and check its configuration once: as soon as the sizes are known.

    Returns:
        The task with every option that the user's code declares, and the environment. Unless configured otherwise,
        images are read by a `cnn`, and policy and value have separate networks where the value reads more.

    Raises:
        HmxError: see `open_task`.
    """
    known = known_sizes(task.config.env)
    if task.sizes is None and (known or not exists(task.config.env.id)):
        check(task.config, known, task.origins)
    cfg = complete_options(task.config)
    env, complete = build_env(cfg.env, cfg.reward)
    task = task._replace(config=dataclasses.replace(cfg, env=complete))
    if env.spec.simulator is not None:
        env = _of_simulator(env, task)
    suited = {key: value for key, value in _suited(env.spec).items() if task.origins.get(key) == DEFAULT}
    task = task.changed(suited)
    if task.sizes is None and known is None:
        task = task._replace(sizes=sizes_of(env))
        check(task.config, task.sizes, task.origins)
    return task, env


def _of_simulator(env: Env, task: Loaded) -> Env:
    """Return the environment that the algorithm steps: copies, unless it has an update for simulators.

    Raises:
        HmxError: the simulator cannot be copied, and the algorithm or gradient reports in training need it.
    """
    run_in_calling_thread()  # a policy acts in every step, and callbacks would wait for the threads of programs
    if not task.algorithm.simulators:
        return playable(env, task.algorithm.name)
    if task.config.run.grad_report_every:
        playable(env, "run.grad_report_every")
    return env


def _suited(spec: EnvSpec) -> dict[str, object]:
    """Return the options of a network that suit the observations better than the defaults."""
    suited: dict[str, object] = {}
    if is_image(spec.obs_shape):
        suited["net.kind"] = "cnn"
    if spec.value_only:
        suited["net.shared_torso"] = False
    return suited


def make_session(task: Loaded, env: Env, programs: Programs | None = None) -> Session:
    """Build the algorithm of a task on an environment; its configuration must have no problems."""
    cfg = task.config
    algorithm, sizes, shared = make_algorithm(cfg, env), derive(cfg), None
    key = program_key(task, frozenset(algorithm.hypers(0)), sizes.updates_per_chunk)
    if programs is not None:
        shared = programs.of(key)
    if shared is not None and shared.parts is not None:
        # With its functions, whose traces JAX keeps; only the schedules are of this run.
        env, first, abstract, lowered = shared.parts
        algorithm = first._replace(hypers=algorithm.hypers)
    else:
        lowered = lowered_programs(task.values, key)
        abstract = abstract_state(algorithm, cfg.run.seed, cfg.run.num_seeds, lowered)
    if shared is not None and shared.parts is None:
        shared.parts = env, algorithm, abstract, lowered
    return Session(task, sizes, env, algorithm, abstract, shared=shared, lowered=lowered)


def first_state(session: Session) -> TrainState:
    """Return the initial state of a session, by a program that runs may share."""
    run, shared = session.cfg.run, session.shared
    keys = train_keys(run.seed, run.num_seeds)
    init = None if shared is None else shared.init
    if init is None:
        init = compile_init(session.algorithm, keys, run.num_seeds, session.lowered)
    if shared is not None:
        shared.init = init
    state: TrainState = init(keys)
    return state
