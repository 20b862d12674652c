"""Distributions over actions, discrete and continuous, behind one record."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hmx.rl import distributions, policies, tanh_normal

OUTPUT = jnp.array([[0.2, -0.5, 0.3, -1.0], [2.0, 0.1, 1.5, 0.0]])  # two states, two dimensions
NONE = jnp.ones((2, 0), bool)


def compiled(head):
    """A head whose functions are compiled: one program each, instead of one per operation."""
    return policies.PolicyHead(*map(jax.jit, head))


def key():
    return jax.random.key(0)


@pytest.fixture(params=["softplus", "param"])
def head(request):
    return policies.tanh_gaussian(2, request.param, 0.01)


def test_samples_follow_the_density(head):
    """The log-density integrates to the share of samples in a box of actions, and the mode is the mean."""
    head = compiled(head)
    outputs = jnp.broadcast_to(OUTPUT[:1, :], (200_000, 4))
    none = jnp.ones((200_000, 0), bool)
    raw = head.sample(key(), outputs, none)
    action = head.to_action(raw)
    assert action.shape == (200_000, 2) and float(jnp.abs(action).max()) <= 1.0
    low, high = jnp.array([[0.0, -0.6]]), jnp.array([[0.3, -0.2]])
    share = float(((action > low) & (action < high)).all(-1).mean())
    middle = (np.arange(100) + 0.5) / 100
    grid = np.stack(np.meshgrid(middle, middle), -1).reshape(-1, 2)
    cells = low + (high - low) * jnp.asarray(grid, jnp.float32)
    said = head.log_prob(outputs[:10_000], none[:10_000], jnp.arctanh(cells))
    area = float(jnp.prod(high - low)) / 10_000
    assert share == pytest.approx(float(jnp.exp(said).sum()) * area, rel=0.02)
    assert head.to_action(head.mode(OUTPUT, NONE))[0].tolist() == pytest.approx([math.tanh(0.2), math.tanh(-0.5)])


def test_three_entropies_match_quadrature():
    names = ("gaussian", "tanh_sample", "tanh_quadrature")
    kinds = {kind: compiled(policies.tanh_gaussian(2, entropy=kind)) for kind in names}
    exact = kinds["tanh_quadrature"].entropy(OUTPUT, NONE, key())
    assert bool((exact < kinds["gaussian"].entropy(OUTPUT, NONE, None)).all())
    largest = kinds["gaussian"].max_entropy(NONE)
    assert bool((exact < largest).all())
    assert largest.tolist() == pytest.approx([2 * math.log(2.0)] * 2), "uniform on the square of actions"
    keys = jax.random.split(key(), 20_000)
    sampled = jax.vmap(lambda k: kinds["tanh_sample"].entropy(OUTPUT, NONE, k))(keys)
    error = sampled.std(0) / math.sqrt(len(keys))
    assert bool((jnp.abs(sampled.mean(0) - exact) < 4.0 * error).all()) and float(error.max()) < 0.03
    # without a key an estimate gives its expectation
    np.testing.assert_array_equal(kinds["tanh_sample"].entropy(OUTPUT, NONE, None), exact)


def test_divergence_of_a_policy_from_another(head):
    """Against the mean of the log-ratio over samples; and of itself it is 0, with a gradient of exactly 0."""
    other = OUTPUT + jnp.array([[0.3, -0.1, 0.2, 0.1], [0.0, 0.2, -0.3, 0.0]])
    raw = jax.vmap(lambda k: head.sample(k, OUTPUT, NONE))(jax.random.split(key(), 50_000))
    ratio = jax.vmap(lambda r: head.log_prob(OUTPUT, NONE, r) - head.log_prob(other, NONE, r))(raw)
    np.testing.assert_allclose(head.kl(OUTPUT, other, NONE), ratio.mean(0), rtol=0.05, atol=0.01)
    value, grad = jax.value_and_grad(lambda o: head.kl(o, OUTPUT, NONE).sum())(OUTPUT)
    assert float(value) == 0.0
    assert not bool(grad.any())


@pytest.mark.parametrize("scale", [1.0, 40.0])
def test_values_are_finite_far_from_the_origin(scale):
    head = policies.tanh_gaussian(2, "softplus", 1e-3, "tanh_quadrature")
    raw = scale * jnp.array([[3.0, -3.0], [0.0, 5.0]])

    def everything(output):
        return (head.log_prob(output, NONE, raw) + head.entropy(output, NONE, None)).sum()

    value, grad = jax.jit(jax.value_and_grad(everything))(scale * OUTPUT)
    assert bool(jnp.isfinite(value)) and bool(jnp.isfinite(grad).all())


def test_the_squash_never_raises_the_density_of_a_raw_action():
    raw = jnp.linspace(-6.0, 6.0, 101)
    correction = tanh_normal.log_jacobian(raw)
    assert float(correction.max()) == 0.0 and int(correction.argmax()) == 50
    np.testing.assert_allclose(correction, jnp.log1p(-jnp.square(jnp.tanh(raw))), atol=2e-2, rtol=1e-3)


def test_discrete_actions_are_the_masked_categorical():
    head = policies.categorical()
    logits, legal = jnp.array([[0.3, 2.0, -1.0]]), jnp.array([[True, False, True]])
    action = head.sample(key(), logits, legal)
    assert head.to_action(action) is action
    assert head.log_prob(logits, legal, action) == distributions.log_prob(logits, legal, action)
    assert float(head.max_entropy(legal)[0]) == pytest.approx(math.log(2.0))
    assert head.probs(logits, legal).shape == (1, 3)
    assert head.std(logits).shape == (1, 0)
