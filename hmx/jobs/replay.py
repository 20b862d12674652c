"""`hmx runs verify --replay`: train stretches of a run again, and compare their metrics and states bit for bit."""

from __future__ import annotations

import random
import secrets
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.errors import HmxError
from hmx.jobs.evaluation import Progress, no_progress
from hmx.jobs.fork import changed_later
from hmx.jobs.requests import VerifyRequest
from hmx.jobs.resume import open_to_train
from hmx.jobs.train import check_run, made_on, new_meta, run_session, start_run
from hmx.records import frozen, jsonl
from hmx.records import meta as metas
from hmx.records.checkpoints import read_manifest
from hmx.records.meta import Meta
from hmx.records.metrics_table import MEASURED
from hmx.records.paths import META, RunPaths
from hmx.records.verify import RunReplay, Stretch
from hmx.runs import reference as references
from hmx.runs.checkpoint import restore, to_host
from hmx.runs.compilation import enable_cache
from hmx.runs.programs import Programs
from hmx.runs.restoring import Run, choose, restore_chosen
from hmx.runs.session import Session, open_task
from hmx.runs.signals import SignalGuard, StopNow
from hmx.runs.training import Training, make_sinks

_QUIET = {
    "run.checkpoint_every": 10**9, "run.tensorboard": False, "run.wandb": "disabled", "replay.save": False,
}  # fmt: skip
_RECORD = "record"  # what differs where a side has no record, or several

Records = dict[tuple[int, str], list[dict[str, str]]]
"""Values of records as text, by update and seed."""


def replay(paths: RunPaths, request: VerifyRequest, progress: Progress = no_progress) -> RunReplay:
    """Train random stretches of an undamaged run again in temporary folders; the run's own is only read.

    A stretch lies between two kept checkpoints. The first begins with the run, and the last ends with its records.

    Raises:
        HmxError: the configuration cannot be read, or its code may not run.
        StopNow: a signal arrived.
    """
    enable_cache()
    programs = Programs()
    run, known = Run.of(paths), frozen.known_meta(paths) or metas.collect("")
    session = open_task(run.changed(_QUIET).task, paths, programs)  # refuses code that may not run
    seed = secrets.randbits(32) if request.seed is None else request.seed
    finished = session.sizes.num_updates if known.state == "finished" else 0
    stretches = list(pairwise(_bounds(run, paths, known, finished)))
    drawn = sorted(random.Random(seed).sample(stretches, min(request.replay or 0, len(stretches))))
    rows = []
    with SignalGuard(_stop):
        for number, (first, last) in enumerate(drawn):
            progress("replaying", number, len(drawn))
            rows.append(_replay(paths, known, first, last, programs, session.abstract))
    return RunReplay(seed=seed, of=len(stretches), stretches=tuple(rows))


def _stop(signum: int) -> NoReturn:
    """Leave by an exception, also on SIGTERM, so that the temporary folder is deleted."""
    raise StopNow(signum)


def _bounds(run: Run, paths: RunPaths, known: Meta, finished: int) -> list[int]:
    """Return the updates at which stretches begin and end; a run that is `finished` must have all records."""
    begin = max((resume.update for resume in known.resumes if resume.parent), default=0)  # of a fork
    counts = Counter(jsonl.update_of(record) or 0 for record in jsonl.read(paths.metrics))
    enough = 1 if finished else run.cfg.run.num_seeds  # one that was interrupted may lack records of some seeds
    recorded = max((update for update, count in counts.items() if count >= enough), default=0)
    return sorted({begin, *(update for update in (*run.updates(), recorded, finished) if update > begin)})


def _replay(paths: RunPaths, known: Meta, first: int, last: int, programs: Programs, abstract: TrainState) -> Stretch:
    """Train the updates after `first` up to `last` again, and compare them."""
    row, kept = Stretch(first + 1, last, "equal"), paths.checkpoint(last)
    unknown = row._replace(outcome="not replayed")
    for resume in known.resumes:
        for text, begin in ((metas.OTHER_BITS, first + 1), (metas.NOT_REPLAYED, first)):
            if begin <= resume.update < last and (notes := [note for note in resume.notes if text in note]):
                return unknown._replace(reason=f"resumed at update {resume.update}: {notes[0]}")
    made = metas.find(kept / META) if kept.exists() else known
    try:
        with tempfile.TemporaryDirectory(prefix="hmx-replay-", ignore_cleanup_errors=True) as folder:
            here = made_on(_open(paths, known, first, programs).mesh)
            if made is not None and (elsewhere := _elsewhere(made, here)):
                return unknown._replace(reason=elsewhere)
            again = _train(paths, known, first, last, Path(folder, "1"), programs)
            differing = _difference([paths], again, last, abstract)
            if differing is None:
                return row
            if made is None or made.arithmetic != here["arithmetic"]:
                what = "it differs, but was made with another hmx, or with other settings of JAX or XLA"
                return unknown._replace(reason=what)
            # Programs of some devices, and some simulators, differ from themselves.
            twice = _train(paths, known, first, last, Path(folder, "2"), programs)
            if _difference(twice, again, last, abstract) is not None:
                return unknown._replace(reason="two replays of it differ from each other")
            return row._replace(outcome="different", update=differing[0], quantity=differing[1])
    except HmxError as problem:
        return unknown._replace(reason=problem.message)


