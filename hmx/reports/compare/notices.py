"""Facts about the sides, and objections to comparing them."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeVar

from hmx.config.coerce import show
from hmx.config.fields import FIELDS, keys_of
from hmx.config.textfile import quoted
from hmx.reports.compare.findings import MemberFacts, Notice, Severity, SharedStart, SideFacts
from hmx.reports.compare.sides import Member, Side
from hmx.reports.compare.tasks import Groups
from hmx.reports.curves import AgentMetrics

_T = TypeVar("_T")
# Options of the environment that belong to the training, not to the task.
_NOT_THE_TASK = ("env.id", "env.num_envs", "env.obs", "env.reset_on_done", "env.full_reset_every")
_STATES = {
    "running": "is still running",
    "crashed": "ended without finishing (killed or crashed?)",
    "interrupted": "was interrupted",
    "failed": "failed",
}
_Part = Literal["git", "jax", "hmx", "device"]
_MACHINE: Mapping[_Part, tuple[str, Severity]] = {
    "device": ("devices", "caution"),
    "jax": ("versions of jax", "note"),
    "hmx": ("versions of hmx", "caution"),
    "git": ("git revisions", "note"),
}


def with_tasks(sides: Sequence[Side]) -> tuple[tuple[Side, ...], list[Notice]]:
    """Fill in the environment of agents without one, if only one is possible."""
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

    def named(member: Member) -> Member:
        return replace(member, seeds=tuple(replace(seed, task=seed.task or name) for seed in member.seeds))

    filled = tuple(replace(side, members=tuple(map(named, side.members))) for side in sides)
    return filled, [Notice("caution", "", text)]


def notices(sides: Sequence[Side], groups: Mapping[str, Groups]) -> list[Notice]:
    """Return all notices about the reliability of the figures, the gravest first."""
    found = [
        *_reading(sides),
        *_repeated(sides),
        *_shared_starts(sides),
        *_coverage(sides, groups),
        *_evaluations(sides),
        *_machines(sides),
    ]
    for task, by_letter in groups.items():
        found += [*_definition(task, sides), *_lengths(task, by_letter), *_seeds(task, by_letter)]
        found += _copies(task, by_letter)
    return sorted(dict.fromkeys(found), key=lambda notice: ("block", "caution", "note").index(notice.level))


def _reading(sides: Sequence[Side]) -> Iterator[Notice]:
    for member in (member for side in sides for member in side.members):
        label = member.label
        for warning in member.warnings:
            yield Notice("caution", "", f"{label}: {warning}")
        for resume in member.meta.resumes if member.meta is not None else ():
            at, changed = f"at update {resume.update:,}", _list([quoted(str(key)) for key in resume.changes])
            if resume.parent:
                parent = quoted(resume.parent.get("name", ""))
                yield Notice("note", "", f"{label} was forked from {parent} {at} with changes: {changed or 'none'}")
            elif changed:
                yield Notice("caution", "", f"{label} was resumed {at} with changes: {changed}")
        if member.state in _STATES:
            ran = min((seed.end for seed in member.seeds), default=0)
            progress = "" if member.sizes is None else f" ({ran:,} of {member.sizes.total_env_steps:,} steps)"
            yield Notice("caution", "", f"{label} {_STATES[member.state]}{progress}")


def _repeated(sides: Sequence[Side]) -> Iterator[Notice]:
    for side in sides:
        again = [seed for seed in side.seeds if seed.repeats]
        if again:
            more = f" and {len(again) - 1} more" if len(again) > 1 else ""
            text = f"{side.letter} has the same agent more than once, and counts it once: {again[0].who}{more}"
            other = again[0].repeats
            text += "" if other is None or again[0].who == other.who else f" (the same as {other.who})"
            yield Notice("caution", "", text)


def _coverage(sides: Sequence[Side], groups: Mapping[str, Groups]) -> Iterator[Notice]:
    for task, by_letter in groups.items():
        missing = [side.letter for side in sides if side.trained_seeds and side.letter not in by_letter]
        if missing:
            yield Notice("caution", "", f"{_list(missing)} did not train on {task}")
    silent = [side for side in sides if not side.trained_seeds]
    empty = [side.letter for side in silent if any(m.kind in ("run", "metrics") for m in side.members)]
    if empty:
        yield Notice("caution", "", f"{_list(empty)} has no records to compare")


def _definition(task: str, sides: Sequence[Side]) -> Iterator[Notice]:
    """Block verdicts if the task itself differs, since returns then have different scales."""
    for key in keys_of(config for side in sides for config in side.configs):
        if not is_of_task(key, task):
            continue
        values = {
            side.letter: sorted({m.values.get(key, show(None)) for m in side.members if m.task == task})
            for side in sides
            if side.trained_seeds
        }
        known = {letter: texts for letter, texts in values.items() if texts}
        if any(len(texts) > 1 for texts in known.values()) or len(set(map(tuple, known.values()))) > 1:
            what = "the rewards" if key.startswith("reward.") else "the tasks"
            yield Notice("block", task, f"{what} differ: {key} {_by_letter(known)}")


def is_of_task(key: str, env_id: str) -> bool:
    """Return whether returns have another scale if an option of the environment or the rewards has another value."""
    field = FIELDS.get(key)  # None for an option that the user's code declares
    is_task = key.partition(".")[0] in ("env", "reward") and key not in _NOT_THE_TASK
    return is_task and (field is None or field.of_env(env_id))


def _by_letter(values: Mapping[str, Sequence[str]]) -> str:
    return ", ".join(f"{letter} {_list(texts) or 'unknown'}" for letter, texts in values.items())


def _apart(level: Severity, what: str, values: Mapping[str, Sequence[str]], more: str = "") -> Iterator[Notice]:
    """Yield a notice if sides have different values."""
    if len(set(map(tuple, values.values()))) > 1:
        yield Notice(level, "", f"{what} differ: {_by_letter(values)}{more}")


def _lengths(task: str, groups: Groups) -> Iterator[Notice]:
    ends = {letter: sorted({seed.end for seed in group}) for letter, group in groups.items()}
    every = [end for those in ends.values() for end in those]
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
                alike.setdefault(_fingerprint(seed), []).append(f"{letter}'s {seed.who}")
    copies = [who for who in alike.values() if len(who) > 1]
    runs = {letter: {seed.run for seed in group} for letter, group in groups.items()}
    same = [f"{a} and {b}" for a, b in itertools.combinations(runs, 2) if runs[a] == runs[b]]
    if same:
        yield Notice("caution", "", f"{_list(same)} are the same {'run' if len(runs[same[0][0]]) == 1 else 'runs'}")
    elif copies:
        more = f", and {len(copies) - 1} more" if len(copies) > 1 else ""
        yield Notice("caution", "", f"identical metrics on {task}: {_list(copies[0])}{more}")


def _fingerprint(seed: AgentMetrics) -> object:
    """Return a key that is equal for agents with the same values at the same steps, apart from speed."""
    columns = [(name, column.tobytes()) for name, column in seed.columns.items() if "per_sec" not in name]
    return (seed.steps.tobytes(), *sorted(columns))


def _evaluations(sides: Sequence[Side]) -> Iterator[Notice]:
    rows = {side.letter: [row for member in side.members for row in member.trained] for side in sides}
    rows = {letter: played for letter, played in rows.items() if played}
    episodes = {letter: [f"{n:,}" for n in sorted({r.episodes for r in played})] for letter, played in rows.items()}
    yield from _apart("note", "numbers of evaluation episodes", episodes)
    policies = {letter: sorted({quoted(row.policy) for row in played}) for letter, played in rows.items()}
    yield from _apart("caution", "evaluation policies", policies)
    without = [side.letter for side in sides if side.trained_seeds and side.letter not in rows]
    if rows and without:
        yield Notice("note", "", f"{_list(without)} was not evaluated")


def _machines(sides: Sequence[Side]) -> Iterator[Notice]:
    for part, (name, level) in _MACHINE.items():
        values = {side.letter: _machine(side, part) for side in sides if any(m.meta for m in side.members)}
        yield from _apart(level, name, values, "; speeds cannot be compared" if part == "device" else "")


def _machine(side: Side, part: _Part) -> tuple[str, ...]:
    """Return the values of `part` over a side's runs; revisions have a plus for uncommitted changes."""
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


