"""Networks with a memory: time unrolled equals step by step, and nothing is remembered across a reset."""

from functools import cache, partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import NetConfig
from hmx.envs.small.counting import make_counting
from hmx.nets import make_net

T, B, UNITS = 7, (3, 2), 6
SPEC = make_counting(0).spec._replace(obs_shape=(5,), num_actions=3)
RNNS = ("gru", "lstm")


def configure(rnn, **changes):
    return NetConfig(hidden=(8,), rnn=rnn, rnn_hidden=UNITS, activation="tanh", **changes)


class Setting:
    """A network with parameters, a row of observations, a memory that is not empty, and both ways to run it."""

    def __init__(self, rnn, shared=True):
        self.net = make_net(configure(rnn, shared_torso=shared), SPEC)
        self.params = jax.jit(self.net.init)(jax.random.key(0))
        self.obs = jax.random.normal(jax.random.key(1), (T, *B, 5))
        self.never = jnp.zeros((T, *B), bool)
        self.carry = jax.tree.map(
            lambda leaf: jax.random.normal(jax.random.key(2), leaf.shape), self.net.initial_carry(B)
        )
        self.unroll = jax.jit(self.net.unroll)
        self.apply = jax.jit(self.net.apply)


make_setting = cache(Setting)


@pytest.fixture(scope="module", params=RNNS)
def memory(request):
    return make_setting(request.param)


def assert_close(got, wanted):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), got, wanted)


@pytest.mark.parametrize(("rnn", "shared"), [("none", True), ("gru", False), ("lstm", True)])
def test_unrolled_equals_step_by_step(rnn, shared):
    s = make_setting(rnn, shared)
    reset = jax.random.bernoulli(jax.random.key(3), 0.3, (T, *B))
    outputs, last = s.unroll(s.params, s.carry, s.obs, reset)
    assert (outputs.logits.shape, outputs.value_raw.shape) == ((T, *B, 3), (T, *B, 1))
    carry = s.carry
    for t in range(T):
        output, carry = s.apply(s.params, carry, s.obs[t], reset[t])
        assert_close(output, jax.tree.map(lambda leaf, t=t: leaf[t], outputs))
    assert_close(carry, last)


def test_hidden_activations_have_every_layer_of_both_trunks():
    s = make_setting("gru", False)
    layers = jax.jit(s.net.hidden)(s.params, s.net.initial_carry(B), s.obs, s.never)
    rows = T * B[0] * B[1]
    assert sorted(layer.reshape(rows, -1).shape[-1] for layer in layers) == [UNITS, UNITS, 8, 8]
    assert all(jnp.abs(layer).max() <= 1.0 for layer in layers)  # after tanh
    assert set(s.params) == set(jax.jit(s.net.init)(jax.random.key(0))), "no activations among the parameters"


def test_initial_carry_counts_exactly_until_the_reset(memory):
    first_reset = np.array([[0, 2], [6, 1], [4, 99]])  # of each row; the last has none
    reset = jnp.asarray(np.arange(T)[:, None, None] == first_reset)
    other = jax.tree.map(lambda leaf: leaf + 1.0, memory.carry)
    a, b = (memory.unroll(memory.params, carry, memory.obs, reset)[0].logits for carry in (memory.carry, other))
    same = np.asarray((a == b).all(-1))
    np.testing.assert_array_equal(same, np.arange(T)[:, None, None] >= first_reset)


def test_reset_carry_equals_an_initial_one_bit_for_bit(memory):
    yes, no = jnp.ones(B, bool), jnp.zeros(B, bool)
    emptied = memory.apply(memory.params, memory.carry, memory.obs[0], yes)
    fresh = memory.apply(memory.params, memory.net.initial_carry(B), memory.obs[0], no)
    jax.tree.map(np.testing.assert_array_equal, emptied, fresh)
    kept = memory.apply(memory.params, memory.carry, memory.obs[0], no)
    assert (np.asarray(kept[0].logits) != np.asarray(fresh[0].logits)).all()


def test_gradients_flow_back_in_time_up_to_the_reset(memory):
    reset = memory.never.at[3, 0].set(True)

    def last_logits(obs, carry):
        return (memory.net.unroll(memory.params, carry, obs, reset)[0].logits[-1] ** 2).sum()

    by_obs, by_carry = jax.jit(jax.grad(last_logits, argnums=(0, 1)))(memory.obs, memory.carry)
    reached = np.asarray((by_obs != 0).any(-1))
    expected = np.ones((T, *B), bool)
    expected[:3, 0] = False
    np.testing.assert_array_equal(reached, expected)
    for leaf in jax.tree.leaves(by_carry):
        assert not leaf[0].any()
        assert (np.asarray(leaf[1:]) != 0).all()


