"""How the environments of a simulator are divided into worker processes and groups.

The equations are those of `hmx compute-config` (docs/batch-math.md): E environments, W workers with E / W environments
each, and A groups of W / A workers. While one group steps, the policy acts for another.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from hmx.config.problem import Problem, fix
from hmx.config.schema import EnvConfig, RunConfig


class WorkerPlan(NamedTuple):
    """The division of environments; environment e is in worker e // `envs_per_worker`."""

    num_workers: int
    envs_per_worker: int
    num_groups: int

    @property
    def num_envs(self) -> int:
        """Return the environments of all workers."""
        return self.num_workers * self.envs_per_worker

    @property
    def envs_per_group(self) -> int:
        """Return the environments for which the policy acts at once."""
        return self.num_envs // self.num_groups

    def group(self, number: int) -> slice:
        """Return the environments of a group."""
        return slice(number * self.envs_per_group, (number + 1) * self.envs_per_group)


ALONE = WorkerPlan(1, 1, 1)
"""One environment in one worker."""


def num_groups(env: EnvConfig) -> int:
    """Return the groups of a configuration; they decide which environments the policy acts for at once."""
    return env.async_factor or (1 if env.num_envs % 2 else 2)


def worker_plan(env: EnvConfig, cores: int | None = None) -> WorkerPlan:
    """Divide the environments of a configuration without `worker_problems`.

    The number of workers follows the cores of the machine unless it is given. It changes no number of a run.
    """
    groups = num_groups(env)
    workers = env.num_workers or (env.num_envs // env.envs_per_worker if env.envs_per_worker else 0)
    if not workers:
        most = max(_cores() if cores is None else cores, groups)
        possible = [n for n in range(groups, most + 1, groups) if env.num_envs % n == 0]
        workers = possible[-1] if possible else groups
    return WorkerPlan(workers, env.num_envs // workers, groups)


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return len(usable(0)) if usable else os.cpu_count() or 1


def simulator_problems(env: EnvConfig, run: RunConfig, simulated: bool) -> Iterator[Problem]:
    """Find what a simulator rules out, and numbers that do not divide; or options that only a simulator reads."""
    if not simulated:
        given = {"env.num_workers": env.num_workers, "env.envs_per_worker": env.envs_per_worker}
        for key, value in {**given, "env.async_factor": env.async_factor}.items():
            if value:
                words = f"{env.id} is written in JAX, so no worker processes step it"
                yield Problem("no_workers", (key, "env.id"), words, fix(key, 0))
        return
    fixed: dict[str, tuple[object, object, str]] = {
        "run.num_seeds": (run.num_seeds, 1, "a simulator trains one agent per run; start one run per --seed"),
        "run.devices": (run.devices, 1, "a simulator trains on one device"),
        "env.action_repeat": (env.action_repeat, 1, "a simulator repeats actions itself"),
        "env.reset_on_done": (env.reset_on_done, "fresh", "a simulator starts every episode from a new seed"),
        "env.full_reset_every": (env.full_reset_every, 0, "a simulator's episodes are never cut short"),
    }
    for key, (chosen, only, words) in fixed.items():
        if chosen != only:
            yield Problem("simulator", (key, "env.id"), words, fix(key, only))
    yield from worker_problems(env)


def worker_problems(env: EnvConfig) -> Iterator[Problem]:
    """Find numbers of workers and groups that do not divide the environments."""
    total, each, groups = env.num_envs, env.envs_per_worker, num_groups(env)
    workers = env.num_workers or (total // each if each else 0)
    if env.num_workers > total:
        words = f"more workers than environments: {env.num_workers} > {total}"
        yield Problem("workers", ("env.num_workers", "env.num_envs"), words, fix("env.num_workers", total))
    elif each and (total % each or workers * each != total):
        words = f"{total} environments are not {workers or 1} workers x {each} environments"
        works = fix("env.num_envs", (workers or 1) * each) + fix("env.envs_per_worker", 0)
        yield Problem("workers", ("env.num_envs", "env.num_workers", "env.envs_per_worker"), words, works)
    elif workers and total % workers:
        words = f"{workers} workers do not divide {total} environments"
        works = fix("env.num_workers", 0) + fix("env.num_envs", total // workers * workers)
        yield Problem("workers", ("env.num_workers", "env.num_envs"), words, works)
    elif total % groups or (workers and workers % groups):
        what = f"{workers} workers" if workers and workers % groups else f"{total} environments"
        words = f"{groups} groups do not divide {what}"
        works = fix("env.async_factor", 1) + (fix("env.num_workers", 0) if workers else ())
        yield Problem("groups", ("env.async_factor", "env.num_workers", "env.num_envs"), words, works)