def shared_start(side: Side, sides: Sequence[Side]) -> SharedStart | None:
    """Return the steps that a side shares with another, from which all its runs were forked; the latest of several."""
    starts = [SharedStart(other.letter, _forked_at(side, other)) for other in sides if other is not side]
    longest = max(starts, key=lambda start: start.env_steps, default=None)
    return longest if longest is not None and longest.env_steps else None


def _forked_at(side: Side, other: Side) -> int:
    """Return the steps up to which all runs of a side are runs of another side; 0 if any is not."""
    ids = {member.meta.run_id for member in other.members if member.meta is not None} - {""}
    steps = []
    for member in side.members:
        updates = [r.update for r in (member.meta.resumes if member.meta else ()) if r.parent.get("run_id") in ids]
        steps.append(max(updates, default=0) * (member.sizes.batch_size if member.sizes is not None else 0))
    return min(steps, default=0)


def _shared_starts(sides: Sequence[Side]) -> Iterator[Notice]:
    for side in sides:
        if start := shared_start(side, sides):
            text = f"{side.letter} branches off {start.letter} at {start.env_steps:,} steps; before that they are equal"
            yield Notice("note", "", text)


def describe(side: Side, sides: Sequence[Side]) -> SideFacts:
    """Return the facts about one of the sides."""
    return SideFacts(
        letter=side.letter,
        name=side.name,
        members=tuple(_describe(member) for member in side.members),
        tasks=tuple(sorted({seed.task for seed in side.seeds} or {config.env.id for config in side.configs})),
        seeds=sum(not seed.repeats for seed in side.seeds),
        git=_machine(side, "git"),
        jax=_machine(side, "jax"),
        hmx=_machine(side, "hmx"),
        device=_machine(side, "device"),
        fork=shared_start(side, sides),
    )


def _describe(member: Member) -> MemberFacts:
    return MemberFacts(
        kind=member.kind,
        path=str(member.path),
        state=member.state,
        preset=_preset(member),
        steps=min((seed.end for seed in member.seeds), default=0),
        asked_steps=None if member.sizes is None else member.sizes.total_env_steps,
        seeds=tuple(seed.number for seed in member.seeds),
        evaluated_episodes=_only([row.episodes for row in member.trained]),
        evaluated_policy=_only([quoted(row.policy) for row in member.trained]),
    )


def _preset(member: Member) -> str:
    command = member.meta.command if member.meta is not None else ()
    for word, after in itertools.pairwise((*command, "")):
        if word == "--preset" or str(word).startswith("--preset="):
            return quoted(str(after if word == "--preset" else word.partition("=")[2]), 40)
    return ""


def _only(values: Sequence[_T]) -> _T | None:
    """Return the value that all have in common; None if they differ."""
    return values[0] if len(set(values)) == 1 else None
