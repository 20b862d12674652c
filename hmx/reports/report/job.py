"""`hmx report`: everything about one run, or several runs overlaid. Needs no JAX unless episodes are played."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

import numpy as np

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, values_of
from hmx.config.textfile import quoted
from hmx.errors import HmxError, counted
from hmx.jobs.evaluation import Progress, no_progress, read_evaluation
from hmx.jobs.runs import state_of
from hmx.records import frozen
from hmx.records.artefact import read_json
from hmx.records.checkpoints import listing
from hmx.records.curves import EMPTY, SPEED
from hmx.records.layout import find_run
from hmx.records.meta import NOT_REPLAYED, ROLLBACK, Resume
from hmx.records.paths import EPISODES, GRADIENTS, SCORE_REPORT, SCORES, RunPaths
from hmx.records.plain import typed
from hmx.registry.check import known_problems
from hmx.registry.derive import derive
from hmx.render.blocks import Document
from hmx.reports.compare.differences import NO_PART
from hmx.reports.curves import AgentMetrics, agents_of, drawn_agents, mean_curve, read_metrics
from hmx.reports.doctor.job import HealthFindings, doctor
from hmx.reports.repeats import TRACED, marked
from hmx.reports.report import branches
from hmx.reports.report.findings import ConfigGroup, ResumeMark, RunFacts, RunFindings, Setting
from hmx.reports.report.request import ReportRequest

_MOST = 200  # characters of a text from a file


def run_report(request: ReportRequest, progress: Progress = no_progress) -> RunFindings:
    """Gather the facts and curves of runs, and play episodes if asked; only reads."""
    found = [find_run(run, request.root) for run in request.runs]
    twice = next((paths for i, paths in enumerate(found) if paths in found[:i]), None)
    if twice is not None:
        raise HmxError(f"cannot report {quoted(twice.name)} twice", "name each run once")
    wanted = len(found) == 1 if request.num_episodes is None else request.num_episodes > 0
    facts = tuple(_with_episodes(paths, _facts(paths), request, wanted, progress) for paths in found)
    judged = marked([agent for run in facts for agent in run.agents], [trace for run in facts for trace in run.traces])
    facts = tuple(_with_warnings(run, tuple(next(judged) for _ in run.agents)) for run in facts)
    groups, differences = _groups(facts)
    return RunFindings(facts, groups, differences, parents=tuple(branches.parents(found, facts)))


def _with_episodes(
    paths: RunPaths, run: RunFacts, request: ReportRequest, wanted: bool, progress: Progress
) -> RunFacts:
    """Play episodes; if that is impossible, a warning gives the reason."""
    if not wanted:
        return run
    from hmx.reports.report.episodes import play_episodes  # needs JAX

    try:
        return dataclasses.replace(run, episodes=play_episodes(paths, request, run.evaluation, progress))
    except HmxError as problem:
        why = quoted(" ".join(problem.message.split()), _MOST)
        return dataclasses.replace(run, warnings=(*run.warnings, f"no episodes were played: {why}"))


def _facts(paths: RunPaths) -> RunFacts:
    config, meta, warnings = frozen.describe(paths)
    found = read_metrics(paths.metrics)
    env = config.env.id if config else ""
    agents = agents_of(found, paths.name, env, source=str(paths.folder))
    drawn = drawn_agents(agents)
    others = tuple(other_reports(paths, warnings))
    state = state_of(paths, meta)
    seen = [text for text in found.warnings if state != "running" or text not in EMPTY]
    if meta is not None:
        warnings += [note for entry in meta.resumes for note in entry.notes if NOT_REPLAYED in note]
    health = _health(paths, warnings) if found.records and found.whole and config is not None else None
    evaluation, faults = read_evaluation(paths)
    runnable = config is not None and not known_problems(config)
    sizes = derive(config) if config is not None and runnable else None
    minutes = [float(seed.time[-1]) / 60 for seed in agents if len(seed.time) and np.isfinite(seed.time[-1])]
    return RunFacts(
        name=paths.name,
        path=paths.folder,
        state=state,
        env=env,
        algorithm=config.algo.name if config else "",
        update=max([agent.update for agent in agents] + [meta.update if meta else 0]),
        env_steps=max([agent.end for agent in agents] + [meta.env_steps if meta else 0]),
        total_steps=sizes.total_env_steps if sizes else None,
        minutes=max(minutes, default=None),
        steps_per_sec=_speed(drawn),
        settings=_settings(values_of(config)) if config else (),
        evaluation=evaluation,
        agents=drawn,
        traces=tuple(agent.only(TRACED) for agent in agents),
        records=found.records,
        files=_files(paths),
        others=others,
        warnings=(*warnings, *faults, *seen, *_nonfinite(agents)),
        health=health,
        meta=meta,
        damaged=frozen.is_damaged(paths),
        restorable=bool(listing(paths.checkpoints)),
        simulated=any(paths.checkpoints.glob(f"*/{EPISODES}")),
        resumes=tuple(_resume(entry, sizes.batch_size if sizes else 0) for entry in (meta.resumes if meta else ())),
    )


def _health(paths: RunPaths, warnings: list[str]) -> HealthFindings | None:
    try:
        return doctor(paths.folder)
    except HmxError as problem:
        warnings.append(f"its health was not checked: {quoted(problem.message, _MOST)}")
        return None


def _resume(entry: Resume, batch: int) -> ResumeMark:
    changes = {key: (show(pair[0]), show(pair[-1])) for key, pair in entry.changes.items() if pair}
    rollback = next((note for note in entry.notes if note.startswith(ROLLBACK)), "")
    command = shlex.join(entry.command)
    return ResumeMark(entry.at, entry.update, entry.update * batch, command, changes, entry.parent, rollback)


def _settings(values: Mapping[str, object]) -> tuple[Setting, ...]:
    """Return the values of a configuration that its algorithm and its environment read."""
    algorithm = str(values["algo.name"])
    environment = str(values["env.id"])
    return tuple(
        Setting(key, show(values[key]), show(field.default), field.described)
        for key, field in FIELDS.items()
        if field.applies_to(algorithm, environment)
    )


def _nonfinite(agents: Sequence[AgentMetrics]) -> list[str]:
    """Return a warning if values are not finite; curves leave these out."""
    bad = sum(int(np.isnan(column).sum()) for agent in agents for column in agent.columns.values())
    return [f"{counted(bad, 'value')} left out of the curves: not finite"] if bad else []


def _speed(agents: Sequence[AgentMetrics]) -> float | None:
    found = [value for agent in agents[:1] for value in agent.curve(SPEED).within().values.tolist()]
    return sum(found) / len(found) if found else None


def _files(paths: RunPaths) -> tuple[str, ...]:
    """Return the other reports in the folder of the run."""
    with contextlib.suppress(OSError):
        return tuple(sorted(p.name for p in paths.reports.iterdir() if p.suffix in (".html", ".md", ".csv", ".npz")))
    return ()


def _with_warnings(run: RunFacts, agents: tuple[AgentMetrics, ...]) -> RunFacts:
    more = [
        f"its seed {agent.number} is the same agent as in {agent.repeats.run}: means over runs count it once"
        for agent in agents
        if agent.repeats
    ]
    return dataclasses.replace(run, agents=agents, warnings=(*run.warnings, *more))


def _groups(runs: Sequence[RunFacts]) -> tuple[tuple[ConfigGroup, ...], dict[str, tuple[str, ...]]]:
    """Group runs by the effective values of their configurations, in the order in which they were named.

    An agent that several runs have counts once.
    """
    by_config: dict[str, list[RunFacts]] = {}
    for run in runs:
        values = {setting.key: setting.value for setting in run.settings if setting.key not in NO_PART}
        by_config.setdefault(json.dumps(values) if values else run.name, []).append(run)
    members = list(by_config.values())
    differences = _differences(members)
    groups = []
    for i, group in enumerate(members):
        seeds = [agent for run in group for agent in run.agents if not agent.repeats]
        metrics = sorted({name for seed in seeds for name in seed.columns})
        curves = {name: curve for name in metrics if (curve := mean_curve(seeds, name)) is not None}
        names = tuple(run.name for run in group)
        others = [run for run in runs if run not in group]
        branch = branches.steps(group, branches.ids(others))
        groups.append(ConfigGroup(_name(i, names, differences), names, len(seeds), curves, branch))
    return tuple(groups), differences


def _differences(members: Sequence[Sequence[RunFacts]]) -> dict[str, tuple[str, ...]]:
    values = [{setting.key: setting.value for setting in group[0].settings} for group in members]
    keys = [key for key in FIELDS if key not in NO_PART and any(key in found for found in values)]
    rows = {key: tuple(found.get(key, "") for found in values) for key in keys}
    return {key: row for key, row in rows.items() if len(set(row)) > 1}


def _name(place: int, runs: Sequence[str], differences: Mapping[str, Sequence[str]]) -> str:
    """Return the name of a group: its differing settings if they are short, otherwise its runs."""
    if 1 <= len(differences) <= 2:
        return ", ".join(f"{key.partition('.')[2]} {row[place]}" for key, row in differences.items())
    return runs[0] + (f" and {len(runs) - 1} more" if len(runs) > 1 else "")


def other_reports(paths: RunPaths, warnings: list[str]) -> Iterator[Document]:
    """Yield the reports in the folder of a run; one that cannot be read adds to `warnings`."""
    for name, read in ((GRADIENTS, _gradients), (f"{SCORES}/{SCORE_REPORT}", _scores)):
        file = paths.reports / name
        try:
            if file.exists():
                yield read(file)
        except HmxError as problem:
            warnings.append(f"cannot read {name}: {quoted(problem.message, 200)}")
        except (TypeError, KeyError, AttributeError, ValueError):
            warnings.append(f"cannot read {name}: not a report of this version; run the command again")


def _gradients(file: Path) -> Document:
    from hmx.algos.gradients.request import ProbeRequest
    from hmx.reports.grad_report.document import document  # needs JAX, as all reports on gradients and scores
    from hmx.reports.grad_report.findings import SCHEMA, GradFindings

    data = read_json(file, SCHEMA, "", "")
    probe = {field.name: data["request"][field.name] for field in fields(ProbeRequest)}
    data["reports"] = [{**report, "request": probe} for report in data["reports"]]
    return document(typed(GradFindings, data, {np.ndarray: lambda values: np.asarray(values, float)}))


def _scores(file: Path) -> Document:
    from hmx.reports.score_buffer.document import document
    from hmx.reports.score_buffer.findings import SCHEMA, ScoreFindings

    return document(typed(ScoreFindings, read_json(file, SCHEMA, "", "")))
