"""Measures of given gradients: worked cases, identities, and estimates against a known truth."""

import numpy as np
import pytest

from hmx.algos.gradients.buckets import ALL, Bucket, group_advantages, reward_std, split
from hmx.algos.gradients.measures import TOTAL, Sums, clip_scale, crossfit, measure, noise_of
from hmx.algos.gradients.per_group import Layer

COEFS = {"task": 1.0, "entropy": 0.01, "kl": 0.0, "value": 0.5}
LAYERS = (Layer("torso", ((0, 3), (5, 6))), Layer("head", ((3, 5),)))


def random_sums(seed=0, groups=12, size=6, components=4):
    random = np.random.default_rng(seed)
    return Sums(
        losses=random.normal(size=(groups, components)),
        grads=random.normal(size=(groups, components, size)) + random.normal(size=(1, components, size)),
        steps=random.integers(1, 9, groups).astype(float),
        samples=np.full(groups, 2.0),
    )


def one_component(grads, steps=None):
    """Gradient sums `[n, P]` of a single component of coefficient 1."""
    grads = np.asarray(grads, float)
    steps = np.ones(len(grads)) if steps is None else np.asarray(steps, float)
    return Sums(np.zeros((len(grads), 1)), grads[:, None], steps, np.ones(len(grads)))


def whole_of(grads, steps=None):
    return measure(one_component(grads, steps), (), {"task": 1.0}, ()).whole.components["task"]


@pytest.fixture(scope="module")
def measured():
    sums = random_sums()
    return sums, measure(sums, split(np.arange(1.0, 13.0), 5), COEFS, LAYERS)


def test_buckets_are_weighted_by_steps():
    """Buckets of 10 and 30 steps: the whole is (.25, .75), not the mean (.5, .5), and shares are .1 and .9."""
    sums = one_component([(10.0, 0.0), (0.0, 30.0)], steps=(10, 30))
    found = measure(sums, (Bucket("a", (0,)), Bucket("b", (1,))), {"task": 1.0}, ())
    assert [b.weight for b in found.buckets] == [0.25, 0.75]
    assert [b.components["task"].norm for b in found.buckets] == [1.0, 1.0]
    assert [b.share for b in found.buckets] == pytest.approx([0.1, 0.9])
    assert found.whole.components["task"].norm == pytest.approx(np.hypot(0.25, 0.75))
    assert found.cos["task"]["a"]["b"] == 0.0


@pytest.mark.parametrize("groups", [16, 48])
def test_norms_do_not_depend_on_the_size_of_a_bucket(groups):
    """Equal samples of ten steps each: .353553 however many, where averaged minibatch norms would give .177 or .265."""
    each = np.array([-0.25, 0.25]) * 10
    part = whole_of(np.tile(each, (groups, 1)), np.full(groups, 10))
    assert part.norm == pytest.approx(0.353553, abs=1e-6)
    assert part.error == pytest.approx(0.0, abs=1e-9)
    assert part.noise.trace == pytest.approx(0.0, abs=1e-12)


def test_buckets_sum_to_the_total(measured):
    sums, found = measured
    weights = np.array([b.weight for b in found.buckets])
    assert weights.sum() == pytest.approx(1.0)
    for c, (name, coef) in enumerate(COEFS.items()):
        full = coef * sums.grads[:, c].sum(0) / sums.steps.sum()
        per_bucket = [
            coef * sums.grads[list(b.groups), c].sum(0) / sums.steps[list(b.groups)].sum() for b in found.buckets
        ]
        np.testing.assert_allclose(weights @ np.array(per_bucket), full, rtol=1e-12, atol=1e-15)
        assert found.whole.components[name].norm == pytest.approx(np.linalg.norm(full), rel=1e-12)
        if coef:  # buckets of unequal steps must not be averaged as if they were equal
            assert not np.allclose(np.mean(per_bucket, axis=0), full, rtol=0.01)
        for bucket, g in zip(found.buckets, per_bucket, strict=True):
            assert bucket.components[name].norm == pytest.approx(np.linalg.norm(g), rel=1e-12)


