"""Advantages against cases worked by hand, against reference numbers (float64), and their own laws."""

import json
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hmx.rl.advantages import bootstraps, gae, normalise, variant_gae, vtrace_gae

GAE_CASES = json.loads((Path(__file__).parent / "reference_cases.json").read_text())["gae"]
CASES = json.loads((Path(__file__).parent / "advantage_cases.json").read_text())
CLOSE = {"rtol": 1e-5, "atol": 1e-6}
RHO_CLIP, C_CLIP = 1.2, 0.9
GAMMA, LAMBDA = 0.9, 0.8
T, ROWS = 5, 3

# As one program for each shape: operation by operation, each would be compiled for itself.
compiled_vtrace = jax.jit(vtrace_gae)
compiled_variant = jax.jit(variant_gae, static_argnames=("episode_end", "form"))
compiled_bootstraps = jax.jit(bootstraps)
estimate = jax.jit(partial(vtrace_gae, gamma=GAMMA, rho_clip=RHO_CLIP, c_clip=C_CLIP))
plain = jax.jit(partial(gae, gamma=GAMMA, gae_lambda=LAMBDA))


def run_gae(case):
    """From the reference's `next_values` to what a rollout stores: the value after it, and of final observations."""
    arrays = {name: np.asarray(case[name], np.float32) for name in ("rewards", "values", "next_values")}
    terminated, truncated = (np.asarray(case[name], bool) for name in ("terminated", "truncated"))
    return gae(
        reward_tp1=jnp.asarray(arrays["rewards"]),
        value_t=jnp.asarray(arrays["values"]),
        value_last=jnp.asarray(arrays["next_values"][-1]),
        value_final_tp1=jnp.asarray(np.where(truncated, arrays["next_values"], np.nan), jnp.float32),
        terminated_tp1=jnp.asarray(terminated),
        truncated_tp1=jnp.asarray(truncated),
        gamma=case["gamma"],
        gae_lambda=case["gae_lambda"],
    )


@pytest.mark.parametrize("case", GAE_CASES, ids=lambda case: case["id"])
def test_results_match_reference_numbers(case):
    got = run_gae(case)
    np.testing.assert_allclose(got.advantage_t, case["advantages"], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(got.target_t, np.add(case["advantages"], case["values"]), rtol=1e-5, atol=1e-5)


def by_hand(terminated, truncated):
    """gamma = lambda = 1/2, so that every number below is exact in float32."""
    return gae(
        jnp.array([1.0, 2.0, 4.0]),
        jnp.array([0.5, 1.0, 2.0]),
        jnp.float32(8.0),
        jnp.array([0.0, 16.0, 0.0]),
        jnp.array(terminated),
        jnp.array(truncated),
        0.5,
        0.5,
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "advantage"),
    [
        # delta = 1 + .5*1 - .5 = 1,  2 + .5*2 - 1 = 2,  4 + .5*8 - 2 = 6; trace 1/4
        ([False] * 3, [False] * 3, [1 + 3.5 / 4, 2 + 6 / 4, 6.0]),
        # the second step terminates: delta = 2 - 1 = 1, nothing after it counts
        ([False, True, False], [False] * 3, [1 + 1 / 4, 1.0, 6.0]),
        # the second step is cut: delta = 2 + .5*16 - 1 = 9 from the final observation's value
        ([False] * 3, [False, True, False], [1 + 9 / 4, 9.0, 6.0]),
        # the last step terminates: the value after the rollout must not leak in
        ([False, False, True], [False] * 3, [1 + 2.5 / 4, 2 + 2 / 4, 2.0]),
    ],
)
def test_results_match_a_hand_calculation(terminated, truncated, advantage):
    got = by_hand(terminated, truncated)
    np.testing.assert_array_equal(got.advantage_t, np.float32(advantage))
    np.testing.assert_array_equal(got.target_t, np.float32(advantage) + np.float32([0.5, 1.0, 2.0]))


def reference(*kinds):
    cases = [case for kind in kinds for case in CASES[kind]]
    return pytest.mark.parametrize("case", cases, ids=lambda case: case["id"])


def arrays(case, *names):
    return (jnp.asarray(case["inputs"][name], jnp.float32) for name in names)


def numbers(case, *names):
    return {name: case["inputs"][name] for name in names}


def check(got, case, advantages="advantages", targets="returns"):
    np.testing.assert_allclose(got.advantage_t, case["expected"][advantages], **CLOSE)
    np.testing.assert_allclose(got.target_t, case["expected"][targets], **CLOSE)


@reference("brax_gae")
def test_advantages_of_brax(case):
    reward, value, last = arrays(case, "rewards", "values", "bootstrap_value")
    ends = arrays(case, "termination", "truncation")
    following = jnp.concatenate([value[1:], last[None]])
    hyper = numbers(case, "gamma", "gae_lambda")
    got = compiled_variant(reward, value, following, *ends, **hyper, episode_end="mask", form="brax")
    check(got, case, targets="vs")


