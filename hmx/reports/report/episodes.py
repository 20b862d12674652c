"""Play episodes with the trained agent, and keep the best, the median and the worst with all their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.evaluate import Episodes, EvalPolicy, Play, make_evaluation
from hmx.algos.search import make_act, simulations_of
from hmx.algos.types import Decision, TrainState
from hmx.envs.protocol import EnvSpec, take
from hmx.jobs.evaluate import side_by_side
from hmx.jobs.evaluation import RANDOM, PolicyStats, Progress
from hmx.jobs.hosted_evaluation import HostedEvaluation, decide_in
from hmx.records.paths import RunPaths
from hmx.records.plain import JsonValue
from hmx.reports.report.findings import PlayedEpisode, PlayedEpisodes, PlayedStep
from hmx.reports.report.request import EPISODES, ReportOptions
from hmx.runs.compilation import enable_cache
from hmx.runs.hosted_play import HostedStep
from hmx.runs.loop import eval_keys
from hmx.runs.restoring import Run
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.stats.intervals import Floats
from hmx.types import Array, Key

LONGEST = 1000  # steps of an episode that are shown, at most
MOST = 20_000  # episodes of an evaluation that is played again, at most

_NUMBERS = 32  # of an observation, at most
_STREAM = 4  # of the seed: 0 to 3 are for training, evaluation, gradient reports and scores


class _Recorded(NamedTuple):
    """One step of the episodes that are shown, on the host."""

    env_state: Any  # before the action
    playing: Any  # whether the episode to show is being played
    obs: Any  # before the action; None if the environment describes or renders its states
    decision: Decision
    reward: Any
    terms: Mapping[str, Floats]
    info: Mapping[str, Floats]
    terminated: Any
    truncated: Any


class _Plan(NamedTuple):
    """The episodes to play: those of an evaluation are played again with its random numbers."""

    evaluated: PolicyStats | None
    greedy: bool
    seed: int
    key: Key
    num_envs: int
    episodes: int
    search: int | None  # simulations per decision


def play_episodes(
    paths: RunPaths, options: ReportOptions, evaluation: Sequence[PolicyStats], progress: Progress
) -> PlayedEpisodes:
    """Play episodes with the first agent of the newest intact checkpoint.

    The default options play the episodes of the evaluation again; without an evaluation, new ones are played.
    """
    run = Run.of(paths)
    enable_cache()
    session = run.open()
    restored = run.agent(session)
    plan = _plan(session, options, evaluation)
    play = _play if session.env.spec.simulator is None else _play_simulator
    found, shown = interruptible(lambda: play(session, restored.state, plan, progress))
    return PlayedEpisodes(
        checkpoint=restored.update, seed=plan.seed, greedy=plan.greedy, played=plan.episodes,
        returns=tuple(sorted(float(x) for x in found.total)), shown=shown,
        evaluated=None if plan.evaluated is None else plan.evaluated.return_mean,
    )  # fmt: skip


def _plan(session: Session, options: ReportOptions, evaluation: Sequence[PolicyStats]) -> _Plan:
    cfg = session.cfg
    row = next((row for row in evaluation if row.policy != RANDOM and row.seed == cfg.run.seed), None)
    if options == ReportOptions() and row is not None and 0 < row.episodes <= MOST:
        key = eval_keys(cfg.run.seed, 1)
        search = simulations_of(cfg) if row.policy == "search" else None
        num_envs = side_by_side(session, row.episodes, simulations_of(cfg))
        return _Plan(row, row.policy == "greedy", cfg.run.seed, key, num_envs, row.episodes, search)
    episodes, key = options.num_episodes or EPISODES, jax.random.fold_in(jax.random.key(options.seed), _STREAM)
    return _Plan(None, options.greedy, options.seed, key, episodes, episodes, simulations_of(cfg))


def _play(session: Session, state: Any, plan: _Plan, progress: Progress) -> tuple[Episodes, tuple[PlayedEpisode, ...]]:
    """Play all episodes, and the best, the median and the worst of them a second time to keep their steps."""
    env, spec, algorithm = session.env, session.env.spec, session.algorithm
    decide = make_act(algorithm, env, session.cfg, plan.search, plan.greedy)

    def act(state: Any, env_state: Any, carry: Any, *seen: Any) -> tuple[Array, Any]:
        decision, carry = decide(state, env_state, carry, *seen)
        return decision.action, (carry, decision)

    policy = EvalPolicy(act, algorithm.initial_carry)
    longest = None if plan.evaluated else min(spec.max_steps or LONGEST, LONGEST)
    whole = make_evaluation(env, policy, plan.num_envs, plan.episodes, longest)
    k_reset, k_steps = jax.random.split(plan.key)

    def one_step(state: TrainState, key: Key, play: Play, entries: Array) -> tuple[Play, _Recorded, Array]:
        after, timestep = whole.step(state, key, play)
        carry, decision = after.carry
        after = after._replace(carry=carry)
        outcome = (timestep.reward, timestep.terms, timestep.info, timestep.terminated, timestep.truncated)
        obs = None if spec.describe is not None or spec.render is not None else play.obs
        here = play.entry[None] == entries[:, None]
        envs = here.argmax(1)
        kept = jax.tree.map(lambda leaf: leaf[envs], (obs, decision, *outcome))
        return after, _Recorded(take(spec, play.env_state, envs), here.any(1), *kept), whole.unfinished(after)

    def steps(entries: Sequence[int] | np.ndarray[Any, Any]) -> Iterator[tuple[Play, _Recorded]]:
        play, more = start, True
        while more:
            play, recorded, unfinished = advance(state, k_steps, play, np.asarray(entries, np.int32))
            more = bool(unfinished)
            progress("compiling and playing episodes", int(play.episodes.finished.sum()), plan.episodes)
            yield play, recorded

    progress("compiling and playing episodes", 0, plan.episodes)
    begin: Callable[..., Any] = jax.jit(whole.start)
    advance: Callable[..., Any] = jax.jit(one_step)
    if session.lowered is not None:
        programs = session.lowered.part("report", plan.search, plan.greedy, plan.num_envs, plan.episodes, longest)
        begin, advance = programs.reuse("start", begin), programs.reuse("advance", advance)
    start = begin(k_reset)
    for play, _ in steps([0] * len(_places(plan.episodes))):
        last = play
    found: Episodes = jax.device_get(last.episodes)
    places, entries = _chosen(found.total)
    kept: list[list[_Recorded]] = [[] for _ in places]
    for play, recorded in steps(entries):
        step = jax.device_get(recorded)
        for i in np.flatnonzero(step.playing):
            kept[i].append(step)
        if np.asarray(play.episodes.finished)[entries].all():
            break
    return found, tuple(_episode(spec, place, kept[i], i) for i, place in enumerate(places))


def _play_simulator(
    session: Session, state: Any, plan: _Plan, progress: Progress
) -> tuple[Episodes, tuple[PlayedEpisode, ...]]:
    """Play all episodes of a simulator, and the shown ones a second time, which are the same if it is deterministic."""
    spec, algorithm = session.env.spec, session.algorithm
    num_envs = min(plan.num_envs, session.cfg.env.num_envs)
    evaluation = HostedEvaluation(spec, session.cfg.env, plan.seed, plan.key, num_envs, plan.episodes)
    decide = decide_in(spec, algorithm, state, "greedy" if plan.greedy else "sampled")
    found = evaluation.play(decide, algorithm.initial_carry, progress, "playing episodes")
    places, entries = _chosen(found.total)
    kept: dict[int, list[_Recorded]] = {entry: [] for entry in entries}
    ended: set[int] = set()
    for step, entry in evaluation.steps(decide, algorithm.initial_carry):
        for e in np.flatnonzero(np.isin(entry, entries)):
            kept[int(entry[e])].append(_recorded(step, int(e)))
            if step.terminated[e] | step.truncated[e]:
                ended.add(int(entry[e]))
        if len(ended) == len(kept):
            break
    return found, tuple(_episode(spec, place, kept[entry], 0) for place, entry in zip(places, entries, strict=True))


def _recorded(step: HostedStep, e: int) -> _Recorded:
    one = slice(e, e + 1)
    reward = step.reward[one, None]
    decision = jax.tree.map(lambda leaf: leaf[one], step.decision)
    ends = step.terminated[one], step.truncated[one]
    return _Recorded((), None, step.obs[one], decision, reward, {"reward": reward[:, 0]}, {}, *ends)


def _places(episodes: int) -> tuple[str, ...]:
    return ("best", "median", "worst") if episodes >= 3 else ("best",)


def _chosen(total: Array) -> tuple[tuple[str, ...], list[int]]:
    """Return the places to show, and the number of the episode of each."""
    places = _places(len(total))
    order = np.argsort(total, kind="stable")
    index = {"best": -1, "median": (len(order) - 1) // 2, "worst": 0}
    return places, [int(order[index[place]]) for place in places]


def _episode(spec: EnvSpec, place: str, steps: Sequence[_Recorded], i: int) -> PlayedEpisode:
    """Describe the episode of the environment at index i; the page shows only the start of a very long one."""
    last = steps[-1]
    won = any(name.startswith("wins") and value[i] > 0 for name, value in last.info.items())
    ending = "won" if won else "ended" if last.terminated[i] else "step limit" if last.truncated[i] else "not finished"
    total = sum(float(step.reward[i].sum()) for step in steps)
    return PlayedEpisode(place, total, len(steps), ending, tuple(_step(spec, step, i) for step in steps[:LONGEST]))


def _step(spec: EnvSpec, step: _Recorded, e: int) -> PlayedStep:
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


def _state(spec: EnvSpec, step: _Recorded, e: int) -> Mapping[str, JsonValue]:
    """Describe a position as the environment does, or by its text, or by the start of its observation."""
    if step.obs is None:
        state = take(spec, step.env_state, np.array([e]))
        if spec.describe is not None:
            return spec.describe(state)
        if spec.render is not None:
            return {"text": spec.render(state)}
    return {"observation": [[float(x) for x in agent.reshape(-1)[:_NUMBERS]] for agent in step.obs[e]]}
