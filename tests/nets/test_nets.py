"""Networks: shapes, initialisation, and that the cells network is what it says it is."""

import re
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.config.schema import NetConfig
from hmx.errors import HmxError
from hmx.nets import make_net
from hmx.nets.layers import convolve


class Spec(NamedTuple):
    id: str = "test"
    obs_shape: tuple[int, ...] = (5,)
    obs_dtype: Any = jnp.float32
    num_actions: int = 3
    action_dim: int = 0
    decode: Any = None
    cells: Any = None
    value_only: int = 0
    policy_only: int = 0


SCALARS, CELLS, FEATURES = 3, 4, 5


def board_cells(obs):
    """Three scalars, then four cells of five features."""
    return obs[..., :SCALARS], obs[..., SCALARS:].reshape(*obs.shape[:-1], CELLS, FEATURES)


def compiled(cfg, spec, **options):
    """A network whose functions are compiled: one program each, instead of one per operation."""
    net = make_net(cfg, spec, **options)
    return net._replace(init=jax.jit(net.init), apply=jax.jit(net.apply), hidden=jax.jit(net.hidden))


def shapes(net):
    """The shapes and types of a network's parameters."""
    return jax.eval_shape(net.init, jax.random.key(0))


def apply(net, params, obs, obs_rank=1):
    """One step of a network without memory."""
    output, carry = net.apply(params, (), obs, jnp.zeros(obs.shape[: obs.ndim - obs_rank], bool))
    assert carry is None
    return output


BOARD = Spec("board", (SCALARS + CELLS * FEATURES,), num_actions=28, cells=board_cells)


