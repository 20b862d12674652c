"""`hmx doctor`, and the warnings of a run that trains: check the rules after every update."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from hmx.config.files import words
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.errors import ExitCode, HmxError, counted, nearest
from hmx.jobs.runs import state_of
from hmx.records import jsonl
from hmx.records import meta as metas
from hmx.records.curves import Records
from hmx.records.frozen import read_config
from hmx.records.layout import find_run
from hmx.records.paths import DEFAULT_ROOT, METRICS
from hmx.registry.derive import derive
from hmx.render.quantities import short
from hmx.reports.doctor.history import History
from hmx.reports.doctor.rules import RULES, Severity
from hmx.runs.sinks import Record, RunInfo, Sink

ANY = "any"  # `--fail-on any`: every rule whose findings are warnings
SCHEMA = 1
_MOST = 3  # warnings shown during a run; `hmx doctor` shows all


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A broken rule."""

    rule: str
    severity: Severity
    title: str
    evidence: str  # the numbers at the time when the rule was found to be broken
    remedy: str
    since: int  # environment steps at which the evidence began
    found: int  # environment steps at which it had lasted long enough
    until: int | None  # environment steps at which it ended; None while it lasts
    seeds: tuple[int, ...]  # the agents for which the rule is broken


@dataclass(frozen=True)
class RuleStatus:
    """Whether a rule was checked: a rule without its metrics is not measured."""

    rule: str
    status: Literal["ok", "found", "not measured"]


@dataclass(frozen=True, kw_only=True)
class HealthFindings:
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
    failed: tuple[str, ...] = ()  # rules of --fail-on that are broken

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
        return f"{found} found by {checked} rules in {self.updates:,} of {self.total_updates:,} updates."


@dataclass
class _Streak:
    """The duration of a rule's evidence, and its outcome."""

    since: int = 0  # environment steps
    length: int = 0  # updates; 0 without evidence
    finding: Finding | None = None


class Monitor:
    """Take the records of a run and find the rules that they break; an update costs about 0.1 ms per agent."""

    def __init__(self, cfg: Config) -> None:
        self.cfg = cfg
        self.total_updates = derive(cfg).num_updates
        self._agents: dict[int, History] = {}
        self._streaks: defaultdict[tuple[int, str], _Streak] = defaultdict(_Streak)  # by agent and rule
        self._measured: set[str] = set()

    @property
    def updates(self) -> int:
        """Updates so far."""
        return max((agent.update for agent in self._agents.values()), default=0)

    @property
    def env_steps(self) -> int:
        """Environment steps so far, per agent."""
        return max((agent.steps for agent in self._agents.values()), default=0)

    @property
    def num_seeds(self) -> int:
        """Agents with records."""
        return len(self._agents)

    def add(self, record: Mapping[str, object]) -> Iterator[Finding]:
        """Take the record of one update of one agent, and yield the rules that this agent breaks for the first time."""
        update, steps, seed = jsonl.update_of(record), record.get("env_steps"), record.get("seed", 0)
        if update is None or type(steps) is not int or type(seed) is not int:
            return
        if seed not in self._agents:
            self._agents[seed] = History(self.cfg, self.total_updates)
        agent = self._agents[seed]
        done, begun = update - agent.update, agent.steps
        if done <= 0:
            return  # a repeated record
        agent.add(update, steps, record)
        for rule in RULES:
            if not all(name in agent.tracks for name in rule.needs):
                continue
            self._measured.add(rule.name)
            streak, evidence = self._streaks[seed, rule.name], rule.check(agent)
            if not evidence:
                if streak.length and streak.finding is not None:
                    streak.finding = replace(streak.finding, until=begun)
                streak.length = 0
                continue
            streak.since = streak.since if streak.length else begun
            streak.length += done
            if streak.length < rule.lasting(self.total_updates):
                continue
            if streak.finding is None:
                streak.finding = Finding(
                    rule=rule.name, severity=rule.severity, title=rule.title, evidence=evidence, remedy=rule.remedy,
                    since=streak.since, found=steps, until=None, seeds=(seed,),
                )  # fmt: skip
                yield streak.finding
            elif streak.finding.until is not None:
                streak.finding = replace(streak.finding, until=None)

    def findings(self) -> tuple[Finding, ...]:
        """Return the broken rules, each once for all agents that break it, warnings first."""
        found: dict[str, Finding] = {}
        for finding in (streak.finding for streak in self._streaks.values() if streak.finding):
            other = found.get(finding.rule, finding)
            first = min(other, finding, key=lambda one: one.found)
            ends = (other.until, finding.until)
            found[finding.rule] = replace(
                first,
                since=min(other.since, finding.since),
                until=None if None in ends else max(end or 0 for end in ends),
                seeds=tuple(sorted({*other.seeds, *finding.seeds})),
            )
        in_order = [found[rule.name] for rule in RULES if rule.name in found]
        return tuple(sorted(in_order, key=lambda finding: finding.severity == "note"))

    def statuses(self) -> Iterable[RuleStatus]:
        """Yield the outcome of every rule."""
        broken = {finding.rule for finding in self.findings()}
        for rule in RULES:
            checked: Literal["ok", "not measured"] = "ok" if rule.name in self._measured else "not measured"
            yield RuleStatus(rule.name, "found" if rule.name in broken else checked)


