"""Gradients of groups: cases worked by hand through the training loss itself, and identities in both precisions."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import CFG, log_half, parts_of, rows, softmax

from hmx.algos.gradients.buckets import split
from hmx.algos.gradients.measures import Sums, measure
from hmx.algos.gradients.per_group import flat, gather, layers, make_group_gradients
from hmx.algos.gradients.probe import group_index, in_parts, part_width
from hmx.algos.ppo.gradients import COMPONENTS, GroupBatch, components, picked, ppo_sums
from hmx.algos.ppo.loss import policy_advantage, ppo_loss
from hmx.algos.sequences import PER_SEQUENCE, Batch, take_sequences
from hmx.config.fields import replace
from hmx.config.schema import NetConfig
from hmx.envs.protocol import EnvSpec
from hmx.nets import make_net
from hmx.rl.divergences import categorical_kl, kl_estimate

HYPERS = {"clip_eps": 0.2, "ent_coef": 0.01}
HALF = log_half()


@cache
def gradients_of(kl):
    return make_group_gradients(ppo_sums(parts_of(), kl))


def means(batch, params=None, kl="analytic", reference=None, **hypers):
    """Component -> mean loss and mean gradient with respect to the two logits and the value, of one group."""
    groups = jax.tree.map(lambda leaf: leaf[None], GroupBatch(batch, reference))
    found = gather(gradients_of(kl), softmax() if params is None else params, groups, (), {**HYPERS, **hypers}, chunk=8)
    n = float(batch.weight.sum())
    names = components(kl, reference is not None)
    return {name: (found.losses[0, c] / n, found.grads[0, c] / n) for c, name in enumerate(names)}


@pytest.mark.parametrize(
    ("actions", "advantages", "gradient"),
    [
        ((0, 1), (0.5, -0.5), (-0.25, 0.25)),  # action 0 is paid 1, action 1 nothing; centred
        ((0, 1), (0.5**0.5, -(0.5**0.5)), (-0.353553, 0.353553)),  # divided by the sample deviation, and so on
        ((0, 1), (1.0, -1.0), (-0.5, 0.5)),  # by the population deviation: larger by the root of 2
        ((0, 1), (0.0, 0.0), (0.0, 0.0)),  # no variance
        ((0, 0), (0.5, -0.5), (0.0, 0.0)),  # rewards of the same action cancel: the environment's doing
    ],
)
def test_group_of_two_matches_a_hand_calculation(actions, advantages, gradient):
    _, got = means(rows(actions, advantages, HALF))["task"]
    np.testing.assert_allclose(got[:2], gradient, atol=1e-6)
    assert got[2] == 0.0 and (any(gradient) or (got == 0.0).all())


@pytest.mark.parametrize(
    ("ratio", "advantage", "eps", "gradient"),
    [
        (1.3, 1.0, 0.2, 0.0),
        (1.3, -1.0, 0.2, 0.65),
        (0.7, 1.0, 0.2, -0.35),
        (0.7, -1.0, 0.2, 0.0),
        (1.25, 1.0, 0.2, 0.0),
        (1.25, 1.0, 0.28, -0.625),
    ],
)
def test_ratio_is_clipped(ratio, advantage, eps, gradient):
    _, got = means(rows([0], [advantage], HALF - np.log(ratio)), clip_eps=eps)["task"]
    np.testing.assert_allclose(got[:2], (gradient, -gradient), atol=1e-6)


def test_a_clipped_value_has_no_gradient():
    batch = rows([0], [0.0], HALF, target=1.0, value_old=0.0)
    loss, got = means(batch, softmax(v=0.5), clip_vf_eps=0.2)["value"]
    assert loss == pytest.approx(0.5 * 0.64)
    assert (got == 0.0).all()
    loss, got = means(batch, softmax(v=0.5))["value"]
    assert loss == pytest.approx(0.5 * 0.25)
    np.testing.assert_allclose(got, (0, 0, -0.5), atol=1e-7)


P3 = softmax((float(np.log(3.0)), 0.0))  # p = (.75, .25)
UNIFORM = jnp.zeros((1, 2, 2))


def test_entropy_and_divergence_at_three_to_one():
    found = means(rows([0, 1], 0.0, np.log([0.75, 0.25])), P3, reference=UNIFORM)
    loss, got = found["entropy"]
    assert loss == pytest.approx(-0.562335, abs=1e-6)
    np.testing.assert_allclose(got[:2], (0.205990, -0.205990), atol=1e-6)
    assert 0.01 * np.linalg.norm(got) == pytest.approx(0.00291314, abs=1e-8)
    loss, got = found["kl"]
    assert loss == pytest.approx(0.130812, abs=1e-6)
    np.testing.assert_allclose(got[:2], (0.205990, -0.205990), atol=1e-6)
    _, flat_top = means(rows([0, 1], 0.0, HALF))["entropy"]
    np.testing.assert_allclose(flat_top, 0.0, atol=1e-8)


@pytest.mark.parametrize(
    ("kind", "values", "expected_gradient", "batch_gradient", "own_gradient"),
    [
        ("k1", (0.405465, -0.693147), (0, 0), (-0.25, 0.25), (-0.25, 0.25)),
        ("k3", (0.072132, 0.306853), (0.25, -0.25), (0.416667, -0.416667), (0, 0)),
    ],
)
def test_estimates_of_the_divergence(kind, values, expected_gradient, batch_gradient, own_gradient):
    """The mean score is the gradient of k1 whatever the reference; k3 is 0 when there is nothing to do."""
    old = np.log([0.75, 0.25])
    for action, value in enumerate(values):
        loss, _ = means(rows([action], 0.0, old[action]), P3, kind, UNIFORM[:, :1])["kl"]
        assert loss == pytest.approx(value, abs=1e-6)
    loss, got = means(rows([0, 1], 0.0, old), P3, kind, UNIFORM)["kl"]
    np.testing.assert_allclose(got[:2], batch_gradient, atol=1e-6)
    _, got = means(rows([0, 0, 0, 1], 0.0, old[[0, 0, 0, 1]]), P3, kind, UNIFORM[:, [0] * 4])["kl"]
    np.testing.assert_allclose(got[:2], expected_gradient, atol=1e-6)
    alone = means(rows([0, 1], 0.0, old), P3, kind)
    if kind == "k3":
        assert "kl" not in alone
    else:
        np.testing.assert_allclose(alone["kl"][1][:2], own_gradient, atol=1e-6)


def test_loss_without_a_reference_has_no_kl_term():
    without = ("task", "entropy", "value")
    assert components("analytic", False) == components("k3", False) == without
    assert components("k1", False) == components("analytic", True) == COMPONENTS == ("task", "entropy", "kl", "value")
    found = means(rows([0, 1], (1.0, 0.0), np.log([0.75, 0.25]), target=1.0), P3)
    assert tuple(found) == without and all((gradient != 0).any() for _, gradient in found.values())


@pytest.mark.parametrize("x64", [False, True])
def test_divergence_from_itself_is_exactly_zero(x64):
    with jax.enable_x64(x64):
        logits = jnp.asarray(np.random.default_rng(0).normal(size=(50, 7)) * 3)
        legal = jnp.asarray(np.random.default_rng(1).random((50, 7)) < 0.6).at[:, 0].set(True)

        total = jax.jit(jax.value_and_grad(lambda z, other: categorical_kl(z, other, legal).sum()))
        value, gradient = total(logits, logits)
        assert value == 0.0
        assert (gradient == 0.0).all()
        other = logits + 0.1 * np.arange(7.0)[None]
        value, gradient = total(other, logits)
        p, q = (np.where(legal, np.exp(x - np.asarray(x).max()), 0.0) for x in (other, logits))
        p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
        log_ratio = np.where(legal, np.log(np.where(legal, p, 1.0)) - np.log(np.where(legal, q, 1.0)), 0.0)
        assert value == pytest.approx((p * log_ratio).sum(), rel=1e-4)
        by_hand = p * (log_ratio - (p * log_ratio).sum(-1, keepdims=True))
        np.testing.assert_allclose(gradient, by_hand, atol=1e-12 if x64 else 1e-6)


@pytest.mark.parametrize("x64", [False, True])
def test_gradient_of_k3_is_zero_for_equal_policies(x64):
    with jax.enable_x64(x64):
        log_prob = jnp.log(jnp.linspace(0.01, 0.99, 99))
        gradient = jax.jit(jax.grad(lambda x: kl_estimate(x, log_prob, "k3").sum()))(log_prob)
        assert (gradient == 0.0).all()


def test_a_gaussian_policy():
    """Nothing in the gradients is about actions: KL(N(.3, 1/e) || N(0, 1)), and an entropy that no state changes."""

    def sums(params, group):
        mu, log_sigma = params["mu"], params["log_sigma"]
        kl = 0.5 * (jnp.square(mu) + jnp.exp(2 * log_sigma) - 1) - log_sigma
        return jnp.stack([kl.sum() * group.shape[0], -0.01 * log_sigma.sum() * group.shape[0]]), ()

    several = make_group_gradients(sums)
    one = gather(several, {"log_sigma": jnp.array([-0.5]), "mu": jnp.array([0.3])}, jnp.zeros((1, 5)), chunk=8)
    assert one.losses[0, 0] / 5 == pytest.approx(0.228940, abs=1e-6)
    np.testing.assert_allclose(one.grads[0, 0] / 5, (-0.632121, 0.3), rtol=1e-5)
    four = gather(several, {"log_sigma": jnp.full(4, -1.0), "mu": jnp.zeros(4)}, jnp.zeros((3, 5)), chunk=8)
    np.testing.assert_allclose(np.linalg.norm(four.grads[:, 1], axis=-1) / 5, 0.02, rtol=1e-5)


SPEC = EnvSpec("toy", (3,), jnp.float32, 3, 1, 0, (), (), ())
COEFS = {"task": 1.0, "entropy": 0.01, "kl": 0.3, "value": 0.5}
BUCKETS = 3


NORMED = replace(CFG, {"ppo.norm_adv": True})


def frozen(batch):
    """Advantages normalised over these very rows."""
    ratio = jnp.ones_like(batch.advantage)
    normed = jax.jit(lambda rows: policy_advantage(NORMED.ppo, NORMED.algo.gamma, rows, ratio))
    return batch._replace(advantage=normed(batch))


def of_groups(whole, index, real):
    """A batch per group: leaves `[G, H, R, ...]`."""
    return jax.vmap(picked, (None, 0))(whole, (index, real))


class World:
    """Six groups of unequal sizes under a network with a common torso, in one precision."""

    def __init__(self, dtype):
        random = np.random.default_rng(0)
        n = 40
        net = make_net(NetConfig(kind="mlp", hidden=(8, 8), activation="tanh"), SPEC)
        init = jax.jit(net.init)
        first, other = (jax.tree.map(np.asarray, init(jax.random.key(seed))) for seed in (0, 1))
        self.params = jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(dtype) + dtype(0.1)), first)
        other = jax.tree.map(lambda leaf: jnp.asarray(leaf.astype(dtype)), other)
        self.parts = parts_of(NORMED, net)
        self.group = np.sort(random.integers(0, 6, n))
        obs = jnp.asarray(random.normal(size=(n, 3)), jnp.float32)
        unroll = jax.jit(lambda params: net.unroll(params, (), obs[None], jnp.ones((1, n), bool))[0].logits)
        log_probs = jax.jit(jax.nn.log_softmax)(unroll(self.params)[0])
        action = random.integers(0, 3, n)
        self.raw: Batch = rows(
            action, random.normal(size=n) + 0.5, np.asarray(log_probs)[np.arange(n), action],
            target=random.normal(size=n), num_actions=3, obs=obs,
        )  # fmt: skip
        self.batch = frozen(self.raw)
        self.reference = unroll(other)
        self.several = make_group_gradients(ppo_sums(self.parts, "analytic"))

    def groups(self, batch, group):
        index, real = group_index(batch, group, 6)
        return of_groups(GroupBatch(batch, self.reference), index, real)

    def gather(self, batch=None, group=None, chunk=8):
        groups = self.groups(self.batch if batch is None else batch, self.group if group is None else group)
        return gather(self.several, self.params, groups, (), HYPERS, chunk=chunk), np.asarray(groups.batch.weight)


@pytest.fixture(scope="module", params=[np.float64, np.float32], ids=["float64", "float32"])
def world(request):
    with jax.enable_x64(request.param is np.float64):
        yield World(request.param)


def tolerance(world):
    return 1e-13 if jax.tree.leaves(world.params)[0].dtype == np.float64 else 3e-6


def close(got, wanted, limit):
    assert np.linalg.norm(np.asarray(got, np.float64) - wanted) <= limit * np.linalg.norm(wanted)


def test_groups_add_up_to_the_gradient_of_the_training_loss(world):
    """Which normalises the advantages of its batch, while groups must not normalise what is frozen."""
    found, weight = world.gather()
    assert found.grads.dtype == jax.tree.leaves(world.params)[0].dtype
    n = weight.sum()
    assert n == 40
    loss = partial(ppo_loss, world.parts)
    grads, metrics = jax.jit(jax.grad(loss, has_aux=True))(world.params, (), HYPERS, world.raw)
    trained = {**COEFS, "kl": 0.0}
    total = sum(coef * found.grads[:, c].sum(0) for c, coef in enumerate(trained.values())) / n
    close(total, np.asarray(flat(grads)), tolerance(world))
    for c, (name, sign) in enumerate((("policy_loss", 1), ("entropy", -1), ("kl", 0), ("value_loss", 1))):
        if sign:
            value = metrics[f"train/{name}"]
            assert sign * found.losses[:, c].sum() / n == pytest.approx(
                float(value.total / value.count), rel=1e-5, abs=1e-6
            )


def test_weighted_buckets_add_up_and_unweighted_ones_do_not(world):
    found, weight = world.gather()
    steps = weight.sum((1, 2), dtype=np.float64)
    sums = Sums(found.losses, found.grads, steps, np.ones(6))
    buckets = split(np.array([0.3, 0.1, 0.6, 0.2, 0.9, 0.4]), BUCKETS)
    measured = measure(sums, buckets, COEFS, layers(world.params))
    for c, coef in enumerate(COEFS.values()):
        whole = coef * found.grads[:, c].sum(0, dtype=np.float64) / steps.sum()
        each = [coef * found.grads[list(b.groups), c].sum(0) / steps[list(b.groups)].sum() for b in buckets]
        close(sum(b.weight * g for b, g in zip(measured.buckets, each, strict=True)), whole, tolerance(world))
        assert np.linalg.norm(np.mean(each, axis=0) - whole) > 0.01 * np.linalg.norm(whole)


def test_normalising_advantages_per_bucket_changes_the_gradient(world):
    """Normalised per bucket, advantages would give another gradient of the same batch."""
    whole = world.gather()[0].grads[:, 0].sum(0)
    again = np.zeros_like(whole)
    index, real = group_index(world.batch, world.group, 6)
    for ids in ((0, 1), (2, 3), (4, 5)):
        inside = jnp.asarray(np.isin(world.group, ids)[None], world.batch.weight.dtype)
        bucket = frozen(world.raw._replace(weight=world.raw.weight * inside))
        groups = of_groups(GroupBatch(bucket, world.reference), index, real)
        again = again + gather(world.several, world.params, groups, (), HYPERS, chunk=8).grads[:, 0].sum(0)
    assert np.linalg.norm(again - whole) > 0.01 * np.linalg.norm(whole)


def test_heads_get_no_gradient_of_the_other_loss(world):
    found, _ = world.gather()
    places = {layer.name: layer.parts[0] for layer in layers(world.params)}
    assert list(places) == ["policy_head", "torso/dense_0", "torso/dense_1", "value_head"]
    for c, name in enumerate(COMPONENTS):
        stranger = "policy_head" if name == "value" else "value_head"
        first, end = places[stranger]
        assert (found.grads[:, c, first:end] == 0.0).all()
        first, end = places["torso/dense_0"]
        assert (found.grads[:, c, first:end] != 0.0).any()
    assert max(end for layer in layers(world.params) for _, end in layer.parts) == found.grads.shape[-1]


def test_gradient_before_an_update_is_the_plain_policy_gradient(world):
    found, _ = world.gather()
    assert float(found.aux.ratio_error.max()) < 1e-6
    assert float(found.aux.clip_frac.max()) == 0.0

    def plain(params):
        logits = world.parts.net.unroll(params, (), world.batch.obs, world.batch.reset)[0].logits
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), world.batch.action[..., None], axis=-1)[..., 0]
        return -(chosen * world.batch.advantage).sum()

    wanted = np.asarray(flat(jax.jit(jax.grad(plain))(world.params)))
    close(found.grads[:, 0].sum(0), wanted, max(tolerance(world), 1e-6))


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunk_size_does_not_change_gradients(world, chunk):
    one, other = world.gather()[0], world.gather(chunk=chunk)[0]
    assert other.grads.shape == one.grads.shape
    close(other.grads, one.grads, tolerance(world))
    np.testing.assert_allclose(other.aux.approx_kl, one.aux.approx_kl, atol=1e-9)


def test_groups_in_parts_have_the_same_gradients(world):
    index, real, owner = in_parts(*group_index(world.batch, world.group, 6), part_width(world.batch, 6))
    assert index.shape == real.shape == (len(owner), 4)  # 40 rows in 6 groups: 2.2 are a third of a mean group
    assert sorted(index[real]) == list(range(40)) and set(owner) == set(range(6))
    assert (world.group[index[real]] == np.repeat(owner[:, None], 4, axis=1)[real]).all()
    groups = of_groups(GroupBatch(world.batch, world.reference), index, real)
    found = gather(world.several, world.params, groups, (), HYPERS, chunk=8, owner=owner)
    whole, _ = world.gather()
    close(found.grads, whole.grads, tolerance(world))
    close(found.losses, whole.losses, tolerance(world))
    lone = in_parts(np.zeros((2, 3), int), np.array([[True] * 3, [False] * 3]), 2)
    assert lone[2].tolist() == [0, 0, 1]  # a group without rows is there all the same


def test_padding_does_not_change_gradients(world):
    """Rows of weight 0 are left out, and padding adds exact zeros."""
    pad = 7
    junk = take_sequences(world.batch, jnp.arange(pad), jnp.ones(pad))
    junk = jax.tree.map(lambda leaf: jnp.full_like(leaf, 3), junk)._replace(weight=jnp.zeros((1, pad)))
    padded = Batch(
        *(
            a if a is None or isinstance(a, tuple) else jnp.concatenate([a, b], axis=int(name not in PER_SEQUENCE))
            for name, a, b in zip(Batch._fields, world.batch, junk, strict=True)
        )
    )
    found, weight = world.gather(padded, np.concatenate([world.group, np.arange(pad) % 6]))
    alone, plain = world.gather()
    np.testing.assert_array_equal(weight, plain)
    np.testing.assert_array_equal(found.grads, alone.grads)
    np.testing.assert_array_equal(found.losses, alone.losses)
    groups = world.groups(world.batch, world.group)
    filler = np.asarray(groups.batch.weight) == 0.0
    assert filler.any()
    leaves = {
        name: jnp.where(filler.reshape(filler.shape + (1,) * (leaf.ndim - 3)), jnp.full_like(leaf, 2), leaf)
        for name, leaf in groups.batch._asdict().items()
        if name not in (*PER_SEQUENCE, "weight") and leaf is not None and not isinstance(leaf, tuple)
    }
    junk = gather(
        world.several, world.params, groups._replace(batch=groups.batch._replace(**leaves)), (), HYPERS, chunk=8
    )
    np.testing.assert_array_equal(junk.grads, alone.grads)
    np.testing.assert_array_equal(junk.losses, alone.losses)
