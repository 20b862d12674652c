"""What a run holds in the memory of its device, computed before anything is allocated.

Two geometries: that of the trainer, where the network is known, and that of the Metta training equations, where only
its number of parameters is. Parts that follow from shapes alone are exact; activations depend on what the compiler
keeps and recomputes, and are an estimate within a factor of 2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from hmx.config.env_facts import EnvFacts, env_facts
from hmx.config.schema import AlgoConfig, Config, NetConfig

WORD = 4
"""Bytes of a float32 or an int32."""

PARAMETER_BYTES = 4 * WORD
"""Of one parameter: itself, its gradient and the two moments of Adam."""

UNCERTAINTY = 2
"""Factor either way within which an estimated part lies."""

TOKEN_BYTES = 200 * 3
"""One observation of the Metta environments: 200 tokens of 3 bytes."""

METTA_LAYERS, METTA_UNITS, METTA_FLOATS = 2, 128, 10_000
"""Layers and units of the LSTM of Metta's agents; numbers that one sample keeps for the gradient, roughly."""

_GATES = {"none": 0, "gru": 3, "lstm": 4}
_STATES = {"none": 0, "gru": 1, "lstm": 2}  # arrays of a hidden state
_TWO_HOT_BINS = 127

# Per agent step of a rollout besides observation and legal actions: action, log-probability, value, reward and value
# of a final observation; alive, terminated and truncated.
_STEP_BYTES = 5 * WORD + 3
# What a training row adds: advantage, value target, weight, and the value that follows the reward.
_ROW_BYTES = 4 * WORD
# One flag that all agents of an environment share: the step is the first of an episode.
_RESET_BYTES = 1


class Part(NamedTuple):
    """One row of a memory table."""

    key: str
    label: str
    bytes: int
    formula: str
    exact: bool = True
    counted: bool = True  # in the total; what is not is there to compare


class Memory(NamedTuple):
    """All parts, for every seed together; `parameters` are those of one seed."""

    parts: tuple[Part, ...]
    parameters: int

    @property
    def total(self) -> int:
        """Bytes, with estimates as they are."""
        return sum(part.bytes for part in self.parts if part.counted)

    @property
    def interval(self) -> tuple[int, int]:
        """The total with every estimate at its lower and at its upper end."""
        exact = sum(part.bytes for part in self.parts if part.counted and part.exact)
        rough = self.total - exact
        return exact + rough // UNCERTAINTY, exact + rough * UNCERTAINTY

    def to_json(self) -> dict[str, Any]:
        """Bytes by key, and the total with its interval."""
        low, high = self.interval
        return {
            **{part.key: part.bytes for part in self.parts},
            "total_bytes": self.total,
            "total_bytes_low": low,
            "total_bytes_high": high,
            "parameters": self.parameters,
            "estimated": [part.key for part in self.parts if not part.exact],
            "not_in_total": [part.key for part in self.parts if not part.counted],
        }


def value_width(value_target: str) -> int:
    """Outputs of the value head."""
    return _TWO_HOT_BINS if value_target == "two_hot" else 1


def count_parameters(net: NetConfig, facts: EnvFacts, outputs: int = 1) -> int:
    """Parameters of the network that `hmx.nets.make_net` builds.

    Args:
        net: the architecture.
        facts: of the environment.
        outputs: of the value head.
    """
    seen = facts._replace(features=facts.features - facts.value_only)
    trunk, width = trunk_parameters(net, seen, net.hidden)
    own, value_width = (0, width) if net.shared_torso else trunk_parameters(net, facts, net.value_hidden or net.hidden)
    return trunk + own + _policy_head(net, facts, width) + (value_width + 1) * outputs


def rollout_bytes(cfg: Config, steps: int) -> int:
    """Bytes of the transitions of `steps` agent steps, of one seed."""
    facts = env_facts(cfg.env)
    return steps * _step_bytes(cfg.algo, facts) + steps // cfg.env.num_agents * _RESET_BYTES


def _observations(algo: AlgoConfig) -> int:
    """Kept per step: where next values are evaluated apart, what followed besides what was seen."""
    return 2 if (algo.advantage_when, algo.value_forward) == ("minibatch", "both") else 1


def _step_bytes(algo: AlgoConfig, facts: EnvFacts) -> int:
    return _observations(algo) * facts.obs_bytes + _action_bytes(facts) + _STEP_BYTES


