"""The reference policy of a run: written into its folder once, and put into each state that is restored.

Checkpoints do not contain it (`hmx.runs.checkpoint`), since it never changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hmx.algos.ppo.reference import ReferencePolicy
from hmx.algos.types import TrainState
from hmx.errors import ExitCode, HmxError
from hmx.records import frozen
from hmx.records.artefact import foreign
from hmx.records.paths import RunPaths
from hmx.records.reference_file import KIND, RUN_ID, SOURCE
from hmx.runs import checkpoint, weights
from hmx.runs.buffers import loaded, stored
from hmx.runs.session import Session
from hmx.types import Array

Values = np.ndarray[Any, Any] | Array


def with_reference(state: TrainState, learned: Mapping[str, Values]) -> TrainState:
    """Return a state with a reference policy, of arrays named as in `hmx.runs.weights`."""
    found = weights.replace(state, learned)
    reference = ReferencePolicy(found.params, found.actors.obs_stats)
    return state._replace(learner=state.learner._replace(reference=reference))


def write(session: Session, paths: RunPaths, run_id: str, learned: Mapping[str, Values]) -> None:
    """Write the reference policy of a new run into its folder; an HmxError (exit code 2) if it cannot be written."""
    arrays = {name: stored(np.asarray(leaf), name) for name, leaf in learned.items()}
    KIND.write(paths.reference, {RUN_ID: run_id, SOURCE: session.cfg.ppo.ref}, arrays)


def attached(session: Session, paths: RunPaths | None, state: TrainState) -> TrainState:
    """Return a restored state of a run with its reference policy, if it has one.

    Raises:
        HmxError: the file is missing, damaged or of another run, or there is no run folder (exit code 3).
    """
    if not checkpoint.has_reference(state):
        return state
    if paths is None:
        what = (
            "these checkpoints are outside the folder of their run, which contains the reference policy of their loss"
        )
        raise HmxError(what, "give the folder of the run", ExitCode.ARTEFACT)
    if not paths.reference.is_file():
        raise HmxError(
            f"{paths.folder} has lost its reference policy {paths.reference.name}", KIND.hint, ExitCode.ARTEFACT
        )
    header, arrays = KIND.read(paths.reference)
    if other := foreign(header[RUN_ID], frozen.run_id_of(paths)):
        raise HmxError(f"{paths.reference} {other}", KIND.hint, ExitCode.ARTEFACT)
    learned = {name: loaded(array) for name, array in arrays.items()}
    if problems := weights.differences(session.abstract, learned):
        what = f"{paths.reference} does not fit the run: its {problems[0]}"
        raise HmxError(what, KIND.hint, ExitCode.ARTEFACT)
    return with_reference(state, learned)
