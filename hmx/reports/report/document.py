"""The page of one run or several: the verdict, the curves, the episodes, then the facts of the run."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from hmx.config.textfile import quoted
from hmx.envs.pictures import picture
from hmx.errors import counted
from hmx.records.curves import RETURN, SPEED
from hmx.records.metrics_table import METRICS
from hmx.render.blocks import (
    Animation,
    AnimationFrame,
    Aside,
    Block,
    Cell,
    Column,
    Document,
    Heading,
    Paragraph,
    Plot,
    Row,
    Table,
    exact_table,
    facts,
)
from hmx.render.numbers import exact, right, table_of, texts
from hmx.render.quantities import clock, interval, number, short
from hmx.reports.curves import points
from hmx.reports.doctor import document as health
from hmx.reports.report import figures
from hmx.reports.report.answers import LEARNED, WRONG, answers
from hmx.reports.report.findings import PlayedEpisode, ResumeMark, RunFacts, RunFindings, Setting
from hmx.reports.summaries import TRAINED, policies, undone

_READING = (
    "Lines are smoothed means over seeds; shaded areas are 95% intervals (of at least 3 seeds), thin lines the values "
    "of single seeds. Drag across a plot to zoom, double-click to reset; a click on a name in a legend hides it. With "
    "the keyboard, arrow keys move the cursor, + and - zoom, and 0 resets."
)
_BARS = 8  # probabilities of a position, at most
_LONGEST = 300  # characters of a text from a file
_KEY_METRICS = (
    RETURN, "stats/stages_completed", "stats/wins", "train/mean_episode_length", "train/entropy", "train/approx_kl",
    "train/clip_frac", "train/explained_variance", "train/value_loss", "train/td_error", "train/grad_norm",
    "train/steps_per_sec",
)  # fmt: skip
_TERMS = (
    ("environment step", "one action in one environment; each of several agents trained side by side takes its own"),
    ("update", "one rollout of all environments, and the gradient steps on it"),
    ("episode", "a game from its start to its end, or to the step limit (then it is truncated)"),
    ("return", "sum of the rewards of an episode, not discounted"),
    ("length", "number of steps of an episode"),
    ("stage", "level of the game that an episode reached; HackMatrix has 8"),
    ("wins", "episodes that were won, of all"),
    ("seed", "number that fixes the randomness of a run; agents of different seeds differ in nothing else"),
    ("interval", "range that contains the true mean in 95% of cases; of curves Student's t over seeds, of the "
     "evaluation a bootstrap over episodes"),
    ("random play", "legal actions drawn uniformly: what an agent that learned nothing reaches"),
    ("value", "return that the agent expects from a position; below the mean return where wins are rare if "
     "ppo.value_target is symlog, the default, which predicts the mean of the logarithm"),
    ("KL divergence from the search", "how far the policy is from the search that it learns from; falls as it learns"),
    ("KL divergence, clip fraction", "how far an update moves the policy; large values mean steps that are too large"),
    ("entropy", "how random the policy is; it lies between 0 and the maximum, and falls as the agent decides"),
    ("explained variance", "share of the differences between returns that the value predicts; 1 is best, 0 is useless"),
)  # fmt: skip


def document(findings: RunFindings) -> Document:
    """Build the report."""
    names = [quoted(run.name, _LONGEST) for run in findings.runs]
    title = f"Run {names[0]}" if len(names) == 1 else f"{len(names)} runs: {', '.join(names)}"
    return Document(quoted(title, _LONGEST), tuple(_blocks(findings)))


def _blocks(findings: RunFindings) -> Iterator[Block]:
    for run in findings.runs:
        yield Paragraph(verdict(run), "bad" if run.state in ("failed", "crashed") else "strong")
        of = f"{quoted(run.name, 80)}: " if len(findings.runs) > 1 else ""
        yield from (Paragraph(f"Warning: {of}{quoted(text, _LONGEST)}.", "warning") for text in run.warnings)
    yield _answers(findings)
    if findings.differences:
        yield _differences(findings)
    if any(run.records for run in findings.runs):
        yield Aside((*figures.best_known(findings), Paragraph(_READING, "faint")), beside=False)
    for run in findings.runs:
        if run.evaluation:
            yield Heading(f"Evaluation{_named(run, findings)}")
            yield _evaluation(run)
            yield from undone(run.evaluation, TRAINED)
    for run in findings.runs:
        yield from episodes(run, _named(run, findings))
    for run in findings.runs:
        if run.health is not None and run.health.findings:
            yield Heading(f"Health{_named(run, findings)}")
            yield from health.blocks(run.health)
    for run in findings.runs:
        for other in run.others:
            yield from _embedded(other)
    if any(group.curves for group in findings.groups):
        yield Heading("Metrics")
        yield _last_values(findings)
        yield from _curves(findings)
    for run in findings.runs:
        yield from _about(run, findings)
    yield Aside((_terms(findings),), "Terms on this page", beside=False)


def verdict(run: RunFacts) -> str:
    """Return the state of a run in one sentence."""
    seeds = len(run.agents)
    steps = f"{run.env_steps:,} steps" + (f" for each of {seeds} seeds" if seeds > 1 else "")
    text = f"{quoted(run.name, 80)}: {'state unknown' if run.state == 'unknown' else run.state} after {steps}"
    if run.state != "finished" and run.total_steps:
        text += f" of {run.total_steps:,}"
    return text + (f" and {clock(60 * run.minutes)} of training." if run.minutes is not None else ".")


def _answers(findings: RunFindings) -> Table:
    """Answer what a reader asks first; for several runs, say whether each learned, and what is wrong."""
    if len(findings.runs) == 1:
        rows = (
            Row((Cell(one.question, tone="faint"), Cell(one.text, tone=one.tone))) for one in answers(findings.runs[0])
        )
        return Table((Column("", "left"), Column("", "left")), tuple(rows))
    kept = {run.name: {one.question: one for one in answers(run)} for run in findings.runs}
    asked = (LEARNED, WRONG)
    columns = (Column("run", "left"), *(Column(question, "left") for question in asked))
    return Table(columns, tuple(
        Row((quoted(name, 80), *(Cell(answered[question].text, tone=answered[question].tone) for question in asked)))
        for name, answered in kept.items()
    ))  # fmt: skip


def _terms(findings: RunFindings) -> Table:
    """Explain the words of the page, and the reward terms that the runs report."""
    reported = {name for group in findings.groups for name in group.curves}
    rewards = [(name, METRICS[name].help) for name in METRICS if name.startswith("reward/") and name in reported]
    columns = (Column("", "left"), Column("", "left"))
    return Table(columns, tuple(Row((Cell(term, tone="strong"), text)) for term, text in (*_TERMS, *rewards)))


def _differences(findings: RunFindings) -> Table:
    columns = (Column("setting", "left"), *(Column(group.name, "left") for group in findings.groups))
    rows = tuple(Row((key, *(quoted(value) for value in values))) for key, values in findings.differences.items())
    note = "Runs whose other settings agree form a group; run names and seeds do not count."
    return Table(columns, rows, "Where the configurations differ", note)


def _evaluation(run: RunFacts) -> Table:
    judged = policies(run.evaluation, TRAINED)
    episodes = counted(max(row.episodes for row in run.evaluation), "whole episode")
    note = f"Mean over {episodes} per agent at the end of training; 95 %: bootstrap over episodes."
    return replace(judged, note=note)


def _named(run: RunFacts, findings: RunFindings) -> str:
    return f" of {quoted(run.name, 80)}" if len(findings.runs) > 1 else ""


def _last_values(findings: RunFindings) -> Table:
    names = [name for name in _KEY_METRICS if any(name in group.curves for group in findings.groups)]
    groups = (Column(group.name) for group in findings.groups)
    columns = (Column("metric", "left"), *groups, Column("meaning", "left", 2))

    def cell(name: str, place: int) -> Cell:
        curve = findings.groups[place].curves.get(name)
        if curve is None:
            return Cell("")
        value = float(curve.values[-1])
        if name == SPEED or not len(curve.low):
            return Cell(short(value) if name == SPEED else number(value), value)
        return Cell(interval(value, float(curve.low[-1]), float(curve.high[-1])), value)

    rows = tuple(
        Row((name.partition("/")[2], *(cell(name, i) for i in range(len(findings.groups))), METRICS[name].help))
        for name in names
    )
    return Table(columns, rows, note="Means over the last part of training and over seeds; intervals hold 95%.")


def _curves(findings: RunFindings) -> Iterator[Aside]:
    """Yield the other curves of the page, each kind behind a disclosure."""
    fixed = figures.fixed_values(findings)
    constant = [Paragraph(f"Constant: {fixed}.", "faint")] if fixed else []
    stacked = [plot for prefix in ("actions/", "programs/") for plot in figures.stacks(findings, prefix)]
    kinds: tuple[tuple[str, list[Plot], list[Paragraph]], ...] = (
        ("Actions", stacked, []),
        ("Optimisation", list(figures.plots(findings, figures.OPTIMISATION)), []),
        ("Gradient reports", list(figures.gradients(findings)), []),
        ("Schedules", list(figures.plots(findings, figures.SCHEDULES)), constant),
        ("Speed", list(figures.plots(findings, figures.SPEED)), []),
        ("Other metrics", list(figures.others(findings)), []),
    )
    for title, plots, notes in kinds:
        if plots or notes:
            yield Aside((*plots, *notes), f"{title}: {counted(len(plots), 'plot')}", beside=False)


def episodes(run: RunFacts, named: str = "") -> Iterator[Block]:
    """Yield the episodes of a run: a table, and boards that play on the page."""
    played = run.episodes
    if played is None:
        return
    how = "taking the most probable action" if played.greedy else "drawing actions as in training"
    which = f"from checkpoint {played.checkpoint:,}, {how} (seed {played.seed}); mean return {number(played.mean)}"
    yield Heading(f"Episodes{named}")
    if played.evaluated is None:
        yield Paragraph(f"{played.played:,} new episodes, not those of the evaluation, {which}.")
    elif played.repeats:
        yield Paragraph(f"The {played.played:,} episodes of the evaluation, played again {which}.")
    else:
        differ = f"The evaluation, whose mean was {number(played.evaluated)}, had another checkpoint, device or version"
        which = f"with the random numbers of the evaluation, {which}"
        yield Paragraph(f"{played.played:,} episodes {which}. {differ}.", "warning")
    columns = [texts("episode", attrgetter("place")), exact("return", attrgetter("total"))]
    columns += [right("steps", lambda one: f"{one.length:,}"), texts("ending", attrgetter("ending"))]
    yield table_of(played.shown, columns)
    yield Aside(tuple(_animation(episode) for episode in played.shown), beside=False)


def _animation(episode: PlayedEpisode) -> Animation:
    total = 0.0
    frames = []
    for step in episode.steps:
        total += step.reward
        terms = ", ".join(f"{name} {number(value)}" for name, value in step.terms.items())
        pairs = [("action", step.action), ("reward", number(step.reward) + (f": {terms}" if terms else ""))]
        pairs += [("value", number(step.value))] if step.value is not None else []
        ranked = sorted(step.probabilities.items(), key=lambda item: -item[1])[:_BARS]
        bars = tuple((f"{name} (taken)" if name == step.action else name, share) for name, share in ranked)
        frames.append(AnimationFrame(picture(step.state), (*pairs, ("return so far", number(total))), bars))
    title = f"{episode.place.capitalize()} episode: return {number(episode.total)}"
    caption = "The position before each action, the probabilities of the actions, the reward of the action taken and "
    caption += "its terms, and the return that the agent expects (value)."
    if len(episode.steps) < episode.length:
        caption += f" The first {len(episode.steps):,} of {episode.length:,} steps."
    return Animation(title, tuple(frames), caption)


def _embedded(report: Document) -> Iterator[Block]:
    """Yield another report: its verdict, and on the page the whole report."""
    yield Heading(report.title)
    verdict, *rest = report.blocks
    yield verdict
    flat = [part for block in rest for part in (block.blocks if isinstance(block, Aside) else (block,))]
    yield Aside(tuple(flat), "The whole report", beside=False)


def _about(run: RunFacts, findings: RunFindings) -> Iterator[Block]:
    yield Heading(f"Run{_named(run, findings)}")
    yield facts(tuple((name, quoted(value, _LONGEST)) for name, value in _facts(run) if value))
    if run.resumes:
        yield _resumes(run)
    changed = [setting for setting in run.settings if setting.changed and setting.key != "run.name"]
    columns = [
        texts("setting", attrgetter("key")), texts("value", _value),
        texts("default", lambda one: one.default or '""'), texts("meaning", attrgetter("doc"), 2),
    ]  # fmt: skip
    if changed:
        yield table_of(changed, columns, f"Different from the defaults{_named(run, findings)}")
    if run.settings:
        plain = [setting for setting in run.settings if not setting.changed]
        yield Aside((table_of(plain, columns),), f"All {len(plain)} settings at their defaults", beside=False)


def _value(setting: Setting) -> Cell:
    return Cell(quoted(setting.value) or '""', tone="strong" if setting.changed else "plain")


def _facts(run: RunFacts) -> Iterator[tuple[str, str]]:
    yield "folder", str(run.path)
    yield "environment", run.env
    yield "algorithm", run.algorithm
    yield "updates", f"{run.update:,}"
    yield "steps", f"{run.env_steps:,} per seed" + (f" of {run.total_steps:,}" if run.total_steps else "")
    yield "speed", f"{short(run.steps_per_sec)} steps/s" if run.steps_per_sec else ""
    if (meta := run.meta) is not None:
        yield "started", meta.created
        yield "device", meta.device
        yield "system", f"Python {meta.python}, {meta.platform}"
        yield "versions", ", ".join(f"{name} {version}" for name, version in meta.versions.items())
        yield "git", meta.git_revision[:12] + (" with changes" if meta.git_dirty else "")
        yield "command", shlex.join(meta.command)
    yield "other reports", ", ".join(run.files)


def _resumes(run: RunFacts) -> Table:
    columns = [
        texts("what", attrgetter("what")), texts("at", attrgetter("at")),
        right("update", lambda mark: f"{mark.update:,}"),
        right("steps per seed", lambda mark: f"{mark.env_steps:,}"), texts("changes", _changes),
    ]  # fmt: skip
    return table_of(run.resumes, columns, "Forks and resumptions")


def _changes(mark: ResumeMark) -> str:
    changes = ", ".join(f"{key}: {before} -> {after}" for key, (before, after) in mark.changes.items())
    return quoted("; ".join(filter(None, (changes or "none", mark.rollback))), _LONGEST)


def values(findings: RunFindings) -> Table:
    """Return all curves as one table, for CSV."""
    names = ("group", "metric", "env_steps", "minutes", "mean", "low", "high")
    rows = []
    for group in findings.groups:
        for metric, curve in group.curves.items():
            columns = (curve.steps, curve.time / 60, curve.values, curve.low, curve.high)
            rows += [(group.name, metric, *values) for values in itertools.zip_longest(*map(points, columns))]
    return exact_table(names, rows)
