"""Simulators with `get_state` and `set_state` as environments that compiled programs can step, in copies of a position.

A state is bytes in an array; every step sends states, actions and keys to worker processes (`hmx.simulators.branching`)
by a callback, and depends on nothing else.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.config.schema import EnvConfig
from hmx.envs.protocol import Env, EnvSpec
from hmx.errors import ExitCode, HmxError
from hmx.registry.workers import WorkerPlan, worker_plan
from hmx.simulators.branching import BEGIN
from hmx.simulators.pool import SimulatorFailed, WorkerPool
from hmx.simulators.recipe import Recipe
from hmx.simulators.spaces import Facts, step_rows
from hmx.types import Array, Key, Timestep

_MARK = "SIMULATOR FAILED "  # in the text of an error, before the failure of a simulator


@contextlib.contextmanager
def naming_failures() -> Iterator[None]:
    """Raise the failure of a simulator that ended a compiled program instead of the error of the program."""
    try:
        yield
    except Exception as error:  # JAX raises several types
        if (failure := _failure_in(error)) is not None:
            raise failure from None
        raise


def _failure_in(error: BaseException) -> SimulatorFailed | None:
    for line in str(error).splitlines():
        with contextlib.suppress(ValueError):
            message, hint, code = json.loads(line.partition(_MARK)[2].rstrip())
            return SimulatorFailed(message, hint, ExitCode(code))
    return None


class Branches:
    """Workers that step copies of a simulator; they end when this object does, and their number changes no result.

    Raises:
        HmxError: the simulator fails.
    """

    def __init__(self, recipe: Recipe, facts: Facts, cfg: EnvConfig) -> None:
        self._pool: WorkerPool | None = None
        plan = WorkerPlan(worker_plan(cfg).num_workers, 1, 1)
        self._start = partial(WorkerPool, recipe, None, plan, seed=0, stream=0, timeout=cfg.worker_timeout)
        self._pool = self._start()
        self._size = self._pool.state_size()
        self.asked, self.answered = step_rows(facts, self._size)

    def answer(self, rows: np.ndarray) -> np.ndarray:
        """Return the answers to rows, `[N]` of `asked`.

        Raises:
            RuntimeError: a worker died, hung or raised; its text is the failure, since only text leaves a program.
        """
        try:
            if self._pool is None:
                self._pool = self._start()
            payload = b"".join(self._pool.branch(rows, self._size))
        except HmxError as error:
            self.close()
            raise RuntimeError(_MARK + json.dumps([error.message, error.hint, int(error.exit_code)])) from None
        return np.frombuffer(payload, self.answered)

    def close(self) -> None:
        """End the workers."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    __del__ = close


def copied(spec: EnvSpec, recipe: Recipe, facts: Facts, cfg: EnvConfig) -> Env:
    """Build the environment of copies of a simulator.

    Raises:
        HmxError: the simulator fails.
    """
    logging.getLogger("jax._src.callback").addFilter(_is_not_ours)
    branches = Branches(recipe, facts, cfg)
    form, answered = branches.asked, branches.answered

    def on_host(state: Array, steps: Array, action: Array, key: Array) -> tuple[np.ndarray, ...]:
        batch = np.shape(steps)  # `[E]`, and the axes of `vmap` before it
        rows = np.empty(batch, form)
        for name, array in zip(form.names or (), (state, steps, action, key), strict=True):
            rows[name] = np.asarray(array)
        found = branches.answer(rows.reshape(-1)).reshape(batch)
        return tuple(np.ascontiguousarray(found[name]) for name in answered.names or ())

    def call(state: Array, steps: Array, action: Array, keys: Key) -> tuple[dict[str, Array], Timestep]:
        fields = (answered[name] for name in answered.names or ())
        shapes = tuple(jax.ShapeDtypeStruct((*steps.shape, *field.shape), field.base) for field in fields)
        bits = jax.vmap(lambda key: jax.random.bits(key, (2,)))(keys)
        found = jax.pure_callback(on_host, shapes, state, steps, action, bits, vmap_method="broadcast_all")
        state, steps, obs, legal, final_obs, final_legal, reward, terminated, truncated = found
        shown: Any = [array[:, None] for array in (obs, legal, final_obs, final_legal, reward)]
        shown += [terminated, truncated, terminated[:, None], {"reward": reward}, {}]
        return {"state": state, "steps": steps}, Timestep(*shown)

    def reset(keys: Key) -> tuple[dict[str, Array], Timestep]:
        def unread(field: np.dtype[Any]) -> Array:
            return jnp.zeros((keys.shape[0], *field.shape), field.base)

        begin = jnp.full(keys.shape[0], BEGIN, jnp.int32)
        return call(unread(form["state"]), begin, unread(form["action"]), keys)

    def step(state: dict[str, Array], action: Array, keys: Key) -> tuple[dict[str, Array], Timestep]:
        rows = action.reshape(action.shape[0], -1).astype(form["action"].base)
        return call(state["state"], state["steps"], rows, keys)

    return Env(spec._replace(simulator=None, copied=True), reset, step)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Return whether JAX logs another error than the failure of a simulator, which hmx reports itself."""
    error = record.exc_info[1] if record.exc_info else None
    return error is None or _failure_in(error) is None
