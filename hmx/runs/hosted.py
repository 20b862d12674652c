"""Train on simulators: rollouts that the host directs, between the compiled policy and the compiled update.

`Host` holds the workers of a run. `compile_hosted` returns a `Chunk` like that of a compiled program, so that the loop,
the checkpoints, the records and the checks of finite numbers are those of every run.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.hosted import HostedRollout
from hmx.algos.types import Algorithm, HostedUpdate, TrainState
from hmx.config.schema import EnvConfig, OnNonFinite
from hmx.envs.protocol import EnvSpec
from hmx.errors import ExitCode
from hmx.records.meta import NOT_REPLAYED
from hmx.registry.workers import worker_plan
from hmx.runs.checkpoint import copied
from hmx.runs.chunk import Chunk, ChunkResult, Values, layout, make_judge, memory_bytes_of, parameter_names
from hmx.runs.compilation import small_program_options
from hmx.runs.signals import interruptible
from hmx.simulators.episode import TRAINING
from hmx.simulators.journal import Journal, SavedEpisodes
from hmx.simulators.pool import SimulatorFailed, WorkerPool
from hmx.simulators.spaces import Facts
from hmx.types import Transition

Array = np.ndarray[Any, Any]
Limits = tuple[Array, Array]
"""The lowest and highest numbers of an observation, float32 `[F]` each."""


class RolloutStopped(Exception):
    """A signal asked for the end within a rollout; the state before the update is intact."""


class Host:
    """The simulators of a run in worker processes.

    Args:
        spec: of the environment, with the source of the simulator.
        env: number of environments and workers.
        num_steps: of a rollout.
        seed: of the run.
        hosted: the policy and its horizon.
        stopping: returns whether a signal asked the run to stop.
        warn: receives warnings.
    """

    def __init__(
        self,
        spec: EnvSpec,
        env: EnvConfig,
        num_steps: int,
        seed: int,
        hosted: HostedUpdate,
        stopping: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        assert spec.simulator is not None
        source = spec.simulator
        self.num_steps, self.hosted, self.plan = num_steps, hosted, worker_plan(env)
        self._stopping, self._warn, self._at_rest = stopping, warn, True
        options = small_program_options()
        self.decide = jax.jit(hosted.decide, compiler_options=options)
        self.value = jax.jit(hosted.value, compiler_options=options)
        self.pool = WorkerPool(
            source.recipe, source.facts, self.plan, seed=seed, stream=TRAINING, timeout=env.worker_timeout
        )
        self._journal: Journal
        self._limits: Limits | None = limits_of(source.facts)  # None if there are none, and after a warning

    def close(self) -> None:
        """End the workers."""
        self.pool.close()

    def begin(self, state: TrainState, saved: SavedEpisodes | None = None) -> tuple[TrainState, str]:
        """Start the episodes of a run, or continue those of a checkpoint.

        Returns:
            The state with what the simulators show; and a note, if episodes could not be continued.
        """
        actors, note = state.actors, ""
        if saved is None:
            self.pool.reset()
            self._journal = Journal(self.pool)
        else:
            self._journal = Journal(self.pool)
            failed = self._journal.restore(saved, np.asarray(actors.obs)[:, 0], np.asarray(actors.legal)[:, 0])
            if failed:
                note = _not_replayed(self.pool.recipe.env_id, len(failed), len(saved.number))
                actors = _restarted(actors, failed)
        self._warn_of_prints()
        obs, legal = (copied(array[:, None]) for array in (self.pool.at.obs, self.pool.at.legal))
        return state._replace(actors=actors._replace(obs=obs, legal=legal)), note

    def cpu_seconds(self) -> float:
        """Return the processor time of the workers."""
        return self.pool.cpu_seconds()

    def save(self) -> Callable[[Path], None]:
        """Return the function that writes the running episodes into the folder of a checkpoint."""
        return self._journal.saved(self._at_rest).write

    def commit(self, seen: HostedRollout) -> None:
        """Note that the update of a rollout counts."""
        self._journal.commit(rows_of(seen.action_t, self.pool.at.action, lead=2))
        self._at_rest = True

    def collect(self, state: TrainState) -> HostedRollout:
        """Play a rollout: while one group of environments steps, the policy acts for the next.

        Raises:
            SimulatorFailed: a worker died, hung or raised, or a simulator returned numbers that are not finite.
            RolloutStopped: a signal asked for the end.
        """
        self._at_rest = False
        run = _Rollout(self, state)
        for t in range(self.num_steps):
            if self._stopping():
                raise RolloutStopped
            for group in range(self.plan.num_groups):
                if t:
                    run.arrive(t - 1, group)
                run.act(t, group)
        for group in range(self.plan.num_groups):
            run.arrive(self.num_steps - 1, group)
        self._warn_of_prints()
        rollout = run.finished()
        self._warn_of_limits(np.asarray(rollout.transitions.obs_t))
        return rollout

    def _warn_of_prints(self) -> None:
        if (printed := self.pool.printed()) is not None:
            worker, line = printed
            self._warn(f"{self.pool.recipe.env_id} prints, which is not shown: worker {worker}: {line}")

    def _warn_of_limits(self, obs_t: Array) -> None:
        """Warn once: what lies outside its space can be learned from, and simulators of Gymnasium show it too."""
        if self._limits is not None and (problem := outside(obs_t, self._limits)) is not None:
            env_id, self._limits = self.pool.recipe.env_id, None
            hint = f"hmx check-env {shlex.quote(env_id)} looks for such numbers"
            self._warn(f"an observation of {env_id} lies outside its space: {problem}; {hint}")


class _Rollout:
    """A rollout in progress: what was seen so far, in arrays of its own, since compiled programs may borrow them."""

    def __init__(self, host: Host, state: TrainState) -> None:
        self._host, self._at, self._plan = host, host.pool.at, host.plan
        self._acting = host.hosted.acting(state)
        form = rollout_forms(host.hosted, state, host.num_steps)
        self.seen = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), form._replace(carry=None))
        self.steps: Transition = self.seen.transitions
        self.steps.value_final_tp1[:] = 0.0
        self._reset = np.array(state.actors.reset)
        groups = range(self._plan.num_groups)
        self._carry = [jax.tree.map(lambda leaf, g=g: leaf[self._plan.group(g)], state.actors.carry) for g in groups]
        self._has_carry = bool(jax.tree.leaves(state.actors.carry))
        self._stored: list[list[Any]] = [[] for _ in groups]

    def act(self, t: int, group: int) -> None:
        """Choose the actions of a group, and let it step."""
        host, at, steps, mine = self._host, self._at, self.steps, self._plan.group(group)
        obs, legal = steps.obs_t[t, mine], steps.legal_t[t, mine]
        obs[:, 0], legal[:, 0] = at.obs[mine], at.legal[mine]
        if self._has_carry and t % host.hosted.horizon == 0:
            self._stored[group].append(self._carry[group])
        steps.reset_t[t, mine] = reset = self._reset[mine].copy()
        step = np.int32(t * self._plan.num_groups + group)
        decision, self._carry[group] = host.decide(self._acting, self._carry[group], obs, legal, reset, step)
        self.seen.action_t[t, mine] = decision.action
        at.action[mine] = rows_of(self.seen.action_t[t, mine], at.action)
        host.pool.send(group)
        # fetched while the group steps
        steps.action_t[t, mine] = decision.raw
        steps.log_prob_t[t, mine] = decision.log_prob
        steps.value_t[t, mine] = decision.value

    def arrive(self, t: int, group: int) -> None:
        """Wait for the step of a group, and store its results."""
        host, at, steps, mine = self._host, self._at, self.steps, self._plan.group(group)
        host.pool.wait(group)
        steps.reward_tp1[t, mine, 0] = at.reward[mine]
        steps.terminated_tp1[t, mine, 0] = at.terminated[mine]
        steps.truncated_tp1[t, mine, 0] = truncated = at.truncated[mine]
        self._reset[mine] = at.terminated[mine] | truncated
        if truncated.any():
            values = host.value(self._acting, self._carry[group], at.final_obs[mine][:, None])
            steps.value_final_tp1[t, mine] = np.where(truncated[:, None], values, 0.0)

    def finished(self) -> HostedRollout:
        """Return the rollout."""
        self.seen.obs_last[:, 0], self.seen.legal_last[:, 0] = self._at.obs, self._at.legal
        _check_finite(self._host.pool, self.seen)
        joined = partial(jax.tree.map, lambda *leaves: jnp.concatenate(leaves))
        carries = [jax.tree.map(lambda *leaves: jnp.stack(leaves), *some) for some in self._stored if some]
        carry = jax.tree.map(lambda *leaves: jnp.concatenate(leaves, axis=1), *carries) if carries else None
        rollout: HostedRollout = self.seen._replace(carry=carry, carry_last=joined(*self._carry))
        return rollout


def rollout_forms(hosted: HostedUpdate, state: TrainState, num_steps: int) -> HostedRollout:
    """Return shapes and dtypes of a rollout from states like this one (arrays, or their shapes)."""
    actors = state.actors
    acting = jax.eval_shape(hosted.acting, state)
    shown = actors.obs, actors.legal, actors.reset
    decision, carry = jax.eval_shape(hosted.decide, acting, actors.carry, *shown, np.int32(0))

    def over_time(form: Any, steps: int = num_steps) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((steps, *form.shape), form.dtype)

    number = over_time(decision.value)
    flag = jax.ShapeDtypeStruct(number.shape, jnp.bool_)
    obs, legal = (jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in (actors.obs, actors.legal))
    transitions: Any = {
        "obs_t": over_time(obs), "legal_t": over_time(legal), "reset_t": over_time(actors.reset), "alive_t": None,
        "action_t": over_time(decision.raw), "log_prob_t": number, "value_t": number, "reward_tp1": number,
        "terminated_tp1": flag, "truncated_tp1": flag, "value_final_tp1": number,
    }  # fmt: skip
    carries = jax.tree.map(lambda form: over_time(form, num_steps // hosted.horizon), carry)
    taken: Any = over_time(decision.action)
    return HostedRollout(Transition(**transitions), taken, obs, legal, carries, carry)  # type: ignore[arg-type]


def trace_hosted(
    algorithm: Algorithm, state: TrainState, num_steps: int, on_nonfinite: OnNonFinite
) -> tuple[Chunk, jax.stages.Traced]:
    """Trace the update after a rollout, `(state, rollout, hypers) -> ChunkResult`, for states shaped like `state`."""
    assert algorithm.hosted is not None
    chunk = Chunk.empty(num_seeds=1, length=1)
    chunk.parameters = parameter_names(state)
    learn = jax.jit(algorithm.hosted.learn)
    seen = rollout_forms(algorithm.hosted, state, num_steps)
    scalars = {name: jax.ShapeDtypeStruct((), jnp.float32) for name in sorted(algorithm.hypers(0))}
    shapes = jax.eval_shape(lambda tree: tree, state)
    chunk.rows = layout(jax.eval_shape(learn, shapes, seen, scalars)[1])
    judge = make_judge(algorithm, chunk, on_nonfinite)

    def run(state_t: TrainState, seen: HostedRollout, hypers: dict[str, jax.Array]) -> ChunkResult:
        after, row, counts = judge(state_t, *learn(state_t, seen, hypers))
        return ChunkResult(after, row[None], counts.astype(jnp.int32))

    chunk.traces = 1
    return chunk, jax.jit(run, donate_argnums=0).trace(shapes, seen, scalars)


def compile_hosted(
    algorithm: Algorithm, host: Host, state: TrainState, num_steps: int, on_nonfinite: OnNonFinite
) -> Chunk:
    """Compile a chunk of one update, whose rollout `host` collects.

    An update that does not count leaves the host's journal as it was, as it leaves the state.
    """
    chunk, traced = trace_hosted(algorithm, state, num_steps, on_nonfinite)
    compiled = interruptible(traced.lower().compile)
    chunk.memory_bytes = memory_bytes_of(compiled)

    def call(state_t: TrainState, hypers: Mapping[str, Values], n: np.int32) -> ChunkResult:
        seen = host.collect(state_t)
        learn = partial(compiled, state_t, seen, {name: values[0] for name, values in hypers.items()})
        result: ChunkResult = interruptible(lambda: jax.block_until_ready(learn()))
        if int(result.done):
            host.commit(seen)
        return result

    chunk.call = call
    return chunk


def limits_of(facts: Facts) -> Limits | None:
    """Return the limits of observations; None if there are none."""
    limits = np.array(facts.obs_low, np.float32), np.array(facts.obs_high, np.float32)
    return limits if np.isfinite(limits).any() else None


def outside(obs_t: Array, limits: Limits) -> str | None:
    """Describe the first number of observations `[T, E, 1, ...]` that is outside its limits; None without any."""
    low, high = limits
    flat = obs_t.reshape(*obs_t.shape[:2], -1)
    beyond = (flat < low) | (flat > high)
    if not beyond.any():
        return None
    t, env, i = np.argwhere(beyond)[0]
    return f"number {i} is {flat[t, env, i]:g}, not in [{low[i]:g}, {high[i]:g}], in environment {env}"


def rows_of(action: Any, like: Array, lead: int = 1) -> Array:
    """Return actions as rows like those of the workers' memory `[E, columns]`, after `lead` leading axes."""
    given = np.asarray(action)
    return given.reshape(*given.shape[:lead], like.shape[1])


