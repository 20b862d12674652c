"""What a run says about its memory, against what XLA allocates for the compiled updates."""

import jax
import jax.numpy as jnp
import pytest

from hmx.config.fields import replace
from hmx.registry.load import load
from hmx.runs import memory
from hmx.runs.checkpoint import state_bytes
from hmx.runs.chunk import compile_chunk
from hmx.runs.memory import fits, largest_size, memory_problem, run_memory
from hmx.runs.memory_parts import largest_fit
from hmx.runs.peak_bytes import carry_of, peak_bytes
from hmx.runs.session import open_session

DQN = ["algo.name=dqn", "env.num_envs=8", "algo.num_steps=4", "net.hidden=16", "run.total_steps=3200"]
CASES = {
    "mlp": ["run.total_steps=4096"],
    "several seeds": ["run.total_steps=4096", "run.num_seeds=3"],
    "lstm": [
        "env.id=rendezvous", "env.num_agents=2", "net.rnn=lstm", "net.rnn_hidden=16", "net.hidden=16",
        "env.num_envs=64", "algo.num_steps=32", "ppo.bptt_horizon=8", "run.updates_per_chunk=2",
    ],
    "continuous": [
        "env.id=pendulum", "env.reset_on_done=first", "env.num_envs=64", "algo.num_steps=32", "ppo.bptt_horizon=8",
        "ppo.num_minibatches=8", "ppo.advantage_when=minibatch", "ppo.value_forward=both", "ppo.obs_norm=network",
        "net.shared_torso=false",
    ],
    "search": [  # sizes at which the search trees take most of the memory
        "env.id=frozenlake", "algo.name=gumbel", "gumbel.num_simulations=64", "env.num_envs=512", "net.hidden=16",
        "algo.num_steps=8",
    ],
    "replay": [*DQN, "env.id=frozenlake", "replay.capacity=4096", "dqn.learn_starts=64", "run.updates_per_chunk=2"],
    "scoring": [
        *DQN, "env.id=rendezvous", "env.num_agents=3", "replay.capacity=5000", "replay.mixing=additive",
        "score.every=2", "score.transitions=8", "score.actions=single",
    ],
}  # fmt: skip


def session_of(*sets):
    preset = None if "algo.name=dqn" in sets else "tiny"
    return open_session(load(preset=preset, sets=sets, environ={}).config)


def bytes_of(session):
    return {part.key: part.bytes for part in run_memory(session).parts}


@pytest.fixture(scope="module")
def lake():
    return session_of(*CASES["replay"])


LARGE = [
    pytest.param(case, marks=pytest.mark.thorough)
    for case in ("lstm", "continuous", "several seeds", "search", "scoring")
]


@pytest.mark.parametrize("case", [*LARGE, "replay"])
def test_total_is_close_to_what_xla_allocates(case):
    session = session_of(*CASES[case])
    run = session.cfg.run
    chunk = compile_chunk(session.algorithm, session.abstract, session.sizes.updates_per_chunk, run.num_seeds)
    assert 0.75 < run_memory(session).total_bytes / chunk.memory_bytes < 1.15


def test_parts_of_the_state_are_exact_and_name_the_buffer(lake):
    parts = bytes_of(lake)
    update = parts.pop("update_bytes")
    assert sum(parts.values()) == state_bytes(lake.abstract)
    assert parts["replay_bytes"] == state_bytes(lake.abstract.learner.replay)
    # the buffer is written in place: a second copy of it would be most of what an update holds
    assert update < 0.5 * parts["replay_bytes"]


def test_seeds_multiply_the_state_but_not_the_count_of_parameters():
    one, three = (session_of(f"run.num_seeds={n}") for n in (1, 3))
    assert bytes_of(three)["model_bytes"] == 3 * bytes_of(one)["model_bytes"]
    assert run_memory(three).parameters == run_memory(one).parameters


def test_activations_in_bfloat16_take_fewer_bytes():
    whole, half = (session_of("net.hidden=256", f"net.compute_dtype={dtype}") for dtype in ("float32", "bfloat16"))
    assert bytes_of(half)["update_bytes"] < bytes_of(whole)["update_bytes"]
    assert bytes_of(half)["model_bytes"] == bytes_of(whole)["model_bytes"]


