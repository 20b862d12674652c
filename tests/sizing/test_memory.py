"""Memory computed without JAX against what JAX really builds, allocates and compiles."""

import math

import jax
import pytest

from hmx.config.fields import replace
from hmx.config.schema import ENV_IDS, EnvConfig, NetConfig, RewardWeights
from hmx.envs.registry import make_env
from hmx.nets import make_net
from hmx.registry.env_facts import env_facts
from hmx.registry.load import load
from hmx.rl.value_codec import make_codec
from hmx.runs.chunk import compile_chunk
from hmx.runs.session import open_session
from hmx.sizing.inputs import BatchInputs
from hmx.sizing.memory import buffer_memory, count_parameters, run_memory, value_width

ENVS = [EnvConfig(id=name) for name in ENV_IDS] + [
    EnvConfig(obs="flat"),
    EnvConfig(undo_depth=1),
    EnvConfig(undo_depth=9),
    EnvConfig(id="rendezvous", num_agents=5),
]
NETS = [
    NetConfig(),
    NetConfig(kind="mlp", hidden=(7,), layer_norm=True),
    NetConfig(shared_torso=False, cell_features=3, hidden=(5, 6)),
    NetConfig(shared_torso=False, value_hidden=(4, 3, 2), hidden=(5,), std="param"),
    NetConfig(rnn="gru", rnn_hidden=9, hidden=(11,)),
    NetConfig(rnn="lstm", rnn_hidden=8, shared_torso=False, layer_norm=True),
]
WITHIN = 1.5


def held(tree):
    leaves = [leaf for leaf in jax.tree.leaves(tree) if not jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)]
    return sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in leaves)


def key_shape(*batch):
    return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch) if batch else jax.random.key(0))


@pytest.mark.parametrize("cfg", ENVS, ids=lambda cfg: f"{cfg.id}-{cfg.obs}-{cfg.undo_depth}-{cfg.num_agents}")
def test_sizes_of_an_environment_match_the_built_one(cfg):
    facts, env = env_facts(cfg), make_env(cfg, RewardWeights())
    spec = env.spec
    obs = jax.ShapeDtypeStruct((1, *spec.obs_shape), spec.obs_dtype)
    assert facts.obs_size == math.prod(spec.obs_shape)
    assert facts.obs_bytes == held(jax.ShapeDtypeStruct(spec.obs_shape, spec.obs_dtype))
    assert facts.num_actions == spec.num_actions
    assert facts.features == (math.prod(jax.eval_shape(spec.decode, obs).shape) if spec.decode else facts.obs_size)
    assert bool(facts.decode) == bool(spec.decode)
    if spec.cells:
        scalars, cells = jax.eval_shape(spec.cells, obs)
        assert facts.board == (scalars.shape[1], *cells.shape[1:])
    else:
        assert facts.board is None
    state, _ = jax.eval_shape(env.reset, key_shape(6))
    assert facts.state_bytes * 6 == held(state)


@pytest.mark.parametrize("net", NETS, ids=lambda net: f"{net.kind}-{net.rnn}-{len(net.hidden)}")
@pytest.mark.parametrize(
    "env", [EnvConfig(), EnvConfig(obs="flat"), EnvConfig(id="rendezvous", num_agents=3), EnvConfig(id="pendulum")]
)
@pytest.mark.parametrize("target", ["symlog", "two_hot"])
def test_parameters_are_counted_exactly(env, net, target):
    spec, width = make_env(env, RewardWeights()).spec, value_width(target)
    made = jax.eval_shape(make_net(net, spec, width).init, key_shape())
    assert count_parameters(net, env_facts(env), width) * 4 == held(made)


@pytest.mark.parametrize("target", ["identity", "symlog", "return_norm", "two_hot"])
def test_value_head_has_the_width_of_its_codec(target):
    assert value_width(target) == make_codec(target).width


RECURRENT = [
    "env.id=rendezvous", "env.num_agents=2", "net.rnn=lstm", "net.rnn_hidden=16", "net.hidden=16", "env.num_envs=64",
    "algo.num_steps=32", "ppo.bptt_horizon=8", "run.updates_per_chunk=2",
]  # fmt: skip


CONTINUOUS = [
    "env.id=pendulum", "env.reset_on_done=first", "env.num_envs=64", "algo.num_steps=32", "ppo.bptt_horizon=8",
    "ppo.num_minibatches=8", "ppo.advantage_when=minibatch", "ppo.value_forward=both", "ppo.obs_norm=network",
    "net.shared_torso=false",
]  # fmt: skip