class HealthSink(Sink):
    """Warn during training, once for each rule, up to three; a resumed run continues from its records."""

    name = "the health check"

    def __init__(self) -> None:
        self._monitor: Monitor | None = None
        self._name = ""
        self._known: set[str] = set()
        self._new: list[Finding] = []

    def start(self, info: RunInfo) -> None:
        """Read the records of the run so far; their findings are not reported again."""
        self._name, self._monitor = info.name, Monitor(info.config)
        if info.first_update:
            for _, record in Records(info.path / METRICS):
                self.record(record)
            self._known |= {finding.rule for finding in self._new}
            self._new.clear()

    def record(self, record: Record) -> None:
        """Check the rules."""
        if self._monitor is not None:
            self._new += [finding for finding in self._monitor.add(record) if finding.severity == "warning"]

    def notices(self) -> Iterator[str]:
        """Yield a line for each newly broken rule."""
        for finding in self._new:
            if finding.rule not in self._known and len(self._known) < _MOST:
                since = f"since step {short(finding.since)}" if finding.since else "since the start"
                yield f"{finding.title} {since} ({finding.rule}; hmx doctor {shlex.quote(self._name)} explains it)"
            self._known.add(finding.rule)
        self._new.clear()


def doctor(run: str | Path, fail_on: Sequence[str] = (), root: str | Path = DEFAULT_ROOT) -> HealthFindings:
    """Check the metrics of a run; only reads, without JAX. `fail_on` are rules that must not be broken, or `any`."""
    known = [rule.name for rule in RULES]
    for name in fail_on:
        if name not in (*known, ANY):
            near = nearest(name, [*known, ANY])
            hint = f"did you mean {near}?" if near else f"the rules are {', '.join(known)}"
            raise HmxError(f"cannot fail on {quoted(name) or repr(name)}: no such rule", hint)
    paths = find_run(run, root)
    monitor = Monitor(read_config(paths))
    records = Records(paths.metrics)
    try:
        for _, record in records:
            list(monitor.add(record))
    except FileNotFoundError:
        pass
    except OSError as problem:
        hint = "check that it is a regular file, and its permissions"
        raise HmxError(f"cannot read {paths.metrics}: {words(problem)}", hint, ExitCode.ARTEFACT) from None
    findings = monitor.findings()
    broken = [finding.rule for finding in findings if finding.rule in fail_on]
    broken += [finding.rule for finding in findings if ANY in fail_on and finding.severity == "warning"]
    return HealthFindings(
        run=paths.folder,
        env=monitor.cfg.env.id,
        state=state_of(paths, metas.find(paths.meta)),
        updates=monitor.updates,
        total_updates=monitor.total_updates,
        env_steps=monitor.env_steps,
        num_seeds=monitor.num_seeds,
        findings=findings,
        rules=tuple(monitor.statuses()),
        warnings=tuple(records.warnings),
        failed=tuple(dict.fromkeys(broken)),
    )


def failure(findings: HealthFindings) -> HmxError:
    """Return the error that ends a command whose `--fail-on` rules are broken."""
    return HmxError(
        f"{findings.run} breaks {', '.join(findings.failed)}",
        "the report above says what to try",
        ExitCode.CHECK_FAILED,
    )
