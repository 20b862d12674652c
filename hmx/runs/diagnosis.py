"""Save the data to diagnose an update that is not finite: the state before it, its batch and its metrics."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from hmx.algos.types import TrainState
from hmx.config import codec
from hmx.errors import ExitCode, HmxError
from hmx.records.checkpoints import CheckpointInfo
from hmx.records.jsonl import encode
from hmx.records.paths import RunPaths
from hmx.runs import checkpoint
from hmx.runs.chunk import MEAN_REWARD, REWARD_TERM, key_checks
from hmx.runs.device_memory import naming_shortages
from hmx.runs.loop import NonFiniteUpdate
from hmx.runs.session import Session
from hmx.runs.signals import interruptible

EXPERIENCE = "experience.npz"
REFUSED = "refused.json"
MAX_ENTROPY = "train/max_entropy"
SCHEMA = 1


def refuse(
    session: Session,
    paths: RunPaths,
    run_id: str,
    warn: Callable[[str], None],
    state: TrainState,
    rejected: NonFiniteUpdate,
) -> NoReturn:
    """Write `diagnosis/<updates done>`, which is never deleted, and end the run.

    It is a checkpoint of the state before the update, with `refused.json` (the values that were not finite and the
    metrics of the update) and `experience.npz` (the batch, recomputed from that state; arrays only, no pickles).

    Raises:
        HmxError: always, with exit code 4.
    """
    folder, done = paths.diagnosis, rejected.update - 1
    batch = _experience(session, warn, state, rejected)

    def add_files(place: Path) -> None:
        (place / REFUSED).write_text(_report(rejected), encoding="utf-8")
        if batch is not None:
            with (place / EXPERIENCE).open("wb") as file:
                np.savez(file, allow_pickle=False, **batch)

    info = CheckpointInfo(
        run_id=run_id,
        env_steps=done * session.sizes.batch_size,
        shape_digest=codec.shape_digest(session.cfg),
        config_digest=codec.digest(session.cfg),
    )
    where = f"the state before it is saved in {folder / str(done)}"
    try:
        saved = checkpoint.snapshot(state)
        interruptible(partial(checkpoint.write, folder, saved, done, None, info, add_files=add_files))
    except HmxError as error:
        where = error.message
    raise _error(session.cfg.env.id, paths, rejected, where)


def _error(env_id: str, paths: RunPaths, rejected: NonFiniteUpdate, where: str) -> HmxError:
    """Return the error that names the likely cause of the update; `where` says where its state was saved."""
    names, check = rejected.names or ("a count",), f"hmx check-env {shlex.quote(env_id)}"
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    terms = [name.removeprefix(REWARD_TERM) for name in names if name.startswith(REWARD_TERM)]
    files = f"all such values are in {REFUSED} there, and the batch of the update in {EXPERIENCE}"
    if MAX_ENTROPY in names:  # the logarithm of the number of legal actions
        message = f"no action was legal in a state of {env_id}; {where}"
        hint = f"{check} finds such states: legal must allow an action in every one"
    elif terms or MEAN_REWARD in names:
        which = f"reward {'terms' if len(terms) > 1 else 'term'} {', '.join(terms)}" if terms else "reward"
        verb = "are" if len(terms) > 1 else "is"
        message = f"the {which} of {env_id} {verb} not finite; the update was not applied, and {where}"
        hint = f"{check} finds the first such step; look for a division by zero or an overflow. Also, {files}"
    else:
        message = f"{names[0]} is not finite{others}; the update was not applied, and {where}"
        hint = (
            f"{files}. To skip such updates: hmx resume {paths.argument} --on-nonfinite skip; "
            "to prevent them, make algo.learning_rate or algo.max_grad_norm smaller"
        )
    return HmxError(f"update {rejected.update}: {message}", hint, ExitCode.CHECK_FAILED)


def _experience(
    session: Session, warn: Callable[[str], None], state: TrainState, rejected: NonFiniteUpdate
) -> dict[str, np.ndarray[Any, Any]] | None:
    hypers = {name: np.float32(value) for name, value in rejected.hypers.items()}
    experience: Callable[..., dict[str, jax.Array]] = session.algorithm.experience
    num_seeds = session.cfg.run.num_seeds
    if num_seeds > 1:
        experience = jax.vmap(experience, in_axes=(0, None))

    def compute() -> dict[str, np.ndarray[Any, Any]]:
        with key_checks(num_seeds):
            found = jax.jit(experience)(state, hypers)
        return {name: np.asarray(checkpoint.as_data(x)) for name, x in found.items()}

    try:
        with naming_shortages("recomputing the batch"):
            return interruptible(compute)
    except HmxError as error:
        warn(f"cannot write {EXPERIENCE}: {error.message}")
        return None


def _report(rejected: NonFiniteUpdate) -> str:
    body = {
        "schema": SCHEMA,
        "update": rejected.update,
        "not_finite": list(rejected.names),
        "hypers": rejected.hypers,
        "records": [json.loads(encode(record)) for record in rejected.records],
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"
