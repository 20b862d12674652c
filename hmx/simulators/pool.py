"""The trainer's side of the workers: start them, let groups of them step, and say what went wrong in one of them.

Environment e of E is in worker e // (E / W), and worker w of W in group w // (W / A). A group steps as a whole, while
the policy acts for another group (`env.async_factor`). Which worker has an environment changes no number: seeds and
actions belong to environments.
"""

from __future__ import annotations

import json
import os
import shlex
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NoReturn

import numpy as np

from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError
from hmx.registry import user_code
from hmx.registry.workers import ALONE, WorkerPlan
from hmx.simulators import channel
from hmx.simulators.checks import SimulatorChecks, findings_from
from hmx.simulators.layout import Shared, make_memory, shared
from hmx.simulators.process import Guard, WorkerProcess, module_path, without_here
from hmx.simulators.recipe import Recipe
from hmx.simulators.spaces import Facts, facts_from
from hmx.simulators.worker import INSIDE

_GRACE = 2.0  # seconds that a worker has to close its simulators
_MAX_PRINTED = 1 << 20  # bytes that a worker prints before they are dropped
_FAILED = ExitCode.CHECK_FAILED

Answer = tuple[dict[str, Any], bytes]
"""What a worker returns: a JSON object, and bytes."""


class SimulatorFailed(HmxError):
    """A worker died, hung or raised; the training state before the update is intact."""


