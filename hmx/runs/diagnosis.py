"""What is kept of an update whose numbers are not finite: the state before it, its batch, and what it reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import jax
import numpy as np

from hmx.agents.types import Algorithm, TrainState
from hmx.errors import ExitCode, HmxError
from hmx.records.jsonl import encode
from hmx.records.layout import RunPaths
from hmx.runs import checkpoint
from hmx.runs.checkpoint import About
from hmx.runs.chunk import key_checks
from hmx.runs.device_memory import out_of_memory
from hmx.runs.loop import Refused
from hmx.runs.signals import interruptible
from hmx.runs.sinks import Fanout

EXPERIENCE = "experience.npz"
REFUSED = "refused.json"
SCHEMA = 1


class Kept(NamedTuple):
    """What a diagnosis needs of a run."""

    algorithm: Algorithm
    paths: RunPaths
    num_seeds: int
    steps_per_update: int
    shape_digest: str
    config_digest: str
    fanout: Fanout


def refuse(kept: Kept, state: TrainState, refused: Refused) -> NoReturn:
    """Keeps `diagnosis/<updates done>` beside the checkpoints, where no retention deletes it, and ends the run.

    It is a checkpoint of the state before the update, with `refused.json` (what was not finite and what the update
    reported) and `experience.npz` (what it would have learned from, computed anew from that state; arrays
    only, no pickles).

    Raises:
        HmxError: always, with exit code 4.
    """
    folder, done = kept.paths.diagnosis, refused.update - 1
    batch = _experience(kept, state, refused)

    def more(place: Path) -> None:
        (place / REFUSED).write_text(_report(refused), encoding="utf-8")
        if batch is not None:
            with (place / EXPERIENCE).open("wb") as file:
                np.savez(file, allow_pickle=False, **batch)

    about = About(
        env_steps=done * kept.steps_per_update,
        shape_digest=kept.shape_digest,
        config_digest=kept.config_digest,
        more=more,
    )
    where = f"the state before it is kept in {folder / str(done)}"
    try:
        saved = checkpoint.snapshot(state)
        interruptible(partial(checkpoint.write, folder, saved, done, None, about))
    except HmxError as error:
        where = error.message
    names = refused.names or ("a count",)
    others = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
    message = f"update {refused.update}: {names[0]} is not finite{others}; the update was not applied, and {where}"
    hint = (
        f"{REFUSED} there names them all, and {EXPERIENCE} holds what the update would have learned from. "
        f"To go on without such updates: hmx resume {kept.paths.argument} --on-nonfinite skip; to prevent them, "
        "--set a smaller algo.learning_rate or algo.max_grad_norm"
    )
    raise HmxError(message, hint, ExitCode.CHECK_FAILED)


def _experience(kept: Kept, state: TrainState, refused: Refused) -> dict[str, np.ndarray[Any, Any]] | None:
    hypers = {name: np.float32(value) for name, value in refused.hypers.items()}
    experience: Callable[..., dict[str, jax.Array]] = kept.algorithm.experience
    if kept.num_seeds > 1:
        experience = jax.vmap(experience, in_axes=(0, None))

    def compute() -> dict[str, np.ndarray[Any, Any]]:
        with key_checks(kept.num_seeds):
            found = jax.jit(experience)(state, hypers)
        return {name: np.asarray(checkpoint.as_data(x)) for name, x in found.items()}

    try:
        with out_of_memory("computing the batch anew"):
            return interruptible(compute)
    except HmxError as error:
        kept.fanout.warn(f"{EXPERIENCE} is left out: {error.message}")
        return None


def _report(refused: Refused) -> str:
    body = {
        "schema": SCHEMA,
        "update": refused.update,
        "not_finite": list(refused.names),
        "hypers": refused.hypers,
        "records": [json.loads(encode(record)) for record in refused.records],
    }
    return json.dumps(body, indent=1, allow_nan=False) + "\n"
