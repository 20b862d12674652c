"""`hmx resume`: a run goes on from its newest intact checkpoint, as if it had never stopped."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hmx.config import codec, derive, fields
from hmx.config.coerce import show
from hmx.config.load import load
from hmx.config.problem import error
from hmx.config.schema import Config
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluate import damage
from hmx.jobs.train import TrainResult, carry_out
from hmx.records import atomic, jsonl
from hmx.records import meta as metas
from hmx.records.atomic import writing
from hmx.records.layout import DEFAULT_ROOT, RunPaths, find_run
from hmx.runs import checkpoint
from hmx.runs.compilation import enable_cache
from hmx.runs.session import Restored, Session, device_name, make_sinks, open_session, restore
from hmx.runs.sinks import Sink

SCHEMA = 1

FIXED = (*codec.SHAPE_KEYS, "algo.num_steps", "run.seed", "run.name", "run.root")
"""What cannot change in the life of a run: the meaning of its state, of its counters or of its place."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResumePlan:
    """What a resumption would be: nothing has been computed or written."""

    run: Path
    update: int  # of the checkpoint
    total_updates: int
    env_steps: int  # per seed, at the checkpoint
    total_env_steps: int  # per seed, at the end
    changes: dict[str, tuple[Any, Any]]  # dotted key -> (old, new)
    config: Config
    device: str
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One object with stable keys."""
        data = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        data["run"] = str(self.run)
        data["changes"] = {key: list(pair) for key, pair in self.changes.items()}
        data["config"] = codec.to_dict(self.config)
        data["warnings"] = list(self.warnings)
        return {"schema": SCHEMA, **data}


class _Opened(NamedTuple):
    paths: RunPaths
    session: Session
    restored: Restored
    changes: dict[str, tuple[Any, Any]]
    warnings: tuple[str, ...]


def resume(
    run: str | Path,
    *,
    changes: Mapping[str, Any] | None = None,
    sinks: Sequence[Sink] = (),
    command_line: Sequence[str] = (),
    root: str | Path = DEFAULT_ROOT,
) -> TrainResult:
    """Goes on with a run up to its `run.total_steps`.

    The records after the checkpoint are dropped first: they will be made again, the same bit for bit on the same
    machine and versions.

    Args:
        run: name or path of the run.
        changes: dotted key -> new value (text is read as on the command line), such as `run.total_steps`. They
            are kept in run.toml and noted in meta.json.
        sinks: receivers of records besides the local file.
        command_line: kept in meta.json.
        root: folder of the runs, for a name.

    Raises:
        HmxError: a change that the state forbids, or a run that is finished (exit code 2); no such run, no
            intact checkpoint, or one that does not fit (3).
        StopNow: a second signal; the last complete checkpoint is intact.
    """
    opened = _open(run, changes or {}, root)
    paths, cfg, restored = opened.paths, opened.session.cfg, opened.restored
    warning = enable_cache()
    meta = metas.resumed(metas.read(paths.meta), restored.update, command_line, opened.changes)
    env_steps = restored.update * opened.session.sizes.batch_size
    meta = dataclasses.replace(meta, device=device_name(), config_digest=codec.digest(cfg), env_steps=env_steps)
    with writing("the run folder", paths.folder, ExitCode.ARTEFACT):
        for update, _ in restored.damaged:
            checkpoint.set_aside(paths.checkpoint(update))
        lost = _rewind(paths, restored.update)
        if opened.changes:
            atomic.write_text(paths.config, codec.to_toml(cfg))
        metas.write(paths.meta, meta)
    fanout = make_sinks(cfg, paths, sinks)
    for text in (warning, lost, *opened.warnings):
        if text:
            fanout.warn(text)
    return carry_out(opened.session, paths, meta, fanout, lambda: restored.state, first=restored.update)


def plan(run: str | Path, *, changes: Mapping[str, Any] | None = None, root: str | Path = DEFAULT_ROOT) -> ResumePlan:
    """What `resume` would do; reads the checkpoint and writes nothing.

    Raises:
        HmxError: as `resume` does.
    """
    opened = _open(run, changes or {}, root)
    return ResumePlan(
        run=opened.paths.folder,
        update=opened.restored.update,
        total_updates=opened.session.sizes.num_updates,
        env_steps=opened.restored.update * opened.session.sizes.batch_size,
        total_env_steps=opened.session.sizes.total_env_steps,
        changes=opened.changes,
        config=opened.session.cfg,
        device=device_name(),
        warnings=opened.warnings,
    )


def _open(run: str | Path, changes: Mapping[str, Any], root: str | Path) -> _Opened:
    paths = find_run(run, root)
    old = load(file=paths.config, environ={}).config
    cfg = apply(old, changes)
    session = open_session(cfg)
    restored = restore(session, paths)
    if restored.update >= session.sizes.num_updates:
        raise _finished(paths, restored.update, session.sizes)
    differences = codec.diff(old, cfg)
    warnings = damage(restored.damaged, restored.update) + _schedule_note(cfg, differences)
    return _Opened(paths, session, restored, differences, tuple(warnings))


def apply(cfg: Config, changes: Mapping[str, Any]) -> Config:
    """The configuration with changes that a run under way allows.

    Raises:
        HmxError: unknown keys, impossible values, or fields in `FIXED`, each named.
    """
    values, problems = codec.resolve(changes, dict.fromkeys(changes, "change"), text=True)
    if problems:
        raise error(problems)
    new = fields.replace(cfg, values)
    fixed = {key: pair for key, pair in codec.diff(cfg, new).items() if key in FIXED}
    if fixed:
        lines = [f"  {key}: {show(before)} cannot become {show(after)}" for key, (before, after) in fixed.items()]
        hint = "start a new run with these values: hmx train --config RUN/run.toml --name NEW " + " ".join(
            f"--set {key}={show(after)}" for key, (_, after) in fixed.items()
        )
        raise HmxError("\n".join(["what a run's state depends on is fixed for its life:", *lines]), hint)
    derive.check(new, dict.fromkeys(values, "change"))
    return new


def _finished(paths: RunPaths, update: int, sizes: derive.Derived) -> HmxError:
    steps = update * sizes.batch_size
    return HmxError(
        f"{paths.name} is finished: {steps:,} steps, {update:,} updates",
        f"to extend it: hmx resume {paths.argument} --steps {2 * steps}",
    )


def _rewind(paths: RunPaths, update: int) -> str | None:
    """Drops the records after `update`; says so if records before it are missing."""
    if not paths.metrics.exists():
        return f"{paths.metrics} is missing; it begins anew after update {update}" if update else None
    jsonl.truncate_after(paths.metrics, update)
    last = 0
    for record in jsonl.read(paths.metrics):
        last = max(last, int(record.get("update", 0)))
    return f"{paths.metrics} lacks updates {last + 1} to {update}" if last < update else None


def _schedule_note(cfg: Config, differences: Mapping[str, Any]) -> list[str]:
    if "run.total_steps" not in differences or cfg.algo.lr_schedule == "constant":
        return []
    return [f"the {cfg.algo.lr_schedule} learning-rate schedule now spans {cfg.run.total_steps:,} steps"]