def test_shares_add_up(measured):
    _, found = measured
    assert sum(b.share for b in found.buckets) == pytest.approx(1.0, rel=1e-12)
    for bucket in (*found.buckets, found.whole):
        assert sum(bucket.components[name].share for name in COEFS) == pytest.approx(1.0, rel=1e-12)
        assert bucket.components[TOTAL].share == pytest.approx(1.0)
        assert sum(bucket.components[name].loss for name in COEFS) == pytest.approx(bucket.components[TOTAL].loss)
    assert found.whole.share == pytest.approx(1.0)


def test_the_total_is_the_sum_of_components_as_vectors(measured):
    """So its square is the sum of all pairwise products, and its norm obeys the triangle inequality only."""
    _, found = measured
    for bucket in (*found.buckets, found.whole):
        norms = {name: bucket.components[name].norm for name in COEFS}
        square = sum(norms[a] * norms[b] * (1.0 if a == b else bucket.cos[a][b] or 0.0) for a in COEFS for b in COEFS)
        assert bucket.components[TOTAL].norm == pytest.approx(np.sqrt(square), rel=1e-9)
        assert bucket.components[TOTAL].norm < sum(norms.values())


def test_layers_add_up(measured):
    _, found = measured
    for bucket in (*found.buckets, found.whole):
        for part in bucket.components.values():
            assert np.hypot(*part.layers.values()) == pytest.approx(part.norm, rel=1e-12)
            assert set(part.layers) == {"torso", "head"}


def test_a_component_of_weight_0_keeps_its_raw_norm(measured):
    sums, found = measured
    part = found.whole.components["kl"]
    assert (part.norm, part.share, part.cos_all, part.loss) == (0.0, 0.0, None, 0.0)
    assert part.raw == pytest.approx(np.linalg.norm(sums.grads[:, 2].sum(0)) / sums.steps.sum())
    twice = measure(sums, (), {**COEFS, "entropy": 0.02}, LAYERS).whole.components["entropy"]
    once = found.whole.components["entropy"]
    assert (twice.norm, twice.raw) == (pytest.approx(2 * once.norm), once.raw)
    assert found.whole.components[TOTAL].raw is None


def test_norms_per_sample_and_per_step(measured):
    sums, found = measured
    for bucket in found.buckets:
        part = bucket.components["task"]
        total = np.linalg.norm(sums.grads[list(bucket.groups), 0].sum(0))
        assert part.sum_norm == pytest.approx(total)
        assert part.per_sample == pytest.approx(total / (2 * len(bucket.groups)))
        assert part.norm == pytest.approx(total / bucket.steps)


def test_single_bucket_is_the_total_and_the_total_does_not_depend_on_buckets():
    sums = random_sums()
    one = measure(sums, split(np.ones(12), 1), COEFS, LAYERS)
    assert one.buckets[0].components == one.whole.components
    assert measure(sums, split(np.arange(1.0, 13.0), 4), COEFS, LAYERS).whole == one.whole
    assert one.whole.name == ALL


def test_permuting_groups_changes_only_their_ids(measured):
    sums, found = measured
    order = np.random.default_rng(3).permutation(12)
    moved = Sums(sums.losses[order], sums.grads[order], sums.steps[order], sums.samples[order])
    again = measure(moved, split(np.arange(1.0, 13.0)[order], 5), COEFS, LAYERS)
    for a, b in zip(found.buckets, again.buckets, strict=True):
        assert sorted(a.groups) == sorted(int(order[g]) for g in b.groups)
        for name, part in a.components.items():
            other = b.components[name]
            np.testing.assert_allclose(
                [part.norm, part.error, part.noise.trace, part.noise.signal],
                [other.norm, other.error, other.noise.trace, other.noise.signal],
                rtol=1e-9,
                atol=1e-15,
            )