def environment_bytes(cfg: Config, envs: int) -> int:
    """Of `envs` environments: their states, what their agents see, the episode under way and who is done."""
    facts, agents = env_facts(cfg.env), envs * cfg.env.num_agents
    return envs * (facts.state_bytes + 2 * WORD + 1) + agents * (facts.obs_bytes + facts.num_actions + 1)


def environments_part(cfg: Config, envs: int, count: int) -> Part:
    """The line that tells the bytes of environments."""
    state, agents = env_facts(cfg.env).state_bytes, envs * cfg.env.num_agents
    words = f"{envs:,} environments x {state:,} B, and what {agents:,} agents see"
    return Part("environment_bytes", "environments", count, words)


def trainer_memory(cfg: Config, derived: Mapping[str, Any]) -> Memory:
    """What `hmx train` holds during an update.

    Args:
        cfg: environment, network and number of seeds.
        derived: the sizes; see `hmx.sizing.batch.derive_batch`.
    """
    facts, net, seeds = env_facts(cfg.env), cfg.net, cfg.run.num_seeds
    steps, rows, minibatch = derived["stored_agent_steps"], derived["segments"], derived["samples_per_update"]
    agents, envs = derived["total_agents"], derived["num_envs"]
    parameters = count_parameters(net, facts, value_width(cfg.algo.value_target))
    algo, step_bytes = cfg.algo, _step_bytes(cfg.algo, facts)
    row_bytes = step_bytes + _RESET_BYTES + _ROW_BYTES
    carry = _carry_bytes(net)
    learning, acting = learning_floats(net, facts), acting_floats(net, facts)
    environments = environment_bytes(cfg, envs)
    if cfg.env.reset_on_done != "fresh":  # the starts that episodes are followed by
        environments += envs * facts.state_bytes + agents * (facts.obs_bytes + facts.num_actions)
    if algo.obs_norm != "none":  # a count of two words, mean and variance
        environments += 2 * WORD + 2 * WORD * facts.obs_size
    state = parameters * 3 * WORD + agents * carry + environments
    copied = row_bytes if agents < rows < steps else _ROW_BYTES  # whole rollouts and single steps lie as they are
    if algo.obs_norm == "network" and copied == _ROW_BYTES:  # read once, and so copied after all
        copied += _observations(algo) * WORD * facts.obs_size
    parts = (
        Part("model_bytes", "parameters, gradient, Adam", parameters * PARAMETER_BYTES, f"{parameters:,} x 16 B"),
        Part("rollout_bytes", "rollout", rollout_bytes(cfg, steps), f"{steps:,} agent steps x {step_bytes:,} B"),
        Part(
            "rows_bytes",
            "training rows",
            steps * copied + rows * carry,
            f"{steps:,} agent steps x {copied:,} B, {rows:,} rows x {carry:,} B",
        ),
        Part("carry_bytes", "recurrent state", agents * carry, f"{agents:,} agents x {carry:,} B"),
        environments_part(cfg, envs, environments),
        Part(
            "previous_state_bytes",
            "state before the update",
            state,
            "parameters, Adam, recurrent state and environments once more",
        ),
        Part(
            "minibatch_bytes", "minibatch copy", minibatch * row_bytes, f"{minibatch:,} agent steps x {row_bytes:,} B"
        ),
        Part(
            "activation_bytes",
            "activations",
            max(minibatch * learning, agents * acting) * WORD,
            f"{minibatch:,} samples x about {learning:,} floats",
            exact=False,
        ),
    )
    return Memory(tuple(part._replace(bytes=part.bytes * seeds) for part in parts), parameters)


