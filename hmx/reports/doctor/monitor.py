"""Take the records of a run, or the points of a log, and find the rules that they break."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from hmx.config.schema import Config
from hmx.records import jsonl
from hmx.records.meta import Resume
from hmx.registry.derive import derive
from hmx.reports.doctor.history import History
from hmx.reports.doctor.rule import Rule, Severity
from hmx.reports.doctor.rules import RULES


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
    missing: str = ""  # what a rule that is not measured lacks


@dataclass
class _Streak:
    """The duration of a rule's evidence, and its outcome."""

    since: int = 0  # environment steps
    length: int = 0  # updates; 0 without evidence
    finding: Finding | None = None


class Monitor:
    """Take the records of a run and find the rules that they break; an update costs about 0.2 ms per agent.

    A history begins again after each update of `restarts`, where a fork or a resumption changed what is learned.
    Without a configuration, `total_updates` points of a log are checked.
    """

    def __init__(self, cfg: Config | None, restarts: Sequence[int] = (), total_updates: int = 0) -> None:
        self.cfg = cfg
        self.total_updates = derive(cfg).num_updates if cfg else total_updates
        self._restarts = tuple(restarts)
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
            continued = bool(self.cfg and self.cfg.run.init_from)
            self._agents[seed] = History(self.cfg, self.total_updates, continued=continued)
        agent = self._agents[seed]
        done, begun = update - agent.update, agent.steps
        if done <= 0:
            return  # a repeated record
        if any(agent.update <= restart < update for restart in self._restarts):
            agent = self._begin_again(seed)
        agent.current = update > max(self._restarts, default=0)
        agent.add(update, steps, record)
        for rule in RULES:
            if rule.missing(agent):
                continue
            self._measured.add(rule.name)
            streak, evidence = self._streaks[seed, rule.name], rule.check(agent)
            if not evidence:
                if streak.length and streak.finding is not None:
                    disproved = rule.so_far and streak.finding.since == streak.since
                    streak.finding = None if disproved else replace(streak.finding, until=begun)
                streak.length = 0
                continue
            streak.since = streak.since if streak.length else begun
            streak.length += done
            if streak.length < rule.lasting(self.total_updates):
                continue
            if streak.finding is None:
                streak.finding = Finding(
                    rule=rule.name, severity="note" if rule.note(agent) else "warning", title=rule.title,
                    evidence=evidence, remedy=rule.remedy(agent), since=streak.since, found=steps, until=None,
                    seeds=(seed,),
                )  # fmt: skip
                yield streak.finding
            elif streak.finding.until is not None:
                streak.finding = replace(streak.finding, until=None)

    def ending(self) -> tuple[Rule, Finding] | None:
        """Return the rule and the finding that end a run: every agent breaks a rule that knows dead or diverging ones.

        The evidence has lasted twice as long as a warning needs.
        """
        lasting = {
            seed: (rule, replace(streak.finding, since=streak.since))
            for rule in reversed(RULES)
            for seed in self._agents
            if rule.rollback
            and (streak := self._streaks[seed, rule.name]).finding is not None
            and streak.length >= 2 * rule.lasting(self.total_updates)
        }
        return next(iter(lasting.values())) if lasting and len(lasting) == len(self._agents) else None

    def _begin_again(self, seed: int) -> History:
        """Forget the history of an agent; what was found in it ends here."""
        before = self._agents[seed]
        for (owner, _), streak in self._streaks.items():
            if owner == seed:
                streak.length = 0
                if streak.finding is not None and streak.finding.until is None:
                    streak.finding = replace(streak.finding, until=before.steps)
        self._agents[seed] = History(self.cfg, self.total_updates, before.update, before.steps, continued=True)
        return self._agents[seed]

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
        agent = next(iter(self._agents.values()), History(self.cfg, self.total_updates))
        for rule in RULES:
            if rule.name in self._measured:
                yield RuleStatus(rule.name, "found" if rule.name in broken else "ok")
            else:
                yield RuleStatus(rule.name, "not measured", rule.missing(agent))


def restarts(resumes: Sequence[Resume]) -> tuple[int, ...]:
    """Return the updates after which forks and resumptions changed the rewards or the environment."""
    changed = (entry.update for entry in resumes if any(key.startswith(("reward.", "env.")) for key in entry.changes))
    return tuple(changed)
