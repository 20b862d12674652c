"""Every way to represent a value: decoding undoes encoding, and the loss leads to the mean."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.rl.value_codec import make_codec, symexp, symlog, two_hot

NAMES = ("identity", "symlog", "return_norm", "two_hot")
BINS = jnp.array([-4.0, -1.0, 0.0, 1.0, 4.0])


def seen_stats(codec, targets):
    return codec.update_stats(codec.init_stats(), targets, jnp.ones_like(targets))


def test_symlog_round_trip():
    x = jnp.array([-8000.0, -1.0, 0.0, 0.5, 8000.0])
    np.testing.assert_allclose(symexp(symlog(x)), x, rtol=1e-5)
    np.testing.assert_allclose(symlog(jnp.array([np.e - 1, 1 - np.e])), [1.0, -1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("value", "weights"),
    [
        (0.0, [0, 0, 1, 0, 0]),
        (0.25, [0, 0, 0.75, 0.25, 0]),
        (-2.5, [0.5, 0.5, 0, 0, 0]),
        (9.0, [0, 0, 0, 0, 1]),
        (-4.0, [1, 0, 0, 0, 0]),
    ],
)
def test_two_hot_matches_a_hand_calculation(value, weights):
    np.testing.assert_allclose(two_hot(jnp.array([value]), BINS), [weights], atol=1e-6)


def test_descent_on_the_loss_of_symlog_finds_a_constant_target():
    codec, stats = make_codec("symlog"), ()
    target = jnp.full(3, 37.0)

    @jax.jit
    def descend(raw):
        gradient = jax.grad(lambda x: codec.loss(x, target, target, 0.0, stats).sum())(raw)
        return raw - 0.5 * gradient

    raw = jnp.zeros((3, codec.width))
    for _ in range(400):
        raw = descend(raw)
    np.testing.assert_allclose(codec.decode(raw, stats), 37.0, rtol=2e-2)


@pytest.mark.parametrize("name", ["identity", "return_norm", "two_hot"])
def test_mean_of_random_targets_is_learned_without_bias(name):
    """Symlog, which is not among them, learns the mean of the logarithms."""
    codec = make_codec(name)
    target = jnp.array([0.0, 0.0, 0.0, 400.0])
    stats = seen_stats(codec, target)

    @jax.jit
    def descend(raw):
        def loss(raw):
            return codec.loss(jnp.broadcast_to(raw, (4, codec.width)), target, target, 0.0, stats).mean()

        return raw - jax.grad(loss)(raw)

    raw = jnp.zeros((1, codec.width))
    for _ in range(800):
        raw = descend(raw)
    np.testing.assert_allclose(codec.decode(raw, stats), [100.0], rtol=2e-2)


def test_two_hot_starts_at_exactly_zero():
    codec = make_codec("two_hot")
    assert codec.decode(jnp.zeros((2, codec.width)), ()).tolist() == [0.0, 0.0]
    assert codec.head_gain == 0.0


@pytest.mark.parametrize("name", ["identity", "symlog", "return_norm"])
def test_clipping_is_in_value_units(name):
    """Beyond the clip range, and away from the target, there is no gradient; within it, there is."""
    codec = make_codec(name)
    stats = seen_stats(codec, jnp.array([0.0, 20.0, 80.0]))
    old = jnp.array([10.0])

    def slope(value, target):
        loss = lambda raw: codec.loss(raw, jnp.array([target]), old, 2.0, stats).sum()  # noqa: E731
        if name == "symlog":
            raw = symlog(jnp.array([[value]]))
        else:
            zero, one = (codec.decode(jnp.array([[x]]), stats)[0] for x in (0.0, 1.0))
            raw = (jnp.array([[value]]) - zero) / (one - zero)
        return float(jax.grad(loss)(raw)[0, 0])

    assert slope(13.0, 20.0) == 0.0
    assert slope(11.0, 20.0) < 0.0
    assert slope(13.0, 5.0) > 0.0


@pytest.mark.parametrize("name", NAMES)
def test_scheduled_clip_range_of_0_clips_as_little_as_a_fixed_one(name):
    codec, clip_eps = make_codec(name), 0.0
    target = jnp.array([0.0, 20.0, 80.0, -3.0])
    stats = seen_stats(codec, target)
    raw = jnp.linspace(-2.0, 5.0, 4 * codec.width).reshape(4, codec.width)
    old = codec.decode(raw, stats) + jnp.array([-5.0, 5.0, 0.5, 0.0])

    def loss(raw, clip_eps):
        return codec.loss(raw, target, old, clip_eps, stats).sum()

    fixed = jax.value_and_grad(lambda raw: loss(raw, clip_eps))(raw)
    traced = jax.jit(jax.value_and_grad(loss))(raw, clip_eps)
    for one, other in zip(fixed, traced, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_return_norm_statistics_match_the_targets_from_the_first_batch():
    codec = make_codec("return_norm")
    assert [float(x) for x in codec.init_stats().mean_and_scale()] == [0.0, 1.0]
    stats = seen_stats(codec, jnp.array([1.0, 3.0, 5.0]))
    mean, scale = stats.mean_and_scale()
    np.testing.assert_allclose([mean, scale], [3.0, np.sqrt(8 / 3)], rtol=1e-5)
    for _ in range(300):
        stats = codec.update_stats(stats, jnp.array([100.0, 102.0, jnp.nan]), jnp.array([1.0, 1.0, 0.0]))
    np.testing.assert_allclose([float(x) for x in stats.mean_and_scale()], [101.0, 1.0], rtol=1e-2)


def test_return_norm_rescales_the_head_without_changing_values():
    codec = make_codec("return_norm")
    old = seen_stats(codec, jnp.array([1.0, 3.0, 5.0]))
    new = codec.update_stats(old, jnp.array([1000.0, -200.0]), jnp.ones(2))
    head = {"kernel": jnp.array([[0.5], [-2.0]]), "bias": jnp.array([0.25])}
    hidden = jnp.array([[1.0, 2.0], [-3.0, 0.5]])

    def values(head, stats):
        return codec.decode(hidden @ head["kernel"] + head["bias"][None], stats)

    np.testing.assert_allclose(values(codec.rescale(head, old, new), new), values(head, old), rtol=1e-4)
