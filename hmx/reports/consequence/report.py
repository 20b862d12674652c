"""The report on consequence scores as plain values with stable keys."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmx.replay import Options as ReplayOptions
from hmx.replay.offline import probabilities
from hmx.reports.consequence.options import Ask
from hmx.reports.consequence.positions import top_positions
from hmx.reports.consequence.run import METRICS, Result, Task, live_environments, part_size
from hmx.reports.consequence.td import fresh_errors
from hmx.runs.buffers import Buffer
from hmx.scoring import env_steps
from hmx.stats import ranks as stats
from hmx.stats.ranks import Host

SCHEMA = 1
_POINTS = 400  # that are drawn


def body(task: Task, ask: Ask, result: Result, updated: Buffer) -> dict[str, Any]:
    """Every figure but the findings.

    Args:
        task: what was computed.
        ask: as it was asked for.
        result: what came of it.
        updated: the buffer with its new scores.
    """
    rows, scene = result.rows, task.scene
    score = rows["score"]
    td = scene.buffer.td_errors[rows["index"]]
    fresh = fresh_errors(scene, rows["index"])
    header = scene.buffer.header
    return {
        "schema": SCHEMA,
        "path": scene.source,
        "env": scene.agent.cfg.env.id,
        "policy": {"run": scene.agent.run, "update": scene.agent.update, "agent": ask.agent},
        "buffer": {
            "size": header.size, "capacity": header.capacity, "added": header.num_added,
            "collected": scene.collected, "run": header.run, "update": header.update,
        },
        "seed": task.seed,
        "options": _options(task, ask),
        "horizon": _horizon(task, result),
        "positions": len(score),
        "scores": _spread(score),
        "metrics": {name: _metric(rows[f"c_{name}"], score) for name in METRICS},
        "noise": _noise(rows, ask.rollouts),
        "rollouts": {
            "ended_share": float(rows["ended"].mean()),
            "cut_share": float(1.0 - rows["ended"].mean()),
            "mean_steps": float(rows["steps"].sum() / (len(score) * live_environments(task.options, _spec(task)))),
        },
        "td": _correlated(score, td, task.seed),
        "td_fresh": None if fresh is None else _correlated(score, fresh, task.seed),
        "proxy": {
            "kind": "Q-gap" if scene.agent.preferences.are_values else "value gap",
            "median": float(np.median(rows["proxy"])),
            **_correlated(score, rows["proxy"], task.seed),
        },
        "stakes": {"largest": float(rows["spread"].max()), "middle_share": stats.middle_share(rows["spread"])},
        "replay": {"before": replayed(scene.buffer, ask), "after": replayed(updated, ask)},
        "coverage": _coverage(scene.buffer, updated, ask),
        "cost": _cost(task, result),
        "top": top_positions(scene, {**rows, "error": stats.half_error(rows["halves"].T)}, ask.top),
        "points": _points(score, td, rows["proxy"]),
    }  # fmt: skip


def _spec(task: Task) -> Any:
    return task.scene.agent.env.spec


def _options(task: Task, ask: Ask) -> dict[str, Any]:
    kind, parameter = task.policy
    return {
        **dataclasses.asdict(task.options),
        "policy": kind,
        "policy_parameter": parameter,
        "select": ask.select,
        **{name: getattr(ask, name) for name in ("mixing", "mu", "alpha_td", "alpha_c", "target_ess", "unscored")},
    }


def _horizon(task: Task, result: Result) -> dict[str, Any]:
    lengths = np.array(result.lengths)
    return {
        "steps": result.horizon,
        "auto": task.horizon is None,
        "median_length": float(np.quantile(lengths, 0.5)),
        "p99_length": float(np.quantile(lengths, 0.99)),
    }


def _spread(score: Host) -> dict[str, Any]:
    ordered = np.sort(score.astype(np.float64))[::-1]
    total, tenth = ordered.sum(), max(len(ordered) // 10, 1)
    zero, bins = stats.log_histogram(score)
    return {
        "mean": float(score.mean(dtype=np.float64)),
        "quantiles": stats.quantiles(score),
        "zero_share": float((score == 0.0).mean()),
        "distinct": len(np.unique(score)),
        "tied_share": stats.tied_share(score),
        "gini": stats.gini(score),
        "top_tenth_share": float(ordered[:tenth].sum() / total) if total > 0.0 else None,
        "histogram": {"zero": zero, "bins": [bin._asdict() for bin in bins]},
    }


def _metric(values: Host, score: Host) -> dict[str, Any]:
    return {
        "mean": float(values.mean(dtype=np.float64)),
        "median": float(np.median(values)),
        "zero_share": float((values == 0.0).mean()),
        "spearman": stats.spearman(values, score),
    }


def _noise(rows: Mapping[str, Host], rollouts: int) -> dict[str, Any]:
    halves = rows["halves"].T
    apart = rollouts > 1  # else both halves are the one rollout there is
    return {
        "reliability": stats.spearman(halves[0], halves[1]) if apart else None,
        "standard_error": float(np.median(stats.half_error(halves))) if apart else None,
        "null": float(rows["null"].mean(dtype=np.float64)),
    }


def _correlated(score: Host, other: Host, seed: int) -> dict[str, Any]:
    found = stats.correlation(score, other, seed)
    return {"spearman": found.value, "interval": None if found.low is None else [found.low, found.high]}


def replayed(buffer: Buffer, ask: Ask) -> dict[str, Any]:
    """How replay would draw from a buffer."""
    options = ReplayOptions(
        mixing=ask.mixing, mu=ask.mu, alpha_td=ask.alpha_td, alpha_c=ask.alpha_c, target_ess=ask.target_ess
    )
    scored, scores = buffer.scored, np.where(buffer.scored, buffer.consequence_scores, np.float32(0.0))
    if ask.unscored == "zero":
        scored = np.ones_like(scored)
    drawn = probabilities(jnp.asarray(buffer.td_errors), jnp.asarray(scores), jnp.asarray(scored), options)
    probs = np.asarray(drawn.probs, np.float64)
    weights = 1.0 / (len(probs) * probs)
    return {
        "ess": float(drawn.ess),
        "prob_ratio": float(probs.max() / probs.min()),
        "is_weights": [float(weights.min()), float(weights.max())],
        "alpha_td": float(drawn.alphas[0]),
        "alpha_c": float(drawn.alphas[1]),
    }


def _coverage(before: Buffer, after: Buffer, ask: Ask) -> dict[str, Any]:
    age = (after.header.num_added - after.scored_at.astype(np.int64))[after.scored]
    return {
        "before": float(before.scored.mean()),
        "after": float(after.scored.mean()),
        "target": ask.target_coverage,
        "staleness": {f"p{q}": float(np.quantile(age, q / 100)) for q in (50, 90)} if len(age) else None,
    }


def _cost(task: Task, result: Result) -> dict[str, Any]:
    steps = int(result.rows["steps"].sum(dtype=np.int64))
    return {
        "env_steps": steps,
        "seconds": result.seconds,
        "compile_seconds": result.compile_seconds,
        "steps_per_second": steps / result.seconds if result.seconds > 0.0 else None,
        **plan(task, result.horizon),
    }


def plan(task: Task, horizon: int) -> dict[str, Any]:
    """What scoring takes at most."""
    options = dataclasses.replace(task.options, horizon=horizon)
    spec, part = _spec(task), part_size(task.options, _spec(task))
    live = live_environments(options, spec)
    return {
        "most_env_steps": env_steps(options, spec, len(task.slots)),
        "environments_per_position": live,
        "positions_at_a_time": part,
        "live_environments": part * live,
    }


def _points(score: Host, td: Host, proxy: Host) -> list[list[float]]:
    """Score, TD error and proxy of positions spread evenly over all."""
    chosen = np.unique(np.linspace(0, len(score) - 1, min(_POINTS, len(score))).astype(int))
    return [[float(score[i]), float(td[i]), float(proxy[i])] for i in chosen]
