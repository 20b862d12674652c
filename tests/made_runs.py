"""Run folders made up for tests: real files, written by the project's own writers, but no training behind them."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hmx.config import codec
from hmx.config.fields import replace
from hmx.config.schema import Config
from hmx.records import atomic
from hmx.records import meta as metas
from hmx.records.artefact import REPORT_SCHEMA, write_sealed
from hmx.records.jsonl import MetricsWriter
from hmx.records.meta import Meta, Resume
from hmx.records.paths import EVALUATION, RunPaths

STEPS = 256  # per update
CREATED = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
RETURN = "train/mean_episode_return"

TINY = {
    "env.id": "corridor", "env.num_envs": 16, "env.max_steps": 100, "net.hidden": (8,), "algo.num_steps": 16,
    "ppo.num_minibatches": 4, "algo.learning_rate": 3e-3, "algo.gamma": 0.99, "run.eval_episodes": 100,
}  # fmt: skip


def record(update: int, seed: int, value: float | None, rate: float = 1024.0, **more: Any) -> dict[str, Any]:
    """One line of metrics: a chunk of one update at `rate` steps per second."""
    line = {
        "update": update,
        "env_steps": update * STEPS,
        "seed": seed,
        "wall_time": CREATED.timestamp() + 10.0 + update,
        "train/num_episodes": 4.0,
        "train/entropy": 1.0 / update,
        "train/first_ratio_error": 0.0,
        "train/steps_per_sec": rate,
        **more,
    }
    return line if value is None else {**line, RETURN: value}


def write_metrics(path: Path, curves: Mapping[int, Sequence[float | None]], **more: Any) -> Path:
    """A metrics file with one curve per seed, a value per update; None for an update without finished episodes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    longest = max((len(curve) for curve in curves.values()), default=0)
    with MetricsWriter(path) as writer:
        for update in range(1, longest + 1):
            for seed, curve in curves.items():
                if update <= len(curve):
                    writer.write(record(update, seed, curve[update - 1], **more))
    return path


def make_run(
    folder: Path,
    curves: Mapping[int, Sequence[float | None]],
    *,
    changes: Mapping[str, Any] | None = None,
    evaluated: Mapping[int, float] | None = None,
    random: float = -1.0,
    state: str = "finished",
    device: str = "cpu",
    git: str = "0123456789abcdef",
    command: Sequence[str] = (),
    resumes: Sequence[Resume] = (),
    run_id: str = "",
    **more: Any,
) -> Path:
    """A whole run folder.

    Args:
        folder: where.
        curves: see `write_metrics`.
        changes: to the configuration.
        evaluated: mean return of the evaluation by seed; None writes no report.
        random: mean return of random play in that report.
        state: in meta.json.
        device: in meta.json.
        git: in meta.json.
        command: in meta.json.
        resumes: in meta.json.
        run_id: in meta.json.
        more: further metrics of every record.
    """
    paths = RunPaths(folder.parent, folder.name)
    paths.reports.mkdir(parents=True)
    updates = max((len(curve) for curve in curves.values()), default=1)
    sizes = {"run.num_seeds": max(len(curves), 1), "run.total_steps": updates * STEPS}
    cfg = replace(Config(), {**TINY, **sizes, **(changes or {})})
    text = codec.to_toml(cfg)
    atomic.write_text(paths.config, text)
    metas.write(
        paths.meta,
        Meta(
            created=CREATED.isoformat(),
            updated=CREATED.isoformat(),
            state=state,
            device=device,
            git_revision=git,
            command=tuple(command),
            resumes=tuple(resumes),
            run_id=run_id,
            versions={"hmx": "0.1.0", "jax": "0.10.2"},
            memory_bytes=1_000_000,
            config_digest=codec.digest(cfg),
            config_sha256=metas.sha256(text),
        ),
    )
    write_metrics(paths.metrics, curves, **more)
    if evaluated is not None:
        rows = [{"policy": "random", "seed": None, "episodes": 100, "return_mean": random}]
        rows += [
            {"policy": "sampled", "seed": seed, "episodes": 100, "return_mean": value}
            for seed, value in evaluated.items()
        ]
        write_sealed(paths.reports / EVALUATION, {"schema": REPORT_SCHEMA, "policies": rows})
    return folder


def flat(*levels: float, updates: int = 10) -> dict[int, list[float]]:
    """Seeds 0, 1, ... that have the same value all along."""
    return {seed: [level] * updates for seed, level in enumerate(levels)}