class WorkerPool:
    """Worker processes with `plan.num_envs` simulators; use it in a `with` block.

    Args:
        recipe: how a simulator is made.
        facts: of the simulator, from `measure`; None to learn them, in a pool that cannot step.
        plan: how environments are divided.
        seed: of the run.
        stream: of episode seeds, such as `hmx.simulators.episode.TRAINING`.
        timeout: seconds after which a worker that does not answer counts as hung; 0 for never.

    Raises:
        HmxError: a simulator cannot be made, or is not as the first one.
    """

    def __init__(
        self,
        recipe: Recipe,
        facts: Facts | None,
        plan: WorkerPlan,
        *,
        seed: int,
        stream: int,
        timeout: float,
    ) -> None:
        self.recipe, self.plan = recipe, plan
        self._timeout = timeout
        self._processes: list[WorkerProcess] = []
        self._guard: Guard | None = None
        self._warned = False
        self.at: Shared
        try:
            self._start(facts)
            self.facts = self._open(facts, seed, stream)
        except BaseException:
            self.close()
            raise

    def _open(self, facts: Facts | None, seed: int, stream: int) -> Facts:
        """Let the workers make their simulators, and return the form of these."""
        recipe, plan = self.recipe, self.plan
        per_group = plan.num_workers // plan.num_groups
        self._groups = [self._processes[i : i + per_group] for i in range(0, plan.num_workers, per_group)]
        permissions = user_code.permissions(recipe.reference, "env.id")
        same = {"recipe": recipe._asdict(), "plan": plan, "seeds": (seed, stream), "permissions": permissions}
        bodies = [{"do": "open", "number": i, **same} for i in range(plan.num_workers)]
        expected = b"" if facts is None else json.dumps(facts._asdict()).encode()
        answers = self._ask_all(bodies, [expected] * len(bodies))
        return facts_from(answers[0][0]["facts"])

    def _start(self, facts: Facts | None) -> None:
        environ, num_envs = child_environment(), self.plan.num_envs
        memory = None if facts is None else make_memory(facts, num_envs)
        try:
            if facts is not None and memory is not None:
                self.at = shared(memory, facts, num_envs)
            self._guard = Guard()
            path = module_path(bool(self.recipe.reference))
            for i in range(self.plan.num_workers):
                self._processes.append(WorkerProcess(i, memory, environ, path))
                self._guard.watch(self._processes[-1].process)
        except OSError as error:
            message = f"cannot start worker {len(self._processes)}: {error.strerror or error}"
            raise HmxError(message, "--set env.num_workers=1") from error
        finally:
            if memory is not None:
                os.close(memory)
        for process in self._processes:
            process.limit(self._timeout)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End all workers; those that do not end by themselves are killed."""
        for process in self._processes:
            process.close()
        end = time.monotonic() + _GRACE
        for process in self._processes:
            process.end(end - time.monotonic())
            process.output.close()
        self._processes = []
        if self._guard is not None:
            self._guard.close()
            self._guard = None

    def reset(self, only: Sequence[int] | None = None) -> None:
        """Start the episodes whose numbers are in `at.number`, in all environments or `only` these."""
        self._ask_all([{"do": "reset", "only": None if only is None else list(only)}] * self.plan.num_workers)

    def send(self, group: int) -> None:
        """Let a group step with the actions in `at.action`."""
        for process in self._groups[group]:
            try:
                process.link.send(channel.STEP)
            except OSError:
                self._died(process)

    def wait(self, group: int) -> None:
        """Wait until a group has stepped."""
        for process in self._groups[group]:
            self._answer(process)

    def replay(self, env: int, actions: np.ndarray) -> None:
        """Take the actions of the episode `at.number[env]` again; the other end shows in `at`."""
        body = {"do": "replay", "env": env, "count": len(actions)}
        self._ask(self._of(env), body, np.ascontiguousarray(actions, self.at.action.dtype).tobytes())

    def restore(self, env: int, state: bytes, steps: int, digest: int) -> None:
        """Set the state of a simulator in an episode."""
        self._ask(self._of(env), {"do": "restore", "env": env, "steps": steps, "digest": digest}, state)

    def states(self) -> list[bytes]:
        """Return the state of every simulator; empty where it offers none."""
        states: list[bytes] = []
        for body, payload in self._ask_all([{"do": "states"}] * self.plan.num_workers):
            start = 0
            for size in body["sizes"]:
                states.append(payload[start : start + size])
                start += size
        return states

    def branch(self, rows: np.ndarray, size: int) -> list[bytes]:
        """Let each worker step from the states in its part of the rows; see `hmx.simulators.branching`."""
        parts = np.array_split(rows, self.plan.num_workers)
        bodies = [{"do": "branch", "size": size} for _ in parts]
        return [payload for _, payload in self._ask_all(bodies, [part.tobytes() for part in parts])]

    def state_size(self) -> int:
        """Return the bytes that a state of the simulator may take."""
        return int(self._ask(self._processes[0], {"do": "size"})[0]["size"])

    def render(self) -> np.ndarray:
        """Return a picture of environment 0, uint8 `[height, width, 3]`."""
        body, payload = self._ask(self._processes[0], {"do": "render"})
        return np.frombuffer(payload, np.uint8).reshape(body["shape"])

    def play(self, steps: int) -> None:
        """Let every simulator take random steps; workers answer once, so that only the simulators take time."""
        self._ask_all([{"do": "play", "steps": steps, "seed": process.number} for process in self._processes])

    def check(self, steps: int) -> SimulatorChecks:
        """Run the checks of `hmx check-env` in worker 0; see `hmx.simulators.checks.run_checks`."""
        return findings_from(self._ask(self._processes[0], {"do": "check", "steps": steps})[0])

    def printed(self) -> tuple[int, str] | None:
        """Return the first worker that printed and its first line, once; drop what was printed if it is long."""
        first = None
        for process in self._processes:
            size = os.fstat(process.output.fileno()).st_size
            if size and not self._warned:
                lines = os.pread(process.output.fileno(), 500, 0).decode(errors="replace").splitlines()
                first, self._warned = (process.number, quoted(next(filter(str.strip, lines), ""), 200)), True
            if size > _MAX_PRINTED:
                process.output.truncate(0)
        return first

    def cpu_seconds(self) -> float:
        """Return the processor time of all workers; 0 where the system does not tell."""
        return sum(process.cpu_seconds() for process in self._processes)

    def _of(self, env: int) -> WorkerProcess:
        return self._processes[env // self.plan.envs_per_worker]

    def _ask(self, process: WorkerProcess, body: Mapping[str, object], payload: bytes = b"") -> Answer:
        self._send(process, body, payload)
        return self._answer(process)

    def _ask_all(self, bodies: Sequence[Mapping[str, object]], payloads: Sequence[bytes] = ()) -> list[Answer]:
        """Ask every worker at once, and return their answers."""
        for i, process in enumerate(self._processes):
            self._send(process, bodies[i], payloads[i] if payloads else b"")
        return [self._answer(process) for process in self._processes]

    def _send(self, process: WorkerProcess, body: Mapping[str, object], payload: bytes) -> None:
        try:
            channel.send(process.link, channel.MESSAGE, body, payload)
        except OSError:
            self._died(process)

    def _answer(self, process: WorkerProcess) -> Answer:
        try:
            kind, body, payload = channel.receive(process.link)
        except BlockingIOError:  # of the limit
            self._hung(process)
        except OSError:
            self._died(process)
        if kind == channel.ERROR:
            self._failed(process, body)
        if not kind:
            self._died(process)
        return body, payload

    def _failed(self, process: WorkerProcess, body: dict[str, Any]) -> NoReturn:
        env_id = self.recipe.env_id
        self.close()
        if body["exit_code"]:  # an error of the user that names its cause
            is_named = any(name and name in body["message"] for name in (env_id, self.recipe.name))
            text = body["message"] if is_named else f"{env_id}: {body['message']}"
            raise SimulatorFailed(text, body["hint"], ExitCode(body["exit_code"]))
        text = f"cannot run {env_id}: worker {process.number}, environment {body['env']}: {body['message']}"
        raise SimulatorFailed(text, f"hmx check-env {shlex.quote(env_id)} looks for such errors", _FAILED)

    def _hung(self, process: WorkerProcess) -> NoReturn:
        if process.process.poll() is not None:  # a process that it started holds the connection open
            self._died(process)
        process.process.kill()
        self.close()
        message = f"cannot run {self._named(process)} has not answered for {self._timeout:g} s"
        raise SimulatorFailed(message, "raise env.worker_timeout if a step or a reset may take longer", _FAILED)

    def _died(self, process: WorkerProcess) -> NoReturn:
        process.close()
        status = process.end(_GRACE)
        tail = process.tail()
        self.close()
        how = f"was killed by signal {-status}" if status and status < 0 else f"ended with exit code {status}"
        hint = "a worker killed by signal 9 often lacked memory: use fewer environments" if status == -9 else ""
        message = f"cannot run {self._named(process)} {how}{tail}"
        raise SimulatorFailed(
            message, hint or f"hmx check-env {shlex.quote(self.recipe.env_id)} looks for its errors", _FAILED
        )

    def _named(self, process: WorkerProcess) -> str:
        first = process.number * self.plan.envs_per_worker
        last = first + self.plan.envs_per_worker - 1
        which = f"environment {first}" if first == last else f"environments {first} to {last}"
        return f"{self.recipe.env_id}: worker {process.number} ({which})"


def child_environment() -> dict[str, str]:
    """Return the environment variables for a worker: each uses one thread, since there are many of them.

    Raises:
        HmxError: this process is a worker itself.
    """
    if INSIDE in os.environ:
        message = "cannot train in a worker process: the file of the simulator trains when it is imported"
        raise HmxError(message, 'call hmx.train under `if __name__ == "__main__":`')
    threads = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
    return {**threads, **without_here(os.environ), INSIDE: "1"}


def measure(recipe: Recipe, timeout: float) -> Facts:
    """Return the form of a simulator, which a worker of its own makes and closes.

    Raises:
        HmxError: it cannot be made or used, with the reason.
    """
    with WorkerPool(recipe, None, ALONE, seed=0, stream=0, timeout=timeout) as pool:
        return pool.facts
