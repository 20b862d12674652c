"""`hmx review`: play or take games, and judge their decisions."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from hmx.algos.evaluate import EvalPolicy, KeptStep, keep_step, make_evaluation, make_recorder, record, taking
from hmx.algos.policy_outputs import make_policy_outputs
from hmx.algos.types import Carry, Decision
from hmx.config.schema import EnvConfig
from hmx.envs.hackmatrix.entry import GameRules
from hmx.envs.protocol import EnvSpec, EnvState, playable, take
from hmx.errors import HmxError
from hmx.jobs.evaluation import Progress, no_progress
from hmx.records.paths import CHAMPION
from hmx.reports.review.findings import GameReview, ReviewFindings
from hmx.reports.review.judge import GamePositions, Judge, compile_program, judge_game, options_of
from hmx.reports.review.request import ReviewRequest
from hmx.runs.compilation import enable_cache
from hmx.runs.restoring import Restored, Run
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.scoring import make_continuation
from hmx.types import Array, Key

LONGEST = 2000  # moves of a game that is reviewed
_STREAM = 5  # of the seed: 0 to 4 are for training, evaluation, gradient reports, scores and reports


class PlayedGame(NamedTuple):
    """A game, with the positions before each of its moves."""

    name: str
    positions: GamePositions
    outcome: str
    total: float


def review_run(
    run: str | Path,
    *,
    request: ReviewRequest | None = None,
    progress: Progress = no_progress,
) -> ReviewFindings:
    """Play games with the agent of a run, and review them.

    Args:
        run: name or path of the run.
        request: how many games, and how carefully.
        progress: called with the phase, the games reviewed and all games.

    Raises:
        HmxError: an agent that cannot continue from a position (exit code 2); no such run (3).
    """
    request = request or ReviewRequest()
    enable_cache()
    player = _open(run, request, None)
    opened = player if not request.agent else _open(request.agent, request, player[1].cfg.env)
    progress("playing", 0, request.episodes)
    games = play_games(player[0], request.episodes, request.seed)
    return _review(str(run), *opened, games, request, progress)


def review_game(
    source: str,
    rules: GameRules,
    undo_depth: int,
    replay: Callable[[EnvConfig], PlayedGame],
    *,
    request: ReviewRequest | None = None,
    progress: Progress = no_progress,
) -> ReviewFindings:
    """Review a game of HackMatrix that was played before.

    Args:
        source: its name.
        rules: rules of the game.
        undo_depth: snapshots that UNDO kept in it.
        replay: plays it again, with the observations of an environment.
        request: which agent continues, and how carefully.
        progress: as of `review_run`.

    Raises:
        HmxError: an agent of another environment, or one that cannot continue from a position (exit code 2); no such
            run (3).
    """
    request = request or ReviewRequest()
    enable_cache()
    env = EnvConfig(rules=rules, undo_depth=undo_depth)
    judge, run, restored = _open(request.agent or CHAMPION, request, env)
    progress("playing", 0, 1)
    game = interruptible(partial(replay, dataclasses.replace(run.cfg.env, max_steps=0)))
    return _review(source, judge, run, restored, [game], request, progress)


def _open(run: str | Path, request: ReviewRequest, env: EnvConfig | None) -> tuple[Judge, Run, Restored]:
    """Load the agent of a run, in its own environment or in `env`."""
    source = Run.find(run)
    cfg, name = source.cfg, source.name
    if env is not None and env.id != cfg.env.id:
        message = f"cannot review a game of {env.id} with {name}: its agent plays {cfg.env.id}"
        raise HmxError(message, "choose the run of an agent with --agent RUN")
    if env is not None:
        source = source.changed({"env.rules": env.rules})
    session = source.open()
    session = session._replace(env=playable(session.env, "a review"))
    spec = session.env.spec
    why = (
        "its actions are continuous" if spec.action_dim else "an action has several parts" if spec.action_parts else ""
    )
    if why:
        raise HmxError(f"cannot review {name}: {why}", "review a run of an environment with a list of actions")
    restored = source.agent(session)
    if env is not None and env.undo_depth != cfg.env.undo_depth:
        # After restoring: a policy fits the environment that it was made with. It does not see the depth.
        source = source.changed({"env.undo_depth": env.undo_depth})
        session = source.open()
    return judge_of(session, restored.state, request), source, restored


def judge_of(session: Session, state: Any, request: ReviewRequest) -> Judge:
    """Return the agent of a session with the parameters of a state of one seed, to continue from positions."""
    network = make_policy_outputs(session.cfg, session.env)
    policy = make_continuation(network.outputs, network.kind, network.parameter, network.value)
    options = options_of(request, session.env, bootstrap=True, gamma=session.cfg.algo.gamma)
    return Judge(session.env, policy, network.outputs, network.params(state), options)


def play_games(judge: Judge, episodes: int, seed: int) -> list[PlayedGame]:
    """Play games side by side from new starts, at most `LONGEST` moves each, with the policy of the rollouts."""
    spec, policy = judge.env.spec, judge.policy

    def act(
        params: Any, env_state: EnvState, carry: Carry, obs: Array, legal: Array, reset: Array, key: Key
    ) -> tuple[Decision, Carry]:
        return taking(policy.act(params, obs, legal, jax.random.split(key, episodes))), carry

    whole = make_evaluation(judge.env, EvalPolicy(act), episodes, episodes, LONGEST)
    key = jax.random.fold_in(jax.random.key(seed), _STREAM)
    steps = record(make_recorder(whole, partial(keep_step, spec)), judge.params, key, range(episodes))
    games: list[list[KeptStep]] = [[] for _ in range(episodes)]
    while (found := interruptible(partial(next, steps, None))) is not None:
        step = jax.device_get(found[1])
        states, *others = step.kept
        for i in np.flatnonzero(step.playing):
            one = jax.tree.map(lambda leaf, i=i: leaf[i : i + 1], others)
            games[i].append(KeptStep(take(spec, states, np.array([i])), *one))
    return [_game(spec, f"game {i + 1}", game) for i, game in enumerate(games)]


def _game(spec: EnvSpec, name: str, steps: Sequence[KeptStep]) -> PlayedGame:
    last = steps[-1]
    won = bool(last.info.get("wins_sum", np.zeros(1))[0] > 0)
    ended, truncated = last.terminated[0], last.truncated[0]
    outcome = "unfinished" if not (ended | truncated) else "won" if won else "ended" if ended else "truncated"
    states = [step.env_state for step in steps]
    joined = jax.tree.map(lambda *leaves: jax.device_put(np.concatenate(leaves, axis=spec.state_axis)), *states)
    shown = zip(*((step.obs, step.legal, step.decision.action) for step in steps), strict=True)
    total = sum(float(step.reward.mean()) for step in steps)
    return PlayedGame(name, GamePositions(joined, *map(np.concatenate, shown)), outcome, total)


def _review(
    source: str, judge: Judge, run: Run, restored: Restored, games: list[PlayedGame], request: ReviewRequest,
    progress: Progress,
) -> ReviewFindings:  # fmt: skip
    reviews = []
    program = compile_program(judge)
    for number, game in enumerate(games):
        progress("reviewing" if number else "compiling and reviewing", number, len(games))
        decisions = judge_game(judge, program, game.positions, request, number)
        blunders = sum(decision.blunder for decision in decisions)
        reviews.append(
            GameReview(game.name, len(game.positions.taken), game.outcome, game.total, blunders, tuple(decisions))
        )
    progress("reviewing", len(games), len(games))
    return ReviewFindings(
        source=source,
        env=run.cfg.env.id,
        agent=run.name,
        checkpoint=restored.update,
        redrawn=judge.env.spec.redrawn is not None,
        games=tuple(reviews),
        warnings=tuple(restored.warnings),
    )
