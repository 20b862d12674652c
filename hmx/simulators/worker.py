"""A worker process: it makes some simulators and steps them when the trainer asks, until the trainer is gone.

The process imports no JAX. Its standard output and error go to a file of the trainer, so that what a simulator prints
neither mixes with JSON nor disturbs a terminal.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from hmx.config.textfile import quoted
from hmx.errors import HmxError, shortened
from hmx.registry import trust
from hmx.registry.workers import WorkerPlan
from hmx.simulators import branching, channel, checks
from hmx.simulators.answers import Broken, picture
from hmx.simulators.episode import Simulation, episode_seed, same_form
from hmx.simulators.layout import Shared, shared
from hmx.simulators.recipe import GUIDE, Recipe, close, is_simulator, make
from hmx.simulators.spaces import facts_from, random_rows

INSIDE = "HMX_SIMULATOR_WORKER"
"""Variable of the environment that is set in a worker."""

_FRAMES = 8  # lines of a traceback that are sent
_LONGEST = 2000  # characters of an error, and of a line
_HERE = os.path.dirname(__file__)


def main(link: int, memory: int) -> None:
    """Serve the trainer over the descriptors given, until the other end is closed."""
    faulthandler.enable(all_threads=False)
    for signum in (signal.SIGINT, signal.SIGHUP):
        signal.signal(signum, signal.SIG_IGN)  # the trainer decides when to stop
    with socket.socket(fileno=link) as connection:
        _Worker(connection, memory).serve()


class _Worker:
    def __init__(self, link: socket.socket, memory: int) -> None:
        self.link, self.memory = link, memory
        self.episodes: list[Simulation] = []
        self.first = 0  # environment of the run that the first simulator is
        self.seeds = 0, 0  # of the run, and the stream of episode seeds
        self.at: Shared
        self.busy = 0  # environment of the run that is being worked on

    def serve(self) -> None:
        """Answer requests until the trainer closes the connection."""
        answers: dict[str, Callable[..., tuple[dict[str, Any], bytes] | None]] = {
            "open": self.open, "reset": self.reset, "replay": self.replay, "restore": self.restore,
            "states": self.states, "render": self.render, "check": self.check, "play": self.play,
            "branch": self.branch, "size": self.size,
        }  # fmt: skip
        with contextlib.suppress(ConnectionError):
            while True:
                kind, asked, payload = channel.receive(self.link)
                if not kind:
                    break
                try:
                    if kind == channel.STEP:
                        self.step()
                        self.link.sendall(channel.DONE)
                    else:
                        answer = answers[asked.pop("do")](payload, **asked)
                        channel.send(self.link, channel.MESSAGE, *(answer or ({}, b"")))
                except (Exception, SystemExit) as error:  # any error of the simulator's code
                    channel.send(self.link, channel.ERROR, self.described(error))
        for episode in self.episodes:
            close(episode.env)

    def described(self, error: BaseException) -> dict[str, Any]:
        """Return an error as plain data, with the lines of code outside hmx that led to it."""
        if isinstance(error, HmxError):
            return {"env": self.busy, "message": error.message, "hint": error.hint, "exit_code": int(error.exit_code)}
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(_HERE)]
        lines = [
            quoted(f"  {f.filename}:{f.lineno}, in {f.name}: {(f.line or '').strip()}", _LONGEST)
            for f in frames[-_FRAMES:]
        ]
        text = str(error).strip()
        text = " ".join(text.split()) if len(text) <= _LONGEST else shortened(text, _LONGEST)
        what = text if isinstance(error, Broken) else f"{type(error).__name__}: {text}"
        return {"env": self.busy, "message": "\n".join([what, *lines]), "hint": "", "exit_code": 0}

    def open(
        self, payload: bytes, recipe: dict[str, Any], plan: list[int], number: int, seeds: list[int],
        permissions: dict[str, Any],
    ) -> tuple[dict[str, Any], bytes]:  # fmt: skip
        """Make the simulators of the worker with this number; return the facts of the first one."""
        given = Recipe(**{**recipe, "my": tuple((name, value) for name, value in recipe["my"])})
        whole = WorkerPlan(*plan)
        self.first, self.seeds = number * whole.envs_per_worker, (seeds[0], seeds[1])
        trust.permit(permissions)
        for i in range(whole.envs_per_worker):
            self.busy = self.first + i
            env = make(given)
            if not is_simulator(env):
                raise HmxError(f"cannot use a {type(env).__name__}: it is not a simulator", GUIDE)
            episode = Simulation(env, given.max_steps)
            same_form(episode.facts, (self.episodes or [episode])[0].facts)
            self.episodes.append(episode)
        facts = self.episodes[0].facts
        if payload:
            expected = facts_from(json.loads(payload))
            same_form(facts, expected._replace(render_mode=facts.render_mode))
        if self.memory >= 0:
            mine = slice(self.first, self.first + whole.envs_per_worker)
            self.at = Shared(*(array[mine] for array in shared(self.memory, facts, whole.num_envs)))
        return {"facts": facts._asdict()}, b""

    def each(self) -> Iterator[tuple[int, Simulation]]:
        """Yield the simulators with their places in this worker, and note which one is worked on."""
        for i, episode in enumerate(self.episodes):
            self.busy = self.first + i
            yield i, episode

    def step(self) -> None:
        """Step every simulator with its action; start the next episode where one ends."""
        at = self.at
        for i, episode in self.each():
            obs, at.reward[i], terminated, truncated = episode.step(at.action[i])
            at.terminated[i], at.truncated[i] = terminated, truncated
            if terminated or truncated:
                at.final_obs[i] = obs
                at.number[i] += 1
                obs = episode.begin(self.seed_of(i))
            self.show(i, obs)

    def show(self, i: int, obs: np.ndarray) -> None:
        """Write what a simulator shows now into the common memory."""
        at, episode = self.at, self.episodes[i]
        at.obs[i] = obs
        at.legal[i] = episode.legal
        at.steps[i] = episode.steps
        at.digest[i] = episode.digest

    def seed_of(self, i: int) -> int:
        """Return the seed of the running episode of a simulator."""
        return episode_seed(*self.seeds, self.first + i, int(self.at.number[i]))

    def reset(self, payload: bytes, only: list[int] | None = None) -> None:
        """Start the episodes whose numbers are in the common memory, in all environments or `only` these."""
        for i, episode in self.each():
            if only is None or self.busy in only:
                self.show(i, episode.begin(self.seed_of(i)))

    def replay(self, payload: bytes, env: int, count: int) -> None:
        """Take the actions of an episode again, `[count, ...]` in the payload."""
        self.busy, i = env, env - self.first
        actions = np.frombuffer(payload, self.at.action.dtype).reshape(count, *self.at.action.shape[1:])
        self.show(i, self.episodes[i].replay(self.seed_of(i), actions))

    def restore(self, payload: bytes, env: int, steps: int, digest: int) -> None:
        """Set the state of a simulator; what it shows comes from the checkpoint."""
        self.busy, i = env, env - self.first
        episode = self.episodes[i]
        episode.restore(self.seed_of(i), payload, steps, digest)
        self.at.steps[i], self.at.digest[i] = steps, digest

    def states(self, payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the state of every simulator."""
        states = [episode.state() or b"" for _, episode in self.each()]
        return {"sizes": [len(state) for state in states]}, b"".join(states)

    def render(self, payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Return a picture of the first simulator, uint8 `[height, width, 3]`."""
        frame = picture(self.episodes[0].env.render())
        return {"shape": list(frame.shape)}, frame.tobytes()

    def play(self, payload: bytes, steps: int, seed: int) -> None:
        """Take random steps without an answer between them."""
        facts = self.episodes[0].facts
        noise = np.random.default_rng(seed).random((steps, len(self.episodes), facts.action_dim or facts.num_actions))
        for row in noise:
            self.at.action[:] = random_rows(row, facts, self.at.legal)
            self.step()

    def branch(self, payload: bytes, size: int) -> tuple[dict[str, Any], bytes]:
        """Step from given states."""
        return {}, branching.answer(self.episodes[0], payload, size)

    def size(self, payload: bytes) -> tuple[dict[str, Any], bytes]:
        """Return the bytes of a state."""
        return {"size": branching.measured_size(self.episodes[0])}, b""

    def check(self, payload: bytes, **options: Any) -> tuple[dict[str, Any], bytes]:
        """Run the checks of `hmx check-env` on the simulators of this worker."""
        self.busy = self.first
        return checks.run_checks(self.episodes, self.seeds[0], **options)._asdict(), b""