@pytest.mark.parametrize(
    "cfg",
    [
        NetConfig(hidden=(8, 6), shared_torso=False, layer_norm=True, activation="tanh"),
        NetConfig(hidden=(8,), activation="silu"),
        NetConfig(hidden=(8,), activation="gelu"),
    ],
    ids=["separate", "silu", "gelu"],
)
def test_shapes_and_batch_axes(cfg):
    net = compiled(cfg, Spec(), value_width=2)
    params = net.init(jax.random.key(0))
    obs = jax.random.normal(jax.random.key(1), (4, 2, 5))
    out = apply(net, params, obs)
    assert (out.logits.shape, out.value_raw.shape) == ((4, 2, 3), (4, 2, 2))
    alone = apply(net, params, obs[1, 1])
    assert alone.logits.shape == (3,)
    np.testing.assert_allclose(alone.logits, out.logits[1, 1], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(alone.value_raw, out.value_raw[1, 1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(("board", "norm"), [(False, False), (True, True)], ids=["flat", "cells with layer norm"])
def test_bfloat16_rounds_hidden_layers_only(board, norm):
    spec = BOARD if board else Spec(obs_shape=(23,), num_actions=28)
    exact, rounded = (
        compiled(NetConfig(hidden=(32, 32), layer_norm=norm, compute_dtype=d), spec) for d in ("float32", "bfloat16")
    )
    params = exact.init(jax.random.key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(shapes(rounded))} == {jnp.dtype("float32")}
    obs = jax.random.normal(jax.random.key(1), (64, 23))
    want, got = apply(exact, params, obs), apply(rounded, params, obs)
    assert {got.logits.dtype, got.value_raw.dtype} == {jnp.dtype("float32")}
    error = jnp.abs(got.value_raw - want.value_raw)
    assert 1e-4 < error.max() < 0.05 * jnp.abs(want.value_raw).max()
    units = rounded.hidden(params, None, obs[None], jnp.zeros((1, 64), bool))
    assert {leaf.dtype for leaf in units} == {jnp.dtype("bfloat16")}
    # the heads compute in float32: rounding a float32 result to bfloat16 changes it
    assert (got.value_raw != got.value_raw.astype(jnp.bfloat16).astype(jnp.float32)).mean() > 0.5
    gradient = jax.jit(jax.grad(lambda p: apply(rounded, p, obs).value_raw.sum()))(params)
    assert {leaf.dtype for leaf in jax.tree.leaves(gradient)} == {jnp.dtype("float32")}


def test_separate_torsos_share_nothing():
    net = compiled(NetConfig(hidden=(8,), shared_torso=False), Spec())
    params = net.init(jax.random.key(0))
    gradient = jax.jit(jax.grad(lambda p: apply(net, p, jnp.ones((1, 5))).value_raw.sum()))(params)
    moved = {name for name, leaves in gradient.items() if any(bool(x.any()) for x in jax.tree.leaves(leaves))}
    assert moved == {"value_torso", "value_head"}


def test_features_of_one_reader_do_not_change_what_the_other_says():
    net = compiled(NetConfig(hidden=(8,), shared_torso=False), Spec(value_only=1, policy_only=2))
    params = net.init(jax.random.key(0))
    assert [params[name]["dense_0"]["kernel"].shape for name in ("torso", "value_torso")] == [(4, 8), (3, 8)]
    said = jax.jit(jax.jacobian(lambda obs: apply(net, params, obs)))(jnp.ones((5,)))
    assert said.logits[:, :4].any(0).all() and not said.logits[:, 4:].any()
    assert said.value_raw[:, 2:].all() and not said.value_raw[:, :2].any()


@pytest.mark.parametrize(
    ("side", "dtype", "kernels"),
    [
        (10, jnp.bool_, [(3, 3, 2, 16)]),
        (16, jnp.uint8, [(4, 4, 2, 32), (3, 3, 32, 32)]),
        (84, jnp.uint8, [(8, 8, 2, 32), (4, 4, 32, 64), (3, 3, 64, 64)]),
    ],
)
def test_images_are_read_by_convolutions_that_fit_their_size(side, dtype, kernels):
    cfg = NetConfig(kind="cnn", hidden=(8,), init="lecun_uniform")
    net = compiled(cfg, Spec(obs_shape=(side, side, 2), obs_dtype=dtype))
    params = net.init(jax.random.key(0))
    assert [layer["kernel"].shape for _, layer in sorted(params["torso_conv"].items())] == kernels
    obs = jax.random.bits(jax.random.key(1), (3, side, side, 2), jnp.uint8).astype(dtype)
    out = apply(net, params, obs, obs_rank=3)
    alone = apply(net, params, obs[1], obs_rank=3)
    np.testing.assert_allclose(alone.value_raw, out.value_raw[1], rtol=1e-4, atol=1e-6)
    if dtype == jnp.uint8:  # scaled: the same as numbers from 0 to 1
        np.testing.assert_allclose(apply(net, params, obs / 255.0, obs_rank=3).logits, out.logits, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("size", "side", "stride"), [((11, 9), 3, 1), ((12, 13), 4, 2), ((20, 23), 8, 4)])
def test_the_convolution_of_the_cpu_equals_that_of_xla(monkeypatch, size, side, stride):
    x = jax.random.normal(jax.random.key(0), (2, *size, 3))
    kernel = jax.random.normal(jax.random.key(1), (side, side, 3, 4))
    here = jax.jit(lambda *given: convolve(*given, stride))(x, kernel)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    there = jax.jit(lambda *given: convolve(*given, stride))(x, kernel)
    np.testing.assert_allclose(here, there, rtol=1e-4, atol=1e-4)


def test_auto_keeps_its_meaning_on_images_for_older_runs():
    net = make_net(NetConfig(hidden=(8,)), Spec(obs_shape=(4, 5, 2)))
    assert shapes(net)["torso"]["dense_0"]["kernel"].shape == (40, 8)


def test_a_cnn_refuses_observations_without_three_axes():
    with pytest.raises(HmxError, match=r"cnn reads images \[height, width, channels\], but test shows \[5\]"):
        make_net(NetConfig(kind="cnn"), Spec())


def test_initialisation_is_orthogonal_with_standard_gains():
    params = compiled(NetConfig(hidden=(16, 12)), Spec(obs_shape=(24,))).init(jax.random.key(0))
    kernels = [
        (np.sqrt(2), params["torso"]["dense_0"]["kernel"]),
        (np.sqrt(2), params["torso"]["dense_1"]["kernel"]),
        (0.01, params["policy_head"]["kernel"]),
        (1.0, params["value_head"]["kernel"]),
    ]
    for gain, kernel in kernels:
        np.testing.assert_allclose(kernel.T @ kernel, gain**2 * np.eye(kernel.shape[1]), atol=1e-5 * gain**2)
    assert not any(bool(params[name]["bias"].any()) for name in ("policy_head", "value_head"))


def test_a_value_head_of_gain_zero_starts_at_zero():
    net = compiled(NetConfig(hidden=(8,)), Spec(), value_width=7, value_gain=0.0)
    assert not apply(net, net.init(jax.random.key(0)), jnp.ones((2, 5))).value_raw.any()


def test_map_value_head_changes_the_value_only():
    net = compiled(NetConfig(hidden=(8,)), Spec())
    params = net.init(jax.random.key(0))
    obs = jnp.ones((2, 5))
    doubled = net.map_value_head(params, lambda head: jax.tree.map(lambda leaf: 2 * leaf, head))
    before, after = apply(net, params, obs), apply(net, doubled, obs)
    np.testing.assert_array_equal(after.logits, before.logits)
    np.testing.assert_allclose(after.value_raw, 2 * before.value_raw, rtol=1e-6)


def test_packed_observations_are_decoded_first():
    packed = Spec(
        obs_shape=(1,),
        obs_dtype=jnp.uint32,
        decode=lambda words: ((words >> jnp.arange(5, dtype=jnp.uint32)[None]) & 1).astype(jnp.float32),
    )
    cfg = NetConfig(hidden=(8,))
    net, flat = compiled(cfg, packed), compiled(cfg, Spec())
    params = net.init(jax.random.key(0))
    bits = jnp.array([[[1.0, 0.0, 1.0, 1.0, 0.0]]])
    np.testing.assert_array_equal(
        apply(net, params, jnp.array([[[13]]], jnp.uint32)).logits, apply(flat, params, bits).logits
    )


def test_auto_chooses_cells_if_available_and_a_perceptron_otherwise():
    assert "torso_cells" in shapes(make_net(NetConfig(hidden=(8,)), BOARD))
    assert "torso_cells" not in shapes(make_net(NetConfig(hidden=(8,), kind="mlp"), BOARD))
    assert "torso_cells" not in shapes(make_net(NetConfig(hidden=(8,)), Spec()))


def test_cells_need_a_board():
    with pytest.raises(HmxError) as error:
        make_net(NetConfig(kind="cells"), Spec(id="corridor"))
    assert "corridor" in error.value.message
    assert "mlp" in error.value.hint


@pytest.fixture(scope="module")
def cells():
    net = compiled(NetConfig(hidden=(8,), cell_features=4), BOARD)
    return net, net.init(jax.random.key(0))


def test_cells_equal_a_plain_implementation(cells):
    net, params = cells
    layer, dense = params["torso_cells"]["cell"], params["torso"]["dense_0"]
    x = np.asarray(jax.random.normal(jax.random.key(3), BOARD.obs_shape))
    seen = x[SCALARS:].reshape(CELLS, FEATURES) @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"])
    features = np.concatenate([x[:SCALARS], np.maximum(seen, 0).reshape(-1)])
    hidden = np.maximum(features @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"]), 0)
    value = hidden @ np.asarray(params["value_head"]["kernel"])
    np.testing.assert_allclose(apply(net, params, jnp.asarray(x)).value_raw, value, rtol=1e-4, atol=1e-5)


def test_several_seeds_never_use_a_batched_factorisation():
    # A batched QR can wait for ever on two cores, inside XLA: no test could tell that from a slow one.
    net = compiled(NetConfig(hidden=(8,), rnn="gru", rnn_hidden=6), Spec())
    keys = jax.random.split(jax.random.key(0), 3)
    factorised = re.findall(
        r"@lapack_sgeqrf_ffi\(.*?\) .*?: \(tensor<([0-9x]+)xf32>\)", jax.jit(jax.vmap(net.init)).lower(keys).as_text()
    )
    assert factorised and all(shape.count("x") == 1 for shape in factorised)
    drawn = jax.jit(jax.vmap(net.init))(keys)
    alone = [net.init(key) for key in keys]
    jax.tree.map(np.testing.assert_array_equal, drawn, jax.tree.map(lambda *leaves: jnp.stack(leaves), *alone))