def buffer_memory(derived: Mapping[str, Any], parameters: int) -> Memory:
    """What a trainer of the Metta kind holds: observations of tokens, two int32 actions, and an LSTM.

    The observations of the equations (one float32 per cell) are there too, but not in the total.

    Args:
        derived: the sizes; see `hmx.sizing.batch.derive_batch`.
        parameters: of the network.
    """
    steps, minibatch, agents = derived["stored_agent_steps"], derived["samples_per_update"], derived["total_agents"]
    # two actions, six scalars, and then advantages and a buffer of importance ratios
    scalars = 2 * WORD + 6 * WORD + 2 * WORD
    carry = 2 * METTA_LAYERS * METTA_UNITS * WORD
    return Memory(
        (
            Part(
                "obs_bytes_seed",
                "observations, 1 float a cell",
                derived["obs_bytes_seed"],
                "segments x bptt_horizon x obs_width x obs_height x 4 B",
                counted=False,
            ),
            Part(
                "minibatch_obs_bytes_seed",
                "of these in a minibatch",
                derived["minibatch_obs_bytes_seed"],
                "minibatch_segments x bptt_horizon x obs_width x obs_height x 4 B",
                counted=False,
            ),
            Part(
                "scalar_bytes_f32_x8",
                "eight floats per step",
                derived["scalar_bytes_f32_x8"],
                "segments x bptt_horizon x 8 x 4 B",
                counted=False,
            ),
            Part("obs_bytes", "observations, tokens", steps * TOKEN_BYTES, f"{steps:,} agent steps x 200 x 3 B"),
            Part("scalar_bytes", "rest of the buffer", steps * scalars, f"{steps:,} agent steps x {scalars} B"),
            Part(
                "model_bytes",
                "parameters, gradient, Adam",
                parameters * PARAMETER_BYTES,
                f"{parameters:,} x {PARAMETER_BYTES} B (--parameters)",
            ),
            Part("carry_bytes", "recurrent state", agents * carry, f"{agents:,} agents x {carry:,} B"),
            Part(
                "minibatch_bytes", "minibatch copy", minibatch * TOKEN_BYTES, f"{minibatch:,} agent steps x 200 x 3 B"
            ),
            Part(
                "activation_bytes",
                "activations",
                minibatch * METTA_FLOATS * WORD,
                f"{minibatch:,} samples x about {METTA_FLOATS:,} floats",
                exact=False,
            ),
        ),
        parameters,
    )


def _reads_board(net: NetConfig, facts: EnvFacts) -> bool:
    return facts.board is not None and net.kind in ("auto", "cells")


def _policy_head(net: NetConfig, facts: EnvFacts, width: int) -> int:
    """Parameters of the policy head on `width` units."""
    if not facts.action_dim:
        return (width + 1) * facts.num_actions
    return (width + 1) * facts.action_dim + (1 if net.std == "param" else width + 1) * facts.action_dim


def _action_bytes(facts: EnvFacts) -> int:
    """Of an action beyond the four of a discrete one, and of the legal actions."""
    return facts.num_actions + WORD * max(facts.action_dim - 1, 0)


def trunk_parameters(net: NetConfig, facts: EnvFacts, hidden: tuple[int, ...]) -> tuple[int, int]:
    """Parameters of one trunk, and the width of what comes out of it."""
    total, width = 0, facts.features
    if facts.board is not None and _reads_board(net, facts):
        total += (facts.board.features + 1) * net.cell_features
        width = facts.board.scalars + facts.board.cells * net.cell_features
    for units in hidden:
        total += (width + 1) * units + (2 * units if net.layer_norm else 0)
        width = units
    if net.rnn != "none":
        gates = _GATES[net.rnn] * net.rnn_hidden
        total += (width + 1) * gates + net.rnn_hidden * gates + (net.rnn_hidden if net.rnn == "gru" else 0)
        width = net.rnn_hidden
    return total, width


def _carry_bytes(net: NetConfig) -> int:
    """Of the memory of one agent."""
    return _STATES[net.rnn] * net.rnn_hidden * WORD * (1 if net.shared_torso else 2)


def learning_floats(net: NetConfig, facts: EnvFacts) -> int:
    """Numbers that one sample keeps for its gradient.

    The features where they are decoded, the cells and their concatenation, and every hidden layer twice: its output
    and the gradient of it. A layer norm keeps its input besides, a memory four numbers per gate and unit.
    """
    kept = 3 if net.layer_norm else 2
    units, value_units = kept * sum(net.hidden), kept * sum(net.value_hidden or net.hidden)
    memory = (4 * _GATES[net.rnn] + 4 * _STATES[net.rnn]) * net.rnn_hidden
    shared, own = (facts.features + facts.decode if facts.decode else 0), 0
    if facts.board is not None and _reads_board(net, facts):
        seen = facts.board.cells * net.cell_features
        shared = facts.board.scalars + facts.board.cells * facts.board.features
        own = 2 * seen + facts.board.scalars
    value = 0 if net.shared_torso else own + value_units + memory
    return shared + own + units + memory + value + 2 * (facts.num_actions + 2 * facts.action_dim)


def acting_floats(net: NetConfig, facts: EnvFacts) -> int:
    """Numbers that one agent needs to act: its features and the widest pair of layers."""
    features = facts.features + facts.decode
    if facts.board is not None and _reads_board(net, facts):
        features = facts.board.scalars + facts.board.cells * (facts.board.features + net.cell_features)
    return features + 2 * max((*net.hidden, *net.value_hidden)) + (_GATES[net.rnn] + _STATES[net.rnn]) * net.rnn_hidden
