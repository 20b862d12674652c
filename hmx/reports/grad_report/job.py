"""`hmx grad-report`: the episodes and losses that drive the gradient of a checkpoint."""

from __future__ import annotations

import dataclasses
import hashlib
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from hmx.algos.gradients.buckets import Ints
from hmx.algos.gradients.reporter import make_reporter
from hmx.algos.gradients.request import ProbeRequest, check
from hmx.algos.gradients.stored import Stored
from hmx.algos.types import Episode, RolloutState, TrainState
from hmx.config.files import make_folder, words
from hmx.config.learning import ReplayConfig
from hmx.config.schema import Config
from hmx.envs.protocol import Env, playable
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluation import Progress, no_progress
from hmx.jobs.grad_training import STREAM
from hmx.records.artefact import write_sealed
from hmx.records.buffer_file import is_buffer
from hmx.records.paths import DEFAULT_ROOT, GRADIENTS, RunPaths
from hmx.records.plain import plain_object
from hmx.replay import Experience
from hmx.replay.offline import probabilities
from hmx.reports.grad_report.findings import (
    CheckpointReport,
    GradFindings,
    norm_ratios,
    norms,
    notes,
    read_norms,
    verdict,
    warnings,
)
from hmx.reports.grad_report.request import GradReportRequest
from hmx.runs import buffers
from hmx.runs import reference as references
from hmx.runs.buffers import LEGAL, OBS, Buffer
from hmx.runs.checkpoint import to_host
from hmx.runs.compilation import enable_cache
from hmx.runs.loop import check_agent, seed_state
from hmx.runs.restoring import Run
from hmx.runs.signals import interruptible


def grad_report(
    path: str | Path,
    request: GradReportRequest | None = None,
    root: str | Path = DEFAULT_ROOT,
    progress: Progress = no_progress,
) -> GradFindings:
    """Play groups of episodes with a checkpoint's policy and decompose the training gradient.

    The newest report of a run is kept in its folder, for `hmx report`; nothing else is changed. `path` is a run, its
    folder of checkpoints, or a checkpoint; `root` is the runs folder, for names.

    Raises:
        HmxError: the request does not fit the run (exit code 2); there is no such run or no intact checkpoint (3);
            rewards or gradients are not finite (4).
    """
    request = request or GradReportRequest()
    check(request)
    if request.all_checkpoints and request.checkpoint is not None:
        raise HmxError("cannot use --checkpoint with --all-checkpoints", "drop one of them")
    if Path(path).is_file() and is_buffer(Path(path)):
        what = f"cannot report on {path}: it is a saved buffer, and the network is in a run"
        raise HmxError(what, f"hmx grad-report RUN --from-buffer {shlex.quote(str(path))}")
    source = Run.find(path, root)
    check_agent(source.cfg.run, request.agent)
    seed = source.cfg.run.seed if request.seed is None else request.seed
    compare = None if request.compare is None else Path(request.compare)
    other, second = None, None
    if compare is not None and compare.is_file():
        other = read_norms(compare)
    elif compare is not None:
        second = _Maker(Run.find(compare, root), request, 0, seed)
        second.state(None)  # refuses a source without an intact checkpoint
    found = [warning for warning in [enable_cache()] if warning]
    maker = _Maker(source, request, request.agent, seed, request.reference)
    reports = tuple(maker.reports(_all(source) if request.all_checkpoints else [request.checkpoint], progress))
    if second is not None:
        other = norms(next(second.reports([None], progress)))
    findings = GradFindings(
        path=source.folder,
        env=source.cfg.env.id,
        seed=seed,
        request=request,
        reports=reports,
        compare=None if other is None else norm_ratios(norms(reports[-1]), other, str(compare)),
        warnings=(*found, *maker.warnings),
    )
    return findings if source.paths is None else _kept(findings, source.paths)


def _kept(findings: GradFindings, paths: RunPaths) -> GradFindings:
    """Write the findings into the run folder, for its page; a failure is a warning."""
    try:
        make_folder(paths.reports)
        write_sealed(paths.reports / GRADIENTS, plain_object(findings))
    except OSError as problem:
        lost = f"the page of the run will not show this report: cannot write {GRADIENTS}: {words(problem)}"
        return dataclasses.replace(findings, warnings=(*findings.warnings, lost))
    return findings


