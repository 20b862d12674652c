"""What `hmx score-buffer` may be pointed at, and the positions and the policy that it comes to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from hmx.agents.preferences import Preferences, make_preferences
from hmx.agents.types import TrainState
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.jobs.evaluate import damage
from hmx.records import buffer_file
from hmx.reports.consequence.collect import collect
from hmx.runs import buffers
from hmx.runs.buffers import Buffer
from hmx.runs.loop import seed_state
from hmx.runs.session import open_session
from hmx.runs.sources import Source, find
from hmx.types import Key

SUFFIX = ".npz"
SCORES = "scores"  # in the reports of a run, and the ending of the folder beside a saved buffer


class Agent(NamedTuple):
    """A trained agent: whose policy plays on."""

    cfg: Config
    env: Env
    preferences: Preferences
    state: TrainState
    update: int
    run: str  # its name
    warnings: tuple[str, ...]

    @property
    def params(self) -> Any:
        """Of its network."""
        return self.preferences.params(self.state)


class Scene(NamedTuple):
    """Positions, and who plays on from them."""

    agent: Agent
    buffer: Buffer
    source: str  # in messages
    file: Path | None  # of a saved buffer
    collected: bool  # whether the buffer was made for this


def is_file(path: Path) -> bool:
    """Whether a path is meant as a saved buffer rather than as a run."""
    return path.suffix == SUFFIX or buffer_file.is_buffer(path)


def default_out(path: Path, root: str | Path) -> Path:
    """Where results go: into the run, or beside the saved buffer."""
    if is_file(path):
        return path.with_suffix(f".{SCORES}")
    source = find(path, root)
    return source.folder / SCORES if source.paths is None else source.paths.reports / SCORES


def open_agent(path: str | Path, root: str | Path, index: int) -> Agent:
    """The agent of a run or checkpoint.

    Raises:
        HmxError: there is none, it is damaged (exit code 3), or it cannot be asked from a stored position (2).
    """
    source: Source = find(path, root)
    cfg = source.cfg
    if not 0 <= index < cfg.run.num_seeds:
        raise HmxError(f"there is no agent {index}", f"agents are 0 to {cfg.run.num_seeds - 1}")
    session = open_session(cfg)
    preferences = make_preferences(cfg, session.env)
    state, update, damaged = source.state(session, None)
    one = seed_state(state, index, cfg.run.num_seeds)
    name = source.folder.name if source.paths is None else source.paths.name
    return Agent(cfg, session.env, preferences, one, update, name, tuple(damage(damaged, update)))


def open_scene(
    path: Path, checkpoint: Path | None, root: str | Path, index: int, number: int, ready: Callable[[Agent], Key]
) -> Scene:
    """Positions and policy.

    Args:
        path: a saved buffer, or a run, its folder of checkpoints, or a checkpoint.
        checkpoint: the same of the policy; None takes that of `path`.
        root: folder of the runs, for names.
        index: which of several agents trained side by side.
        number: positions to collect where `path` keeps none.
        ready: asked before anything is played; refuses what cannot work, or gives the key for collecting.

    Raises:
        HmxError: what is there does not fit together, or is damaged (exit code 3); a buffer without a policy (2).
    """
    if is_file(path):
        if checkpoint is None:
            run = quoted(buffer_file.read_header(path).run) or "RUN"
            raise HmxError(f"{path} holds positions, and no policy to play on with", f"--checkpoint {run}")
        buffer = buffers.load(path)
        agent = open_agent(checkpoint, root, index)
        ready(agent)
        buffers.check(buffer, agent.cfg, agent.env, str(path))
        return Scene(agent, buffer, str(path), path, collected=False)
    if checkpoint is not None:
        raise HmxError(
            "--checkpoint goes with a saved buffer", f"to score with that policy: hmx score-buffer {checkpoint}"
        )
    agent = open_agent(path, root, index)
    k_collect = ready(agent)
    if hasattr(agent.state, "replay"):
        buffer = buffers.from_replay(agent.state.replay, agent.cfg, agent.env.spec, run=agent.run, update=agent.update)
        buffers.check(buffer, agent.cfg, agent.env, f"the buffer of {agent.run}")
        return Scene(agent, buffer, str(path), None, collected=False)
    buffer = collect(
        agent.cfg,
        agent.env,
        agent.preferences,
        agent.params,
        number,
        k_collect,
        run=agent.run,
        update=agent.update,
    )
    return Scene(agent, buffer, str(path), None, collected=True)


def states_at(scene: Scene, index: Any) -> Any:
    """The environment states of some slots."""
    return jax.tree.map(jax.numpy.asarray, buffers.env_states(scene.buffer, scene.agent.env, index))
