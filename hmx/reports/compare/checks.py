"""Whether sides may be compared: what differs between them that is not the configuration of the learner."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from hmx.config.coerce import show
from hmx.config.derive import derive, problems
from hmx.config.fields import FIELDS, get
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.reports.compare.read import Seed, Side, Source

Level = Literal["block", "caution", "note"]

# What of the environment's options is not the task but the way it is trained on.
_NOT_THE_TASK = ("env.id", "env.num_envs", "env.obs", "env.reset_on_done", "env.full_reset_every")
_ONLY_OF = {
    "env.slip": ("corridor",),
    "env.recall_delay": ("recall",),
    "env.undo_depth": ("hackmatrix",),
    "env.loopholes": ("hackmatrix",),
    **{key: ("hackmatrix",) for key in FIELDS if key.startswith("reward.")},
}


@dataclasses.dataclass(frozen=True)
class Notice:
    """Something to know before reading on: a block forbids verdicts on `task` ("" for all of them)."""

    level: Level
    task: str
    words: str


def tasks_of(sides: Sequence[Side]) -> tuple[tuple[Side, ...], list[Notice]]:
    """The sides with the environment of each agent known, where there is only one that it can be."""
    known = {seed.task for side in sides for seed in side.seeds if seed.task}
    known |= {config.env.id for side in sides for config in side.configs}
    nameless = [side for side in sides if any(not seed.task for seed in side.seeds)]
    if not nameless:
        return tuple(sides), []
    letters = _list([side.letter for side in nameless])
    name = next(iter(known)) if len(known) == 1 else "unknown"
    words = f"the environment of {letters} is not known" + (f" and taken to be {name}" if known else "")
    if len(known) > 1:
        words = f"the environment of {letters} is not known, and others are of {_list(sorted(known))}"
    return tuple(_named(side, name) for side in sides), [Notice("caution", "", words)]


def _named(side: Side, task: str) -> Side:
    sources = tuple(
        dataclasses.replace(
            source, seeds=tuple(s if s.task else dataclasses.replace(s, task=task) for s in source.seeds)
        )
        for source in side.sources
    )
    return dataclasses.replace(side, sources=sources)


def notices(sides: Sequence[Side], seeds: Mapping[str, Mapping[str, Sequence[Seed]]]) -> list[Notice]:
    """Everything that should be known before the figures are believed, the gravest first.

    Args:
        sides: what is compared.
        seeds: the agents by task and letter.
    """
    found = [*_reading(sides), *_environments(sides, seeds), *_protocol(sides), *_machines(sides)]
    for task, groups in seeds.items():
        found += [*_definition(task, sides), *_lengths(task, groups), *_seeds(task, groups)]
    order = {"block": 0, "caution": 1, "note": 2}
    return sorted(dict.fromkeys(found), key=lambda notice: order[notice.level])


def _reading(sides: Sequence[Side]) -> Iterator[Notice]:
    for side in sides:
        for source in side.sources:
            for warning in source.warnings:
                yield Notice("caution", "", f"{source.member.label}: {warning}")
            yield from _changes(source)
            if source.state in ("running", "interrupted", "failed", "crashed"):
                how = {"running": "is still running", "crashed": "ended without a word"}.get(
                    source.state, f"was {source.state}" if source.state == "interrupted" else "failed"
                )
                yield Notice("caution", "", f"{source.member.label} {how}{_progress(source)}")


def _changes(source: Source) -> Iterator[Notice]:
    for resume in source.meta.resumes if source.meta is not None else ():
        if resume.changes:
            changed = _list([quoted(str(key)) for key in resume.changes])
            words = f"{source.member.label} went on with changes at update {resume.update:,}: {changed}"
            yield Notice("caution", "", words)


def _progress(source: Source) -> str:
    asked = asked_steps(source)
    ran = min((seed.end for seed in source.seeds), default=0)
    return f": {ran:,} of {asked:,} steps" if asked else ""


def asked_steps(source: Source) -> int | None:
    """Environment steps per seed that the configuration comes to, whole updates counted; None if not known."""
    if source.config is None or problems(source.config):
        return None
    return derive(source.config).total_env_steps


def _environments(sides: Sequence[Side], seeds: Mapping[str, Mapping[str, Sequence[Seed]]]) -> Iterator[Notice]:
    there = [side for side in sides if any(len(seed.steps) for seed in side.seeds)]
    for task, groups in seeds.items():
        missing = [side.letter for side in there if side.letter not in groups]
        if missing:
            yield Notice("caution", "", f"{_list(missing)} did not train on {task}")
    empty = [
        side.letter
        for side in sides
        if side not in there and any(s.member.kind in ("run", "metrics") for s in side.sources)
    ]
    if empty:
        yield Notice("caution", "", f"{_list(empty)} has no records to compare")


def _definition(task: str, sides: Sequence[Side]) -> Iterator[Notice]:
    """What the task itself is must be one for all, or returns are on different scales."""
    for key in FIELDS:
        if not key.startswith(("env.", "reward.")) or key in _NOT_THE_TASK or task not in _ONLY_OF.get(key, (task,)):
            continue
        by_side = {
            side.letter: {get(c, key) for c in side.configs if c.env.id == task and _has_runs(side)} for side in sides
        }
        by_side = {letter: values for letter, values in by_side.items() if values}
        if len(set().union(*by_side.values())) > 1:
            shown = ", ".join(f"{letter} {_values(values)}" for letter, values in by_side.items())
            kind = "rewards" if key.startswith("reward.") else "tasks"
            yield Notice("block", task, f"the {kind} differ: {key} is {shown}")


def _has_runs(side: Side) -> bool:
    return any(len(seed.steps) for seed in side.seeds)


def _values(values: Iterable[Any]) -> str:
    return " and ".join(sorted(quoted(show(value)) for value in values))


def _lengths(task: str, groups: Mapping[str, Sequence[Seed]]) -> Iterator[Notice]:
    ends = [seed.end for group in groups.values() for seed in group]
    if len(set(ends)) > 1:
        shown = ", ".join(
            f"{letter} {min(s.end for s in group):,}"
            + (f" to {max(s.end for s in group):,}" if len({s.end for s in group}) > 1 else "")
            for letter, group in groups.items()
        )
        level: Level = "caution" if max(ends) > 1.05 * min(ends) else "note"
        yield Notice(level, "", f"steps taken on {task} differ: {shown}")


def _seeds(task: str, groups: Mapping[str, Sequence[Seed]]) -> Iterator[Notice]:
    for letter, group in groups.items():
        if len(group) == 1:
            yield Notice("caution", "", f"{letter} has a single seed on {task}: nothing can be said of its spread")
        twice = sorted(n for n, count in Counter(s.number for s in group).items() if count > 1 and n is not None)
        if twice:
            numbers = _list([str(n) for n in twice])
            yield Notice(
                "caution", "", f"{letter} has seed {numbers} of {task} more than once; such seeds are not paired"
            )
    alike: dict[object, list[str]] = {}
    for letter, group in groups.items():
        for seed in group:
            if len(seed.steps) > 1:
                alike.setdefault(_print_of(seed), []).append(_who(letter, seed))
    copies = [who for who in alike.values() if len(who) > 1]
    if copies:
        more = f", and {len(copies) - 1} more" if len(copies) > 1 else ""
        yield Notice("caution", "", f"the same to the last digit on {task}: {_list(copies[0])}{more}")


def _who(letter: str, seed: Seed) -> str:
    return f"{letter}'s {seed.run}" + ("" if seed.number is None else f" seed {seed.number}")


def _print_of(seed: Seed) -> object:
    """Equal where two agents have the same values at the same steps, speed aside."""
    series = sorted((item for item in seed.series.items() if "per_sec" not in item[0]), key=lambda item: item[0])
    return tuple((name, found.steps.tobytes(), found.values.tobytes()) for name, found in series)


def _protocol(sides: Sequence[Side]) -> Iterator[Notice]:
    played = {
        side.letter: sorted({int(row.get("episodes") or 0) for s in side.sources for row in s.trained})
        for side in sides
    }
    played = {letter: counts for letter, counts in played.items() if counts}
    if len({tuple(counts) for counts in played.values()}) > 1:
        shown = ", ".join(f"{letter} {_list([f'{c:,}' for c in counts])}" for letter, counts in played.items())
        yield Notice("note", "", f"evaluations are over different numbers of episodes: {shown}")
    ways = {side.letter: sorted(filter(None, {_policy(source) for source in side.sources})) for side in sides}
    ways = {letter: policies for letter, policies in ways.items() if policies}
    if len({tuple(policies) for policies in ways.values()}) > 1:
        shown = ", ".join(f"{letter} {_list(policies)}" for letter, policies in ways.items())
        yield Notice("caution", "", f"in evaluations the agents play in different ways: {shown}")
    runs = [side for side in sides if _has_runs(side)]
    without = [side.letter for side in runs if side.letter not in played]
    if played and without:
        yield Notice("note", "", f"{_list(without)} was not evaluated")


def _machines(sides: Sequence[Side]) -> Iterator[Notice]:
    for what, level in (("device", "caution"), ("jax", "note"), ("hmx", "caution"), ("git", "note")):
        values = {side.letter: machine(side)[what] for side in sides if any(s.meta for s in side.sources)}
        if len({tuple(found) for found in values.values()}) > 1:
            shown = ", ".join(f"{letter} {_list(found) or 'not known'}" for letter, found in values.items())
            name = {"jax": "versions of jax", "hmx": "versions of hmx", "git": "revisions", "device": "devices"}[what]
            words = f"{name} differ: {shown}" + ("; speeds cannot be compared" if what == "device" else "")
            yield Notice(level, "", words)  # type: ignore[arg-type]


def machine(side: Side) -> dict[str, list[str]]:
    """What the runs of a side ran on: `git` (a plus for changes that were not committed), `jax`, `hmx`, `device`."""
    metas = [source.meta for source in side.sources if source.meta is not None]
    return {
        "git": _unique(m.git_revision[:10] + ("+" if m.git_dirty else "") for m in metas),
        "jax": _unique(str(m.versions.get("jax", "")) for m in metas),
        "hmx": _unique(str(m.versions.get("hmx", "")) for m in metas),
        "device": _unique(m.device for m in metas),
    }


def _unique(texts: Iterable[str]) -> list[str]:
    return sorted({quoted(text) for text in texts if text})


def _list(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def describe(side: Side) -> dict[str, Any]:
    """A side in plain values."""
    configs = side.configs
    return {
        "letter": side.letter,
        "name": side.name,
        "members": [
            {
                "kind": source.member.kind,
                "path": str(source.member.path),
                "state": source.state,
                "preset": _preset(source),
                "steps": min((seed.end for seed in source.seeds), default=0),
                "asked_steps": asked_steps(source),
                "seeds": [seed.number for seed in source.seeds],
                "evaluated_episodes": _episodes(source),
                "evaluated_policy": _policy(source),
            }
            for source in side.sources
        ],
        "tasks": sorted({seed.task for seed in side.seeds} or {config.env.id for config in configs}),
        "seeds": len(side.seeds),
        **machine(side),
    }


def _preset(source: Source) -> str:
    """The preset that a run was started with, from its command line; "" where none was named."""
    words = source.meta.command if source.meta is not None else ()
    for word, after in itertools.pairwise((*words, "")):
        if word == "--preset" or str(word).startswith("--preset="):
            return quoted(str(after if word == "--preset" else word.partition("=")[2]), 40)
    return ""


def _episodes(source: Source) -> int | None:
    counts = {row.get("episodes") for row in source.trained}
    return next(iter(counts)) if len(counts) == 1 else None


def _policy(source: Source) -> str | None:
    """How the trained agents played in the evaluation; None where they did not, or in several ways."""
    policies = {str(row["policy"]) for row in source.trained}
    return quoted(policies.pop()) if len(policies) == 1 else None


def sizes(config: Config) -> dict[str, int] | None:
    """What follows from a configuration; None for one that cannot run."""
    return None if problems(config) else derive(config)._asdict()