def _elsewhere(made: Meta, here: dict[str, object]) -> str:
    """Say on which other machine, or with which other versions, a stretch was made."""
    differing = metas.differences(made, here)
    before, now = (", ".join(f"{name} {pair[i]}" for name, pair in differing.items()) for i in (0, 1))
    return f"made on {before}; here: {now}" if differing else ""


def _open(paths: RunPaths, known: Meta, update: int, programs: Programs) -> Session:
    """Open the session that trained the updates after one."""
    values = {**changed_later(known.resumes, update), **_QUIET}
    return open_to_train(Run.of(paths).changed(values).task, paths, programs)


def _train(paths: RunPaths, known: Meta, first: int, last: int, folder: Path, programs: Programs) -> list[RunPaths]:
    """Train the updates after `first` up to `last`, in a new folder for each configuration; return the folders."""
    within = [resume for resume in known.resumes if first < resume.update < last]
    changes = {resume.update for resume in within} if any(resume.changes for resume in within) else set()
    parts: list[RunPaths] = []
    for begin, end in pairwise(sorted({first, last, *changes})):
        session, place = _open(paths, known, begin, programs), RunPaths(folder, str(begin))
        place.folder.mkdir(parents=True)
        if not begin:
            done = start_run(check_run(session), place, until=end, evaluated=False)
        else:
            source = parts[-1] if parts else paths
            chosen = choose(source, begin)
            digest = codec.shape_digest(session.cfg, chosen.manifest.schema)
            restored = restore_chosen(session, source, chosen, digest)
            state = partial(references.attached, session, paths, restored.state)
            meta = metas.resumed(new_meta(session, ()), begin, ())
            training = Training(session, place, meta, make_sinks(session.cfg.run, place, ()))
            done = run_session(training, state, begin, until=end, episodes=restored.episodes, evaluated=False)
        if done.signum is not None:
            raise StopNow(done.signum)
        if notes := [text for text in done.warnings if metas.NOT_REPLAYED in text]:
            raise HmxError(notes[0])
        parts.append(place)
    return parts


def _difference(
    before: Sequence[RunPaths], again: Sequence[RunPaths], last: int, abstract: TrainState
) -> tuple[int, str] | None:
    """Return the first update, and the metric or the leaf of the state after `last`, that differs."""
    records = [_records(parts, int(again[0].name), last) for parts in (before, again)]
    for key in sorted({*records[0], *records[1]}):
        one, other = (side.get(key, []) for side in records)
        if one != other:
            both = len(one) == len(other) == 1
            names = [name for name in {**one[0], **other[0]} if one[0].get(name) != other[0].get(name)] if both else []
            return key[0], next(iter(names), _RECORD)
    kept, made = (parts[-1].checkpoint(last) for parts in (before, again))
    if not kept.exists():  # after the last checkpoint
        return None
    forms = [set(read_manifest(path).leaves) for path in (kept, made)]
    if forms[0] != forms[1]:
        return last, min(leaf.path for leaf in forms[0] ^ forms[1])
    try:
        saved, found = (to_host(restore(path, abstract)) for path in (kept, made))
    except HmxError as problem:
        return last, problem.message
    return next(((last, name) for name in saved if saved[name].tobytes() != found[name].tobytes()), None)


def _records(parts: Sequence[RunPaths], first: int, last: int) -> Records:
    found: Records = {}
    for record in (record for paths in parts for record in jsonl.read(paths.metrics)):
        update = jsonl.update_of(record) or 0
        if (first < update or not first) and update <= last:  # the first stretch has what was measured before it
            values = {name: repr(value) for name, value in record.items() if name not in MEASURED}
            found.setdefault((update, values.get("seed", "")), []).append(values)
    return found
