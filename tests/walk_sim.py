"""A simulator in plain Python for tests: a walk on a line, with faults to order. It needs no package."""

from __future__ import annotations

import ctypes
import itertools
import os
import subprocess
import time
from dataclasses import dataclass

import numpy as np


class Box:
    def __init__(self, low, high, shape, dtype=np.float32):
        self.low, self.high = np.full(shape, low, dtype), np.full(shape, high, dtype)
        self.shape, self.dtype = shape, np.dtype(dtype)


class Dict:
    def __init__(self, **spaces):
        self.spaces = spaces


class Discrete:
    def __init__(self, n, start=0):
        self.n, self.start = n, start


class MultiDiscrete:
    def __init__(self, nvec):
        self.nvec, self.dtype = np.array(nvec), np.dtype(np.int64)


@dataclass(frozen=True)
class Options:
    fault: str = ""  # what goes wrong
    at: int = 1  # step of an instance from which on it does
    length: int = 7  # of an episode
    actions: str = "discrete"
    ends: str = "terminated"
    obs: str = "one"  # array, or named "parts", of which "critic" is for a value network
    state: bool = False  # whether it has get_state and set_state
    pictures: str = ""  # whether it draws: "yes", "broken", or not at all


SLOW_STEP = 0.003  # seconds
_shared = [0]  # time of the instance that was reset last


class RunningMeanStd:
    """Statistics as in the wrappers of Gymnasium, which no reset clears."""

    count = 0


class Walk:
    """Walk left or right with some noise; the reward is the position."""

    def __init__(self, options: Options):
        self.options, self.taken, self.seed = options, 0, 0
        if options.fault == "outlives":
            self.rms = RunningMeanStd()
        self.observation_space = Box(-20.0, 20.0, (2,))
        if options.obs == "parts":
            time = Box(0.0, 20.0, (1,))
            self.observation_space = Dict(critic=Box(-20.0, 20.0, (2, 1)), policy=Box(-9.0, 9.0, (1,)), time=time)
        spaces = {"discrete": Discrete(2), "box": Box(-2.0, 4.0, (1,)), "parts": MultiDiscrete([2, 3])}
        self.action_space = spaces[options.actions]
        if options.state:
            self.get_state, self.set_state = self._get_state, self._set_state

    def reset(self, *, seed=None, options=None):
        self.seed, self.random = seed, np.random.default_rng(None if self.options.fault == "random" else seed)
        self.position, self.time = float(self.random.uniform(-1.0, 1.0)), 0
        if self.options.fault == "outlives":
            self.rms.count += 1
            self.position += self.rms.count
        self.drift = float(self.random.uniform()) if self.options.fault == "drift" else 0.0  # not in its state
        _shared[0] = 0
        if self.options.fault == "slow reset":
            time.sleep(0.02)
        if self.options.fault == "print":
            print("hello from the simulator")
        if self.options.fault == "process":
            print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
        return self._obs(), self._info()

    def _obs(self):
        if self.options.obs == "parts":
            seen, place, time = (np.array(x, np.float32) for x in ([self.position / 4], self.position, [self.time]))
            return {"time": time, "critic": np.full((2, 1), place), "policy": seen}
        return np.array([self.position, _shared[0] if self.options.fault == "shared" else self.time], np.float32)

    def _info(self):
        # the first action is legal at even times only
        return {"action_mask": np.array([self.time % 2 == 0, True])} if self.options.fault == "masks" else {}

    def step(self, action):
        move = (-0.5, 0.5)[action] if self.options.actions == "discrete" else float(np.sum(action)) / 4
        self.taken, self.time = self.taken + 1, self.time + 1
        _shared[0] += 1
        if self.options.fault == "slow step":
            time.sleep(SLOW_STEP)
        if self.options.fault == "no step after the end" and self.time > self.options.length:
            raise ValueError("the episode has ended")
        self.position += move + self.drift + 0.1 * float(self.random.normal())
        obs, reward, info = self._obs(), self.position, self._info()
        if self.taken >= self.options.at:
            obs, reward, info = self._broken(obs, reward, info)
        over = (
            self.time == self.options.length if self.options.fault == "continues" else self.time >= self.options.length
        )
        terminated = over and self.options.ends == "terminated"
        return obs, reward, terminated, over and not terminated, info

    def _broken(self, obs, reward, info):
        fault = self.options.fault
        if fault == "raise":
            raise ValueError("the engine is broken")
        if fault == "raise a long text":
            raise ValueError("the first line\n" + "word " * 10**6 + "\nthe last line")
        if fault == "die":
            os.kill(os.getpid(), 9)
        if fault == "leave a child":  # which holds the connection of this worker open
            subprocess.Popen(["sleep", "600"], close_fds=False)
            os._exit(3)
        if fault == "crash":
            ctypes.string_at(0)
        if fault == "hang":
            time.sleep(1000)
        if fault == "loop in C":  # which never lets another thread of the process run
            sum(itertools.repeat(0))
        if fault == "nan reward":
            reward = float("nan")
        if fault == "outside":
            obs = obs + 100
        if fault == "shape":
            obs = np.zeros(3, np.float32)
        if fault == "no mask":
            info = {"action_mask": np.zeros(2, bool)}
        if fault == "added mask":
            info = {"action_mask": np.array([0.0, -np.inf])}
        return obs, reward, info

    def close(self):
        if self.options.fault == "print":
            print("closed")

    def render(self):
        if self.options.pictures == "broken":
            raise OSError("no display")
        return np.full((40, 60, 3), self.time, np.uint8)

    def _get_state(self):
        noise = self.random.bit_generator.state["state"] if self.options.fault != "lossy" else None
        return {"position": self.position, "time": self.time, "noise": noise}

    def _set_state(self, state):
        self.position, self.time = state["position"], state["time"]
        if state["noise"] is not None:
            whole = self.random.bit_generator.state
            self.random.bit_generator.state = {**whole, "state": state["noise"]}


def make(options: Options, render_mode: str | None = None) -> Walk:
    walk = Walk(options)
    if options.pictures:
        walk.render_mode = render_mode
    return walk
