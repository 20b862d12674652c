"""`hmx score-buffer`: measure the consequence of decisions by rollouts from stored positions."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np

from hmx.envs.registry import make_env, sizes_of
from hmx.jobs.evaluation import Progress, no_progress
from hmx.records import buffer_file
from hmx.records.artefact import write_sealed
from hmx.records.atomic import writing
from hmx.records.paths import DEFAULT_ROOT, SCORE_REPORT
from hmx.records.plain import plain_object
from hmx.reports.score_buffer import source
from hmx.reports.score_buffer.findings import ScoreFindings, ScorePlan, judged
from hmx.reports.score_buffer.measure import measure
from hmx.reports.score_buffer.request import MAX_HORIZON, ScoreRequest
from hmx.reports.score_buffer.run import ScoreTable, compute
from hmx.runs import buffers
from hmx.runs.buffers import Buffer, Host
from hmx.runs.compilation import enable_cache
from hmx.runs.restoring import Run
from hmx.scoring import env_steps
from hmx.scoring.options import num_candidates

BUFFER = "buffer.npz"


def score_buffer(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    request: ScoreRequest | None = None,
    out: str | Path | None = None,
    root: str | Path = DEFAULT_ROOT,
    progress: Progress = no_progress,
) -> ScoreFindings:
    """Score positions, and write the scores and a report on them.

    A call that a signal interrupts saves the scores so far, and the same call then computes the rest. The scores are
    those of an uninterrupted call.

    Args:
        path: a saved buffer; or a run, its checkpoint folder, or a checkpoint, whose policy collects positions.
        checkpoint: the run or checkpoint whose policy continues, for a saved buffer.
        request: what to score and how.
        out: folder of the results; None takes one in the run, or beside the buffer.
        root: runs folder, for names.
        progress: called with phase, positions done and positions in all.

    Raises:
        HmxError: the options cannot work, the horizon is too short, or the folder contains other results (exit code
            2); a file is missing, damaged, or does not fit (3).
        StopNow: a signal.
    """
    path, request = Path(path), request or ScoreRequest()
    if request.indices:
        source.read_indices(Path(request.indices), 2**31)
    folder = Path(out) if out is not None else source.default_out(path, root)
    cached = enable_cache()
    other = None if checkpoint is None else Path(checkpoint)
    task = source.open_task(path, other, root, request, progress)
    scores = compute(task, folder, progress)
    updated = _with_scores(task.buffer, scores)
    report = measure(task, scores, updated, folder)
    lost = _write_buffer(task, updated, scores, folder)
    report = judged(report, tuple(text for text in (cached, *task.warnings, lost) if text))
    with writing("the report", folder / SCORE_REPORT):
        write_sealed(folder / SCORE_REPORT, plain_object(report))
    return report


def dry_run(
    path: str | Path,
    *,
    checkpoint: str | Path | None = None,
    request: ScoreRequest | None = None,
    out: str | Path | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> ScorePlan:
    """Compute the maximum cost of scoring, without playing; arguments and errors as of `score_buffer`."""
    path, request = Path(path), request or ScoreRequest()
    size = None
    if source.is_file(path):
        if checkpoint is None:
            raise source.missing_policy(path)
        size = buffer_file.read_header(path).size
    task = Run.find(path if checkpoint is None else checkpoint, root).task
    cfg, replays = task.config, task.algorithm.replays
    if size is None:
        size = cfg.replay.capacity if replays else request.collect
    env = make_env(cfg.env, cfg.reward)
    options, _ = source.settle(request, cfg.algo.gamma, env.spec, ("greedy" if replays else "softmax", 1.0), "mean")
    number = size if request.select == "all" else min(request.positions, size)
    if request.indices:
        number = len(source.read_indices(Path(request.indices), size))
    horizon = request.horizon or env.spec.max_steps or MAX_HORIZON
    return ScorePlan(
        path=str(path),
        env=cfg.env.id,
        out=Path(out) if out is not None else source.default_out(path, root),
        positions=number,
        size=size,
        actions=num_candidates(options, env.spec),
        rollouts=options.rollouts,
        horizon=horizon,
        is_bound=request.horizon is None,
        env_steps=env_steps(dataclasses.replace(options, horizon=horizon), env.spec, number),
        state_bytes=sizes_of(env).state_bytes,
    )


def _with_scores(buffer: Buffer, table: ScoreTable) -> Buffer:
    """Return the buffer with new scores, in slots that still hold the transitions that were scored."""
    there = _still_there(buffer, table)
    slots = table.columns["index"][there]
    scores = buffer.consequence_scores.copy()
    scored = buffer.scored.copy()
    scored_at = buffer.scored_at.copy()
    scores[slots] = table.columns["score"][there]
    scored[slots] = True
    scored_at[slots] = np.uint32(buffer.header.num_added % 2**32)
    return dataclasses.replace(buffer, consequence_scores=scores, scored=scored, scored_at=scored_at)


def _still_there(buffer: Buffer, table: ScoreTable) -> Host:
    slots = table.columns["index"]
    there: Host = slots < buffer.header.size
    there[there] = buffer.birth[slots[there]] == table.columns["birth"][there]
    return there


def _write_buffer(task: source.ScoreTask, updated: Buffer, table: ScoreTable, folder: Path) -> str:
    """Write the buffer next to the scores, if it was collected or requested; return a warning, or an empty text."""
    write_back = task.request.write_back
    if write_back and task.origin == "file":
        # Another process may have continued to fill it.
        now = buffers.load(task.path)
        buffers.save(folder / BUFFER, _with_scores(now, table))
        gone = int((~_still_there(now, table)).sum())
        return f"{gone:,} of the transitions scored are no longer in {task.path}" if gone else ""
    if write_back or task.origin == "collected":
        buffers.save(folder / BUFFER, updated if write_back else task.buffer)
    return ""
