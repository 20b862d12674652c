"""The positions that `hmx score-buffer` scores, and the agent that plays on from them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx.agents.dqn import DqnLearner
from hmx.agents.policy_outputs import PolicyOutputs, make_policy_outputs
from hmx.agents.types import TrainState
from hmx.config.schema import Config
from hmx.config.textfile import quoted
from hmx.env.protocol import Env
from hmx.errors import HmxError
from hmx.records import buffer_file
from hmx.records.paths import SCORES
from hmx.rl import distributions
from hmx.runs import buffers
from hmx.runs.buffers import ACTION, LEGAL, OBS, Buffer, Host, header_of
from hmx.runs.checkpoint import to_host
from hmx.runs.loop import seed_state
from hmx.runs.session import open_session
from hmx.runs.signals import interruptible
from hmx.runs.sources import Source, find
from hmx.scoring import Positions
from hmx.types import Array, Key

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


_PARALLEL = 16  # environments: few, so that each gets far into its episodes


class _Step(NamedTuple):
    items: dict[str, Array]
    env_state: Any
    td_error: Array  # [E]


def collect(
    cfg: Config, env: Env, preferences: PolicyOutputs, params: Any, number: int, key: Key, *, run: str, update: int
) -> Buffer:
    """Fill a buffer with at least `number` successive transitions of an agent that plays as in training.

    Sixteen environments run in parallel (fewer for fewer transitions), from the start of an episode. The TD error is
    that of the value function, `|r + gamma V(s') - V(s)|`.
    """
    num_envs = min(_PARALLEL, number)
    steps = -(-number // num_envs)
    program = jax.jit(partial(_played, cfg, env, preferences, num_envs, steps))
    seen: _Step = interruptible(lambda: jax.block_until_ready(program(params, key)))
    size = steps * num_envs
    axes = [1 + env.spec.state_axis % (leaf.ndim - 1) for leaf in jax.tree.leaves(seen.env_state)]
    states = {}
    for (name, leaf), axis in zip(to_host(seen.env_state).items(), axes, strict=True):
        leading = np.moveaxis(leaf, axis, 1)
        states[name] = leading.reshape(size, *leading.shape[2:])
    birth = np.arange(size, dtype=np.uint32)
    td_errors = np.abs(np.asarray(seen.td_error, np.float32)).reshape(size)
    header = header_of(
        cfg, env.spec,
        capacity=size, size=size, position=0, num_added=size, num_envs=num_envs,
        td_max=float(td_errors.max()), run=run, update=update,
    )  # fmt: skip
    return Buffer(
        header=header,
        items={name: leaf.reshape(size, *leaf.shape[2:]) for name, leaf in to_host(seen.items).items()},
        env_states=states,
        td_errors=td_errors,
        consequence_scores=np.zeros(size, np.float32),
        scored=np.zeros(size, bool),
        scored_at=np.zeros(size, np.uint32),
        birth=birth,
    )


def _played(
    cfg: Config, env: Env, preferences: PolicyOutputs, num_envs: int, steps: int, params: Any, key: Key
) -> _Step:
    k_reset, k_play = jax.random.split(key)
    state, shown = env.reset(jax.random.split(k_reset, num_envs))

    def play(now: tuple[Any, Array, Array], step: Array) -> tuple[tuple[Any, Array, Array], _Step]:
        state, obs, legal = now
        k_act, k_env = jax.random.split(jax.random.fold_in(k_play, step))
        preferred = preferences.outputs(params, obs)
        action = jax.vmap(distributions.sample)(jax.random.split(k_act, num_envs), preferred, legal)
        after, timestep = env.step(state, action, jax.random.split(k_env, num_envs))
        team = timestep.reward.mean(-1) if preferences.team_reward == "mean" else timestep.reward.sum(-1)
        value = preferences.value(params, timestep.final_obs, timestep.final_legal)
        following = jnp.where(timestep.terminated, 0.0, value)
        error = team + cfg.algo.gamma * following - preferences.value(params, obs, legal)
        items = {
            OBS: obs,
            LEGAL: legal,
            ACTION: action,
            "reward_tp1": team,
            "terminated_tp1": timestep.terminated,
            "truncated_tp1": timestep.truncated,
        }
        return (after, timestep.obs, timestep.legal), _Step(items, state, error)

    return jax.lax.scan(play, (state, shown.obs, shown.legal), jnp.arange(steps))[1]
