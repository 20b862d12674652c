"""Memory of Q-learning computed without JAX, against what JAX builds and compiles."""

import jax
import pytest

from hmx.config.fields import replace
from hmx.config.schema import EnvConfig, NetConfig, RewardWeights
from hmx.envs.registry import make_env
from hmx.nets import make_q_net
from hmx.registry.env_facts import env_facts
from hmx.registry.load import load
from hmx.runs.chunk import compile_chunk
from hmx.runs.session import open_session, state_bytes
from hmx.sizing.memory import count_q_parameters, largest_capacity, priority_bytes, q_memory, stored_bytes

SETS = ["algo.name=dqn", "env.num_envs=8", "algo.num_steps=4", "net.hidden=16", "run.total_steps=3200"]
SCORED = ["score.every=2", "score.transitions=8", "score.actions=single"]
CASES = {
    "lake": ["env.id=frozenlake", "replay.capacity=4096"],
    "team": ["env.id=rendezvous", "env.num_agents=3", "replay.capacity=5000", "replay.mixing=additive", *SCORED],
    "hackmatrix": ["replay.capacity=32", "dqn.learn_starts=32", "run.num_seeds=2", "dqn.dueling=true"],
}


@pytest.mark.parametrize("case", CASES)
def test_the_state_is_counted_exactly(case):
    cfg = load(environ={}, sets=[*SETS, *CASES[case]]).config
    session = open_session(cfg)
    parts = {part.key: part.bytes for part in q_memory(cfg).parts}
    # once more what is selected between two states, and what the buffer stores
    held = parts["previous_state_bytes"] + sum(
        parts[name] for name in ("replay_bytes", "replay_states_bytes", "overwritten_bytes")
    )
    # counters, scalars of the buffer, and the key
    assert 0 < state_bytes(session.abstract) - held < 100 * cfg.run.num_seeds
    replay = session.abstract.learner.replay
    slots = cfg.replay.capacity * cfg.run.num_seeds
    assert state_bytes(replay.items) + state_bytes(replay.env_states) == slots * stored_bytes(cfg)
    assert state_bytes(replay.forest) + 17 * slots == priority_bytes(cfg) * cfg.run.num_seeds


def test_total_matches_the_allocation_of_jax():
    cfg = load(environ={}, sets=[*SETS, *CASES["lake"], "run.updates_per_chunk=2"]).config
    session = open_session(cfg)
    chunk = compile_chunk(session.algorithm, session.abstract, 2)
    found = chunk.call.memory_analysis()
    allocated = found.argument_size_in_bytes + found.temp_size_in_bytes
    assert allocated / 1.5 < q_memory(cfg).total_bytes < allocated * 1.5
    # the buffer is written in place: a second copy of it would be most of what is held besides the state
    assert found.temp_size_in_bytes < 0.5 * cfg.replay.capacity * stored_bytes(cfg)


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("net", [NetConfig(), NetConfig(kind="mlp", hidden=(7, 5), layer_norm=True)])
def test_parameters_are_counted_exactly(net, dueling):
    env = EnvConfig()
    made = jax.eval_shape(make_q_net(net, make_env(env, RewardWeights()).spec, dueling).init, jax.random.key(0))
    assert count_q_parameters(net, env_facts(env), dueling) * 4 == state_bytes(made)


def test_largest_buffer_that_fits_is_found():
    cfg = load(environ={}, sets=[*SETS, *CASES["lake"]]).config
    free = q_memory(cfg).total_bytes
    assert largest_capacity(cfg, free) in (4096 - 8, 4096)
    tenth = largest_capacity(cfg, free // 10)
    assert tenth % 8 == 0 and q_memory(replace(cfg, {"replay.capacity": tenth})).total_bytes <= free // 10
    assert largest_capacity(cfg, 1000) == 0
