"""A saved buffer for a gradient report: states to start from, or transitions to learn from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

from hmx.agents.q_scoring import replay_options
from hmx.analysis.spec import Spec
from hmx.analysis.stored import Position, Stored
from hmx.config.schema import Config
from hmx.env.protocol import Env
from hmx.errors import ExitCode, HmxError
from hmx.replay import Experience
from hmx.replay.offline import probabilities
from hmx.runs import buffers
from hmx.runs.buffers import LEGAL, OBS, Buffer

_ALIVE = "alive_t"


def open_buffer(path: Path, cfg: Config, env: Env, spec: Spec) -> Stored:
    """A saved buffer that fits a run.

    Args:
        path: the file.
        cfg: of the run.
        env: its environment.
        spec: of the report, which says what is wanted of the buffer.

    Raises:
        HmxError: it is missing, damaged, of another environment, or lacks what is wanted (exit code 3).
    """
    buffer = buffers.load(path)
    buffers.check(buffer, cfg, env, str(path), learned=spec.replay)
    return _transitions(path, buffer, cfg, env) if spec.replay else _positions(path, buffer, env)


def _transitions(path: Path, buffer: Buffer, cfg: Config, env: Env) -> Stored:
    values = buffer.td_errors, buffer.consequence_scores
    if not all(np.isfinite(leaf).all() and (leaf >= 0).all() for leaf in values):
        said = f"{path} is damaged: it holds TD errors or scores that no buffer has"
        raise HmxError(said, "take an intact copy", ExitCode.ARTEFACT)
    td_errors, scores, scored = (jnp.asarray(leaf) for leaf in (*values, buffer.scored))
    found = probabilities(td_errors, scores, scored, replay_options(cfg, env.spec))
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
        said = f"{path} does not say which agents still took part in its states"
        raise HmxError(said, "give a buffer that `hmx train --save-buffer` wrote", ExitCode.ARTEFACT)

    def at(slots: np.ndarray[Any, Any]) -> Position:
        return Position(
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
