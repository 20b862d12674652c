"""The positions that `hmx score-buffer` scores, and the agent that plays on from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax

from hmx.agents.dqn import DqnLearner
from hmx.agents.policy_outputs import PolicyOutputs, make_policy_outputs
from hmx.agents.types import TrainState
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.records import buffer_file
from hmx.records.paths import SCORES
from hmx.reports.consequence.collect import collect
from hmx.runs import buffers
from hmx.runs.buffers import ACTION, LEGAL, OBS, Buffer, Host
from hmx.runs.loop import seed_state
from hmx.runs.session import open_session
from hmx.runs.sources import Source, find
from hmx.scoring import Positions
from hmx.types import Key

SUFFIX = ".npz"


class Agent(NamedTuple):
    """A trained agent, whose policy plays on."""

    cfg: Config
    env: Env
    network: PolicyOutputs
    state: TrainState
    update: int
    run: str  # its name
    warnings: tuple[str, ...]

    @property
    def params(self) -> Any:
        """Return the parameters of its network."""
        return self.network.params(self.state)


class Scene(NamedTuple):
    """Positions, and the agent that plays on from them."""

    agent: Agent
    buffer: Buffer
    source: str  # in messages
    file: Path | None  # of a saved buffer
    collected: bool  # whether the positions were collected for this report

    def positions(self, slots: Host) -> Positions:
        """Return the positions in some slots."""
        items = self.buffer.items
        leaves = (
            buffers.env_states(self.buffer, self.agent.env, slots),
            *(items[name][slots] for name in (OBS, LEGAL, ACTION)),
            self.buffer.birth[slots],
        )
        return Positions(*jax.tree.map(jax.numpy.asarray, leaves))


def is_file(path: Path) -> bool:
    """Return whether a path is meant as a saved buffer, not as a run."""
    return path.suffix == SUFFIX or buffer_file.is_buffer(path)


def default_out(path: Path, root: str | Path) -> Path:
    """Return the default folder of results: in the run, or beside the saved buffer."""
    if is_file(path):
        return path.with_suffix(f".{SCORES}")
    source = find(path, root)
    return source.folder / SCORES if source.paths is None else source.paths.reports / SCORES


def open_agent(path: str | Path, root: str | Path, index: int) -> Agent:
    """Load the agent of a run or checkpoint.

    Raises:
        HmxError: there is none, it is damaged (exit code 3), or it cannot play on from a stored position (2).
    """
    source: Source = find(path, root)
    cfg = source.cfg
    if not 0 <= index < cfg.run.num_seeds:
        raise HmxError(f"agent {index} does not exist", f"agents are 0 to {cfg.run.num_seeds - 1}")
    session = open_session(cfg, source.paths)
    network = make_policy_outputs(cfg, session.env)
    state, update, warnings = source.state(session, None)
    name = source.folder.name if source.paths is None else source.paths.name
    return Agent(cfg, session.env, network, seed_state(state, index, cfg.run.num_seeds), update, name, tuple(warnings))


def missing_policy(path: Path) -> HmxError:
    """Return the error for a saved buffer without a policy."""
    run = quoted(buffer_file.read_header(path).run) or "RUN"
    return HmxError(f"cannot score {path}: a saved buffer has no policy", f"--checkpoint {run}")


def open_scene(
    path: Path, checkpoint: Path | None, root: str | Path, index: int, number: int, prepare: Callable[[Agent], Key]
) -> Scene:
    """Load positions and the agent.

    `checkpoint` names the agent, None that of `path`. `prepare` is called before any rollout; it refuses what cannot
    work, and returns the key for collecting `number` positions where `path` has no buffer.

    Raises:
        HmxError: the files do not fit together or are damaged (exit code 3), or the policy is missing (2).
    """
    if is_file(path):
        if checkpoint is None:
            raise missing_policy(path)
        buffer = buffers.load(path)
        agent = open_agent(checkpoint, root, index)
        prepare(agent)
        buffers.check(buffer, agent.cfg, agent.env, str(path))
        return Scene(agent, buffer, str(path), path, collected=False)
    if checkpoint is not None:
        raise HmxError(
            "cannot use --checkpoint here: it is for saved buffers", f"hmx score-buffer {checkpoint} scores that run"
        )
    agent = open_agent(path, root, index)
    key = prepare(agent)
    if isinstance(learner := agent.state.learner, DqnLearner):
        buffer = buffers.from_replay(learner.replay, agent.cfg, agent.env.spec, run=agent.run, update=agent.update)
        buffers.check(buffer, agent.cfg, agent.env, f"the buffer of {agent.run}")
        return Scene(agent, buffer, str(path), None, collected=False)
    buffer = collect(agent.cfg, agent.env, agent.network, agent.params, number, key, run=agent.run, update=agent.update)
    return Scene(agent, buffer, str(path), None, collected=True)