def test_sequences_are_independent(memory):
    outputs, _ = memory.unroll(memory.params, memory.carry, memory.obs, memory.never)
    alone, carry = memory.unroll(
        memory.params,
        jax.tree.map(lambda leaf: leaf[1, 1], memory.carry),
        memory.obs[:, 1, 1],
        memory.never[:, 1, 1],
    )
    assert alone.logits.shape == (T, 3)
    assert {leaf.shape for leaf in jax.tree.leaves(carry)} == {(UNITS,)}
    assert_close(alone.logits, outputs.logits[:, 1, 1])


def reference_params(rnn, weights):
    """The parameters of `Memory` by the names of flax's own cells."""
    gates = "rzn" if rnn == "gru" else "ifgo"
    order = (1, 0, 2) if rnn == "gru" else (0, 1, 2, 3)  # where `gates` lie in our kernels

    def part(leaf, i):
        return leaf[..., order[i] * UNITS : (order[i] + 1) * UNITS]

    params = {}
    for i, gate in enumerate(gates):
        inputs = {name: part(leaf, i) for name, leaf in weights["input"].items()}
        recurrent = {"kernel": part(weights["kernel"], i)}
        if rnn == "lstm":  # flax puts the bias with the recurrent weights
            recurrent["bias"] = inputs.pop("bias")
        elif gate == "n":
            recurrent["bias"] = weights["bias"]
        params |= {f"i{gate}": inputs, f"h{gate}": recurrent}
    return {"params": params}


def test_cells_equal_those_of_flax(memory):
    rnn = "lstm" if len(memory.carry[0]) == 2 else "gru"
    weights = jax.tree.map(
        lambda leaf: leaf + jax.random.normal(jax.random.key(4), leaf.shape) / 2, memory.params["memory"]
    )
    params = {**memory.params, "memory": weights}
    cell = (nn.GRUCell if rnn == "gru" else nn.OptimizedLSTMCell)(UNITS)
    torso, head = params["torso"]["dense_0"], params["value_head"]
    x = jnp.tanh(memory.obs @ torso["kernel"] + torso["bias"].reshape(1, 1, 1, -1))
    begin = memory.carry[0][0] if rnn == "gru" else memory.carry[0]
    step = partial(cell.apply, reference_params(rnn, weights))
    hidden, shown = jax.jit(lambda *args: jax.lax.scan(step, *args))(begin, x)
    outputs, carry = memory.unroll(params, memory.carry, memory.obs, memory.never)
    assert_close(outputs.value_raw, shown @ head["kernel"])
    assert_close(carry, ((hidden,),) if rnn == "gru" else (hidden,))


def test_gates_start_orthogonal_and_the_lstm_remembering():
    for rnn, gates in (("gru", 3), ("lstm", 4)):
        weights = make_setting(rnn).params["memory"]
        kernels = np.split(np.asarray(weights["kernel"]), gates, axis=1)
        for kernel in kernels:
            np.testing.assert_allclose(kernel.T @ kernel, np.eye(UNITS), atol=1e-5)
        assert np.abs(kernels[0] - kernels[1]).max() > 0.1
        bias = np.zeros((gates, UNITS))
        bias[1] = 1.0 if rnn == "lstm" else 0.0
        np.testing.assert_array_equal(weights["input"]["bias"], bias.reshape(-1))


def test_separate_torsos_have_separate_carries():
    s = make_setting("gru", False)
    gradient = jax.jit(
        jax.grad(lambda p: (s.net.unroll(p, s.carry, s.obs, s.never)[0].value_raw ** 2).sum())
    )(s.params)  # fmt: skip
    moved = {name for name, leaves in gradient.items() if any(bool(x.any()) for x in jax.tree.leaves(leaves))}
    assert moved == {"value_torso", "value_memory", "value_head"}
    assert [leaf.shape for leaf in jax.tree.leaves(s.net.initial_carry((4, 2)))] == [(4, 2, UNITS)] * 2


def scans(jaxpr):
    return str(jaxpr).count(" scan[")


def test_feed_forward_networks_have_no_loop_and_recurrent_ones_have_one():
    for rnn, unrolled in (("none", 0), ("gru", 1), ("lstm", 1)):
        s = make_setting(rnn)
        assert scans(jax.make_jaxpr(s.net.unroll)(s.params, s.carry, s.obs, s.never)) == unrolled
        assert scans(jax.make_jaxpr(s.net.apply)(s.params, s.carry, s.obs[0], s.never[0])) == 0
    assert make_net(configure("none"), SPEC).initial_carry((4, 2)) is None