SEARCH = [  # sizes at which the search trees take most of the memory
    "env.id=frozenlake", "algo.name=gumbel", "gumbel.num_simulations=64", "env.num_envs=512", "net.hidden=16",
    "algo.num_steps=8",
]  # fmt: skip


@pytest.mark.parametrize(
    "sets",
    [["run.total_steps=4096", "run.eval_episodes=20"], RECURRENT, CONTINUOUS, SEARCH],
    ids=["mlp", "lstm", "continuous", "search"],
)
def test_total_matches_the_allocation_of_jax(sets):
    cfg = load(preset="tiny", sets=sets, environ={}).config
    session = open_session(cfg)
    chunk = compile_chunk(session.algorithm, session.abstract, session.sizes.updates_per_chunk)
    compiled = chunk.call.memory_analysis()
    memory = run_memory(cfg)
    parts = {part.key: part.bytes for part in memory.parts}
    # The arguments are the state, which is exact but for counters, the key and the hyperparameters.
    hypers = 4 * len(session.algorithm.hypers(0)) * session.sizes.updates_per_chunk
    assert 0 < compiled.argument_size_in_bytes - hypers - parts["previous_state_bytes"] < 30
    assert held(session.abstract) - parts["previous_state_bytes"] in range(8, 17)
    allocated = compiled.argument_size_in_bytes + compiled.temp_size_in_bytes
    assert allocated / WITHIN < memory.total_bytes < allocated * WITHIN


def test_later_starts_store_one_flag_per_environment():
    """The start states themselves exist during a rollout only."""
    plain = load(preset="tiny", sets=["env.id=hackmatrix"], environ={}).config
    cfg = replace(plain, {"starts.share": 0.5})
    kept, before = ({part.key: part.bytes for part in run_memory(c).parts} for c in (cfg, plain))
    abstract = open_session(cfg).abstract
    assert held(abstract) - kept["previous_state_bytes"] in range(8, 17)
    assert held(abstract.actors.episode.later) == kept["previous_state_bytes"] - before["previous_state_bytes"]
    drawn = kept["environment_bytes"] - before["environment_bytes"]
    assert drawn > cfg.env.num_envs * env_facts(cfg.env).state_bytes


@pytest.mark.parametrize("sets", [["run.num_seeds=2"], ["algo.name=dqn", "env.num_envs=8"]], ids=["ppo", "dqn"])
def test_activations_in_bfloat16_take_half_the_bytes(sets):
    plain = load(environ={}, sets=sets).config
    whole, half = (
        {part.key: part.bytes for part in run_memory(c).parts}
        for c in (plain, replace(plain, {"net.compute_dtype": "bfloat16"}))
    )
    assert half.pop("activation_bytes") * 2 == whole.pop("activation_bytes")
    assert half == whole


def test_seeds_multiply_all_but_the_count_of_parameters():
    one, three = (load(preset="tiny", sets=[f"run.num_seeds={n}"], environ={}).config for n in (1, 3))
    assert run_memory(three).total_bytes == 3 * run_memory(one).total_bytes
    assert run_memory(three).parameters == run_memory(one).parameters


def test_published_buffer_has_its_size():
    """The Metta geometry with 24 agents: 335.5 MB of buffer, 15.7 MB of LSTM state, 655 MB of activations."""
    memory = buffer_memory(BatchInputs(num_agents=24), 1_000_000)
    parts = {part.key: part.bytes for part in memory.parts}
    assert parts["obs_bytes"] + parts["scalar_bytes"] == 335_544_320
    assert parts["obs_bytes"] == 300 * 2**20
    assert parts["carry_bytes"] == 15_728_640
    assert parts["model_bytes"] == 16_000_000
    assert parts["minibatch_bytes"] == 9_830_400
    assert parts["activation_bytes"] == 655_360_000
    assert [part.key for part in memory.parts if not part.exact] == ["activation_bytes"]
    assert parts["obs_bytes_seed"] == 253_755_392
    counted = ("obs_bytes", "scalar_bytes", "model_bytes", "carry_bytes", "minibatch_bytes", "activation_bytes")
    assert memory.total_bytes == sum(parts[name] for name in counted)


def test_interval_changes_only_estimates():
    memory = buffer_memory(BatchInputs(), 5)
    (rough,) = (part.bytes for part in memory.parts if not part.exact)
    total = memory.total_bytes
    assert (memory.total_bytes_low, memory.total_bytes_high) == (total - rough // 2, total + rough)
