"""One simulator and the episode that it plays: seeds, steps, masks, ends, and a digest of all that it shows."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from hmx.errors import HmxError
from hmx.simulators.answers import OBSERVATIONS, Broken, flag, number, truths
from hmx.simulators.observations import observations_of
from hmx.simulators.spaces import Actions, Facts, facts_of, random_rows

MASK = "action_mask"  # key of `info`, as in Gymnasium's taxi and in PettingZoo
TRAINING, EVALUATION, CHECKING = range(3)  # streams of seeds


def episode_seed(seed: int, stream: int, env: int, number: int) -> int:
    """Return the seed of an episode: of the run, its use, the environment and the number of the episode."""
    return int(np.random.SeedSequence((seed, stream, env, number)).generate_state(1)[0] >> 1)


class Simulation:
    """Play episodes in one simulator.

    A new one starts with `reset(seed)`, so that the seed and the actions since determine it.

    Args:
        env: the simulator.
        max_steps: steps after which an episode is truncated in addition to its own limit; 0 for never.
    """

    def __init__(self, env: Any, max_steps: int = 0) -> None:
        self.env, self.facts = env, facts_of(env)
        self.max_steps = max_steps
        self.steps, self.digest, self.has_begun = 0, 0, False
        self._convert = Actions(env.action_space)
        self.observations = observations_of(env.observation_space)
        self._all = np.ones(self.facts.num_actions, bool)
        self.legal = self._all
        self.masks = False  # whether it has given a mask

    def begin(self, seed: int) -> np.ndarray:
        """Start an episode, and return its first observation."""
        answer = self.env.reset(seed=seed)
        if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping)):
            raise Broken(f"reset returns {_described(answer)}; expected (observation, info)")
        self.steps, self.digest, self.has_begun = 0, 0, True
        obs = self._seen(*answer)
        low, high = self.observations.low, self.observations.high
        if not ((obs >= low) & (obs <= high)).all():
            where = _where(obs, low, high)
            raise Broken(f"the first observation lies outside its space at index {where}", OBSERVATIONS)
        return obs

    def step(self, row: np.ndarray) -> tuple[np.ndarray, float, bool, bool]:
        """Take a step; return observation, reward, and whether the episode terminated or was truncated."""
        answer = self.env.step(self._convert(row))
        if not (isinstance(answer, tuple) and len(answer) == 5):
            more = (
                "; that is the interface of Gym before 0.26" if isinstance(answer, tuple) and len(answer) == 4 else ""
            )
            expected = "(observation, reward, terminated, truncated, info)"
            raise Broken(f"step returns {_described(answer)}; expected {expected}{more}")
        obs, reward, terminated, truncated, info = answer
        seen, paid = self._seen(obs, info), number(reward, "the reward")
        ended, cut = flag(terminated, "terminated"), flag(truncated, "truncated")
        self.steps += 1
        self.digest = zlib.crc32(np.float64(paid).tobytes(), self.digest)
        return seen, paid, ended, not ended and (cut or self.steps == self.max_steps)

    def random_action(self, random: np.random.Generator) -> np.ndarray:
        """Return a random legal action, as `step` takes it."""
        facts = self.facts
        noise = random.random((1, facts.action_dim or facts.num_actions))
        row: np.ndarray = random_rows(noise, facts, self.legal[None])[0]
        return row.astype(facts.action_form[1])

    def _seen(self, obs: Any, info: Mapping[str, Any]) -> np.ndarray:
        facts = self.facts
        array = self.observations.read(obs)
        self.digest = zlib.crc32(array.tobytes(), self.digest)
        given = bool(facts.action_parts and info and MASK in info)
        self.masks |= given
        self.legal = self._mask(info[MASK]) if given else self._all
        return array

    def _mask(self, given: Any) -> np.ndarray:
        sizes, what = self.facts.action_parts, f"info['{MASK}']"
        pieces = given if isinstance(given, tuple | list) and len(sizes) > 1 else [given]
        try:
            masks = [truths(piece, what).reshape(-1) for piece in pieces]
        except Broken as problem:
            raise Broken(str(problem), "masks") from None
        mask = np.concatenate(masks)
        if mask.shape != (self.facts.num_actions,):
            raise Broken(f"{what} has {mask.size} entries; there are {self.facts.num_actions} actions", "masks")
        for allowed in np.split(mask, np.cumsum(sizes)[:-1]):
            if not allowed.any():
                raise Broken(f"{what} allows no action", "masks")
        return mask

    def state(self) -> bytes | None:
        """Return the state of the simulator as bytes; None if it offers none."""
        return pack_state(self.env.get_state()) if self.facts.has_state else None

    def replay(self, seed: int, actions: Iterable[np.ndarray]) -> np.ndarray:
        """Start an episode, take its actions again, and return the last observation."""
        obs = self.begin(seed)
        for row in actions:
            obs, _, terminated, truncated = self.step(row)
            if terminated or truncated:
                break
        return obs

    def restore(self, seed: int, state: bytes, steps: int, digest: int) -> None:
        """Set the state of the simulator in an episode that had taken so many steps and had this digest."""
        self.begin(seed)
        self.branch(state, steps)
        self.digest = digest

    def branch(self, state: bytes, steps: int) -> None:
        """Set the state of the simulator to that of any episode, after so many of its steps."""
        self.env.set_state(unpack_state(state))
        self.steps, self.digest = steps, 0


def pack_state(state: Any) -> bytes:
    """Return a simulator's state as bytes: bytes, a NumPy array, or what JSON can hold; nothing is pickled."""
    if isinstance(state, bytes | bytearray):
        return b"b" + bytes(state)
    if isinstance(state, np.ndarray) and state.dtype.kind in "biuf":
        head = json.dumps([state.dtype.str, list(state.shape)]).encode()
        return b"a" + len(head).to_bytes(4, "little") + head + state.tobytes()
    try:
        return b"j" + json.dumps(state).encode()
    except (TypeError, ValueError):
        hint = "return bytes, a NumPy array of numbers, or lists and dicts of numbers and text"
        raise HmxError(f"get_state returns a {type(state).__name__}, which hmx does not store", hint) from None


def unpack_state(data: bytes) -> Any:
    """Invert `pack_state`."""
    kind, rest = data[:1], data[1:]
    if kind == b"b":
        return rest
    if kind == b"j":
        return json.loads(rest)
    size = int.from_bytes(rest[:4], "little")
    dtype, shape = json.loads(rest[4 : 4 + size])
    return np.frombuffer(rest[4 + size :], np.dtype(dtype)).reshape(shape).copy()


def same_form(facts: Facts, first: Facts) -> None:
    """Refuse an instance whose spaces differ from those of the first one."""
    pairs = zip(facts._fields, facts, first, strict=True)
    if differing := [f"{name.replace('_', ' ')} {one} and {two}" for name, one, two in pairs if one != two]:
        message = f"two instances of this simulator differ: {'; '.join(differing)}"
        raise HmxError(message, "make every instance with the same spaces")


def _described(answer: Any) -> str:
    return f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"


def _where(obs: np.ndarray, low: np.ndarray, high: np.ndarray) -> str:
    index = np.unravel_index(int(np.argmin((obs >= low) & (obs <= high))), obs.shape)
    place = index[0] if len(index) == 1 else tuple(int(i) for i in index)
    limits = [float(np.broadcast_to(limit, obs.shape)[index]) for limit in (low, high)]
    return f"{place}: {float(obs[index]):g} is not in [{limits[0]:g}, {limits[1]:g}]"