def _check_finite(pool: WorkerPool, seen: HostedRollout) -> None:
    """Refuse rewards and observations that are not finite, since what is learned from them is lost."""
    steps = seen.transitions
    for what, array in (
        ("reward", steps.reward_tp1), ("observation", steps.obs_t), ("observation", seen.obs_last[None]),
    ):  # fmt: skip
        bad = ~np.isfinite(array).reshape(*array.shape[:2], -1).all(-1)
        if bad.any():
            step, env = (int(i) for i in np.argwhere(bad)[0])
            env_id = pool.recipe.env_id
            where = f"the {what} of environment {env} is not finite at step {step + 1} of this rollout"
            hint = f"hmx check-env {shlex.quote(env_id)} looks for such numbers"
            raise SimulatorFailed(f"cannot learn from {env_id}: {where}", hint, ExitCode.CHECK_FAILED)


def _restarted(actors: Any, envs: list[int]) -> Any:
    """Return actors whose episodes in some environments are new ones."""
    fresh = np.zeros(actors.reset.shape, bool)
    fresh[envs] = True
    episode = actors.episode
    return actors._replace(
        reset=actors.reset | fresh,
        episode=episode._replace(
            total=jnp.where(fresh, 0.0, episode.total), length=jnp.where(fresh, 0, episode.length)
        ),
    )


def _not_replayed(env_id: str, failed: int, total: int) -> str:
    what = f"{failed} of {total} {NOT_REPLAYED}, so new ones start in their place"
    return f"{what}: {env_id} does not show the same for the same seed and actions; hmx check-env {shlex.quote(env_id)}"
