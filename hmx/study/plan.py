"""`hmx study new --dry-run`: what a study would run, and how long that would take."""

from __future__ import annotations

import dataclasses
import math
import time
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from hmx.config.schema import EnvConfig
from hmx.errors import counted
from hmx.records.plain import JsonResult
from hmx.registry.check import known_problems
from hmx.registry.derive import Derived, derive
from hmx.registry.environments import find_environment, step_limit
from hmx.registry.load import Loaded, bind
from hmx.reports.curves import MIN_REPORTS
from hmx.study.halving import expected_at, update_at
from hmx.study.records import Study, StudySettings
from hmx.study.space import ends
from hmx.study.status import steps_of

_SECONDS = 3.0  # of training, to measure its speed


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedRung:
    """A rung of a plan; the number of trials is what halving expects."""

    rung: int
    env_steps: int  # per seed, with the base configuration
    trials: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class StudyPlan(JsonResult):
    """The plan of a study: nothing has been written."""

    study: Path
    settings: StudySettings
    seeds: int
    rungs: tuple[PlannedRung, ...]
    confirmations: int
    search_steps: int  # expected environment steps, over all seeds
    confirm_steps: int
    steps_per_cpu_second: float | None  # over all seeds
    cpu_seconds: float | None
    warnings: tuple[str, ...] = ()


def plan_of(study: Study, steps_per_cpu_second: float | None = None) -> StudyPlan:
    """Return the plan of a study that is not written yet."""
    settings = study.settings
    search, confirm = steps_of(study)
    sizes = derive(study.base)
    return StudyPlan(
        study=study.folder,
        settings=settings,
        seeds=study.base.run.num_seeds,
        rungs=tuple(
            PlannedRung(
                rung=rung, env_steps=update_at(sizes.num_updates, share) * sizes.batch_size,
                trials=expected_at(settings, rung),
            )
            for rung, share in enumerate(settings.rungs)
        ),
        confirmations=min(settings.confirm_top, expected_at(settings, study.last_rung)),
        search_steps=search,
        confirm_steps=confirm,
        steps_per_cpu_second=steps_per_cpu_second,
        cpu_seconds=(search + confirm) / steps_per_cpu_second if steps_per_cpu_second else None,
        warnings=(str(short),) if (short := first_rung(study)) else (),
    )  # fmt: skip


class ShortRung(NamedTuple):
    """Why the first rung of a study may be too short for a value of its objective that tells trials apart."""

    certain: bool  # whether no trial can have one
    why: str
    longer: str  # options that are long enough; empty if that is unknown
    so: str = "a trial without a value cannot continue"

    def __str__(self) -> str:
        return f"{self.why}; {self.so}" + f" ({self.longer})" * bool(self.longer)


def first_rung(study: Study) -> ShortRung | None:
    """Return why a value may be missing at the first rung; None if nothing speaks for that."""
    varied = (cfg for _, cfg in ends(study.settings.space, study.configs) if not known_problems(cfg))
    found = [
        _too_short(cfg.env, cfg.algo.num_steps, derive(cfg), study.settings)
        for cfg in (*study.configs.values(), *varied)
    ]
    short = [one for one in found if one]
    return max(short)._replace(certain=all(one and one.certain for one in found)) if short else None


def _too_short(env: EnvConfig, num_steps: int, sizes: Derived, settings: StudySettings) -> ShortRung | None:
    objective = settings.objective
    updates, per_update = update_at(sizes.num_updates, settings.rungs[0]), num_steps * env.action_repeat
    needs, why, certain = 0, f"rung 0 trains {counted(updates * per_update, 'step')} per environment", False
    so = ShortRung._field_defaults["so"]
    if objective.threshold is not None and updates < MIN_REPORTS:
        needs, why, certain = MIN_REPORTS, f"{why}, {updates} updates, and a threshold needs {MIN_REPORTS}", True
    elif "mean_episode" in objective.metric:
        entry, limit = find_environment(env.id), longest_episode(env)
        if not limit:
            return ShortRung(False, f"{why}, and nothing limits an episode of {env.id}", "")
        needs, certain = math.ceil(limit / per_update), entry is not None and entry.endless
        why = f"{why}, the step limit is {limit:,}"
    if needs <= updates == 1 < len(settings.rungs) and "mean_episode" in objective.metric:
        needs, certain, so = 2, False, "trials that have not learned would compete"
        why = "rung 0 trains 1 update, and its episodes are played before that update"
    if updates >= needs:
        return None
    longer = f"--steps {math.ceil(needs / settings.rungs[0] - 1e-9) * sizes.batch_size} is enough"
    return ShortRung(certain, why, longer + ", or --rungs 1" * (sizes.num_updates >= needs), so)


def longest_episode(cfg: EnvConfig) -> int:
    """Return the largest number of steps of an episode, without building the environment; 0 if unknown."""
    extra, _, name = cfg.id.partition("/")
    limit = step_limit(cfg)
    if extra == "gymnasium" and find_spec("gymnasium") is not None:
        from gymnasium.envs.registration import registry

        own = getattr(registry.get(name), "max_episode_steps", None)
        return min(limit or own, own) if own else limit
    return limit


def measure_speed(study: Study) -> float:
    """Return the environment steps per processor second of training, over all seeds, as measured for some seconds.

    Raises:
        HmxError: the configuration cannot run (exit code 2).
    """
    from hmx.jobs.train import check_run
    from hmx.reports.bench.hosted import make_updates
    from hmx.runs.session import open_task

    with closing(make_updates(check_run(open_task(bind(Loaded(study.base)))).session)) as updates:
        updates.update(1)
        begun, cpu, done = time.monotonic(), updates.cpu_seconds(), 0
        while time.monotonic() - begun < _SECONDS:
            updates.update(updates.length)
            done += updates.length
        return done * updates.steps / (updates.cpu_seconds() - cpu)
