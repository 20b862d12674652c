"""Play episodes with the trained agent, and keep the best, the median and the worst with all their positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.evaluate import (
    Chunks,
    Episodes,
    EvalPolicy,
    KeptStep,
    Recorded,
    keep_step,
    make_evaluation,
    make_recorder,
    record,
)
from hmx.algos.search import make_act, searched
from hmx.envs.pictures import described
from hmx.envs.protocol import EnvSpec, take
from hmx.jobs.evaluate import side_by_side
from hmx.jobs.evaluation import RANDOM, PolicyStats, Progress
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonValue
from hmx.reports.report.findings import PlayedEpisode, PlayedEpisodes, PlayedStep
from hmx.reports.report.request import EPISODES, ReportRequest
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import eval_key
from hmx.runs.restoring import Run
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.runs.simulated import opened
from hmx.types import Array, Key

LONGEST = 1000  # steps of an episode that are shown, at most
MOST = 20_000  # episodes of an evaluation that is played again, at most

_NUMBERS = 32  # of an observation, at most
_STREAM = 4  # of the seed: 0 to 3 are for training, evaluation, gradient reports and scores


class _Plan(NamedTuple):
    """The episodes to play: those of an evaluation are played again with its random numbers."""

    evaluated: PolicyStats | None
    greedy: bool
    seed: int
    key: Key
    num_envs: int
    episodes: int
    search: int | None  # simulations per decision
    longest: int | None  # steps of an episode; None for the limit of the environment


def play_episodes(
    paths: RunPaths, request: ReportRequest, evaluation: Sequence[PolicyStats], progress: Progress
) -> PlayedEpisodes:
    """Play episodes with the first agent of the newest intact checkpoint.

    The default options play the episodes of the evaluation again; without an evaluation, new ones are played.
    """
    run = Run.of(paths)
    enable_cache()
    session = run.open()
    restored = run.agent(session)
    plan = _plan(session, request, evaluation)
    found, shown = interruptible(lambda: _play(session, restored.state, plan, progress))
    return PlayedEpisodes(
        checkpoint=restored.update, seed=plan.seed, greedy=plan.greedy, played=plan.episodes,
        returns=tuple(sorted(float(x) for x in found.total)), shown=shown,
        evaluated=None if plan.evaluated is None else plan.evaluated.return_mean,
    )  # fmt: skip


def _plan(session: Session, request: ReportRequest, evaluation: Sequence[PolicyStats]) -> _Plan:
    cfg = session.cfg
    row = next((row for row in evaluation if row.policy != RANDOM and row.seed == cfg.run.seed), None)
    if request.of_evaluation and row is not None and 0 < row.episodes <= MOST:
        key = eval_key(cfg.run.seed)
        search = session.task.simulations if row.policy == "search" else None
        num_envs = side_by_side(session.env, cfg.env.num_envs, row.episodes, session.task.simulations is not None)
        return _Plan(row, row.policy == "greedy", cfg.run.seed, key, num_envs, row.episodes, search, None)
    episodes, key = request.num_episodes or EPISODES, jax.random.fold_in(jax.random.key(request.seed), _STREAM)
    num_envs, longest = episodes, min(session.env.spec.max_steps or LONGEST, LONGEST)
    if session.env.spec.simulator is not None:
        num_envs, longest = cfg.env.num_envs, 0
    return _Plan(None, request.greedy, request.seed, key, num_envs, episodes, session.task.simulations, longest or None)


def _play(session: Session, state: Any, plan: _Plan, progress: Progress) -> tuple[Episodes, tuple[PlayedEpisode, ...]]:
    """Play all episodes, and the best, the median and the worst of them a second time to keep their steps.

    Episodes of a simulator are the same the second time if it is deterministic.
    """
    env = searched(session.env, session.cfg.gumbel.sees, plan.search)
    spec, algorithm = env.spec, session.algorithm
    policy = EvalPolicy(make_act(algorithm, env, session.cfg, plan.search, plan.greedy), algorithm.initial_carry)
    whole = make_evaluation(env, policy, plan.num_envs, plan.episodes, plan.longest)
    recorder = make_recorder(whole, partial(keep_step, spec))
    if session.lowered is not None:
        programs = session.lowered.part("report", plan.search, plan.greedy, plan.num_envs, plan.episodes, plan.longest)
        recorder = Chunks(programs.reuse("start", recorder.start), programs.reuse("advance", recorder.advance))

    def steps(entries: Sequence[int]) -> Iterator[tuple[Episodes, Recorded]]:
        with opened(env, session.cfg.env, min(plan.num_envs, plan.episodes), plan.seed) as stepped:
            own = recorder if stepped is env else make_recorder(whole.on(stepped), partial(keep_step, spec))
            key = jax.random.clone(plan.key)  # the same random numbers each time, on purpose
            for found, recorded in record(own, state, key, entries):
                progress("compiling and playing episodes", int(found.finished.sum()), plan.episodes)
                yield found, recorded

    progress("compiling and playing episodes", 0, plan.episodes)
    for so_far, _ in steps([0] * len(_places(plan.episodes))):
        last = so_far
    found: Episodes = jax.device_get(last)
    places, entries = _chosen(found.total)
    kept: list[list[KeptStep]] = [[] for _ in places]
    shows_obs = spec.describe is None and spec.render is None
    for so_far, recorded in steps(entries):
        step = jax.device_get(recorded)
        for i in np.flatnonzero(step.playing):
            kept[i].append(step.kept if shows_obs else step.kept._replace(obs=None))
        if np.asarray(so_far.finished)[entries].all():
            break
    return found, tuple(_episode(spec, place, kept[i], i) for i, place in enumerate(places))


def _places(episodes: int) -> tuple[str, ...]:
    return ("best", "median", "worst") if episodes >= 3 else ("best",)


def _chosen(total: Array) -> tuple[tuple[str, ...], list[int]]:
    """Return the places to show, and the number of the episode of each."""
    places = _places(len(total))
    order = np.argsort(total, kind="stable")
    index = {"best": -1, "median": (len(order) - 1) // 2, "worst": 0}
    return places, [int(order[index[place]]) for place in places]


def _episode(spec: EnvSpec, place: str, steps: Sequence[KeptStep], i: int) -> PlayedEpisode:
    """Describe the episode of the environment at index i; the page shows only the start of a very long one."""
    last = steps[-1]
    won = any(name.startswith("wins") and value[i] > 0 for name, value in last.info.items())
    ending = "won" if won else "ended" if last.terminated[i] else "step limit" if last.truncated[i] else "not finished"
    total = sum(float(step.reward[i].sum()) for step in steps)
    return PlayedEpisode(place, total, len(steps), ending, tuple(_step(spec, step, i) for step in steps[:LONGEST]))


def _step(spec: EnvSpec, step: KeptStep, e: int) -> PlayedStep:
    actions, probs = step.decision.action[e], step.decision.probs[e]
    value = float(np.mean(step.decision.value[e]))
    names = spec.action_names
    if spec.action_dim:
        action = ", ".join(f"{x:+.2f}" for x in np.asarray(actions).reshape(-1))
    elif spec.action_parts:
        action = ", ".join(str(int(part)) for part in np.asarray(actions).reshape(-1))
    else:
        action = ", ".join(names[int(index)] if int(index) < len(names) else str(int(index)) for index in actions)
    terms = {name: round(float(values[e]), 6) for name, values in step.terms.items() if values[e]}
    return PlayedStep(
        state=_state(spec, step, e),
        action=action,
        probabilities={names[i]: float(p) for i, p in enumerate(probs[0]) if p > 0}
        if names and len(probs) == 1
        else {},
        value=value if np.isfinite(value) else None,
        reward=round(float(step.reward[e].sum()), 6),
        terms=terms,
    )


def _state(spec: EnvSpec, step: KeptStep, e: int) -> Mapping[str, JsonValue]:
    """Describe the position of an environment before a step."""
    obs = None if step.obs is None else step.obs[e]
    return described(spec, take(spec, step.env_state, np.array([e])), obs, _NUMBERS)
