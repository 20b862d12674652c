"""`hmx score-buffer`: how much decisions mattered, by playing on from stored positions."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hmx.config.env_facts import env_facts
from hmx.config.schema import Config
from hmx.env.registry import make_env
from hmx.errors import ExitCode, HmxError
from hmx.records import buffer_file
from hmx.records.artefact import write_sealed
from hmx.records.atomic import writing
from hmx.records.jsonl import finite
from hmx.records.layout import DEFAULT_ROOT
from hmx.reports.consequence import findings as score_findings
from hmx.reports.consequence import options as score_options
from hmx.reports.consequence import report as score_report
from hmx.reports.consequence.options import Ask
from hmx.reports.consequence.run import Progress, Result, Task, compute, score_key
from hmx.reports.consequence.source import Agent, Scene, default_out, is_file, open_scene
from hmx.runs import buffers
from hmx.runs.buffers import Buffer
from hmx.runs.compilation import enable_cache
from hmx.runs.sources import find
from hmx.scoring import Options
from hmx.scoring.options import check, env_steps, num_candidates
from hmx.stats.ranks import Host
from hmx.types import Key

BUFFER, REPORT = "buffer.npz", "report.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScoreResult:
    """What `hmx score-buffer` found."""

    out: Path
    body: Mapping[str, Any]
    gates: tuple[score_findings.Gate, ...]
    warnings: tuple[str, ...] = ()

    @property
    def failed(self) -> list[score_findings.Gate]:
        """The gates that were not passed."""
        return [gate for gate in self.gates if gate.passed is False]

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        rows = [gate._asdict() for gate in self.gates]
        found: dict[str, Any] = finite({**self.body, "gates": rows, "warnings": list(self.warnings)})
        return found


def score_buffer(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    ask: Ask | None = None,
    out: str | Path | None = None,
    root: str | Path = DEFAULT_ROOT,
    progress: Progress = lambda phase, done, total: None,
) -> ScoreResult:
    """Scores positions, writes the scores and a report on them, and says what they come to.

    A call that a signal cuts short keeps what it has done, and the same call goes on with the rest: the scores are
    those of one uninterrupted call.

    Args:
        path: a saved buffer; or a run, its folder of checkpoints, or a checkpoint, whose policy collects positions.
        checkpoint: for a saved buffer, whose policy plays on: a run, its folder of checkpoints, or a checkpoint.
        ask: what is wanted.
        out: folder of the results; None takes one in the run, or beside the buffer.
        root: folder of the runs, for names.
        progress: told how far it is.

    Raises:
        HmxError: the request makes no sense, the horizon is too short, or there are other results in the folder
            (exit code 2); something is missing, damaged, or does not fit (3).
        StopNow: a signal.
    """
    path, ask = Path(path), ask or Ask()
    score_options.check(ask)
    place = Path(out) if out is not None else default_out(path, root)
    found = [warning for warning in [enable_cache()] if warning]
    progress("collecting positions" if not is_file(path) else "reading the buffer", 0, 0)

    def ready(agent: Agent) -> Key:
        _settled(agent, ask)
        return score_key(_seed(ask, agent.cfg), 1)

    other = None if checkpoint is None else Path(checkpoint)
    scene = open_scene(path, other, root, ask.agent, ask.collect, ready)
    task, told = make_task(scene, ask)
    result = compute(task, place, progress)
    updated = _with_scores(scene.buffer, result.rows)
    body = score_report.body(task, ask, result, updated)
    body["finding"] = score_findings.finding(body)
    body["out"] = str(place)
    kept = _write_buffer(scene, updated, result, place, ask.write_back)
    warnings = (*found, *scene.agent.warnings, *told, *kept, *score_findings.warnings(body))
    answer = ScoreResult(out=place, body=body, gates=tuple(score_findings.gates(body)), warnings=warnings)
    with writing("the report", place / REPORT):
        write_sealed(place / REPORT, json.loads(json.dumps(answer.to_json())))
    return answer


def make_task(scene: Scene, ask: Ask) -> tuple[Task, list[str]]:
    """What is to be computed, and warnings about it.

    Raises:
        HmxError: the options cannot work with this environment or policy.
    """
    options, policy = _settled(scene.agent, ask)
    seed = _seed(ask, scene.agent.cfg)
    slots, told = _selected(scene.buffer, ask.select, seed)
    return Task(scene, options, policy, slots, seed, score_options.horizon(ask.horizon), ask.force, ask.chunk), told


def _settled(agent: Agent, ask: Ask) -> tuple[Options, tuple[str, float]]:
    """How consequence is measured, and how play goes on: asked before anything is played."""
    policy = score_options.policy(ask.policy) or (agent.preferences.kind, agent.preferences.parameter)
    options = options_of(ask, agent.cfg, agent.env.spec.num_agents, agent.preferences.team_reward)
    check(options, agent.env.spec, policy[0] != "greedy", True)
    return options, policy


def options_of(ask: Ask, cfg: Config, num_agents: int, team_reward: str) -> Options:
    """How consequence is measured."""
    chosen = score_options.actions(ask.actions)
    name = score_options.ACTIONS[chosen.name] if chosen.name else ("all" if num_agents == 1 else "single")
    return Options(
        actions=name,
        num_actions=int(chosen.value or 1),
        rollouts=ask.rollouts,
        gamma=cfg.algo.gamma if ask.gamma is None else ask.gamma,
        crn=ask.crn,
        bootstrap=ask.bootstrap,
        metric=ask.metric,
        aggregate=ask.aggregate,
        team_reward=team_reward,
        null=True,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """What `--dry-run` tells: sizes, and the most that scoring takes."""

    path: str
    env: str
    out: Path
    positions: int
    size: int
    actions: int
    rollouts: int
    horizon: int
    is_bound: bool  # the horizon is the most it could be
    env_steps: int
    state_bytes: int

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        return {"schema": score_report.SCHEMA, **dataclasses.asdict(self), "out": str(self.out)}


def dry_run(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    ask: Ask | None = None,
    out: str | Path | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> ScorePlan:
    """What scoring would take at most; plays nothing and writes nothing. Arguments and errors as of `score_buffer`."""
    path, ask = Path(path), ask or Ask()
    score_options.check(ask)
    place = Path(out) if out is not None else default_out(path, root)
    if is_file(path):
        header = buffer_file.read_header(path)
        size = header.size
        if checkpoint is None:
            raise HmxError(f"{path} holds positions, and no policy to play on with", "--checkpoint RUN")
        cfg = find(checkpoint, root).cfg
    else:
        cfg = find(path, root).cfg
        size = cfg.replay.capacity if cfg.algo.name == "dqn" else ask.collect
    env = make_env(cfg.env, cfg.reward)
    options = options_of(ask, cfg, env.spec.num_agents, "mean")
    own = "greedy" if cfg.algo.name == "dqn" else "softmax"
    has_probs = (score_options.policy(ask.policy) or (own, 1.0))[0] != "greedy"
    check(options, env.spec, has_probs, True)
    chosen = score_options.selection(ask.select)
    number = len(score_options.indices(Path(chosen.value), size)) if chosen.name == "indices" else size
    number = min(int(chosen.value), size) if chosen.name in ("uniform", "stale") else number
    asked = score_options.horizon(ask.horizon)
    horizon = asked or env.spec.max_steps or score_options.MAX_HORIZON
    return ScorePlan(
        path=str(path), env=cfg.env.id, out=place, positions=number, size=size,
        actions=num_candidates(options, env.spec), rollouts=ask.rollouts, horizon=horizon, is_bound=asked is None,
        env_steps=env_steps(dataclasses.replace(options, horizon=horizon), env.spec, number),
        state_bytes=env_facts(cfg.env).state_bytes,
    )  # fmt: skip


def _seed(ask: Ask, cfg: Config) -> int:
    return cfg.run.seed if ask.seed is None else ask.seed


def _selected(buffer: Buffer, text: str, seed: int) -> tuple[Host, list[str]]:
    """The slots to score, oldest transition first unless a file says otherwise; and a warning."""
    chosen, size = score_options.selection(text), buffer.header.size
    if chosen.name == "indices":
        return score_options.indices(Path(chosen.value), size), []
    oldest_first = np.argsort(buffer.birth, kind="stable")
    if chosen.name == "all":
        return oldest_first, []
    number, rank = int(chosen.value), np.random.default_rng([seed, 3]).random(size)
    if chosen.name == "stale":
        age = buffer.header.num_added - buffer.scored_at.astype(np.int64)
        rank = np.where(buffer.scored, 1.0 + 1.0 / (1.0 + age), rank)
    picked = np.zeros(size, bool)
    picked[np.argsort(rank, kind="stable")[:number]] = True
    told = [f"--select {text}: there are {size:,} positions, and all are scored"] if number > size else []
    return oldest_first[picked[oldest_first]], told


def _with_scores(buffer: Buffer, rows: Mapping[str, Host]) -> Buffer:
    """The buffer with new scores, where the slots still hold the transitions that were scored."""
    slots = rows["index"]
    there = slots < buffer.header.size
    there[there] = buffer.birth[slots[there]] == rows["birth"][there]
    slots = slots[there]
    scores, scored, scored_at = buffer.consequence_scores.copy(), buffer.scored.copy(), buffer.scored_at.copy()
    scores[slots], scored[slots] = rows["score"][there], True
    scored_at[slots] = np.uint32(buffer.header.num_added % 2**32)
    return dataclasses.replace(buffer, consequence_scores=scores, scored=scored, scored_at=scored_at)


def _write_buffer(scene: Scene, updated: Buffer, result: Result, place: Path, write_back: bool) -> list[str]:
    """The buffer beside the scores: one that was collected for them always, any other on demand; and a warning."""
    if scene.collected:
        buffers.save(place / BUFFER, updated if write_back else scene.buffer)
        return []
    if not write_back:
        return []
    if scene.file is None:
        buffers.save(place / BUFFER, updated)
        return []
    # it may have gone on being filled meanwhile
    now = buffers.load(scene.file)
    buffers.save(place / BUFFER, _with_scores(now, result.rows))
    slots = result.rows["index"]
    there = slots < now.header.size
    there[there] = now.birth[slots[there]] == result.rows["birth"][there]
    gone = int((~there).sum())
    return [f"{gone:,} of the transitions scored are no longer in {scene.file}"] if gone else []


def judge(result: ScoreResult) -> None:
    """Refuses scores that do not pass every gate.

    Raises:
        HmxError: some do not (exit code 4).
    """
    if result.failed:
        lines = [f"  {gate.name} {_shown(gate.value)}, limit {gate.limit:g}: {gate.what}" for gate in result.failed]
        hint = "more --rollouts make scores less noisy, another --metric or --aggregate ties less"
        raise HmxError("\n".join(["the scores do not pass:", *lines]), hint, ExitCode.CHECK_FAILED)


def _shown(value: float | None) -> str:
    return "not defined" if value is None else f"{value:.2f}"
