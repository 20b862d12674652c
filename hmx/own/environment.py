"""Environments of users: a Python file, a module or an installed package, behind the contract of `hmx.envs`.

The code provides one of

- `reset(key) -> (state, obs)` and `step(state, action, key) -> (state, obs, reward, terminated)` of a single
  environment, as functions of the file or methods of what `make` returns. `reward` is a number or a dict of named
  terms. `ACTIONS` names the actions (or counts them), or `ACTION_DIM` is the size of a continuous one. Optional:
  `legal(state)`, `render(state) -> str`, `describe(state) -> dict` and `MAX_STEPS`.
- `make() -> Env`, an environment of `hmx.envs.protocol`.
- `make()` that returns an environment like those of gymnax, with `reset_env`, `step_env` and `default_params`.
- a simulator as in Gymnasium: a class with `reset(seed=...)`, `step`, `observation_space` and `action_space`, or
  `make()` that returns one. Worker processes step it (`hmx.own.simulator`).

A dataclass `Options` declares its own options; functions that have a parameter `options` get it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from hmx.config.schema import EnvConfig
from hmx.config.textfile import quoted
from hmx.envs.checks.problems import abstract_action, changed_type, shapes
from hmx.envs.protocol import Env, EnvState
from hmx.envs.single import Single, from_single, strange_truths
from hmx.envs.suites.gymnax import as_single
from hmx.errors import HmxError, counted, nearest
from hmx.own.simulator import simulated
from hmx.registry.environments import EnvSource, clashes
from hmx.registry.own_options import DATACLASS, pairs, read_options, with_options
from hmx.registry.user_code import allow, explaining, open_module, reference_of, several_owners, sha256
from hmx.simulators.recipe import Recipe, close, find_maker, is_simulator, is_simulator_class

Theirs = Any  # a module, function or object of the user's
_GUIDE = "docs/environments.md shows what an environment provides; hmx new-env NAME writes one that works"


def make_own(source: EnvSource, cfg: EnvConfig) -> tuple[Env, EnvConfig]:
    """Load the code of an environment and build it; return it with its completed configuration.

    Raises:
        HmxError: the code may not run, has changed since the run began, fails, or does not provide an environment
            (exit code 2). Tracebacks show the user's file only.
    """
    if source.origin == "package" and (claims := clashes(source.id)):
        raise several_owners(source.id, "env.id", claims)
    reference = f"{source.target}:{source.attribute}" if source.origin == "package" else cfg.id
    if source.origin == "package" and not reference_of(source.id, "env.id"):  # installed, so trusted
        allow(reference, "env.id")
    module, path = open_module(reference, "env.id", cfg.sha256)
    maker = find_maker(module, source.attribute)
    options = read_options(getattr(module, DATACLASS, None), "env", cfg.id, f"environment {quoted(cfg.id)}", cfg.my)
    made = maker if is_simulator_class(maker) else _made(source, path, module, options)
    cfg = dataclasses.replace(cfg, my=pairs(options), sha256=sha256(reference, "env.id"))
    if is_simulator(made):  # worker processes make their own
        if not isinstance(made, type):
            close(made)
        name = source.attribute or getattr(maker, "__name__", "")
        return simulated(Recipe(cfg.id, "", reference, name, cfg.my, cfg.sha256, cfg.max_steps), cfg), cfg
    with explaining(path, f"cannot build environment {quoted(cfg.id)}"):
        if isinstance(made, Env):
            env = Env(made.spec._replace(id=cfg.id), made.reset, made.step)
        else:
            single = _gymnax_single(cfg, made) if _is_gymnax(made) else _single(cfg, made, options)
            env = from_single(cfg.id, single, cfg.max_steps)
            if strange := strange_truths(single, env.spec.num_actions):
                raise ValueError(strange)
        _check(env)
    env = env._replace(spec=env.spec._replace(render=_guarded(path, env.spec.render)))
    if cfg.num_agents not in (1, env.spec.num_agents):
        words = f"{cfg.id} has {counted(env.spec.num_agents, 'agent')}, but env.num_agents is {cfg.num_agents}"
        raise HmxError(words, f"--set env.num_agents={env.spec.num_agents}")
    return env, dataclasses.replace(cfg, num_agents=env.spec.num_agents)


def _made(source: EnvSource, path: Path, module: Theirs, options: Theirs | None) -> Theirs:
    """Return the environment that the code provides."""
    what = f"environment {quoted(source.id)}"
    if source.attribute and not hasattr(module, source.attribute):
        near = nearest(source.attribute, [name for name in vars(module) if not name.startswith("_")])
        hint = f"did you mean {source.target}:{near}?" if near else _GUIDE
        raise HmxError(f"cannot load {what}: {path.name} has no {source.attribute}", hint)
    found = getattr(module, source.attribute) if source.attribute else getattr(module, "make", module)
    if callable(found) and not isinstance(found, Env):
        with explaining(path, f"cannot build {what}"):
            found = with_options(found, options)()
    if not isinstance(found, Env) and not _is_gymnax(found):
        missing = [name for name in ("reset", "step") if not callable(getattr(found, name, None))]
        if missing:
            owner = path.name if found is module else f"what {source.attribute or 'make'} of {path.name} returns"
            raise HmxError(f"cannot load {what}: {owner} has no {' and no '.join(missing)}", _GUIDE)
    return found


def _is_gymnax(found: Theirs) -> bool:
    """Return whether it is an environment like those of gymnax, or a pair of one and its parameters."""
    pair = isinstance(found, tuple) and len(found) == 2
    return hasattr(found[0] if pair else found, "reset_env")


def _guarded(path: Path, render: Callable[[EnvState], str] | None) -> Callable[[EnvState], str] | None:
    """Return `render` with errors that name the user's lines."""

    def shown(state: EnvState) -> str:
        with explaining(path, f"cannot draw environment {path.name}"):
            return render(state)  # type: ignore[misc]

    return None if render is None else shown