@reference("segment_vtrace", "one_more_slot")
def test_vtrace_of_a_segment_buffer(case):
    """Slot t of the buffer holds the reward and the done that arrived with observation t, as in PufferLib and Metta."""
    value, reward, done, ratio = (array.T for array in arrays(case, "values", "rewards", "dones", "ratio"))
    bootstrap = jnp.where(done[1:], 0.0, value[1:])
    hyper = numbers(case, "gamma", "gae_lambda", "rho_clip", "c_clip")
    steps = len(value) - 1
    got = compiled_vtrace(ratio[:steps], reward[1:], value[:-1], bootstrap, done[1:], 0.0, **hyper)
    expected = case["expected"]
    np.testing.assert_allclose(got.advantage_t, np.transpose(expected["advantages"])[:steps], **CLOSE)
    np.testing.assert_allclose(got.target_t, np.transpose(expected["returns"])[:steps], **CLOSE)


@reference("impala_vtrace")
def test_value_targets_of_impala(case):
    ratio, reward, value, last, done = arrays(case, "ratio", "rewards", "values", "bootstrap_value", "terminations")
    bootstrap = compiled_bootstraps(value, last, value, done, jnp.zeros_like(done))
    hyper = numbers(case, "gamma", "gae_lambda", "rho_clip", "c_clip")
    check(compiled_vtrace(ratio, reward, value, bootstrap, done, 0.0, **hyper), case, "vs_minus_values", "vs")


@reference("normalise")
def test_normalise_leaves_masked_elements_out_of_mean_and_standard_deviation(case):
    (advantage,) = arrays(case, "advantages")
    eps = case["inputs"]["eps"]
    np.testing.assert_allclose(normalise(advantage, eps=eps), case["expected"]["ddof0_all"], **CLOSE)
    counts = jnp.ones_like(advantage).at[:, -1].set(0.0)
    expected = case["expected"]["ddof0_stats_without_last_slot"]
    np.testing.assert_allclose(normalise(advantage, counts, eps), expected, **CLOSE)


# Laws, on small random rollouts of one shape, so that each function is compiled once.


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**31))
def test_environments_are_independent(seed):
    draw = np.random.default_rng(seed)
    reward, value, final = (jnp.asarray(draw.normal(size=(7, 4, 2)), jnp.float32) for _ in range(3))
    ended = draw.integers(0, 3, (7, 4))
    args = (reward, value, value[0], final, jnp.asarray(ended == 1), jnp.asarray(ended == 2))
    estimate = jax.jit(partial(gae, gamma=0.9, gae_lambda=0.8))
    order = draw.permutation(4)
    permuted = estimate(*(x[order] if x.ndim == 2 and x.shape[0] == 4 else x[:, order] for x in args))
    np.testing.assert_array_equal(permuted.advantage_t, estimate(*args).advantage_t[:, order])


def rollout(seed):
    """Ratios, rewards, values, the value after the last step, final values, terminated and truncated."""
    draw = np.random.default_rng(seed)
    ratio = jnp.asarray(np.exp(draw.normal(size=(T, ROWS))), jnp.float32)
    reward, value, final = (jnp.asarray(draw.normal(size=(T, ROWS)), jnp.float32) for _ in range(3))
    ended = draw.integers(0, 5, (T, ROWS))
    return ratio, reward, value, final[0] + 1.0, final, jnp.asarray(ended == 1), jnp.asarray(ended == 2)


seeds = given(st.integers(0, 2**31))


