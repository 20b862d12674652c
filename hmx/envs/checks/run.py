"""Check an environment against every rule of the protocol, and name each broken rule."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.envs.checks import problems
from hmx.envs.checks.problems import Walk, agrees, any_action, difference, keys_of, play, with_start
from hmx.envs.protocol import Env, EnvState, take
from hmx.errors import HmxError, shortened
from hmx.types import Array, Key, Timestep

CheckName = Literal[
    "tracing", "shapes", "keys", "determinism", "batch", "masks", "illegal-actions", "last-observation", "ends",
    "finite", "reward-terms", "agents",
]  # fmt: skip
CheckStatus = Literal["passed", "failed", "skipped"]
CHECKS: dict[CheckName, tuple[str, str]] = {
    "tracing": (
        "reset and step compile and are traced once",
        "compute with jax.numpy and jax.lax instead of Python's if and while, and keep the types of the state constant",
    ),
    "shapes": (
        "shapes and dtypes are constant and those of the spec",
        "return every array with the shape and dtype that hmx/envs/protocol.py and the spec give",
    ),
    "keys": (
        "random numbers come from the given keys, each used once",
        "split a key with jax.random.split before each use, and create none inside reset and step",
    ),
    "determinism": (
        "the same keys and actions give the same bits",
        "draw random numbers with jax.random, and keep everything that changes in the state",
    ),
    "batch": (
        "a batch equals its members bit for bit",
        "compute each environment from its own state, action and key; --tolerance accepts rounding",
    ),
    "masks": ("every mask allows an action", "terminate the episode where nothing is legal"),
    "illegal-actions": (
        "illegal actions leave a valid state",
        "ignore an illegal action or terminate the episode, and clip continuous actions to [-1, 1]",
    ),
    "last-observation": (
        "final_obs is the last observation before the reset",
        "take final_obs and final_legal from the state after the move, before a new episode replaces it",
    ),
    "ends": (
        "termination and truncation are distinguished",
        "report the step limit as truncated, and an end by the rules as terminated",
    ),
    "finite": ("observations and rewards are finite", "find the division by zero or the overflow"),
    "reward-terms": ("reward terms sum to the reward", "compute the reward as the sum of its terms and over agents"),
    "agents": (
        "an agent that is done stays done and is paid nothing",
        "keep agent_done until the episode ends; set it for all agents exactly where the episode terminates",
    ),
}  # fmt: skip
"""The rule of each check, and how to fulfil it, in the order of the report."""


_KEPT = "a step uses a key that an earlier step used and left in the state"
Jitted = Any  # a compiled function of JAX


class CheckResult(NamedTuple):
    """The result of one check: `detail` is the problem, or the reason why the check was skipped."""

    check: str  # a `CheckName`, or a check of simulators (`hmx.simulators.checks`)
    status: CheckStatus
    detail: str = ""
    hint: str = ""


class EnvChecks(NamedTuple):
    """The result of every check, and the random play; no walk if the environment could not be played."""

    results: tuple[CheckResult, ...]
    walk: Walk | None

    @property
    def failed(self) -> tuple[CheckResult, ...]:
        """Return the checks that failed."""
        return tuple(result for result in self.results if result.status == "failed")


def run_checks(
    env: Env,
    longer: Env | None = None,
    seed: int = 0,
    num_envs: int = 5,
    num_steps: int = 40,
    tolerance: float = 0.0,
) -> EnvChecks:
    """Play at random and check everything that `CHECKS` lists.

    Args:
        env: the environment.
        longer: the same environment with a higher step limit, or none. Its observation where `env` is truncated is the
            exact final observation; without it only obvious errors of final observations are found.
        seed: seed of the play.
        num_envs: environments side by side.
        num_steps: steps played; more than `max_steps` steps reach the step limit.
        tolerance: how far numbers of a batch may be from those of its members, relative and absolute; 0 asks for the
            same bits, which an engine whose linear algebra depends on the size of the batch cannot give.

    Raises:
        HmxError: the environment itself raised one.
    """
    checker = _Checker(env, seed, num_envs, num_steps, tolerance)
    try:
        checker.run(longer)
    except HmxError:
        raise
    except Exception as error:  # any error of the environment's code
        checker.fail("tracing", _summary(error))
    return EnvChecks(checker.results(), checker.walk)


class _Checker:
    def __init__(self, env: Env, seed: int, num_envs: int, num_steps: int, tolerance: float) -> None:
        self.env, self.tolerance, self.num_envs = env, tolerance, num_envs
        self.plan = (seed, num_envs, num_steps)
        self.walk: Walk | None = None
        self._found: dict[CheckName, CheckResult] = {}

    def results(self) -> tuple[CheckResult, ...]:
        why = " and ".join(name for name, result in self._found.items() if result.status == "failed")
        return tuple(
            self._found.get(name, CheckResult(name, "skipped", f"needs an environment that passes {why}"))
            for name in CHECKS
        )

    def fail(self, name: CheckName, problem: str | None) -> None:
        """Record a problem if there is one, and the check has not failed before."""
        if problem and not self.failed(name):
            self._found[name] = CheckResult(name, "failed", problem, CHECKS[name][1])

    def check(self, name: CheckName, problem: str | None, skipped: str = "") -> None:
        """Record a check: its problem, or the reason to skip it, or that it passed."""
        self.fail(name, problem)
        self._found.setdefault(name, CheckResult(name, "skipped" if skipped else "passed", skipped))

    def failed(self, *names: CheckName) -> bool:
        return any(name in self._found and self._found[name].status == "failed" for name in names)

    def run(self, longer: Env | None) -> None:
        """Run under JAX's check of key reuse; if it finds a problem, run the other checks without it."""
        try:
            with jax.debug_key_reuse(True):
                self._run(longer)
        except jax.errors.KeyReuseError as error:
            # raised while tracing, or, after the check of keys, by a step that gets a used key in its state
            within = "keys" not in self._found
            self._found = {}
            self.fail("keys", f"a key is used twice{_line(error)}" if within else _KEPT)
            with jax.debug_key_reuse(False):
                self._run(longer)

    def _run(self, longer: Env | None) -> None:
        env = self.env
        reset, step, traces = _jitted(env)
        keys = jax.ShapeDtypeStruct((self.num_envs,), jax.random.key(0).dtype)
        traced = reset.trace(keys)
        state, first = traced.out_info
        self.check("shapes", next(problems.shapes(env, state, first, self.num_envs), None))
        self.fail("shapes", next(problems.contradictions(env.spec), None))
        if self.failed("shapes"):
            return
        traced_step = step.trace(state, problems.abstract_action(env, self.num_envs), keys)
        after, second = traced_step.out_info
        self.fail("shapes", next(problems.shapes(env, None, second, self.num_envs), None))
        if not problems.same_structure(first, second):
            self.fail("shapes", "reset and step report different reward terms or infos")
        self.fail("tracing", problems.changed_type(state, after))
        constant = problems.constant_key(traced.jaxpr) or problems.constant_key(traced_step.jaxpr)
        self.check("keys", "a key is constant, so its random numbers are always the same" if constant else None)
        if not self.failed("shapes", "tracing"):
            self._play(longer, reset, step, traces)

    def _play(self, longer: Env | None, reset: Jitted, step: Jitted, traces: list[None]) -> None:
        env = self.env
        walk = self.walk = play(env, reset, step, *self.plan)
        self.check("tracing", None if len(traces) == 1 else f"step was traced {len(traces)} times")
        again = play(env, reset, step, *self.plan)
        self.fail("determinism", _unequal("two plays with the same keys and actions differ", again, walk))
        ended = "" if walk.ended.any() else f"no episode ended in {self.plan[2]} steps"
        self.check("masks", next(problems.masks(walk), None), "actions are continuous" if env.spec.action_dim else "")
        self.check("finite", next(problems.finite(walk), None))
        self.check("reward-terms", next(problems.reward_terms(walk), None))
        self.fail("ends", next(problems.ends(env, walk, alone=longer is None), None))
        self.fail("last-observation", next(problems.last_observations(walk), None))
        self.check("agents", next(problems.done_agents(walk), None))
        alone = None if self.failed("determinism") else self._member_problem(walk)
        if alone:  # members were traced again: is the cause that, or the size of the batch?
            traced_again = play(env, *_jitted(env)[:2], *self.plan)
            self.fail("determinism", _unequal("the environment differs when it is traced again", traced_again, walk))
        self.check("determinism", None)
        random = "the environment is not deterministic" if self.failed("determinism") else ""
        self.check("batch", None if random else alone, random)
        self._illegal(walk, reset, step)
        if longer is not None and longer.spec.max_steps != env.spec.max_steps:
            self._against_longer(walk, play(longer, *_jitted(longer)[:2], *self.plan))
        self.check("ends", None, ended)
        self.check("last-observation", None, ended)

    def _member_problem(self, walk: Walk) -> str | None:
        """Replay members alone, traced again with a batch of one."""
        env, tolerance = self.env, self.tolerance
        seed, num_envs, num_steps = self.plan
        reset, step, _ = _jitted(env)
        only = jax.jit(lambda keys, i: jax.lax.dynamic_slice_in_dim(keys, i, 1))
        for i in range(min(num_envs, 3)):
            where = f"environment {i} alone differs from environment {i} in a batch of {num_envs}"
            state, timestep = reset(only(keys_of(seed, 0, num_envs), i))
            expected = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], walk.first)
            if problem := _unequal(f"{where} at the reset", timestep, expected, tolerance):
                return problem
            for t in range(num_steps):
                keys = only(keys_of(seed, t + 1, num_envs), i)
                state, timestep = step(state, walk.action_t[t, i : i + 1], keys)
                expected = jax.tree.map(lambda leaf, t=t, i=i: leaf[t, i : i + 1], walk.timestep_tp1)
                if problem := _unequal(f"{where} at step {t + 1}", timestep, expected, tolerance):
                    return problem
            kept = take(env.spec, walk.state, jnp.array([i]))
            if problem := _unequal(f"{where} in its state", state, kept, tolerance):
                return problem
        return None

    def _illegal(self, walk: Walk, reset: Jitted, step: Jitted) -> None:
        if self.env.spec.action_dim:
            self.check("illegal-actions", self._beyond_limits(walk, step))
            return
        skipped = "every action is legal in every state that was seen" if with_start(walk).legal.all() else ""
        problem = None
        if not skipped:
            wild = play(self.env, reset, step, *self.plan, illegal=True)
            # only problems caused by illegal actions: legal play is checked elsewhere
            kinds: dict[CheckName, Iterator[str]] = {
                "masks": problems.masks(wild), "finite": problems.finite(wild),
                "reward-terms": problems.reward_terms(wild), "ends": problems.ends(self.env, wild),
            }  # fmt: skip
            found = (next(kind, None) for name, kind in kinds.items() if not self.failed(name))
            problem = next((f"in play with illegal actions, {text}" for text in found if text), None)
        self.check("illegal-actions", problem, skipped)

    def _beyond_limits(self, walk: Walk, step: Jitted) -> str | None:
        seed, num_envs, num_steps = self.plan
        action = 2.0 * any_action(self.env, walk.first, np.random.default_rng(seed))
        beyond, nearest = (
            step(walk.state, given, keys_of(seed, num_steps + 1, num_envs))
            for given in (action, action.clip(-1.0, 1.0))
        )
        return _unequal("an action beyond [-1, 1] is not the same as its nearest limit", beyond, nearest)

    def _against_longer(self, walk: Walk, longer: Walk) -> None:
        """Compare the first episode of each environment with an episode that has a later step limit."""
        now, later = walk.timestep_tp1, longer.timestep_tp1
        loose = max(self.tolerance, 1e-4)  # the two are different programs, which may round differently
        for i in range(self.num_envs):
            if not walk.ended[:, i].any():
                continue
            t = int(walk.ended[:, i].argmax())
            if not agrees(now.obs[:t, i], later.obs[:t, i], loose):
                continue  # the observation shows the step limit, so there is nothing to compare with
            where = f"step {t + 1} of environment {i}"
            if longer.ended[t, i]:
                if now.truncated[t, i]:
                    self.fail("ends", f"the episode terminates by its rules at {where} and is reported as truncated")
                continue
            if now.terminated[t, i]:
                self.fail("ends", f"the step limit is reported as a termination at {where}")
            if not agrees(now.final_obs[t, i], later.obs[t, i], loose):
                self.fail("last-observation", f"final_obs is not what the truncated episode shows at {where}")
            if now.truncated[t, i] and not agrees(now.final_legal[t, i], later.legal[t, i], 0.0):
                self.fail("last-observation", f"final_legal is not the mask of the truncated episode at {where}")


