"""Memory that a run takes on its device, computed before anything is allocated.

There are three geometries: PPO and Q-learning of `hmx train`, where the network is known, and the Metta training
equations, where only its number of parameters is. Parts that follow from shapes alone are exact. Activations depend on
what the compiler keeps and recomputes, and are an estimate within a factor of 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from hmx.algos.dqn.sizes import scoring_rounds
from hmx.config.schema import Config, Dtype, NetConfig, PpoConfig, ValueTarget
from hmx.registry.env_facts import BoardSizes, EnvFacts, env_facts
from hmx.sizing.derived import size
from hmx.sizing.inputs import BatchInputs
from hmx.sizing.trainer import inputs_of

WORD = 4  # bytes of a float32 or an int32
ACTIVATION_BYTES = {"float32": WORD, "bfloat16": 2}
PARAMETER_BYTES = 4 * WORD  # a parameter, its gradient and the two moments of Adam
Q_PARAMETER_BYTES = 5 * WORD  # the same, and the parameter of the target network
UNCERTAINTY = 2  # factor either way within which an estimated part lies
TOKEN_BYTES = 200 * 3  # an observation of the Metta environments: 200 tokens of 3 bytes
_METTA_CARRY = 2 * 2 * 128 * WORD  # of the LSTM of Metta's agents: two arrays, two layers, 128 units
METTA_FLOATS = 10_000  # that one sample keeps for the gradient, roughly
FANOUT = 8  # children of a node of the trees that transitions are drawn from

_GATES = {"none": 0, "gru": 3, "lstm": 4}
_STATES = {"none": 0, "gru": 1, "lstm": 2}  # arrays of a recurrent state
_TWO_HOT_BINS = 127

# Per agent step of a rollout, except observation and legal actions: action, log-probability, value, reward and
# value of a final observation; alive, terminated and truncated.
_STEP_BYTES = 5 * WORD + 3
# What a training sequence adds per step: advantage, value target, weight, and the value that follows the reward.
_SEQUENCE_BYTES = 4 * WORD
# One flag that all agents of an environment share: the step is the first of an episode.
_RESET_BYTES = 1
# Of a search tree, per position: visits, raw value, value, parent and action from it; and per action of a position:
# child, prior logit, visits, reward, discount and value.
_NODE_BYTES, _EDGE_BYTES = 5 * WORD, 6 * WORD
# Per transition: TD error, score, time of the score and number of the transition; whether it has a score.
_RECORD_BYTES = 4 * WORD + 1


class MemoryPart(NamedTuple):
    """A part of the memory, over all seeds."""

    key: str
    label: str
    bytes: int
    formula: str  # how the size follows
    exact: bool = True
    counted: bool = True  # in the total; other parts are there for comparison


@dataclass(frozen=True)
class Memory:
    """All parts over all seeds, the total with the ends of its interval, and the parameters of one seed."""

    parts: tuple[MemoryPart, ...]
    parameters: int
    total_bytes: int
    total_bytes_low: int
    total_bytes_high: int


def _each(key: str, label: str, count: int, unit: str, size: int) -> MemoryPart:
    """Return a part of so many units of one size."""
    return MemoryPart(key, label, count * size, f"{count:,} {unit} x {size:,} B")


def add_up(parts: list[MemoryPart], parameters: int, seeds: int = 1) -> Memory:
    """Return the memory of so many seeds with these parts each."""
    scaled = tuple(part._replace(bytes=part.bytes * seeds) for part in parts)
    exact = sum(part.bytes for part in scaled if part.counted and part.exact)
    rough = sum(part.bytes for part in scaled if part.counted and not part.exact)
    return Memory(scaled, parameters, exact + rough, exact + rough // UNCERTAINTY, exact + rough * UNCERTAINTY)


def run_memory(cfg: Config) -> Memory:
    """Compute the memory of `hmx train` during an update."""
    return q_memory(cfg) if cfg.algo.name == "dqn" else trainer_memory(cfg, inputs_of(cfg))


def trainer_memory(cfg: Config, inputs: BatchInputs) -> Memory:
    """Compute the memory of PPO in `hmx train` during an update."""
    facts, net, ppo = env_facts(cfg.env), cfg.net, cfg.ppo
    steps, sequences = size(inputs, "stored_agent_steps"), size(inputs, "segments")
    minibatch = size(inputs, "samples_per_update")
    agents, envs = size(inputs, "total_agents"), size(inputs, "num_envs")
    parameters = count_parameters(net, facts, value_width(ppo.value_target))
    step = _step_bytes(cfg, facts)
    per_step = step + _RESET_BYTES + _SEQUENCE_BYTES
    carry = _STATES[net.rnn] * net.rnn_hidden * WORD * (1 if net.shared_torso else 2)
    floats = learning_floats(net, facts)
    environments = environment_bytes(cfg, envs)
    starts, drawn = envs * facts.state_bytes + agents * (facts.obs_bytes + facts.num_actions), 0
    if cfg.env.reset_on_done == "first":  # the states that episodes restart from
        environments += starts
    elif cfg.env.reset_on_done == "rollout_cache" or cfg.starts.share:
        drawn = starts
    if cfg.starts.share:  # a flag: the episode began in a later stage
        environments += envs
    if ppo.obs_norm != "none":  # a count of two words, mean and variance
        environments += 2 * WORD + 2 * WORD * facts.obs_size
    state = parameters * 3 * WORD + agents * carry + environments
    copied = (
        per_step if agents < sequences < steps else _SEQUENCE_BYTES
    )  # whole rollouts and single steps stay in place
    if ppo.obs_norm == "network" and copied == _SEQUENCE_BYTES:  # normalised, and so copied
        copied += _observations(ppo) * WORD * facts.obs_size
    parts = [
        _model(parameters, PARAMETER_BYTES, "parameters, gradient, Adam"),
        MemoryPart("rollout_bytes", "rollout", rollout_bytes(cfg, steps), f"{steps:,} agent steps x {step:,} B"),
        MemoryPart(
            "rows_bytes",
            "training sequences",
            steps * copied + sequences * carry,
            f"{steps:,} agent steps x {copied:,} B, {sequences:,} sequences x {carry:,} B",
        ),
        _each("carry_bytes", "recurrent state", agents, "agents", carry),
        _environments(cfg, envs, environments + drawn),
        _previous(state, "parameters, Adam, recurrent state and environments"),
        _each("minibatch_bytes", "minibatch copy", minibatch, "agent steps", per_step),
        _activations(max(minibatch * floats, agents * acting_floats(net, facts)), minibatch, floats, net.compute_dtype),
    ]
    if cfg.algo.name == "gumbel":
        nodes = envs * (cfg.gumbel.num_simulations + 1)
        node = facts.state_bytes + carry + _NODE_BYTES + facts.num_actions * _EDGE_BYTES
        parts.append(_each("search_bytes", "search trees", nodes, "positions", node))
    return add_up(parts, parameters, cfg.run.num_seeds)


def buffer_memory(inputs: BatchInputs, parameters: int) -> Memory:
    """Compute the memory of a Metta trainer: observations of tokens, two int32 actions, and an LSTM.

    The observations of the equations (one float32 per cell) are listed, but not part of the total.
    """
    steps, minibatch = size(inputs, "stored_agent_steps"), size(inputs, "samples_per_update")
    # two actions, six scalars, advantages and importance ratios
    scalars = (2 + 6 + 2) * WORD
    cells = "bptt_horizon x obs_width x obs_height x 4 B"
    published = (
        ("obs_bytes_seed", "observations, 1 float per cell", f"segments x {cells}"),
        ("minibatch_obs_bytes_seed", "the same in a minibatch", f"minibatch_segments x {cells}"),
        ("scalar_bytes_f32_x8", "eight floats per step", "segments x bptt_horizon x 8 x 4 B"),
    )
    parts = [
        *(MemoryPart(name, label, size(inputs, name), text, counted=False) for name, label, text in published),
        MemoryPart("obs_bytes", "observations, tokens", steps * TOKEN_BYTES, f"{steps:,} agent steps x 200 x 3 B"),
        _each("scalar_bytes", "rest of the buffer", steps, "agent steps", scalars),
        _model(parameters, PARAMETER_BYTES, "parameters, gradient, Adam"),
        _each("carry_bytes", "recurrent state", size(inputs, "total_agents"), "agents", _METTA_CARRY),
        _each("minibatch_bytes", "minibatch copy", minibatch, "agent steps", TOKEN_BYTES),
        _activations(minibatch * METTA_FLOATS, minibatch, METTA_FLOATS),
    ]
    return add_up(parts, parameters)


def q_memory(cfg: Config) -> Memory:
    """Compute the memory of Q-learning in `hmx train` during an update."""
    facts, net, agents, envs = env_facts(cfg.env), cfg.net, cfg.env.num_agents, cfg.env.num_envs
    capacity, steps, batch = cfg.replay.capacity, envs * cfg.algo.num_steps, cfg.dqn.batch_size
    parameters = count_q_parameters(net, facts, cfg.dqn.dueling)
    records, environments = priority_bytes(cfg), environment_bytes(cfg, envs)
    transition, slot = transition_bytes(cfg), stored_bytes(cfg)
    learning, acting = learning_floats(net, facts), acting_floats(net, facts)
    # a batch runs through the network for its gradient, and twice more for targets; acting and collecting are smaller
    samples = batch * agents
    floats = max(samples * (learning + 2 * acting), envs * agents * acting)
    parts = [
        _model(parameters, Q_PARAMETER_BYTES, "parameters, target, gradient, Adam"),
        _each("replay_bytes", "replay buffer", capacity, "transitions", transition),
        _each("replay_states_bytes", "environment states in it", capacity, "states", facts.state_bytes),
        MemoryPart("priority_bytes", "priorities", records, f"{capacity:,} records x {_RECORD_BYTES} B, and trees"),
        _each("overwritten_bytes", "overwritten in an update", steps, "transitions", slot),
        _environments(cfg, envs, environments),
        _previous(
            parameters * 4 * WORD + records + environments, "parameters, target, Adam, priorities and environments"
        ),
        _each("minibatch_bytes", "minibatch copy", batch * cfg.dqn.n_step, "transitions", transition),
        MemoryPart(
            "activation_bytes",
            "activations",
            floats * ACTIVATION_BYTES[net.compute_dtype],
            f"{samples:,} samples",
            exact=False,
        ),
    ]
    if cfg.score.every and cfg.score.kind == "rollouts":
        parts.append(_scoring(cfg, facts, acting))
    return add_up(parts, parameters, cfg.run.num_seeds)


def largest_capacity(cfg: Config, free: int) -> int:
    """Return the largest `replay.capacity`, a multiple of `env.num_envs`, with which a run takes at most `free` bytes.

    The result is 0 if not even the smallest capacity fits.
    """
    buffer = (cfg.replay.capacity * stored_bytes(cfg) + 2 * priority_bytes(cfg)) * cfg.run.num_seeds
    rest = q_memory(cfg).total_bytes - buffer
    fits = int((free - rest) * cfg.replay.capacity / buffer) // cfg.env.num_envs * cfg.env.num_envs
    smallest = cfg.env.num_envs * max(cfg.algo.num_steps, cfg.dqn.n_step)
    return fits if fits >= smallest else 0


def rollout_bytes(cfg: Config, steps: int) -> int:
    """Return the bytes of the transitions of `steps` agent steps of one seed."""
    return steps * _step_bytes(cfg, env_facts(cfg.env)) + steps // cfg.env.num_agents * _RESET_BYTES


def environment_bytes(cfg: Config, envs: int) -> int:
    """Return the bytes of environments: states, observations, legal actions, current episodes and flags."""
    facts, agents = env_facts(cfg.env), envs * cfg.env.num_agents
    return envs * (facts.state_bytes + 2 * WORD + 1) + agents * (facts.obs_bytes + facts.num_actions + 1)


def transition_bytes(cfg: Config) -> int:
    """Return the bytes of a stored transition without the state of its environment; see `hmx.replay.Experience`."""
    facts = env_facts(cfg.env)
    # observation and legal actions before and after; action; takes part, and is done after the step
    per_agent = 2 * (facts.obs_bytes + facts.num_actions) + WORD + 2
    # reward of the team; truncated
    return cfg.env.num_agents * per_agent + WORD + 1


def stored_bytes(cfg: Config) -> int:
    """Return the bytes of a slot of the replay buffer: a transition and the state of its environment."""
    return transition_bytes(cfg) + env_facts(cfg.env).state_bytes


def priority_bytes(cfg: Config) -> int:
    """Return the bytes of records and trees: per tree, nodes with eight children each down to one leaf per slot."""
    nodes, total = cfg.replay.capacity, 0
    while nodes > 1 or not total:
        nodes = -(-nodes // FANOUT)
        total += nodes * FANOUT
    trees = 2 if cfg.replay.mixing == "additive" else 1
    return cfg.replay.capacity * _RECORD_BYTES + trees * total * WORD


def value_width(value_target: ValueTarget) -> int:
    """Return the number of outputs of the value head."""
    return _TWO_HOT_BINS if value_target == "two_hot" else 1


def count_parameters(net: NetConfig, facts: EnvFacts, outputs: int = 1) -> int:
    """Count the parameters of the network that `hmx.nets.make_net` builds."""
    policy_facts = facts._replace(features=facts.features - facts.value_only)
    trunk, width = _trunk(net, policy_facts, net.hidden)
    own, value_units = (0, width) if net.shared_torso else _trunk(net, facts, net.value_hidden or net.hidden)
    if facts.action_dim:
        head = (width + 1) * facts.action_dim + (1 if net.std == "param" else width + 1) * facts.action_dim
    else:
        head = (width + 1) * facts.num_actions
    return trunk + own + head + (value_units + 1) * outputs


def count_q_parameters(net: NetConfig, facts: EnvFacts, dueling: bool) -> int:
    """Count the parameters of the network that `hmx.nets.make_q_net` builds."""
    trunk, width = _trunk(net, facts, net.hidden)
    return trunk + (width + 1) * (facts.num_actions + dueling)


def _trunk(net: NetConfig, facts: EnvFacts, hidden: tuple[int, ...]) -> tuple[int, int]:
    """Return the parameters of one trunk, and the width of its output."""
    total, width = 0, facts.features
    if board := _board(net, facts):
        total += (board.features + 1) * net.cell_features
        width = board.scalars + board.cells * net.cell_features
    for units in hidden:
        total += (width + 1) * units + (2 * units if net.layer_norm else 0)
        width = units
    if net.rnn != "none":
        gates = _GATES[net.rnn] * net.rnn_hidden
        total += (width + 1) * gates + net.rnn_hidden * gates + (net.rnn_hidden if net.rnn == "gru" else 0)
        width = net.rnn_hidden
    return total, width


def learning_floats(net: NetConfig, facts: EnvFacts) -> int:
    """Return the numbers that one sample keeps for its gradient.

    These are the features where they are decoded, the cells and their concatenation, and every hidden layer twice: its
    output and the gradient of it. A layer norm also keeps its input, a recurrent layer four numbers per gate and unit.
    """
    kept = 3 if net.layer_norm else 2
    units, value_units = kept * sum(net.hidden), kept * sum(net.value_hidden or net.hidden)
    recurrent = (4 * _GATES[net.rnn] + 4 * _STATES[net.rnn]) * net.rnn_hidden
    shared, own = (facts.features + facts.decode if facts.decode else 0), 0
    if board := _board(net, facts):
        shared = board.scalars + board.cells * board.features
        own = 2 * board.cells * net.cell_features + board.scalars
    value = 0 if net.shared_torso else own + value_units + recurrent
    return shared + own + units + recurrent + value + 2 * (facts.num_actions + 2 * facts.action_dim)


def acting_floats(net: NetConfig, facts: EnvFacts) -> int:
    """Return the numbers that one agent needs to act: its features and the widest pair of layers."""
    features = facts.features + facts.decode
    if board := _board(net, facts):
        features = board.scalars + board.cells * (board.features + net.cell_features)
    return features + 2 * max((*net.hidden, *net.value_hidden)) + (_GATES[net.rnn] + _STATES[net.rnn]) * net.rnn_hidden


def _board(net: NetConfig, facts: EnvFacts) -> BoardSizes | None:
    """Return the cells of an observation, if the network reads them."""
    return facts.board if net.kind in ("auto", "cells") else None


def _observations(ppo: PpoConfig) -> int:
    """Return the observations kept per step: also the next one if next values are evaluated separately."""
    return 2 if (ppo.advantage_when, ppo.value_forward) == ("minibatch", "both") else 1


def _step_bytes(cfg: Config, facts: EnvFacts) -> int:
    action = facts.num_actions + WORD * max(facts.action_dim - 1, 0)  # beyond the four bytes of a discrete action
    searched = facts.num_actions * WORD if cfg.algo.name == "gumbel" else 0  # the probabilities of the search
    return _observations(cfg.ppo) * facts.obs_bytes + action + searched + _STEP_BYTES


def _model(parameters: int, each: int, label: str) -> MemoryPart:
    return MemoryPart("model_bytes", label, parameters * each, f"{parameters:,} x {each} B")


def _environments(cfg: Config, envs: int, total: int) -> MemoryPart:
    state, agents = env_facts(cfg.env).state_bytes, envs * cfg.env.num_agents
    formula = f"{envs:,} environments x {state:,} B, and the observations of {agents:,} agents"
    return MemoryPart("environment_bytes", "environments", total, formula)


def _previous(total: int, what: str) -> MemoryPart:
    return MemoryPart("previous_state_bytes", "state before the update", total, f"a second copy of {what}")


def _activations(floats: int, samples: int, each: int, dtype: Dtype = NetConfig.compute_dtype) -> MemoryPart:
    formula = f"{samples:,} samples x about {each:,} floats"
    return MemoryPart("activation_bytes", "activations", floats * ACTIVATION_BYTES[dtype], formula, exact=False)


def _scoring(cfg: Config, facts: EnvFacts, acting: int) -> MemoryPart:
    """Return the environments that rollouts play in side by side."""
    score, agents = cfg.score, cfg.env.num_agents
    joint = facts.num_actions**agents
    tried = {
        "all": joint,
        "single": 1 + agents * (facts.num_actions - 1),
    }.get(score.actions, 1 + min(score.num_actions, joint - 1))
    tried += score.metric.endswith("_bins")
    number = scoring_rounds(cfg)[1] * tried * score.rollouts
    per_env = facts.state_bytes + agents * (facts.obs_bytes + facts.num_actions + acting * WORD)
    formula = f"{number:,} environments"
    return MemoryPart("scoring_bytes", "rollouts that score", number * per_env, formula, exact=False)
