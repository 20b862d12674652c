"""Read a saved buffer for a gradient report: start states of episodes, or transitions to measure."""

from __future__ import annotations

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from hmx.analysis.buckets import Ints
from hmx.analysis.request import ProbeRequest
from hmx.analysis.stored import Stored, StoredPosition
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.errors import ExitCode, HmxError
from hmx.replay import Experience
from hmx.replay.offline import probabilities
from hmx.runs import buffers
from hmx.runs.buffers import LEGAL, OBS, Buffer

_ALIVE = "alive_t"


def open_buffer(path: Path, cfg: Config, env: Env, request: ProbeRequest) -> Stored:
    """Read a saved buffer that fits a run.

    With `request.replay` transitions are measured, else states are started from.

    Raises:
        HmxError: it is missing, damaged, of another environment, or lacks what is needed (exit code 3).
    """
    buffer = buffers.load(path)
    buffers.check(buffer, cfg, env, str(path), learned=request.replay)
    return _transitions(path, buffer, cfg, env) if request.replay else _positions(path, buffer, env)


def _transitions(path: Path, buffer: Buffer, cfg: Config, env: Env) -> Stored:
    values = buffer.td_errors, buffer.consequence_scores
    if not all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in values):
        what = f"{path} is damaged: it holds TD errors or scores that are negative or not finite"
        raise HmxError(what, "use an intact copy", ExitCode.ARTEFACT)
    td_errors, scores, scored = (jnp.asarray(leaf) for leaf in (*values, buffer.scored))
    found = probabilities(td_errors, scores, scored, cfg.replay)
    return Stored(
        name=str(path),
        num_envs=buffer.header.num_envs,
        num_added=buffer.header.num_added,
        birth=buffer.birth,
        items=Experience(**{name: jnp.asarray(buffer.items[name]) for name in Experience._fields}),
        td_errors=buffer.td_errors,
        scores=buffer.consequence_scores,
        scored=buffer.scored,
        probs=np.asarray(found.probs),
    )


def _positions(path: Path, buffer: Buffer, env: Env) -> Stored:
    size, agents = buffer.header.size, env.spec.num_agents
    alive = buffer.items.get(_ALIVE, np.ones((size, 1), bool) if agents == 1 else None)
    if alive is None or (alive.shape, alive.dtype) != ((size, agents), np.dtype(bool)):
        what = f"{path} does not record which agents take part in its states"
        raise HmxError(what, "use a buffer that `hmx train --save-buffer` wrote", ExitCode.ARTEFACT)

    def at(slots: Ints) -> StoredPosition:
        return StoredPosition(
            env_state=buffers.env_states(buffer, env, slots),
            obs=jnp.asarray(buffer.items[OBS][slots]),
            legal=jnp.asarray(buffer.items[LEGAL][slots]),
            agent_done=jnp.asarray(~alive[slots]),
        )

    return Stored(
        name=str(path),
        num_envs=buffer.header.num_envs,
        num_added=buffer.header.num_added,
        birth=buffer.birth,
        items=None,
        at=at,
    )