class _Maker:
    """Reports on the checkpoints of one source with one set of compiled programs."""

    def __init__(
        self, source: Run, request: GradReportRequest, agent: int, seed: int, reference: int | None = None
    ) -> None:
        self._source, self._agent, self._seed = source, agent, seed
        self._session = source.open()
        cfg = source.cfg
        file = request.from_buffer
        env = playable(self._session.env, "a gradient report")
        stored = None if file is None else open_buffer(Path(file), cfg, env, request)
        self._reporter = make_reporter(cfg, env, request, stored)
        self.warnings: list[str] = []
        self._reference = None if reference is None else self.state(reference)[0]

    def reports(self, updates: Sequence[int | None], progress: Progress) -> Iterator[CheckpointReport]:
        """Yield the report of every checkpoint; if there are several, skip damaged ones with a warning."""
        for i, update in enumerate(updates):
            try:
                state, done = self.state(update)
            except HmxError as problem:
                if len(updates) == 1 or problem.exit_code != ExitCode.ARTEFACT:
                    raise
                self.warnings.append(f"checkpoint {update} is left out: {problem.message}")
                continue
            progress(f"measuring gradients of {self._source.folder.name}", i, len(updates))
            yield self._report(state, done)

    def state(self, update: int | None) -> tuple[TrainState, int]:
        """Return the state of a checkpoint, None for the latest, and its update."""
        restored = self._source.policy(self._session, update)
        self.warnings += restored.warnings
        state = references.attached(self._session, self._source.paths, restored.state)
        return seed_state(state, self._agent, self._source.cfg.run.num_seeds), restored.update

    def _report(self, state: TrainState, update: int) -> CheckpointReport:
        before = state_hash(state)
        hypers = self._session.algorithm.hypers(update)
        key = jax.random.fold_in(jax.random.key(self._seed), STREAM)
        report = interruptible(partial(self._reporter, state, hypers, key, self._reference))
        after = state_hash(state)
        if before != after:
            raise HmxError("the report has changed the state it read", "this is a bug of hmx", ExitCode.CHECK_FAILED)
        return CheckpointReport(
            **vars(report),
            update=update,
            env_steps=update * self._session.sizes.batch_size,
            hash_before=before,
            hash_after=after,
            verdict=verdict(report),
            warnings=warnings(report),
            notes=notes(report),
        )


def state_hash(state: TrainState) -> str:
    """Return the SHA-256 over the name, type and content of every array of a state."""
    digest = hashlib.sha256()
    for name, leaf in to_host(state).items():
        digest.update(f"{name} {leaf.dtype} {leaf.shape}\n".encode())
        digest.update(np.ascontiguousarray(leaf).tobytes())
    return digest.hexdigest()


def _all(source: Run) -> list[int | None]:
    updates: list[int | None] = [*source.updates()]
    if not updates:
        raise HmxError(f"{source.folder} has no complete checkpoint", "train it first", ExitCode.ARTEFACT)
    return updates


def open_buffer(path: Path, cfg: Config, env: Env, request: ProbeRequest) -> Stored:
    """Read a saved buffer that fits a run: with `request.replay` transitions to measure, otherwise start states."""
    buffer = buffers.load(path)
    buffers.check(buffer, cfg, env, str(path), learned=request.replay)
    return _transitions(path, buffer, cfg.replay) if request.replay else _positions(path, buffer, env)


def _transitions(path: Path, buffer: Buffer, replay: ReplayConfig) -> Stored:
    values = buffer.td_errors, buffer.consequence_scores
    if not all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in values):
        what = f"{path} is damaged: it holds TD errors or scores that are negative or not finite"
        raise HmxError(what, "use an intact copy", ExitCode.ARTEFACT)
    td_errors, scores, scored = map(jax.device_put, (*values, buffer.scored))
    probs, _, _ = probabilities(td_errors, scores, scored, replay)
    return Stored(
        name=str(path),
        num_envs=buffer.header.num_envs,
        num_added=buffer.header.num_added,
        birth=buffer.birth,
        items=Experience(**{name: jax.device_put(buffer.items[name]) for name in Experience._fields}),
        td_errors=buffer.td_errors,
        scores=buffer.consequence_scores,
        scored=buffer.scored,
        probs=np.asarray(probs),
    )


def _positions(path: Path, buffer: Buffer, env: Env) -> Stored:
    size, agents = buffer.header.size, env.spec.num_agents
    alive = buffer.items.get("alive_t", np.ones((size, 1), bool) if agents == 1 else None)
    if alive is None or (alive.shape, alive.dtype) != ((size, agents), np.dtype(bool)):
        what = f"{path} does not record which agents take part in its states"
        raise HmxError(what, "use a buffer that `hmx train --save-buffer` wrote", ExitCode.ARTEFACT)

    def at(slots: Ints) -> RolloutState:
        count = len(slots)
        return RolloutState(
            buffers.env_states(buffer, env, slots),
            jax.device_put(buffer.items[OBS][slots]),
            jax.device_put(buffer.items[LEGAL][slots]),
            Episode.start(count),
            carry=(),
            reset=jnp.ones(count, bool),
            agent_done=jax.device_put(~alive[slots]),
        )

    return Stored(str(path), buffer.header.num_envs, buffer.header.num_added, buffer.birth, items=None, at=at)
