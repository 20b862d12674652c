"""The running episodes of a run: their seeds by number, their actions, and how to bring simulators back to them.

The log holds the actions of whole rollouts, `[T, E, ...]`, back to the start of the oldest running episode. So keeping
it costs nothing per step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmx.errors import ExitCode, HmxError
from hmx.records.paths import EPISODES
from hmx.records.sealed_arrays import DTYPES, ArrayForm, FileKind, StoredArray
from hmx.simulators.layout import Shared, forms
from hmx.simulators.pool import WorkerPool
from hmx.simulators.spaces import Facts

Write = Callable[[Path], None]


class SavedEpisodes(NamedTuple):
    """The running episodes of `E` environments, as a checkpoint holds them."""

    number: np.ndarray  # [E] int64
    steps: np.ndarray  # [E] int64
    digest: np.ndarray  # [E] uint32: of all that each episode has shown
    actions: np.ndarray  # [sum of steps, ...]: those of environment 0, then 1, and so on
    state_bytes: np.ndarray  # [E] int64: of each simulator's own state; 0 for none
    states: np.ndarray  # uint8: those states, one after another

    def write(self, folder: Path) -> None:
        """Write them into the folder of a checkpoint."""
        arrays = {}
        for name, array in self._asdict().items():
            form = ArrayForm(tuple(array.shape), array.dtype.name)
            arrays[name] = StoredArray(form, np.ascontiguousarray(array).astype(DTYPES[form.dtype]).tobytes())
        KIND.write(folder / EPISODES, {}, arrays)

    def of(self, env: int) -> tuple[np.ndarray, bytes]:
        """Return the actions of an environment's episode, and the state of its simulator."""
        first, start = int(self.steps[:env].sum()), int(self.state_bytes[:env].sum())
        state = self.states[start : start + int(self.state_bytes[env])].tobytes()
        return self.actions[first : first + int(self.steps[env])], state


def _parse(body: object, forms: Mapping[str, ArrayForm]) -> None:
    if set(forms) != set(SavedEpisodes._fields):
        raise ValueError("it holds other arrays than those of episodes")


KIND = FileKind("hmx-episodes", 1, "file of running episodes", "another checkpoint of the run may be intact", _parse)


def read(folder: Path, facts: Facts, num_envs: int) -> SavedEpisodes:
    """Read the running episodes of `num_envs` environments in the folder of a checkpoint.

    Raises:
        HmxError: the file is missing, damaged, or not of such simulators (exit code 3).
    """
    _, stored = KIND.read(folder / EPISODES)
    saved = SavedEpisodes(
        **{name: np.frombuffer(a.data, DTYPES[a.form.dtype]).reshape(a.form.shape) for name, a in stored.items()}
    )
    if why := _fault(saved, facts, num_envs):
        raise HmxError(f"{folder / EPISODES} is damaged: {why}", KIND.hint, ExitCode.ARTEFACT)
    return saved


def _fault(saved: SavedEpisodes, facts: Facts, num_envs: int) -> str:
    """Return why these cannot be the running episodes of simulators; empty if they can."""
    wanted = forms(facts, num_envs)
    counts = {"number": saved.number, "steps": saved.steps, "state_bytes": saved.state_bytes}
    for name, array in {**counts, "digest": saved.digest}.items():
        shape, dtype = wanted.get(name, ((num_envs,), "int64"))
        if array.shape != shape or array.dtype != dtype:
            return f"{name} is {array.dtype}{list(array.shape)} instead of {dtype}{list(shape)}"
    if any((array < 0).any() for array in counts.values()):
        return "a count is below 0"
    # As whole numbers of Python, which do not overflow.
    total, size = sum(saved.steps.tolist()), sum(saved.state_bytes.tolist())
    (_, *action), dtype = wanted["action"]
    for name, array, shape, kind in (
        ("actions", saved.actions, (total, *action), dtype), ("states", saved.states, (size,), "uint8"),
    ):  # fmt: skip
        if array.shape != shape or array.dtype != kind:
            return f"{name} is {array.dtype}{list(array.shape)} instead of {kind}{list(shape)}"
    if facts.action_parts:
        possible = (saved.actions >= 0) & (saved.actions < np.array(facts.action_parts))
    else:
        possible = np.isfinite(saved.actions)
    return "" if possible.all() else "it has an impossible action"


class Journal:
    """The episodes of a pool at the end of its last finished update.

    An update that is abandoned half-way leaves no trace here, so what is saved always belongs to the training state.
    """

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool
        self._log: list[np.ndarray] = []
        self._commit()

    def commit(self, actions: np.ndarray) -> None:
        """Add the actions of a finished update, `[T, E, ...]`."""
        self._log.append(actions)
        self._commit()
        needed, kept = int(self._steps.max()), 0
        for i in range(len(self._log) - 1, -1, -1):
            kept += len(self._log[i])
            if kept >= needed:
                self._log = self._log[i:]
                break

    def _commit(self) -> None:
        at = self._pool.at
        self._number, self._steps, self._digest = at.number.copy(), at.steps.copy(), at.digest.copy()

    def saved(self, at_rest: bool) -> SavedEpisodes:
        """Return the episodes; the states of simulators only if they are `at_rest` where the last update left them."""
        log = np.concatenate(self._log) if self._log else self._pool.at.action[:0][None].repeat(0, axis=0)
        steps = [int(count) for count in self._steps]
        taken = [log[len(log) - count :, env] for env, count in enumerate(steps) if count]
        shape = self._pool.at.action.shape[1:]
        actions = np.concatenate(taken) if taken else np.zeros((0, *shape), self._pool.at.action.dtype)
        states = self._pool.states() if at_rest and self._pool.facts.has_state else [b""] * len(steps)
        sizes = np.array([len(state) for state in states], np.int64)
        joined = np.frombuffer(b"".join(states), np.uint8)
        return SavedEpisodes(self._number, self._steps, self._digest, actions, sizes, joined)

    def restore(self, saved: SavedEpisodes, obs: np.ndarray, legal: np.ndarray) -> list[int]:
        """Bring the simulators to where the episodes were, and return the environments where that failed.

        An episode whose simulator stored its state continues from that. Any other is replayed from its seed; it must
        show again all that it had shown, and end with `obs [E, *obs_shape]`. Where it does not, a new episode starts.
        `legal [E, num_actions]` are the legal actions at that point.
        """
        at = self._pool.at
        failed = []
        at.number[:] = saved.number
        for env in range(len(saved.number)):
            actions, state = saved.of(env)
            if state:
                self._pool.restore(env, state, int(saved.steps[env]), int(saved.digest[env]))
                at.obs[env], at.legal[env] = obs[env], legal[env]
                continue
            self._pool.replay(env, actions)
            same = at.digest[env] == saved.digest[env] and np.array_equal(at.obs[env], obs[env])
            if not same or at.steps[env] != saved.steps[env]:
                failed.append(env)
        if failed:
            at.number[failed] += 1
            self._pool.reset(failed)
        self._log = [_aligned(saved, at, set(failed))]
        self._commit()
        return failed


def _aligned(saved: SavedEpisodes, at: Shared, failed: set[int]) -> np.ndarray:
    """Return the actions as a log `[longest episode, E, ...]`, each episode at its end."""
    longest = int(saved.steps.max(initial=0))
    log = np.zeros((longest, *at.action.shape), at.action.dtype)
    for env in range(len(saved.number)):
        actions, _ = saved.of(env)
        if env not in failed and len(actions):
            log[longest - len(actions) :, env] = actions
    return log
