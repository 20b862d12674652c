"""The worker's side of steps from given states, which searches, scores and reports on gradients play.

A row asks for one step: from a state, with an action, and a key from which the simulator's generator of random numbers
is seeded. So an answer follows from its row alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hmx.errors import HmxError
from hmx.simulators.episode import Simulation
from hmx.simulators.spaces import step_rows

BEGIN = -1  # as the number of steps of a row: start an episode instead
_STEPS = 50  # of a play that measures states


def answer(episode: Simulation, payload: bytes, size: int) -> bytes:
    """Answer rows in a worker."""
    form, answered = step_rows(episode.facts, size)
    rows = np.frombuffer(payload, form)
    answers = np.zeros(len(rows), answered)
    if len(rows) and not episode.has_begun:
        episode.begin(0)  # wrappers of Gymnasium want a reset before all else
    for asked, found in zip(rows, answers, strict=True):
        if asked["steps"] == BEGIN:
            obs = episode.begin(_seed(asked["key"]))
            found["final_obs"], found["final_legal"] = obs, episode.legal
        else:
            episode.branch(bytes(asked["state"][4:][: asked["state"][:4].view("<u4")[0]]), int(asked["steps"]))
            reseed(episode.env, asked["key"])
            obs, found["reward"], terminated, truncated = episode.step(asked["action"])
            found["terminated"], found["truncated"] = terminated, truncated
            found["final_obs"], found["final_legal"] = obs, episode.legal
            if terminated or truncated:
                obs = episode.begin(_seed(asked["key"]))
            if terminated and not truncated:  # no action follows, so its mask may allow nothing
                found["final_legal"] = episode.legal
        found["obs"], found["legal"], found["steps"] = obs, episode.legal, episode.steps
        state = episode.state() or b""
        if len(state) > size - 4:
            message = f"cannot copy a state of {len(state):,} bytes: there is room for {size - 4:,}"
            raise HmxError(message, "let get_state return as many bytes at any time, such as a NumPy array")
        found["state"][: 4 + len(state)] = np.frombuffer(len(state).to_bytes(4, "little") + state, np.uint8)
    return answers.tobytes()


def reseed(env: Any, key: np.ndarray) -> bool:
    """Seed the generator of a simulator, in place since its parts may hold it too; return whether it has one."""
    generator = getattr(getattr(env, "unwrapped", env), "np_random", None)
    bits = getattr(generator, "bit_generator", None)
    if bits is None:
        return False
    bits.state = type(bits)(np.random.SeedSequence([int(word) for word in key])).state
    return True


def _seed(key: np.ndarray) -> int:
    return int(np.random.SeedSequence([int(word) for word in key]).generate_state(1)[0] >> 1)


def measured_size(episode: Simulation) -> int:
    """Return the bytes for a state and its length: twice the longest one of a play, since text of numbers varies."""
    longest, random = 0, np.random.default_rng(0)
    episode.begin(0)
    for _ in range(_STEPS):
        longest = max(longest, len(episode.state() or b""))
        if any(episode.step(episode.random_action(random))[2:]):
            episode.begin(0)
    return 1 << (2 * longest + 3).bit_length()
