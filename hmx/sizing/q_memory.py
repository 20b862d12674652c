"""What Q-learning holds in the memory of its device, computed before anything is allocated.

The buffer and the parts of the state follow from shapes alone and are exact; see `hmx.sizing.memory` for the rest.
"""

from __future__ import annotations

from hmx.config import q_rules
from hmx.config.env_facts import EnvFacts, env_facts
from hmx.config.schema import Config, NetConfig
from hmx.sizing.batch import derive_batch, inputs_of
from hmx.sizing.memory import (
    WORD,
    Memory,
    Part,
    acting_floats,
    environment_bytes,
    environments_part,
    learning_floats,
    trainer_memory,
    trunk_parameters,
)

PARAMETER_BYTES = 5 * WORD
"""Of one parameter: itself, that of the target network, its gradient and the two moments of Adam."""

FANOUT = 8
"""Children of a node of the trees that transitions are drawn from."""

# TD error, score and when it was computed, number of the transition: 4 bytes each; whether it has a score.
_RECORD_BYTES = 4 * WORD + 1


def run_memory(cfg: Config) -> Memory:
    """What `hmx train` holds during an update, whichever the algorithm."""
    return q_memory(cfg) if cfg.algo.name == "dqn" else trainer_memory(cfg, derive_batch(inputs_of(cfg)))


def count_q_parameters(net: NetConfig, facts: EnvFacts, dueling: bool) -> int:
    """Parameters of the network that `hmx.nets.make_q_net` builds."""
    trunk, width = trunk_parameters(net, facts, net.hidden)
    return trunk + (width + 1) * (facts.num_actions + dueling)


def transition_bytes(cfg: Config) -> int:
    """Of one transition as it is stored, without the state of its environment; see `hmx.replay.Experience`."""
    facts = env_facts(cfg.env)
    # observation and legal actions before and after; action; takes part, and is done after the step
    per_agent = 2 * (facts.obs_bytes + facts.num_actions) + WORD + 2
    # reward of the team; cut by the step limit
    return cfg.env.num_agents * per_agent + WORD + 1


def tree_bytes(capacity: int, trees: int) -> int:
    """Of trees whose nodes have eight children each, down to one leaf per slot."""
    nodes, total = capacity, 0
    while True:
        rows = -(-nodes // FANOUT)
        total += rows * FANOUT
        if rows == 1:
            return trees * total * WORD
        nodes = rows


def priority_bytes(cfg: Config) -> int:
    """Of what the buffer knows of its transitions: records and trees."""
    trees = 2 if cfg.replay.mixing == "additive" else 1
    return cfg.replay.capacity * _RECORD_BYTES + tree_bytes(cfg.replay.capacity, trees)


def stored_bytes(cfg: Config) -> int:
    """Of one slot of the buffer: the transition and the state its environment was in."""
    return transition_bytes(cfg) + env_facts(cfg.env).state_bytes


def q_memory(cfg: Config) -> Memory:
    """What Q-learning holds during an update; the configuration must have no problems."""
    facts, capacity, seeds = env_facts(cfg.env), cfg.replay.capacity, cfg.run.num_seeds
    envs, agents, batch = cfg.env.num_envs, cfg.env.num_envs * cfg.env.num_agents, cfg.dqn.batch_size
    parameters = count_q_parameters(cfg.net, facts, cfg.dqn.dueling)
    transition, records = transition_bytes(cfg), priority_bytes(cfg)
    slot = transition + facts.state_bytes
    steps = envs * cfg.algo.num_steps
    environments = environment_bytes(cfg, envs)
    learning, acting = learning_floats(cfg.net, facts), acting_floats(cfg.net, facts)
    # one pass with a gradient, two without
    samples = batch * cfg.env.num_agents
    floats = max(samples * (learning + 2 * acting), agents * acting)
    parts = [
        Part(
            "model_bytes",
            "parameters, target, gradient, Adam",
            parameters * PARAMETER_BYTES,
            f"{parameters:,} x {PARAMETER_BYTES} B",
        ),
        Part("replay_bytes", "replay buffer", capacity * transition, f"{capacity:,} transitions x {transition:,} B"),
        Part(
            "replay_states_bytes",
            "its environment states",
            capacity * facts.state_bytes,
            f"{capacity:,} states x {facts.state_bytes:,} B",
        ),
        Part("priority_bytes", "its priorities", records, f"{capacity:,} records x {_RECORD_BYTES} B, and trees"),
        Part("overwritten_bytes", "what an update overwrites", steps * slot, f"{steps:,} transitions x {slot:,} B"),
        environments_part(cfg, envs, environments),
        Part(
            "previous_state_bytes",
            "state before the update",
            parameters * 4 * WORD + records + environments,
            "parameters, target, Adam, priorities and environments once more",
        ),
        Part(
            "minibatch_bytes",
            "minibatch copy",
            batch * cfg.dqn.n_step * transition,
            f"{batch * cfg.dqn.n_step:,} transitions x {transition:,} B",
        ),
        Part("activation_bytes", "activations", floats * WORD, f"{samples:,} samples", exact=False),
    ]
    if cfg.score.every and cfg.score.kind == "rollouts":
        parts.append(_scoring(cfg, facts, acting))
    return Memory(tuple(part._replace(bytes=part.bytes * seeds) for part in parts), parameters)


def largest_capacity(cfg: Config, free: int) -> int:
    """The largest capacity of the buffer, a multiple of `env.num_envs`, with which a run stays below `free` bytes.

    0 where even the smallest does not.
    """
    rest = q_memory(cfg).total - _capacity_bytes(cfg)
    per_slot = _capacity_bytes(cfg) / cfg.replay.capacity
    fits = int((free - rest) / per_slot) // cfg.env.num_envs * cfg.env.num_envs
    smallest = cfg.env.num_envs * max(cfg.algo.num_steps, cfg.dqn.n_step)
    return fits if fits >= smallest else 0


def _capacity_bytes(cfg: Config) -> int:
    return (cfg.replay.capacity * stored_bytes(cfg) + 2 * priority_bytes(cfg)) * cfg.run.num_seeds


def _scoring(cfg: Config, facts: EnvFacts, acting: int) -> Part:
    """Environments that rollouts play in, side by side."""
    score, agents = cfg.score, cfg.env.num_agents
    joint = facts.num_actions**agents
    tried = {
        "all": joint,
        "single": 1 + agents * (facts.num_actions - 1),
    }.get(score.actions, 1 + min(score.num_actions, joint - 1))
    tried += score.metric.endswith("_bins")
    number = q_rules.positions_per_round(cfg) * tried * score.rollouts
    per_env = facts.state_bytes + agents * (facts.obs_bytes + facts.num_actions + acting * WORD)
    return Part("scoring_bytes", "rollouts that score", number * per_env, f"{number:,} environments", exact=False)
