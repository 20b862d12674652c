"""The input of `hmx score-buffer`: positions, the agent that continues from them, and the measure of consequence."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hmx import episodes
from hmx.algos.dqn.update import DqnLearner
from hmx.algos.evaluate import taking
from hmx.algos.policy_outputs import PolicyOutputs, make_policy_outputs
from hmx.algos.types import Carry, Decision, TrainState
from hmx.config.files import words
from hmx.config.learning import ContinuationKind
from hmx.config.schema import Config
from hmx.config.textfile import quoted, read_text
from hmx.envs.protocol import Env, EnvSpec, EnvState, playable
from hmx.episodes import Now, Step
from hmx.errors import ExitCode, HmxError
from hmx.jobs.evaluation import Progress
from hmx.records import buffer_file
from hmx.records.layout import check_own
from hmx.records.paths import SCORES
from hmx.reports.score_buffer.request import ScoreRequest
from hmx.rl import distributions
from hmx.runs import buffers
from hmx.runs.buffers import ACTION, LEGAL, OBS, Buffer, Host, header_of
from hmx.runs.checkpoint import to_host
from hmx.runs.loop import check_agent
from hmx.runs.restoring import Run
from hmx.runs.signals import interruptible
from hmx.scoring import Positions, ScoreOptions
from hmx.scoring.options import TeamReward, check_options
from hmx.types import Array, Key

SUFFIX = ".npz"


class Agent(NamedTuple):
    """A trained agent, whose policy continues."""

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


PolicyKind = tuple[ContinuationKind, float]  # the kind of a policy, and its parameter


class ScoreTask(NamedTuple):
    """The positions to score, the agent that continues from them, and how to measure."""

    agent: Agent
    buffer: Buffer
    path: Path  # that was given
    origin: Literal["file", "replay", "collected"]  # of the buffer: saved, that of a run, or collected for this report
    options: ScoreOptions
    policy: PolicyKind
    slots: Host  # to score, in this order
    seed: int
    request: ScoreRequest
    warnings: tuple[str, ...]

    def positions(self, slots: Host) -> Positions:
        """Return the positions in some slots."""
        items = self.buffer.items
        leaves = (
            buffers.env_states(self.buffer, self.agent.env, slots),
            *(items[name][slots] for name in (OBS, LEGAL, ACTION)),
            self.buffer.birth[slots],
        )
        return Positions(*jax.device_put(leaves))


def is_file(path: Path) -> bool:
    """Return whether a path is meant as a saved buffer, not as a run."""
    return path.suffix == SUFFIX or buffer_file.is_buffer(path)


def default_out(path: Path, root: str | Path) -> Path:
    """Return the default folder of results: in the run, or next to the saved buffer; errors as of `check_own`."""
    if is_file(path):
        return path.with_suffix(f".{SCORES}")
    source = Run.find(path, root)
    if source.paths is None:
        return source.folder / SCORES
    for folder in (source.paths.reports, source.paths.reports / SCORES):
        check_own(folder, "--out")
    return source.paths.reports / SCORES


def open_agent(path: str | Path, root: str | Path, index: int) -> Agent:
    """Load the agent of a run or checkpoint; refuse one that cannot continue from a stored position."""
    source = Run.find(path, root)
    cfg = source.cfg
    check_agent(cfg.run, index)
    session = source.open()
    session = session._replace(env=playable(session.env, "score-buffer"))
    network = make_policy_outputs(cfg, session.env)
    restored = source.agent(session, index)
    state, update, warnings = restored.state, restored.update, tuple(restored.warnings)
    return Agent(cfg, session.env, network, state, update, source.name, warnings)


def missing_policy(path: Path) -> HmxError:
    """Return the error for a saved buffer without a policy."""
    run = shlex.quote(quoted(buffer_file.read_header(path).run) or "RUN")
    return HmxError(f"cannot score {path}: a saved buffer has no policy", f"--checkpoint {run}")


def open_task(
    path: Path, checkpoint: Path | None, root: str | Path, request: ScoreRequest, progress: Progress
) -> ScoreTask:
    """Load positions, and the agent of `checkpoint` or of `path`; without a buffer, positions are collected."""
    if is_file(path) and checkpoint is None:
        raise missing_policy(path)
    if not is_file(path) and checkpoint is not None:
        raise HmxError(
            "cannot use --checkpoint here: it is for saved buffers",
            f"hmx score-buffer {shlex.quote(str(checkpoint))} scores that run",
        )
    saved = buffers.load(path) if is_file(path) else None
    agent = open_agent(checkpoint or path, root, request.agent)
    own = (agent.network.kind, agent.network.parameter)
    # Before any rollout, so that impossible requests are refused at once.
    options, policy = settle(request, agent.cfg.algo.gamma, agent.env.spec, own, agent.network.team_reward)
    seed = agent.cfg.run.seed if request.seed is None else request.seed
    progress("collecting positions" if saved is None else "reading positions", 0, 0)
    origin: Literal["file", "replay", "collected"]
    if saved is not None:
        buffer, origin = saved, "file"
        buffers.check(buffer, agent.cfg, agent.env, str(path))
    elif isinstance(learner := agent.state.learner, DqnLearner):
        buffer = buffers.from_replay(learner.replay, agent.cfg, agent.env.spec, run=agent.run, update=agent.update)
        buffers.check(buffer, agent.cfg, agent.env, f"the buffer of {agent.run}")
        origin = "replay"
    else:
        buffer, origin = collect(agent, request.collect, score_key(seed, "collecting")), "collected"
    slots, warnings = _selected(buffer, request, seed)
    return ScoreTask(agent, buffer, path, origin, options, policy, slots, seed, request, (*agent.warnings, *warnings))


def score_key(seed: int, use: Literal["scores", "collecting", "lengths"]) -> Key:
    """Return the random key for one use."""
    number = ("scores", "collecting", "lengths").index(use)
    return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), _STREAM), number)


_STREAM = 3  # of the seed: 0 is for training, 1 for evaluation, 2 for gradient reports
_PARALLEL = 16  # environments: few, so that each gets far into its episodes


def collect(agent: Agent, number: int, key: Key) -> Buffer:
    """Fill a buffer with at least `number` successive transitions of an agent that plays as in training.

    Sixteen environments run in parallel (fewer for fewer transitions), from the start of an episode. The TD error is
    that of the value function, `|r + gamma V(s') - V(s)|`.
    """
    num_envs = min(_PARALLEL, number)
    spec = agent.env.spec
    steps = -(-number // num_envs)
    program = jax.jit(partial(_played, agent, num_envs, steps))
    items, env_state, td_error = interruptible(lambda: jax.block_until_ready(program(agent.params, key)))
    size = steps * num_envs
    axes = [1 + spec.state_axis % (leaf.ndim - 1) for leaf in jax.tree.leaves(env_state)]
    states = {}
    for (name, leaf), axis in zip(to_host(env_state).items(), axes, strict=True):
        leading = np.moveaxis(leaf, axis, 1)
        states[name] = leading.reshape(size, *leading.shape[2:])
    birth = np.arange(size, dtype=np.uint32)
    td_errors = np.abs(np.asarray(td_error, np.float32)).reshape(size)
    header = header_of(
        agent.cfg, spec,
        capacity=size, size=size, position=0, num_added=size, num_envs=num_envs,
        td_max=float(td_errors.max()), run=agent.run, update=agent.update,
    )  # fmt: skip
    return Buffer(
        header=header,
        items={name: leaf.reshape(size, *leaf.shape[2:]) for name, leaf in to_host(items).items()},
        env_states=states,
        td_errors=td_errors,
        consequence_scores=np.zeros(size, np.float32),
        scored=np.zeros(size, bool),
        scored_at=np.zeros(size, np.uint32),
        birth=birth,
    )


def _played(agent: Agent, num_envs: int, steps: int, params: Any, key: Key) -> tuple[dict[str, Array], EnvState, Array]:
    """Return the items, the positions and the TD errors of steps, `[steps, num_envs, ...]`."""
    env, network = agent.env, agent.network
    k_reset, k_play = jax.random.split(key)

    def act(now: Now, k_act: Key) -> tuple[Decision, Carry]:
        preferred = network.outputs(params, now.obs)
        return taking(jax.vmap(distributions.sample)(jax.random.split(k_act, num_envs), preferred, now.legal)), ()

    def keep(step: Step) -> tuple[dict[str, Array], EnvState, Array]:
        now, seen = step.before, step.timestep
        team = seen.reward.mean(-1) if network.team_reward == "mean" else seen.reward.sum(-1)
        value = network.value(params, seen.final_obs, seen.final_legal)
        following = jnp.where(seen.terminated, 0.0, value)
        error = team + agent.cfg.algo.gamma * following - network.value(params, now.obs, now.legal)
        items = {
            OBS: now.obs,
            LEGAL: now.legal,
            ACTION: step.decision.action,
            "reward_tp1": team,
            "terminated_tp1": seen.terminated,
            "truncated_tp1": seen.truncated,
        }
        return items, now.env_state, error

    now, _ = episodes.start(env, num_envs, (), k_reset)
    return episodes.scan(env, act, now, k_play, steps, keep)


def settle(
    request: ScoreRequest, gamma: float, spec: EnvSpec, own: PolicyKind, team_reward: TeamReward
) -> tuple[ScoreOptions, PolicyKind]:
    """Return how consequence is measured and the policy that continues, after checking that they fit.

    `own` is the policy of the agent, and `gamma` its discount.
    """
    parameters = {"greedy": 1.0, "softmax": request.temperature, "epsilon": request.epsilon}
    policy = own if request.policy is None else (request.policy, parameters[request.policy])
    options = ScoreOptions(
        actions=request.actions or ("all" if spec.num_agents == 1 else "single"),
        num_actions=request.num_actions,
        rollouts=request.rollouts,
        bootstrap=request.bootstrap,
        crn=request.crn,
        metric=request.metric,
        aggregate=request.aggregate,
        corrected=request.correct,
        gamma=gamma if request.gamma is None else request.gamma,
        team_reward=team_reward,
        null=True,
    )
    check_options(options, spec, policy[0] != "greedy", True)
    return options, policy


def _selected(buffer: Buffer, request: ScoreRequest, seed: int) -> tuple[Host, list[str]]:
    """Return the slots to score, oldest transition first unless a file names them; and warnings."""
    size = buffer.header.size
    number = request.positions
    if request.indices:
        return read_indices(Path(request.indices), size), []
    oldest_first = np.argsort(buffer.birth, kind="stable")
    if request.select == "all":
        return oldest_first, []
    rank = np.random.default_rng([seed, 3]).random(size)
    if request.select == "stale":
        age = buffer.header.num_added - buffer.scored_at.astype(np.int64)
        rank = np.where(buffer.scored, 1.0 + 1.0 / (1.0 + age), rank)
    picked = np.zeros(size, bool)
    picked[np.argsort(rank, kind="stable")[:number]] = True
    warnings = [f"--positions {number}: the buffer has {size:,}, and all are scored"] if number > size else []
    return oldest_first[picked[oldest_first]], warnings


def read_indices(path: Path, size: int) -> Host:
    """Read the slots in a file, in its order: whole numbers below `size` separated by white space or commas."""
    hint = "--indices takes a file with slots of the buffer, whole numbers from 0, one per line"
    name = quoted(str(path))
    try:
        slots = read_text(path).replace(",", " ").split()
    except OSError as problem:
        why = words(problem)
        raise HmxError(f"cannot read {name}: {why}", hint, ExitCode.ARTEFACT) from None
    except ValueError:
        raise HmxError(f"cannot read {name}: not a text file", hint) from None
    bad = next((slot for slot in slots if not (slot.isascii() and slot.isdigit() and len(slot) < 10)), None)
    if bad is not None or not slots:
        raise HmxError(f"cannot use {name}: {quoted(bad) if bad else 'it contains no slot'}", hint)
    found = np.array([int(slot) for slot in slots], np.int64)
    if found.max() >= size:
        raise HmxError(f"cannot use {name}: slot {found.max()} is not among the {size:,} filled ones", hint)
    if len(np.unique(found)) < len(found):
        raise HmxError(f"cannot use {name}: it contains a slot twice", hint)
    return found
