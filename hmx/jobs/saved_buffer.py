"""`hmx train --save-buffer`: the final replay buffer of a run, in separate files."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from hmx.algos.types import TrainState
from hmx.config.files import make_folder
from hmx.config.learning import ReplayConfig
from hmx.config.schema import RunConfig
from hmx.errors import HmxError
from hmx.records.paths import RunPaths
from hmx.runs import buffers
from hmx.runs.loop import seed_state
from hmx.runs.session import Session
from hmx.runs.signals import interruptible
from hmx.runs.sinks import SinkGroup


def places(replay: ReplayConfig, run: RunConfig, paths: RunPaths) -> tuple[Path, ...]:
    """Return the files, one for each agent trained side by side; none if nothing is to be saved."""
    if not replay.save:
        return ()
    if run.num_seeds == 1:
        return (paths.reports / "buffer.npz",)
    return tuple(paths.reports / f"buffer-{run.seed + index}.npz" for index in range(run.num_seeds))


def save_buffers(session: Session, paths: RunPaths, state: TrainState, update: int, sink_group: SinkGroup) -> None:
    """Write the files of `places`. A failure is only a warning: the checkpoint contains the same data."""
    cfg = session.cfg
    for index, place in enumerate(places(cfg.replay, cfg.run, paths)):
        sink_group.phase("saving")

        def write(index: int = index, place: Path = place) -> None:
            replay = seed_state(state, index, cfg.run.num_seeds).learner.replay
            make_folder(place.parent)
            buffers.save(place, buffers.from_replay(replay, cfg, session.env.spec, run=paths.name, update=update))

        try:
            interruptible(partial(write))
        except (HmxError, OSError) as error:
            words = error.message if isinstance(error, HmxError) else error.strerror or str(error)
            sink_group.warn(f"the replay buffer is not saved: {words}")
