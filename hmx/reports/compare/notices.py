"""Facts about the sides, and what speaks against comparing them apart from the configuration of the learner."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, get, keys_of
from hmx.config.textfile import quoted
from hmx.reports.compare.configs import derived
from hmx.reports.compare.findings import MemberFacts, Notice, Severity, SideFacts
from hmx.reports.compare.read import Member, Seed, Side
from hmx.reports.compare.tasks import Groups

# Options of the environment that are part of how one trains on the task, not of the task.
_NOT_THE_TASK = ("env.id", "env.num_envs", "env.obs", "env.reset_on_done", "env.full_reset_every")
_STATES = {
    "running": "is still running",
    "crashed": "ended without finishing (killed or crashed?)",
    "interrupted": "was interrupted",
    "failed": "failed",
}
_T = TypeVar("_T")
_Part = Literal["git", "jax", "hmx", "device"]
_MACHINE: Mapping[_Part, tuple[str, Severity]] = {
    "device": ("devices", "caution"),
    "jax": ("versions of jax", "note"),
    "hmx": ("versions of hmx", "caution"),
    "git": ("git revisions", "note"),
}


def with_tasks(sides: Sequence[Side]) -> tuple[tuple[Side, ...], list[Notice]]:
    """Fill in the environment of agents without one, where only one is possible."""
    nameless = [side.letter for side in sides if any(not seed.task for seed in side.seeds)]
    if not nameless:
        return tuple(sides), []
    known = {seed.task for side in sides for seed in side.seeds if seed.task}
    known |= {config.env.id for side in sides for config in side.configs}
    text = f"the environment of {_list(nameless)} is unknown"
    if len(known) == 1:
        text += f", assumed to be {next(iter(known))}"
    elif known:
        text += f", and others trained on {_list(sorted(known))}"
    name = next(iter(known)) if len(known) == 1 else "unknown"
    return tuple(_named(side, name) for side in sides), [Notice("caution", "", text)]


def _named(side: Side, task: str) -> Side:
    members = tuple(replace(m, seeds=tuple(replace(s, task=s.task or task) for s in m.seeds)) for m in side.members)
    return replace(side, members=members)


def notices(sides: Sequence[Side], groups: Mapping[str, Groups]) -> list[Notice]:
    """Return everything to know before trusting the figures, the gravest first."""
    found = [*_reading(sides), *_coverage(sides, groups), *_evaluations(sides), *_machines(sides)]
    for task, by_letter in groups.items():
        found += [*_definition(task, sides), *_lengths(task, by_letter), *_seeds(task, by_letter)]
        found += _copies(task, by_letter)
    order: list[Severity] = ["block", "caution", "note"]
    return sorted(dict.fromkeys(found), key=lambda notice: order.index(notice.level))


def _reading(sides: Sequence[Side]) -> Iterator[Notice]:
    for member in (member for side in sides for member in side.members):
        label = member.path.label
        for warning in member.warnings:
            yield Notice("caution", "", f"{label}: {warning}")
        for resume in member.meta.resumes if member.meta is not None else ():
            if resume.changes:
                changed = _list([quoted(str(key)) for key in resume.changes])
                yield Notice("caution", "", f"{label} was resumed at update {resume.update:,} with changes: {changed}")
        if member.state in _STATES:
            sizes, ran = derived(member.config), min((seed.end for seed in member.seeds), default=0)
            progress = "" if sizes is None else f" ({ran:,} of {sizes.total_env_steps:,} steps)"
            yield Notice("caution", "", f"{label} {_STATES[member.state]}{progress}")


def _coverage(sides: Sequence[Side], groups: Mapping[str, Groups]) -> Iterator[Notice]:
    for task, by_letter in groups.items():
        missing = [side.letter for side in sides if side.trained_seeds and side.letter not in by_letter]
        if missing:
            yield Notice("caution", "", f"{_list(missing)} did not train on {task}")
    empty = [
        side.letter
        for side in sides
        if not side.trained_seeds and any(m.path.kind in ("run", "metrics") for m in side.members)
    ]
    if empty:
        yield Notice("caution", "", f"{_list(empty)} has no records to compare")


def _definition(task: str, sides: Sequence[Side]) -> Iterator[Notice]:
    """Block verdicts where the task itself differs: returns are on different scales then."""
    for key in keys_of(config for side in sides for config in side.configs):
        field = FIELDS.get(key)  # None for an option that the user's code declares
        is_task = key.partition(".")[0] in ("env", "reward") and key not in _NOT_THE_TASK
        if not is_task or (field is not None and not field.of_env(task)):
            continue
        values = {
            side.letter: sorted({quoted(show(get(c, key))) for c in side.configs if c.env.id == task})
            for side in sides
            if side.trained_seeds
        }
        if text := _differing(values):
            yield Notice(
                "block", task, f"the {'rewards' if key.startswith('reward.') else 'tasks'} differ: {key} {text}"
            )


def _differing(values: Mapping[str, Sequence[str]]) -> str:
    """Return what each side has, "" where those that have anything agree."""
    known = {letter: found for letter, found in values.items() if found}
    if len({tuple(found) for found in known.values()}) <= 1 and all(len(found) == 1 for found in known.values()):
        return ""
    return ", ".join(f"{letter} {_list(found)}" for letter, found in known.items())


def _lengths(task: str, groups: Groups) -> Iterator[Notice]:
    ends = {letter: sorted({seed.end for seed in group}) for letter, group in groups.items()}
    every = [end for found in ends.values() for end in found]
    if len(set(every)) > 1:
        spans = (f"{e[0]:,}" + (f" to {e[-1]:,}" if len(e) > 1 else "") for e in ends.values())
        shown = ", ".join(f"{letter} {span}" for letter, span in zip(ends, spans, strict=True))
        level: Severity = "caution" if max(every) > 1.05 * min(every) else "note"
        yield Notice(level, "", f"numbers of steps on {task} differ: {shown}")


def _seeds(task: str, groups: Groups) -> Iterator[Notice]:
    for letter, group in groups.items():
        if len(group) == 1:
            text = f"{letter} has a single seed on {task}: the variation between its seeds is unknown"
            yield Notice("caution", "", text)
        counts = Counter(seed.number for seed in group)
        twice = _list([str(n) for n in sorted(n for n, count in counts.items() if count > 1 and n is not None)])
        if twice:
            text = f"{letter} has seed {twice} of {task} more than once; these seeds are not paired"
            yield Notice("caution", "", text)


def _copies(task: str, groups: Groups) -> Iterator[Notice]:
    alike: dict[object, list[str]] = {}
    for letter, group in groups.items():
        for seed in group:
            if len(seed.steps) > 1:
                who = f"{letter}'s {seed.run}" + ("" if seed.number is None else f" seed {seed.number}")
                alike.setdefault(_fingerprint(seed), []).append(who)
    copies = [who for who in alike.values() if len(who) > 1]
    if copies:
        more = f", and {len(copies) - 1} more" if len(copies) > 1 else ""
        yield Notice("caution", "", f"identical metrics on {task}: {_list(copies[0])}{more}")


def _fingerprint(seed: Seed) -> object:
    """Return what is equal where two agents have the same values at the same steps, apart from speed."""
    series = sorted((item for item in seed.series.items() if "per_sec" not in item[0]), key=lambda item: item[0])
    return tuple((name, found.steps.tobytes(), found.values.tobytes()) for name, found in series)


def _evaluations(sides: Sequence[Side]) -> Iterator[Notice]:
    rows = {side.letter: [row for member in side.members for row in member.trained] for side in sides}
    rows = {letter: found for letter, found in rows.items() if found}
    episodes = {letter: [f"{n:,}" for n in sorted({r.episodes for r in found})] for letter, found in rows.items()}
    if len({tuple(counts) for counts in episodes.values()}) > 1:
        shown = ", ".join(f"{letter} {_list(counts)}" for letter, counts in episodes.items())
        yield Notice("note", "", f"numbers of evaluation episodes differ: {shown}")
    policies = {letter: sorted({quoted(row.policy) for row in found}) for letter, found in rows.items()}
    if len({tuple(found) for found in policies.values()}) > 1:
        shown = ", ".join(f"{letter} {_list(found)}" for letter, found in policies.items())
        yield Notice("caution", "", f"evaluation policies differ: {shown}")
    without = [side.letter for side in sides if side.trained_seeds and side.letter not in rows]
    if rows and without:
        yield Notice("note", "", f"{_list(without)} was not evaluated")


def _machines(sides: Sequence[Side]) -> Iterator[Notice]:
    for part, (name, level) in _MACHINE.items():
        values = {side.letter: _machine(side, part) for side in sides if any(m.meta for m in side.members)}
        if len(set(values.values())) > 1:
            shown = ", ".join(f"{letter} {_list(found) or 'unknown'}" for letter, found in values.items())
            more = "; speeds cannot be compared" if part == "device" else ""
            yield Notice(level, "", f"{name} differ: {shown}{more}")


def _machine(side: Side, part: _Part) -> tuple[str, ...]:
    """Return what the runs of a side ran on; revisions have a plus for uncommitted changes."""
    metas = [member.meta for member in side.members if member.meta is not None]
    if part == "device":
        texts = [meta.device for meta in metas]
    elif part == "git":
        texts = [meta.git_revision[:10] + ("+" if meta.git_dirty else "") for meta in metas]
    else:
        texts = [str(meta.versions.get(part, "")) for meta in metas]
    return tuple(sorted({quoted(text) for text in texts if text}))


def _list(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def describe(side: Side) -> SideFacts:
    """Return the facts about a side."""
    return SideFacts(
        letter=side.letter,
        name=side.name,
        members=tuple(_describe(member) for member in side.members),
        tasks=tuple(sorted({seed.task for seed in side.seeds} or {config.env.id for config in side.configs})),
        seeds=len(side.seeds),
        git=_machine(side, "git"),
        jax=_machine(side, "jax"),
        hmx=_machine(side, "hmx"),
        device=_machine(side, "device"),
    )


def _describe(member: Member) -> MemberFacts:
    sizes = derived(member.config)
    return MemberFacts(
        kind=member.path.kind,
        path=str(member.path.path),
        state=member.state,
        preset=_preset(member),
        steps=min((seed.end for seed in member.seeds), default=0),
        asked_steps=None if sizes is None else sizes.total_env_steps,
        seeds=tuple(seed.number for seed in member.seeds),
        evaluated_episodes=_only(row.episodes for row in member.trained),
        evaluated_policy=_only(quoted(row.policy) for row in member.trained),
    )


def _preset(member: Member) -> str:
    """Return the preset on the command line of a run; "" for none."""
    command = member.meta.command if member.meta is not None else ()
    for word, after in itertools.pairwise((*command, "")):
        if word == "--preset" or str(word).startswith("--preset="):
            return quoted(str(after if word == "--preset" else word.partition("=")[2]), 40)
    return ""


def _only(values: Iterable[_T]) -> _T | None:
    """Return the value that all have in common; None where there is none."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