def test_noise_scale_matches_a_hand_calculation():
    noise = whole_of([(3, 0), (1, 0), (2, 1), (2, -1)]).noise
    assert noise.trace == pytest.approx(4 / 3)
    assert noise.signal == pytest.approx(11 / 3)
    assert noise.theta == pytest.approx(0.288675, abs=1e-6)
    assert (noise.scale, noise.snr, noise.flag) == (None, None, "fewer than 8 groups")
    assert noise.groups == 4
    # four copies of each group: the same mean, and enough groups to say so
    noise = whole_of([(3, 0), (1, 0), (2, 1), (2, -1)] * 4).noise
    assert noise.trace == pytest.approx(16 / 15)
    assert noise.scale == pytest.approx(noise.trace / noise.signal)
    assert noise.snr == pytest.approx(16 * noise.signal / noise.trace)
    assert noise.flag == ""


@pytest.mark.parametrize(
    ("grads", "trace", "signal"), [([(1, 0), (1, 0), (0, 1), (0, -1)], 1, 0), ([(1, 0), (-1, 0)], 2, -1)]
)
def test_noise_without_signal_is_flagged(grads, trace, signal):
    noise = whole_of(grads).noise
    assert (noise.trace, noise.signal) == (pytest.approx(trace), pytest.approx(signal, abs=1e-12))
    assert (noise.scale, noise.snr) == (None, None)
    noise = whole_of([(1, 0), (-1, 0)] * 4).noise
    assert (noise.scale, noise.snr, noise.flag) == (None, None, "no signal")


def test_one_group_has_no_noise_estimate():
    part = whole_of([(3.0, 4.0)])
    assert part.norm == 5.0
    assert part.error is None
    assert (part.noise.scale, part.noise.signal, part.noise.theta) == (None, None, None)


def test_the_trace_is_the_sample_covariance():
    sums = random_sums(groups=9)
    part = measure(sums, (), COEFS, LAYERS).whole.components["task"]
    scaled = sums.grads[:, 0] * 9 / sums.steps.sum()
    direct = np.square(scaled - scaled.mean(0)).sum() / 8
    assert part.noise.trace == pytest.approx(direct, rel=1e-12)


def test_noise_scale_of_a_known_gradient():
    """True gradient (1, 0, ...) with covariance trace 50: a scale of 50 groups, which 200 batches of 64 must find."""
    random = np.random.default_rng(0)
    found = []
    for _ in range(200):
        grads = random.normal(size=(64, 25)) * np.sqrt(2.0)
        grads[:, 0] += 1.0
        squares = np.square(grads).sum(1)
        found.append(noise_of(np.ones(64), squares, float(np.square(grads.sum(0)).sum())))
    assert np.mean([noise.signal for noise in found]) == pytest.approx(1.0, abs=0.05)
    assert np.mean([noise.trace for noise in found]) == pytest.approx(50.0, rel=0.02)
    assert np.median([noise.scale for noise in found]) == pytest.approx(50.0, rel=0.15)


def test_interval_is_students_t_around_the_norm():
    part = measure(random_sums(groups=8), (), COEFS, LAYERS).whole.components["task"]
    low, high = part.interval
    assert (low + high) / 2 == pytest.approx(part.norm)
    assert (high - low) / 2 == pytest.approx(2.3646 * part.error, rel=1e-4)  # t with 7 degrees of freedom
    assert whole_of([(3.0, 4.0)]).interval is None


def test_standard_error_covers_the_true_value():
    """Of norms of means of 16 groups about a gradient of norm 5, 95 % lie within 2.13 errors of it."""
    random = np.random.default_rng(1)
    hits = 0
    for _ in range(400):
        part = whole_of(random.normal(size=(16, 3)) + np.array([3.0, 4.0, 0.0]))
        hits += abs(part.norm - 5.0) < 2.131 * part.error
    assert 0.91 < hits / 400 < 0.98