def _gymnax_single(cfg: EnvConfig, made: Theirs) -> Single:
    guest, params = (made, made.default_params) if hasattr(made, "reset_env") else made
    return as_single(cfg.id, guest, params)


def _single(cfg: EnvConfig, made: Theirs, options: Theirs | None) -> Single:
    """Return `reset` and `step` of a single environment, and the optional parts that the user provides."""
    legal, render, describe = (
        None if (function := getattr(made, name, None)) is None else with_options(function, options)
        for name in ("legal", "render", "describe")
    )
    names, action_dim = _actions(cfg.id, made)
    return Single(
        with_options(made.reset, options),
        with_options(made.step, options),
        actions=names,
        action_dim=action_dim,
        limit=int(getattr(made, "MAX_STEPS", 0)),
        legal=legal,
        render=render,
        describe=describe,
        terms=(),
    )


def _actions(env_id: str, made: Theirs) -> tuple[tuple[str, ...], int]:
    """Return the names of discrete actions, and the size of a continuous one."""
    actions, dim = getattr(made, "ACTIONS", None), getattr(made, "ACTION_DIM", 0)
    if isinstance(actions, int) and actions > 0:
        return tuple(f"action_{i}" for i in range(actions)), 0
    if isinstance(actions, tuple | list) and actions and all(isinstance(name, str) for name in actions):
        if len(set(actions)) < len(actions):
            raise HmxError(f"cannot load environment {quoted(env_id)}: two of its ACTIONS have one name", _GUIDE)
        return tuple(actions), 0
    if actions is None and isinstance(dim, int) and dim > 0:
        return (), dim
    hint = 'write for example ACTIONS = ("left", "right"), or ACTION_DIM = 2 for two numbers in [-1, 1]'
    raise HmxError(f"cannot load environment {quoted(env_id)}: it does not say what actions it takes", hint)


def _check(env: Env) -> None:
    """Check shapes and types of a batch, which a user may have wrong, and the values of a few first positions."""

    def strong(state: EnvState) -> EnvState:
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), state)

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 2))
    state, first = jax.eval_shape(env.reset, keys)
    after, second = jax.eval_shape(env.step, state, abstract_action(env, 2), keys)
    found = (*shapes(env, state, first, 2), *shapes(env, None, second, 2), changed_type(strong(state), strong(after)))
    if problem := next(filter(None, found), None):
        raise ValueError(problem)
    _, timestep = jax.jit(env.reset)(jax.random.split(jax.random.key(0), 8))
    if env.spec.num_actions and not bool(timestep.legal.any(-1).all()):
        raise ValueError("no action is legal in a first position: legal must allow at least one")
    if not bool(jnp.isfinite(timestep.obs).all()):
        raise ValueError("a first observation is not finite")