def _jitted(env: Env) -> tuple[Jitted, Jitted, list[None]]:
    """Return reset and step to be traced again, and a list that grows with each trace of step."""
    traces: list[None] = []

    def step(state: EnvState, action: Array, keys: Key) -> tuple[EnvState, Timestep]:
        traces.append(None)
        return env.step(state, action, keys)

    # a new function each time: JAX would not trace `env.reset` a second time
    return jax.jit(lambda keys: env.reset(keys)), jax.jit(step), traces


def _unequal(what: str, got: object, wanted: object, tolerance: float = 0.0) -> str | None:
    path = difference(got, wanted, tolerance)
    return None if path is None else f"{what}{f' ({path})' if path else ''}"


def _summary(error: BaseException) -> str:
    """Return the first line of an error and the line of code that raised it."""
    text = shortened(str(error).strip().partition("\n")[0], 1000)
    return f"{type(error).__name__}: {text}{_line(error)}"


def _line(error: BaseException) -> str:
    """Return the innermost line of code outside JAX and this check, also of a cause."""
    own = (str(Path(jax.__file__).parent), __file__, "<")
    chain: BaseException | None = error
    found = ""
    while chain is not None:
        for frame in traceback.extract_tb(chain.__traceback__):
            if not frame.filename.startswith(own):
                found = f" ({Path(frame.filename).name}:{frame.lineno})"
        chain = chain.__cause__
    return found