def test_clip_scale(measured):
    _, found = measured
    norm = found.whole.components[TOTAL].norm
    assert clip_scale(found, norm / 2) == pytest.approx(0.5)
    assert clip_scale(found, norm * 2) == 1.0
    assert clip_scale(found, 0.0) == 1.0


def bandit(random, groups, members, by_action=True):
    """Sums of the two-action bandit at even odds: action 0 pays 1, or a coin does; advantages centred per half.

    Returns the in-sample sums and deviations, and those of both halves of each group.
    """
    actions = random.integers(0, 2, (groups, members))
    reward = 1.0 - actions if by_action else random.integers(0, 2, (groups, members)).astype(float)

    def sums_of(columns):
        r, a = reward[:, columns], actions[:, columns]
        advantage = r - r.mean(1, keepdims=True)
        score = np.where((a == 0)[..., None], [0.5, -0.5], [-0.5, 0.5])
        grads = -(advantage[..., None] * score).sum(1)
        count = np.full(groups, float(r.shape[1]))
        return Sums(np.zeros((groups, 1)), grads[:, None], count, count), r.std(1, ddof=1)

    half = members // 2
    return sums_of(slice(None)), [sums_of(slice(0, half)), sums_of(slice(half, None))]


def test_ranking_by_own_rewards_makes_a_trend_and_crossfit_does_not():
    """4,000 groups that differ at random only."""
    coefs = {"task": 1.0}
    (sums, std), halves = bandit(np.random.default_rng(0), 4000, 8)
    in_sample = [b.components["task"].norm for b in measure(sums, split(std, 4, own_zero=False), coefs, ()).buckets]
    np.testing.assert_allclose(in_sample, [0.231, 0.321, 0.333, 0.354], atol=0.02)
    assert in_sample == sorted(in_sample)
    scores = np.stack([std for _, std in halves])
    crossed = crossfit([sums for sums, _ in halves], scores, 4, coefs, own_zero=False)
    flat = [crossed[f"bucket_{i}"]["task"] for i in range(1, 5)]
    np.testing.assert_allclose(flat, 0.265, atol=0.01)
    assert max(flat) - min(flat) < 0.1 * (max(in_sample) - min(in_sample))


def test_norm_grows_with_the_square_of_the_standard_deviation():
    """Four members, n of which succeed: centred advantages give .75 s^2, those divided by s give .75 s, on the dot."""
    for successes, norm, scaled in (
        (0, 0, 0),
        (1, 0.265165, 0.530330),
        (2, 0.353553, 0.612372),
        (3, 0.265165, 0.530330),
    ):
        returns = np.array([[1.0] * successes + [0.0] * (4 - successes)])
        score = np.where(returns[..., None] == 1.0, np.array([0.5, -0.5]), np.array([-0.5, 0.5]))
        std = reward_std(returns)[0]
        for divided, expected, power in ((False, norm, 2), (True, scaled, 1)):
            grad = -(group_advantages(returns, divided)[..., None] * score).sum(1)
            assert whole_of(grad, [4.0]).norm == pytest.approx(expected, abs=1e-6)
            assert whole_of(grad, [4.0]).norm == pytest.approx(0.75 * std**power * np.sqrt(2.0), abs=1e-9)


def test_random_rewards_have_variance_and_no_signal():
    """The same deviations as before, and only the noise scale tells."""
    coefs = {"task": 1.0}
    (sums, std), _ = bandit(np.random.default_rng(1), 400, 8, by_action=False)
    whole = measure(sums, split(std, 4), coefs, ()).whole.components["task"]
    (real, real_std), _ = bandit(np.random.default_rng(1), 400, 8)
    signal = measure(real, split(real_std, 4), coefs, ()).whole.components["task"]
    assert std.mean() == pytest.approx(real_std.mean(), rel=0.05)
    assert signal.noise.snr > 1000
    assert whole.noise.snr is None or whole.noise.snr < 10
    assert whole.norm < 0.1 * signal.norm