@seeds
def test_ratios_clipped_to_1_are_on_policy(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    bootstrap = compiled_bootstraps(value, last, final, terminated, truncated)
    done = terminated | truncated
    at_one = compiled_vtrace(1.0 + 1e6 * ratio, reward, value, bootstrap, done, 0.0, GAMMA, LAMBDA, 1.0, 1.0)
    on_policy = plain(reward, value, last, final, terminated, truncated)
    np.testing.assert_allclose(at_one.advantage_t, on_policy.advantage_t, **CLOSE)
    np.testing.assert_allclose(at_one.target_t, on_policy.target_t, **CLOSE)


@seeds
def test_lambda_zero_is_the_weighted_error_of_one_step(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    bootstrap = compiled_bootstraps(value, last, final, terminated, truncated)
    got = estimate(ratio, reward, value, bootstrap, terminated | truncated, 0.0, gae_lambda=0.0)
    error = np.minimum(ratio, RHO_CLIP) * (reward + GAMMA * bootstrap - value)
    np.testing.assert_allclose(got.advantage_t, error, **CLOSE)


@seeds
def test_ratio_0_cuts_the_trace_and_done_isolates_earlier_steps(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    cut = ratio.at[2, 0].set(0.0)
    done = (terminated | truncated).at[2, 1].set(True)
    bootstrap = compiled_bootstraps(value, last, final, terminated, truncated)

    def advantage(reward, advantage_last):
        return np.asarray(estimate(cut, reward, value, bootstrap, done, advantage_last, gae_lambda=LAMBDA).advantage_t)

    before, after = advantage(reward, 0.0), advantage(reward.at[3:].add(100.0), 7.0)
    np.testing.assert_array_equal(before[:3, :2], after[:3, :2])
    assert before[2, 0] == 0.0
    assert (before[3:] != after[3:]).all()


@seeds
def test_next_advantage_joins_two_halves(seed):
    ratio, reward, value, last, final, terminated, truncated = rollout(seed)
    rest = (
        ratio,
        reward,
        value,
        compiled_bootstraps(value, last, final, terminated, truncated),
        terminated | truncated,
    )
    late = estimate(*(x[3:] for x in rest), 0.5, gae_lambda=LAMBDA)
    early = estimate(*(x[:3] for x in rest), late.advantage_t[0], gae_lambda=LAMBDA)
    whole = estimate(*rest, 0.5, gae_lambda=LAMBDA)
    np.testing.assert_allclose(jnp.concatenate([early.advantage_t, late.advantage_t]), whole.advantage_t, **CLOSE)


@seeds
def test_perfect_critic_has_zero_advantages(seed):
    _, reward, value, last, final, terminated, truncated = rollout(seed)
    value = np.array(value)
    following = np.asarray(last)
    for t in reversed(range(T)):
        worth = np.where(terminated[t], 0.0, np.where(truncated[t], final[t], following))
        following = value[t] = reward[t] + GAMMA * worth
    value = jnp.asarray(value)
    got = plain(reward, value, last, final, terminated, truncated)
    np.testing.assert_allclose(got.advantage_t, 0.0, atol=1e-5)
    np.testing.assert_allclose(got.target_t, value, **CLOSE)


def test_advantages_have_no_gradient():
    ratio, reward, value, last, final, terminated, truncated = rollout(0)

    def total(ratio, value):
        bootstrap = bootstraps(value, last, final, terminated, truncated)
        got = vtrace_gae(ratio, reward, value, bootstrap, terminated | truncated, 0.0, GAMMA, LAMBDA, RHO_CLIP, C_CLIP)
        return got.advantage_t.sum() + got.target_t.sum()

    for gradient in jax.grad(total, argnums=(0, 1))(ratio, value):
        np.testing.assert_array_equal(gradient, 0.0)


@pytest.mark.parametrize("axes", [1, 2, 3], ids=["T", "TE", "TEA"])
def test_flags_have_the_leading_axes_of_the_rewards(axes):
    draw = np.random.default_rng(0)
    ratio, reward, value, final = (jnp.asarray(draw.normal(size=(4, 2, 3)), jnp.float32) for _ in range(4))
    flags = [jnp.asarray(draw.integers(0, 2, (4, 2, 3)[:axes]), bool) for _ in range(2)]
    full = [jnp.asarray(np.broadcast_to(np.reshape(f, f.shape + (1,) * (3 - axes)), (4, 2, 3))) for f in flags]

    def vtrace(terminated, truncated):
        bootstrap = compiled_bootstraps(value, final[0], final, terminated, truncated)
        return estimate(ratio, reward, value, bootstrap, terminated | truncated, 0.0, gae_lambda=LAMBDA)

    few, many = (plain(reward, value, final[0], final, *ends) for ends in (flags, full))
    np.testing.assert_allclose(few.advantage_t, many.advantage_t, **CLOSE)
    few, many = (vtrace(*ends) for ends in (flags, full))
    np.testing.assert_allclose(few.advantage_t, many.advantage_t, **CLOSE)


@seeds
def test_normalising_ignores_steps_of_weight_0(seed):
    draw = np.random.default_rng(seed)
    advantage = draw.normal(3.0, 5.0, (4, 3)).astype(np.float32)
    counts = np.ones((4, 3), bool)
    counts[draw.integers(4), draw.integers(3)] = False
    got = np.asarray(normalise(jnp.asarray(np.where(counts, advantage, np.nan)), jnp.asarray(counts)))[counts]
    np.testing.assert_allclose(got, normalise(jnp.asarray(advantage[counts])), rtol=1e-4, atol=1e-5)
    everything = normalise(jnp.asarray(advantage), jnp.ones((4,)))
    np.testing.assert_allclose(everything, normalise(jnp.asarray(advantage)), rtol=1e-4, atol=1e-5)


def test_normalising_an_empty_batch_is_finite():
    assert np.isfinite(normalise(jnp.ones((2, 3)), jnp.zeros((2, 3)))).all()
