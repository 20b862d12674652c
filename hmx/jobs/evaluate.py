"""`hmx evaluate`: statistics of a policy over whole episodes."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from hmx.algos.evaluate import (
    TO_THE_END,
    Chunks,
    Episodes,
    EvalPolicy,
    OpenChunks,
    Play,
    algorithm_policy,
    make_chunks,
    make_evaluation,
    one_of,
    random_policy,
    search_policy,
)
from hmx.algos.search import check_search, make_search, searched
from hmx.algos.types import TrainState
from hmx.config.codec import diff
from hmx.config.coerce import show
from hmx.config.schema import Config, EnvConfig, RewardWeights
from hmx.envs.protocol import Env
from hmx.envs.registry import make_env
from hmx.errors import HmxError
from hmx.jobs.changed import changed
from hmx.jobs.evaluation import RANDOM, EvaluateResult, PolicyStats, Progress, no_progress
from hmx.records.paths import DEFAULT_ROOT
from hmx.registry.environments import find_environment
from hmx.registry.load import load
from hmx.registry.trust import trusting
from hmx.runs.compilation import CompileTimer, enable_cache
from hmx.runs.loop import eval_key, seed_state
from hmx.runs.lowered import LoweredPrograms, lowered_programs
from hmx.runs.restoring import Run
from hmx.runs.session import Session, build_and_check, open_task
from hmx.runs.signals import interruptible
from hmx.runs.simulated import opened
from hmx.stats import intervals as stats
from hmx.types import Array, Key

MAX_EPISODES = 10_000_000  # of one policy; each is kept until all have ended
POLICIES = (RANDOM, "sampled", "greedy", "search")
_CHUNK = 0.5  # approximate seconds of playing between two reports of progress
_SIDE_BY_SIDE = 256  # environments at least, if there are as many episodes
_COSTLY_SIDE_BY_SIDE = 16  # where the batch resets whenever an episode ends: with more, that is in every step
_SEARCHES = 64  # at least, with a search
SEES = "gumbel.sees"


def evaluate(
    run: str | Path | None = None,
    *,
    episodes: int | None = None,
    policies: Sequence[str] | None = None,
    search: int | None = None,
    seed: int | None = None,
    checkpoint: int | None = None,
    changes: Mapping[str, object] | None = None,
    root: str | Path = DEFAULT_ROOT,
    trust: bool = False,
    progress: Progress = no_progress,
) -> EvaluateResult:
    """Play whole episodes with the policy of a run.

    Returns have the default reward weights, whatever the run was trained with, and those of `changes`: so agents
    that learned from different rewards can be compared. A search still looks for the rewards of the training.

    Args:
        run: name or path of the run; None for the policy `random`, which needs no trained agent.
        episodes: per policy and seed; None takes `run.eval_episodes`, or 1,000 if that is 0.
        policies: some of `random`, `sampled`, `greedy` and `search`; None takes `sampled` and `greedy`, or `greedy` and
            `search` if `search` is given.
        search: simulations per decision of the policy `search`; None takes those of a run that learned from search.
        seed: seed of the evaluation; None takes that of the run. All policies start from the same positions.
        checkpoint: update of the checkpoint; None takes the newest intact one.
        changes: dotted key -> new value, such as `env.rules`, for this evaluation only.
        root: runs folder, for a name.
        trust: whether to run code that the run names.
        progress: called with the episodes that have ended, about twice a second.

    Raises:
        HmxError: unknown policy, no episodes, an unfit change or search (exit code 2); no run or checkpoint (3).
    """
    if run is None:
        if search is not None or checkpoint is not None or set(policies or ()) != {RANDOM}:
            hint = "hmx evaluate RUN, or hmx evaluate --policy random"
            raise HmxError("cannot evaluate: no run given, and only random needs none", hint)
        return _at_random(episodes, seed, changes or {}, trust, progress)
    found = Run.find(run, root)
    with trusting(trust):
        task = changed(found, changes or {}, free=[SEES])
        cfg = task.config
        policies, search = _chosen(policies, search, task.simulations if search is None else search)
        _check(episodes, policies, search)
        warning = enable_cache()
        session = open_task(task.changed({SEES: found.cfg.gumbel.sees}), found.paths)
    restored = found.policy(session, checkpoint)
    seed = cfg.run.seed if seed is None else seed
    episodes = episodes or cfg.run.eval_episodes or 1000
    weights = counted_weights(cfg.env, cfg.reward, changes or ())
    play = make_player(session.changed({SEES: cfg.gumbel.sees}), episodes, search, weights)
    rows = [row for policy in policies for row in play(restored.state, policy, seed, progress)]
    sees = None if search is None or session.env.spec.redrawn is None else cfg.gumbel.sees
    return EvaluateResult(
        run=found.folder, env=cfg.env.id, checkpoint=restored.update, episodes=episodes, seed=seed, search=search,
        sees=sees, env_steps=restored.update * session.sizes.batch_size, policies=tuple(rows),
        changes={key: new for key, (_, new) in diff(found.cfg, cfg).items()},
        trained_with=unlike(cfg.reward, weights), warnings=(*([warning] if warning else []), *restored.warnings),
    )  # fmt: skip


def _chosen(
    policies: Sequence[str] | None, search: int | None, simulations: int | None
) -> tuple[Sequence[str], int | None]:
    """Return the policies to play and the simulations of the search; without need no search is compiled."""
    if policies is None or "search" in policies:
        search = simulations
    if policies is None:
        policies = ("sampled", "greedy") if search is None else ("greedy", "search")
    return policies, search


def counted_weights(env: EnvConfig, given: RewardWeights, chosen: Collection[str] = ()) -> RewardWeights:
    """Return the reward weights that returns count: the default ones, apart from those of `chosen` keys.

    In an environment that reads no weights, they are those that are given.
    """
    entry = find_environment(env.id)
    if entry is None or "RewardWeights" not in entry.options:
        return given
    names = [key.removeprefix("reward.") for key in chosen if key.startswith("reward.")]
    return RewardWeights(**{name: getattr(given, name) for name in names})


def unlike(trained: RewardWeights, evaluated: RewardWeights) -> dict[str, float]:
    """Return the weights of a training that an evaluation does not have, by dotted key."""
    now = dataclasses.asdict(evaluated)
    return {f"reward.{name}": weight for name, weight in dataclasses.asdict(trained).items() if weight != now[name]}


def _at_random(
    episodes: int | None, seed: int | None, changes: Mapping[str, object], trust: bool, progress: Progress
) -> EvaluateResult:
    """Evaluate random play, which needs no trained agent."""
    _check(episodes, [RANDOM], None)
    with trusting(trust):
        task = load(sets=[f"{key}={show(value)}" for key, value in changes.items()])
        warning = enable_cache()
        task, env = build_and_check(task)
    cfg = task.config
    episodes, seed = episodes or cfg.run.eval_episodes or 1000, cfg.run.seed if seed is None else seed
    choices = {RANDOM: random_policy(action_dim=env.spec.action_dim, parts=env.spec.action_parts)}
    programs = lowered_programs(task.values, ("without agent", *task.values.items()))
    play = _make_player(cfg, _chunks(env, cfg.env, choices, episodes, programs), list(choices), episodes)
    rows = play(None, RANDOM, seed, progress)
    return EvaluateResult(
        run=None, env=cfg.env.id, checkpoint=None, env_steps=None, episodes=episodes, seed=seed, policies=tuple(rows),
        changes={key: new for key, (_, new) in diff(Config(), cfg).items() if key in changes},
        warnings=(warning,) if warning else (),
    )  # fmt: skip


def side_by_side(env: Env, num_envs: int, episodes: int, looks_ahead: bool) -> int:
    """Return the number of environments that an evaluation uses, if there are as many episodes.

    Looking ahead costs the same in a finished environment, so few play several episodes each.
    """
    if env.spec.simulator is not None:
        return num_envs
    if env.spec.costly_reset:
        return _COSTLY_SIDE_BY_SIDE
    most = max(num_envs, _SIDE_BY_SIDE)
    return min(most, max(_SEARCHES, episodes // 8)) if looks_ahead else most


class PlayPolicy(Protocol):
    """A function that plays the episodes of a policy."""

    def __call__(
        self, state: TrainState | None, name: str, seed: int, progress: Progress = no_progress, most: int = TO_THE_END
    ) -> list[PolicyStats]:
        """Return a row per trained agent, or one row for a policy without an agent.

        After `most` steps in each environment, episodes that have not ended are abandoned.
        """


def make_player(
    session: Session,
    episodes: int,
    search: int | None = None,
    weights: RewardWeights | None = None,
    names: tuple[str, ...] = POLICIES,
) -> PlayPolicy:
    """Return the player of the policies of a session.

    Args:
        session: session of the run.
        episodes: per policy.
        search: simulations of the policy `search`; None leaves it out.
        weights: reward weights that returns count; None for those of `counted_weights`.
        names: the policies that are needed.

    Raises:
        HmxError: a search that is not possible in this environment.
    """
    if search is not None:
        check_search(session.env.spec, search)
        session = session._replace(env=searched(session.env, session.cfg.gumbel.sees, search))
    choices = _choices(session, search, names)
    shared = {} if session.shared is None else session.shared.players
    cfg = session.cfg
    weights = weights or counted_weights(cfg.env, cfg.reward)
    key = (episodes, search, weights, names)
    if key not in shared:
        env = session.env
        if weights != cfg.reward:
            env = searched(make_env(cfg.env, weights), cfg.gumbel.sees, search)
        programs = None if session.lowered is None else session.lowered.part(search, cfg.gumbel.sees, weights, *names)
        shared[key] = _chunks(env, cfg.env, choices, episodes, programs)
    return _make_player(cfg, shared[key], list(choices), episodes, search)


def _choices(session: Session, search: int | None, names: Collection[str]) -> dict[str, EvalPolicy]:
    """Return those of the policies of a session that are named."""
    algorithm, spec = session.algorithm, session.env.spec
    choices = {
        RANDOM: random_policy(algorithm.initial_carry, spec.action_dim, spec.action_parts),
        "sampled": algorithm_policy(algorithm, greedy=False),
        "greedy": algorithm_policy(algorithm, greedy=True),
    }
    if search is not None:
        choices["search"] = search_policy(algorithm, make_search(algorithm, session.env, session.cfg, search))
    return {name: policy for name, policy in choices.items() if name in names}


def _chunks(
    env: Env, cfg: EnvConfig, choices: Mapping[str, EvalPolicy], episodes: int, programs: LoweredPrograms | None
) -> OpenChunks:
    """Return the program that plays any of several policies, chosen at run time.

    Compiling the environment is the larger part of a short evaluation.
    """
    policy = one_of(list(choices.values()))
    count = side_by_side(env, cfg.num_envs, episodes, policy.looks_ahead)
    whole = make_evaluation(env, policy, count, episodes)
    chunks = make_chunks(whole)
    if programs is not None:
        stored = programs.part("evaluate", count, episodes)
        chunks = Chunks(stored.reuse("start", chunks.start), stored.reuse("advance", chunks.advance, donate=[2]))

    @contextlib.contextmanager
    def open_chunks(seed: int) -> Iterator[Chunks]:
        with opened(env, cfg, min(count, episodes), seed) as stepped:
            yield chunks if stepped is env else make_chunks(whole.on(stepped))

    return open_chunks


def _make_player(
    cfg: Config, open_chunks: OpenChunks, names: Sequence[str], episodes: int, search: int | None = None
) -> PlayPolicy:
    """Return the player of a program; `names` are those of its policies, in order."""
    num_seeds, compiled = cfg.run.num_seeds, False

    def play(
        state: TrainState | None, name: str, seed: int, progress: Progress = no_progress, most: int = TO_THE_END
    ) -> list[PolicyStats]:
        nonlocal compiled
        rows = []
        alone = name == RANDOM
        agents = 1 if alone else num_seeds
        for i in range(agents):
            agent = (np.int32(names.index(name)), None if state is None else seed_state(state, i, num_seeds))
            timer = None if compiled else CompileTimer("evaluate", cfg, episodes, search, *names)
            if timer is not None:
                progress("compiling" + (f" ({timer.last})" if timer.last else ""), 0, 0)
            compiled = True
            report = partial(progress, f"playing {name}{f', seed {i + 1} of {agents}' if agents > 1 else ''}")
            # The same key for every policy, so that all start from the same positions.
            with open_chunks(seed) as chunks:
                played = _play(chunks, agent, eval_key(seed), (episodes, most), report, timer)
            rows.append(summarise(name, None if alone else cfg.run.seed + i, played))
        return rows

    return play


def _play(
    chunks: Chunks,
    agent: Any,
    key: Key,
    sizes: tuple[int, int],
    report: Callable[[int, int, float], None],
    timer: CompileTimer | None,
) -> Episodes:
    """Play in chunks of about half a second, and report after each; `timer` ends with the compilation.

    `sizes` are the episodes, and the steps in each environment after which those that have not ended are abandoned.
    """
    (total, left), (play, k_steps) = sizes, interruptible(partial(chunks.start, key))
    size, begun, first = 1, 0.0, 0.0

    def advance() -> tuple[Play, tuple[Array, Array, Array]]:
        after, played = chunks.advance(agent, k_steps, play, np.int32(size))
        return after, jax.device_get(played)  # waits for the steps

    while True:
        start = time.monotonic()
        play, (unfinished, ended, steps) = interruptible(advance)
        now = time.monotonic()
        if not begun:  # the first chunk includes compiling
            begun, first = now, float(steps)
            if timer is not None:
                timer.done()
        report(int(ended), total, (float(steps) - first) / (now - begun) if now > begun else 0.0)
        left -= size
        if not unfinished or left <= 0:
            found: Episodes = jax.device_get(play.episodes)
            return found
        size = min(size * (2 if size == 1 or now - start < _CHUNK / 2 else 1), left)


def summarise(policy: str, seed: int | None, played: Episodes) -> PolicyStats:
    """Compute the statistics of a set of episodes (host arrays)."""
    returns = [float(x) for x in np.asarray(played.total)]
    lengths = [float(x) for x in np.asarray(played.length)]
    info = {name: [float(x) for x in np.asarray(values)] for name, values in sorted(played.info.items())}
    per_episode = {name: stats.mean(values) for name, values in info.items()}
    stages = info.get("highest_stage")
    won = [wins > 0 for wins in info["wins"]] if "wins" in info else None
    wins = None if won is None else sum(won)
    without = None
    if won is not None and "undo_stages" in info:
        without = sum(is_won and stages == 0 for is_won, stages in zip(won, info["undo_stages"], strict=True))
    return PolicyStats(
        policy=policy,
        seed=seed,
        episodes=len(returns),
        unfinished=int((~np.asarray(played.finished)).sum()),
        return_mean=stats.mean(returns),
        return_interval=stats.bootstrap(returns),
        return_median=stats.median(returns),
        reward_terms={name: stats.mean([float(x) for x in np.asarray(v)]) for name, v in played.terms.items()},
        length_mean=stats.mean(lengths),
        length_interval=stats.mean_interval(lengths),
        stage_mean=stats.mean(stages) if stages else None,
        stage_median=stats.median(stages) if stages else None,
        stage_max=int(max(stages)) if stages else None,
        stage_counts=dict(sorted(Counter(int(s) for s in stages).items())) if stages else {},
        wins=wins,
        win_rate_interval=None if wins is None else stats.wilson(wins, len(returns)),
        stages_completed=per_episode.get("stages_completed"),
        undo_stages=per_episode.get("undo_stages"),
        wins_without_undo=without,
        info=per_episode,
    )


def _check(episodes: int | None, policies: Sequence[str], search: int | None) -> None:
    if episodes is not None and episodes < 1:
        raise HmxError(f"cannot play {episodes} episodes", "--episodes 1000")
    if episodes is not None and episodes > MAX_EPISODES:
        raise HmxError(f"cannot play {episodes:,} episodes: too many to keep", f"--episodes {MAX_EPISODES}")
    unknown = [policy for policy in policies if policy not in POLICIES]
    if unknown or not policies:
        raise HmxError(f"unknown policy: {', '.join(unknown) or 'none given'}", f"policies are {', '.join(POLICIES)}")
    if "search" in policies and search is None:
        raise HmxError("cannot play the policy search: number of simulations missing", "add --search 32")
