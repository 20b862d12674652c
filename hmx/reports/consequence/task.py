"""Turn a request into a task: how consequence is measured, by which policy, and in which positions."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np

from hmx.config.schema import Config, ContinuationKind, ReplayConfig
from hmx.config.textfile import quoted, read_text
from hmx.errors import ExitCode, HmxError
from hmx.reports.consequence.request import ScoreRequest
from hmx.reports.consequence.source import Agent, Scene
from hmx.runs.buffers import Buffer, Host
from hmx.scoring import ScoreOptions
from hmx.scoring.options import TeamReward, check_options

PolicyKind = tuple[ContinuationKind, float]
"""The kind of a policy, and its parameter."""


class ScoreTask(NamedTuple):
    """What to compute."""

    scene: Scene
    options: ScoreOptions
    policy: PolicyKind
    slots: Host  # to score, in this order
    seed: int
    horizon: int | None  # None: measured
    force: bool


def make_task(scene: Scene, request: ScoreRequest) -> tuple[ScoreTask, list[str]]:
    """Return what is to be computed, and warnings."""
    options, policy = settle(scene.agent, request)
    seed = seed_of(scene.agent, request)
    slots, warnings = _selected(scene.buffer, request, seed)
    return ScoreTask(scene, options, policy, slots, seed, request.horizon, request.force), warnings


def settle(agent: Agent, request: ScoreRequest) -> tuple[ScoreOptions, PolicyKind]:
    """Return how consequence is measured and the policy that plays on, after checking that they fit."""
    policy = policy_of(request, (agent.network.kind, agent.network.parameter))
    options = options_of(request, agent.cfg, agent.env.spec.num_agents, agent.network.team_reward)
    check_options(options, agent.env.spec, policy[0] != "greedy", True)
    return options, policy


def seed_of(agent: Agent, request: ScoreRequest) -> int:
    """Return the seed of the rollouts."""
    return agent.cfg.run.seed if request.seed is None else request.seed


def _selected(buffer: Buffer, request: ScoreRequest, seed: int) -> tuple[Host, list[str]]:
    """Return the slots to score, oldest transition first unless a file names them; and warnings."""
    size, number = buffer.header.size, request.positions
    if request.indices:
        return read_indices(Path(request.indices), size), []
    oldest_first = np.argsort(buffer.birth, kind="stable")
    if request.select == "all":
        return oldest_first, []
    rank = np.random.default_rng([seed, 3]).random(size)
    if request.select == "stale":
        age = buffer.header.num_added - buffer.scored_at.astype(np.int64)
        rank = np.where(buffer.scored, 1.0 + 1.0 / (1.0 + age), rank)
    picked = np.zeros(size, bool)
    picked[np.argsort(rank, kind="stable")[:number]] = True
    warnings = [f"--positions {number}: the buffer has {size:,}, and all are scored"] if number > size else []
    return oldest_first[picked[oldest_first]], warnings


def options_of(request: ScoreRequest, cfg: Config, num_agents: int, team_reward: TeamReward) -> ScoreOptions:
    """Return how consequence is measured."""
    return ScoreOptions(
        actions=request.actions or ("all" if num_agents == 1 else "single"),
        num_actions=request.num_actions,
        rollouts=request.rollouts,
        bootstrap=request.bootstrap,
        crn=request.crn,
        metric=request.metric,
        aggregate=request.aggregate,
        corrected=request.correct,
        gamma=cfg.algo.gamma if request.gamma is None else request.gamma,
        team_reward=team_reward,
        null=True,
    )


def policy_of(request: ScoreRequest, own: PolicyKind) -> PolicyKind:
    """Return the policy that plays on; `own` is that of the agent."""
    if request.policy is None:
        return own
    return request.policy, {"greedy": 1.0, "softmax": request.temperature, "epsilon": request.epsilon}[request.policy]


def replay_of(request: ScoreRequest) -> ReplayConfig:
    """Return how replay would sample."""
    return ReplayConfig(
        mixing=request.mixing,
        mu=request.mu,
        alpha_td=request.alpha_td,
        alpha_c=request.alpha_c,
        target_ess=request.target_ess,
    )


def read_indices(path: Path, size: int) -> Host:
    """Read the slots in a file, in its order: whole numbers separated by white space or commas.

    Raises:
        HmxError: it cannot be read (exit code 3), or contains anything else, a slot twice, or an empty slot (2).
    """
    hint = "--indices takes a file with slots of the buffer, whole numbers from 0, one per line"
    name = quoted(str(path))
    try:
        words = read_text(path).replace(",", " ").split()
    except OSError as problem:
        why = (problem.strerror or str(problem)).lower()
        raise HmxError(f"cannot read {name}: {why}", hint, ExitCode.ARTEFACT) from None
    except ValueError:
        raise HmxError(f"cannot read {name}: not a text file", hint) from None
    bad = next((word for word in words if not (word.isascii() and word.isdigit() and len(word) < 10)), None)
    if bad is not None or not words:
        raise HmxError(f"cannot use {name}: {quoted(bad) if bad else 'it contains no slot'}", hint)
    found = np.array([int(word) for word in words], np.int64)
    if found.max() >= size:
        raise HmxError(f"cannot use {name}: slot {found.max()} is not among the {size:,} filled ones", hint)
    if len(np.unique(found)) < len(found):
        raise HmxError(f"cannot use {name}: it contains a slot twice", hint)
    return found
