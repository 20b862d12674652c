"""`hmx doctor`, and the warnings of a run that trains: check the rules after every update."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hmx.config.fields import values_of
from hmx.config.files import words
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted, nearest
from hmx.jobs.runs import state_of
from hmx.records import meta as metas
from hmx.records.curves import Records
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.records.logs import is_imported, read_imported
from hmx.records.meta import described
from hmx.records.paths import CONFIG, DEFAULT_ROOT, META, METRICS
from hmx.records.plain import ShortRepr
from hmx.render.quantities import short
from hmx.reports.doctor.logs import points
from hmx.reports.doctor.monitor import Finding, Monitor, RuleStatus, restarts
from hmx.reports.doctor.rules import RULES
from hmx.runs.sinks import Ending, Record, RunInfo, Sink

ANY = "any"  # `--fail-on any`: every rule whose findings are warnings
SCHEMA = 1
_MOST = 3  # warnings shown during a run; `hmx doctor` shows all


@dataclass(frozen=True, kw_only=True, repr=False)
class HealthFindings(ShortRepr):
    """The result of `hmx doctor`, most severe findings first."""

    schema: int = SCHEMA
    run: Path
    env: str
    state: str
    updates: int
    total_updates: int
    env_steps: int
    num_seeds: int
    findings: tuple[Finding, ...]
    rules: tuple[RuleStatus, ...]
    warnings: tuple[str, ...]  # about reading the files
    origin: str = ""  # the run that it was forked from, where, and what changed
    is_log: bool = False  # of another program
    runs: tuple[str, ...] = ()  # names of the runs in a log of several, in the order of `seeds`
    failed: tuple[str, ...] = ()  # rules of --fail-on that are broken
    error: str = ""  # that ended the run, if it failed or crashed
    remedy: str = ""  # what to do about it

    @property
    def verdict(self) -> str:
        """Return the result in one sentence."""
        if not self.updates:
            return "The run has no metrics yet."
        count = sum(finding.severity == "warning" for finding in self.findings)
        notes = len(self.findings) - count
        checked = sum(rule.status != "not measured" for rule in self.rules)
        found = counted(count, "problem") if count else "No problem"
        found += f" and {counted(notes, 'note')}" if notes else ""
        if self.is_log:
            points = f"{self.updates:,} points of the log"
            return f"{found} found by {checked} of {len(self.rules)} rules in {points}."
        return f"{found} found by {checked} rules in {self.updates:,} of {self.total_updates:,} updates."


class HealthSink(Sink):
    """Warn during training, once for each rule, up to three; a resumed run continues from its records.

    With another `run.on_finding`, it ends a run that is dead or diverges.
    """

    name = "the health check"

    def __init__(self) -> None:
        self._monitor: Monitor | None = None
        self._name = ""
        self._known: set[str] = set()
        self._new: list[Finding] = []

    def start(self, info: RunInfo) -> None:
        """Read the records of the run so far; their findings are not reported again."""
        meta = metas.find(info.path / META) if info.first_update else None
        self._name, self._monitor = info.name, Monitor(info.config, restarts(meta.resumes if meta else ()))
        if info.first_update:
            for _, record in Records(info.path / METRICS):
                self.record(record)
            self._known |= {finding.rule for finding in self._new}
            self._new.clear()

    def record(self, record: Record) -> None:
        """Check the rules."""
        if self._monitor is not None:
            self._new += [finding for finding in self._monitor.add(record) if finding.severity == "warning"]

    def ending(self) -> Ending | None:
        """Return the finding that ends the run, which depends only on its records."""
        cfg = self._monitor.cfg if self._monitor else None
        found = self._monitor.ending() if self._monitor and cfg and cfg.run.on_finding != "warn" else None
        if cfg is None or found is None:
            return None
        rule, finding = found
        return Ending(
            f"{rule.title}: {finding.evidence} ({rule.name})", rule.name, finding.since, rule.changes(values_of(cfg))
        )

    def notices(self) -> Iterator[str]:
        """Yield a line for each newly broken rule."""
        for finding in self._new:
            if finding.rule not in self._known and len(self._known) < _MOST:
                since = f"since step {short(finding.since)}" if finding.since else "since the start"
                yield f"{finding.title} {since} ({finding.rule}; hmx doctor {shlex.quote(self._name)} explains it)"
            self._known.add(finding.rule)
        self._new.clear()


def doctor(run: str | Path, fail_on: Sequence[str] = (), root: str | Path = DEFAULT_ROOT) -> HealthFindings:
    """Check the metrics of a run, or a log of another program; only reads, without JAX.

    `fail_on` are rules that must not be broken, or `any`.
    """
    known = [rule.name for rule in RULES]
    for name in fail_on:
        if name not in (*known, ANY):
            near = nearest(name, [*known, ANY])
            hint = f"did you mean {near}?" if near else f"the rules are {', '.join(known)}"
            raise HmxError(f"cannot fail on {quoted(name) or repr(name)}: no such rule", hint)
    log = Path(run)
    if log.exists() and not (log / CONFIG).exists() and is_imported(log):
        return _of_log(log, fail_on)
    paths = find_run(run, root)
    meta = metas.find(paths.meta)
    resumes = meta.resumes if meta else ()
    monitor = Monitor(read_config(paths), restarts(resumes))
    records = Records(paths.metrics)
    try:
        for _, record in records:
            list(monitor.add(record))
    except FileNotFoundError:
        pass
    except OSError as problem:
        hint = "check that it is a regular file, and its permissions"
        raise HmxError(f"cannot read {paths.metrics}: {words(problem)}", hint, ExitCode.ARTEFACT) from None
    state = state_of(paths, meta)
    origin = next((described(entry) for entry in reversed(resumes) if entry.parent), "")
    ended = state in ("failed", "crashed")
    return _findings(
        paths.folder, monitor, fail_on, env=monitor.cfg.env.id if monitor.cfg else "", state=state,
        warnings=tuple(records.warnings), origin=origin,
        error=f"the run {state}" + (f": {meta.message}" if meta and meta.message else "") if ended else "",
        remedy=(meta and meta.hint) or f"hmx resume {paths.argument}" if ended else "",
    )  # fmt: skip


def _of_log(path: Path, fail_on: Sequence[str]) -> HealthFindings:
    curves = read_imported(path)
    logs = [points(agent) for agent in curves.agents]
    monitor = Monitor(None, total_updates=max(map(len, logs), default=0))
    for seed, log in enumerate(logs):
        for update, (steps, values) in enumerate(log, 1):
            list(monitor.add({**values, "update": update, "env_steps": steps, "seed": seed}))
    runs = tuple(agent.run for agent in curves.agents) if len(curves.agents) > 1 else ()
    return _findings(path, monitor, fail_on, state="log", warnings=curves.warnings, is_log=True, runs=runs)


def _findings(run: Path, monitor: Monitor, fail_on: Sequence[str], **more: Any) -> HealthFindings:
    findings, rules = monitor.findings(), tuple(monitor.statuses())
    broken = [finding.rule for finding in findings if finding.rule in fail_on]
    broken += [finding.rule for finding in findings if ANY in fail_on and finding.severity == "warning"]
    unknown = [rule.rule for rule in rules if rule.rule in fail_on and rule.status == "not measured"]
    warnings = (*more.pop("warnings"), *(f"cannot check {name}, which --fail-on names" for name in unknown))
    return HealthFindings(
        run=run,
        updates=monitor.updates,
        total_updates=monitor.total_updates,
        env_steps=monitor.env_steps,
        num_seeds=monitor.num_seeds,
        findings=findings,
        rules=rules,
        warnings=warnings,
        failed=tuple(dict.fromkeys(broken)),
        **{"env": "", **more},
    )


def failure(findings: HealthFindings) -> HmxError:
    """Return the error that ends a command whose `--fail-on` rules are broken."""
    return HmxError(
        f"{findings.run} breaks {', '.join(findings.failed)}",
        "the report above says what to try",
        ExitCode.CHECK_FAILED,
    )
