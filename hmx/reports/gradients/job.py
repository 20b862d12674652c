"""`hmx grad-report`: which episodes and which losses drive the gradient of a checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from hmx.agents.types import Params, TrainState
from hmx.analysis.report import make_reporter
from hmx.analysis.spec import GradReport, Reporter, Spec, check
from hmx.config.textfile import read_text
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import damage
from hmx.jobs.grad_training import STREAM
from hmx.records.buffer_file import is_buffer
from hmx.records.layout import DEFAULT_ROOT
from hmx.reports.gradients import findings as grad_findings
from hmx.reports.gradients import to_json as grad_json
from hmx.reports.gradients.buffer import open_buffer
from hmx.runs.checkpoint import to_host
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import seed_state
from hmx.runs.session import open_session
from hmx.runs.signals import interruptible
from hmx.runs.sources import Source, find

SCHEMA = 1
_MAX_SAVED = 32 << 20  # bytes of a report in JSON: each of a hundred checkpoints has about 100 kB


@dataclasses.dataclass(frozen=True, kw_only=True)
class Point:
    """The report of one checkpoint."""

    update: int
    env_steps: int
    hash_before: str  # SHA-256 over all arrays of the state
    hash_after: str
    report: GradReport
    finding: str
    warnings: tuple[str, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "checkpoint": {
                "update": self.update,
                "env_steps": self.env_steps,
                "hash_before": self.hash_before,
                "hash_after": self.hash_after,
            },
            **grad_json.to_json(self.report),
            "finding": self.finding,
            "warnings": list(self.warnings),
            "notes": list(self.notes),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class GradReportResult:
    """What `hmx grad-report` found; one point per checkpoint, oldest first."""

    path: Path
    env: str
    agent: int
    seed: int
    reference: int | None  # checkpoint that KL is measured from; None for the policy itself
    points: tuple[Point, ...]
    buffer: Path | None = None  # a saved one, that the groups are from
    compared_with: str | None = None
    ratios: Mapping[str, Mapping[str, float | None]] | None = None  # newest point by the other report
    warnings: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        return {
            "schema": SCHEMA,
            "path": str(self.path),
            "env": self.env,
            "agent": self.agent,
            "seed": self.seed,
            "reference": self.reference,
            "buffer": None if self.buffer is None else str(self.buffer),
            "reports": [point.to_json() for point in self.points],
            "compare": None if self.ratios is None else {"other": self.compared_with, "norm_ratio": self.ratios},
            "warnings": list(self.warnings),
        }


def grad_report(
    path: str | Path,
    *,
    spec: Spec | None = None,
    checkpoint: int | None = None,
    all_checkpoints: bool = False,
    reference: int | None = None,
    from_buffer: str | Path | None = None,
    agent: int = 0,
    seed: int | None = None,
    compare: str | Path | None = None,
    root: str | Path = DEFAULT_ROOT,
) -> GradReportResult:
    """Plays groups of episodes with a checkpoint's policy and takes the training gradient apart. Changes nothing.

    Args:
        path: a run, its folder of checkpoints, or a checkpoint.
        spec: what to measure.
        checkpoint: update of the checkpoint; None takes the one at `path`, or the newest intact one.
        all_checkpoints: report on every complete checkpoint. All of them meet the same start states.
        reference: update of the checkpoint that KL is measured from.
        from_buffer: a saved buffer whose states episodes start from or, with `spec.replay`, whose transitions are
            measured.
        agent: which of several agents trained side by side.
        seed: of the probe; None takes that of the run.
        compare: another run or checkpoint, or a report saved as JSON.
        root: folder of the runs, for a name.

    Raises:
        HmxError: the request makes no sense (exit code 2); there is no such run or no intact checkpoint (3); rewards
            or gradients are not finite (4).
    """
    spec = spec or Spec()
    check(spec)
    if all_checkpoints and checkpoint is not None:
        raise HmxError("--checkpoint names one, --all-checkpoints means all", "leave out either")
    if Path(path).is_file() and is_buffer(Path(path)):
        said = f"{path} is a saved buffer, and the network that would learn from it is in a run"
        raise HmxError(said, f"hmx grad-report RUN --from-buffer {path}")
    source = find(path, root)
    cfg = source.cfg
    if not 0 <= agent < cfg.run.num_seeds:
        raise HmxError(f"there is no agent {agent}", f"agents are 0 to {cfg.run.num_seeds - 1}")
    other = None if compare is None else _saved(Path(compare))  # before anything long is computed
    found = [warning for warning in [enable_cache()] if warning]
    seed = cfg.run.seed if seed is None else seed
    maker = _Maker(source, spec, agent, seed, reference, from_buffer)
    points = tuple(maker.points([checkpoint] if not all_checkpoints else _all(source)))
    if compare is not None and other is None:
        second = _Maker(find(compare, root), spec, 0, seed, None, from_buffer)
        other = next(second.points([None])).to_json()
    return GradReportResult(
        path=source.folder,
        env=cfg.env.id,
        agent=agent,
        seed=seed,
        reference=reference,
        points=points,
        buffer=None if from_buffer is None else Path(from_buffer),
        compared_with=None if compare is None else str(compare),
        ratios=None if other is None else grad_json.compare(points[-1].to_json(), other),
        warnings=(*found, *maker.warnings),
    )


class _Maker:
    """Reports on checkpoints of one source with one set of compiled programs."""

    def __init__(
        self,
        source: Source,
        spec: Spec,
        agent: int,
        seed: int,
        reference: int | None,
        from_buffer: str | Path | None,
    ) -> None:
        self._source, self._agent, self._seed = source, agent, seed
        self._session = open_session(source.cfg)
        env = self._session.env
        stored = None if from_buffer is None else open_buffer(Path(from_buffer), source.cfg, env, spec)
        self._reporter: Reporter = make_reporter(source.cfg, env, spec, stored)
        self._reference: Params | None = None
        self.warnings: list[str] = []
        if reference is not None:
            self._reference = self._state(reference)[0].params

    def points(self, updates: list[int | None]) -> Iterator[Point]:
        for update in updates:
            try:
                state, done = self._state(update)
            except HmxError as problem:
                # Of many, the others still tell something.
                if len(updates) == 1 or problem.exit_code != ExitCode.ARTEFACT:
                    raise
                self.warnings.append(f"checkpoint {update} is left out: {problem.message}")
                continue
            yield self._point(state, done)

    def _state(self, update: int | None) -> tuple[TrainState, int]:
        cfg = self._source.cfg
        state, done, damaged = self._source.state(self._session, update)
        self.warnings += damage(damaged, done)
        return seed_state(state, self._agent, cfg.run.num_seeds), done

    def _point(self, state: TrainState, update: int) -> Point:
        before = state_hash(state)
        hypers = self._session.algorithm.hypers(update)
        key = jax.random.fold_in(jax.random.key(self._seed), STREAM)
        report = interruptible(partial(self._reporter, state, hypers, key, self._reference))
        after = state_hash(state)
        if before != after:
            raise HmxError("the report has changed the state it read", "this is a bug of hmx", ExitCode.CHECK_FAILED)
        return Point(
            update=update,
            env_steps=update * self._session.sizes.batch_size,
            hash_before=before,
            hash_after=after,
            report=report,
            finding=grad_findings.finding(report),
            warnings=tuple(grad_findings.warnings(report)),
            notes=tuple(grad_findings.notes(report)),
        )


def state_hash(state: TrainState) -> str:
    """SHA-256 over the name, type and content of every array of a state."""
    digest = hashlib.sha256()
    for name, leaf in to_host(state).items():
        digest.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _all(source: Source) -> list[int | None]:
    updates: list[int | None] = [*source.updates()]
    if not updates:
        raise HmxError(f"{source.folder} has no complete checkpoint", "train it first", ExitCode.ARTEFACT)
    return updates


def _saved(path: Path) -> dict[str, Any] | None:
    """The norms of the newest report of a JSON file, or None for a path that is no such file."""
    if not path.is_file():
        return None
    hint = "give a run, a checkpoint, or what `hmx grad-report --json` printed"
    try:
        data = json.loads(read_text(path, _MAX_SAVED))
        report = data["reports"][-1]
        if data["schema"] > SCHEMA:
            raise HmxError(f"{path} was written by a newer hmx", "upgrade hmx", ExitCode.ARTEFACT)
        rows = [{"name": str(row["name"]), "norm": _norms(row)} for row in (*report["buckets"], report["all"])]
    except (OSError, ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError):
        raise HmxError(f"{path} is not a gradient report", hint, ExitCode.ARTEFACT) from None
    return {"buckets": rows[:-1], "all": rows[-1]}


def _norms(row: Mapping[str, Any]) -> dict[str, float]:
    """Component -> norm, of a bucket in a file that anybody may have written."""
    norms = {str(name): float(norm) for name, norm in row["norm"].items() if norm is not None}
    if not norms or not all(0.0 <= norm < math.inf for norm in norms.values()):
        raise ValueError("norms are finite and not negative")
    return norms