def test_largest_capacity_that_fits(lake):
    def needed(capacity):
        memory = run_memory(open_session(replace(lake.cfg, {"replay.capacity": capacity})))
        return memory.total_bytes_low

    free = needed(4096)
    assert largest_size(lake, "replay.capacity", free) == 4096
    half = largest_size(lake, "replay.capacity", free // 2)
    assert half % 8 == 0 and needed(half) <= free // 2 < needed(half + 64)
    assert largest_size(lake, "replay.capacity", 1000) == 0


@pytest.mark.parametrize(
    ("sets", "free", "words", "hint"),
    [
        (CASES["replay"], 500_000, "for replay", "--set replay.capacity="),
        ([], 30_000, "at least", "--num-envs 8"),
        (["env.num_envs=1000000000", "run.total_steps=16000000000"], 10**9, "at least 53,000,0", "--num-envs"),
        ([], 2_000, "at least", "reduce env.num_envs"),
    ],
    ids=["replay", "rollout", "not to be traced", "nothing fits"],
)
def test_a_run_that_does_not_fit_is_refused_with_a_size_that_does(monkeypatch, sets, free, words, hint):
    monkeypatch.setattr(memory, "free_memory", lambda: free)
    session = session_of(*sets)
    problem = memory_problem(session)
    assert not fits(session) and f"{free:,} free" in problem.message
    assert words in problem.message and problem.hint.startswith(hint)


def test_a_run_that_fits_or_whose_device_does_not_tell_is_accepted(monkeypatch):
    session = session_of()
    for free in (None, 10**9):
        monkeypatch.setattr(memory, "free_memory", lambda free=free: free)
        assert memory_problem(session) is None and fits(session)


def test_the_largest_value_of_a_linear_size():
    def needed(value):
        return 100 + 7 * value

    assert [largest_fit(needed, 1000, limit, lambda v: v // 4 * 4) for limit in (9000, 1000, 135, 127, 50)] == [
        1000, 128, 4, 0, 0,
    ]  # fmt: skip
    assert largest_fit(lambda value: 100, 10, 99, lambda v: v) == 0


def traced_bytes(function, *shapes, donated=0):
    traced = jax.jit(function).trace(*(jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes))
    return peak_bytes(traced.jaxpr, 0, donated)


def test_what_is_fused_takes_no_memory_and_what_is_dead_is_freed():
    square = (100, 100)
    size = 4 * 100 * 100
    assert traced_bytes(lambda a: jnp.abs(a * 2 + 1).sum(), square) == 4
    assert traced_bytes(lambda a: a * 2 + 1, square) == size
    assert traced_bytes(lambda a: a * 2 + 1, square, donated=1) == 0
    assert traced_bytes(lambda a: (a + 1) @ a, square) == 2 * size
    assert traced_bytes(lambda a: a @ a @ a @ a, square) == 2 * size
    assert traced_bytes(lambda a: jax.grad(lambda x: jnp.tanh(jnp.tanh(x @ x) @ x).sum())(a), square) >= 3 * size


def test_a_loop_holds_what_it_carries_once_and_what_it_stacks():
    def stacked(a):
        return jax.lax.scan(lambda carry, _: (carry + 1, carry), a, None, length=10)

    def carried(a):
        return jax.lax.fori_loop(0, 10, lambda _, carry: carry + 1, a)

    assert traced_bytes(carried, (1000,), donated=1) < 100
    assert 40_000 <= traced_bytes(stacked, (1000,), donated=1) < 49_000


class Parts(list):
    """The argument tree of a scan in JAX 0.11, as far as it is read."""

    def unpack(self):
        return tuple(self)


@pytest.mark.parametrize("params", [
    {"num_consts": 2, "num_carry": 3},
    {"ft_in": Parts([["constant"] * 2, ["carry"] * 3, ["input"]])},
], ids=["JAX 0.10", "JAX 0.11"])  # fmt: skip
def test_the_arguments_that_a_scan_carries_follow_its_constants(params):
    assert carry_of(params) == (2, 3)
